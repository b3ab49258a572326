"""The real daemon with one system call that fails: allocation, write, fsync, open or a socket's operation. test/sweep/preload.c
makes the n-th one fail; for each n the daemon starts with an empty ledger, takes a handful of calls, is killed if it has not
ended by then, is started again without faults, and what the provider counted decides: one effect per intent, nothing that a
caller was told is lost or changed.

With the fault the daemon may go on, refuse to start with a message and a status, or end as it does when memory is exhausted
(base/mem.h: a message and SIGABRT), also within a library that does not survive it (LIBRARIES); nothing else.

n runs from the first call of the kind to the last one that an undisturbed run makes: ONCED_SWEEP=full takes each, ONCED_SWEEP=100
so many of each kind and error, else so many that the file takes less than a minute (POINTS, spread evenly)."""

import os
import re
import signal
import struct
import time

import pytest

from onced_e2e import binary, registry
from onced_e2e.crash import Intent, Line, word
from onced_e2e.figures import figure
from onced_e2e.process import Failed, environment
from onced_e2e.wait import Background
from test_kill_points import FIELDS, QUICK

KINDS = ["malloc", "write", "fsync", "open", "socket", "connect", "accept", "send", "recv"]  # as in preload.c
SWEEPS = [
    ("malloc", "ENOMEM"), ("write", "ENOSPC"), ("write", "EIO"), ("write", "EINTR"), ("write", "short"), ("fsync", "EIO"),
    ("open", "EMFILE"), ("socket", "EMFILE"), ("socket", "ENOBUFS"), ("connect", "ENETUNREACH"), ("connect", "EINTR"),
    ("accept", "EMFILE"), ("accept", "ECONNABORTED"), ("send", "ECONNRESET"), ("send", "ENOBUFS"), ("send", "EINTR"),
    ("send", "short"), ("recv", "ECONNRESET"), ("recv", "EINTR"), ("recv", "short"),
]
# What dies by itself when it gets no memory: libuv and libjq call abort(), libfyaml 0.7.12 reads through NULL at its start.
LIBRARIES = [r"libuv\.so", r"libjq\.so", r"libfyaml\.so[.0-9]*\(fy_parse_input_append"]
LENGTH = os.environ.get("ONCED_SWEEP", "")
FULL = LENGTH == "full"
POINTS = {"malloc": int(LENGTH) if LENGTH.isdigit() else 30}
POINTS_OTHERS = int(LENGTH) if LENGTH.isdigit() else 4
LIFE_SECONDS = 1.5      # with the fault; calls that are not answered by then are answered after the restart
SETTLE_SECONDS = 40
COLLECTIONS = {"keyed": "refunds", "lookup": "transfers", "keyless": "notes"}


def preload():
    return binary.built("test/sweep/preload.so")


def tools():
    return {
        "keyed": registry.write("refunds", FIELDS, **QUICK),
        "lookup": registry.write("transfers", FIELDS, keyed=False, **QUICK),
        "keyless": registry.write("notes", FIELDS, **QUICK),
    }


def traffic(run):
    def intent(tool, n, fault=None):
        arguments = {"payment_id": f"{run}-{n}", "amount_cents": 100 + n}
        return Intent(tool, f"{run}-{n}", {**arguments, "fake_fault": fault} if fault else arguments)

    return [intent("keyed", 1), intent("keyed", 2, "close_after_commit|success"), intent("lookup", 3),
            intent("lookup", 4, "close_after_commit"), intent("keyless", 5)]


def until_settled(port, intent):
    line, end = Line(port, timeout=5), time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        try:
            told = word(*line.ask("POST", "/v1/calls", intent.body))
            if told:
                return told
        except OSError:
            pass  # closed, killed, or not up yet
        time.sleep(0.01)
    raise AssertionError(f"not settled in {SETTLE_SECONDS} s: {intent}")


