"""Scenarios of the case bank in which an answer is lost, late, unreadable or contradicts what happened. The numbers in the
names are the bank's. Providers `keyed` and `plain` are one fake provider, with and without a key contract."""

import time

import pytest

from onced_e2e import registry
from onced_e2e.client import LOST, Client
from onced_e2e.judge import judge, never_failed
from onced_e2e.registry import INTEGER, NO_EFFECT, TEXT
from onced_e2e.wait import Background, wait_until

pytestmark = pytest.mark.provider_timeout(registry.PATIENT)

MAIL = {"to": "a@x.test", "subject": "S1", "body": "B1"}
REFUND = {"payment_id": "p1", "amount_cents": 2500}


def mail(**more):
    return registry.write("messages", {"to": TEXT, "subject": TEXT, "body": TEXT}, **more)


def states_while(onced, operation, until, seconds=15):
    """Every status that a polling caller is told until one of `until`."""
    told = []

    def poll():
        told.append(onced.operation(operation).state)
        return told[-1] in until

    wait_until(poll, seconds, what=f"one of {until}")
    return set(told)


def unknown(onced, tool, arguments):
    """What who calls is told once nobody knows the outcome, however long it takes until then."""
    operation = onced.submit(tool, arguments)
    wait_until(lambda: onced.operation(operation).state == "unknown_outcome", what="the unknown outcome")
    answer = onced.call(tool, arguments, wait_ms=50)
    assert (answer.id, answer.state) == (operation, "unknown_outcome"), answer
    return answer


# ---- S01: a delivery helper retries around a provider with a key header ----


def test_S01_one_key_on_every_attempt(world, provider):
    onced = world.onced({"mail.send": mail()})
    provider.script("close_after_commit", "close_after_commit")
    answer = onced.call("mail.send", MAIL)
    assert answer.state == "completed_success", answer
    judge(onced, provider, answer.id, effects=1, dispatches=3)
    assert len(provider.keys()) == 1 and None not in provider.keys()
    first = next(entry for entry in provider.writes() if entry["effect"])
    assert answer["external_id"] == first["object"] and answer["result"]["subject"] == "S1"


def test_S01_same_key_after_a_restart(world, provider):
    onced = world.onced({"mail.send": mail()})
    provider.script("timeout_after_commit")
    caller = Background(onced.call, "mail.send", MAIL)
    wait_until(lambda: provider.effects() == 1)
    onced.restart()
    with pytest.raises(LOST):
        caller.result()
    operation = onced.operations()[0]["operation_id"]
    assert onced.settled(operation).state == "completed_success"
    judge(onced, provider, operation, effects=1, dispatches=2)


def test_S01_without_keys_it_is_sent_once_and_looked_up(world, provider):
    onced = world.onced({"mail.send": mail(keyed=False, settle="20s")})
    provider.config(lookup_fault="lookup_empty")
    provider.script("close_after_commit", "close_after_commit")
    answer = unknown(onced, "mail.send", MAIL)
    assert (answer.status, answer["next_action"]) == (202, "wait"), answer
    provider.config(lookup_fault="")
    done = onced.settled(answer.id)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled"), done
    assert done["external_id"] == provider.objects("messages")[0]["id"]
    judge(onced, provider, answer.id, effects=1, dispatches=1)
    never_failed(onced, answer.id)


def test_S01_control_the_helper_alone_sends_three(provider):
    provider.script("close_after_commit", "close_after_commit")
    for _ in range(3):
        try:
            provider.write("messages", MAIL)
        except LOST:
            pass
    assert provider.effects() == 3


# ---- S02: slow API, "no success status yet" taken for failure ----


