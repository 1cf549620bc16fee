"""The backend over a real engine: what containers are, what is kept warm, who they belong to, and what becomes of them when somebody
else, or the engine itself, ends them."""
import contextlib
import http.client
import os
import signal
import threading
import time

from harness import ApiError, Skip, bytes_of, eventually

LABEL = "dev.bothy.cell"


def containers(engine):
    """Those of any cell, by name; kept warm and named ones."""
    return {c["Names"][0].lstrip("/"): c for c in engine.ok("GET", "/containers/json?all=true")
            if LABEL in (c["Labels"] or {}) and c["Names"]}  # one that is being removed has none


def named(engine):
    return {n for n in containers(engine) if not n.startswith("bothy-warm-")}


def full(node):
    eventually("the pool is full", lambda: (lambda p: p["ready"] >= p["low"] and not p["making"])(node.ok("GET", "/v1/pools")["pools"][0]), 60)


def create(node, **spec):
    return node.ok("POST", "/v1/sandboxes", {"image": "busybox", **spec}, timeout=90)


def inspect(engine, sandbox):
    return engine.ok("GET", f"/containers/bothy-{sandbox}/json")


def gone(node, sandbox, seconds=30):
    return eventually("it is gone", lambda: (lambda s: s["state"] == "gone" and s)(node.show(sandbox)), seconds)


def cases(suite, node, engine):
    made(suite, node, engine)
    warm(suite, node, engine)
    stray = lose(node, engine)  # it takes its time
    ends(suite, node, engine)

    @suite.case("a container of ours that nobody knows is removed, and no other")
    def _():
        full(node)
        warm = {c["Id"] for n, c in containers(engine).items() if n.startswith("bothy-warm-")} - {stray}
        eventually("it is removed", lambda: engine.call("GET", f"/containers/{stray}/json")[0] == 404, 60)
        assert warm and warm <= {c["Id"] for c in containers(engine).values()}
        # By its name: Docker's own list may have one without a name that it has removed, and does not know when it is asked for it.
        assert node.log().count("container bothy-warm-stray is nobody's") == 1, node.log()[-3000:]
    restarts(suite, node, engine)


def lose(node, engine):
    """Makes a container as a bothyd of this cell does whose engine is cut off before it has answered."""
    node.delete(create(node)["id"])
    full(node)
    cell = next(iter(containers(engine).values()))["Labels"][LABEL]
    return engine.ok("POST", "/containers/create?name=bothy-warm-stray", {"Image": "busybox", "Labels": {LABEL: cell}})["Id"]


def made(suite, node, engine):
    @suite.case("a container has no network, no new privileges, limits, and the name of its sandbox")
    def _():
        with node.sandbox(limits=node.held_limits({"memory": 96 << 20, "pids": 77, "cpu": 0.5}), read_only=True,
                          tmpfs=[{"path": "/scratch", "size": 1 << 20}]) as sb:
            c = eventually("named", lambda: f"bothy-{sb}" in containers(engine) and inspect(engine, sb))
            host, config = c["HostConfig"], c["Config"]
            assert host["NetworkMode"] == "none", host
            assert any("no-new-privileges" in o for o in host["SecurityOpt"]), host
            assert host["ReadonlyRootfs"] and not host["Privileged"] and not host["CapAdd"], host
            assert config["Entrypoint"] in (["/.bothy/bothy-init", "serve"], "/.bothy/bothy-init serve"), config
            assert config["Labels"]["dev.bothy.nonce"] and config["Labels"]["dev.bothy.pool"], config
            if engine.name == "docker":
                assert (host["Memory"], host["MemorySwap"], host["PidsLimit"], host["NanoCpus"]) == (96 << 20, 96 << 20, 77, 500_000_000), host
            assert node.shell(sb, "touch /x 2>/dev/null || echo no; touch /scratch/x && echo yes; touch /.bothy/x 2>/dev/null || echo no") == "no\nyes\nno\n"
            assert node.shell(sb, "cat /proc/net/dev | grep -c :") == "1\n", "loopback only"
        eventually("it is removed", lambda: f"bothy-{sb}" not in containers(engine), 60)

    @suite.case("an image without a shell runs")
    def _():
        with node.sandbox("static") as sb:
            end = node.exec(sb, ["/probe"])["end"]
            assert (end["how"], end["exit_code"]) == ("exited", 0), end


