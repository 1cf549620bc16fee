// What the newest official TypeScript client sees of a server: one JSON line per behaviour, for tests/door/mcp/run.
//   node client.mjs MODULES http URL KEY | node client.mjs MODULES stdio COMMAND...
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, kind, ...rest] = process.argv.slice(2);
const require = createRequire(modules + "/");
const load = (name) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + name)));
const { Client } = await load("client/index.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { StdioClientTransport } = await load("client/stdio.js");
const say = (name, what) => console.log(JSON.stringify({ name, ...what }));
const transport = kind === "stdio"
  ? new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env })
  : new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers: { Authorization: "Bearer " + rest[1] } } });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
say("tools", { names: tools.map((t) => t.name) });
const call = async (name, args, options) => {
  const r = await client.callTool({ name, arguments: args }, undefined, options);
  return { ...r, text: r.content.map((c) => c.text ?? "").join("") };
};
let r = await call("run", { command: "echo out; echo err >&2; exit 3" });
say("run", { text: r.text, data: r.structuredContent });
const told = [];
r = await call("run", { command: "for i in 1 2 3 4; do echo step $i; sleep 0.6; done" }, { onprogress: (p) => told.push([p.progress, p.message]) });
say("progress", { told, text: r.text });
await call("session_run", { command: "cd /srv; export WHO=model" });
r = await call("session_run", { command: "echo $WHO in $PWD; exit 4" });
say("session", { text: r.text, data: r.structuredContent });
await call("write", { path: "/tmp/d/f.txt", content: "eins\nzwei\ndrei\n" });
await call("edit", { path: "/tmp/d/f.txt", old: "zwei", new: "two" });
r = await call("read", { path: "/tmp/d/f.txt" });
say("files", { text: r.text });
r = await call("edit", { path: "/tmp/d/f.txt", old: "zwei", new: "two" });
say("remedy", { error: r.isError, text: r.text });
const abort = new AbortController();
setTimeout(() => abort.abort("enough"), 1500);
const began = Date.now();
let caught = false;
try {
  await call("run", { command: "echo $$ >/tmp/pid; exec sleep 300" }, { signal: abort.signal });
} catch (e) {
  caught = true;
}
say("cancelled", { caught, took: (Date.now() - began) / 1000 });
for (let i = 0; i < 100; i++) {
  r = await call("run", { command: "kill -0 $(cat /tmp/pid) 2>/dev/null && echo alive || echo dead" });
  if (r.text.includes("dead")) break;
  await new Promise((wake) => setTimeout(wake, 100));
}
say("stopped", { text: r.text });
const many = await Promise.all([...Array(8).keys()].map((i) => call("run", { command: `sleep 0.5; echo ${i}` })));
say("many", { good: many.map((m) => m.text.split("\n")[1]) });
if (kind === "http") await transport.terminateSession();
await client.close();