class Run:
    """One life with a fault and one without."""

    def __init__(self, world, name, choice):
        self.world = world
        self.name = name
        self.counts_file = world.folder / f"counts-{name}"
        self.onced = world.prepare(tools(), server={"log": "error"})
        options = environment()["ASAN_OPTIONS"] + ":verify_asan_link_order=0:handle_segv=0:handle_abort=0"
        self.prefix = ("env", f"ASAN_OPTIONS={options}", "ONCED_FAIL_NAMES_DEATH=1", f"LD_PRELOAD={preload()}", f"ONCED_FAIL={choice}",
                       f"ONCED_FAIL_COUNTS={self.counts_file}")
        self.intents = traffic(name)

    def ended_in_order(self, ready):
        status, text = self.onced.process.child.returncode, self.onced.process.text()
        if status == -signal.SIGABRT and "onced: out of memory" in text:
            return
        if status in (-signal.SIGABRT, -signal.SIGSEGV):
            frames = text.partition("preload: died in")[2].splitlines()
            outermost = [line for line in frames if line and not re.search(r"preload\.so|libc\.so|libasan\.so", line)]
            dead = outermost[0] if outermost else text[-3000:]
            assert any(re.search(library, dead) for library in LIBRARIES), f"{self.name}: died with {status} in {dead}\n{text[-3000:]}"
            return
        assert not ready, f"{self.name}: ended by itself with {status} while it served: {text[-3000:]}"
        assert status in (0, 1, 2, 4, 7, 8), f"{self.name}: ended with {status}: {text[-3000:]}"  # daemon.h: what a start can fail of
        assert text.strip(), "it ended without a word"

    def live_with_fault(self, callers):
        self.onced.prefix = self.prefix
        ready = True
        try:
            self.onced.start()
        except Failed:
            ready = False
        end = time.monotonic() + LIFE_SECONDS
        while self.onced.process.alive() and time.monotonic() < end and any(each.running() for each in callers):
            time.sleep(0.01)
        if self.onced.process.alive():
            self.onced.kill()
            self.end = "lived"
        else:
            self.ended_in_order(ready)
            self.end = "ended"
        self.onced.prefix = ()

    def counts(self):
        """How many calls of each kind the life with the preloaded library made."""
        numbers = struct.unpack(f"{len(KINDS)}Q", self.counts_file.read_bytes())
        return dict(zip(KINDS, numbers))

    def judge(self):
        truth = self.world.provider.truth()
        assert truth["duplicates_by_key"] == 0 and truth["duplicates_by_reference"] == 0, f"{self.name}: {truth}"
        for each in self.intents:
            effects = truth["by_key"].get(f"{COLLECTIONS[each.tool]}/{each.arguments['payment_id']}", 0)
            status = each.told[0][1]
            good = effects == 1 if status == "completed_success" else effects == 0 and each.tool == "lookup"
            assert good, f"{self.name}: {effects} effects, told {each}"
            again = until_settled(self.onced.port, each)
            assert again == each.told[0], f"{self.name}: now told {again}: {each}"
            rows = sum(row["kind"] == "call" and row["outcome"] != "not_sent"
                       for row in self.onced.attempt_rows(each.told[0][0]))
            assert len(self.world.provider.writes(each.told[0][0])) <= rows, f"{self.name}: {each}"

    def carry_out(self):
        callers = [Background(until_settled, self.onced.port, each) for each in self.intents]
        self.live_with_fault(callers)
        self.onced.start()
        for each, caller in zip(self.intents, callers):
            each.told.append(caller.result(SETTLE_SECONDS + 5))
        self.judge()
        self.onced.kill()
        return self


def points(total, count):
    """1 … total, or so many of them: the first, the last, and evenly between."""
    if FULL or total <= count:
        return list(range(1, total + 1))
    return sorted({1 + round(i * (total - 1) / (count - 1)) for i in range(count)})


@pytest.mark.parametrize("kind, how", SWEEPS, ids=[f"{kind}-{how}" for kind, how in SWEEPS])
def test_sweep(world, kind, how):
    free = Run(world, "free", f"{kind}:0:{how}").carry_out()
    total = free.counts()[kind]
    assert free.end == "lived" and total > 0, f"no call of {kind} was seen: {free.counts()}"
    ends = {"lived": 0, "ended": 0}
    chosen = points(total, POINTS.get(kind, POINTS_OTHERS))
    for n in chosen:
        ends[Run(world, f"{kind}{n}", f"{kind}:{n}:{how}").carry_out().end] += 1
    figure("fault sweep", f"{kind} {how}: {len(chosen)} of {total} points, {ends['lived']} lived on, {ends['ended']} ended in order",
           kind=kind, how=how, points=len(chosen), total=total, **ends)