def warm(suite, node, engine):
    @suite.case("what was used lately is kept warm: the next claim is exact, and says so")
    def _():
        node.delete(create(node)["id"])
        full(node)
        sb = create(node)
        try:
            assert sb["class"] == "exact", sb
            assert node.shell(sb["id"], "echo $HOSTNAME") == sb["id"] + "\n"
            eventually("named", lambda: f"bothy-{sb['id']}" in containers(engine))
        finally:
            node.delete(sb["id"])
        full(node)

    @suite.case("a warm one gets the limits of who takes it")
    def _():
        if engine.name != "docker":
            raise Skip("this Podman has no limits, and updates none")
        node.delete(create(node)["id"])
        full(node)
        sb = create(node, limits={"memory": 123 << 20, "pids": 33})
        try:
            assert sb["class"] == "exact", sb
            host = eventually("named", lambda: f"bothy-{sb['id']}" in containers(engine) and inspect(engine, sb["id"]))["HostConfig"]
            assert (host["Memory"], host["PidsLimit"]) == (123 << 20, 33), host
        finally:
            node.delete(sb["id"])

    @suite.case("warm ones that somebody removes are missed by nobody")
    def _():
        node.delete(create(node)["id"])
        full(node)
        for name, c in containers(engine).items():
            if name.startswith("bothy-warm-"):
                engine.call("DELETE", f"/containers/{c['Id']}?force=true")
        sb = create(node)
        assert node.shell(sb["id"], "echo here") == "here\n"
        node.delete(sb["id"])
        full(node)

    @suite.case("many at a time: everyone gets one of his own")
    def _():
        got, errors = [], []

        def one():
            try:
                sb = create(node)
                got.append((sb["id"], sb["class"], node.shell(sb["id"], "cat /mark 2>/dev/null; echo mine >/mark; cat /mark")))
            except Exception as e:  # noqa: BLE001
                errors.append(e)
        threads = [threading.Thread(target=one) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for sb, _, _ in got:
            node.delete(sb)
        assert not errors, errors
        assert len({sb for sb, _, _ in got}) == 8 and all(out == "mine\n" for _, _, out in got), got


def ends(suite, node, engine):
    @suite.case("a container that somebody kills: its sandbox is gone, killed")
    def _():
        sb = create(node)["id"]
        x = node.start(sb, "sleep 1000")
        target = eventually("named", lambda: containers(engine).get(f"bothy-{sb}"))["Id"]
        engine.call("POST", f"/containers/{target}/kill?signal=KILL")
        cause = gone(node, sb)["cause"]
        assert cause["kind"] == "killed", cause
        # Whoever pumps its output writes the end, which may be a moment behind.
        assert eventually("the end of what ran", lambda: node.process(sb, x)["end"], 5)["how"] == "unknown"
        eventually("it is removed", lambda: f"bothy-{sb}" not in containers(engine), 60)

    @suite.case("a container that somebody removes: its sandbox is gone")
    def _():
        sb = create(node)["id"]
        target = eventually("named", lambda: containers(engine).get(f"bothy-{sb}"))["Id"]
        engine.call("DELETE", f"/containers/{target}?force=true")
        gone(node, sb)

    @suite.case("a command over the memory limit: its end says oom, the sandbox lives")
    def _():
        if engine.name != "docker":
            raise Skip("this Podman's user was not given the memory controller")
        with node.sandbox(limits={"memory": 48 << 20}) as sb:
            end = node.exec(sb, "dd if=/dev/zero of=/dev/null bs=200M count=1")["end"]
            assert (end["how"], end["signal"], end["oom"]) == ("signalled", 9, True), end
            assert node.shell(sb, "echo lives") == "lives\n"

    @suite.case("whoever runs attach inside, or speaks to init's socket, forges nothing")
    def _():
        with node.sandbox() as sb:
            r = node.exec(sb, "for i in 1 2 3; do head -c 100000 /dev/urandom | timeout 2 /.bothy/bothy-init attach >/dev/null; done; echo tried", timeout_ms=30000)
            assert bytes_of(r["out"]) == b"tried\n", r
            assert node.shell(sb, "echo still mine") == "still mine\n"

    @suite.case("a tenant that stops the attach process: commands go on over another")
    def _():
        with node.sandbox() as sb:
            x = node.start(sb, "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; sleep 0.1; done")
            stop = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q 'bothy-init attach' && kill -STOP ${p#/proc/}; done"
            # Answered over the next one: that this one is silent is known after 15 s.
            node.ok("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sh", "-c", stop], "timeout_ms": 5000}, timeout=90)
            end = node.wait(sb, x, 90)
            assert end["exit_code"] == 0, end
            assert node.output(sb, x) == b"".join(b"line %d\n" % i for i in range(1, 201))


