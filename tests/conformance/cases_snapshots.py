"""Snapshots: the files of a sandbox, kept, and others begun with them."""
import concurrent.futures
import contextlib
import os
import sqlite3
import time
from urllib.parse import quote

from cases_owners import key_for
from common import beside, needs
from harness import SLOW, Node, Skip, UnixConnection, check, equal, eventually, expect_error

# What an overlay can make of files: new, changed, removed, replaced, linked, odd.
WRITE = r"""set -e
mkdir -p /work/deep/er; echo new >/work/new; cat /etc/passwd >/work/passwd; echo changed >>/bin/README; rm /bin/yes; rm -rf /etc; mkdir /etc; echo own >/etc/own
ln /work/new /work/deep/linked; ln -s ../new /work/deep/soft; mkfifo /work/fifo; chown 1234:4321 /work/new; chmod 4711 /work/deep/er
touch -d '2001-02-03 04:05:06' /work/deep; printf 'a\377b' >"$(printf '/work/od d\nname\377')"
dd if=/dev/zero of=/work/sparse bs=1 count=1 seek=10000000 2>/dev/null; head -c 3000000 /dev/urandom >/work/noise"""
READ = r"""cat /work/new; tail -n1 /bin/README; ls /bin/yes 2>&1; ls /etc | grep -vE "^(hosts|hostname|resolv.conf)$"; ls -d /work 2>&1 | grep -v '^$'; stat -c '%u:%g %h %a' /work/new; stat -c '%a' /work/deep/er
stat -c '%Y' /work/deep; readlink /work/deep/soft; stat -c %F /work/fifo; stat -c '%s' /work/sparse; [ $(du -k /work/sparse | cut -f1) -lt 1000 ] && echo sparse
md5sum /work/noise; for f in /work/*; do printf '%s' "$f" | od -An -tx1 | tr -d ' \n'; echo; done"""


def take(api, sandbox):
    return api.ok("POST", f"/v1/sandboxes/{sandbox}/snapshots", timeout=120)


def remove(api, snapshot):
    equal(api.call("DELETE", f"/v1/snapshots/{snapshot}").status, 204, "status of the removal")


@contextlib.contextmanager
def born_of(api, snapshot, **spec):
    sb = api.ok("POST", "/v1/sandboxes", {"snapshot": snapshot, **spec})
    try:
        yield sb["id"]
    finally:
        api.delete(sb["id"])


