"""Compensation (design 10.1), judged by the provider's count: what is undone is undone once, whoever asks, however often,
whatever dies in between. Names with a number are scenarios of the case bank."""

import json
import threading

import pytest

from onced_e2e import binary, ledgers, registry
from onced_e2e.client import LOST, Client
from onced_e2e.crash import Line, chance, rounds
from onced_e2e.figures import figure
from onced_e2e.judge import judge
from onced_e2e.registry import INTEGER, TEXT
from onced_e2e.wait import together, wait_until

MARKED = binary.find() and b"ONCED_KILL_AT" in binary.find().read_bytes()
CALLERS = 64
PAYMENT = {"order_id": "o1", "amount_cents": 4900}
REFUND = {"tool": "refund", "arguments": {"payment_id": "{$external_id}", "amount_cents": "{amount_cents}"},
          "title": "Pay it back", "escalate": "Pay it back by hand and tell the customer."}


def payment(compensation=None, **more):
    return registry.write("payments", {"order_id": TEXT, "amount_cents": INTEGER}, key="payment:{order_id}",
                          compensation=compensation or {"refund": REFUND}, **more)


def tools(compensation=None, refund=None, **more):
    return {"payment": payment(compensation, **more), "refund": registry.refund(**(refund or {}))}


def compensate(onced, operation, playbook="refund", client=None, **body):
    return (client or onced.client).post(f"/v1/operations/{operation}/compensate",
                                         {"playbook": playbook, "wait_ms": 10000, **body}, timeout=20)


def paid(onced, **more):
    done = onced.call("payment", {**PAYMENT, **more})
    assert done.state == "completed_success", done
    return done


def person(onced, name):
    return Client(onced.port, headers={"Onced-Principal": name})


# ---- the life of a compensation ----


def test_a_playbook_undoes_it(world, provider):
    onced = world.onced(tools())
    done = paid(onced)
    undone = compensate(onced, done.id, reason="ordered twice")
    assert (undone.status, undone.state) == (200, "completed_success"), undone
    assert (undone["compensates"], undone["playbook"], undone["key_source"]) == (done.id, "refund", "business"), undone
    assert undone["result"]["payment_id"] == done["external_id"] and undone["result"]["amount_cents"] == 4900
    original = onced.operation(done.id)
    assert (original.state, original["compensation"]) == ("compensated", undone.id), original
    assert original["external_id"] == done["external_id"] and original["next_action"] == "do_not_retry"
    moves = [(event["from"], event["to"]) for event in onced.events(done.id) if event["cause"] == "compensation"]
    assert moves == [("completed_success", "compensating"), ("compensating", "compensated")], moves
    noted = [event["note"] for event in onced.events(done.id) + onced.events(undone.id) if event["note"]]
    assert any("ordered twice" in note and undone.id in note for note in noted), noted
    assert any("ordered twice" in note and done.id in note for note in noted), noted
    judge(onced, provider, done.id, effects=1, dispatches=1)
    judge(onced, provider, undone.id, effects=1, dispatches=1)
    again = compensate(onced, done.id)  # it is done: the same operation answers
    assert (again.id, again.replayed) == (undone.id, True), again
    repeat = onced.call("payment", PAYMENT)  # a retry of the call does not pay again
    assert (repeat.id, repeat.state, repeat.replayed) == (done.id, "compensated", True), repeat
    assert len(provider.writes()) == 2


@pytest.mark.on_both_ledgers
@pytest.mark.parametrize("fault", [None, "close_after_commit", "timeout_after_commit", "5xx_not_committed"])
def test_64_callers_undo_it_once(world, provider, fault):
    onced = world.onced(tools(), server={"connections_max": 256})
    done = paid(onced)
    if fault:
        provider.script(fault)
    lines = [Line(onced.port) for _ in range(CALLERS)]
    body = json.dumps({"playbook": "refund", "wait_ms": 10000}).encode()
    try:
        answers = together([lambda line=line: line.ask("POST", f"/v1/operations/{done.id}/compensate", body)
                            for line in lines])
    finally:
        for line in lines:
            line.close()
    told = {(answer["operation_id"], answer["status"]) for _, answer in answers}
    assert len(told) == 1 and told.pop()[1] == "completed_success", answers[:3]
    undone = answers[0][1]["operation_id"]
    assert sum(not answer["replayed"] for _, answer in answers) == 1
    assert provider.effects(undone) == 1 and onced.operation(done.id).state == "compensated"
    assert len(onced.operations(tool="refund")) == 1
    if not fault:
        figure("one compensation", f"{len(answers)} callers, {len(provider.writes(undone))} provider call")


