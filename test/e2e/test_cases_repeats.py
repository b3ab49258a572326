"""Scenarios of the case bank in which an agent, its client or its queue calls again: after an error, after a pause, in a new
session, from a dead-letter queue. The numbers in the names are the bank's. What stands for a part of a scenario whose
capability is not there yet is named in test/scenarios.toml."""

import datetime
import random

import pytest

from onced_e2e import ledgers, registry
from onced_e2e.client import Client
from onced_e2e.judge import judge, never_failed
from onced_e2e.layer import Layer
from onced_e2e.registry import INTEGER, NO_EFFECT, TEXT
from onced_e2e.wait import Background, together, wait_until

pytestmark = pytest.mark.provider_timeout(registry.PATIENT)

REFUND = {"payment_id": "p1", "amount_cents": 2500}


def in_seconds(seconds):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


HELD_S = 3  # long enough that what is asserted of a held call comes before it runs, also on a busy machine


def conflict(answer, operation):
    return answer.status == 422 and answer.problem == "key_reused" and answer.id == operation


# ---- S11: the client connects anew and calls again on any error ----


def reconnecting(onced, tool, arguments, **named):
    """Both answers of a client that takes everything but success for a broken connection."""
    first = onced.call(tool, arguments, client=Client(onced.port), **named)
    assert first.state != "completed_success", first
    return first, onced.call(tool, arguments, client=Client(onced.port), **named)


