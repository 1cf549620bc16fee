"""A template of a Dockerfile, built in a sandbox: FROM, ENV, ARG, RUN, COPY, ADD, WORKDIR, USER, SHELL; one stage."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import posixpath
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import dockerfile
from ._async.client import AsyncClient
from ._async.sandbox import AsyncSandbox
from ._context import Context, Owner, is_directory_target
from ._errors import ApiError, BothyError, Conflict, NotFound
from ._models import ExecResult, Template
from ._request import Request, path
from ._wait import async_in_thread
from .dockerfile import DockerfileError, Heredoc, Instruction

# They say nothing that a sandbox's files, environment, user or directory would show.
WITHOUT_EFFECT = frozenset({"LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "VOLUME", "CMD", "ENTRYPOINT"})
# As BuildKit does it: what is made for a WORKDIR is the USER's.
MAKE_DIRECTORY = """missing= above=$1
while [ ! -e "$above" ]; do missing=$above above=$(dirname "$above"); done
mkdir -p "$1"
[ -n "$missing" ] || exit 0
case $2 in '' | 0 | root) ;; *:*) chown -R "$2" "$missing" ;; *[!0-9]*) chown -R "$2:" "$missing" ;; *) chown -R "$2" "$missing" ;; esac"""
TAIL = 2000  # characters of what a failed RUN wrote


@dataclasses.dataclass
class State:
    """What later instructions build on. `args` are for the build, `env` for the sandboxes, too; `known` has the image's, `before` the
    args from before FROM, which are to be declared again."""

    known: dict[str, str]
    before: dict[str, str] = dataclasses.field(default_factory=dict)
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    args: dict[str, str] = dataclasses.field(default_factory=dict)
    user: str | None = None
    cwd: str = "/"
    shell: tuple[str, ...] = ("/bin/sh", "-c")

    @property
    def variables(self) -> dict[str, str]:
        return {**self.known, **self.args, **self.env}


class Build:
    def __init__(self, sandbox: AsyncSandbox, context: Context, state: State, timeout: float | None) -> None:
        self.sandbox, self.context, self.state, self.timeout = sandbox, context, state, timeout

    async def step(self, instruction: Instruction) -> None:
        if instruction.name in WITHOUT_EFFECT:
            return
        todo = {"ENV": self.env, "ARG": self.arg, "RUN": self.run, "COPY": self.copy, "ADD": self.copy, "WORKDIR": self.workdir,
                "USER": self.user, "SHELL": self.shell}.get(instruction.name)
        if todo is None:
            raise instruction.wrong("this instruction cannot be built here; build the image elsewhere and name it instead")
        await todo(instruction)

    async def env(self, instruction: Instruction) -> None:
        self.state.env.update(dockerfile.pairs(instruction, self.state.variables))

    async def arg(self, instruction: Instruction) -> None:
        self.state.args.update(dockerfile.declared(instruction, self.state.variables, self.state.before))

    async def shell(self, instruction: Instruction) -> None:
        self.state.shell = tuple(instruction.words or ()) or self.state.shell

    async def user(self, instruction: Instruction) -> None:
        self.state.user = dockerfile.expand(instruction.value, self.state.variables)

    async def workdir(self, instruction: Instruction) -> None:
        self.state.cwd = posixpath.normpath(posixpath.join(self.state.cwd, dockerfile.expand(instruction.value, self.state.variables)))
        await self.as_root(["sh", "-c", MAKE_DIRECTORY, "sh", self.state.cwd, self.state.user or ""], instruction)

    async def as_root(self, argv: list[str], instruction: Instruction) -> ExecResult:
        done = await self.sandbox.exec(argv, user="0", cwd="/")
        if not done.ok:
            raise instruction.wrong(f"{argv[0]} {done.said}: {done.err.decode(errors='replace')[-TAIL:]}")
        return done

    async def run(self, instruction: Instruction) -> None:
        if instruction.flags:
            raise instruction.wrong(f"--{next(iter(instruction.flags))} is not known here")
        words, stdin = instruction.words, None
        if instruction.heredocs and not dockerfile.HEREDOC.sub("", instruction.value).strip():
            text = instruction.heredocs[0].text
            words = [*(text.split("\n", 1)[0][2:].split() if text.startswith("#!") else self.state.shell[:1])]
            stdin = text
        elif instruction.heredocs:
            text = "".join(f"{one.text}{one.name}\n" for one in instruction.heredocs)
            words = [*self.state.shell, f"{instruction.value}\n{text}"]
        done = await self.sandbox.exec(words or [*self.state.shell, instruction.value], env={**self.state.args, **self.state.env},
                                       user=self.state.user, cwd=self.state.cwd, stdin=stdin, timeout=self.timeout, merged=True)
        if not done.ok:
            raise instruction.wrong(f"{instruction.value[:200]}: {done.said}: {done.told[-TAIL:]}")

    async def copy(self, instruction: Instruction) -> None:
        unknown = set(instruction.flags) - {"chown", "chmod", "link"}
        if unknown:
            raise instruction.wrong(f"--{unknown.pop()} is not known here")
        words = [dockerfile.expand(w, self.state.variables) for w in instruction.words or dockerfile.split(instruction.value)]
        documents = {f"<<{'-' if f'<<-{d.name}' in instruction.value else ''}{d.name}": d for d in instruction.heredocs}
        *sources, target = words
        owner, where = await self.owner(instruction), posixpath.normpath(posixpath.join(self.state.cwd, target))
        into = is_directory_target(target, sources) or await self.is_directory(where)

        def pack() -> bytes:
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for source in sources:
                    if source in documents:
                        self.copy_document(tar, documents[source], where, into, owner)
                    else:
                        self.copy_one(instruction, tar, source, where, into, owner)
            return packed.getvalue()
        await self.sandbox.files.put_archive("/", await async_in_thread(pack), user="0", owners=True)

    def copy_document(self, tar: tarfile.TarFile, document: Heredoc, where: str, into: bool, owner: Owner) -> None:
        text = document.text if document.literal else dockerfile.expand(document.text, self.state.variables)
        owner.add_text(tar, text, posixpath.join(where, document.name) if into else where)

    def copy_one(self, instruction: Instruction, tar: tarfile.TarFile, source: str, where: str, into: bool, owner: Owner) -> None:
        if instruction.name == "ADD" and (":" in source or tarfile_name(source)):
            raise instruction.wrong(f"{source}: only files of the context that are no archives can be added here")
        found = self.context.sources(source)
        if not found:
            raise instruction.wrong(f"{source}: there is no such file in {self.context.directory}")
        for name in found:
            directory = (self.context.directory / name).is_dir()
            target = posixpath.join(where, posixpath.basename(name)) if (into or len(found) > 1) and not directory else where
            self.context.copy(tar, name, target, owner)

    async def is_directory(self, where: str) -> bool:
        try:
            return (await self.sandbox.files.stat(where, follow=True, user="0")).type == "directory"
        except NotFound:
            return False

    async def owner(self, instruction: Instruction) -> Owner:
        user, _, group = dockerfile.expand(instruction.flags.get("chown", "0:0"), self.state.variables).partition(":")
        uid = int(user) if user.isdigit() else int((await self.as_root(["id", "-u", user], instruction)).text)
        if group.isdigit():
            gid = int(group)
        elif group:
            line = (await self.as_root(["grep", f"^{group}:", "/etc/group"], instruction)).text
            gid = int(line.split(":")[2])
        else:
            gid = uid if user.isdigit() else int((await self.as_root(["id", "-g", user], instruction)).text)
        mode = instruction.flags.get("chmod")
        return Owner(uid, gid, int(mode, 8) if mode else None)


def tarfile_name(source: str) -> bool:
    return source.endswith((".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst"))


def base_of(instructions: list[Instruction]) -> tuple[str, dict[str, str], list[Instruction]]:
    """The image of FROM, the args before it, and what follows."""
    known: dict[str, str] = {}
    for at, instruction in enumerate(instructions):
        if instruction.name == "ARG":
            known.update(dockerfile.declared(instruction, known, {}))
        elif instruction.name == "FROM":
            rest = instructions[at + 1:]
            later = next((one for one in rest if one.name == "FROM"), None)
            if later:
                raise later.wrong("several stages cannot be built here; build the image elsewhere and name it instead")
            return dockerfile.expand(instruction.value, known).split()[0], known, rest
        else:
            raise instruction.wrong("it comes before FROM")
    raise DockerfileError("the Dockerfile has no FROM")


async def build_template(client: AsyncClient, name: str, context: Path, *, file: Path | None = None, network: str | None = None,
                         timeout: float | None = None, ttl: int = 3600, replace: bool = False) -> Template:
    """The template `name` of a Dockerfile and the files beside it: what it builds is a snapshot, and the template has its environment, user
    and directory. One of that name is taken as it is, unless it is to be replaced. `timeout`: seconds of one RUN."""
    before = await find_template(client, name)
    if before and not replace:
        return before
    instructions = list(dockerfile.parse((file or context / "Dockerfile").read_text()))
    base, before_it, rest = base_of(instructions)
    image = await client.pull(base, pull="missing")
    state = State(dict(image.env), before_it, user=image.user or None, cwd=image.cwd or "/")
    async with await client.create(base, network=network, ttl=ttl, labels={"bothy.build": name}) as sandbox:
        build = Build(sandbox, Context(context), state, timeout)
        for instruction in rest:
            await build.step(instruction)
        snapshot = await sandbox.snapshot()
    recipe = {"snapshot": snapshot.id, "env": state.env, "user": state.user, "cwd": state.cwd}
    try:
        return await replace_template(client, before, recipe) if before else await client.create_template(name, **recipe)
    except ApiError as e:  # nothing has the snapshot; of a lost answer nobody knows
        with contextlib.suppress(BothyError):
            await client.delete_snapshot(snapshot.id)
        if isinstance(e, Conflict) and not before:  # somebody else was faster
            return await client.template(name)
        raise


async def find_template(client: AsyncClient, name: str) -> Template | None:
    try:
        return await client.template(name)
    except NotFound:
        return None


async def replace_template(client: AsyncClient, before: Template, recipe: Mapping[str, Any]) -> Template:
    """In one step, nothing of it is left but its name and id; then the snapshot that was made for it goes."""
    other = {member: None for member in before.raw if member not in ("id", "name", "owner", "created", "changed")}
    request = Request("PATCH", path("templates", before.id), json={**other, **recipe})
    made = Template.of(await client.transport.json(request))
    if before.snapshot:
        with contextlib.suppress(BothyError):  # another template has it
            await client.delete_snapshot(before.snapshot)
    return made
