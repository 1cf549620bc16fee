"""Templates built by e2b of PyPI: client.py DIRECTORY, whose files are made here. A line of JSON for each case."""
import concurrent.futures
import json
import os
import pathlib
import sys
import time
import urllib.request

from e2b import Sandbox, Template

HERE = pathlib.Path(sys.argv[1])
CASES = []


def case(function):
    CASES.append(function)
    return function


def check(condition, what):
    if not condition:
        raise AssertionError(str(what)[:600])


def equal(got, wanted):
    check(got == wanted, f"{got!r}, not {wanted!r}")


def put(path, text, mode=0o644):
    path = HERE / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def context():
    put("app/main.txt", "main\n")
    put("app/run.sh", "#!/bin/sh\necho ran\n", 0o755)
    put("app/sub/deep/er.txt", "deep\n")
    (HERE / "app/empty").mkdir(exist_ok=True)
    if not (HERE / "app/link").is_symlink():
        os.symlink("main.txt", HERE / "app/link")
    put("one.txt", "one\n")
    put("a.cfg", "a\n")
    put("b.cfg", "b\n")
    put("tree/etc/own.conf", "own\n")


def template():
    return Template(file_context_path=str(HERE))


def build(recipe, name, **more):
    lines = []
    info = Template.build(recipe, name, on_build_logs=lines.append, **more)
    return info, lines


def fails(recipe, name, *words):
    try:
        Template.build(recipe, name)
    except Exception as e:
        for word in words:
            check(word in str(e), f"no {word!r} in {e}")
        check(not Template.exists(name), "it exists")
        return str(e)
    raise AssertionError("it was built")


def inside(name, command, **more):
    with Sandbox.create(name, timeout=120) as sb:
        return sb.commands.run(command, **more).stdout


@case
def steps():
    """As whom, where and with what commands and sandboxes run."""
    recipe = (template().from_image("debian").run_cmd("whoami >/tmp/who; pwd >/tmp/where")
              .run_cmd("whoami >/root/who", user="root").set_envs({"ONE": "1", "TWO": "$ONE two", "THREE": "a \"b\" `c` $(d)"})
              .set_workdir("/srv/deep/er").run_cmd("echo $ONE-$TWO >here").set_user("root").run_cmd("pwd >/root/where; echo $HOME >>/root/where"))
    build(recipe, "steps", cpu_count=1, memory_mb=512)
    out = inside("steps", "cat /tmp/who /tmp/where /root/who here /root/where; whoami; pwd; echo $ONE/$TWO/$THREE; stat -c %U . ..")
    equal(out, "user\n/home/user\nroot\n1-$ONE two\n/srv/deep/er\n/root\nroot\n/srv/deep/er\n1/$ONE two/a \"b\" `c` $(d)\nuser\nuser\n"
          .replace("$ONE two", " two"))


@case
def values():
    """Variables of earlier steps and of the image in later ones."""
    recipe = template().from_image("debian").set_envs({"A": "x"}).set_envs({"B": "$A:${A}y:${NONE:-z}", "PATH": "/opt/bin:$PATH"}).set_workdir("/srv/$A").copy("one.txt", "/srv/$A/y")
    build(recipe, "values")
    equal(inside("values", "echo $B; pwd; echo ${PATH%%:*}"), "x:xy:z\n/srv/x\n/opt/bin\n")


@case
def user_is_there():
    build(template().from_image("debian"), "plain")
    equal(inside("plain", "id -un; pwd; stat -c '%U %a' /home/user; stat -c %a /usr/local/bin /code"), "user\n/home/user\nuser 700\n777\n777\n"
          .replace("700", inside("plain", "stat -c %a /home/user").strip()))


