"""tools/call of the MCP door by hand, over HTTP, on a real daemon and the fault-injecting provider: what a call, its
repeat, its cancellation and its task come to, judged by the provider's count."""

import re

import pytest

from onced_e2e import registry
from onced_e2e.client import LOST
from onced_e2e.judge import judge
from onced_e2e.registry import INTEGER, TEXT
from onced_e2e.rpc import CallAnswer, Legacy, Mcp
from onced_e2e.wait import Background, wait_until

pytestmark = pytest.mark.provider_timeout(registry.PATIENT)

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
REFUND = {"payment_id": "p1", "amount_cents": 2500}
OTHER = {"payment_id": "p2", "amount_cents": 100}


def weak(**more):
    """A refund that the provider does not deduplicate and nobody can look up: what got lost stays unknown."""
    return registry.refund(**{"keyed": False, "look": False, **more})


def start(world, tools, mcp=None, **more):
    onced = world.prepare(tools, **more)
    onced.configure({**world.file(tools, **more), **({"mcp": mcp} if mcp else {})})
    return onced.start()


@pytest.fixture
def onced(world):
    return start(world, {"refund": weak()})


@pytest.fixture(params=["legacy", "modern"])
def client(request, onced):
    return Legacy(onced.port) if request.param == "legacy" else Mcp(onced.port)


def lose(provider, client, arguments=REFUND):
    """A call whose outcome nobody knows: the effect happened, the answer got lost."""
    provider.script("close_after_commit")
    lost = client.call("refund", arguments)
    assert lost.state == "unknown_outcome" and not lost.is_error, lost
    return lost


# ---- repeats ----


def test_a_call_and_its_repeat_are_one_effect(onced, provider, client):
    first = client.call("refund", REFUND)
    assert first.state == "completed_success" and not first.is_error and "This was done." in first.text, first
    again = client.call("refund", {"amount_cents": 2500.0, "payment_id": "p1"})  # as another try of a model writes it
    assert again.id == first.id and again.shape["replayed"] is True, again
    assert f"as {first.id}; to do it once more on purpose, call again with repeat_of" in again.text, again
    assert again.shape["result"] == first.shape["result"]
    judge(onced, provider, first.id, effects=1, dispatches=1)
    assert provider.effects() == 1


def test_repeats_join_over_sessions_and_eras(onced, provider):
    calls = [Legacy(onced.port).call("refund", REFUND), Mcp(onced.port).call("refund", REFUND),
             Legacy(onced.port, version="2025-03-26").call("refund", REFUND)]
    assert len({each.id for each in calls}) == 1, calls
    assert provider.effects() == 1


def test_other_conversations_are_others(onced, provider, client):
    first = client.call("refund", REFUND, meta={"threadId": "a"})
    same = client.call("refund", REFUND, meta={"threadId": "a"})
    other = client.call("refund", REFUND, meta={"threadId": "b"})
    assert first.id == same.id != other.id
    assert provider.effects() == 2


def test_doing_it_again_on_purpose_has_a_word(onced, provider, client):
    first = client.call("refund", REFUND)
    second = client.call("refund", {**REFUND, "repeat_of": first.id})
    assert second.state == "completed_success" and second.id != first.id, second
    assert second.shape["repeat_of"] == first.id, second
    again = client.call("refund", {**REFUND, "repeat_of": first.id})  # a retry of the repetition
    assert again.id == second.id, again
    assert provider.effects() == 2
    assert all("repeat_of" not in body for body in map(str, provider.objects("refunds")))


def test_a_wrong_repeat_is_answered_and_runs_nothing(onced, provider, client):
    for wrong, said in (("the last one", "/repeat_of"),
                        ("op_01J00000000000000000000001", "not an operation of this tool")):
        answer = client.call("refund", {**REFUND, "repeat_of": wrong})
        assert answer.is_error and said in answer.text and "Nothing was run" in answer.text, answer
    assert provider.effects() == 0