@pytest.mark.parametrize("fault", ["error_200", "5xx_committed:500"])
@pytest.mark.parametrize("key", [None, "k"], ids=["no key", "caller key"])
def test_S11_an_error_after_the_commit_is_reported_not_executed_again(world, provider, fault, key):
    onced = world.onced({"page.create": registry.write("pages", {"title": TEXT}, keyed=False, look=False)})
    provider.script(fault)
    first, second = reconnecting(onced, "page.create", {"title": "t"}, key=key)
    assert first.state == "unknown_outcome" and not first.replayed, first
    assert second.id == first.id and second.replayed and first.id in second["note"], second
    assert (second.state, second["error"], second["http_status"]) == (first.state, first["error"], first["http_status"])
    judge(onced, provider, first.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1
    never_failed(onced, first.id)


def test_S11_the_repeat_gets_what_the_look_up_found(world, provider):
    onced = world.onced({"page.create": registry.write("pages", {"title": TEXT}, keyed=False, settle="20s")})
    provider.config(lookup_fault="lookup_empty")
    provider.script("error_200")
    first, second = reconnecting(onced, "page.create", {"title": "t"}, wait_ms=100)
    provider.config(lookup_fault="")
    done = onced.settled(first.id)
    third = onced.call("page.create", {"title": "t"}, client=Client(onced.port))
    assert first.id == second.id == third.id and third.replayed and third["result"] == done["result"]
    assert third.state == "completed_success" and third["external_id"] == provider.objects("pages")[0]["id"]
    judge(onced, provider, first.id, effects=1, dispatches=1)


def test_S11_the_true_error_is_not_hidden(world, provider):
    """"invalid parameter" of a healthy server: the second call is answered with the first one's error, not sent."""
    onced = world.onced({"page.create": registry.write("pages", {"title": TEXT}, keyed=False)})
    provider.script("refused:400")
    first, second = reconnecting(onced, "page.create", {"title": "t"})
    assert first.state == second.state == "failed_permanent" and second.replayed and second.id == first.id, second
    assert second["error"] == first["error"] and second["error"]["code"] == "refused" and second["http_status"] == 400
    judge(onced, provider, first.id, effects=0, dispatches=1)
    assert len(provider.writes()) == 1


def test_S11_a_fault_between_them_hides_nothing_either(world, provider):
    """The layer in front of onced throws the first answer away; the client comes again on a new connection."""
    onced = world.onced({"page.create": registry.write("pages", {"title": TEXT}, keyed=False)})
    with Layer(onced.port) as layer:
        layer.lie(404)
        lost = onced.call("page.create", {"title": "t"}, client=Client(layer.port))
        again = onced.call("page.create", {"title": "t"}, client=Client(layer.port))
    assert lost.status == 404 and again.state == "completed_success" and again.replayed, again
    judge(onced, provider, again.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


# ---- S15: the held call runs, then the model calls the tool itself (held by a time here; by a person when there are approvals) ----


def test_S15_the_held_call_and_the_models_repeat_are_one(world, provider):
    onced = world.onced({"deploy.release": registry.write("deploys", {"version": TEXT})})
    release = {"version": "v7"}
    held = onced.call("deploy.release", release, run_id="r", not_before=in_seconds(HELD_S), wait_ms=50)
    assert (held.status, held.state, held["next_action"]) == (202, "planned", "wait"), held
    meanwhile = onced.call("deploy.release", release, run_id="r", wait_ms=50)
    assert meanwhile.id == held.id and meanwhile.state == "planned" and meanwhile.replayed, meanwhile
    assert provider.writes() == []
    first = onced.settled(held.id)
    again = onced.call("deploy.release", release, run_id="r")
    assert again.id == held.id and again.replayed and again["result"] == first["result"], again
    assert again["completed_at"] == first["completed_at"] and held.id in again["note"]
    judge(onced, provider, held.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


# ---- S19: nothing in the mail tool's schema can mark two attempts as one (over HTTP here, over SMTP in test_mail.py) ----


@pytest.mark.parametrize("key", [None, "new on each call"])
def test_S19_a_mail_without_a_final_reply_is_sent_once(world, provider, key):
    onced = world.onced({"mail.send": registry.write("messages", {"to": TEXT, "text": TEXT}, keyed=False)})
    provider.config(lookup_fault="lookup_500")
    provider.script("close_after_commit")

    def send():
        return onced.call("mail.send", {"to": "a@x.test", "text": "t"}, key=key and f"generated-{random.random()}", wait_ms=200)

    first = send()
    wait_until(lambda: onced.operation(first.id).state == "unknown_outcome", what="the lost answer")
    message_id = provider.writes()[0]["reference"]
    assert message_id == first.id  # chosen and recorded before sending, and in the answer
    for _ in range(2):
        repeat = send()
        assert repeat.id == first.id, repeat
        if key:
            assert (repeat.status, repeat.problem) == (409, "in_doubt"), repeat
        else:
            assert repeat.state == "unknown_outcome" and repeat.replayed, repeat
    assert len(provider.writes()) == 1
    provider.config(lookup_fault="")  # the sent folder can be read
    done = onced.settled(first.id)
    assert (done.state, done["reason"]) == ("completed_success", "reconciled") and done["result"]["reference"] == message_id
    judge(onced, provider, first.id, effects=1, dispatches=1)
    never_failed(onced, first.id)


# ---- S20: the whole node runs again after one tool in it paused ----


@pytest.mark.parametrize("coordinates", [{"session_id": "thread-1", "call_id": "{}"}, {"run_id": "message-1", "step_id": "{}"}],
                         ids=["tool-call ids", "run and step"])
@pytest.mark.parametrize("crash", [False, True], ids=["running on", "killed in the pause"])
def test_S20_siblings_of_a_paused_call_run_once(world, provider, coordinates, crash):
    onced = world.onced({"ticket.create": registry.write("tickets", {"title": TEXT}), "refund": registry.refund()})

    def node(**refund):
        """Both calls of one message, with tool-call ids that do not change."""
        def at(call):
            return {name: value.format(call) for name, value in coordinates.items()}

        return (onced.call("ticket.create", {"title": "t"}, **at("t1")),
                onced.call("refund", REFUND, wait_ms=50, **at("t2"), **refund))

    ticket, paused = node(not_before=in_seconds(HELD_S + crash))
    assert ticket.state == "completed_success" and paused.state == "planned", paused
    if crash:
        onced.restart()
    ticket_again, still = node()
    assert ticket_again.id == ticket.id and ticket_again.replayed and ticket_again["result"] == ticket["result"]
    assert still.id == paused.id and still.state == "planned", still
    assert onced.settled(paused.id).state == "completed_success"
    resumed = node()
    assert [answer.id for answer in resumed] == [ticket.id, paused.id] and all(answer.replayed for answer in resumed)
    judge(onced, provider, ticket.id, effects=1, dispatches=1)
    judge(onced, provider, paused.id, effects=1, dispatches=1)
    assert provider.effects() == 2


# ---- S22: other arguments than those that were agreed to ----


def test_S22_what_was_held_is_what_runs(world, provider):
    onced = world.onced({"post": registry.write("posts", {"message": TEXT})})
    held = onced.call("post", {"message": "reviewed-value"}, key="k", not_before=in_seconds(HELD_S), wait_ms=50)
    assert held.state == "planned", held
    changed = onced.call("post", {"message": "changed-value"}, key="k")
    assert conflict(changed, held.id) and changed["differing"] == ["/message"] and changed.state == "planned", changed
    assert provider.effects() == 0
    same = onced.call("post", {"message": "reviewed-value"}, key="k")
    assert same.id == held.id and same.state == "completed_success", same
    judge(onced, provider, held.id, effects=1, dispatches=1)
    assert [each["message"] for each in provider.objects("posts")] == ["reviewed-value"]


# ---- S23: the tool has run before the turn fails ----


def test_S23_after_a_failed_turn_the_outcome_is_there(world, provider):
    onced = world.onced({"deploy": registry.write("deploys", {"version": TEXT}, keyed=False)})
    with Layer(onced.port) as layer:
        layer.lie(500)
        turn = onced.call("deploy", {"version": "v7"}, key="turn-1", client=Client(layer.port))
        assert turn.status == 500 and turn.body is None
        asked = onced.client.get("/v1/tools/deploy/operations/turn-1")
        assert asked.status == 200 and asked.state == "completed_success", asked
        again = onced.call("deploy", {"version": "v7"}, key="turn-1", client=Client(layer.port))
    assert again.id == asked.id and again.replayed and again["result"] == asked["result"], again
    assert f"already done at {asked['completed_at'][:19]}" in again["note"], again["note"]
    judge(onced, provider, asked.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


# ---- S52: time windows and equal content drop real business ----


def test_S52_two_deliberate_refunds_are_two(world, provider):
    onced = world.onced({"refund": registry.refund(keyed=False)})
    ten = {"payment_id": "order-1", "amount_cents": 1000}
    one, two = onced.call("refund", ten, key="refund-1"), onced.call("refund", ten, key="refund-2")
    assert one.state == two.state == "completed_success" and one.id != two.id and not two.replayed, two
    assert one["external_id"] != two["external_id"] and provider.effects_of("refunds/order-1") == 2


@pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
def test_S52_the_providers_suspicion_is_no_success(world, provider, keyed):
    key = {**registry.KEY_CONTRACT, "in_use": [{"status": 409, "code": "key_in_use"}]} if keyed else None
    section = registry.provider(provider.url, key=key, no_effect=[*NO_EFFECT, 409], timeout=registry.PATIENT)
    onced = world.onced({"refund": registry.refund(keyed=keyed, provider="suspicious")}, providers={"suspicious": section})
    ten = {"payment_id": "order-1", "amount_cents": 1000}
    one = onced.call("refund", ten, key="refund-1")
    provider.script("refused:409")  # "looks like a duplicate of the last one"
    two = onced.call("refund", ten, key="refund-2")
    assert (two.state, two["reason"]) == ("failed_permanent", "provider_refused"), two
    assert two["error"]["code"] == "refused" and two["result"] is None and two["external_id"] is None and not two.replayed
    assert two["http_status"] == 409 and two["next_action"] == "fix_arguments"
    judge(onced, provider, one.id, effects=1, dispatches=1)
    judge(onced, provider, two.id, effects=0, dispatches=1)


# ---- S56: every call of a client has the same request id, and all chats share one session ----


def test_S56_one_session_two_calls_at_once_two_effects(world, provider):
    onced = world.onced({"refund": registry.refund()})
    provider.config(latency_ms=300)
    amounts = (500, 700)

    def call(amount):
        return onced.call("refund", {**REFUND, "amount_cents": amount}, session_id="shared", client=Client(onced.port))

    answers = together([lambda amount=amount: call(amount) for amount in amounts])
    assert [answer["result"]["amount_cents"] for answer in answers] == list(amounts), "each gets its own amount"
    assert len({answer.id for answer in answers}) == 2 and not any(answer.replayed for answer in answers)
    assert provider.effects() == 2
    provider.config(latency_ms=0)
    third = call(900)  # one after the other: no replay of the first
    assert not third.replayed and third["result"]["amount_cents"] == 900 and provider.effects() == 3


def test_S56_a_call_id_that_is_always_1_never_gives_anothers_result(world, provider):
    """Who says so of an id that it does not keep (call_id) is answered with a conflict, never with the first one's result."""
    onced = world.onced({"refund": registry.refund()})
    provider.script("slow:400")
    first = Background(onced.call, "refund", {**REFUND, "amount_cents": 500}, session_id="shared", call_id="1")
    wait_until(lambda: provider.writes())
    for _ in range(2):  # while it runs, and afterwards
        second = onced.call("refund", {**REFUND, "amount_cents": 700}, session_id="shared", call_id="1")
        assert conflict(second, first.result().id if not first.running() else second.id), second
        assert "result" not in second.body and second["differing"] == ["/amount_cents"]
        first.result()
    judge(onced, provider, first.result().id, effects=1, dispatches=1)
    assert provider.effects() == 1


# ---- S58: a dead-letter queue gives the message new coordinates ----


def test_S58_effects_of_a_message_survive_the_dead_letter_queue(world, provider):
    """Chat is done, mail fails: three deliveries, then two more from the dead-letter queue with other coordinates."""
    section = registry.provider(provider.url, no_effect=NO_EFFECT, not_processed=[429, 503], timeout=registry.PATIENT)
    patient = {"attempts": 1000, "total": "1h", "backoff": "50ms", "backoff_max": "50ms"}
    fields = {"message": TEXT, "text": TEXT, "topic": TEXT, "partition": INTEGER, "offset": INTEGER}
    coordinates = ["/topic", "/partition", "/offset"]
    onced = world.onced({"chat.post": registry.write("chats", fields, keyed=False, key="chat:{message}", volatile=coordinates),
                         "mail.send": registry.write("mails", fields, keyed=False, key="mail:{message}", volatile=coordinates,
                                                     provider="busy", retry=patient)}, providers={"busy": section})
    provider.script({"fault": "503_not_committed", "collection": "mails", "times": 1000})

    def deliver(topic, partition, offset):
        arguments = {"message": "m", "text": "t", "topic": topic, "partition": partition, "offset": offset}
        session = f"{topic}/{partition}/{offset}"
        return [onced.call(tool, arguments, session_id=session, wait_ms=50) for tool in ("chat.post", "mail.send")]

    deliveries = [deliver("orders", 3, 17) for _ in range(3)]
    chat, mail = deliveries[0]
    wait_until(lambda: len(provider.writes(mail.id)) >= 3)
    assert onced.operation(mail.id).state != "completed_success"
    deliveries.append(deliver("orders.dlq", 0, 1))
    provider.client.request("DELETE", "/_fake/script")  # the mail service is back
    assert onced.settled(mail.id).state == "completed_success"
    deliveries.append(deliver("orders.dlq", 0, 1))
    assert {answers[0].id for answers in deliveries} == {chat.id} and {answers[1].id for answers in deliveries} == {mail.id}
    assert all(answer.replayed for answers in deliveries[1:] for answer in answers)
    assert {answer.state for answer in deliveries[-1]} == {"completed_success"}, deliveries[-1]
    judge(onced, provider, chat.id, effects=1, dispatches=1)
    judge(onced, provider, mail.id, effects=1, dispatches=len(provider.writes(mail.id)))
    assert provider.truth()["collections"] == {"chats": 1, "mails": 1}


# ---- S82: search, then create, by agents in parallel ----


def later(onced, hours):
    """As if so much time had passed since everything that the ledger tells."""
    names = ledgers.times(onced.ledger, "operations")
    moves = ", ".join(f"{name} = {name} - (CASE WHEN {name} > 0 THEN ? ELSE 0 END)" for name in names)
    onced.change(f"UPDATE operations SET {moves}", [hours * 3600_000] * len(names))


@pytest.mark.parametrize("titles", ["equal", "each its own"])
def test_S82_one_pull_request_per_issue(world, provider, titles):
    tool = registry.write("pulls", {"repo": TEXT, "issue": INTEGER, "title": TEXT}, keyed=False, key="pull:{repo}:{issue}",
                          on_mismatch="replay")
    onced = world.onced({"pull.create": tool})
    provider.config(latency_ms=200)

    def create(agent):
        title = "fix" if titles == "equal" else f"fix, says {agent}"
        return onced.call("pull.create", {"repo": "r", "issue": 7, "title": title}, principal=agent, run_id=f"run of {agent}",
                          session_id=f"thread of {agent}", call_id=f"call of {agent}", client=Client(onced.port))

    at_once = together([lambda: create("agent-1"), lambda: create("agent-2")])
    onced.stop()
    later(onced, 4)
    onced.start()
    late = create("agent-3")
    answers = [*at_once, late]
    assert {answer.state for answer in answers} == {"completed_success"}, answers
    assert len({answer.id for answer in answers}) == 1 and sum(not answer.replayed for answer in answers) == 1
    assert {answer["external_id"] for answer in answers} == {provider.objects("pulls")[0]["id"]}
    judge(onced, provider, late.id, effects=1, dispatches=1)
    assert provider.effects() == 1


# ---- S84: copies of one event, each with its own id ----


def deliver_eleven(onced):
    """An agent run per copy; the agent repeats in its arguments what the event said."""
    base = {"channel": "C1", "ts": "1700000000.000100", "title": "printer is on fire"}
    return [onced.call("ticket.create", {**base, "event_id": f"Ev{n}", "retry_hint": f"{n} of 11"}, run_id=f"run-{n}",
                       session_id=f"session-{n}", client=Client(onced.port)) for n in range(11)]


def ticket_tool(**more):
    fields = {"channel": TEXT, "ts": TEXT, "title": TEXT, "event_id": TEXT, "retry_hint": TEXT}
    return {"ticket.create": registry.write("tickets", fields, key="ticket:{channel}:{ts}", **more)}


def test_S84_eleven_copies_make_one_ticket(world, provider):
    onced = world.onced(ticket_tool(volatile=["/event_id", "/retry_hint"]))
    answers = deliver_eleven(onced)
    assert {answer.state for answer in answers} == {"completed_success"} and len({answer.id for answer in answers}) == 1
    assert [answer.replayed for answer in answers] == [False] + 10 * [True]
    judge(onced, provider, answers[0].id, effects=1, dispatches=1)
    assert provider.effects() == 1
    other = onced.call("ticket.create", {"channel": "C1", "ts": "1700000000.000200", "title": "printer is on fire", "event_id": "Ev0",
                                         "retry_hint": ""})
    assert not other.replayed and provider.effects() == 2, "another message is another ticket"


def test_S84_a_field_that_nobody_declared_irrelevant_is_told(world, provider):
    onced = world.onced(ticket_tool(volatile=["/event_id"]))
    answers = deliver_eleven(onced)
    assert all(conflict(answer, answers[0].id) and answer["differing"] == ["/retry_hint"] for answer in answers[1:]), answers[1]
    assert provider.effects() == 1