@case
def copies():
    recipe = (template().from_image("debian").run_cmd("mkdir -m 711 /srv/app && echo old >/srv/app/main.txt && echo stays >/srv/app/stays", user="root")
              .copy("app", "/srv/app").copy("one.txt", "/etc/").copy("one.txt", "renamed.txt").copy("one.txt", "/srv/app")
              .copy("app/sub", "/new/place", user="root", mode=0o750).copy("*.cfg", "/cfg").copy("tree", "/"))
    build(recipe, "copies")
    out = inside("copies", """cd /srv/app; stat -c %a .; cat main.txt stays one.txt; ./run.sh; cat sub/deep/er.txt; readlink link; ls -A empty | wc -l
stat -c '%U %a' main.txt run.sh sub link; cat /etc/one.txt ~/renamed.txt; stat -c %U /etc/one.txt ~/renamed.txt
ls /cfg; cat /etc/own.conf; stat -c '%U %a' /etc /""")
    equal(out, "711\nmain\nstays\none\nran\ndeep\nmain.txt\n0\nuser 644\nuser 755\nuser 755\nuser 777\none\none\nuser\nuser\na.cfg\nb.cfg\nown\nroot 755\nroot 755\n")
    equal(inside("copies", "stat -c '%U %a' /new /new/place /new/place/deep /new/place/deep/er.txt", user="root"),
          "root 755\nroot 750\nroot 750\nroot 750\n")


@case
def copies_again():
    """What was sent before is not sent again; other content is."""
    build(template().from_image("debian").copy("one.txt", "/tmp/"), "again")
    lines = build(template().from_image("debian").copy("one.txt", "/tmp/"), "again")[1]
    check(any("already cached" in line.message for line in lines), [line.message for line in lines])
    put("one.txt", "two\n")
    build(template().from_image("debian").copy("one.txt", "/tmp/"), "again")
    equal(inside("again", "cat /tmp/one.txt"), "two\n")


@case
def dockerfile():
    put("Dockerfile", "FROM debian\nWORKDIR /app\nENV LEVEL=3 NAME=\"the name\"\nCOPY app/ /app/\nRUN ./run.sh >ran && echo $NAME >>ran\n"
                      "RUN useradd -m worker && chown -R worker /app\nUSER worker\n")
    build(template().from_dockerfile(str(HERE / "Dockerfile")), "dockerfile")
    equal(inside("dockerfile", "whoami; pwd; cat ran; echo $LEVEL; stat -c %U ran"), "worker\n/app\nran\nthe name\n3\nworker\n")


@case
def a_failing_step_is_named():
    recipe = template().from_image("debian").run_cmd("echo fine").run_cmd("echo the reason >&2; exit 7").run_cmd("echo never")
    fails(recipe, "failing", "step 2", "RUN", "exit status 7", "the reason")
    fails(template().from_image("debian").set_user("root").copy("one.txt", "/x", user="nobody-knows"), "failing", "step 2", "COPY", "nobody-knows")
    fails(template().from_image("debian").run_cmd("true", user="stranger"), "failing", "step 1", "stranger")
    fails(template().from_image("no.such.registry.invalid/image:1"), "failing", "base")
    fails(template().from_template("no-such-template"), "failing", "no-such-template")


@case
def logs():
    lines = build(template().from_image("debian").run_cmd("for i in $(seq 1000); do echo line $i; done; printf 'odd \\377'"), "logs")[1]
    equal([line.message for line in lines if line.message.startswith("line ")], [f"line {i}" for i in range(1, 1001)])
    check(any(line.message.startswith("odd ") for line in lines), "the last line")


@case
def start_command():
    start = "echo begun >>/home/user/log; while sleep 0.1; do date >/tmp/alive; done"
    recipe = template().from_image("debian").set_envs({"MARK": "here"}).set_start_cmd(f"echo $MARK >/tmp/mark; {start}", "test -s /tmp/alive")
    build(recipe, "starts")
    out = inside("starts", "for i in $(seq 100); do [ -s /tmp/alive ] && break; sleep 0.1; done; cat /tmp/mark /home/user/log; [ -s /tmp/alive ] && echo alive")
    equal(out, "here\nbegun\nalive\n")
    fails(template().from_image("debian").set_start_cmd("echo no port >&2; exit 3", "test -s /nothing"), "failing", "start command", "3", "no port")


@case
def start_command_opens_a_port():
    """The first request comes before the server does, and waits for it."""
    serve = ("perl -MIO::Socket -e '$s = IO::Socket::INET->new(LocalPort => 8000, Listen => 5) or die $!; "
             "while ($c = $s->accept) { 1 while defined($_ = <$c>) && /\\S/; print $c \"HTTP/1.0 200 OK\\r\\n\\r\\nserved\"; close $c }'")
    build(template().from_image("debian").set_start_cmd(f"sleep 3; exec {serve}", "true"), "serves")
    sb = Sandbox.create("serves")
    try:
        asked = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + "/x", headers={
            "E2b-Sandbox-Id": sb.sandbox_id, "E2b-Sandbox-Port": "8000", "E2B-Traffic-Access-Token": sb.traffic_access_token})
        equal(urllib.request.urlopen(asked, timeout=60).read(), b"served")
    finally:
        sb.kill()


