"""Answers of real engines, for the unit test of their parser (tests/unit/backend/answers)."""
import json
import pathlib
import re
import threading
import time

from engines import Connection

ANSWERS = pathlib.Path(__file__).resolve().parents[1] / "unit" / "backend" / "answers"
LABEL = "dev.bothy.cell"


def events(engine, lines):
    """Collects lines until the connection is closed."""
    connection = Connection(engine.socket, 30)
    connection.request("GET", f"/events?since={int(time.time())}")
    answer = connection.getresponse()

    def read():
        while line := answer.readline():
            lines.append(line)
    threading.Thread(target=read, daemon=True).start()


def run(engine, image, write):
    spec = {"Image": image, "Cmd": ["sleep", "1000"], "Labels": {LABEL: "test", "dev.bothy.pool": "0123"},
            "HostConfig": {"NetworkMode": "none", "Memory": 64 << 20, "NanoCpus": 250_000_000, "PidsLimit": 20}
            if engine.name == "docker" else {"NetworkMode": "none"}}
    made = engine.call("POST", "/containers/create?name=bothy-recorded", spec)[1]
    write("made", made)
    container = json.loads(made)["Id"]
    engine.ok("POST", f"/containers/{container}/start")
    write("running", engine.call("GET", f"/containers/{container}/json")[1])
    write("list", engine.call("GET", "/containers/json?all=true")[1])
    time.sleep(1)
    write("stats", engine.call("GET", f"/containers/{container}/stats?stream=false&one-shot=true")[1])
    engine.ok("POST", f"/containers/{container}/pause")
    write("paused", engine.call("GET", f"/containers/{container}/json")[1])
    engine.ok("POST", f"/containers/{container}/unpause")
    engine.ok("POST", f"/containers/{container}/kill?signal=KILL")
    write("wait", engine.call("POST", f"/containers/{container}/wait")[1])
    write("dead", engine.call("GET", f"/containers/{container}/json")[1])
    write("conflict", engine.call("POST", f"/containers/{container}/kill?signal=KILL")[1])
    engine.call("DELETE", f"/containers/{container}?force=true")
    write("missing", engine.call("GET", f"/containers/{container}/json")[1])


def record(engine, image):
    to = ANSWERS / engine.name
    to.mkdir(parents=True, exist_ok=True)

    def write(name, answer):
        """Without the places and the name of this machine."""
        text = answer.decode().replace(str(engine.dir), "/var/lib/engine")
        (to / f"{name}.json").write_text(re.sub(r'"(Name|Hostname)":"vm"', r'"\1":"node"', text))
    lines = []
    events(engine, lines)
    write("version", engine.call("GET", "/version")[1])
    write("info", engine.call("GET", "/info")[1])
    write("image", engine.call("GET", f"/images/{image}/json")[1])
    write("images", engine.call("GET", "/images/json")[1])
    write("pull", engine.call("POST", "/images/create?fromImage=127.0.0.1%3A1%2Fno%2Fsuch%3A1")[1])
    run(engine, image, write)
    time.sleep(1)
    write("events", b"".join(lines))
