"""Scenarios of the case bank about owners that die, ledgers that can not be written, and times. The numbers in the names are
the bank's. Killed means kill -9; a full disk is a full file system (mounted by root, else the test is skipped)."""

import time

import pytest

from onced_e2e import ledgers, registry
from onced_e2e.client import LOST, Client
from onced_e2e.judge import judge, never_failed, sent
from onced_e2e.process import Failed
from onced_e2e.registry import TEXT
from onced_e2e.wait import Background, wait_until

pytestmark = pytest.mark.provider_timeout(registry.PATIENT)

REFUND = {"payment_id": "p1", "amount_cents": 2500}


def exhaust(onced, disk, tool):
    """Fills the disk and calls until nothing can be recorded any more: what the log file had room for may still take some,
    and SQLite makes room within it a few times. The answers that were not refused, and the last refusal."""
    served, refusals = [], 0
    for n in range(2000):
        disk.fill()
        answer = onced.call(tool, {**REFUND, "payment_id": f"full-{n}"}, key=f"full-{n}", wait_ms=100)
        if answer.status != 503:
            refusals = 0
            served.append(answer)
            continue
        refusals += 1
        if refusals == 10:
            return served, answer
    raise AssertionError("the disk never was full")


def state_on(disk, operation):
    """As the file of the dead gateway has it."""
    ((state,),) = ledgers.select(disk.seen / "onced.db", f"SELECT {ledgers.STATE} FROM operations WHERE id = ?", (operation,))
    return state


# ---- S29: the in-progress record ended with its owner ----


def test_S29_killed_after_commit_is_looked_up(world, provider):
    onced = world.onced({"withdraw": registry.refund(keyed=False)})
    provider.script("timeout_after_commit")
    caller = Background(onced.call, "withdraw", REFUND, key="k")
    wait_until(lambda: provider.effects() == 1)
    onced.restart()
    with pytest.raises(LOST):
        caller.result()
    redelivered = onced.call("withdraw", REFUND, key="k")
    assert (redelivered.state, redelivered["reason"]) == ("completed_success", "reconciled"), redelivered
    assert redelivered.replayed and provider.lookups()
    judge(onced, provider, redelivered.id, effects=1, dispatches=1)
    never_failed(onced, redelivered.id)
    assert "lost" in {row["outcome"] for row in onced.attempt_rows(redelivered.id)}


def test_S29_control_killed_before_dispatch_is_sent(world, provider):
    """One connection to the provider: the second operation is recorded and waits while the first holds it."""
    section = registry.provider(provider.url, connections=1, timeout=registry.PATIENT)
    onced = world.onced({"withdraw": registry.refund(keyed=False, provider="narrow", while_in_doubt="allow")},
                        providers={"narrow": section})
    provider.script({"fault": "timeout_after_commit", "payment_id": "p1"})
    first = onced.submit("withdraw", REFUND)
    wait_until(lambda: provider.effects() == 1)
    second = onced.submit("withdraw", {**REFUND, "payment_id": "p2"})
    assert onced.operation(second).state == "pending_dispatch"
    assert len(provider.writes()) == 1
    onced.restart()
    done = onced.call("withdraw", {**REFUND, "payment_id": "p2"})
    assert done.id == second and done.state == "completed_success", done
    judge(onced, provider, second, effects=1, dispatches=1)
    assert onced.settled(first).state == "completed_success"
    judge(onced, provider, first, effects=1, dispatches=1)
    never_failed(onced, first)


# ---- S31, S32: what an owner does and says after its lease ----


def foreign_hand(onced, operation, **columns):
    """As if another gateway wrote this row: the test is it."""
    assignments = ", ".join(f"{name} = {ledgers.NAMED.format(name) if name in ('state', 'reason') else '?'}" for name in columns)
    assert ledgers.change(onced.ledger, f"UPDATE operations SET {assignments} WHERE id = ?", (*columns.values(), operation)) == 1
    if columns.get("state") == "unknown_outcome" and not ledgers.POSTGRES:
        ledgers.change(onced.ledger, "INSERT INTO doubts SELECT n, tenant, tool, principal, unknown_since_ms FROM operations WHERE id = ?",
                       (operation,))


def on_the_wire(world, provider):
    onced = world.onced({"withdraw": registry.refund(keyed=False, timeout="20s")})
    provider.script("timeout_after_commit")
    operation = onced.submit("withdraw", REFUND)
    wait_until(lambda: provider.effects() == 1)
    return onced, operation