def cases(suite, node):
    if node.caps.get("snapshot", "absent") == "absent":
        @suite.case("snapshots: a backend that takes none says so")
        def _():
            with node.sandbox() as sb:
                expect_error(node.call("POST", f"/v1/sandboxes/{sb}/snapshots"), 501, "unsupported")
                expect_error(node.call("POST", f"/v1/sandboxes/{sb}/fork", {}), 501, "unsupported")
            equal(node.ok("GET", "/v1/snapshots")["snapshots"], [], "snapshots")
            expect_error(node.call("POST", "/v1/sandboxes", {"snapshot": "b000aaaaaaaaaaaaaaaa"}), 404, "not_found")
        return

    @suite.case("a snapshot has the files as they were: new, changed, removed, replaced, links, owners, modes, times, holes")
    def _():
        with node.sandbox() as sb:
            node.shell(sb, WRITE)
            before = node.shell(sb, READ)
            snap = take(node, sb)
            equal((snap["sandbox"], snap["image"], snap["holds"]), (sb, node.show(sb)["image"]["name"], "files"), "snapshot")
            check(snap["bytes"] > 3000000 and snap["entries"] > 10 and snap["still_ms"] > 0, f"{snap}")
            equal(node.shell(sb, READ), before, "the sandbox itself, afterwards")
            node.shell(sb, "echo later >/work/new; rm /work/noise")
        with born_of(node, snap["id"]) as child, born_of(node, snap["id"]) as other:
            equal(node.show(child)["snapshot"], snap["id"], "what it was made of")
            equal(node.shell(child, READ), before, "files of a child")
            equal(node.shell(child, "hostname; cat /etc/hostname"), f"{child}\n{child}\n", "its name is its own")
            node.shell(child, "echo mine >/work/new; rm -rf /work/deep; echo x >/bin/yes")
            equal(node.shell(other, READ), before, "files of its sibling")
            second = take(node, child)
            with born_of(node, second["id"]) as grandchild:
                equal(node.shell(grandchild, "cat /work/new /bin/yes; ls /work/deep 2>&1; cat /etc/own"), "mine\nx\nls: /work/deep: No such file or directory\nown\n",
                      "a snapshot of a child")
        remove(node, second["id"])
        remove(node, snap["id"])

    @suite.case("a snapshot of a running sandbox: commands go on; of a paused one: it stays paused; of a gone one: none")
    def _():
        with node.sandbox() as sb:
            x = node.start(sb, "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); echo $i; sleep 0.01; done")
            eventually("it counts", lambda: node.output(sb, x))
            snap = take(node, sb)
            n = len(node.output(sb, x))
            eventually("it goes on", lambda: len(node.output(sb, x)) > n)
            node.ok("POST", f"/v1/sandboxes/{sb}/pause")
            paused = take(node, sb)
            equal((node.show(sb)["state"], paused["still_ms"]), ("paused", 0.0), "a paused one")
            node.ok("POST", f"/v1/sandboxes/{sb}/resume")
            n = len(node.output(sb, x))
            eventually("it goes on", lambda: len(node.output(sb, x)) > n)
            equal([s["id"] for s in node.ok("GET", f"/v1/sandboxes/{sb}/snapshots")["snapshots"]], [snap["id"], paused["id"]], "listed")
        expect_error(node.call("POST", f"/v1/sandboxes/{sb}/snapshots"), 410, "sandbox_gone")
        for s in (snap, paused):
            remove(node, s["id"])

    @suite.case("snapshots have owners; removed ones are gone, and what was made of them lives on")
    def _():
        _, ann = key_for(node, "ann")
        _, ben = key_for(node, "ben")
        sb = ann.create()
        ann.shell(sb, "echo hers >/file")
        snap = take(ann, sb)["id"]
        for method, path in (("GET", f"/v1/snapshots/{snap}"), ("DELETE", f"/v1/snapshots/{snap}"), ("POST", f"/v1/sandboxes/{sb}/snapshots")):
            expect_error(ben.call(method, path), 404, "not_found")
        expect_error(ben.call("POST", "/v1/sandboxes", {"snapshot": snap}), 404, "not_found")
        child = ann.ok("POST", "/v1/sandboxes", {"snapshot": snap})
        digest = child["image"]["digest"]
        ann.delete(child["id"])
        for image in (f"@snapshot:{snap}", f"snapshot:{snap}", f"docker.io/library/snapshot:{snap}", digest, digest[:19], digest.removeprefix("sha256:")[:12]):
            for api, method in ((ben, "GET"), (node, "GET"), (node, "DELETE")):
                check(api.call(method, f"/v1/images/{quote(image, safe='')}").status in (400, 404), f"{method} of the image {image}")
            check(ben.call("POST", "/v1/sandboxes", {"image": image, "pull": "never"}).status in (400, 404), f"by the image's name {image}")
        equal(ben.ok("GET", "/v1/snapshots")["snapshots"], [], "listed for another")
        check(not [i for i in node.ok("GET", "/v1/images")["images"] if snap in i["name"]], "it is listed among images")
        again = {"Idempotency-Key": f"of-{snap}"}
        child = ann.ok("POST", "/v1/sandboxes", {"snapshot": snap}, again)["id"]
        expect_error(node.call("POST", "/v1/templates", {"name": "not-mine", "snapshot": snap}), 404, "not_found")
        expect_error(ann.call("POST", "/v1/templates", {"name": "of-both", "snapshot": snap, "image": "busybox"}), 400, "invalid_request")
        ann.ok("POST", "/v1/templates", {"name": "of-snap", "snapshot": snap})
        expect_error(ann.call("DELETE", f"/v1/snapshots/{snap}"), 409, "conflict")
        by = ann.ok("POST", "/v1/sandboxes", {"template": "of-snap"})["id"]
        equal(ann.shell(by, "cat /file"), "hers\n", "by the template")
        equal(ann.call("DELETE", "/v1/templates/of-snap").status, 204, "removal")
        remove(ann, snap)
        expect_error(ann.call("POST", "/v1/sandboxes", {"snapshot": snap}), 404, "not_found")
        equal(ann.ok("POST", "/v1/sandboxes", {"snapshot": snap}, again)["id"], child, "the create of the child, repeated")
        equal(ann.shell(child, "cat /file; ls / | wc -l").split()[0], "hers", "a child after the removal")
        again = take(ann, child)["id"]
        with born_of(ann, again) as grandchild:
            equal(ann.shell(grandchild, "cat /file"), "hers\n", "a snapshot of it")
        remove(ann, again)
        for one in (sb, child, by):
            ann.delete(one)

    @suite.case("a snapshot is there after bothyd and the warden were killed; a sandbox made of it goes on")
    def _():
        beside(node)
        needs(node, "freeze")
        with node.sandbox() as sb:
            node.shell(sb, "echo kept >/file")
            snap = take(node, sb)["id"]
        with born_of(node, snap) as child:
            for program in ("warden", "bothyd"):
                node.kill(program)
                node.restart(program)
            equal(node.shell(child, "cat /file"), "kept\n", "a child over the kills")
            second = take(node, child)["id"]
        with born_of(node, snap) as later, born_of(node, second) as last:
            equal(node.shell(later, "cat /file") + node.shell(last, "cat /file"), "kept\nkept\n", "children made afterwards")
        remove(node, second)
        remove(node, snap)

    @suite.case("the room of a snapshot is free when it is removed and the last sandbox made of it has ended")
    def _():
        beside(node)

        def layers():
            return set(os.listdir(f"{node.dir}/warden/layers"))
        before = layers()
        with node.sandbox() as sb:
            node.shell(sb, "echo x >/file")
            snap = take(node, sb)["id"]
        own, = layers() - before
        with born_of(node, snap) as child:
            remove(node, snap)
            equal(node.shell(child, "sleep 4; cat /file"), "x\n", "a child after the removal")
            check(own in layers(), "its layer is gone while a sandbox has it")
        eventually("its layer goes", lambda: own not in layers(), 20)

    @suite.case("what is in the way of a snapshot is told and leaves nothing: a tree that is too deep")
    def _():
        with node.sandbox() as sb:
            node.shell(sb, "cd /; i=0; while [ $i -lt 140 ]; do mkdir d; cd d; i=$((i+1)); done")
            e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/snapshots", timeout=120), 413, "too_large")
            check("nested too deep" in str(e), f"{e}")
            equal(node.ok("GET", f"/v1/sandboxes/{sb}/snapshots")["snapshots"], [], "listed")
            node.shell(sb, "rm -rf /d")
            remove(node, take(node, sb)["id"])

    forks(suite, node)


