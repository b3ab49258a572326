"""kill -9 at each marked point of engine, ledger and adapter (src/base/mark.h), with real processes: the daemon kills itself at
the first pass of one mark, is started again and kills itself at the second, and so on; in the end it runs undisturbed, and
what the provider counted decides: effects = intents, nothing that a caller was told is lost or changed, both callers of an
intent are told the same. A mark that the traffic never reaches fails its test.

The traffic of each life: calls at a provider that knows keys (one of them loses its answer and is sent again), calls at one
that has only a look-up (one loses its answer), calls that wait for the only connection of a third, calls without a key,
calls whose result is dropped at once, and calls that only a person can resolve.

With ONCED_SWEEP set it kills at passes 1 to 6 of each mark, else at the first three (half a minute)."""

import json
import os
import pathlib
import re
import signal
import time

import pytest

from onced_e2e import binary, ledgers, registry
from onced_e2e.crash import Intent, Line, word
from onced_e2e.figures import figure
from onced_e2e.process import Failed
from onced_e2e.wait import Background, wait_until

HEADER = binary.ROOT / "src/base/mark.h"
MARKS = re.findall(r"^ *X\((\w+)\)", HEADER.read_text(), re.MULTILINE)
PASSES = range(1, 7 if os.environ.get("ONCED_SWEEP") else 4)
LIVES = 3  # that end at a mark before one runs undisturbed
ONCE = {"ledger_created", "ledger_opened", "claim_done", "stopping", "before_checkpoint", "after_checkpoint"}
AFTER_A_CRASH = {"claim_done", "before_owner_gone"}
COPIES_THE_LOG = {"before_checkpoint", "after_checkpoint"}
OF_THE_FILE = {"ledger_created", "ledger_opened", "log_written", "log_synced", *COPIES_THE_LOG}
SETTLE_SECONDS = 40
BULK_BYTES, BULK_CALLS = 900_000, 6  # more than the log holds before it is copied (16 MiB)

FIELDS = {"payment_id": registry.TEXT, "amount_cents": registry.INTEGER, "fake_fault?": registry.TEXT, "bulk?": registry.TEXT}
QUICK = {"timeout": "20s", "settle": "100ms", "lookup_interval": "20ms", "while_in_doubt": "allow",
         "retry": {"attempts": 20, "total": "1h", "backoff": "10ms", "backoff_max": "50ms"}}


def tools():
    tool = registry.write("refunds", FIELDS, **QUICK)
    return {
        "keyed": tool,
        "lookup": registry.write("transfers", FIELDS, keyed=False, **QUICK),
        "narrow": registry.write("orders", FIELDS, **QUICK) | {"provider": "narrow"},
        "keyless": registry.write("notes", FIELDS, **QUICK),
        "brief": registry.write("records", FIELDS, **QUICK, retain="1ms", repeat_window="0s"),
        "manual": registry.write("messages", FIELDS, keyed=False, look=False, reconcile=["manual"], **QUICK),
        "bulk": registry.write("bulks", FIELDS, **QUICK, result_bytes_max="1MB"),
    }


COLLECTIONS = {"keyed": "refunds", "lookup": "transfers", "narrow": "orders", "keyless": "notes", "brief": "records",
               "manual": "messages", "bulk": "bulks"}


class Marked(Intent):
    """An intent with its place at the provider."""

    def __init__(self, tool, n, fault=None, key=True, **more):
        arguments = {"payment_id": f"{tool}{n}", "amount_cents": 100 + n, **more}
        if fault:
            arguments["fake_fault"] = fault
        super().__init__(tool, f"k{n}", arguments)
        if not key:
            self.key, self.body = None, json.dumps({"tool": tool, "arguments": arguments}).encode()
        self.business = f"{COLLECTIONS[tool]}/{arguments['payment_id']}"


def traffic(mark, life):
    """Enough of everything for `life` passes of any mark."""
    first = 1000 * life
    narrow = "slow:200" if mark == "queued" else None  # so that the second one comes while the first one is under way
    if mark in COPIES_THE_LOG:
        return [Marked("bulk", first + n, bulk="x" * BULK_BYTES) for n in range(BULK_CALLS)]
    intents = []
    for n in range(first, first + life):
        intents += [
            Marked("keyed", n, "close_after_commit|success"), Marked("keyed", 500 + n),
            Marked("lookup", n, "close_after_commit"),
            Marked("narrow", n, narrow), Marked("narrow", 500 + n, narrow),
            Marked("keyless", n, key=False),
            Marked("brief", n),
            Marked("manual", n, "close_after_commit"),
        ]
    return intents


# ---- callers, and the person ----


def person(line, provider, operation):
    """Looks at the provider and states what it says, until the operation is terminal."""
    status, body = line.ask("GET", f"/v1/operations/{operation['operation_id']}")
    if status in (200, 202) and body["reason"] == "needs_operator":
        happened = provider.effects(body["operation_id"]) > 0
        note = f'{{"version": {body["version"]}, "happened": {str(happened).lower()}, "note": "looked at the provider"}}'
        line.ask("POST", f"/v1/operations/{body['operation_id']}/resolve", note.encode())


