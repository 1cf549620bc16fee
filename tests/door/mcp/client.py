"""What the newest official Python client sees of a server: one JSON line per behaviour, for tests/door/mcp/run.

    client.py MODE http URL KEY | client.py MODE stdio COMMAND...      (MODE: auto, legacy, 2026-07-28)"""
import asyncio
import json
import sys
import time

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

MODE, KIND, REST = sys.argv[1], sys.argv[2], sys.argv[3:]


def target():
    if KIND == "stdio":
        return stdio_client(StdioServerParameters(command=REST[0], args=REST[1:]))
    import httpx2
    from mcp.client.streamable_http import streamable_http_client
    return streamable_http_client(REST[0], http_client=httpx2.AsyncClient(headers={"Authorization": "Bearer " + REST[1]}, timeout=60))


def say(name, **what):
    print(json.dumps({"name": name, **what}), flush=True)


async def main():
    async with Client(target(), mode=MODE) as c:
        tools = (await c.list_tools()).tools
        say("tools", names=[t.name for t in tools], version=str(getattr(c, "protocol_version", "")),
            hints={t.name: [t.annotations.read_only_hint, t.annotations.destructive_hint] for t in tools},
            schemas=all(t.output_schema for t in tools), required={t.name: "sandbox" in (t.input_schema.get("required") or []) for t in tools})
        needs = "sandbox" in (next(t for t in tools if t.name == "run").input_schema.get("required") or [])
        box = {}

        async def call(tool, progress=None, **args):
            r = await c.call_tool(tool, {**args, **(box if tool != "create" else {})}, progress_callback=progress)
            return r, "".join(getattr(x, "text", "") for x in r.content)

        if needs:
            r, text = await call("run", command="true")
            say("no sandbox", error=r.is_error, text=text)
            r, text = await call("create")
            box["sandbox"] = r.structured_content["sandbox"]
        r, text = await call("run", command="echo out; echo err >&2; exit 3")
        say("run", text=text, data=r.structured_content)
        told = []

        async def on(progress, total=None, message=None):
            told.append((progress, message))
        r, text = await call("run", progress=on, command="for i in 1 2 3 4; do echo step $i; sleep 0.6; done")
        say("progress", told=told, text=text)
        await call("session_run", command="cd /srv; export WHO=model")
        r, text = await call("session_run", command="echo $WHO in $PWD; exit 4")
        say("session", text=text, data=r.structured_content)
        await call("write", path="/tmp/d/f.txt", content="eins\nzwei\ndrei\n")
        r, text = await call("edit", path="/tmp/d/f.txt", old="zwei", new="two")
        r, text = await call("read", path="/tmp/d/f.txt")
        say("files", text=text)
        r, text = await call("edit", path="/tmp/d/f.txt", old="zwei", new="two")
        say("remedy", error=r.is_error, text=text)
        r, text = await call("run", command="head -c 100000000 /dev/zero | tr '\\0' x | fold -w 99")
        say("large", text=len(text), data=len(json.dumps(r.structured_content)), hint=[line for line in text.splitlines() if "left out" in line])
        first = await call("output", exec=r.structured_content["exec"], offset=r.structured_content["out_bytes"] - 100)
        say("rest", text=first[1])
        began = time.time()
        with anyio.move_on_after(1.5) as scope:
            await call("run", command="echo $$ >/tmp/pid; exec sleep 300")
        say("cancelled", caught=scope.cancelled_caught, took=time.time() - began)
        for _ in range(100):
            r, text = await call("run", command="kill -0 $(cat /tmp/pid) 2>/dev/null && echo alive || echo dead")
            if "dead" in text:
                break
            await asyncio.sleep(0.1)
        say("stopped", text=text)
        many = await asyncio.gather(*(call("run", command=f"sleep 0.5; echo {i}") for i in range(8)))
        say("many", good=[text.split("\n")[1] for _, text in many])


asyncio.run(main())
