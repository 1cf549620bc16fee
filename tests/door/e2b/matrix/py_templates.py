"""Snapshots, forks, templates; and what is not there."""
import e2b
from client import A, Skip, VERSION, behaviour, check, equal, exceptions, have, raises

Any = exceptions("SandboxException", "NotFoundException", "InvalidArgumentException", "TemplateException")


@behaviour
async def snapshot(t):
    have(hasattr(t.sb, "create_snapshot"), "snapshots")
    async with t.sandbox() as sb:
        await A(sb.files.write("/home/user/kept", "kept"))
        made = await A(sb.create_snapshot())
        pages, listed = t.Sandbox.list_snapshots(), []
        while pages.has_next:
            listed += await A(pages.next_items())
        check(made.snapshot_id in [one.snapshot_id for one in listed], listed)
        await A(sb.files.write("/home/user/kept", "changed"))
        async with t.sandbox(made.snapshot_id) as child:
            equal(await A(child.files.read("/home/user/kept")), "kept", "the file of the snapshot")
        equal(await A(t.Sandbox.delete_snapshot(made.snapshot_id)), True, "deletion")
        equal(await A(t.Sandbox.delete_snapshot(made.snapshot_id)), False, "a second deletion")


@behaviour
async def fork(t):
    have(hasattr(t.sb, "fork"), "fork")
    async with t.sandbox() as sb:
        await A(sb.files.write("/home/user/f", "parent's"))
        children = await A(sb.fork(count=3))
        try:
            equal(len({c.sandbox_id for c in children}), 3, "children")
            for i, child in enumerate(children):
                equal(await A(child.files.read("/home/user/f")), "parent's")
                await A(child.files.write("/home/user/f", f"{i}"))
            equal([await A(c.files.read("/home/user/f")) for c in children], ["0", "1", "2"], "apart")
            equal(await A(sb.files.read("/home/user/f")), "parent's")
        finally:
            for child in children:
                await A(child.kill())


def builder(t):
    name = "AsyncTemplate" if t.is_async else "Template"
    have(hasattr(e2b, name), "templates")
    return getattr(e2b, name)


def naming(build, name):
    import inspect
    return {"name": name} if "name" in inspect.signature(build).parameters else {"alias": name}


@behaviour
async def template_build(t):
    Template = builder(t)
    name = f"matrix-{t.tag}-{'a' if t.is_async else 's'}"
    recipe = Template().from_image(t.oci).run_cmd("echo built >/built", user="root").set_envs({"BAKED": "yes"}).set_workdir("/srv")
    await A(Template.build(recipe, cpu_count=1, memory_mb=512, **naming(Template.build, name)))
    async with t.sandbox(name) as sb:
        equal(await t.out("cat /built; echo $BAKED; pwd", sb), "built\nyes\n/srv\n")


@behaviour
async def template_build_fails(t):
    Template = builder(t)
    recipe = Template().from_image(t.oci).run_cmd("echo reason >&2; exit 7")
    e = await raises(exceptions("BuildException"), lambda: Template.build(recipe, **naming(Template.build, f"fails-{t.tag}")))
    check("7" in str(e), e)
    await raises(Any, lambda: t.make(f"fails-{t.tag}"))


@behaviour
async def template_exists(t):
    Template = builder(t)
    method = getattr(Template, "exists", None) or getattr(Template, "alias_exists", None)
    have(method, "exists of templates")
    equal(await A(method("there-is-no-such-template")), False)


@behaviour
async def update_network(t):
    have(hasattr(t.sb, "update_network"), "update_network")
    async with t.sandbox() as sb:
        await A(sb.update_network({"deny_out": ["0.0.0.0/0"]}))


@behaviour
async def volumes_are_refused(t):
    have(hasattr(e2b, "Volume"), "volumes")
    e = await raises(Exception, lambda: (e2b.AsyncVolume if t.is_async else e2b.Volume).create("v"))
    check("501" in str(e) or "not served" in str(e), e)


@behaviour
async def secrets_are_refused(t):
    have(hasattr(e2b, "Secret"), "secrets")
    e = await raises(Exception, lambda: (e2b.AsyncSecret if t.is_async else e2b.Secret).create("s", "v"))
    check("501" in str(e) or "not served" in str(e), e)