def now_ms():
    return int(time.time() * 1000)


def test_S32_an_expired_lease_that_nobody_took(world, provider):
    onced, operation = on_the_wire(world, provider)
    foreign_hand(onced, operation, lease_until_ms=now_ms() - 1000, wake_at_ms=now_ms() - 1000)
    provider.release()
    done = onced.settled(operation)
    assert done.state == "completed_success" and done["external_id"] == provider.objects("refunds")[0]["id"], done
    judge(onced, provider, operation, effects=1, dispatches=1)
    never_failed(onced, operation)


def test_S32_reclaimed_and_unknown_the_late_answer_is_evidence(world, provider):
    onced, operation = on_the_wire(world, provider)
    rev = onced.operation(operation)["version"]
    far = now_ms() + 3600_000
    foreign_hand(onced, operation, state="unknown_outcome", reason="lease_lost", owner="gw_OTHER", lease_until_ms=far,
                 wake_at_ms=far, unknown_since_ms=now_ms(), rev=rev + 1)
    provider.release()
    done = onced.settled(operation)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled"), done
    assert "evidence" in {event["cause"] for event in onced.events(operation)}
    judge(onced, provider, operation, effects=1, dispatches=1)


def test_S32_reclaimed_and_closed_is_not_overwritten(world, provider):
    onced, operation = on_the_wire(world, provider)
    rev = onced.operation(operation)["version"]
    foreign_hand(onced, operation, state="completed_success", reason="reconciled", owner=None, lease_until_ms=0, wake_at_ms=0,
                 open=0, completed_ms=now_ms(), external_id="refund_of_the_other", result='{"by":"other"}', rev=rev + 1)
    provider.release()
    wait_until(lambda: onced.incidents(operation), what="the incident")
    now = onced.operation(operation)
    assert now.state == "completed_success" and now["result"] == {"by": "other"}, now
    assert now["external_id"] == "refund_of_the_other"
    assert [incident["kind"] for incident in onced.incidents(operation)] == ["duplicate_effect"]
    evidence = [event for event in onced.events(operation) if event["cause"] == "evidence"]
    assert evidence and provider.objects("refunds")[0]["id"] in str(evidence), evidence
    judge(onced, provider, operation, effects=1, dispatches=1)


def stall(onced):
    """SIGSTOP while no commit is open, so that another hand can write its rows."""
    def between_commits():
        onced.process.pause()
        free = ledgers.free(onced.ledger)
        if not free:
            onced.process.go_on()
        return free

    wait_until(between_commits, what="a moment between two commits")


def one_at_a_time(world):
    """A provider with a single connection: what is recorded waits in the gateway's memory for its turn."""
    narrow = registry.provider(world.provider.url, key=registry.KEY_CONTRACT, connections=1, timeout=registry.PATIENT)
    return world.onced({"withdraw": registry.refund(provider="narrow")}, providers={"narrow": narrow})


def test_S31_an_owner_that_lost_its_row_does_not_send_it(world, provider):
    """Stopped before dispatch; meanwhile another one took the row and sent it; then the old one goes on."""
    onced = one_at_a_time(world)
    provider.script({"fault": "timeout_after_commit", "payment_id": "p1"})
    first, lost, after = (onced.submit("withdraw", {**REFUND, "payment_id": f"p{n}"}) for n in (1, 2, 3))
    wait_until(lambda: provider.effects(first) == 1)
    now = onced.operation(lost)
    assert now.state == "pending_dispatch", now
    stall(onced)
    far = now_ms() + 3600_000
    foreign_hand(onced, lost, state="dispatched", owner="gw_OTHER", lease_until_ms=far, wake_at_ms=far, rev=now["version"] + 1)
    provider.write("refunds", {**REFUND, "payment_id": "p2", "reference": lost})  # the other one's request
    onced.process.go_on()
    provider.release()
    for operation in (first, after):  # the turn of the lost one lies between them
        assert onced.settled(operation).state == "completed_success"
        judge(onced, provider, operation, effects=1, dispatches=1)
    assert provider.effects(lost) == 1 and len(provider.writes(lost)) == 1, "only the new owner's request"
    row = onced.operation(lost)
    assert (row.state, row["version"]) == ("dispatched", now["version"] + 1), "the row is the new owner's"
    assert onced.attempt_rows(lost) == []


