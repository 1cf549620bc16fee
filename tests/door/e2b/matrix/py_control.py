"""Sandboxes: create, list, info, connect, time, pause, the end."""
import asyncio
import re
import time

import e2b
from client import A, Authentication, Invalid, NotFound, Skip, VERSION, behaviour, check, equal, exceptions, have, plain, raises, takes

MISSING = "zzzz0000000000000000"
Any = exceptions("SandboxException", "NotFoundException", "TimeoutException", "InvalidArgumentException", "TemplateException",
                 "AuthenticationException")


@behaviour
async def create_id(t):
    check(re.fullmatch(r"[a-z0-9]{20}(-[a-z0-9]+)?", t.sb.sandbox_id), t.sb.sandbox_id)


@behaviour
async def create_defaults(t):
    sb = await A(t.maker())
    try:
        equal(await t.out("echo made", sb), "made\n")
        if hasattr(sb, "get_info"):
            info = await A(sb.get_info())
            equal(round((info.end_at - info.started_at).total_seconds() / 10), 30, "tens of seconds it lives")
    finally:
        await A(sb.kill())


@behaviour
async def create_envs(t):
    async with t.sandbox(envs={"ONE": "1", "ODD": "ž \"q\" $HOME 'x'"}) as sb:
        equal(await t.out("printf '%s|%s' \"$ONE\" \"$ODD\"", sb), "1|ž \"q\" $HOME 'x'")


@behaviour
async def create_metadata(t):
    have(hasattr(t.sb, "get_info"), "get_info")
    wanted = {"plain": "1", "With Space": "ž & = %", "empty": ""}
    async with t.sandbox(metadata=wanted) as sb:
        equal((await A(sb.get_info())).metadata, wanted, "metadata")


@behaviour
async def create_oci_reference(t):
    async with t.sandbox(t.oci) as sb:
        check("ebian" in await t.out("cat /etc/os-release", sb))
        await A(sb.files.write("/tmp/x", "in any image"))
        equal(await t.out("cat /tmp/x", sb), "in any image")


@behaviour
async def create_unknown_template(t):
    before = await t.ids()
    e = await raises(Any, lambda: t.make("there-is-no-such-template"))
    check("there-is-no-such-template" in str(e), e)
    equal(await t.ids() - before, set(), "what a failed create left")


@behaviour
async def create_bad_key(t):
    e = await raises(Authentication + exceptions("SandboxException"), lambda: t.make(api_key=t.bad))
    check("key" in str(e), e)
    if VERSION >= (2, 26, 0):  # earlier ones know 401 by its number only
        await raises(Authentication, lambda: t.make(api_key=t.bad))


@behaviour
async def create_secure(t):
    have(takes(t.maker, "secure"), "secure")
    async with t.sandbox(secure=True) as sb:
        url = f"http://49983-{sb.sandbox_id}.sbx.test/files?path=/etc/hostname"
        equal(t.fetch(url)[0], 401, "status without a token")
        equal(t.fetch(url, headers={"X-Access-Token": "x" * 60})[0], 401, "status with a wrong token")


@behaviour
async def create_insecure(t):
    have(takes(t.maker, "secure"), "secure")
    if VERSION >= (2, 51, 0):
        raise Skip("this version does not have it: sandboxes without a token (its create is always secured)")
    async with t.sandbox(secure=False) as sb:
        equal(await t.out("echo open", sb), "open\n")
        url = f"http://49983-{sb.sandbox_id}.sbx.test/files?path=/etc/passwd&username=user"
        equal(t.fetch(url)[0], 200, "status without a token")


@behaviour
async def create_without_internet(t):
    have(takes(t.maker, "allow_internet_access"), "allow_internet_access")
    async with t.sandbox(allow_internet_access=False) as sb:
        equal(await t.out("ls /sys/class/net | grep -v '^lo$' | wc -l", sb), "0\n", "ways out")


@behaviour
async def create_idempotent(t):
    have(takes(t.maker, "idempotency_key"), "idempotency_key")
    key = f"matrix-{t.tag}"
    one = await t.make(idempotency_key=key)
    try:
        equal((await t.make(idempotency_key=key)).sandbox_id, one.sandbox_id, "the second create's sandbox")
        await raises(Any, lambda: t.make(timeout=77, idempotency_key=key))
    finally:
        await A(one.kill())


