"""The code interpreter: runs cells in contexts and streams what comes of them as lines of JSON.

It listens on port 49999 of the sandbox's loopback and is reached through bothy's E2B door, which asks for the
access token; nothing here does. A context is a Python kernel (Jupyter's own) that keeps its state, or, for
JavaScript and Bash, a directory in which each cell is a process of its own."""
import asyncio
import codecs
import contextlib
import json
import os
import pathlib
import signal
import sys
import time
import uuid

from aiohttp import web
from jupyter_client.manager import AsyncKernelManager

PORT = 49999
KEEPALIVE = 5.0
STARTUP = pathlib.Path(__file__).with_name("startup.py")
HOME = os.path.expanduser("~")
PLAIN = {"javascript": ["node", "-"], "js": ["node", "-"], "bash": ["bash", "-s"], "sh": ["sh", "-s"]}
FORMATS = {"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
           "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
           "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart"}


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())


def result(data, main):
    """A mime bundle as the SDKs know it: a member a format, what they do not know in `extra`."""
    line = {"type": "result", "is_main_result": main}
    extra = {}
    for mime, value in data.items():
        if mime in FORMATS:
            line[FORMATS[mime]] = value
        else:
            extra[mime] = value
    text = line.get("text", "")
    if len(text) > 1 and text[0] == text[-1] == "'":
        line["text"] = text[1:-1]
    if extra:
        line["extra"] = extra
    return line


class Python:
    """A context with a kernel. Cells wait for each other."""

    def __init__(self, cwd):
        self.id, self.language, self.cwd = str(uuid.uuid4()), "python", cwd
        self.kernel, self.client, self.turn = AsyncKernelManager(kernel_name="python3"), None, asyncio.Lock()

    async def start(self):
        await self.kernel.start_kernel(cwd=self.cwd)
        await self.connect()

    async def connect(self):
        self.client = self.kernel.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=60)
        await self.silent(STARTUP.read_text())

    async def silent(self, code):
        asked = self.client.execute(code, silent=True, store_history=False)
        while True:
            message = await self.client.get_shell_msg(timeout=60)
            if message["parent_header"].get("msg_id") == asked:
                return

    async def stop(self):
        self.client.stop_channels()
        await self.kernel.shutdown_kernel(now=True)

    async def restart(self):
        async with self.turn:
            self.client.stop_channels()
            await self.kernel.restart_kernel(now=True)
            await self.connect()

    async def interrupt(self):
        await self.kernel.interrupt_kernel()

    async def run(self, code, env):
        async with self.turn:
            if env:
                await self.silent(f"import os as _o; _e = dict(_o.environ); _o.environ.update({env!r})")
            try:
                async for line in self.cell(code):
                    yield line
            finally:
                if env:
                    await self.silent("_o.environ.clear(); _o.environ.update(_e); del _o, _e")

    async def cell(self, code):
        asked = self.client.execute(code, stop_on_error=False)  # one that failed, or was interrupted, takes none along
        while True:
            try:
                message = await asyncio.wait_for(self.client.get_iopub_msg(), KEEPALIVE)
            except asyncio.TimeoutError:
                if not await self.kernel.is_alive():
                    yield {"type": "error", "name": "KernelDied", "value": "the kernel has ended", "traceback": ""}
                    await self.restart_dead()
                    return
                yield {"type": "keepalive"}
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return
            line = self.line(kind, content)
            if line:
                yield line

    async def restart_dead(self):
        self.client.stop_channels()
        await self.kernel.restart_kernel(now=True)
        await self.connect()

    @staticmethod
    def line(kind, content):
        if kind == "stream":
            return {"type": content["name"], "text": content["text"], "timestamp": stamp()}
        if kind in ("display_data", "execute_result"):
            return result(content["data"], kind == "execute_result")
        if kind == "error":
            return {"type": "error", "name": content["ename"], "value": content["evalue"], "traceback": "\n".join(content["traceback"])}
        if kind == "execute_input":
            return {"type": "number_of_executions", "execution_count": content["execution_count"]}
        return None