def test_S31_every_start_is_another_owner(world, provider):
    """The same slot of the same machine is not the same owner: a fresh random name per start."""
    onced = world.onced({"withdraw": registry.refund(keyed=False, while_in_doubt="allow")})
    owners = []
    for n in range(3):
        provider.script("timeout_after_commit")
        operation = onced.submit("withdraw", {**REFUND, "payment_id": f"p{n}"})
        wait_until(lambda: provider.effects(operation) == 1)
        onced.kill()
        owners += onced.select("SELECT owner FROM operations WHERE id = ? AND owner IS NOT NULL", (operation,))
        onced.start()
    assert len(owners) == len(set(owners)) == 3, owners


# ---- S37: what is finished stays finished ----


def test_S37_finished_stays_finished(world, provider):
    onced = world.onced({"withdraw": registry.refund()})
    done = onced.call("withdraw", REFUND, key="k")
    assert done.state == "completed_success"
    for torn in (b"", b"\0" * 4096, b"torn write" * 300):
        onced.kill()
        ledgers.tear(onced.ledger, torn)
        onced.start()
        now = onced.operation(done.id)
        assert now.state == "completed_success" and now["version"] == done["version"] and now["result"] == done["result"]
        again = onced.call("withdraw", REFUND, key="k")
        assert again.id == done.id and again.replayed and again["result"] == done["result"]
    judge(onced, provider, done.id, effects=1, dispatches=1)


# ---- S38: effect done, the note of it can not be written, again and again ----


def try_start(onced):
    """A start on a full disk: it runs, or says clearly why not."""
    before = len(onced.process.text())
    try:
        onced.start()
        return True
    except Failed:
        said = onced.process.text()[before:].lower()
        assert onced.process.child.returncode not in (None, 0) and onced.process.child.returncode > 0, said
        assert "space" in said or "full" in said or "disk" in said, said
        return False


@ledgers.only_sqlite("a full disk")
@pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
def test_S38_restarts_with_a_full_disk_send_nothing_again(world, provider, small_disk, keyed):
    disk = small_disk()
    onced = world.prepare({"send": registry.refund(keyed=keyed, timeout="20s", reconcile=["lookup", "manual"], while_in_doubt="allow")},
                          ledger=disk.folder / "onced.db", prefix=disk.prefix)
    onced.start()
    provider.script({"fault": "timeout_after_commit", "payment_id": "p1"})
    operation = onced.submit("send", REFUND)
    wait_until(lambda: provider.effects(operation) == 1)
    exhaust(onced, disk, "send")
    provider.release()
    wait_until(lambda: provider.writes(operation)[0]["outcome"] == "answered")
    time.sleep(1.0)  # noting the answer fails, several times
    told = onced.operation(operation).state
    if told != "dispatched":  # SQLite found room for this one small write after all
        onced.kill()
        assert told == state_on(disk, operation) == "completed_success", "nobody is told what is not durable"
        return
    for _ in range(5):
        onced.kill()
        disk.fill()
        if try_start(onced):
            now = onced.operation(operation)
            assert now.state in ("dispatched", "unknown_outcome"), now
            time.sleep(0.3)
        assert len(provider.writes(operation)) == 1
    disk.free()
    if not onced.process.alive():
        onced.start()
    done = onced.settled(operation)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled"), done
    judge(onced, provider, operation, effects=1, dispatches=1)
    never_failed(onced, operation)
    assert provider.truth()["duplicates_by_reference"] == 0


# ---- S39: recovery before the channel is ready ----


def provider_down(world, provider, restarts, kill, **retry):
    retry = {"attempts": 3, "total": "1h", "backoff": "20ms", "backoff_max": "100ms", **retry}
    onced = world.onced({"send": registry.refund(retry=retry)})
    provider.stop()
    operations = [onced.submit("send", {**REFUND, "payment_id": f"p{n}"}) for n in range(10)]
    for _ in range(restarts):
        time.sleep(0.3)
        onced.restart(kill=kill)
    return onced, operations


def test_S39_a_provider_that_is_down_costs_no_attempts(world, provider):
    onced, operations = provider_down(world, provider, restarts=6, kill=False)
    for operation in operations:
        now = onced.operation(operation)
        assert now.state in ("failed_retryable", "dispatched") and now["attempts"] <= 1, now
        assert len(onced.attempt_rows(operation)) > 6
    provider.start()
    for operation in operations:
        done = onced.settled(operation)
        assert done.state == "completed_success" and done["attempts"] == 1, done
        judge(onced, provider, operation, effects=1, dispatches=1)
    assert provider.effects() == 10