@case
def from_template():
    Template.assign_tags("starts", ["v1"])
    for base, child in (("starts", "child"), ("starts:v1", "child-of-tag")):
        # The start command is the child's, and not of the sandbox that its steps run in.
        build(template().from_template(base).run_cmd("sleep 1; test ! -e /tmp/alive && echo more >more"), child)
        out = inside(child, "cat more; echo $MARK; whoami; for i in $(seq 100); do [ -s /tmp/alive ] && break; sleep 0.1; done; "
                            "[ -s /tmp/alive ] && echo alive; cat /home/user/log")
        equal(out, "more\nhere\nuser\nalive\nbegun\n")
    build(template().from_template("base").run_cmd("echo on base >on"), "on-base")
    equal(inside("on-base", "cat on"), "on base\n")


@case
def names_and_tags():
    for version in ("1", "2"):
        build(template().from_image("debian").run_cmd(f"echo {version} >v"), f"tagged:v{version}")
    equal([Template.exists(n) for n in ("tagged", "tagged:v1", "tagged:v3", "base", "not-there")], [True, True, False, True, False])
    equal([inside(f"tagged:v{v}", "cat v") for v in "12"], ["1\n", "2\n"])
    Template.assign_tags("tagged:v1", ["stable", "default"])
    equal([inside(n, "cat v") for n in ("tagged:stable", "tagged")], ["1\n", "1\n"])
    Template.assign_tags("tagged:v2", "default")
    equal([inside(n, "cat v") for n in ("tagged:stable", "tagged")], ["1\n", "2\n"])
    tags = {t.tag: t.build_id for t in Template.get_tags("tagged")}
    check(tags["v1"] == tags["stable"] != tags["v2"] == tags["default"] and len(tags) == 4, tags)
    Template.remove_tags("tagged", ["v1", "stable"])
    equal([Template.exists(n) for n in ("tagged:v1", "tagged:v2", "tagged")], [False, True, True])


@case
def again_under_the_same_name():
    build(template().from_image("debian").run_cmd("echo 1 >v"), "twice")
    with Sandbox.create("twice", timeout=120) as old:
        first = Template.get_tags("twice")
        build(template().from_image("debian").run_cmd("echo 2 >v"), "twice", skip_cache=True)
        equal(inside("twice", "cat v"), "2\n")
        equal(old.commands.run("cat v; touch w; ls w").stdout, "1\nw\n")
        check([t.build_id for t in first] != [t.build_id for t in Template.get_tags("twice")], "the build is the old one")


@case
def two_at_a_time_of_one_name():
    """As trials of one task do it: both end well, and the name is one of the two."""
    for name in ("pair", "pair-again"):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lambda n: build(template().from_image("debian").run_cmd(f"echo {n} >v"), name)[0], "12"))
        equal(len({info.template_id for info in both}), 1)
        check(inside(name, "cat v") in ("1\n", "2\n"), "neither of both")
        equal([str(Template.get_build_status(info).status.value) for info in both], ["ready"] * 2)


@case
def in_the_background():
    info = Template.build_in_background(template().from_image("debian").run_cmd("sleep 4; echo slept"), "background")
    equal(str(Template.get_build_status(info).status.value), "building")
    for _ in range(200):
        if Template.get_build_status(info).status.value != "building":
            break
        time.sleep(0.1)
    status = Template.get_build_status(info, logs_offset=0)
    equal(status.status.value, "ready")
    check(any(e.message == "slept" for e in status.log_entries), status.log_entries)


context()
for one in CASES:
    if one.__name__ not in os.environ["BOTHY_CASES"].split():
        continue
    began, why = time.monotonic(), ""
    try:
        one()
    except Exception as error:  # noqa: BLE001
        why = f"{type(error).__name__}: {error}"[:1500]
    print(json.dumps({"name": one.__name__, "why": why, "ms": (time.monotonic() - began) * 1000}), flush=True)
