"""What the client makes of lost connections and killed daemons: each byte once, no command twice, no result guessed."""
import collections
import random
import threading
import time

import bothy
from harness import check, eventually, equal
from proxy import Proxy

SHARE = 0.6  # of connections that are cut


def expected(number, lines):
    return "".join(f"{number} {i}\n" for i in range(lines)).encode()


def command(number, lines):
    """Writes its lines with pauses, and one line to a file: whoever runs it twice is found out."""
    half = lines // 2
    return (f"echo {number} >>/ran; i=0; while [ $i -lt {lines} ]; do echo {number} $i; i=$((i+1)); "
            f"if [ $i = {half} ]; then sleep 0.1; fi; done; echo end {number} >&2; exit $(({number} % 7))")


def judge(result, number, lines):
    equal(result.out == expected(number, lines), True, f"out of {number} ({len(result.out)} bytes)")
    equal((result.err, result.exit_code), (f"end {number}\n".encode(), number % 7), f"err and status of {number}")


def ran_once(sandbox, numbers):
    counted = collections.Counter(sandbox.exec("cat /ran").check().text.split())
    equal(counted, collections.Counter({str(n): 1 for n in numbers}), "how often each ran")


def cases(suite, node):
    draw, rounds = random.Random(suite.args.seed), 400 if suite.args.long else 40
    key = node.ok("POST", "/v1/keys", {"owner": "cut", "role": "user"})["key"]
    direct = bothy.Client(f"http://127.0.0.1:{node.port}", key=key)

    def cutting():
        proxy = Proxy(("127.0.0.1", node.port), draw.random(), SHARE)
        return proxy, bothy.Client(f"http://127.0.0.1:{proxy.port}", key=key)

    @suite.case(f"{rounds} commands through a proxy that cuts: each byte once, each end, none run twice")
    def _():
        proxy, client = cutting()
        with client, direct.create("busybox") as sandbox:
            there = client.get(sandbox.id)
            for n in range(rounds):
                lines = draw.choice([1, 10, 300, 4000])
                judge(there.exec(command(n, lines)), n, lines)
            ran_once(sandbox, range(rounds))
        check(sum(proxy.cuts.values()) >= rounds // 8, f"only {sum(proxy.cuts.values())} cuts")
        print(f"      {sum(proxy.cuts.values())} cuts: {dict(proxy.cuts)}")
        proxy.close()

    @suite.case(f"{rounds} commands of a session through it: the same")
    def _():
        proxy, client = cutting()
        with client, direct.create("debian") as sandbox:
            session = client.get(sandbox.id).session()
            for n in range(rounds):
                lines = draw.choice([1, 10, 300])
                judge(session.run(f"( {command(n, lines)} )"), n, lines)
            ran_once(sandbox, range(rounds))
            equal(session.run("echo $?").exit_code, 0, "the session goes on")
        check(sum(proxy.cuts.values()) >= rounds // 8, f"only {sum(proxy.cuts.values())} cuts")
        proxy.close()

    @suite.case(f"{rounds // 2} sandboxes made and ended through it: none is left, none is made twice")
    def _():
        proxy, client = cutting()
        with client:
            ids = []
            for n in range(rounds // 2):
                with client.create("busybox", labels={"batch": "cut"}) as sandbox:
                    ids.append(sandbox.id)
            everything = [s.id for s in direct.list(label=["batch=cut"], state=["creating", "running", "paused", "gone"])]
        equal((sorted(everything), [s.id for s in direct.list(label=["batch=cut"])]), (sorted(ids), []), "made, and left")
        proxy.close()

    @suite.case("3 MB of standard input and files of 1 MB through it, byte for byte")
    def _():
        proxy, client = cutting()
        with client, direct.create("busybox") as sandbox:
            there, data = client.get(sandbox.id), draw.randbytes(3_000_000)
            for n in range(5):
                equal(there.exec(["cat"], stdin=data).out == data, True, "what cat gave back")
                there.files.write(f"/{n}", data[:1_000_000])
                equal(there.files.read(f"/{n}") == data[:1_000_000], True, "the file")
        proxy.close()

    @suite.case("what may not be repeated is not: the caller is told that nobody knows")
    def _():
        proxy = Proxy(("127.0.0.1", node.port), 1, 0)
        with bothy.Client(f"http://127.0.0.1:{proxy.port}", key=key) as client, direct.create("busybox") as sandbox:
            process = client.get(sandbox.id).start(["sleep", "100"])
            for sent in range(200):  # a connection that dies when the answer comes
                client.transport._http.close()
                client.transport = type(client.transport)(client.address, 5)
                process.transport = client.transport
                proxy.share = 1.0
                try:
                    process.signal("CONT")
                except bothy.ConnectionLost:
                    break
                except bothy.BothyError:
                    continue
            else:
                check(False, "no answer was lost in 200 tries")
        proxy.close()

    @suite.case("bothyd killed under a command and a session's: both results are whole when it is back")
    def _():
        with bothy.Client(socket=node.path) as client, client.create("debian") as sandbox, sandbox.session() as session:
            got = {}
            workers = [threading.Thread(target=lambda: got.update(exec=sandbox.exec("echo 1 >>/ran; for i in $(seq 40); do echo $i; sleep 0.1; done; exit 5"))),
                       threading.Thread(target=lambda: got.update(run=session.run("for i in $(seq 40); do echo $i; sleep 0.1; done; (exit 6)")))]
            for worker in workers:
                worker.start()
            eventually("both run", lambda: len([p for p in sandbox.processes() if p.running]) == 2 and session.refresh().running == 1)
            for _ in range(2):
                node.kill("bothyd")
                node.restart("bothyd")
                time.sleep(0.3)
            for worker in workers:
                worker.join(90)
            lines = "".join(f"{n}\n" for n in range(1, 41))
            equal((got["exec"].text, got["exec"].exit_code, got["run"].text, got["run"].exit_code), (lines, 5, lines, 6), "results")
            equal(sandbox.exec("cat /ran").text, "1\n", "how often it ran")
    direct.close()