def test_S39_kill_in_the_middle_of_it(world, provider):
    """Killed between the note "about to send" and the refused connection: that attempt counts, for nobody can know."""
    onced, operations = provider_down(world, provider, restarts=6, kill=True, attempts=20)
    provider.start()
    for operation in operations:
        done = onced.settled(operation)
        assert done.state == "completed_success" and done["attempts"] <= 7, done
        assert provider.effects(operation) == 1 and len(provider.writes(operation)) == 1
    assert provider.effects() == 10


def test_S39_with_a_circuit_breaker(world, provider):
    section = registry.provider(provider.url, key=registry.KEY_CONTRACT, timeout=registry.PATIENT,
                                breaker={"failures": 2, "open": "200ms"})
    onced = world.onced({"send": registry.refund(provider="broken", retry={"attempts": 2, "total": "1h", "backoff": "20ms",
                                                                            "backoff_max": "100ms"})},
                        providers={"broken": section})
    provider.stop()
    operations = [onced.submit("send", {**REFUND, "payment_id": f"p{n}"}) for n in range(10)]
    for _ in range(2):
        time.sleep(0.4)
        onced.restart(kill=False)
    provider.start()
    for operation in operations:
        assert onced.settled(operation).state == "completed_success"
        judge(onced, provider, operation, effects=1, dispatches=1)


# ---- S68: the claim ends while the work still waits ----


@pytest.mark.parametrize("owner", ["stalls", "is gone"])
def test_S68_the_end_of_a_claim_drops_no_work(world, provider, owner):
    """A hundred operations, one connection; the gateway stalls for longer than any claim lasts, or dies."""
    onced = one_at_a_time(world)
    provider.script({"fault": "timeout_after_commit", "payment_id": "p20"})  # those behind it wait
    operations = [onced.submit("withdraw", {**REFUND, "payment_id": f"p{n}"}) for n in range(100)]
    wait_until(lambda: provider.effects() == 21)
    if owner == "stalls":
        stall(onced)
        then = now_ms() - 1000
        ended = ledgers.change(onced.ledger, "UPDATE operations SET lease_until_ms = ?, wake_at_ms = ? WHERE open = 1", (then, then))
        assert ended >= 80
        onced.process.go_on()
        provider.release()
    else:
        onced.restart()
    assert {onced.settled(operation).state for operation in operations} == {"completed_success"}
    truth = provider.truth()
    assert truth["effects"] == 100 and set(truth["by_reference"]) == set(operations), "none lost, none twice"
    if owner == "stalls":
        assert len(provider.writes()) == 100


# ---- S59, S72: the ledger can not be written ----


@ledgers.only_sqlite("a full disk")
def test_S59_S72_ledger_full_before_the_intent_sends_nothing(world, provider, small_disk):
    disk = small_disk()
    onced = world.prepare({"charge": registry.refund()}, ledger=disk.folder / "onced.db", prefix=disk.prefix)
    onced.start()
    done = onced.call("charge", REFUND, key="k")
    served, refused = exhaust(onced, disk, "charge")
    assert refused.problem == "unavailable" and int(refused.headers["Retry-After"]) >= 1, refused
    requests = len(provider.writes())
    assert requests == 1 + len(served) == provider.effects()
    for n in range(5):  # the trigger condition stays true
        again = onced.call("charge", {**REFUND, "payment_id": "low-balance"}, key="auto")
        assert again.status == 503, again
    assert len(provider.writes()) == requests, "no durable record, no dispatch"
    replay = onced.call("charge", REFUND, key="k")  # what is recorded can still be read
    assert replay.id == done.id and replay.replayed, replay
    assert onced.client.get("/healthz").status == 200
    disk.free()
    resumed = wait_until(lambda: (lambda answer: answer if answer.status != 503 else None)(
        onced.call("charge", {**REFUND, "payment_id": "low-balance"}, key="auto")))
    assert resumed.state == "completed_success", resumed
    judge(onced, provider, resumed.id, effects=1, dispatches=1)


