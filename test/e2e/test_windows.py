"""The six failure windows of design 18 with real kill -9 at random points: each is hit ONCED_ROUNDS times (must-show: 50; CI:
10). Which window a kill really hit is found afterwards, from a copy of the ledger file at the moment of death and the
provider's own log.

    reserved   the ledger has the operation, the provider never saw a request of it
    committed  the provider has made the effect and has not answered
    answered   the provider has answered, the ledger does not have the outcome
    restart    killed again while what the former process left was being taken up
    race       two callers with one key, both under way at the kill
    mismatch   the same key with other arguments, while the first runs and afterwards

Judged by the provider: effects = intents. Each intent has two callers, who ask until they are answered; both must be told
the same, and the same again at the end. At the provider without keys a request that was lost before it arrived is proven
absent by look-up and never sent again by itself: its callers are told `failed_permanent`, which must be true (no effect);
a person's retry then makes it happen."""

import collections
import itertools
import threading
import time

import pytest

from onced_e2e import ledgers, registry
from onced_e2e.crash import Callers, Intent, Line, Moment, ask_again, chance, now_ms, rounds, start_and_kill, word
from onced_e2e.figures import figure
from onced_e2e.wait import Background, wait_until

HITS = rounds()
SLOWER = 4 if ledgers.POSTGRES else 1  # a commit is a journey, and what was open at a kill waits for the end of its lease
SECONDS = (60 + 6 * HITS) * SLOWER  # a campaign that has not hit each window by then fails
CALLERS = 24
HOLD_MS = 12 * SLOWER    # between the provider's commit and its answer, for half of the requests
LEASES_S = (0.5, 2) if ledgers.POSTGRES else (0, 0)  # leases have to end before what was left is taken up
DRAIN_S = 0.08           # after a kill: what was on the wire has arrived, what was held has ended


def tool(keyed):
    return registry.refund(keyed=keyed, while_in_doubt="allow", settle="150ms", absent_times=2, lookup_interval="20ms",
                           retry={"attempts": 20, "total": "1h", "backoff": "10ms", "backoff_max": "100ms"})


def world_of(world, keyed, hold_ms=HOLD_MS, share=0.5):
    world.provider.config(faults=f"timeout_after_commit:{hold_ms}={share}")
    return world.onced({"refund.create": tool(keyed)}, server={"log": "error"})


def intent(n, cents=None):
    return Intent("refund.create", f"k{n}", {"payment_id": f"p{n}", "amount_cents": cents or 100 + n})


class Issued:
    """Intents without end, each twice in a row (for two callers), until told to stop."""

    def __init__(self):
        self.all = []
        self.over = threading.Event()

    def __iter__(self):
        for n in itertools.count():
            if self.over.is_set():
                return
            self.all.append(intent(n))
            yield self.all[-1]
            yield self.all[-1]


class Log:
    """The provider's log of writes, by reference, read in pieces."""

    def __init__(self, provider):
        self.provider = provider
        self.since = 0
        self.by_reference = collections.defaultdict(dict)

    def read(self):
        while True:
            answer = self.provider.client.get(f"/_fake/requests?since={self.since}&limit=10000").body["requests"]
            for entry in answer:
                if entry["method"] == "POST":
                    self.by_reference[entry["reference"]][entry["n"]] = entry
            if len(answer) < 10000:
                break
            self.since = answer[-1]["n"]
        still_open = [e["n"] for entries in self.by_reference.values() for e in entries.values() if e["outcome"] == "open"]
        newest = max((n for entries in self.by_reference.values() for n in entries), default=0)
        self.since = max(self.since, min(still_open, default=newest + 1) - 1)


def window_of(operation, entries, killed_ms):
    """Of an operation on its first attempt. Times are whole milliseconds: what lies on the edge counts for no window."""
    if not entries:
        return "reserved"
    entry = entries[0]
    if not entry["effect"] or entry["time_ms"] >= killed_ms:
        return None
    if entry["took_ms"] is None or entry["outcome"] == "left":
        return "committed"
    answered_ms = entry["time_ms"] + entry["took_ms"]
    if entry["outcome"] == "answered" and answered_ms < killed_ms and operation.state == "dispatched":
        return "answered"
    return "committed" if answered_ms > killed_ms + 1 else None