@pytest.mark.parametrize("fault", ["timeout_after_commit", "slow:600000"])
def test_S02_time_out_is_not_failure_keyless(world, provider, fault):
    """Look-ups see nothing until told: it is not there yet, or can not be seen yet."""
    onced = world.onced({"notice.send": mail(keyed=False, timeout="500ms", settle="20s")})
    provider.config(lookup_fault="lookup_empty" if fault == "timeout_after_commit" else "")
    provider.script(fault)
    answer = unknown(onced, "notice.send", MAIL)
    assert answer.status == 202, answer
    assert "fail" not in answer["safe_user_message"].lower()
    provider.release()
    provider.config(lookup_fault="")
    told = states_while(onced, answer.id, {"completed_success"})
    assert told <= {"unknown_outcome", "completed_success"}
    judge(onced, provider, answer.id, effects=1, dispatches=1)
    never_failed(onced, answer.id)


@pytest.mark.parametrize("fault", ["timeout_after_commit:900", "slow:900"])
def test_S02_time_out_is_not_failure_keyed(world, provider, fault):
    onced = world.onced({"notice.send": mail(timeout="500ms", retry={"attempts": 20, "total": "1h", "backoff": "50ms", "backoff_max": "200ms"})})
    provider.script(fault)
    operation = onced.submit("notice.send", MAIL)
    told = states_while(onced, operation, {"completed_success"})
    assert not told & {"failed_permanent", "failed_retryable", "rejected"}
    judge(onced, provider, operation, effects=1, dispatches=len(provider.writes()))
    assert len(provider.writes()) >= 2 and len(provider.keys()) == 1
    never_failed(onced, operation)


# ---- S04: "session timeout" after a save that worked, the agent presses save three more times ----


@pytest.mark.parametrize("look", [True, False], ids=["with look-up", "without look-up"])
def test_S04_four_presses_are_one_save(world, provider, look):
    onced = world.onced({"records.create": registry.write("records", {"name": TEXT}, keyed=False, look=look)})
    provider.config(fault="html")
    answers = [onced.call("records.create", {"name": "n"}, run_id="run-1") for _ in range(4)]
    operation = answers[0].id
    assert {answer.id for answer in answers} == {operation}, answers
    assert not answers[0].replayed and all(answer.replayed for answer in answers[1:])
    assert all(operation in answer["note"] for answer in answers[1:]), answers[1]
    judge(onced, provider, operation, effects=1, dispatches=1)
    if look:
        assert {answer.state for answer in answers} == {"completed_success"}
        assert len({str(answer["result"]) for answer in answers}) == 1
    else:
        assert {answer.state for answer in answers} == {"unknown_outcome"}
        assert {answer["next_action"] for answer in answers} <= {"ask_human", "do_not_retry", "wait"}