def test_two_playbooks_exclude_each_other(world, provider):
    half = {**REFUND, "arguments": {"payment_id": "{$external_id}", "amount_cents": 100}}
    onced = world.onced(tools({"refund": REFUND, "half": half}))
    done = paid(onced)
    answers = together([lambda name=name: compensate(onced, done.id, name) for name in ("refund", "half") * 8])
    won = [answer for answer in answers if answer.status == 200]
    assert len({answer.id for answer in won}) == 1 and len(won) == 8, answers
    lost = [answer for answer in answers if answer.status != 200]
    assert all((answer.status, answer.problem) == (409, "not_possible") for answer in lost), lost
    assert f"by playbook {won[0]['playbook']} ({won[0].id})" in lost[0]["detail"], lost[0]
    assert len(provider.writes()) == 2


def test_what_can_not_be_undone(world, provider):
    onced = world.onced({**tools(), "plain": registry.write("others", {"a": TEXT})})
    done, other = paid(onced), onced.call("plain", {"a": "x"})
    unknown = compensate(onced, done.id, "void")
    assert (unknown.status, unknown.problem) == (409, "not_possible") and "only refund" in unknown["detail"], unknown
    assert "can not be undone" in compensate(onced, other.id)["detail"]
    assert compensate(onced, "op_01ARZ3NDEKTSV4RRFFQ69G5FAV").status == 404
    assert compensate(onced, done.id, version=done["version"] + 1).problem == "stale_version"
    provider.script("402")
    failed = onced.call("payment", {"order_id": "o2", "amount_cents": 1})
    assert failed.state == "failed_permanent" and "only what has succeeded" in compensate(onced, failed.id)["detail"]
    undone = compensate(onced, done.id)
    assert "can not be undone in turn" in compensate(onced, undone.id)["detail"]
    # Its key is nobody else's.
    forged = onced.call("refund", {"payment_id": "p", "amount_cents": 1}, key=f"compensate:{other.id}:refund")
    assert (forged.status, forged.problem) == (400, "key_invalid"), forged


def test_preconditions_and_programs(world, provider):
    program = "{payment_id: .result.id, amount_cents: (.arguments.amount_cents / 2)}"
    onced = world.onced(tools({"refund": {**REFUND, "when": ".arguments.amount_cents > 1000", "arguments": program}}))
    small = paid(onced, order_id="small", amount_cents=1000)
    refused = compensate(onced, small.id)
    assert (refused.status, refused.problem) == (409, "not_possible") and "does not hold" in refused["detail"], refused
    assert onced.operation(small.id).state == "completed_success"
    done = paid(onced)
    assert compensate(onced, done.id)["result"]["amount_cents"] == 2450


def test_a_plan_does_nothing(world, provider):
    onced = world.onced(tools())
    done = paid(onced)
    plan = compensate(onced, done.id, dry_run=True)
    assert plan["decision"] == "execute" and plan["key"] == f"compensate:{done.id}:refund", plan
    assert plan["request"]["body"]["payment_id"] == done["external_id"], plan
    assert onced.operation(done.id)["version"] == done["version"] and len(provider.writes()) == 1
    assert onced.operations(tool="refund") == []