def fork(api, sandbox, **members):
    return api.ok("POST", f"/v1/sandboxes/{sandbox}/fork", members, timeout=120)


def of_label(api, label, state=None):
    found = api.ok("GET", f"/v1/sandboxes?label={label}" + (f"&state={state}" if state else ""))
    return [s["id"] for s in found["sandboxes"]]


def no_record(node):
    """A fork's own snapshot is not listed: the store is asked, where it can be."""
    def found():
        db = sqlite3.connect(f"file:{node.dir}/bothyd/store.db?mode=ro", uri=True, timeout=5)
        try:
            return db.execute("SELECT count(*) FROM snapshots WHERE fork").fetchone()[0]
        finally:
            db.close()
    if hasattr(node, "dir"):
        eventually("records of forks go", lambda: not found())


def forks(suite, node):
    @suite.case("a fork: children with the files of now, each its own; as their parent otherwise, but for what is said anew")
    def _():
        spec = {"labels": {"team": "blue", "n": "0"}, "env": {"A": "parent"}, "limits": {"memory": 128 << 20, "pids": 77}, "umask": "027", "name": "forked",
                "tmpfs": [{"path": "/scratch", "size": 1 << 20, "mode": "0750"}], "idle": 500, "start": {"argv": ["sh", "-c", "echo started; exec sleep 1000"]}}
        parent = node.create(**spec)
        node.shell(parent, WRITE + "\necho memory >/scratch/file")
        before, counting = node.shell(parent, READ), node.start(parent, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done")
        made = fork(node, parent, count=3, labels={"n": "1"}, env={"B": "child"}, ttl=300)
        children = [s["id"] for s in made["sandboxes"]]
        equal((made["holds"], len(set(children)), made["still_ms"] > 0), ("files", 3, True), "answer")
        for child in children:
            equal(node.shell(child, READ), before, "files of a child")
            equal(node.shell(child, "echo \"$A\" \"$B\"; ls -A /scratch; umask; hostname; stat -c %a /scratch"), f" child\n0027\n{child}\n750\n", "its surroundings")
            seen, first = node.show(child), node.show(parent)
            equal((seen["labels"], seen["name"], seen["limits"], seen["idle"], seen["image"]["name"]), ({"team": "blue", "n": "1"}, None, first["limits"], 500, first["image"]["name"]), "its spec")
            check(295 < seen["ttl_left"] <= 300, f"time left: {seen['ttl_left']}")
            eventually("its start command runs", lambda c=child: node.show(c)["start"]["exec"] and node.output(c, node.show(c)["start"]["exec"]) == b"started\n")
            node.shell(child, f"echo {child} >/work/new")
        equal([node.shell(c, "cat /work/new").strip() for c in [*children, parent]], [*children, "new"], "files are apart")
        n = len(node.output(parent, counting))
        eventually("the parent goes on", lambda: len(node.output(parent, counting)) > n)
        equal(node.ok("GET", f"/v1/sandboxes/{parent}/snapshots")["snapshots"], [], "snapshots that stay")
        again = fork(node, children[0])["sandboxes"]
        equal(node.shell(again[0]["id"], "cat /work/new"), f"{children[0]}\n", "a fork of a child")
        for one in [parent, *children, again[0]["id"]]:
            node.delete(one)

    @suite.case("a fork refuses while secrets are held unless told to, and children remember; counts and owners are checked")
    def _():
        _, ben = key_for(node, "ben")
        with node.sandbox(secrets={"TOKEN": "x"}) as sb:
            check(node.show(sb)["holds_secrets"], "it does not know of its secrets")
            e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/fork", {"count": 2}), 409, "conflict")
            check("despite_secrets" in e["remedy"], f"{e}")
            for bad in ({"count": 0}, {"count": 101}, {"cuont": 1}):
                expect_error(node.call("POST", f"/v1/sandboxes/{sb}/fork", bad), 400, "invalid_request")
            expect_error(ben.call("POST", f"/v1/sandboxes/{sb}/fork", {}), 404, "not_found")
            child = fork(node, sb, despite_secrets=True)["sandboxes"][0]
            equal((child["holds_secrets"], node.shell(child["id"], "echo [$TOKEN]")), (True, "[]\n"), "a child")
            expect_error(node.call("POST", f"/v1/sandboxes/{child['id']}/fork", {}), 409, "conflict")
            given = fork(node, sb, despite_secrets=True, secrets={"TOKEN": "y"})["sandboxes"][0]
            equal(node.shell(given["id"], "echo [$TOKEN]"), "[y]\n", "one that is given another")
            kept = take(node, sb)["id"]
            later = node.ok("POST", "/v1/sandboxes", {"snapshot": kept})
            check(later["holds_secrets"], "a sandbox of a snapshot does not know what its files may hold")
            expect_error(node.call("POST", f"/v1/sandboxes/{later['id']}/fork", {}), 409, "conflict")
            node.delete(later["id"])
            remove(node, kept)
            for one in (child, given):
                node.delete(one["id"])
        with node.sandbox() as sb:
            check(not node.show(sb)["holds_secrets"], "it has none")
        expect_error(node.call("POST", f"/v1/sandboxes/{sb}/fork", {}), 410, "sandbox_gone")

    @suite.case("a fork whose caller leaves before the answer leaves no children")
    def _():
        beside(node)
        _, api = key_for(node, "left", creates_per_second=10)  # so that all of them take some seconds
        with api.sandbox(labels={"left": "no"}) as sb:
            c = UnixConnection(node.path)
            c.request("POST", f"/v1/sandboxes/{sb}/fork", b'{"count": 60, "labels": {"left": "yes"}, "queue_wait": 30}',
                      {"Content-Type": "application/json", "Authorization": f"Bearer {api.key}"})
            eventually("children come", lambda: of_label(node, "left=yes") or of_label(node, "left=yes", "gone"), 20)
            c.close()
            eventually("children go", lambda: of_label(node, "left=yes", "gone") and not of_label(node, "left=yes"), 60)
            equal(of_label(node, "left=no"), [sb], "the parent")
            no_record(node)

    @suite.case("a fork that its caller has left makes no more children")
    def _():
        beside(node)
        _, api = key_for(node, "leaving", creates_per_second=2)
        with api.sandbox() as sb:
            c = UnixConnection(node.path)
            c.request("POST", f"/v1/sandboxes/{sb}/fork", b'{"count": 20, "labels": {"left": "early"}, "queue_wait": 30}',
                      {"Content-Type": "application/json", "Authorization": f"Bearer {api.key}"})
            child = eventually("a child comes", lambda: of_label(api, "left=early"), 20)[0]
            means = api.show(child)["snapshot"]
            for method, path, body in (("GET", f"/v1/snapshots/{means}", None), ("DELETE", f"/v1/snapshots/{means}", None), ("POST", "/v1/sandboxes", {"snapshot": means})):
                expect_error(api.call(method, path, body), 404, "not_found")  # else a template could be made of what goes
            c.close()
            eventually("children go", lambda: not of_label(api, "left=early"), 8)
            time.sleep(1.5)
            check(len(of_label(api, "left=early", "gone")) < 20 and not of_label(api, "left=early"), "it went on")

    @suite.case("a child of a child has the variables of the template that its parent's parent was made of")
    def _():
        node.ok("POST", "/v1/templates", {"name": "with-env", "image": "busybox", "env": {"WHO": "template"}})
        top = node.ok("POST", "/v1/sandboxes", {"template": "with-env"})["id"]
        child = fork(node, top)["sandboxes"][0]["id"]
        last = fork(node, child, env={"MORE": "said"})["sandboxes"][0]["id"]
        equal([node.shell(one, "echo $WHO $MORE") for one in (top, child, last)], ["template\n", "template\n", "template said\n"], "variables")
        reset = node.ok("POST", f"/v1/sandboxes/{last}/reset")
        equal([reset["state"], node.shell(last, "echo $WHO")], ["running", "template\n"], "after a reset")
        equal(node.call("DELETE", "/v1/templates/with-env").status, 204, "the template")
        without = fork(node, top)["sandboxes"][0]["id"]
        node.ok("POST", f"/v1/sandboxes/{without}/reset")
        equal(node.shell(without, "echo [$WHO]"), "[]\n", "a child, forked and reset without the template")
        for one in (top, child, last, without):
            node.delete(one)

    @suite.case("a fork that cannot have all its children has none")
    def _():
        _, api = key_for(node, "few", max_sandboxes=3)
        sb = api.create()
        expect_error(api.call("POST", f"/v1/sandboxes/{sb}/fork", {"count": 3}, timeout=60), 429, "quota_exceeded")
        eventually("nothing is left but the parent", lambda: [s["id"] for s in api.ok("GET", "/v1/sandboxes")["sandboxes"]] == [sb])
        no_record(node)
        children = fork(api, sb, count=2)["sandboxes"]
        for one in [sb, *(c["id"] for c in children)]:
            api.delete(one)

    @suite.case("a fork waits for what its key may do later: rate and creates at a time")
    def _():
        for owner, quota in (("slow", {"creates_per_second": 2}), ("narrow", {"max_concurrent": 1})):
            _, api = key_for(node, owner, **quota)
            sb = api.create()
            made = [sb, *(c["id"] for c in fork(api, sb, count=4)["sandboxes"])]
            equal(len(set(made)), 5, owner)
            for one in made:
                api.delete(one)
        _, api = key_for(node, "hasty", creates_per_second=1)
        sb = api.create()
        expect_error(api.call("POST", f"/v1/sandboxes/{sb}/fork", {"count": 9, "queue_wait": 1}, timeout=60), 429, "quota_exceeded")
        eventually("nothing is left but the parent", lambda: [s["id"] for s in api.ok("GET", "/v1/sandboxes")["sandboxes"]] == [sb])
        api.delete(sb)

    @suite.case("an owner has 16 forks under way; one more is told to come later, and another owner's is made")
    def _():
        beside(node)
        _, many = key_for(node, "many-forks", creates_per_second=1)
        _, other = key_for(node, "other-forks")
        sb, elsewhere = many.create(), other.create()
        with concurrent.futures.ThreadPoolExecutor(20) as threads:
            wait = {"count": 99, "queue_wait": 6 * SLOW}  # more than the key may make in that time
            asked = [threads.submit(many.call, "POST", f"/v1/sandboxes/{sb}/fork", wait, timeout=60) for _ in range(20)]
            eventually("some are refused", lambda: sum(one.done() for one in asked) >= 4)
            made = fork(other, elsewhere)["sandboxes"]
            check(not all(one.done() for one in asked), "too late to tell")
            answers = [one.result() for one in asked]
        late = [a for a in answers if a.status == 503]
        equal([len(late), sum(a.status == 429 for a in answers)], [4, 16], "refused at once, and after a while")
        for a in late:
            check("too many forks" in a.error["message"] and a.headers.get("Retry-After"), f"{a}")
        for api, one in ((many, sb), (other, elsewhere), (other, made[0]["id"])):
            api.delete(one)
        eventually("no child is left", lambda: not many.ok("GET", "/v1/sandboxes")["sandboxes"], 60)


def alone(suite, backend):
    """On a node of its own, whose file system shares no blocks."""
    name = "a snapshot on a file system that shares no blocks has the same files, and holes stay holes"
    if not suite.wants(suite.prefix + name):
        return

    @suite.case(name)
    def _():
        if backend != "oci":
            raise Skip(f"{backend} takes none")
        with Node(backend, wrap=["env", "BOTHY_NODE_REFLINK=0"]) as node, node.sandbox() as sb:
            node.shell(sb, WRITE)
            before = node.shell(sb, READ)
            snap = take(node, sb)
            with born_of(node, snap["id"]) as child:
                equal(node.shell(child, READ), before, "files of a child")
            remove(node, snap["id"])