@behaviour
async def create_many_at_once(t):
    made = await asyncio.gather(*(t.spawn(lambda: t.maker(template="base", timeout=60)) for _ in range(5)))
    try:
        equal(len({sb.sandbox_id for sb in made}), 5, "sandboxes")
        got = await asyncio.gather(*(t.spawn(lambda sb=sb: sb.commands.run("hostname")) for sb in made))
        equal([r.stdout.strip() for r in got], [plain(sb.sandbox_id) for sb in made], "their names")
    finally:
        for sb in made:
            await A(sb.kill())


@behaviour
async def is_running(t):
    equal(await A(t.sb.is_running()), True)


@behaviour
async def get_info(t):
    have(hasattr(t.sb, "get_info"), "get_info")
    info = await A(t.sb.get_info())
    equal(plain(info.sandbox_id), plain(t.sb.sandbox_id), "id")
    equal(info.metadata, {"tag": t.tag, "odd": "u 1&=%ž"}, "metadata")
    check(info.started_at < info.end_at and info.template_id, info)
    if hasattr(info, "state"):
        equal(getattr(info.state, "value", info.state), "running", "state")
    if hasattr(info, "cpu_count"):
        check(info.cpu_count >= 1 and info.memory_mb >= 64 and re.match(r"\d+\.\d+\.\d+", info.envd_version), info)


@behaviour
async def get_info_by_id(t):
    have(hasattr(t.Sandbox, "get_info"), "get_info")
    if VERSION < (2, 0, 0):
        raise Skip("this version does not have it: get_info of an id")
    equal(plain((await A(t.Sandbox.get_info(t.sb.sandbox_id))).sandbox_id), plain(t.sb.sandbox_id))


@behaviour
async def get_info_missing(t):
    have(hasattr(t.Sandbox, "get_info"), "get_info")
    if VERSION < (2, 0, 0):
        raise Skip("this version does not have it: get_info of an id")
    e = await raises(NotFound if VERSION >= (2, 15, 0) else Any, lambda: t.Sandbox.get_info(MISSING))
    check("404" in str(e) or "not found" in str(e).lower(), e)


@behaviour
async def list_has_it(t):
    check(plain(t.sb.sandbox_id) in await t.ids())


@behaviour
async def list_by_metadata(t):
    have(takes(t.Sandbox.list, "query"), "filters")
    equal(await t.ids(**t.query(metadata={"tag": t.tag, "odd": "u 1&=%ž"})), {plain(t.sb.sandbox_id)}, "found")
    equal(await t.ids(**t.query(metadata={"tag": t.tag + "x"})), set(), "found by another value")


@behaviour
async def list_by_state(t):
    have(VERSION >= (2, 0, 0), "a filter of states")
    states = e2b.SandboxState
    async with t.sandbox(metadata={"state": t.tag}) as sb:
        mine = {"state": t.tag}
        equal(await t.ids(**t.query(metadata=mine, state=[states.RUNNING])), {sb.sandbox_id}, "running")
        equal(await t.ids(**t.query(metadata=mine, state=[states.PAUSED])), set(), "paused")
        await A(pauser(sb)())
        equal(await t.ids(**t.query(metadata=mine, state=[states.RUNNING])), set(), "running, of a paused one")
        equal(await t.ids(**t.query(metadata=mine, state=[states.PAUSED])), {sb.sandbox_id}, "paused, of a paused one")
        equal(await t.ids(**t.query(metadata=mine)), {sb.sandbox_id}, "of any state")


@behaviour
async def list_in_pages(t):
    have(VERSION >= (2, 0, 0), "pages")
    mine = t.query(metadata={"pages": t.tag})
    made = [await t.make(metadata={"pages": t.tag}) for _ in range(3)]
    try:
        pages, seen = t.Sandbox.list(**mine, limit=1), []
        while pages.has_next:
            items = await A(pages.next_items())
            check(len(items) <= 1, items)
            seen += [one.sandbox_id for one in items]
        equal(sorted(seen), sorted(sb.sandbox_id for sb in made), "sandboxes of all pages")
        first = t.Sandbox.list(**mine, limit=2)
        await A(first.next_items())
        rest = t.Sandbox.list(**mine, limit=2, next_token=first.next_token)
        equal(len(await A(rest.next_items())), 1, "items behind a token")
    finally:
        for sb in made:
            await A(sb.kill())