def test_people_agree_first(world, provider):
    onced = world.onced(tools({"refund": {**REFUND, "approval": "required"}}))
    done = paid(onced)
    held = compensate(onced, done.id, client=person(onced, "anonymous"), wait_ms=0)
    assert (held.status, held["reason"]) == (202, "awaiting_approval"), held
    assert onced.operation(done.id).state == "compensating"
    person(onced, "alice").post(f"/v1/operations/{held.id}/approve", {"note": "ok"})
    assert onced.settled(held.id).state == "completed_success" and onced.settled(done.id).state == "compensated"
    # Denied: it stands, for good, and whoever said no need not be told by an incident.
    other = paid(onced, order_id="o2")
    held = compensate(onced, other.id, wait_ms=0)
    person(onced, "alice").post(f"/v1/operations/{held.id}/deny", {"note": "no"})
    still = onced.operation(other.id)
    assert (still.state, still["reason"]) == ("completed_success", "compensation_failed"), still
    assert onced.incidents(other.id) == []
    again = compensate(onced, other.id)
    assert (again.id, again.state, again.replayed) == (held.id, "rejected", True), again


def test_a_failure_is_escalated_and_can_be_tried_again(world, provider):
    onced = world.onced(tools())
    done = paid(onced)
    provider.script("402")
    failed = compensate(onced, done.id)
    assert (failed.state, failed["reason"]) == ("failed_permanent", "provider_refused"), failed
    still = onced.operation(done.id)
    assert (still.state, still["reason"], still["compensation"]) == ("completed_success", "compensation_failed", failed.id)
    incident, = onced.incidents(done.id)
    assert incident["kind"] == "compensation_failed" and REFUND["escalate"] in incident["note"], incident
    again = compensate(onced, done.id)  # the same answer, no other request
    assert (again.id, again.replayed) == (failed.id, True) and len(provider.writes(failed.id)) == 1, again
    retried = onced.client.post(f"/v1/operations/{failed.id}/retry", {"note": "money is there now"})
    assert retried.status in (200, 202) and retried["key_version"] == 2 and retried["compensates"] == done.id, retried
    assert onced.settled(retried.id).state == "completed_success" and onced.settled(done.id).state == "compensated"
    judge(onced, provider, retried.id, effects=1, dispatches=1)


def test_an_unknown_compensation_keeps_it_compensating(world, provider):
    onced = world.onced(tools(refund={"keyed": False, "look": False}))
    done = paid(onced)
    provider.script("close_after_commit")
    undone = compensate(onced, done.id)
    assert (undone.state, undone["reason"]) == ("unknown_outcome", "needs_operator"), undone
    assert onced.operation(done.id).state == "compensating" and onced.incidents() == []
    waiting = threading.Thread(target=lambda: seen.append(onced.settled(done.id)))
    seen = []
    waiting.start()
    found = onced.client.post(f"/v1/operations/{undone.id}/resolve", {
        "version": onced.operation(undone.id)["version"], "happened": True, "external_id": "re_1", "note": "seen there"})
    assert found.state == "completed_success", found
    waiting.join(10)
    assert [each.state for each in seen] == ["compensated"]  # who waits for it is told at once
    judge(onced, provider, undone.id, effects=1, dispatches=1)


def test_who_may_have_what_undone(world, provider):
    onced = world.onced(tools(), server={"auth": "tokens"})
    token = {}
    for name, role, more in (("ann", "agent", []), ("ben", "agent", []), ("op", "operator", []),
                             ("pay", "agent", ["--tools", "payment"])):
        made = onced.cli("token", "create", "--principal", name, "--role", role, "--ledger", onced.ledger, "--json", *more)
        token[name] = Client(onced.port, headers={"Authorization": "Bearer " + json.loads(made.stdout)["token"]})
    done = token["ann"].post("/v1/calls", {"tool": "payment", "arguments": PAYMENT})
    other = compensate(onced, done["operation_id"], client=token["ben"])
    assert (other.status, other.problem) == (403, "forbidden") and "only the principal" in other["detail"], other
    limited = token["pay"].post("/v1/calls", {"tool": "payment", "arguments": {**PAYMENT, "order_id": "o2"}})
    refused = compensate(onced, limited["operation_id"], client=token["pay"])
    assert (refused.status, refused.problem) == (403, "forbidden") and "refund" in refused["detail"], refused
    assert compensate(onced, limited["operation_id"], client=token["op"]).state == "completed_success"
    assert compensate(onced, done["operation_id"], client=token["ann"]).state == "completed_success"
    assert provider.effects() == 4


