"""Approval by the user of an MCP client (`approval.mcp: elicit`): a form at the client in both eras, one decision of
PRINCIPAL/user, told by the provider's count."""

import json

import pytest

from onced_e2e import registry
from onced_e2e.client import Client
from onced_e2e.judge import judge
from onced_e2e.rpc import Mcp
from onced_e2e.wait import wait_until
from test_mcp_forward import answer_question, legacy_session, live_call

FORM = {"elicitation": {"form": {}}}
REFUND = {"payment_id": "p1", "amount_cents": 25000}
YES = {"action": "accept", "content": {"decision": "approve", "note": "seen"}}
NO = {"action": "accept", "content": {"decision": "deny", "note": "not this one"}}
STATE = "onced-approval:"


def refund(approvers=1, **more):
    return registry.refund(**{"approval": {"approvers": approvers, "mcp": "elicit"}, "key": "refund:{payment_id}", "redact": ["/note"],
                              "title": "Refund", **more})


def asks(answer):
    assert answer.result.get("resultType") == "input_required", answer
    [(key, question)] = answer.result["inputRequests"].items()
    assert question["method"] == "elicitation/create" and answer.result["requestState"].startswith(STATE), answer
    return key, question["params"]


def next_round(client, first, response, arguments=REFUND, state=None, tool="refund"):
    key, _ = asks(first)
    return client.call(tool, arguments, inputResponses={key: response}, requestState=state or first.result["requestState"])


def decisions(onced, operation):
    return [(each["by"], each["decision"], each["via"], each["note"]) for each in onced.operation(operation)["approval"]["decisions"]]


def waiting(onced):
    [held] = onced.operations(reason="awaiting_approval")
    return held["operation_id"]


# ---- modern clients ----


def test_the_user_of_a_modern_client_decides(world, provider):
    onced = world.onced({"refund": refund()})
    client = Mcp(onced.port, FORM)
    arguments = {**REFUND, "note": "private\n\nApproved by the boss"}
    first = client.call("refund", arguments)
    _, form = asks(first)
    assert form["mode"] == "form" and "25000" in form["message"] and "private" not in form["message"], form
    assert "local/user" in form["message"] and form["requestedSchema"]["required"] == ["decision"]
    held = waiting(onced)
    assert provider.writes() == [] and held in form["message"]
    done = next_round(client, first, YES, arguments)
    assert done.result["resultType"] == "complete" and done.state == "completed_success" and not done.is_error, done
    assert decisions(onced, held) == [("local/user", "approve", "mcp", "seen")]
    again = next_round(client, first, NO, arguments)  # used: what stands is told, nothing is run
    assert again.id == held and again.state == "completed_success", again
    judge(onced, provider, held, effects=1, dispatches=1)


def test_only_the_same_call_of_the_same_principal_goes_on(world, provider):
    onced = world.onced({"refund": refund(), "other": refund(key="other:{payment_id}")})
    client = Mcp(onced.port, FORM)
    first = client.call("refund", REFUND)
    state = first.result["requestState"]
    altered = [state[:-1] + ("0" if state[-1] != "0" else "1"), state.rsplit(".", 1)[0], STATE, STATE + "." * 40,
               STATE + "x" * 5000]
    wrong = [next_round(client, first, YES, state=each) for each in altered]
    wrong += [next_round(client, first, YES, {**REFUND, "amount_cents": 1}), next_round(client, first, YES, tool="other"),
              next_round(Mcp(onced.port, FORM, {"Onced-Principal": "another"}), first, YES)]
    assert all(each.error and each.error["code"] == -32602 for each in wrong), wrong
    assert provider.writes() == [] and decisions(onced, waiting(onced)) == []


@pytest.mark.parametrize("response", [{"action": "decline"}, {"action": "cancel"}, {"action": "accept"}, {"action": "accept", "content": {}},
                                      {"action": "accept", "content": {"decision": "yes"}}, {"action": "decline", **{"content": YES["content"]}}])
def test_no_decision_is_no_denial(world, provider, response):
    onced = world.onced({"refund": refund()})
    client = Mcp(onced.port, FORM)
    answer = next_round(client, client.call("refund", REFUND), response)
    assert answer.state == "planned" and not answer.is_error and decisions(onced, answer.id) == [], answer
    assert provider.writes() == []
    asks(client.call("refund", REFUND))  # asked again with the next call


def test_a_denial_is_final(world, provider):
    onced = world.onced({"refund": refund()})
    client = Mcp(onced.port, FORM)
    denied = next_round(client, client.call("refund", REFUND), NO)
    assert denied.state == "rejected" and denied.is_error, denied
    assert decisions(onced, denied.id) == [("local/user", "deny", "mcp", "not this one")]
    assert client.call("refund", REFUND).id == denied.id and provider.writes() == []


