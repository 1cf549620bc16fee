"""The store at an earlier version, made from today's: the rows in tables that src/store/schema.c's first migrations make."""
import contextlib
import json
import os
import re
import shutil
import sqlite3

from harness import TOP


def migrations():
    """The texts, in order, from the source."""
    source = (TOP / "src" / "store" / "schema.c").read_text()
    body = re.sub(r"/\*.*?\*/", "", re.search(r"MIGRATIONS\[\] = \{(.*?)\n\};", source, re.S)[1], flags=re.S)
    for name, text in re.findall(r'^#define (\w+) (".*")$', source, re.M):
        body = re.sub(rf"\b{name}\b", lambda _, text=text: text, body)
    return ["".join(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', text))
            for text in re.split(r'"\s*,\s*(?="|$)', body.strip().rstrip(",") + ',')
            if '"' in text for text in [text if text.rstrip().endswith('"') else text + '"']]


def take_back(path, version):
    """Nobody may have it open. Columns that the version does not know are lost."""
    new = path + ".old-version"
    with contextlib.closing(sqlite3.connect(new)) as db:
        for text in migrations()[:version]:
            db.executescript(text)
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("ATTACH ? AS now", (path,))
        for table, in db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall():
            columns = [{c[1] for c in db.execute(f"PRAGMA {schema}.table_info({table})")} for schema in ("main", "now")]
            both = ", ".join(sorted(columns[0] & columns[1]))
            if both:
                db.execute(f"DELETE FROM main.{table}")  # what triggers made of the tables before
                db.execute(f"INSERT INTO main.{table} ({both}) SELECT {both} FROM now.{table}")
        db.commit()
        db.execute("DETACH now")
        db.execute("PRAGMA journal_mode = WAL")
    for tail in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + tail)
            os.unlink(new + tail)
    os.replace(new, path)
    shutil.chown(path, "bothy", "bothy")
    os.chmod(path, 0o600)