def restarts(suite, node, engine):
    @suite.case("bothyd killed: sandboxes are found again, what was warm is not left")
    def _():
        sb = create(node)["id"]
        x = node.start(sb, "echo one; sleep 3; echo two; exit 5")
        full(node)
        before = set(containers(engine))
        node.kill("bothyd")
        node.restart("bothyd")
        assert node.wait(sb, x)["exit_code"] == 5
        assert node.output(sb, x) == b"one\ntwo\n"
        warm_before = {n for n in before if n.startswith("bothy-warm-")}
        eventually("the warm of before are gone", lambda: not warm_before & set(containers(engine)), 60)
        assert node.shell(sb, "echo again") == "again\n"
        node.delete(sb)

    @suite.case("volumes of other releases' programs go when nobody has them; one that was removed is made again")
    def _():
        def volumes():
            return {v["Name"] for v in engine.ok("GET", "/volumes")["Volumes"] or []}
        node.delete(create(node)["id"])
        ours = {name for name in volumes() if name.startswith("bothy-")}
        for name, labels in (("bothy-0.0.0-unused", {"dev.bothy": ""}), ("bothy-0.0.0-used", {"dev.bothy": ""}), ("bothy-somebody", {})):
            engine.ok("POST", "/volumes/create", {"Name": name, "Labels": labels})
        user = engine.ok("POST", "/containers/create", {"Image": "busybox", "HostConfig": {
            "NetworkMode": "none", "Mounts": [{"Type": "volume", "Source": "bothy-0.0.0-used", "Target": "/x"}]}})["Id"]
        try:
            node.kill("bothyd")
            node.restart("bothyd")
            eventually("it is removed", lambda: "bothy-0.0.0-unused" not in volumes(), 60)
            assert {"bothy-0.0.0-used", "bothy-somebody"} | ours <= volumes(), volumes()
        finally:
            engine.call("DELETE", f"/containers/{user}?force=true")
            for name in ("bothy-0.0.0-used", "bothy-somebody"):
                engine.call("DELETE", f"/volumes/{name}")
        node.delete(create(node)["id"])  # it knows that its own is filled
        node.ok("PATCH", "/v1/pools/slots", {"low": 0, "high": 0})

        def taken_away():
            for name in containers(engine):
                engine.call("DELETE", f"/containers/{name}?force=true")
            return all(engine.call("DELETE", f"/volumes/{name}")[0] in (204, 404) for name in ours)
        try:
            eventually("the volume is removed", taken_away, 30)
            with node.sandbox() as sb:
                assert node.shell(sb, "echo here") == "here\n"
        finally:
            node.ok("PATCH", "/v1/pools/slots", {"low": 2, "high": 2})

    @suite.case("bothyd killed right after an exact claim: the sandbox is there, under its name")
    def _():
        node.delete(create(node)["id"])
        full(node)
        sb = create(node)
        node.kill("bothyd")  # before the engine has renamed it
        node.restart("bothyd")
        assert sb["class"] == "exact"
        eventually("it is taken up again", lambda: node.call("POST", f"/v1/sandboxes/{sb['id']}/exec", {"argv": ["true"]}).status == 200)
        assert node.shell(sb["id"], "echo here") == "here\n"
        eventually("named", lambda: f"bothy-{sb['id']}" in containers(engine))
        node.delete(sb["id"])

    @suite.case("a paused one is paused after a restart, and goes on")
    def _():
        with node.sandbox() as sb:
            x = node.start(sb, "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i; sleep 0.1; done")
            node.ok("POST", f"/v1/sandboxes/{sb}/pause")
            node.kill("bothyd")
            node.restart("bothyd")
            assert node.show(sb)["state"] == "paused"
            node.ok("POST", f"/v1/sandboxes/{sb}/resume")
            assert node.wait(sb, x)["exit_code"] == 0
            assert node.output(sb, x) == b"".join(b"%d\n" % i for i in range(1, 21))

    for how in (signal.SIGTERM, signal.SIGKILL):
        @suite.case(f"the engine is started again ({how.name}) under load: causes are right, requests meanwhile are 503, then all is well")
        def _(how=how):
            engine_restart(node, engine, how)