def windows_hit(moment, log, killed_ms):
    hit = set()
    for operation in moment.open.values():
        entries = [log.by_reference[operation.id][n] for n in sorted(log.by_reference[operation.id])]
        first_attempt = operation.tries <= 1 and len(entries) <= 1
        if first_attempt and operation.state in ("pending_dispatch", "dispatched"):
            hit.add(window_of(operation, entries, killed_ms))
    return hit - {None}


def kill_while_recovering(onced, moment, random, start_s):
    """Starts and kills again; True when the kill found the recovery begun and not ended, which is about where a start ends."""
    start_and_kill(onced, random.uniform(*LEASES_S) + random.uniform(0, 2 * start_s))
    again = Moment(onced.ledger)
    begun = any(id not in again.open or again.open[id].rev != was.rev for id, was in moment.open.items())
    return begun and any(id in again.open for id in moment.open)


def campaign(world, onced, callers, issued, random):
    """Kills until each window has its hits; a kill counts once for each window that it hit."""
    hits, kills = collections.Counter(), 0
    wanted = ("reserved", "committed", "answered", "restart")
    log, end = Log(world.provider), time.monotonic() + SECONDS
    start_s = 0.05  # until one was measured
    while any(hits[window] < HITS for window in wanted) and not callers.problems:
        assert time.monotonic() < end, f"not all windows were hit in {SECONDS} s: {dict(hits)}"
        answered = callers.answered
        wait_until(lambda: callers.answered > answered or callers.problems, seconds=30, every=0.001)
        time.sleep(random.uniform(0, 0.1))
        killed_ms = now_ms()
        onced.kill()
        kills += 1
        moment = Moment(onced.ledger)
        time.sleep(DRAIN_S)
        log.read()
        hits.update(windows_hit(moment, log, killed_ms))
        while moment.open and hits["restart"] < HITS and random.random() < 0.6:
            kills += 1
            hits["restart"] += kill_while_recovering(onced, moment, random, start_s)
            moment = Moment(onced.ledger)
        began = time.monotonic()
        onced.start()
        start_s = time.monotonic() - began
    issued.over.set()
    callers.join()
    return hits, kills


def done_and_failed(intents):
    """Both callers of each intent were told the same, and it is an end."""
    for each in intents:
        assert each.told and len(set(each.told)) == 1, each
        assert each.told[0][1] in ("completed_success", "failed_permanent"), each
    return ([each for each in intents if each.told[0][1] == "completed_success"],
            [each for each in intents if each.told[0][1] == "failed_permanent"])


def judge(world, onced, intents, keyed):
    """The provider's count against what callers were told."""
    done, failed = done_and_failed(intents)
    truth = world.provider.truth()
    assert truth["duplicates_by_key"] == 0 and truth["duplicates_by_reference"] == 0
    for each in done:
        assert truth["by_key"].get("refunds/" + each.arguments["payment_id"]) == 1, each
    for each in failed:
        assert "refunds/" + each.arguments["payment_id"] not in truth["by_key"], each
        assert onced.operation(each.told[0][0])["reason"] == "absent", each
    assert not (keyed and failed), failed[:3]
    assert truth["effects"] == len(done)
    changed = ask_again(onced.port, intents)
    assert not changed, changed[:3]
    for each in failed:
        answer = onced.client.post(f"/v1/operations/{each.told[0][0]}/retry", {"note": "proven absent: once more"})
        assert onced.settled(answer.id).state == "completed_success"
    truth = world.provider.truth()
    assert truth["effects"] == len(intents) and truth["duplicates_by_key"] == 0
    return len(failed)


@pytest.mark.parametrize("keyed", [True, False], ids=["resend", "lookup"])
def test_windows_with_kill(world, keyed):
    random = chance()
    onced = world_of(world, keyed)
    issued = Issued()
    callers = Callers(onced.port, issued, CALLERS, deadline_s=SECONDS + 60)
    hits, kills = campaign(world, onced, callers, issued, random)
    failed = judge(world, onced, issued.all, keyed)
    found = ", ".join(f"{window} {hits[window]}" for window in sorted(hits))
    figure("windows", f"{'resend' if keyed else 'lookup'}: {kills} kills hit {found}; {len(issued.all)} intents, as many effects, "
           f"{failed} proven absent and then retried by a person",
           hits=dict(hits), kills=kills)


