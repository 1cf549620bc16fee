"""Watching directories: sync handles are asked, async ones have a callback."""
import asyncio

from client import A, NotFound, behaviour, check, equal, have, raises, takes


class Watch:
    def __init__(self, t):
        self.t, self.got = t, []

    async def of(self, path, **options):
        if self.t.is_async:
            self.handle = await A(self.t.sb.files.watch_dir(path, on_event=self.got.append, **options))
        else:
            self.handle = self.t.sb.files.watch_dir(path, **options)
        return self

    async def until(self, name, *kinds):
        """Until such an event has come."""
        async def come():
            if not self.t.is_async:
                self.got += self.handle.get_new_events()
            return [e for e in self.got if e.name == name and getattr(e.type, "value", e.type) in kinds]
        return (await self.t.eventually(f"{kinds} of {name}", come))[0]

    async def stop(self):
        await A(self.handle.stop())


@behaviour
async def watch(t):
    await A(t.sb.files.make_dir(t.dir))
    seen = await Watch(t).of(t.dir)
    await A(t.sb.files.write(f"{t.dir}/new", "1"))
    await seen.until("new", "create")
    await seen.until("new", "write")
    await t.run(f"chmod 600 {t.dir}/new")
    await seen.until("new", "chmod")
    await A(t.sb.files.rename(f"{t.dir}/new", f"{t.dir}/ž newer"))
    await seen.until("new", "rename")
    await seen.until("ž newer", "create")
    await A(t.sb.files.remove(f"{t.dir}/ž newer"))
    await seen.until("ž newer", "remove")
    await seen.stop()


@behaviour
async def watch_recursive(t):
    have(takes(t.sb.files.watch_dir, "recursive"), "recursive")
    await t.run(f"mkdir -p {t.dir}/a/b")
    seen = await Watch(t).of(t.dir, recursive=True)
    await A(t.sb.files.write(f"{t.dir}/a/b/deep", "1"))
    await seen.until("a/b/deep", "create", "write")
    await t.run(f"mkdir {t.dir}/a/later; sleep 0.5; touch {t.dir}/a/later/f")
    await seen.until("a/later/f", "create", "write")
    await seen.stop()


@behaviour
async def watch_not_recursive(t):
    await t.run(f"mkdir -p {t.dir}/a")
    seen = await Watch(t).of(t.dir)
    await t.run(f"touch {t.dir}/a/below; sleep 0.3; touch {t.dir}/mark")
    await seen.until("mark", "create")
    check(not [e for e in seen.got if "below" in e.name], seen.got)
    await seen.stop()


@behaviour
async def watch_entry(t):
    have(takes(t.sb.files.watch_dir, "include_entry"), "include_entry")
    await A(t.sb.files.make_dir(t.dir))
    seen = await Watch(t).of(t.dir, include_entry=True)
    await A(t.sb.files.write(f"{t.dir}/new", "123"))
    event = await seen.until("new", "create", "write")
    check(event.entry is None or event.entry.path == f"{t.dir}/new", event)
    check([e for e in seen.got if e.entry], "no event has an entry")
    await seen.stop()


@behaviour
async def watch_missing(t):
    await raises(NotFound, lambda: Watch(t).of("/no/such/dir"))


@behaviour
async def watch_stopped(t):
    await A(t.sb.files.make_dir(t.dir))
    seen = await Watch(t).of(t.dir)
    await seen.stop()
    await t.run(f"touch {t.dir}/after")
    await asyncio.sleep(0.5)
    if t.is_async:
        equal(seen.got, [], "events after the stop")
    else:
        await raises(Exception, lambda: seen.handle.get_new_events())


@behaviour
async def watch_much(t):
    await A(t.sb.files.make_dir(t.dir))
    seen = await Watch(t).of(t.dir)
    await t.run(f"cd {t.dir}; seq -f 'n%g' 200 | xargs touch; sleep 0.5; touch last")
    await seen.until("last", "create")
    names = {e.name for e in seen.got}
    equal(len([n for n in names if n.startswith("n")]), 200, "names that were told")
    await seen.stop()
