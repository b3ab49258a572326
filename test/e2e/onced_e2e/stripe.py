"""A provider that none of us wrote: the npm package stripe-stateful-mock, behind a proxy that loses answers.

The proxy takes one whole request at a time per connection, so that each fault falls at a known place:

    drop_before   the request is read and never forwarded, the connection closed
    drop_after    forwarded, the mock has answered, the connection closed without a byte
    half          forwarded, half of the answer, then closed
    delay:MS      forwarded, the answer comes so much later
    503_after     forwarded, 503 in place of the answer"""

import http.client
import json
import os
import pathlib
import shutil
import signal
import socketserver
import subprocess
import threading
import time

import pytest

from onced_e2e.ports import free_port

MOCK = pathlib.Path(__file__).resolve().parents[1] / "node_modules/stripe-stateful-mock/dist/cli.js"
KEY = "sk_test_onced"
FORWARDED = ("authorization", "content-type", "idempotency-key")


class Mock:
    """Its own list endpoints are the judge."""

    def __init__(self, folder):
        node = shutil.which("node")
        if not node or not MOCK.is_file():
            pytest.skip("needs node and `npm ci` in test/e2e")
        self.port = free_port()
        with open(folder / "stripe.log", "wb") as log:
            self.child = subprocess.Popen([node, str(MOCK)], stdout=log, stderr=log,
                                          env={**os.environ, "PORT": str(self.port), "LOG_LEVEL": "error"})
        end = time.monotonic() + 20
        while True:
            try:
                self.ask("GET", "/v1/charges")
                return
            except OSError:
                assert self.child.poll() is None and time.monotonic() < end, (folder / "stripe.log").read_text()
                time.sleep(0.02)

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {KEY}", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def list(self, what):
        status, _, body = self.ask("GET", f"/v1/{what}")
        assert status == 200
        return json.loads(body)["data"]

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(10)


class Seen:
    """One request that came through the proxy, and what was answered."""

    def __init__(self, method, path, key, fault):
        self.method, self.path, self.key, self.fault = method, path, key, fault
        self.status = None
        self.headers = {}

    def __repr__(self):
        return f"<{self.method} {self.path} {self.key} {self.fault} → {self.status}>"


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while self.one_request():
            pass

    def one_request(self):
        first = self.rfile.readline().decode().split()
        if len(first) < 3:
            return False
        headers = {}
        while (line := self.rfile.readline().strip()):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = self.rfile.read(int(headers.get("content-length", 0)))
        proxy = self.server.proxy
        seen = Seen(first[0], first[1], headers.get("idempotency-key"), proxy.next_fault(first[0]))
        proxy.seen.append(seen)
        return self.answer(seen, body, {name: headers[name] for name in FORWARDED if name in headers})

    def answer(self, seen, body, headers):
        fault, _, argument = (seen.fault or "").partition(":")
        if fault == "drop_before":
            return False
        seen.status, seen.headers, data = self.server.proxy.mock.ask(seen.method, seen.path, body, headers)
        if fault == "drop_after":
            return False
        if fault == "delay":
            time.sleep(int(argument) / 1000)
        if fault == "503_after":
            self.send(503, {"Content-Type": "text/plain"}, b"upstream went away")
            return True
        return self.send(seen.status, seen.headers, data, half=fault == "half")

    def send(self, status, headers, data, half=False):
        kept = {name: value for name, value in headers.items()
                if name.lower() not in ("content-length", "connection", "keep-alive", "transfer-encoding", "date")}
        head = "".join(f"{name}: {value}\r\n" for name, value in kept.items())
        whole = f"HTTP/1.1 {status} X\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        try:
            self.wfile.write(whole[:-len(data) // 2] if half else whole)
            self.wfile.flush()
        except OSError:
            return False
        return not half


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        """A client that was killed while it was answered is what the tests are about."""


class Proxy:
    def __init__(self, mock):
        self.mock = mock
        self.seen = []
        self.faults = []
        self.choose = None
        self.lock = threading.Lock()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.proxy = self
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def script(self, *faults):
        """For the next POSTs, one each."""
        self.faults += faults

    def next_fault(self, method):
        if method != "POST":
            return None
        with self.lock:
            if self.faults:
                return self.faults.pop(0)
            return self.choose() if self.choose else None

    def posts(self):
        return [seen for seen in self.seen if seen.method == "POST"]

    def lookups(self):
        return [seen for seen in self.seen if seen.method == "GET"]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
