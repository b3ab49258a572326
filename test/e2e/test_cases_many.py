"""Scenarios of the case bank with many callers, deliveries, chunks or decisions, and about what is reported afterwards. The
numbers in the names are the bank's. What stands for a part of a scenario whose capability is not there yet is named in
test/scenarios.toml."""

import datetime

import pytest

from onced_e2e import registry
from onced_e2e.client import LOST, Client
from onced_e2e.judge import judge, never_failed
from onced_e2e.registry import INTEGER, TEXT
from onced_e2e.wait import Background, together, wait_until

pytestmark = pytest.mark.provider_timeout(registry.PATIENT)

REFUND = {"payment_id": "p1", "amount_cents": 2500}


def in_seconds(seconds):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def doubtful(onced, provider, tool, arguments, fault="close_before_commit", **named):
    """An operation at a provider without keys and without a look-up that waits for a person."""
    provider.script(fault)
    answer = onced.call(tool, arguments, **named)
    assert (answer.state, answer["reason"]) == ("unknown_outcome", "needs_operator"), answer
    return answer


# ---- S25: decisions at the same time (an operator's here; approvals and a second gateway when they are there) ----


def test_S25_one_of_twenty_decisions_counts(world, provider):
    onced = world.onced({"refund": registry.refund(keyed=False, look=False)})
    held = doubtful(onced, provider, "refund", REFUND, key="k")
    provider.config(latency_ms=200)

    def decide(n):
        body = {"version": held["version"], "happened": False, "retry": True, "note": f"decision {n}"}
        return Client(onced.port).post(f"/v1/operations/{held.id}/resolve", body)

    answers = together([lambda n=n: decide(n) for n in range(20)])
    taken = [answer for answer in answers if answer.status in (200, 202)]
    assert len(taken) == 1, answers
    late = {answer.problem for answer in answers if answer not in taken}
    assert late <= {"stale_version", "not_possible"} and {answer.id for answer in answers} == {held.id}, answers
    done = onced.settled(held.id)
    assert done.state == "completed_success"
    judge(onced, provider, held.id, effects=1, dispatches=2)  # the lost one and one more
    decisions = [event for event in onced.events(held.id) if "decision" in str(event["note"])]
    assert len(decisions) == 1, decisions


# ---- S28: the report comes from the ledger, and the ledger was written before the effect ----


def test_S28_every_effect_has_exactly_one_operation(world, provider):
    onced = world.onced({"ticket.create": registry.write("tickets", {"title": TEXT}), "refund": registry.refund(),
                         "mail.send": registry.write("mails", {"to": TEXT}, keyed=False)})
    continued = onced.call("refund", {**REFUND, "payment_id": "held"}, run_id="r", not_before=in_seconds(1), wait_ms=10)
    assert continued.state == "planned"
    provider.script({"fault": "close_after_commit", "collection": "mails"}, {"fault": "refused:402", "payment_id": "poor"},
                    {"fault": "timeout_after_commit", "payment_id": "crash"})
    for title in ("a", "b", "a"):  # the third is the first again
        assert onced.call("ticket.create", {"title": title}, run_id="r").state == "completed_success"
    assert onced.call("mail.send", {"to": "a@x.test"}, run_id="r").state == "completed_success"
    assert onced.call("refund", {**REFUND, "payment_id": "poor"}, run_id="r").state == "failed_permanent"
    crash = Background(onced.call, "refund", {**REFUND, "payment_id": "crash"}, run_id="r")
    wait_until(lambda: provider.effects_of("refunds/crash") == 1)
    onced.restart()
    with pytest.raises(LOST):
        crash.result()
    provider.write("tickets", {"title": "by hand", "reference": "not-ours"})
    report = wait_until(lambda: (lambda now: now if now["complete"] else None)(onced.client.get("/v1/runs/r")))
    reported = {each["operation_id"]: each for each in report["operations"]}
    assert len(reported) == len(report["operations"]) == report["summary"]["total"] == 6
    happened = {reference: count for reference, count in provider.truth()["by_reference"].items() if reference != "not-ours"}
    assert happened == {id: 1 for id, each in reported.items() if each["status"] == "completed_success"}
    assert continued.id in happened and report["summary"]["succeeded"] == 5 and report["summary"]["failed"] == 1
    assert {each["principal"] for each in reported.values()} == {"local"}
    for id in happened:
        row = next(row for row in onced.attempt_rows(id) if row["kind"] == "call")
        at = next(entry["time_ms"] for entry in provider.writes(id))
        noted = datetime.datetime.fromisoformat(row["started_at"]).timestamp() * 1000
        assert noted <= at + 1, "noted before it was sent"