def ask_until_settled(port, provider, intent):
    """What a caller is told in the end: as crash.word(), or that the result is no longer kept."""
    line, end = Line(port), time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        try:
            status, body = line.ask("POST", "/v1/calls", intent.body)
            if status == 409 and body["type"] == "urn:onced:problem:result_expired":
                return ("expired",)
            told = word(status, body)
            if told:
                return told
            if intent.tool == "manual" and body.get("reason") == "needs_operator":
                person(line, provider, body)
        except OSError:
            pass  # killed, or not up yet
        time.sleep(0.01)
    raise AssertionError(f"not settled in {SETTLE_SECONDS} s: {intent}")


def start_callers(onced, world, intents):
    """Two of each intent."""
    return [(each, Background(ask_until_settled, onced.port, world.provider, each)) for each in intents for _ in range(2)]


# ---- one life that ends at a mark ----


def prepare(world):
    narrow = registry.provider(world.provider.url, key=registry.KEY_CONTRACT, connections=1, timeout="20s")
    return world.prepare(tools(), server={"log": "error", "body_bytes_max": "2MB"}, providers={"narrow": narrow})


def leave_something(onced, world, count):
    """A former life that was killed with requests on the wire: (intent, caller) pairs that go on asking."""
    before = world.provider.truth()["effects"]
    world.provider.script(*[{"fault": "timeout_after_commit", "on": "write"}] * (2 * count))
    onced.start()
    callers = start_callers(onced, world, [Marked(tool, 100_000 * count + n) for tool in ("keyed", "lookup") for n in range(count)])
    wait_until(lambda: world.provider.truth()["effects"] >= before + 2 * count, what="requests on the wire")
    onced.kill()
    return callers


def live_until_the_mark(onced, mark, n):
    onced.prefix = ("env", f"ONCED_KILL_AT={mark}:{n}")
    try:
        onced.start()
    except Failed:
        pass  # it ended before it was ready; how, is looked at below
    if mark == "stopping":
        time.sleep(0.05)
        onced.process.signal(signal.SIGTERM)
    child = onced.process.child
    wait_until(lambda: child.poll() is not None, what=f"pass {n} of the mark {mark}")
    assert child.returncode == -signal.SIGKILL, f"status {child.returncode}\n{onced.process.text()[-4000:]}"
    onced.prefix = ()


# ---- the judge ----


def judge(onced, world, intents):
    truth = world.provider.truth()
    assert truth["duplicates_by_key"] == 0 and truth["duplicates_by_reference"] == 0, truth
    for each in intents:
        final = {told for told in each.told if told != ("expired",)}
        assert len(each.told) >= 2 and len(final) <= 1, f"told differently: {each}"
        effects = truth["by_key"].get(each.business, 0)
        if final and list(final)[0][1] == "failed_permanent":
            assert effects == 0 and each.tool in ("lookup", "manual"), f"told failed, {effects} effects: {each}"
        else:
            assert effects == 1, f"{effects} effects: {each}"
        assert final or each.tool == "brief", f"only told that the result is gone: {each}"
    again = [(each, Background(ask_until_settled, onced.port, world.provider, each)) for each in intents]
    for each, asked in again:
        told = asked.result(SETTLE_SECONDS)
        assert told in each.told or (each.tool == "brief" and told == ("expired",)), f"now told {told}: {each}"
    operations = {told[0] for each in intents for told in each.told if told != ("expired",) and each.tool != "brief"}
    for operation in sorted(operations):
        assert len(world.provider.writes(operation)) <= sum(
            row["kind"] == "call" and row["outcome"] != "not_sent" for row in onced.attempt_rows(operation))
    assert world.provider.truth()["effects"] == truth["effects"]


@pytest.fixture(scope="module", autouse=True)
def marks_are_built_in():
    if b"ONCED_KILL_AT" not in pathlib.Path(binary.onced()).read_bytes():
        pytest.skip("this build has no marks (meson option marks)")


def test_marks_are_read():
    assert len(MARKS) >= 20 and len(set(MARKS)) == len(MARKS)
    assert ONCE | AFTER_A_CRASH | COPIES_THE_LOG <= set(MARKS)


def end_at(onced, world, mark, passes):
    """One life after the other ends at the mark, each at a later pass and with traffic of its own; the last one ends all."""
    callers = []
    for n in passes:
        if mark in AFTER_A_CRASH:
            callers += leave_something(onced, world, n)
        callers += start_callers(onced, world, traffic(mark, n))
        live_until_the_mark(onced, mark, n)
    onced.start()
    for intent, caller in callers:
        intent.told.append(caller.result(SETTLE_SECONDS + 5))
    return list(dict.fromkeys(intent for intent, _ in callers))


@pytest.mark.parametrize("mark", MARKS)
def test_killed_at(world, mark):
    if ledgers.POSTGRES and mark in OF_THE_FILE:
        pytest.skip("only with a SQLite ledger: how its file is written")
    onced = prepare(world)
    passes = [1] if mark in ONCE else list(PASSES)
    intents = []
    for first in range(0, len(passes), LIVES):
        if first:
            onced.kill()
        intents += end_at(onced, world, mark, passes[first:first + LIVES])
    judge(onced, world, intents)
    figure("kill points", f"{mark}: {len(passes)} kills, {len(intents)} intents as promised", mark=mark, kills=len(passes),
           intents=len(intents))


@ledgers.only_sqlite("whose start passes marks")
def test_unknown_mark_is_refused(world):
    onced = prepare(world)
    onced.prefix = ("env", "ONCED_KILL_AT=no_such_mark:1")
    with pytest.raises(Failed, match="status 2"):
        onced.start()
    assert "expected the name of a mark" in onced.process.text()