@ledgers.only_sqlite("a full disk")
def test_S72_ledger_full_between_intent_and_outcome(world, provider, small_disk):
    disk = small_disk()
    onced = world.prepare({"charge": registry.refund(timeout="20s")}, ledger=disk.folder / "onced.db", prefix=disk.prefix)
    onced.start()
    provider.script({"fault": "timeout_after_commit", "payment_id": "p1"})
    first = Background(onced.call, "charge", REFUND, key="auto", wait_ms=20000)
    wait_until(lambda: provider.effects() == 1)
    exhaust(onced, disk, "charge")
    provider.release()
    wait_until(lambda: provider.writes()[0]["outcome"] == "answered")
    time.sleep(0.5)
    if not first.running():  # SQLite found room for this one small write after all
        told = first.result()
        onced.process.kill()
        disk.free()
        onced.start()
        assert onced.operation(told.id).state == told.state == "completed_success", "nobody is told what is not durable"
        judge(onced, provider, told.id, effects=1, dispatches=1)
        return
    requests = len(provider.writes())
    for _ in range(3):  # further triggers, the same and others
        same = onced.call("charge", REFUND, key="auto", wait_ms=50)
        assert same.status in (202, 503) and same.state in (None, "dispatched"), same
        other = onced.call("charge", {**REFUND, "payment_id": "p2"}, key="auto-2", wait_ms=50)
        assert other.status == 503, other
    assert len(provider.writes()) == requests
    disk.free()
    done = first.result()
    assert done.state == "completed_success", done
    again = onced.call("charge", REFUND, key="auto")
    assert again.id == done.id and again.replayed
    judge(onced, provider, done.id, effects=1, dispatches=1)
    never_failed(onced, done.id)


@ledgers.only_sqlite("a full disk")
def test_S72_ledger_full_when_the_turn_comes(world, provider, small_disk):
    """Recorded, waiting in memory for the only connection: the note "about to send" can not be written, so nothing leaves."""
    disk = small_disk()
    narrow = registry.provider(provider.url, key=registry.KEY_CONTRACT, connections=1, timeout="20s")
    onced = world.prepare({"charge": registry.refund(provider="narrow"), "other": registry.refund()}, providers={"narrow": narrow},
                          ledger=disk.folder / "onced.db", prefix=disk.prefix)
    onced.start()
    provider.script({"fault": "timeout_after_commit", "payment_id": "p1"})
    first = onced.submit("charge", REFUND)
    wait_until(lambda: provider.effects(first) == 1)
    second = onced.submit("charge", {**REFUND, "payment_id": "p2"})
    exhaust(onced, disk, "other")
    provider.release()
    wait_until(lambda: provider.writes(first)[0]["outcome"] == "answered")
    time.sleep(0.7)
    if provider.writes(second):  # SQLite found room for the note after all
        onced.kill()
        assert state_on(disk, second) != "pending_dispatch", "no durable note, no dispatch"
        return
    assert onced.operation(second).state == "pending_dispatch"
    disk.free()
    for operation in (first, second):
        assert onced.settled(operation).state == "completed_success"
        judge(onced, provider, operation, effects=1, dispatches=1)


@ledgers.only_sqlite("a full disk")
def test_S72_read_only_at_start(world, provider, small_disk):
    disk = small_disk()
    onced = world.prepare({"charge": registry.refund()}, ledger=disk.folder / "onced.db", prefix=disk.prefix)
    onced.start()
    done = onced.call("charge", REFUND, key="k")
    onced.stop()
    disk.read_only()
    with pytest.raises(Failed) as refused:
        onced.start()
    assert "read-only" in str(refused.value).lower(), refused.value
    assert len(provider.writes()) == 1
    disk.read_only(False)
    onced.start()
    again = onced.call("charge", REFUND, key="k")
    assert again.id == done.id and again.replayed
    judge(onced, provider, done.id, effects=1, dispatches=1)


# ---- S73: a batch that is sent again as a whole ----


