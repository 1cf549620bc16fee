"""MCP by hand: over HTTP (Mcp) and over a program's stdio (Stdio)."""
import concurrent.futures
import http.client
import json
import subprocess
import threading
import time


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return self.messages[-1]

    @property
    def messages(self):
        if "event-stream" not in (self.headers.get("Content-Type") or ""):
            return [json.loads(self.body)]
        return [json.loads(line[6:]) for line in self.body.decode().splitlines() if line.startswith("data: ")]


class Mcp:
    def __init__(self, port, key, headers=None, path="/mcp"):
        self.port, self.key, self.path, self.headers = port, key, path, dict(headers or {})

    def connect(self, method, body=b"", headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        every = {"Authorization": "Bearer " + self.key, "Accept": "application/json, text/event-stream",
                 "Content-Type": "application/json", **self.headers, **(headers or {})}
        c.request(method, self.path, body, {n: v for n, v in every.items() if v})
        return c

    def ask(self, method, body=b"", headers=None):
        c = self.connect(method, body, headers)
        answer = Answer(c.getresponse())
        c.close()
        return answer

    def post(self, message, headers=None):
        return self.ask("POST", message if isinstance(message, bytes) else json.dumps(message).encode(), headers)

    def initialize(self, version="2025-06-18"):
        self.headers.pop("Mcp-Session-Id", None)
        answer = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize",
                            "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
        self.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
        return answer.json

    @staticmethod
    def message(tool, args, number=1):
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": args}}

    def call(self, tool, **args):
        answer = self.post(self.message(tool, args))
        result = answer.json["result"]
        return {"text": result["content"][0]["text"], "data": result.get("structuredContent"), "error": result["isError"], "raw": answer.body}

    def begin(self, tool, args, number):
        """A future of the answer."""
        return concurrent.futures.ThreadPoolExecutor(1).submit(lambda: self.post(self.message(tool, args, number)).json)

    def together(self, calls):
        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(lambda c: self.call(c[0], **c[1]), calls))

    def drop(self, tool, args, runs):
        """Asks, and hangs up as soon as it runs."""
        c = self.connect("POST", json.dumps(self.message(tool, args)).encode())
        for _ in range(500):
            if runs():
                break
            time.sleep(0.05)
        c.close()


class Stdio:
    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        if not self.process.stdin.closed:
            self.process.stdin.close()

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method, params, number):
        self.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")

    def read(self, seconds=120):
        """The next message; a program that says nothing for so long is killed."""
        late = threading.Timer(seconds, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        if not line:
            raise AssertionError("it has ended, or said nothing for too long")
        return json.loads(line)