def test_a_key_makes_two_calls_one_whatever_the_model_writes(onced, provider, client):
    first = client.call("refund", REFUND, key="order-7")
    again = client.call("refund", REFUND, key="order-7", meta={"threadId": "elsewhere"})
    changed = client.call("refund", OTHER, key="order-7")
    assert again.id == first.id and changed.is_error, (again, changed)
    assert "/amount_cents" in changed.text and "/payment_id" in changed.text and "Nothing was run" in changed.text
    assert client.call("refund", REFUND, key="order-8").id != first.id
    assert provider.effects() == 2


def test_a_business_key_conflict_is_told_and_runs_nothing(world, provider):
    onced = start(world, {"refund": registry.refund(key="refund:{payment_id}")})
    client = Mcp(onced.port)
    first = client.call("refund", REFUND)
    other = client.call("refund", {**REFUND, "amount_cents": 2600})
    assert other.is_error and first.id in other.text and "differ at /amount_cents" in other.text, other
    structured = other.result["structuredContent"]
    assert (structured["status"], structured["reason"], structured["operation_id"]) == ("not_run", "key_reused", None)
    assert structured["problem"]["differing"] == ["/amount_cents"] and structured["problem"]["operation_id"] == first.id
    assert provider.effects() == 1


# ---- unknown outcomes, and what is held because of them ----


def test_an_unknown_outcome_says_wait(world, provider):
    onced = start(world, {"refund": registry.refund(keyed=False, wait="300ms")})
    provider.config(lookup_fault="lookup_500")  # nobody can tell for now
    client = Mcp(onced.port)
    provider.script("close_after_commit")
    lost = client.call("refund", REFUND)
    wait_until(lambda: onced.operation(lost.id).state == "unknown_outcome", what="the lost answer")
    for answer in (client.call("refund", REFUND), client.call("refund", REFUND)):
        assert answer.id == lost.id and not answer.is_error and answer.shape["next_action"] == "wait", answer
        assert f'call onced_wait with {{"operation_id": "{lost.id}"}}' in answer.text, answer
        assert "not known yet" in answer.text, answer
    held = client.call("refund", OTHER)
    assert not held.is_error and "onced_wait" in held.text, held
    provider.config(lookup_fault="")
    assert client.call("onced_wait", {"operation_id": lost.id}).state == "completed_success"
    assert client.call("refund", OTHER).state == "completed_success"
    assert provider.effects() == 2
    assert len(provider.writes()) == 2


def test_what_only_a_person_can_settle_says_so(onced, provider, client):
    lost = lose(provider, client)
    again = client.call("refund", REFUND)
    for answer in (lost, again):
        assert answer.id == lost.id and not answer.is_error and answer.shape["next_action"] == "ask_human", answer
        assert f"a person has to look at {lost.id}" in answer.text, answer
    assert provider.effects() == 1
    assert len(provider.writes()) == 1


def test_a_rewritten_call_is_held_until_it_is_declared(onced, provider, client):
    lost = lose(provider, client)
    held = client.call("refund", OTHER)
    assert not held.is_error and held.result["structuredContent"]["status"] == "not_run", held
    assert "Nothing was run" in held.text and f'"distinct_from": "{lost.id}"' in held.text, held
    assert provider.effects() == 1
    declared = client.call("refund", {**OTHER, "distinct_from": [lost.id]})
    assert declared.state == "completed_success" and declared.shape["distinct_from"] == lost.id, declared
    assert provider.effects() == 2


def test_waiting_gets_the_true_outcome(world, provider):
    onced = start(world, {"refund": registry.refund(keyed=False, settle="1s")})
    client = Legacy(onced.port)
    provider.script("close_after_commit")
    first = client.call("refund", REFUND, timeout=20)
    if first.state != "completed_success":
        first = client.call("onced_wait", {"operation_id": first.id, "wait_ms": 15000})
    assert first.state == "completed_success", first
    assert first.shape["external_id"] == provider.objects("refunds")[0]["id"], first
    assert client.call("onced_status", {"tool": "refund"}).id == first.id
    assert provider.effects() == 1


def test_a_proven_refusal_is_an_error_that_can_be_mended(onced, provider, client):
    provider.script("refused:400")
    refused = client.call("refund", REFUND)
    assert refused.is_error and refused.state == "failed_permanent" and "Mend the arguments" in refused.text, refused
    assert client.call("refund", {**REFUND, "amount_cents": 2400}).state == "completed_success"
    assert provider.effects() == 1