def how_it_is(node, sb):
    """gone or lives; None: its end is not known yet."""
    state = node.show(sb)
    if state["state"] == "gone":  # dockerd ends its containers when it ends
        assert state["cause"]["kind"] in ("killed", "exited", "node_lost"), state["cause"]
        return "gone"
    try:
        assert node.shell(sb, "echo lives") == "lives\n"
    except ApiError:
        return None
    return "lives"


def engine_restart(node, engine, how):
    lives = [create(node)["id"] for _ in range(2)]
    full(node)
    answers, stop = [], threading.Event()

    def load():
        while not stop.is_set():
            try:
                a = node.call("POST", "/v1/sandboxes", {"image": "busybox"}, timeout=120)
            except (OSError, http.client.HTTPException) as e:
                answers.append((0, str(e)))
                continue
            answers.append((a.status, a.body))
            if a.status < 300:
                with contextlib.suppress(ApiError):
                    node.delete(a.json["id"])
            time.sleep(0.1)
    threads = [threading.Thread(target=load) for _ in range(2)]
    for t in threads:
        t.start()
    time.sleep(1)
    try:
        engine.restart(how)
        os.chmod(engine.socket, 0o666)  # as the harness does for bothyd's user
        os.chmod(engine.socket.parent, 0o755)
        time.sleep(3)
    finally:
        stop.set()
        for t in threads:
            t.join()
    bad = [a for a in answers if a[0] not in (200, 201, 500, 503)]
    assert not bad, bad[:3]
    for status, body in answers:
        assert status < 500 or b'"retryable":true' in body, (status, body)
    for sb in lives:
        if eventually("it lives, or has ended", lambda sb=sb: how_it_is(node, sb), 30) == "lives":
            node.delete(sb)
    sb = eventually("a new one", lambda: (lambda a: a.status < 300 and a.json["id"])(node.call("POST", "/v1/sandboxes", {"image": "busybox"}, timeout=90)), 60)
    assert node.shell(sb, "echo new") == "new\n"
    node.delete(sb)
    try:
        eventually("nobody's containers are gone", lambda: not named(engine), 30)
    except AssertionError as e:
        left = {name: (c["State"], c["Status"], c["Command"], c["Labels"]) for name, c in containers(engine).items()}
        raise AssertionError(f"{e}: {left}\n{node.log('bothyd')[-3000:]}") from None
