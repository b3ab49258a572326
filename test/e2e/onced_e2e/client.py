"""A small HTTP client. Connections are kept per thread; nothing is ever sent twice behind the test's back."""

import http.client
import json
import socket
import threading

TIMEOUT_SECONDS = 20
LOST = (OSError, http.client.HTTPException)


class Answer:
    def __init__(self, status, headers, raw):
        self.status = status
        self.headers = headers
        self.raw = raw
        try:
            self.body = json.loads(raw) if raw else None
        except ValueError:
            self.body = None

    def __getitem__(self, name):
        return self.body[name]

    def get(self, name, default=None):
        return self.body.get(name, default) if isinstance(self.body, dict) else default

    @property
    def id(self):
        return self.get("operation_id")

    @property
    def state(self):
        """What is said about the operation, also by a problem document."""
        return self.get("operation_status") if self.problem else self.get("status")

    @property
    def problem(self):
        """Name of the problem, or None."""
        kind = self.get("type")
        return kind.removeprefix("urn:onced:problem:") if isinstance(kind, str) else None

    @property
    def replayed(self):
        return bool(self.get("replayed"))

    def __repr__(self):
        return f"<{self.status} {self.raw[:1500].decode(errors='replace')}>"


class Client:
    def __init__(self, port, headers=None, timeout=TIMEOUT_SECONDS):
        self.port = port
        self.headers = dict(headers or {})
        self.timeout = timeout
        self.local = threading.local()

    def _connection(self, timeout):
        kept = getattr(self.local, "connection", None)
        if not kept:
            kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
            kept.connect()
            kept.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.local.connection = kept
        kept.sock.settimeout(timeout)
        return kept

    def drop(self):
        """Closes this thread's connection, whatever is going on on it."""
        kept = getattr(self.local, "connection", None)
        self.local.connection = None
        if kept:
            kept.close()

    def request(self, method, path, body=None, headers=None, timeout=None, raw=None):
        """One request. When it fails (time-out, lost connection), the connection is closed and the error goes on."""
        data = raw if raw is not None else json.dumps(body, ensure_ascii=False).encode() if body is not None else None
        merged = {**self.headers, **({"Content-Type": "application/json"} if data is not None else {}), **(headers or {})}
        try:
            connection = self._connection(timeout or self.timeout)
            connection.request(method, path, data, merged)
            got = connection.getresponse()
            answer = Answer(got.status, got.headers, got.read())
            if got.will_close:
                self.drop()
            return answer
        except LOST:
            self.drop()
            raise

    def get(self, path, **named):
        return self.request("GET", path, **named)

    def post(self, path, body=None, **named):
        return self.request("POST", path, body, **named)
