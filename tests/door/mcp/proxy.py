"""A proxy that adds a key: the protocol's own test tool knows none. One thread per connection; Host and Origin go on as they are."""
import http.client
import http.server
import threading


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, key):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind, self.key = port, key
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def carry(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "content-length", "authorization"):
                behind.putheader(name, value)
        behind.putheader("Authorization", "Bearer " + self.server.key)
        behind.putheader("Content-Length", str(len(body)))
        behind.endheaders(body)
        answer = behind.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding", "date", "keep-alive"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()
        behind.close()
        self.close_connection = True

    do_GET = do_POST = do_DELETE = carry  # noqa: N815