# ---- S34: one message is delivered many times at once ----


@pytest.mark.parametrize("eta", [None, 0.6], ids=["at once", "scheduled"])
def test_S34_thirty_deliveries_of_one_message(world, provider, eta):
    onced = world.onced({"job.run": registry.write("jobs", {"name": TEXT}, keyed=False, key="job:{name}")})
    provider.config(latency_ms=100)
    more = {"not_before": in_seconds(eta)} if eta else {}

    def deliver(worker):
        return onced.call("job.run", {"name": "m"}, principal=f"worker-{worker % 4}", session_id=f"delivery-{worker}",
                          client=Client(onced.port), **more)

    answers = together([lambda n=n: deliver(n) for n in range(30)])
    assert {answer.state for answer in answers} == {"completed_success"} and len({answer.id for answer in answers}) == 1
    assert sum(answer.replayed for answer in answers) == 29 and len({str(answer["result"]) for answer in answers}) == 1
    judge(onced, provider, answers[0].id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


# ---- S35: the first worker is given up and goes on beside the second one ----


def test_S35_two_workers_on_the_same_steps(world, provider):
    onced = world.onced({"step": registry.write("steps", {"name": TEXT})})
    provider.config(latency_ms=400)

    def worker():
        """All requests of one activity; who is given up is not told."""
        return [onced.call("step", {"name": f"request {n}"}, run_id="activity", step_id=str(n), client=Client(onced.port))
                for n in range(3)]

    first = Background(worker)
    wait_until(lambda: len(provider.writes()) >= 2)  # in its second request when the server's patience ends
    second = worker()
    answers = first.result() + second
    assert {answer.state for answer in answers} == {"completed_success"} and len({answer.id for answer in answers}) == 3
    for answer in second:
        judge(onced, provider, answer.id, effects=1, dispatches=1)
    assert provider.effects() == 3 and len(provider.writes()) == 3


# ---- S60: one history for all processes (one after the other here, several at once when they can share a ledger) ----


def test_S60_one_key_thirty_calls_two_restarts(world, provider):
    onced = world.onced({"buy": registry.refund()})
    answers = []
    for n in range(30):
        if n in (10, 20):
            onced.restart(kill=n == 10)
        answers.append(onced.call("buy", REFUND, key="k", client=Client(onced.port)))
    assert {answer.state for answer in answers} == {"completed_success"}
    assert len({(answer.id, answer["external_id"], str(answer["result"])) for answer in answers}) == 1
    assert [answer.replayed for answer in answers] == [False] + 29 * [True]
    judge(onced, provider, answers[0].id, effects=1, dispatches=1)


@pytest.mark.parametrize("key", ["k", None], ids=["caller key", "no key"])
def test_S60_killed_while_they_call(world, provider, key):
    onced = world.onced({"buy": registry.refund()})
    provider.script("timeout_after_commit")

    def insist():
        """Until it is answered, on a new connection each time."""
        def attempt():
            try:
                return onced.call("buy", REFUND, key=key, client=Client(onced.port))
            except LOST:
                return None
        return wait_until(attempt, 20)

    callers = [Background(insist) for _ in range(10)]
    wait_until(lambda: provider.effects() == 1)
    onced.restart()
    answers = [caller.result() for caller in callers] + [insist() for _ in range(20)]
    assert len({(answer.id, answer.state, answer["external_id"]) for answer in answers}) == 1, answers
    judge(onced, provider, answers[0].id, effects=1, dispatches=2)  # the lost one, then again under the same key
    assert provider.effects() == 1


# ---- S75, S76: a batch in chunks, one of which fails ----


class BatchFailed(Exception):
    pass


def send_chunk(onced, chunk, wait_ms=None):
    """All items of a chunk at once; an exception when any of them did not succeed, as a client library has it."""
    more = {} if wait_ms is None else {"wait_ms": wait_ms}
    answers = together([lambda n=n: onced.call("row.create", {"batch": "b", "row": n}, client=Client(onced.port), **more)
                        for n in chunk])
    if any(answer.state != "completed_success" for answer in answers):
        raise BatchFailed([answer.state for answer in answers])


@pytest.mark.parametrize("refused", [False, True], ids=["all committed", "one refused"])
def test_S75_the_fallback_writes_nothing_twice(world, provider, refused):
    """Chunk 3 of 4 is committed, its answers are lost; the caller takes that for "nothing was stored" and writes row by row."""
    provider.config(business_keys=["row"])
    onced = world.onced({"row.create": registry.write("rows", {"batch": TEXT, "row": INTEGER}, keyed=False, while_in_doubt="allow",
                                                      key="row:{batch}:{row}")})
    chunks = [range(start, start + 25) for start in range(0, 100, 25)]
    with pytest.raises(BatchFailed):
        for number, chunk in enumerate(chunks):
            if number == 2:
                provider.config(lookup_fault="lookup_500")
                provider.script(*[{"fault": "refused:400" if refused and n == 60 else "reset_after_commit", "key": str(n)}
                                  for n in chunk])
                send_chunk(onced, chunk, wait_ms=200)
            else:
                send_chunk(onced, chunk)
    provider.config(lookup_fault="")
    answers = {n: onced.call("row.create", {"batch": "b", "row": n}) for chunk in chunks for n in chunk}
    failed = {n for n, answer in answers.items() if answer.state != "completed_success"}
    assert failed == ({60} if refused else set()), {n: answers[n] for n in failed}
    truth = provider.truth()
    assert truth["effects"] == 100 - len(failed) and truth["duplicates_by_key"] == 0
    assert len(provider.writes()) == 100, "each row was sent once"
    if refused:
        assert answers[60].state == "failed_permanent" and answers[60]["error"]["code"] == "refused"
    for n in (50, 74):
        assert answers[n].replayed and answers[n]["reason"] == "reconciled", answers[n]
        never_failed(onced, answers[n].id)


def test_S76_the_tail_is_not_known_to_be_missing(world, provider):
    """Chunk 1 is confirmed, chunk 2 committed without an answer: it is looked up, only chunk 3 is sent."""
    onced = world.onced({"rows.import": registry.write("imports", {"job": TEXT, "chunk": INTEGER, "items": {"type": "array"}},
                                                       keyed=False, key="import:{job}:{chunk}")})
    chunks = {number: [f"item {number}.{n}" for n in range(25)] for number in (1, 2, 3)}

    def send(number, **named):
        return onced.call("rows.import", {"job": "j", "chunk": number, "items": chunks[number]}, run_id="r", **named)

    assert send(1).state == "completed_success"
    provider.config(lookup_fault="lookup_500")
    provider.script("reset_after_commit")
    lost = send(2, wait_ms=0)
    wait_until(lambda: onced.operation(lost.id).state == "unknown_outcome", what="the lost answer")
    again = send(2, wait_ms=100)  # the caller believes that only chunk 1 exists, and sends the tail once more
    assert again.id == lost.id and again.replayed and again.state == "unknown_outcome", again
    held = send(3, wait_ms=100)
    assert (held.status, held.problem, held.id) == (409, "in_doubt", lost.id), held
    third = send(3, distinct_from=[lost.id])
    assert third.state == "completed_success", third
    provider.config(lookup_fault="")
    done = onced.settled(lost.id)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled"), done
    assert send(2).replayed and send(3).replayed
    stored = [item for each in provider.objects("imports") for item in each["items"]]
    assert sorted(stored) == sorted(item for chunk in chunks.values() for item in chunk)
    assert len(provider.writes()) == 3
    judge(onced, provider, lost.id, effects=1, dispatches=1)
    never_failed(onced, lost.id)


# ---- S85: what comes late changes no proven end (an operator's word here; the provider's events when there is an inbox) ----


def test_S85_success_is_not_downgraded(world, provider):
    onced = world.onced({"refund": registry.refund(keyed=False, look=False)})
    unknown = doubtful(onced, provider, "refund", REFUND, fault="close_after_commit")

    def say(version, **evidence):
        return onced.client.post(f"/v1/operations/{unknown.id}/resolve", {"version": version, **evidence})

    early = say(unknown["version"], happened=True, external_id="re_1", note="seen in the dashboard")
    assert early.status == 200 and early.state == "completed_success", early
    stale = say(unknown["version"], happened=False, note="an older message says that it failed")
    assert (stale.status, stale.problem) == (409, "stale_version") and stale["version"] == early["version"], stale
    late = say(early["version"], happened=False, note="a late message says that it failed")
    assert (late.status, late.problem) == (409, "not_possible"), late
    now = onced.operation(unknown.id)
    assert (now.state, now["external_id"], now["version"]) == ("completed_success", "re_1", early["version"])
    again = onced.call("refund", REFUND)
    assert again.id == unknown.id and again.replayed and again.state == "completed_success"
    judge(onced, provider, unknown.id, effects=1, dispatches=1)


# ---- S87: the agent reports what it never did ----


def receipts(onced, run, tool):
    """What an application asks before it believes "done": operations of this run, of this tool, proven."""
    report = onced.client.get(f"/v1/runs/{run}")
    assert report.status == 200, report
    return [each["operation_id"] for each in report["operations"] if each["tool"] == tool and each["status"] == "completed_success"]


def test_S87_no_receipt_no_success(world, provider):
    onced = world.onced({"page.delete": registry.write("trash", {"page": TEXT}),
                         "page.list": {"class": "read", "provider": "plain", "request": {"path": "/v1/pages"}, "audit": True}})
    for claimed in ("op_fake", "op_01JZZZZZZZZZZZZZZZZZZZZZZZ"):
        answer = onced.client.get(f"/v1/operations/{claimed}")
        assert answer.status in (400, 404) and answer.state is None, answer
        shown = onced.cli("show", claimed, "--url", f"http://127.0.0.1:{onced.port}", check=False)
        assert shown.returncode != 0 and "completed" not in shown.stdout, shown
    empty = onced.client.get("/v1/runs/silent")
    assert empty["summary"]["total"] == 0 and empty["operations"] == [] and receipts(onced, "silent", "page.delete") == []
    assert onced.call("page.list", {}, run_id="lister").state == "completed_success"
    assert receipts(onced, "lister", "page.delete") == []
    assert len(receipts(onced, "lister", "page.list")) == 1
    other = onced.call("page.delete", {"page": "p"}, run_id="worker")
    assert receipts(onced, "worker", "page.delete") == [other.id]
    assert receipts(onced, "lister", "page.delete") == [], "a receipt of another run is none"
    assert onced.operations(run_id="lister", tool="page.delete") == []
    judge(onced, provider, other.id, effects=1, dispatches=1)


def test_S87_a_call_that_failed_is_no_receipt(world, provider):
    onced = world.onced({"page.delete": registry.write("trash", {"page": TEXT}, keyed=False, look=False)})
    provider.script("refused:403")
    assert onced.call("page.delete", {"page": "p"}, run_id="r").state == "failed_permanent"
    provider.script("close_after_commit")
    assert onced.call("page.delete", {"page": "q"}, run_id="r").state == "unknown_outcome"
    report = onced.client.get("/v1/runs/r")
    assert receipts(onced, "r", "page.delete") == [] and not report["complete"]
    assert (report["summary"]["failed"], report["summary"]["unknown"], report["summary"]["succeeded"]) == (1, 1, 0), report
    assert "not known" in report["safe_user_message"], report