@behaviour
async def list_order(t):
    have(takes(t.Sandbox.list, "order"), "order")
    made = [await t.make(metadata={"order": t.tag}) for _ in range(2)]
    try:
        for order, wanted in (("asc", made), ("desc", made[::-1])):
            got = await t.items(**t.query(metadata={"order": t.tag}), order=order)
            equal([one.sandbox_id for one in got], [sb.sandbox_id for sb in wanted], order)
    finally:
        for sb in made:
            await A(sb.kill())


@behaviour
async def other_owner_sees_nothing(t):
    check(plain(t.sb.sandbox_id) not in await t.ids(api_key=t.other), "another owner's list has it")
    if VERSION >= (2, 0, 0):  # earlier ones connect with the key of the environment, whatever they are given
        await raises(Any, lambda: t.Sandbox.connect(t.sb.sandbox_id, api_key=t.other))
    killed = await A(t.Sandbox.kill(t.sb.sandbox_id, api_key=t.other))
    check(not killed, "another owner's kill says it did")
    equal(await A(t.sb.is_running()), True, "running afterwards")


@behaviour
async def connect_by_id(t):
    await A(t.sb.files.write(f"{t.dir}/mark", "same"))
    again = await t.connect(t.sb.sandbox_id)
    equal(plain(again.sandbox_id), plain(t.sb.sandbox_id), "id")
    equal(await A(again.files.read(f"{t.dir}/mark")), "same")
    equal(await t.out("echo $GIVEN", again), "by create\n")


@behaviour
async def connect_missing_sandbox(t):
    await raises(Any, lambda: t.connect(MISSING))


@behaviour
async def connect_never_shortens(t):
    have(VERSION >= (2, 6, 0), "a timeout of connect")
    async with t.sandbox(timeout=500) as sb:
        before = (await A(sb.get_info())).end_at
        await t.connect(sb.sandbox_id, timeout=10)
        check(abs(((await A(sb.get_info())).end_at - before).total_seconds()) < 2, "its end moved")
        await t.connect(sb.sandbox_id, timeout=1000)
        check((await A(sb.get_info())).end_at > before, "its end did not move")


@behaviour
async def set_timeout(t):
    async with t.sandbox(timeout=60) as sb:
        await A(sb.set_timeout(300))
        if hasattr(sb, "get_info"):
            info = await A(sb.get_info())
            check(250 < (info.end_at - info.started_at).total_seconds() < 330, info)
        await A(sb.set_timeout(2))
        await t.eventually("it ends", lambda: not_running(sb), 20)


async def not_running(sb):
    return not await A(sb.is_running())


@behaviour
async def set_timeout_by_id(t):
    await A(t.Sandbox.set_timeout(t.sb.sandbox_id, 600))
    await raises(Any, lambda: t.Sandbox.set_timeout(MISSING, 60))


@behaviour
async def timeout_ends_it(t):
    async with t.sandbox(timeout=2) as sb:
        await t.eventually("it ends", lambda: not_running(sb), 20)
        check(plain(sb.sandbox_id) not in await t.ids(), "listed after its end")


@behaviour
async def timeout_ends_command(t):
    async with t.sandbox(timeout=3) as sb:
        began = time.monotonic()
        await raises(Exception, lambda: t.run("sleep 60", sb))
        check(time.monotonic() - began < 20, "the command outlived its sandbox")


def pauser(sb):
    pause = getattr(sb, "pause", None) or getattr(sb, "beta_pause", None)
    have(pause, "pause")
    return pause