def test_S04_new_call_ids_are_held_while_it_is_unknown(world, provider):
    """Each press has a call id of its own, which is an identity of its own: the in-doubt guard stands before it."""
    onced = world.onced({"records.create": registry.write("records", {"name": TEXT}, keyed=False, look=False)})
    provider.config(fault="html")
    first = onced.call("records.create", {"name": "n"}, run_id="run-1", call_id="call-1")
    assert first.state == "unknown_outcome"
    for press in range(2, 5):
        answer = onced.call("records.create", {"name": "n"}, run_id="run-1", call_id=f"call-{press}")
        assert (answer.status, answer.problem, answer.id) == (409, "in_doubt", first.id), answer
    judge(onced, provider, first.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


# ---- S05: 500 for a comment that was created ----


def test_S05_committed_500_is_looked_up_and_adopted(world, provider):
    onced = world.onced({"comment.create": registry.write("comments", {"text": TEXT}, keyed=False)})
    provider.config(fault="5xx_committed:500")
    answer = onced.call("comment.create", {"text": "hello"})
    assert (answer.state, answer["reason"]) == ("completed_success", "reconciled"), answer
    assert answer["external_id"] == provider.objects("comments")[0]["id"]
    judge(onced, provider, answer.id, effects=1, dispatches=1)
    never_failed(onced, answer.id)


def test_S05_look_up_fails_too_so_it_stays_unknown(world, provider):
    onced = world.onced({"comment.create": registry.write("comments", {"text": TEXT}, keyed=False, give_up="700ms")})
    provider.config(fault="5xx_committed:500", lookup_fault="lookup_500")
    answer = onced.call("comment.create", {"text": "hello"})
    assert (answer.state, answer["reason"]) == ("unknown_outcome", "needs_operator"), answer
    assert answer["next_action"] == "ask_human" and answer.status == 202
    time.sleep(0.5)  # never closed by the clock alone
    assert onced.operation(answer.id).state == "unknown_outcome"
    judge(onced, provider, answer.id, effects=1, dispatches=1)
    never_failed(onced, answer.id)


# ---- S07: the retry's "still in progress" taken for the final word ----


def test_S07_key_in_use_means_wait(world, provider):
    onced = world.onced({"refund": registry.refund(timeout="500ms", retry={"attempts": 30, "total": "1h", "backoff": "50ms",
                                                                           "backoff_max": "100ms"})})
    provider.script("slow:1000", "in_use", "in_use")
    operation = onced.submit("refund", REFUND)
    told = states_while(onced, operation, {"completed_success"})
    assert not told & {"failed_permanent", "failed_retryable", "rejected"}
    in_use = [entry for entry in provider.writes() if entry["status"] == 409]
    assert len(in_use) >= 2 and provider.writes()[-1]["replayed"]
    judge(onced, provider, operation, effects=1, dispatches=len(provider.writes()))
    never_failed(onced, operation)


def test_S07_exhausted_on_in_use_is_unknown(world, provider):
    onced = world.onced({"refund": registry.refund(look=False, timeout="500ms", retry={"attempts": 4, "total": "1h", "backoff": "20ms",
                                                                                       "backoff_max": "50ms"})})
    provider.script("slow:1500", "in_use", "in_use", "in_use")
    answer = onced.call("refund", REFUND)
    assert (answer.state, answer["reason"]) == ("unknown_outcome", "needs_operator"), answer
    wait_until(lambda: provider.effects() == 1)
    judge(onced, provider, answer.id, effects=1, dispatches=4)
    never_failed(onced, answer.id)


# ---- S08: replay on 502 is decided per tool ----


def test_S08_re_sent_only_where_the_key_is_honoured(world, provider):
    refund = registry.refund(look=False)
    onced = world.onced({
        "project.trigger": refund,
        "project.create": {**refund, "class": "external_weak"},  # same provider, this endpoint ignores keys
    })
    provider.script("502_committed")
    first = onced.call("project.trigger", {"payment_id": "p1", "amount_cents": 1})
    assert first.state == "completed_success", first
    judge(onced, provider, first.id, effects=1, dispatches=2)
    provider.script({"fault": "502_committed,key_ignored", "times": 5})
    second = onced.call("project.create", {"payment_id": "p2", "amount_cents": 1})
    assert second.state == "unknown_outcome", second
    judge(onced, provider, second.id, effects=1, dispatches=1)


# ---- S10: hidden re-send on a dead kept connection ----


def test_S10_dead_kept_connection_is_not_sent_again(world, provider):
    tool = registry.write("messages", {"to": TEXT}, keyed=False)
    onced = world.onced({
        "mail.send": tool,
        "mail.list": {"class": "read", "provider": "plain", "request": {"path": "/v1/messages"}},
    })
    assert onced.call("mail.list", {}).status == 200
    warmed = provider.requests()[0]["connection"]
    provider.script("close_after_commit")
    answer = onced.call("mail.send", {"to": "a"})
    assert answer.state == "completed_success", answer
    judge(onced, provider, answer.id, effects=1, dispatches=1)
    write = provider.writes()[0]
    assert write["connection"] == warmed and write["key"] is None  # no key for who does not honour it


def test_S10_keyed_re_send_is_ours_and_counted(world, provider):
    onced = world.onced({
        "refund": registry.refund(),
        "refund.list": {"class": "read", "provider": "keyed", "request": {"path": "/v1/refunds"}},
    })
    for n in range(3):
        assert onced.call("refund.list", {}).status == 200
        provider.script("close_after_commit")
        answer = onced.call("refund", {"payment_id": f"p{n}", "amount_cents": 1})
        assert answer.state == "completed_success", answer
        judge(onced, provider, answer.id, effects=1, dispatches=2)
    assert len(provider.writes()) == 6


WIRE = ["close_after_commit", "reset_after_commit", "close_before_commit", "redirect", "307", "challenge", "drip:900", "truncated",
        "empty:200", "malformed", "content_type", "5xx_committed:500", "429:1"]


@pytest.mark.provider_timeout(registry.BRIEF)
@pytest.mark.parametrize("fault", WIRE)
def test_wire_accounting(world, provider, fault):
    """The provider sees exactly as many requests as there are attempt rows, look-ups included (design 5.2)."""
    onced = world.onced({
        "mail.send": mail(keyed=False, give_up="2s"),
        "mail.list": {"class": "read", "provider": "plain", "request": {"path": "/v1/messages"}},
    })
    assert onced.call("mail.list", {}).status == 200
    before = len(provider.requests())
    provider.script(fault)
    answer = onced.call("mail.send", MAIL)
    settled = onced.settled(answer.id)
    rows = onced.attempt_rows(answer.id)
    assert len(provider.requests()) - before == len(rows), (rows, provider.requests())
    assert provider.effects() <= 1
    happened = settled.state == "completed_success"
    assert provider.effects() == (1 if happened else 0), settled


# ---- S13: every client calls once more on a new connection ----


@pytest.mark.parametrize("key", [None, "k1"], ids=["no key", "caller key"])
def test_S13_second_call_attaches_to_the_running_one(world, provider, key):
    onced = world.onced({"job.run": registry.write("jobs", {"name": TEXT}, keyed=False, timeout="20s")})
    provider.script("timeout_after_commit")
    impatient = Client(onced.port)
    with pytest.raises(TimeoutError):
        onced.call("job.run", {"name": "n"}, key=key, timeout=1.0, client=impatient)
    wait_until(lambda: onced.waiters() == 0, what="that the first caller is gone")
    second = Background(onced.call, "job.run", {"name": "n"}, key=key)
    wait_until(lambda: onced.waiters() == 1, what="the second caller")
    provider.release()
    again = second.result()
    assert again.state == "completed_success" and again.replayed, again
    judge(onced, provider, again.id, effects=1, dispatches=1)
    third = onced.call("job.run", {"name": "n"}, key=key)
    assert third.id == again.id and third["result"] == again["result"]
    assert len(provider.writes()) == 1


def test_S13_second_call_may_be_told_in_progress(world, provider):
    onced = world.onced({"job.run": registry.write("jobs", {"name": TEXT}, keyed=False, timeout="20s")})
    provider.script("timeout_after_commit")
    with pytest.raises(TimeoutError):
        onced.call("job.run", {"name": "n"}, timeout=0.5, client=Client(onced.port))
    again = onced.call("job.run", {"name": "n"}, wait_ms=100)
    assert (again.status, again.state, again["next_action"]) == (202, "dispatched", "wait"), again
    assert again.headers["Location"] == f"/v1/operations/{again.id}" and int(again.headers["Retry-After"]) >= 1
    provider.release()
    assert onced.settled(again.id).state == "completed_success"
    judge(onced, provider, again.id, effects=1, dispatches=1)


# ---- S27: longer than the caller's patience, then a crash, then a look-up that lies at first ----


def test_S27_repeat_at_nine_tenths_attaches(world, provider):
    onced = world.onced({"job.run": registry.write("jobs", {"name": TEXT}, keyed=False, timeout="20s")})
    provider.script("timeout_after_commit")
    first = Background(onced.call, "job.run", {"name": "n"}, run_id="r", step_id="s")
    wait_until(lambda: provider.effects() == 1 and onced.waiters() == 1, what="the first caller")
    repeat = Background(onced.call, "job.run", {"name": "n"}, run_id="r", step_id="s")
    wait_until(lambda: onced.waiters() == 2, what="the second caller")
    provider.release()  # the last tenth
    second = repeat.result()
    assert second.state == "completed_success" and first.result()["result"] == second["result"]
    assert first.result().id == second.id
    judge(onced, provider, second.id, effects=1, dispatches=1)


def crash_after_commit(world, provider, **tool):
    onced = world.onced({"refund": registry.refund(keyed=False, **tool)})
    provider.script("timeout_after_commit")
    operation = onced.submit("refund", REFUND)
    wait_until(lambda: provider.effects() == 1)
    onced.kill()
    return onced, operation


def test_S27_look_up_sees_nothing_at_first(world, provider):
    onced, operation = crash_after_commit(world, provider, settle="1s")
    provider.script("lookup_empty")
    onced.start()
    done = onced.settled(operation)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled"), done
    assert done["lookups"] == 2
    judge(onced, provider, operation, effects=1, dispatches=1)
    never_failed(onced, operation)


def test_S27_contradictory_evidence_stays_unknown(world, provider):
    look = registry.lookup("refunds", verify={"/amount_cents": "{amount_cents}"})
    onced, operation = crash_after_commit(world, provider, lookup=look)
    provider.config(lookup_fault="lookup_wrong")
    onced.start()
    done = onced.settled(operation)
    assert (done.state, done["reason"]) == ("unknown_outcome", "needs_operator"), done
    assert "wrong_object" in {incident["kind"] for incident in onced.incidents(operation)}
    judge(onced, provider, operation, effects=1, dispatches=1)
    never_failed(onced, operation)


# ---- S63: "supports idempotency keys" means six different things ----

CONTRACTS = {
    # how unknown outcomes are settled under each
    "stripe": ["resend", "lookup", "manual"],
    "qonto": ["lookup", "manual"],  # a 5xx is not stored: the same key is a new attempt
    "checkout": ["lookup", "manual"],
    "truelayer": ["resend", "lookup", "manual"],
    "solid": ["resend", "lookup", "manual"],
    "easyship": ["resend", "lookup", "manual"],  # the 504 itself is replayed: the look-up has to tell
    "epay": ["resend", "lookup", "manual"],
}


@pytest.mark.parametrize("contract", CONTRACTS)
def test_S63_every_contract_one_effect(world, provider, contract):
    lifetime = 1.5
    provider.config(contract=contract)
    provider.config(retention_ms=int(lifetime * 1000))
    settings = provider.client.get("/_fake/config").body
    key = {"header": settings["key_header"] or "Idempotency-Key", "retention": f"{int(lifetime * 1000)}ms"}
    if settings["in_use_status"]:
        key["in_use"] = [settings["in_use_status"]]
    if settings["mismatch_status"]:
        key["mismatch"] = [settings["mismatch_status"]]
    no_effect = [status for status in NO_EFFECT if status not in (settings["in_use_status"], settings["mismatch_status"])]
    section = registry.provider(provider.url, key=key, no_effect=no_effect)
    onced = world.onced({"pay": registry.refund(provider="contract", reconcile=CONTRACTS[contract])}, providers={"contract": section})
    provider.script("5xx_committed:504")
    first = onced.call("pay", REFUND, key="k")
    sent_at = time.monotonic()
    assert first.state == "completed_success", first
    again = onced.call("pay", REFUND, key="k")
    assert again.id == first.id and again.replayed and again["result"] == first["result"]
    changed = onced.call("pay", {**REFUND, "amount_cents": 9900}, key="k")
    assert (changed.status, changed.problem) == (422, "key_reused") and changed["differing"] == ["/amount_cents"], changed
    dispatches = len(provider.writes())
    time.sleep(max(0, lifetime + 0.3 - (time.monotonic() - sent_at)))
    late = onced.call("pay", REFUND, key="k")
    assert late.id == first.id and late.replayed
    assert len(provider.writes()) == dispatches
    judge(onced, provider, first.id, effects=1, dispatches=dispatches)
    assert provider.effects() == 1


@pytest.mark.parametrize("contract", ["qonto", "checkout"])
def test_S63_control_a_wrong_contract_in_the_registry_is_noticed(world, provider, contract):
    """Re-sending where a 5xx is not stored does it twice: not preventable then, but counted and told."""
    provider.config(contract=contract)
    onced = world.onced({"pay": registry.refund(reconcile=["resend", "lookup", "manual"])})
    provider.script("5xx_committed:504")
    answer = onced.call("pay", REFUND, key="k")
    assert provider.effects() == 2
    assert answer["reason"] == "duplicate_effect" and onced.incidents(answer.id), answer


@pytest.mark.parametrize("contract", CONTRACTS)
def test_S63_no_key_is_used_after_its_lifetime(world, provider, contract):
    """Unknown until the provider has forgotten the key: then only the look-up may decide."""
    provider.config(contract=contract)
    provider.config(retention_ms=1000)
    section = registry.provider(provider.url, key={**registry.KEY_CONTRACT, "retention": "1s"})
    onced = world.onced({"pay": registry.refund(provider="contract", reconcile=CONTRACTS[contract])},
                        providers={"contract": section})
    provider.script("timeout_after_commit")
    operation = onced.submit("pay", REFUND)
    wait_until(lambda: provider.effects() == 1)
    onced.kill()
    time.sleep(1.7)
    onced.start()
    done = onced.settled(operation)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled"), done
    judge(onced, provider, operation, effects=1, dispatches=1)


# ---- S65: the provider did not honour its own key ----


def test_S65_post_retry_check_finds_two_effects(world, provider):
    onced = world.onced({"stock.add": registry.write("stock", {"sku": TEXT, "order": TEXT, "qty": INTEGER})})
    provider.script("close_after_commit", "success,key_ignored")
    answer = onced.call("stock.add", {"sku": "x", "order": "o1", "qty": 5})
    assert answer.state == "completed_success" and answer["reason"] == "duplicate_effect", answer
    assert "duplicate_effect" in [incident["kind"] for incident in answer["incidents"]], answer
    assert [incident["kind"] for incident in onced.incidents(answer.id)] == ["duplicate_effect"]
    assert provider.effects(answer.id) == 2 and len(provider.writes()) == 2  # the provider's doing, and it is told
    assert onced.client.get("/v1/stats")["ledger"]["open_incidents"] == 1


def test_S65_control_an_honoured_key_raises_no_alarm(world, provider):
    onced = world.onced({"stock.add": registry.write("stock", {"sku": TEXT, "order": TEXT, "qty": INTEGER})})
    provider.script("close_after_commit")
    answer = onced.call("stock.add", {"sku": "x", "order": "o1", "qty": 5})
    assert answer.state == "completed_success" and answer["incidents"] == [] and answer["reason"] is None, answer
    assert onced.incidents() == []
    judge(onced, provider, answer.id, effects=1, dispatches=2)


# ---- S66: keys outlive the provider's memory ----


def test_S66_an_old_key_is_never_used_again(world, provider):
    provider.config(retention_ms=1000)
    section = registry.provider(provider.url, key={**registry.KEY_CONTRACT, "retention": "1s"})
    onced = world.onced({"customer.create": registry.write("customers", {"business_key": TEXT}, provider="short",
                                                           key="customer:{business_key}", retain="2s", repeat_window="1s")},
                        providers={"short": section})
    provider.script("timeout_after_commit")
    operation = onced.submit("customer.create", {"business_key": "c1"})
    wait_until(lambda: provider.effects() == 1)
    onced.kill()
    time.sleep(1.6)
    onced.start()
    resubmitted = onced.call("customer.create", {"business_key": "c1"})
    assert resubmitted.id == operation and resubmitted.state == "completed_success", resubmitted
    judge(onced, provider, operation, effects=1, dispatches=1)
    assert provider.lookups(), "the look-up decides"
    # past our own retention the tombstone answers
    expired = wait_until(lambda: (lambda answer: answer if answer.status == 409 else None)(
        onced.call("customer.create", {"business_key": "c1"})), what="the end of retention")
    assert expired.problem == "result_expired" and expired.id == operation, expired
    assert provider.effects() == 1 and len(provider.writes()) == 1


# ---- S71: effect committed, the answer can not be read ----


@pytest.mark.parametrize("fault", ["malformed", "error_200", "truncated", "big", "html", "empty", "wrong_object_committed"])
@pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
def test_S71_unreadable_answer_is_unknown_then_looked_up(world, provider, fault, keyed):
    tool = registry.write("products", {"name": TEXT, "amount": INTEGER}, keyed=keyed, reconcile=["lookup", "manual"],
                          verify={"/amount": "{amount}"},
                          response={"external_id": "/id", "error_when": ".errors"})
    onced = world.onced({"product.create": tool})
    provider.script(fault)
    answer = onced.call("product.create", {"name": "n", "amount": 7})
    assert (answer.state, answer["reason"]) == ("completed_success", "reconciled"), answer
    assert "unknown_outcome" in onced.states_seen(answer.id)
    judge(onced, provider, answer.id, effects=1, dispatches=1)
    never_failed(onced, answer.id)


@pytest.mark.parametrize("fault", ["malformed", "error_200", "truncated", "big"])
def test_S71_with_the_plainest_registry_too(world, provider, fault):
    """HTTP 200 with errors is ambiguous also where nobody wrote a line about it."""
    onced = world.onced({"product.create": registry.write("products", {"name": TEXT}, keyed=False)})
    provider.script(fault)
    answer = onced.call("product.create", {"name": "n"})
    assert (answer.state, answer["reason"]) == ("completed_success", "reconciled"), answer
    judge(onced, provider, answer.id, effects=1, dispatches=1)


# ---- S77: one immediate look-up says "not there", the original commits later ----


def test_S77_absent_is_no_evidence_before_settle(world, provider):
    onced = world.onced({"job.run": registry.write("jobs", {"name": TEXT}, keyed=False, timeout="200ms", settle="20s",
                                                   absent_times=1, lookup_interval="200ms", lookup_interval_max="800ms")})
    provider.script("slow:600000")
    call = Background(onced.call, "job.run", {"name": "n"})
    wait_until(lambda: provider.lookups() and provider.lookups()[0]["outcome"] == "answered", what="a look-up that sees nothing")
    provider.release()
    answer = call.result()
    assert (answer.state, answer["reason"]) == ("completed_success", "reconciled"), answer
    assert answer["lookups"] >= 2
    judge(onced, provider, answer.id, effects=1, dispatches=1)
    never_failed(onced, answer.id)


def test_S77_the_declared_bound_is_broken(world, provider):
    """It lands after settle: closed as absent by then, never sent again, corrected by the watch and told as an incident."""
    onced = world.onced({"job.run": registry.write("jobs", {"name": TEXT}, keyed=False, timeout="200ms", settle="300ms",
                                                   absent_times=2, watch=["500ms", "1s", "2s", "20s"])})
    provider.script("slow:600000")
    answer = onced.call("job.run", {"name": "n"})
    assert (answer.state, answer["reason"]) == ("failed_permanent", "absent"), answer
    provider.release()
    late = wait_until(lambda: (lambda now: now if now.state == "completed_success" else None)(onced.operation(answer.id)), 25)
    assert late["reason"] == "late_landing"
    assert [incident["kind"] for incident in onced.incidents(answer.id)] == ["late_landing"]
    judge(onced, provider, answer.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


# ---- S79: the look-up has to read every page ----


def crowded(world, provider, **more):
    """An issue that was created although the answer said 500, then buried under 120 newer ones."""
    look = registry.lookup("issues", limit=30)
    look["request"]["query"].pop("reference")  # a provider that can not filter by our mark
    look.update(more)
    onced = world.onced({"issue.create": registry.write("issues", {"title": TEXT}, keyed=False, give_up="5s", lookup=look)})
    provider.config(lookup_fault="lookup_500")
    provider.script("5xx_committed:500")
    operation = onced.submit("issue.create", {"title": "the one"})
    wait_until(lambda: provider.effects() == 1)
    for n in range(120):
        provider.write("issues", {"title": f"newer {n}", "reference": f"other-{n}"})
    provider.config(lookup_fault="")
    return onced, operation


def test_S79_found_on_page_five(world, provider):
    onced, operation = crowded(world, provider)
    done = onced.settled(operation)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled"), done
    assert done["result"]["title"] == "the one"
    judge(onced, provider, operation, effects=1, dispatches=1)
    answered = [entry for entry in provider.lookups() if entry["status"] == 200]
    assert len(answered) >= 5
    rows = [row for row in onced.attempt_rows(operation) if row["kind"] == "lookup"]
    assert len(rows) == len(provider.lookups())


def test_S79_a_truncated_result_can_not_tell(world, provider):
    onced, operation = crowded(world, provider, pages_max=2)
    time.sleep(2)
    now = onced.operation(operation)
    assert now.state == "unknown_outcome", now
    judge(onced, provider, operation, effects=1, dispatches=1)
    never_failed(onced, operation)


# ---- S81: accepted, the id is known, the end comes later ----


def accepting(world, **more):
    look = registry.lookup("clusters", by_id={"path": "/v1/clusters/{$external_id}"}, pending='.status == "pending"',
                           failed='.status == "failed"')
    return world.onced({"cluster.create": registry.write("clusters", {"name": TEXT}, keyed=False, lookup=look,
                                                         lookup_interval="200ms", lookup_interval_max="300ms", **more)})


def accepted(onced):
    operation = onced.submit("cluster.create", {"name": "n"})
    return wait_until(lambda: (lambda now: now if now.state == "acknowledged" else None)(onced.operation(operation)), what="202")


def test_S81_accepted_is_followed_not_repeated(world, provider):
    onced = accepting(world)
    provider.script("accepted:3000")
    first = accepted(onced)
    assert first["external_id"], first
    second = onced.call("cluster.create", {"name": "n"}, wait_ms=50)
    assert (second.status, second.state, second.id) == (202, "acknowledged", first.id), second
    third = onced.call("cluster.create", {"name": "n"})
    assert (third.state, third.id, third["external_id"]) == ("completed_success", first.id, first["external_id"]), third
    judge(onced, provider, first.id, effects=1, dispatches=1)


def test_S81_the_id_survives_a_crash(world, provider):
    onced = accepting(world)
    provider.script("accepted:2000")
    first = accepted(onced)
    onced.restart()
    assert onced.operation(first.id)["external_id"] == first["external_id"]
    assert onced.settled(first.id).state == "completed_success"
    judge(onced, provider, first.id, effects=1, dispatches=1)


def test_S81_failed_there_is_neither_success_nor_no_effect(world, provider):
    onced = accepting(world)
    provider.script("accepted:500:failed")
    first = onced.call("cluster.create", {"name": "n"})
    done = onced.settled(first.id)
    assert (done.state, done["reason"], done["next_action"]) == ("unknown_outcome", "needs_operator", "ask_human"), done
    again = onced.call("cluster.create", {"name": "n"})
    assert again.id == first.id and again.state == "unknown_outcome"
    judge(onced, provider, first.id, effects=1, dispatches=1)