def test_one_of_two_approvers_at_most(world, provider):
    onced = world.onced({"refund": refund(2)})
    client = Mcp(onced.port, FORM)
    first = client.call("refund", REFUND)
    held = waiting(onced)
    for _ in range(2):  # counted once
        half = next_round(client, first, YES)
        assert half.state == "planned" and len(decisions(onced, held)) == 1, half
    assert client.call("refund", REFUND).state == "planned"  # who has decided is not asked again
    assert provider.writes() == []
    Client(onced.port, headers={"Onced-Principal": "alice"}).post(f"/v1/operations/{held}/approve", {})
    assert onced.settled(held).state == "completed_success"
    judge(onced, provider, held, effects=1, dispatches=1)


def test_who_is_not_asked(world, provider):
    """Clients without forms, tools that do not say so, clients of others that join the call, what cannot be shown whole."""
    onced = world.onced({"refund": refund(), "quiet": refund(approval="required", key="quiet:{payment_id}"),
                         "long": refund(key="long:{payment_id}", redact=[])})
    assert Mcp(onced.port).call("refund", REFUND).state == "planned"
    assert Mcp(onced.port, {"elicitation": {"url": {}}}).call("refund", REFUND).state == "planned"
    other = Mcp(onced.port, FORM, {"Onced-Principal": "another"}).call("refund", REFUND)
    assert other.state == "planned" and other.id == waiting(onced), other
    assert Mcp(onced.port, FORM).call("quiet", REFUND).state == "planned"
    assert Mcp(onced.port, FORM).call("quiet", {**REFUND, "payment_id": "p2", "note": "n" * 9000}).state == "planned"
    long = Mcp(onced.port, FORM).call("long", {**REFUND, "payment_id": "p3", "note": "n" * 9000})
    assert long.state == "planned" and not long.is_error, long
    assert provider.writes() == []


def test_kill_nine_and_a_reload_between_question_and_answer(world, provider):
    """The question needs nothing that is kept in memory; the answer to one that was asked anew since does not count."""
    tools = {"refund": refund()}
    onced = world.onced(tools)
    first = Mcp(onced.port, FORM).call("refund", REFUND)
    onced.restart()
    held = waiting(onced)
    tools["refund"]["request"]["json"]["memo"] = "another request"
    onced.reload(world.file(tools))
    client = Mcp(onced.port, FORM)
    second = next_round(client, first, YES)
    asks(second)  # the tool's request has changed: shown again
    assert decisions(onced, held) == [] and provider.writes() == []
    third = next_round(client, first, YES)
    asks(third)
    assert decisions(onced, held) == []
    done = next_round(client, second, YES)
    assert done.state == "completed_success" and done.id == held, done
    judge(onced, provider, held, effects=1, dispatches=1)


# ---- legacy clients ----


def test_the_user_of_a_legacy_client_decides(world, provider):
    onced = world.onced({"refund": refund()})
    session = legacy_session(onced.port, {"elicitation": {}})
    live = live_call(session, "refund", REFUND)
    question = live.next()
    assert question["method"] == "elicitation/create" and "mode" not in question["params"] and "25000" in question["params"]["message"]
    held = waiting(onced)
    assert provider.writes() == []
    answer_question(session, question, YES)
    final = live.next()["result"]
    shape = final["_meta"]["dev.onced/result"] if "_meta" in final else final["structuredContent"]
    assert shape["status"] == "completed_success" and "resultType" not in final, final
    assert decisions(onced, held) == [("local/user", "approve", "mcp", "seen")]
    judge(onced, provider, held, effects=1, dispatches=1)


def test_legacy_users_who_decline_or_leave(world, provider):
    onced = world.onced({"refund": refund()})
    session = legacy_session(onced.port, {"elicitation": {}})
    live = live_call(session, "refund", REFUND)
    answer_question(session, live.next(), {"action": "decline"})
    assert "waiting for approval" in json.dumps(live.next()["result"])
    live = live_call(session, "refund", REFUND)
    question = live.next()
    session.client.post("/mcp", {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}})
    assert "waiting for approval" in json.dumps(live.next()["result"])
    live = live_call(session, "refund", REFUND)
    question = live.next()
    assert session.delete().status in (200, 204)
    held = waiting(onced)
    assert decisions(onced, held) == [] and provider.writes() == []
    late = session.client.post("/mcp", {"jsonrpc": "2.0", "id": question["id"], "result": YES})
    assert late.status == 404 and decisions(onced, held) == []


def test_others_may_decide_while_the_user_thinks(world, provider):
    onced = world.onced({"refund": refund()})
    session = legacy_session(onced.port, {"elicitation": {}})
    live = live_call(session, "refund", REFUND)
    question = live.next()
    held = waiting(onced)
    Client(onced.port, headers={"Onced-Principal": "alice"}).post(f"/v1/operations/{held}/deny", {"note": "no"})
    messages = [live.next(), live.next()]
    assert messages[0]["method"] == "notifications/cancelled" and messages[0]["params"]["requestId"] == question["id"], messages
    assert "not approved" in json.dumps(messages[1]["result"]), messages
    answer_question(session, question, YES)  # too late: taken, and forgotten
    wait_until(lambda: onced.operation(held).state == "rejected")
    assert provider.writes() == [] and len(decisions(onced, held)) == 1
