"""Callers that retry until they are answered while the daemon is killed, and what its ledger and the provider's log say
about the moment of death.

    Line      one kept connection, cheaper than http.client: the callers share two cores with what they test
    Callers   threads over a list of intents; each asks again and again until its intent is settled
    Moment    the operations that were open when the daemon died, read from its ledger
"""

import json
import os
import random
import socket
import subprocess
import threading
import time

from onced_e2e import binary, ledgers
from onced_e2e.onced import TERMINAL
from onced_e2e.process import environment

ROUNDS_DEFAULT = 10   # CI; the evidence scripts use 50 and more


def rounds(default=ROUNDS_DEFAULT):
    """How often each thing is to happen (ONCED_ROUNDS)."""
    return int(os.environ.get("ONCED_ROUNDS", default))


def chance():
    """A source of random points in time; its seed is printed, so that a failing run tells it."""
    seed = int(os.environ.get("ONCED_SEED", time.time_ns() % 1_000_000))
    print(f"seed {seed}")
    return random.Random(seed)


class Line:
    """Raises OSError when there is no whole answer; then the next request takes a new connection."""

    def __init__(self, port, timeout=20):
        self.port = port
        self.timeout = timeout
        self.socket = None
        self.rest = b""

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket, self.rest = None, b""

    def ask(self, method, path, body=b"", headers=""):
        """(status, parsed body). headers: whole lines, each ended by CR LF."""
        head = (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n")
        try:
            if not self.socket:
                self.socket = socket.create_connection(("127.0.0.1", self.port), self.timeout)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.sendall((head + headers + "\r\n").encode() + body)
            return self._answer()
        except OSError:
            self.close()
            raise

    def _more(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionResetError("closed within an answer")
        self.rest += piece

    def _answer(self):
        while (end := self.rest.find(b"\r\n\r\n")) < 0:
            self._more()
        head = self.rest[:end].decode("latin-1").lower().split("\r\n")
        named = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        size = int(named["content-length"])
        while len(self.rest) < end + 4 + size:
            self._more()
        body, self.rest = self.rest[end + 4:end + 4 + size], self.rest[end + 4 + size:]
        if named.get("connection") == "close":
            self.close()
        return int(head[0].split(" ")[1]), json.loads(body) if body else None


class Intent:
    """One intended effect and what its callers were told in the end."""

    def __init__(self, tool, key, arguments):
        self.tool = tool
        self.key = key
        self.arguments = arguments
        self.body = json.dumps({"tool": tool, "arguments": arguments, "idempotency_key": key}).encode()
        self.told = []

    def __repr__(self):
        return f"<{self.tool} {self.key} {self.told}>"


def word(status, body):
    """What an answer says, so that answers can be compared: the parts that must never change once told. None = ask again."""
    if status in (200, 201) and body["status"] in TERMINAL:
        return (body["operation_id"], body["status"], body["external_id"], json.dumps(body["result"], sort_keys=True),
                json.dumps(body["error"], sort_keys=True))
    if status in (202, 503):
        return None
    raise AssertionError(f"a caller was answered {status}: {body}")


class Callers:
    """So many threads; each takes the next job and asks until it is settled. Jobs come from an iterator under a lock."""

    def __init__(self, port, jobs, threads, deadline_s=120, pause_s=0.01):
        self.port = port
        self.jobs = iter(jobs)
        self.pause_s = pause_s
        self.lock = threading.Lock()
        self.deadline = time.monotonic() + deadline_s
        self.answered = 0
        self.answer_times = []
        self.problems = []
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def _next(self):
        with self.lock:
            return next(self.jobs, None)

    def _work(self):
        line = Line(self.port)
        try:
            while not self.problems and (intent := self._next()):
                told = self.until_settled(line, intent)
                with self.lock:
                    intent.told.append(told)
                    self.answered += 1
                    self.answer_times.append(time.monotonic())
        except BaseException as problem:  # noqa: BLE001 - raised again by join()
            self.problems.append(problem)
        finally:
            line.close()

    def until_settled(self, line, intent):
        while time.monotonic() < self.deadline:
            try:
                told = word(*line.ask("POST", "/v1/calls", intent.body))
                if told:
                    return told
            except OSError:
                pass  # killed, or not up yet
            time.sleep(self.pause_s)
        raise AssertionError(f"not settled in time: {intent}")

    def join(self):
        for thread in self.threads:
            thread.join()
        if self.problems:
            raise self.problems[0]


def ask_again(port, intents, threads=8):
    """Every intent once more; those whose answer is another one than their callers were told."""
    asked = [Intent(each.tool, each.key, each.arguments) for each in intents]
    Callers(port, asked, threads).join()
    return [(old, new.told) for old, new in zip(intents, asked) if set(old.told) != set(new.told)]


class Open:
    """An operation that was not finished when the daemon died."""

    def __init__(self, row):
        self.id, self.state, self.rev, self.tries = row


class Moment:
    def __init__(self, ledger):
        rows = ledgers.select(ledger, f"SELECT id, {ledgers.STATE} AS state, rev, tries FROM operations WHERE open = 1")
        self.open = {row[0]: Open(row) for row in rows}


def now_ms():
    return time.time_ns() // 1_000_000


def start_and_kill(onced, after_s):
    """Starts the daemon and kills it so much later, ready or not."""
    argv = [*onced.prefix, binary.onced(), "serve", str(onced.file), "--listen", f"127.0.0.1:{onced.port}", "--ledger",
            str(onced.ledger)]
    with open(onced.process.log, "ab") as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=environment())
    time.sleep(after_s)
    assert child.poll() is None, f"ended by itself with {child.returncode}\n{onced.process.text()[-2000:]}"
    child.kill()
    child.wait()