# ---- two workers race for one key ----


def call_until_settled(port, one, times, after_s=0.0):
    """The answer, and when the first request left and the answer came."""
    time.sleep(after_s)
    begin, line, end = time.monotonic(), Line(port), time.monotonic() + 60
    try:
        while time.monotonic() < end:
            try:
                told = word(*line.ask("POST", "/v1/calls", one.body))
                if told:
                    times.append((begin, time.monotonic()))
                    return told
            except OSError:
                pass
            time.sleep(0.005)
    finally:
        line.close()
    raise AssertionError(f"not settled: {one}")


@pytest.mark.parametrize("keyed", [True, False], ids=["resend", "lookup"])
def test_window_two_workers_race(world, keyed):
    random = chance()
    onced = world_of(world, keyed)
    intents, hits, end = [], 0, time.monotonic() + SECONDS
    while hits < HITS:
        assert time.monotonic() < end, f"{hits} hits in {SECONDS} s"
        one, times = intent(len(intents)), []
        intents.append(one)
        callers = [Background(call_until_settled, onced.port, one, times, random.uniform(0, 0.004)) for _ in range(2)]
        time.sleep(random.uniform(0.002, 0.03))
        killed = time.monotonic()
        onced.kill()
        onced.start()
        one.told += [caller.result(70) for caller in callers]
        hits += all(begin < killed < answered for begin, answered in times)
    failed = judge(world, onced, intents, keyed)
    figure("windows", f"{'resend' if keyed else 'lookup'}: {len(intents)} races killed, {hits} with both callers under way, "
           f"{failed} proven absent and then retried by a person", hits={"race": hits}, kills=len(intents))


# ---- the same key with other arguments ----


class Other:
    """Asks for the same key with other arguments again and again; what it was told each time."""

    def __init__(self, port, one):
        self.port, self.one = port, one
        self.answers, self.over = [], threading.Event()
        self.running = Background(self._run)

    def _run(self):
        line = Line(self.port)
        while not self.over.is_set():
            try:
                status, body = line.ask("POST", "/v1/calls", self.one.body)
                self.answers.append((time.monotonic(), status, body))
            except OSError:
                pass
            time.sleep(0.003)
        line.close()

    def stop(self):
        self.over.set()
        self.running.result()


def test_window_same_key_other_arguments(world):
    """At the provider with keys, so that every intent ends in success and the other arguments may never run."""
    random = chance()
    onced = world_of(world, keyed=True, hold_ms=60 * SLOWER, share=1)
    intents, hits, end = [], 0, time.monotonic() + SECONDS
    while hits < HITS:
        assert time.monotonic() < end, f"{hits} hits in {SECONDS} s"
        one, times = intent(len(intents)), []
        intents.append(one)
        first = Background(call_until_settled, onced.port, one, times)
        wait_until(lambda one=one: onced.by_key("refund.create", one.key).status == 202, every=0.001)
        other = Other(onced.port, intent(len(intents) - 1, cents=999_999))
        time.sleep(random.uniform(0.002, 0.03))
        onced.kill()
        onced.start()
        one.told.append(first.result(70))
        answered = times[0][1]
        wait_until(lambda: other.answers and other.answers[-1][0] > answered + 0.01, what="an answer after the end")
        other.stop()
        bad = [body for _, status, body in other.answers if status not in (422, 503)]
        assert not bad, bad[0]
        assert all(body["type"] == "urn:onced:problem:key_reused" and body["differing"] == ["/amount_cents"]
                   for _, status, body in other.answers if status == 422)
        hits += any(status == 422 and at < answered for at, status, _ in other.answers)
    judge(world, onced, intents, keyed=True)
    amounts = {refund["amount_cents"] for refund in world.provider.objects("refunds", "limit=100")}
    assert 999_999 not in amounts
    figure("windows", f"{len(intents)} keys killed, {hits} with other arguments refused before the first had ended, all refused"
           " after it", hits={"mismatch": hits}, kills=len(intents))
