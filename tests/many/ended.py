"""Rows of sandboxes that have ended, put into a store that is closed."""
import contextlib
import json
import sqlite3
import time

HOUR_NS = 3600 * 10**9
SPEC = json.dumps({"limits": {"memory": 1 << 30, "disk": 10 << 30, "cpu_milli": 1000, "pids": 512, "nofile": 1024, "nofile_hard": 65536,
                              "shm_mib": 64, "execs": 0},
                   "labels": ["task=one", "run=17"], "user": "root", "cwd": "/", "read_only": False, "setuid": False, "umask": 18,
                   "tmpfs": [], "network": "none"})


def add(path, count):
    """Ended within the last 23 hours, with three events each."""
    now = time.time_ns()

    def at(i):
        return now - (count - i) * 23 * HOUR_NS // count

    def row(i):
        return (f"b000{i:016d}", f"user{i % 50}", "gone", '{"kind":"requested","by":"user"}', "busybox", b"\1" * 32, SPEC, at(i),
                at(i) + HOUR_NS, at(i) + 10**9)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -200000")
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        db.execute("BEGIN")
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.executemany("INSERT INTO sandboxes (id, owner, state, cause, image, digest, spec, created, ttl, ended) "
                       "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (row(i) for i in range(count)))
        db.executemany("INSERT INTO events (time, sandbox, owner, type) VALUES (?, ?, ?, ?)",
                       ((at(i) + n, f"b000{i:016d}", f"user{i % 50}", kind)
                        for i in range(count) for n, kind in enumerate(("creating", "running", "gone"))))
        for _, sql in triggers:
            db.execute(sql)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