@behaviour
async def pause_and_connect(t):
    pauser(t.sb)
    async with t.sandbox() as sb:
        await A(sb.files.write("/tmp/kept", "kept"))
        await A(sb.files.write("/tmp/count", "0"))
        handle = await t.start("for i in $(seq 300); do echo $i >/tmp/next; mv /tmp/next /tmp/count; sleep 0.1; done", sb)
        await A(handle.disconnect())
        await A(pauser(sb)())
        equal(await A(sb.is_running()), False, "running while paused")
        await asyncio.sleep(1)
        again = await t.connect(sb.sandbox_id)
        equal(await A(again.is_running()), True, "running afterwards")
        equal(await A(again.files.read("/tmp/kept")), "kept")
        before = now = int(await A(again.files.read("/tmp/count")))
        for _ in range(20):
            if now == before:
                await asyncio.sleep(0.5)
                now = int(await A(again.files.read("/tmp/count")))
        check(now > before, "its process does not go on")
        await A(again.commands.kill(handle.pid))


@behaviour
async def pause_twice(t):
    pauser(t.sb)
    async with t.sandbox() as sb:
        check(await A(pauser(sb)()) in (True, None) or VERSION < (2, 15, 0), "the first pause")
        check(not await A(pauser(sb)()) or VERSION < (2, 15, 0), "the second pause says it paused")


@behaviour
async def pause_missing(t):
    pauser(t.sb)
    static = getattr(t.Sandbox, "pause", None) or t.Sandbox.beta_pause
    await raises(Any, lambda: static(MISSING))


@behaviour
async def paused_kill(t):
    pauser(t.sb)
    async with t.sandbox() as sb:
        await A(pauser(sb)())
        equal(await A(sb.kill()), True, "kill of a paused one")
        await raises(Any, lambda: t.connect(sb.sandbox_id))


@behaviour
async def timeout_pauses(t):
    if takes(t.maker, "lifecycle"):
        made = await t.make(timeout=6, lifecycle={"on_timeout": "pause"})
    else:
        have(hasattr(t.Sandbox, "beta_create"), "pause at the end of its time")
        made = await A(t.Sandbox.beta_create(template="base", timeout=6, auto_pause=True))
    try:
        await A(made.files.write("/tmp/kept", "kept"))
        await t.eventually("it pauses", lambda: not_running(made), 20)
        again = await t.connect(made.sandbox_id)
        equal(await A(again.files.read("/tmp/kept")), "kept")
    finally:
        await A(made.kill())


@behaviour
async def metrics(t):
    have(hasattr(t.sb, "get_metrics"), "get_metrics")
    async def taken():
        return await A(t.sb.get_metrics())
    got = (await t.eventually("there are metrics", taken, 20))[-1]
    check(got.cpu_count >= 1 and got.mem_total > 0 and got.cpu_used_pct >= 0, got)


@behaviour
async def kill(t):
    sb = await t.make()
    first, second = await A(sb.kill()), await A(sb.kill())
    if VERSION >= (2, 0, 0):  # earlier ones give nothing
        equal((first, second), (True, False), "what kill gave, twice")
    check(plain(sb.sandbox_id) not in await t.ids(), "listed after its end")


@behaviour
async def kill_by_id(t):
    sb = await t.make()
    equal(await A(t.Sandbox.kill(sb.sandbox_id)), True)
    equal(await A(t.Sandbox.kill(MISSING)), False, "kill of a missing one")
    equal(await A(sb.is_running()), False, "running")


@behaviour
async def killed_refuses(t):
    sb = await t.make()
    await A(sb.kill())
    equal(await A(sb.is_running()), False, "running")
    refused = Any if VERSION >= (2, 0, 0) else Exception  # earlier ones stumble over the answer, which is E2B's own
    await raises(refused, lambda: t.run("echo x", sb))
    await raises(refused, lambda: sb.files.read("/etc/passwd"))
    await raises(Any, lambda: t.connect(sb.sandbox_id) if VERSION >= (1, 5, 0) else sb.set_timeout(5))


@behaviour
async def kill_during_run(t):
    sb = await t.make()
    running = t.spawn(lambda: sb.commands.run("echo begun; sleep 60"))
    await asyncio.sleep(1)
    began = time.monotonic()
    await A(sb.kill())
    await raises(Exception, lambda: running)
    check(time.monotonic() - began < 10, "the command was not told")
