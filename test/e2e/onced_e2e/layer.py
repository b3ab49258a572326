"""What stands between a caller and onced and lies about what came back: every request is forwarded once, whole; the answer
may be replaced."""

import http.client
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:  # the caller went away
            self.close_connection = True

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection", "content-length")}
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.layer.port_behind, timeout=30)
        try:
            upstream.request(self.command, self.path, body or None, kept)
            got = upstream.getresponse()
            status, kind, data = got.status, got.headers.get("Content-Type", "application/json"), got.read()
        finally:
            upstream.close()
        lie = self.server.layer.next_lie()
        self.server.layer.forwarded.append((self.command, self.path, status, lie))
        if lie:
            status, kind, data = lie, "text/plain", b"this is not what onced said"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = forward

    def log_message(self, *_):
        pass


class Layer:
    """with Layer(onced.port) as layer: … Client(layer.port) …"""

    def __init__(self, port_behind):
        self.port_behind = port_behind
        self.forwarded = []
        self.lies = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.layer = self
        self.port = self.server.server_address[1]

    def lie(self, *statuses):
        """What the next answers are replaced by."""
        self.lies += statuses

    def next_lie(self):
        return self.lies.pop(0) if self.lies else None

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