class Plain:
    """A context whose cells are processes: code comes on their input, nothing is kept but files."""

    def __init__(self, language, cwd):
        self.id, self.language, self.cwd, self.count, self.child = str(uuid.uuid4()), language, cwd, 0, None

    async def start(self):
        pass

    async def stop(self):
        await self.interrupt()

    async def restart(self):
        await self.interrupt()
        self.count = 0

    async def interrupt(self):
        if self.child and self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)

    async def run(self, code, env):
        self.count += 1
        yield {"type": "number_of_executions", "execution_count": self.count}
        child = self.child = await asyncio.create_subprocess_exec(
            *PLAIN[self.language], cwd=self.cwd, env={**os.environ, **env}, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        lines, open_streams = asyncio.Queue(), 2
        tasks = [asyncio.create_task(t) for t in (self.read(child.stdout, "stdout", lines), self.read(child.stderr, "stderr", lines),
                                                  self.feed(child.stdin, code))]
        try:
            while open_streams:
                try:
                    line = await asyncio.wait_for(lines.get(), KEEPALIVE)
                except asyncio.TimeoutError:
                    line = {"type": "keepalive"}
                if line:
                    yield line
                else:
                    open_streams -= 1
            status = await child.wait()
        finally:
            for task in tasks:
                task.cancel()
        if status:
            yield {"type": "error", "name": "ExitStatus", "value": str(status), "traceback": f"{self.language} ended with status {status}"}

    @staticmethod
    async def feed(pipe, code):
        with contextlib.suppress(ConnectionError):
            pipe.write(code.encode())
            await pipe.drain()
            pipe.close()

    @staticmethod
    async def read(pipe, name, lines):
        """Puts what comes, as text, and None at its end. A character may come in two pieces."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while chunk := await pipe.read(65536):
            if text := decoder.decode(chunk):
                await lines.put({"type": name, "text": text, "timestamp": stamp()})
        if text := decoder.decode(b"", True):
            await lines.put({"type": name, "text": text, "timestamp": stamp()})
        await lines.put(None)


class Server:
    def __init__(self):
        self.contexts, self.defaults, self.making = {}, {}, asyncio.Lock()

    async def make(self, language, cwd):
        language = (language or "python").lower()
        if language not in ("python", *PLAIN):
            raise web.HTTPBadRequest(text=f"language '{language}' is not one of: python, {', '.join(sorted(PLAIN))}")
        cwd = cwd or HOME
        if not os.path.isdir(cwd):
            raise web.HTTPBadRequest(text=f"cwd '{cwd}' is not a directory")
        made = Python(cwd) if language == "python" else Plain(language, cwd)
        await made.start()
        self.contexts[made.id] = made
        return made

    async def default(self, language):
        language = (language or "python").lower()
        async with self.making:
            if language not in self.defaults or self.defaults[language].id not in self.contexts:
                self.defaults[language] = await self.make(language, None)
            return self.defaults[language]

    def named(self, request):
        return self.by_id(request.match_info["id"])

    def by_id(self, name):
        if name not in self.contexts:
            raise web.HTTPNotFound(text=f"Context {name} not found")
        return self.contexts[name]

    @staticmethod
    def view(context):
        return {"id": context.id, "language": context.language, "cwd": context.cwd}

    # ---- handlers ----
    async def execute(self, request):
        asked = await request.json()
        if asked.get("context_id") and asked.get("language"):
            raise web.HTTPBadRequest(text="Only one of context_id or language can be provided")
        context = self.by_id(asked["context_id"]) if asked.get("context_id") else await self.default(asked.get("language"))
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)

        async def put(line):  # ASCII: a reader may split bytes anywhere
            await answer.write(json.dumps(line).encode() + b"\n")
        async with contextlib.aclosing(context.run(asked.get("code") or "", asked.get("env_vars") or {})) as lines:
            try:
                async for line in lines:
                    await put(line)
                await put({"type": "end_of_execution"})
            except (ConnectionError, asyncio.CancelledError):  # nobody listens any more
                await context.interrupt()
                raise
        return answer

    async def create(self, request):
        asked = await request.json() if request.can_read_body else {}
        return web.json_response(self.view(await self.make(asked.get("language"), asked.get("cwd"))))

    async def list(self, _request):
        return web.json_response([self.view(c) for c in self.contexts.values()])

    async def remove(self, request):
        context = self.named(request)
        del self.contexts[context.id]
        await context.stop()
        return web.Response(status=204)

    async def restart(self, request):
        await self.named(request).restart()
        return web.json_response(None)

    async def health(self, _request):
        return web.Response(text="OK")

    async def ready(self, _app):
        await self.default("python")

    async def over(self, _app):
        for context in self.contexts.values():
            await context.stop()


def main():
    server = Server()
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.post("/execute", server.execute), web.get("/health", server.health),
                    web.post("/contexts", server.create), web.get("/contexts", server.list),
                    web.delete("/contexts/{id}", server.remove), web.post("/contexts/{id}/restart", server.restart)])
    app.on_startup.append(server.ready)
    app.on_cleanup.append(server.over)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else PORT, print=None, handler_cancellation=True)


main()
