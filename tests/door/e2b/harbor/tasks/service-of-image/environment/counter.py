from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

count = 0


class Counter(BaseHTTPRequestHandler):
    def answer(self):
        body = str(count).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = answer

    def do_POST(self):
        global count
        count += 1
        self.answer()


ThreadingHTTPServer(("127.0.0.1", 8000), Counter).serve_forever()