def test_S73_batch_of_fifty_three_times_and_a_crash(world, provider):
    provider.config(business_keys=["to"])
    tool = registry.write("mails", {"batch": TEXT, "to": TEXT}, key="mail:{batch}:{to}", reconcile=["lookup", "resend", "manual"],
                          settle="150ms")
    onced = world.onced({"mail.send": tool})
    provider.script({"fault": "timeout_after_commit", "key": "r23"}, {"fault": "502", "key": "r40"})

    def send_all():
        answers = {}
        for n in range(1, 51):
            answers[n] = onced.call("mail.send", {"batch": "b1", "to": f"r{n}"})
        return answers

    first = Background(send_all)
    wait_until(lambda: provider.effects_of("mails/r23") == 1)
    onced.kill()  # item 23 is out, nothing says so
    with pytest.raises(LOST):
        first.result()
    onced.start()
    for _ in range(3):
        answers = send_all()
        assert {answer.state for answer in answers.values()} == {"completed_success"}, answers
    truth = provider.truth()
    assert truth["effects"] == 50 and truth["duplicates_by_key"] == 0
    assert {truth["by_key"][f"mails/r{n}"] for n in range(1, 51)} == {1}
    assert answers[23]["reason"] == "reconciled" and answers[23]["attempts"] == 1
    judge(onced, provider, answers[23].id, effects=1, dispatches=1)
    judge(onced, provider, answers[40].id, effects=1, dispatches=2)
    assert len(provider.writes()) == 51


def test_S73_control_send_then_mark_sends_twice(provider):
    """What the batch does without a record: whoever is not marked is sent again."""
    provider.config(business_keys=["to"])
    provider.script({"fault": "timeout_after_commit", "key": "r3"})
    marked = set()
    for _ in range(2):
        for n in range(1, 6):
            if n in marked:
                continue
            try:
                provider.write("mails", {"to": f"r{n}"}, timeout=0.3)
                marked.add(n)
            except TimeoutError:
                break
    assert provider.effects_of("mails/r3") == 2


# ---- S69: seconds and milliseconds ----


# A thousandth of what is meant would end all of these at once; where something is to come in time, it has plenty.


@pytest.mark.parametrize("answer_ms, timeout, in_time", [(800, "20s", True), (1250, "1s", False)])
def test_S69_attempt_time_out(world, provider, answer_ms, timeout, in_time):
    onced = world.onced({"send": registry.refund(keyed=False, timeout=timeout)})
    provider.script(f"timeout_after_commit:{answer_ms}")
    begun = time.monotonic()
    answer = onced.call("send", REFUND)
    took = time.monotonic() - begun
    assert answer.state == "completed_success" and (answer["reason"] is None) == in_time, answer
    assert took > 0.75
    judge(onced, provider, answer.id, effects=1, dispatches=1)


@pytest.mark.parametrize("wait_s, window, replayed", [(0.7, "20s", True), (1.3, "1s", False)])
def test_S69_repeat_window(world, provider, wait_s, window, replayed):
    onced = world.onced({"send": registry.refund(repeat_window=window)})
    first = onced.call("send", REFUND)
    time.sleep(wait_s)
    second = onced.call("send", REFUND)
    assert second.replayed == replayed and provider.effects() == (1 if replayed else 2), second
    assert (second.id == first.id) == replayed


@pytest.mark.parametrize("wait_s, retain, kept", [(1.6, "20s", True), (2.5, "2s", False)])
def test_S69_retention(world, provider, wait_s, retain, kept):
    onced = world.onced({"send": registry.refund(retain=retain, repeat_window="1s")})
    first = onced.call("send", REFUND, key="k")
    time.sleep(wait_s)
    second = onced.call("send", REFUND, key="k")
    assert second.id == first.id and (second.status, second.problem) == ((200, None) if kept else (409, "result_expired")), second
    judged = provider.effects()
    assert judged == 1 and len(provider.writes()) == 1


# Forgotten: what is sent again 0.7 s after the first request would arrive too late, hence not after the time-out either.
@pytest.mark.parametrize("retention, timeout, down_s, re_sent", [("1h", registry.PATIENT, 0.8, True), ("3s", "2s", 3.4, False)],
                         ids=["known", "forgotten"])
def test_S69_provider_key_retention(world, provider, retention, timeout, down_s, re_sent):
    section = registry.provider(provider.url, timeout=timeout, key={**registry.KEY_CONTRACT, "retention": retention})
    onced = world.onced({"send": registry.refund(provider="short")}, providers={"short": section})
    provider.script("timeout_after_commit")  # the provider itself would still replay
    operation = onced.submit("send", REFUND)
    wait_until(lambda: provider.effects() == 1)
    onced.kill()
    time.sleep(down_s)
    onced.start()
    assert onced.settled(operation).state == "completed_success"
    judge(onced, provider, operation, effects=1, dispatches=2 if re_sent else 1)