def test_refused_arguments_name_their_places(onced, provider, client):
    answer = client.call("refund", {"payment_id": 5, "more": 1})
    assert answer.is_error and answer.result["structuredContent"]["next_action"] == "fix_arguments", answer
    assert "- /payment_id: " in answer.text and "amount_cents" in answer.text, answer
    assert provider.writes() == []


def test_a_missing_key_is_the_clients_mistake(world, provider):
    onced = start(world, {"refund": registry.refund(identity="caller")})
    answer = Mcp(onced.port).call("refund", REFUND)
    assert answer.error["code"] == -32602 and "dev.onced/idempotency-key" in answer.error["message"], answer
    assert provider.writes() == []


@pytest.mark.parametrize("meta", [{"dev.onced/idempotency-key": 7}, {"idempotencyKey": None}, {"dev.onced/run-id": ""},
                                  {"threadId": "x" * 257}, {"dev.onced/idempotency-key": "a", "idempotency_key": "b"}])
def test_S59_unusable_keys_are_refused_not_ignored(onced, provider, client, meta):
    answer = client.call("refund", REFUND, meta=meta)
    assert answer.error["code"] == -32602, answer
    assert provider.writes() == []


# ---- cancelling, and clients that are gone ----


def cancel(client, id):
    assert client.notify("notifications/cancelled", {"requestId": id, "reason": "the user stopped"}).status == 202


def test_what_may_have_left_goes_on_and_is_recorded(onced, provider):
    client = Legacy(onced.port)
    provider.script("slow:600000")
    call = Background(client.call, "refund", REFUND, id=7)
    operation = wait_until(lambda: provider.writes())[0]["reference"]
    cancel(client, 7)
    wait_until(lambda: "may have left already" in onced.process.text(), what="the cancellation")
    provider.release()
    done = onced.settled(operation)
    assert done.state == "completed_success", done
    judge(onced, provider, operation, effects=1, dispatches=1)
    again = client.call("refund", REFUND)
    assert again.id == operation and again.shape["replayed"], again
    assert provider.effects() == 1
    del call  # its answer never comes


def one_at_a_time(world, provider):
    single = registry.provider(provider.url, connections=1, timeout=registry.PATIENT)
    return start(world, {"refund": weak(provider="single")}, providers={"single": single})


def test_what_has_not_left_is_cancelled_with_its_call(world, provider):
    onced = one_at_a_time(world, provider)
    client = Legacy(onced.port)
    provider.script("slow:600000")
    first = Background(client.call, "refund", REFUND, id=1)
    wait_until(lambda: provider.writes())
    Background(client.call, "refund", OTHER, id=2)
    queued = wait_until(lambda: [op for op in onced.operations(tool="refund") if op["status"] == "pending_dispatch"])[0]
    cancel(client, 2)
    wait_until(lambda: onced.operation(queued["operation_id"]).state == "rejected")
    provider.release()
    assert first.result().state == "completed_success"
    assert onced.operation(queued["operation_id"])["reason"] == "cancelled"
    assert provider.effects() == 1
    assert len(provider.writes()) == 1


def test_a_modern_client_cancels_by_closing(world, provider):
    onced = one_at_a_time(world, provider)
    provider.script("slow:600000")
    first = Background(Mcp(onced.port).call, "refund", REFUND)
    wait_until(lambda: provider.writes())
    with pytest.raises(LOST):
        Mcp(onced.port).call("refund", OTHER, timeout=0.3)
    wait_until(lambda: [op for op in onced.operations(tool="refund") if op.get("reason") == "cancelled"])
    provider.release()
    assert first.result().state == "completed_success"
    assert provider.effects() == 1


