"""MCP clients on `onced mcp`, by hand: one JSON text a line. Nothing is sent twice behind the test's back, and every line that
comes is kept: what is no JSON-RPC message fails the test."""

import json
import os
import queue
import signal
import subprocess
import threading

from onced_e2e import binary
from onced_e2e.process import SANITIZER, environment
from onced_e2e.rpc import RESULT

MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class Result:
    """One answer."""

    def __init__(self, message):
        self.message = message
        self.error = message.get("error")
        self.result = message.get("result") or {}

    @property
    def shape(self):
        own = self.result.get("structuredContent")
        return (self.result.get("_meta") or {}).get(RESULT) or (own if isinstance(own, dict) and "operation_id" in own else {})

    @property
    def state(self):
        return self.shape.get("status")

    @property
    def id(self):
        return self.shape.get("operation_id")

    def __repr__(self):
        return json.dumps(self.message)[:1500]


class Stdio:
    def __init__(self, folder, config, name="client", command=None):
        self.log = folder / f"{name}.log"
        self.messages = []  # everything that came
        self.answers = {}   # id → list of answers
        self.bad = []
        self.news = threading.Condition()
        self.ended = False
        self.ids = 0
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(command or [binary.onced(), "mcp", "--config", str(config)], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=log, env=environment())
        self.outgoing = queue.Queue()
        for job in (self._read, self._write):
            threading.Thread(target=job, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            try:
                message = json.loads(line)
                assert message["jsonrpc"] == "2.0" and line.endswith(b"\n")
            except (ValueError, AssertionError, KeyError, TypeError):
                self.bad.append(line)
                continue
            with self.news:
                self.messages.append(message)
                if "method" not in message:
                    self.answers.setdefault(json.dumps(message.get("id")), []).append(Result(message))
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def _write(self):
        for data in iter(self.outgoing.get, None):
            try:
                self.child.stdin.write(data)
                self.child.stdin.flush()
            except (OSError, ValueError):
                return
        try:
            self.child.stdin.close()
        except OSError:
            return

    # ---- saying ----

    def send_raw(self, data):
        self.outgoing.put(data)

    def send(self, **message):
        self.send_raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method, params=None, id=None):
        """Sends a request; its id."""
        self.ids += 1
        id = self.ids if id is None else id
        self.send(id=id, method=method, **({} if params is None else {"params": params}))
        return id

    def close_input(self):
        self.outgoing.put(None)

    # ---- hearing ----

    def answer(self, id, seconds=20):
        """The first answer to a request."""
        key = json.dumps(id)
        with self.news:
            assert self.news.wait_for(lambda: key in self.answers or self.ended, seconds), f"no answer to {key}: {self.text()[-3000:]}"
            assert key in self.answers, f"ended without an answer to {key} (status {self.child.poll()}): {self.text()[-3000:]}"
            return self.answers[key][0]

    def wait_for(self, check, seconds=20):
        with self.news:
            assert self.news.wait_for(check, seconds), self.text()[-3000:]

    def request(self, method, params=None, seconds=20):
        return self.answer(self.ask(method, params), seconds)

    def initialize(self):
        answer = self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                             "clientInfo": {"name": "test", "version": "1"}})
        assert answer.result["protocolVersion"] == "2025-11-25", answer
        self.send(method="notifications/initialized")
        return self

    def ask_call(self, tool, arguments, meta=None, modern=False):
        meta = {**(MODERN if modern else {}), **(meta or {})}
        return self.ask("tools/call", {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})})

    def call(self, tool, arguments, seconds=20, **named):
        return self.answer(self.ask_call(tool, arguments, **named), seconds)

    # ---- the end ----

    def text(self):
        return self.log.read_text(errors="replace")

    def alive(self):
        return self.child.poll() is None

    def kill(self):
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def end(self, seconds=20):
        """Closes its side; the exit status."""
        self.close_input()
        return self.child.wait(seconds)

    def check(self):
        """Only MCP on standard output, each request answered at most once, no sanitizer has complained."""
        assert not self.bad, self.bad[:3]
        twice = {key: got for key, got in self.answers.items() if key != "null" and len(got) > 1}
        assert not twice, twice
        found = SANITIZER.search(self.text())
        assert not found, self.text()[-6000:]

    def dispose(self):
        if self.alive():
            self.kill()
        self.outgoing.put(None)
        self.check()