def test_on_the_command_line(world, provider):
    onced = world.onced(tools())
    done = paid(onced)
    at = ["--server", f"http://127.0.0.1:{onced.port}"]
    plan = onced.cli("compensate", done.id, "refund", "--dry-run", *at)
    assert f"compensate:{done.id}:refund" in plan.stdout and len(provider.writes()) == 1
    shown = onced.cli("compensate", done.id, "refund", "--note", "wrong order", *at)
    assert "completed_success" in shown.stdout and done.id in shown.stdout, shown
    assert "undone by" in onced.cli("show", done.id, *at).stdout and "undone by" in onced.cli("trace", done.id, *at).stdout
    unknown = onced.cli("compensate", paid(onced, order_id="o2").id, "void", *at, check=False)
    assert unknown.returncode == 1 and "has no playbook" in unknown.stderr, unknown


# ---- kill -9 ----


CONSISTENT = {"completed_success": {None}, "compensating": {"dispatched", "pending_dispatch", "unknown_outcome", "failed_retryable"},
              "compensated": {"completed_success"}}


@pytest.mark.on_both_ledgers
def test_kill_9_between_any_two_steps(world, provider):
    """Killed at random while 64 callers want it undone; after each death both rows fit together, and in the end there is one
    effect."""
    random = chance()
    onced = world.onced(tools(refund={"lookup_interval": "20ms", "settle": "100ms"}), server={"connections_max": 256})
    provider.config(faults="timeout_after_commit:60=0.7")
    states = {}
    for n in range(rounds(4)):
        done = paid(onced, order_id=f"o{n}")
        body = json.dumps({"playbook": "refund", "wait_ms": 5000}).encode()

        def ask():
            line = Line(onced.port, timeout=5)
            try:
                line.ask("POST", f"/v1/operations/{done.id}/compensate", body)
            except OSError:
                pass
            finally:
                line.close()

        callers = [threading.Thread(target=ask) for _ in range(CALLERS)]
        killer = threading.Timer(random.random() * 0.12, onced.kill)
        killer.start()
        for caller in callers:
            caller.start()
        for thread in [killer, *callers]:
            thread.join()
        rows = ledgers.select(onced.ledger, f"SELECT {ledgers.STATE} AS state, id FROM operations WHERE id = ? OR compensates = ? ORDER BY id",
                              (done.id, done.id))
        original = rows[0][0]
        compensations = {state for state, _ in rows[1:]} or {None}
        assert len(rows) <= 2 and compensations <= CONSISTENT[original], rows
        states[original] = states.get(original, 0) + 1
        onced.start()
        undone = compensate(onced, done.id)
        ended = onced.settled(undone.id)
        assert ended.state == "completed_success" and onced.settled(done.id).state == "compensated", ended
        assert provider.effects(ended.id) == 1 and len(provider.keys(ended.id)) == 1, provider.writes(ended.id)
        assert len([op for op in onced.operations(tool="refund", limit=500) if op["compensates"] == done.id]) == 1
    figure("kill -9 while it is undone", f"{sum(states.values())} deaths, found {states}, each undone once")


@pytest.mark.skipif(not MARKED, reason="needs a build with kill points")
@pytest.mark.parametrize("mark", ["decision_loaded", "admission_submitted", "admission_committed", "before_send",
                                  "answer_received", "before_commit", "commit_done"])
def test_killed_at(world, provider, mark):
    onced = world.onced(tools())
    done = paid(onced)
    onced.stop()
    onced.prefix = ("env", f"ONCED_KILL_AT={mark}:1")
    onced.start()
    with pytest.raises(LOST):
        compensate(onced, done.id)
    wait_until(lambda: not onced.process.alive(), what="the death")
    onced.prefix = ()
    onced.start()
    undone = compensate(onced, done.id)
    assert onced.settled(undone.id).state == "completed_success" and onced.settled(done.id).state == "compensated"
    assert provider.effects(undone.id) == 1 and provider.effects(done.id) == 1