def test_a_legacy_client_that_is_gone_cancels_nothing(world, provider):
    onced = one_at_a_time(world, provider)
    client = Legacy(onced.port)
    provider.script("slow:600000")
    first = Background(client.call, "refund", REFUND)
    wait_until(lambda: provider.writes())
    with pytest.raises(LOST):
        client.call("refund", OTHER, timeout=0.3)
    wait_until(lambda: [op["status"] for op in onced.operations(tool="refund")] == ["pending_dispatch", "dispatched"] and onced.waiters() == 1,
               what="the second call, and that its caller is gone")
    provider.release()
    assert first.result().state == "completed_success"
    wait_until(lambda: provider.effects() == 2)
    again = Legacy(onced.port).call("refund", OTHER)
    assert again.state == "completed_success" and again.shape["replayed"], again
    assert provider.effects() == 2


# ---- tasks ----


def message(answer):
    """The JSON-RPC answer, also of a stream."""
    return CallAnswer(answer).message


def task_of(answer):
    assert answer.status == 200 and "error" not in message(answer), answer
    return message(answer)["result"]


def legacy_task(client, arguments, tool="refund", **task):
    return message(client.request("tools/call", {"name": tool, "arguments": arguments, "task": task}))["result"]["task"]


def test_legacy_tasks_survive_a_kill(onced, provider):
    client = Legacy(onced.port)
    provider.script("slow:600000")
    created = legacy_task(client, REFUND, ttl=60000)
    assert created["status"] == "working" and re.fullmatch(r"op_[0-9A-HJKMNP-TV-Z]{26}", created["taskId"]), created
    blocked = Background(client.request, "tasks/result", {"taskId": created["taskId"]})
    assert task_of(client.request("tasks/get", {"taskId": created["taskId"]}))["status"] == "working"
    assert blocked.running()
    provider.release()
    result = task_of(blocked.result())
    assert not result["isError"] and result["structuredContent"]["status"] == "completed_success", result
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": created["taskId"]}
    onced.restart()
    again = Legacy(onced.port)
    assert task_of(again.request("tasks/get", {"taskId": created["taskId"]}))["status"] == "completed"
    assert [task["taskId"] for task in task_of(again.request("tasks/list"))["tasks"]] == [created["taskId"]]
    assert legacy_task(again, REFUND)["taskId"] == created["taskId"]
    judge(onced, provider, created["taskId"], effects=1, dispatches=1)


def test_modern_tasks_survive_a_kill(world, provider):
    onced = start(world, {"refund": weak()}, mcp={"task_after": "20s"})
    client = Mcp(onced.port, capabilities=TASKS)
    quick = client.call("refund", OTHER)
    assert quick.state == "completed_success", quick  # in time: a result
    onced.reload({**world.file({"refund": weak()}), "mcp": {"task_after": "200ms"}})
    provider.script("timeout_after_commit")
    answer = client.call("refund", REFUND).result
    assert answer["resultType"] == "task" and answer["status"] == "working", answer
    task = answer["taskId"]
    onced.restart()
    client = Mcp(onced.port, capabilities=TASKS)
    shown = task_of(client.request("tasks/get", {"taskId": task}, name=task))
    assert shown["status"] == "working" and "result" not in shown, shown  # unknown is not completed
    again = client.call("refund", REFUND).result
    assert again["taskId"] == task, again
    judge(onced, provider, task, effects=1, dispatches=1)
    wait_until(lambda: onced.operation(task).state == "unknown_outcome", what="that the dead one's calls are taken up")
    version = onced.operation(task)["version"]
    onced.client.post(f"/v1/operations/{task}/resolve",
                      {"version": version, "happened": True, "note": "seen at the bank"})
    shown = task_of(client.request("tasks/get", {"taskId": task}, name=task))
    assert shown["status"] == "completed" and not shown["result"]["isError"], shown
    assert provider.effects() == 2


def test_unknown_is_never_completed_while_its_task_is_watched(onced, provider):
    client = Legacy(onced.port)
    provider.script("close_after_commit")
    task = legacy_task(client, REFUND)["taskId"]
    wait_until(lambda: onced.operation(task).state == "unknown_outcome")
    blocked = Background(client.request, "tasks/result", {"taskId": task})
    assert task_of(client.request("tasks/get", {"taskId": task}))["status"] == "working"
    assert blocked.running()
    onced.client.post(f"/v1/operations/{task}/resolve",
                      {"version": onced.operation(task)["version"], "happened": True, "note": "seen at the bank"})
    result = task_of(blocked.result())
    assert result["structuredContent"]["status"] == "completed_success" and not result["isError"], result
    assert provider.effects() == 1


