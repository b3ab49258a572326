"""Where onced posts its notifications to: keeps what came, answers as told, and verifies signatures as receivers do."""

import base64
import hashlib
import hmac
import http.server
import json
import threading

SECRET = "whsec_" + base64.b64encode(b"what signs the notifications of tests").decode()


class Message:
    def __init__(self, headers, raw):
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.raw = raw
        self.body = json.loads(raw)

    @property
    def id(self):
        return self.headers["webhook-id"]

    @property
    def type(self):
        return self.body["type"]

    @property
    def operation(self):
        return self.body["data"]["operation_id"]

    def signed(self, secret=SECRET):
        key = base64.b64decode(secret.removeprefix("whsec_"))
        text = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.raw
        made = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
        return f"v1,{made}" in self.headers["webhook-signature"].split(" ")


class Hook:
    """start() and stop() like a process; the port stays the same. statuses: of the next answers; then 204."""

    def __init__(self):
        self.messages = []
        self.statuses = []
        self.port = 0
        self.server = None
        self.gate = threading.Event()
        self.gate.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hooks/onced?from=test"

    def section(self, **more):
        return {"url": self.url, "secret": "${env:NOTIFY_SECRET}", **more}

    def of(self, operation, kind=None):
        return [each for each in list(self.messages) if each.operation == operation and kind in (None, each.type)]

    def start(self):
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # noqa: N802 - http.server's name
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                hook.messages.append(Message(self.headers, raw))
                hook.gate.wait(60)  # longer than any caller has patience for
                status = hook.statuses.pop(0) if hook.statuses else 204
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):  # noqa: N802 - a redirect that was followed
                hook.messages.append(None)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # the sender was killed

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self):
        self.gate.set()
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
