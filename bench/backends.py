"""What the benchmarks of backends share: a client that stays, a claim to its first result, a session's commands, and how a rival's turn is timed."""
import collections
import json
import subprocess
import time

import common


class Client:
    """One connection, as a client that stays has it."""

    def __init__(self, node):
        self.connection = node.connection(120)

    def ask(self, method, path, body=None):
        self.connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def at_rest(self, ready=None):
        """The pool has as many as it is to have, or so many, and what was destroyed has gone."""
        pool = self.ask("GET", "/v1/pools")["pools"][0]
        return pool["ready"] >= (pool["low"] if ready is None else ready) and not pool["making"] and not pool["claimed"] and not pool["dying"]


def full(client, ready=None):
    common.harness.eventually("the pool is full", lambda: client.at_rest(ready), 180)
    time.sleep(0.2)


def timed(what, *words):
    began = time.monotonic_ns()
    result = what(*words)
    return time.monotonic_ns() - began, result


def spawned(words, env=None):
    """How long a program of somebody else's takes."""
    return timed(lambda: subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env, check=True))[0]


class Claims:
    """Creates by one client; the class of each is counted, and only those of the class that is meant are measured."""

    def __init__(self, client, body, klass="exact"):
        self.client, self.body, self.klass = client, body, klass
        self.classes = collections.Counter()

    def create(self):
        made = self.client.ask("POST", "/v1/sandboxes", self.body)
        self.classes[made["class"]] += 1
        return made

    def first_result(self):
        made = self.create()
        end = self.client.ask("POST", f"/v1/sandboxes/{made['id']}/exec", {"argv": ["true"]})["end"]
        if end["exit_code"] != 0:
            raise SystemExit(f"the command did not end well: {end}")
        return made

    def turn(self, what):
        """ns of what (create or first_result), or nothing if the claim was of another class; the sandbox is gone then."""
        took, made = timed(what)
        self.client.ask("DELETE", f"/v1/sandboxes/{made['id']}")
        return [took] if made["class"] == self.klass else []


def session_turns(client, body, n, rival):
    """{bothy, rival's name: [ns…]} of a session's command and the rival's, in turns. rival: (name, function that gives ns)."""
    sandbox = client.ask("POST", "/v1/sandboxes", body)["id"]
    session = f"/v1/sandboxes/{sandbox}/sessions/{client.ask('POST', f'/v1/sandboxes/{sandbox}/sessions', {})['id']}"
    name, theirs = rival
    taken = {"bothy": [], name: []}
    until = time.monotonic() + 10
    while time.monotonic() < until and client.ask("GET", "/v1/pools")["pools"][0]["making"]:
        time.sleep(0.1)
    for _ in range(n):
        took, end = timed(client.ask, "POST", f"{session}/commands", {"command": "true"})
        if end["exit_code"] != 0:
            raise SystemExit("the session's command did not end well")
        taken["bothy"].append(took)
        taken[name].append(theirs())
    client.ask("DELETE", f"/v1/sandboxes/{sandbox}")
    return taken


def report(args, bench, parts, classes, required):
    """parts: (what bothy's subject is called, {subject: [ns…]}, rival). The exit status."""
    rows, ratio = [], {}
    for called, taken, rival in parts:
        more, line = common.figures(bench, taken, [rival])
        ratio.update(line["ratio"])
        rows += [{**row, "subject": called if row["subject"] == "bothy" else row["subject"]} for row in more]
    return common.finish(args, bench, [*rows, {"bench": bench, "ratio": ratio, "classes": dict(classes)}], required)