@ledgers.only_sqlite("its lock")
def test_S69_owned_while_the_owner_lives_free_when_it_is_gone(world, provider):
    onced = world.onced({"send": registry.refund(keyed=False, timeout="20s")})
    provider.script("timeout_after_commit")
    operation = onced.submit("send", REFUND)
    wait_until(lambda: provider.effects() == 1)
    second = world.prepare({"send": registry.refund(keyed=False)}, ledger=onced.ledger)
    with pytest.raises(Failed) as refused:
        second.start()
    assert str(onced.process.pid) in str(refused.value), refused.value  # says who holds it
    onced.kill()
    ((lease_until_ms,),) = onced.select("SELECT lease_until_ms FROM operations WHERE id = ?", (operation,))
    second.start()
    done = second.settled(operation)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled")
    assert now_ms() < lease_until_ms, "not by the end of a lease: the owner is known to be gone"
    judge(second, provider, operation, effects=1, dispatches=1)


def test_S69_one_unit_in_the_ledger(world, provider):
    onced = world.onced({"send": registry.refund(keyed=False)})
    begun = now_ms()
    provider.script("close_after_commit")
    done = onced.call("send", REFUND)
    assert done.state == "completed_success"
    onced.stop()
    names = ledgers.times(onced.ledger, "operations")
    values = dict(zip(names, onced.select(f"SELECT {', '.join(names)} FROM operations WHERE id = ?", (done.id,))[0]))
    month = 31 * 24 * 3600 * 1000
    assert names and all(value == 0 or begun - 1000 <= value <= begun + month for value in values.values()), values
    for table, column in (("history", "at_ms"), ("history", "started_ms"), ("history", "finished_ms")):
        for (value,) in onced.select(f"SELECT {column} FROM {table} WHERE {column} > 0"):
            assert begun - 1000 <= value <= now_ms() + 1000


# ---- stopping while the ledger can not be written ----


@ledgers.only_sqlite("a full disk")
def test_stop_ends_in_time_although_an_outcome_can_not_be_noted(world, provider, small_disk):
    disk = small_disk()
    onced = world.prepare({"charge": registry.refund(timeout="20s")}, ledger=disk.folder / "onced.db", prefix=disk.prefix,
                          server={"stop_timeout": "1s"})
    onced.start()
    provider.script({"fault": "timeout_after_commit", "payment_id": "p1"})
    operation = onced.submit("charge", REFUND)
    wait_until(lambda: provider.effects(operation) == 1)
    exhaust(onced, disk, "charge")
    provider.release()
    wait_until(lambda: provider.writes(operation)[0]["outcome"] == "answered")
    onced.stop()  # fails past 20 s
    noted = state_on(disk, operation) == "completed_success"  # SQLite found room for this one small write after all
    disk.free()
    onced.start()
    assert onced.settled(operation).state == "completed_success"
    # keyed: asked again with the same key, as after a kill
    judge(onced, provider, operation, effects=1, dispatches=1 if noted else 2)


# ---- disk full while running: nothing is lost, nothing is sent without a record ----


@ledgers.only_sqlite("a full disk")
def test_disk_full_under_load_loses_nothing(world, provider, small_disk):
    disk = small_disk("24m")
    onced = world.prepare({"charge": registry.refund(while_in_doubt="allow")}, ledger=disk.folder / "onced.db", prefix=disk.prefix)
    onced.start()
    told = {}

    def caller(base):
        client = Client(onced.port)
        for n in range(base, base + 60):
            end = time.monotonic() + 30
            while time.monotonic() < end:
                answer = onced.call("charge", {**REFUND, "payment_id": f"p{n}"}, key=f"k{n}", client=client)
                if answer.status in (200, 201):
                    told[n] = answer
                    break
                time.sleep(0.02)

    callers = [Background(caller, base) for base in range(0, 480, 60)]
    for _ in range(3):
        time.sleep(0.15)
        disk.fill()
        time.sleep(0.4)
        disk.free()
    for each in callers:
        each.result(60)
    assert len(told) == 480 and {answer.state for answer in told.values()} == {"completed_success"}
    truth = provider.truth()
    assert truth["effects"] == 480 and truth["duplicates_by_reference"] == 0
    onced.restart()
    for n in (0, 100, 479):
        assert onced.operation(told[n].id)["result"] == told[n]["result"]
