#!/usr/bin/env python3
"""The tables of README.md against what there is: targets, corpora, dictionaries, and the source files that take
outside bytes apart. Arguments: the targets that the build knows."""
import pathlib
import re
import subprocess
import sys

import table

# Calls that turn bytes into meaning. A source file that has one is in the table of parsers.
READS = re.compile(r"\b(json_parse|json_loads|json_loadb|sscanf|strto[a-z]+|strptime|fs_read|sock_recv|recv|recvmsg|getenv|"
                   r"base64_decode|hex_decode|percent_decode|str_to_[a-z0-9]+|strtok_r|strsep|getline|yaml_parser_parse|"
                   r"archive_read_next_header2?|llhttp_execute|sqlite3_column_text|request_query|request_header)\b *[(,]")


def source_files():
    listed = subprocess.run(["git", "-C", table.TOP, "ls-files", "src/*.c"], stdout=subprocess.PIPE, text=True, check=True)
    return [p[len("src/"):] for p in listed.stdout.splitlines()]


def check_tables(built, complain):
    targets, parsers = table.files_of_targets(), table.rows("Parsers")
    named = {f for row in parsers for f in table.quoted(row[0])}
    used = {t for row in parsers for t in table.quoted(row[2]) if "/" not in t}
    for t in sorted(built ^ set(targets)):
        complain(f"target {t} is not in both meson.build and the table of targets")
    for t in sorted(used ^ set(targets)):
        complain(f"target {t} is not in both tables")
    for row in parsers:
        if not table.quoted(row[2]) and not row[2].startswith("none:") and row[2] != "none":
            complain(f"{row[0]}: neither a target nor why there is none")
    for f in sorted(named | {f for files in targets.values() for f in files}):
        if not (table.TOP / "src" / f).is_file():
            complain(f"there is no src/{f}")
    for f in source_files():
        if f not in named and READS.search((table.TOP / "src" / f).read_text()):
            complain(f"src/{f} reads outside bytes and is not in the table of parsers")


def check_corpora(built, complain):
    corpora = {p.name for p in (table.HERE / "corpus").iterdir()}
    for t in sorted(built ^ corpora):
        complain(f"{t}: a target without a corpus, or a corpus without a target")
    for p in table.HERE.glob("*.dict"):
        if p.stem not in built:
            complain(f"{p.name} is no target's")
    total = 0
    for t in sorted(corpora):
        files = list((table.HERE / "corpus" / t).iterdir())
        total += sum(p.stat().st_size for p in files)
        if not 0 < len(files) <= table.FILES_MAX:
            complain(f"{t}: {len(files)} inputs, must be 1 to {table.FILES_MAX}")
    if total > table.CORPUS_MAX:
        complain(f"the corpora have {total} bytes, at most {table.CORPUS_MAX} are allowed")


def main(built):
    wrong = []
    check_tables(built, wrong.append)
    check_corpora(built, wrong.append)
    print("\n".join(wrong) or f"{len(built)} targets")
    return 1 if wrong else 0


sys.exit(main(set(sys.argv[1:])))
