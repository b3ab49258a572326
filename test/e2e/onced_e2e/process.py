"""A child process that says on its first line of standard output that it is ready, as one JSON object. Standard error goes to
a log file. Only this process is ever signalled, by its own pid."""

import json
import os
import re
import select
import signal
import subprocess
import time

START_SECONDS = 20
STOP_SECONDS = 20
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|runtime error:|WARNING: \w+Sanitizer|Assertion .* failed")


class Failed(AssertionError):
    """The child did not start, or did not end as it should."""


def environment():
    env = dict(os.environ)
    env.setdefault("ASAN_OPTIONS", "abort_on_error=0:exitcode=99:detect_leaks=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=0")
    return env


class Process:
    def __init__(self, name, log):
        self.name = name
        self.log = log
        self.child = None
        self.ready = None

    def start(self, argv, prefix=()):
        assert not self.alive(), f"{self.name} runs already"
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen([*prefix, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                          env=environment())
        line = self._first_line()
        try:
            self.ready = json.loads(line)
        except ValueError:
            status = self._ended(5)
            raise Failed(f"{self.name} did not start (status {status}, said {line!r})\n{self.text()[-4000:]}") from None
        return self.ready

    def _first_line(self):
        line, end = b"", time.monotonic() + START_SECONDS
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([self.child.stdout], [], [], max(0, end - time.monotonic()))
            if not readable:
                self.kill()
                raise Failed(f"{self.name} was not ready within {START_SECONDS} s\n{self.text()[-4000:]}")
            piece = os.read(self.child.stdout.fileno(), 4096)
            if not piece:
                break
            line += piece
        return line.decode()

    def _ended(self, seconds):
        try:
            status = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return "still running"
        self.child.stdout.close()
        return status

    @property
    def pid(self):
        return self.ready["pid"] if self.ready and "pid" in self.ready else self.child.pid

    def alive(self):
        return self.child is not None and self.child.poll() is None

    def signal(self, number):
        assert self.alive(), f"{self.name} is not running\n{self.text()[-4000:]}"
        os.kill(self.pid, number)

    def kill(self):
        """kill -9, and wait until it is gone."""
        if self.alive():
            self.child.kill()
        self.child.wait()
        self.child.stdout.close()

    def pause(self):
        """SIGSTOP, and wait until it stands still."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self):
        self.signal(signal.SIGCONT)

    def terminate(self, seconds=STOP_SECONDS):
        """SIGTERM; the exit status."""
        self.signal(signal.SIGTERM)
        try:
            status = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"{self.name} did not stop within {seconds} s after SIGTERM\n{self.text()[-4000:]}") from None
        self.child.stdout.close()
        return status

    def text(self):
        try:
            return self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def findings(self):
        """What sanitizers and assertions said, or None."""
        text = self.text()
        found = SANITIZER.search(text)
        return text[max(0, found.start() - 200):found.start() + 6000] if found else None