def test_cancelling_a_task_tells_the_truth(world, provider):
    onced = one_at_a_time(world, provider)
    client = Legacy(onced.port)
    provider.script("slow:600000")
    sent, queued = (legacy_task(client, arguments)["taskId"] for arguments in (REFUND, OTHER))
    wait_until(lambda: provider.writes())
    refused = message(client.request("tasks/cancel", {"taskId": sent}))
    assert refused["error"]["code"] == -32603 and "may have left already" in refused["error"]["message"], refused
    assert task_of(client.request("tasks/cancel", {"taskId": queued}))["status"] == "cancelled"
    assert task_of(client.request("tasks/get", {"taskId": queued}))["status"] == "cancelled"
    assert message(client.request("tasks/cancel", {"taskId": queued}))["error"]["code"] == -32602
    provider.release()
    done = task_of(client.request("tasks/result", {"taskId": sent}))
    assert done["structuredContent"]["status"] == "completed_success", done
    assert provider.effects() == 1
    assert len(provider.writes()) == 1


def test_tasks_of_others_do_not_exist(onced):
    mine = Legacy(onced.port)
    task = legacy_task(mine, REFUND)["taskId"]
    for headers in ({"Onced-Principal": "somebody"}, {"Onced-Tenant": "another"}):
        other = Legacy(onced.port, headers=headers)
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert message(other.request(method, {"taskId": task}))["error"]["code"] == -32602
        assert task_of(other.request("tasks/list"))["tasks"] == []


# ---- built-in tools ----


def test_the_report_says_what_is_not_settled(onced, provider, client):
    run = {"dev.onced/run-id": "run-1"}
    client.call("refund", REFUND, meta=run)
    provider.script("close_after_commit")
    lost = client.call("refund", OTHER, meta=run)
    report = client.call("onced_run_report", {}, meta=run)
    said = report.result["structuredContent"]
    assert said["summary"] == {"total": 2, "succeeded": 1, "failed": 0, "open": 0, "unknown": 1}, report
    assert not said["complete"]
    assert [op["operation_id"] for op in said["unresolved"]] == [lost.id] and len(said["ended"]) == 1
    assert "Do not tell the user that everything is done" in report.text


def test_a_plan_runs_nothing(onced, provider, client):
    planned = client.call("onced_plan", {"tool": "refund", "arguments": REFUND})
    assert planned.result["structuredContent"]["decision"] == "execute", planned
    first = client.call("refund", REFUND)
    assert first.state == "completed_success", first
    planned = client.call("onced_plan", {"tool": "refund", "arguments": REFUND})
    assert planned.result["structuredContent"]["decision"] == "replay", planned
    assert provider.effects() == 1
    assert len(provider.writes()) == 1


def test_a_killed_calls_outcome_is_told_to_the_next_session(onced, provider):
    provider.script("timeout_after_commit")
    call = Background(Legacy(onced.port).call, "refund", REFUND)
    operation = wait_until(lambda: provider.writes())[0]["reference"]
    wait_until(lambda: provider.effects() == 1)
    onced.restart()
    again = Legacy(onced.port).call("refund", REFUND)
    assert again.id == operation and again.state == "unknown_outcome" and not again.is_error, again
    assert "not known" in again.text
    assert provider.effects() == 1
    del call


def test_amounts_are_exact(world, provider):
    """2500.0 is 2500, and 9007199254740993 is not 9007199254740992."""
    onced = start(world, {"pay": registry.write("pays", {"amount": INTEGER, "to": TEXT}, keyed=False, look=False)})
    client = Mcp(onced.port)
    first = client.call("pay", {"amount": 9007199254740993, "to": "a"})
    assert client.call("pay", {"amount": 9007199254740992, "to": "a"}).id != first.id
    assert sorted(each["amount"] for each in provider.objects("pays")) == [9007199254740992, 9007199254740993]
