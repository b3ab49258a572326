"""Scenarios of the case bank that are about MCP, over MCP: real sessions, a real server behind onced over stdio (orders.py), whose
own count of effects judges. The numbers in the names are the bank's."""

import json
import sys
import time

import pytest

from onced_e2e import mcp
from onced_e2e.client import LOST
from onced_e2e.rpc import Legacy, Mcp
from onced_e2e.wait import Background, wait_until

PAY = {"order": "o1", "amount": 2500}


class Orders:
    """The server's folder: what goes wrong, and what really happened."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def section(self, **more):
        return {"mcp": {"command": [sys.executable, str(mcp.FOLDER / "servers" / "orders.py"), str(self.folder)],
                        "import": {"unclassified": "read_only_hints"}, **more},
                "timeout": "4s", "breaker": {"failures": 0}}

    def script(self, *words):
        (self.folder / "script").write_text(" ".join(words))

    def blind(self, times):
        (self.folder / "blind").write_text(" ".join(["blind"] * times))

    def _lines(self, name):
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def effects(self):
        return self._lines("effects")

    def requests(self, tool):
        return [each for each in self._lines("requests") if each["tool"] == tool]


def pay(**more):
    tool = {"provider": "orders", "class": "external_weak", "mcp": {"key_argument": "idempotency_key"},
            "lookup": {"tool": "find", "arguments": {"order": "{order}"},
                       "found": ".content[0].text | fromjson | length == 1", "absent": ".content[0].text | fromjson | length == 0",
                       "external_id": ".content[0].text | fromjson | .[0].id"},
            "settle": "200ms", "absent_times": 2, "lookup_interval": "50ms", "lookup_interval_max": "200ms", "give_up": "30s",
            "watch": [], "retry": {"attempts": 5, "total": "1h", "backoff": "50ms", "backoff_max": "200ms"}, "wait": "8s", **more}
    return {name: value for name, value in tool.items() if value is not None}


@pytest.fixture
def orders(tmp_path):
    return Orders(tmp_path / "orders")


@pytest.fixture
def onced(world, orders):
    return world.onced({"pay": pay()}, providers={"orders": orders.section()})


def settled(onced, answer):
    return onced.settled(answer.id)


# ---- S11: the client connects anew and calls again on any error ----


def test_S11_a_tool_error_after_the_commit_is_not_executed_again(onced, orders):
    orders.script("error_after")
    first = Legacy(onced.port).call("pay", PAY)
    second = Legacy(onced.port).call("pay", PAY)  # initialize and tools/call again
    assert second.id == first.id and second.shape["replayed"], (first, second)
    assert settled(onced, first).state == "completed_success"  # the look-up found it
    assert len(orders.effects) == 1 and len(orders.requests("pay")) == 1


def test_S11_the_true_error_is_told(onced, orders):
    orders.script("error_before")
    first = Legacy(onced.port).call("pay", PAY, meta={"dev.onced/run-id": "r1"})
    assert "the order cannot be paid now" in json.dumps(first.message), first
    assert first.state != "completed_success"


# ---- S12: a session that ended is answered 404, and the call is sent again in a new one ----


def test_S12_the_call_in_a_new_session_finds_the_first(onced, orders):
    orders.script("slow:1.5")
    session = Legacy(onced.port)
    with pytest.raises(LOST):
        session.call("pay", PAY, timeout=0.5)
    session.client.drop()
    assert session.delete().status in (200, 204)
    assert session.request("ping").status == 404  # what a client takes for the call to start a new session
    second = Legacy(onced.port).call("pay", PAY)
    assert second.state == "completed_success" and second.shape["replayed"], second
    assert len(orders.effects) == 1 and len(orders.requests("pay")) == 1


# ---- S13: every client calls again after a time-out, while the first still runs ----


def test_S13_the_second_call_attaches_to_the_running_one(onced, orders):
    orders.script("slow:2")
    with pytest.raises(LOST):
        Mcp(onced.port).call("pay", PAY, timeout=1)
    second = Mcp(onced.port).call("pay", PAY)
    assert second.state == "completed_success", second
    assert len(orders.effects) == 1 and len(orders.requests("pay")) == 1


# ---- S15: the held call runs, then the model calls again itself ----


def test_S15_the_call_that_ran_meanwhile_answers_the_models_repeat(world, orders):
    onced = world.onced({"pay": pay(wait="100ms")}, providers={"orders": orders.section()})
    orders.script("slow:0.6")
    first = Mcp(onced.port).call("pay", PAY, meta={"claudecode/toolUseId": "toolu_1"})
    assert first.state == "dispatched" and not first.is_error and "onced_wait" in first.text, first
    settled(onced, first)
    second = Mcp(onced.port).call("pay", PAY, meta={"claudecode/toolUseId": "toolu_2"})
    assert second.id == first.id and second.state == "completed_success" and second.shape["replayed"], second
    assert len(orders.effects) == 1


# ---- S16: a key that a model makes up anew for each request ----


def test_S16_the_models_key_is_neither_shown_nor_used(onced, orders):
    listed = Mcp(onced.port).tools()["pay"]
    assert "idempotency_key" not in listed["inputSchema"]["properties"]
    assert "idempotency_key" not in listed["inputSchema"]["required"]
    orders.script("die_after")
    first = Mcp(onced.port).call("pay", {**PAY, "idempotency_key": "k1"})
    second = Mcp(onced.port).call("pay", {**PAY, "idempotency_key": "k2"})
    assert second.id == first.id, (first, second)
    assert settled(onced, first).state == "completed_success"
    assert len(orders.effects) == 1
    keys = {each["arguments"]["idempotency_key"] for each in orders.requests("pay")}
    assert len(keys) == 1 and not keys & {"k1", "k2"}, keys


# ---- S17: one key for every request of a client ----


def test_S17_each_order_has_its_own_key(onced, orders):
    client = Mcp(onced.port)
    orders.script("die_after", "ok")
    lost = client.call("pay", {"order": "o1", "amount": 1000})
    other = client.call("pay", {"order": "o2", "amount": 2000}, meta={"dev.onced/distinct-from": [lost.id]}) if lost.state == "unknown_outcome" else \
        client.call("pay", {"order": "o2", "amount": 2000})
    again = client.call("pay", {"order": "o1", "amount": 1000})
    assert other.state == "completed_success", other
    assert again.id == lost.id != other.id
    settled(onced, lost)
    assert len(orders.effects) == 2
    assert len({effect["idempotency_key"] for effect in orders.effects}) == 2
    assert len({effect["meta_key"] for effect in orders.effects}) == 2


# ---- S20: a node runs again from its first line, with the tool call ids that it had ----


def test_S20_siblings_with_unchanged_call_ids_run_once(onced, orders):
    client = Mcp(onced.port)

    def node():
        note = client.call("note", {"text": "begun"}, meta={"claudecode/toolUseId": "t1"})
        paid = client.call("pay", PAY, meta={"claudecode/toolUseId": "t2"})
        return note, paid

    first, second = node(), node()
    assert [each.id for each in first] == [each.id for each in second]
    assert all(each.shape["replayed"] for each in second)
    assert [effect["tool"] for effect in orders.effects] == ["note", "pay"]


# ---- S27: started again from the checkpoint while the first still runs; crash between commit and result ----


def test_S27_the_repeat_at_nine_tenths_attaches(onced, orders):
    orders.script("slow:2")
    first = Background(lambda: Mcp(onced.port).call("pay", PAY, key="step-7"))
    time.sleep(1.8)
    second = Mcp(onced.port).call("pay", PAY, key="step-7")
    assert first.result().id == second.id and second.state == "completed_success"
    assert first.result().shape["result"] == second.shape["result"]
    assert len(orders.requests("pay")) == 1


def test_S27_killed_between_commit_and_result(onced, orders):
    orders.script("slow:3")
    orders.blind(1)
    Background(lambda: Mcp(onced.port).call("pay", PAY, key="step-7"))
    wait_until(lambda: orders.effects, what="the commit")
    onced.restart(kill=True)
    answer = Mcp(onced.port).call("pay", PAY, key="step-7")
    done = settled(onced, answer)
    assert done.state == "completed_success" and done["external_id"] == orders.effects[0]["id"], done
    assert "unknown_outcome" in onced.states_seen(answer.id)
    assert len(orders.effects) == 1 and len(orders.requests("pay")) == 1


# ---- S56: a client that sends id 1 for every call in one session ----


def test_S56_two_calls_with_one_id_are_two(onced, orders):
    session = Legacy(onced.port)
    orders.script("slow:0.5", "ok")
    five = Background(lambda: session.call("pay", {"order": "five", "amount": 500}, id=1))
    wait_until(lambda: orders.effects, what="the first call")
    seven = session.call("pay", {"order": "seven", "amount": 700}, id=1)
    assert '"amount": 500' in five.result().text and '"amount": 700' in seven.text
    nine = session.call("pay", {"order": "nine", "amount": 900}, id=1)
    assert '"amount": 900' in nine.text and not nine.shape["replayed"]
    assert sorted(effect["amount"] for effect in orders.effects) == [500, 700, 900]


# ---- S88: transport, tool and effect are three things ----


def test_S88_an_error_text_is_no_success(world, orders):
    onced = world.onced({"pay": pay(lookup=None, mcp={"key_argument": "idempotency_key", "errors": "no_effect"})},
                        providers={"orders": orders.section()})
    orders.script("error_before")
    answer = Mcp(onced.port).call("pay", PAY)
    assert answer.is_error and answer.state == "failed_permanent", answer
    assert "the order cannot be paid now" in json.dumps(answer.message)
    assert not orders.effects


def test_S88_a_suppressed_repeat_carries_the_real_result(onced, orders):
    first = Mcp(onced.port).call("pay", PAY)
    second = Mcp(onced.port).call("pay", PAY)
    assert second.shape["replayed"] is True and not second.is_error
    own = json.loads(first.result["content"][0]["text"])
    assert json.loads(second.result["content"][0]["text"]) == own, second  # the server's own result, unharmed
    assert len(orders.effects) == 1


# ---- S49: the second, intended mutation ----


def test_S49_on_purpose_has_a_verb(onced, orders):
    client = Mcp(onced.port)
    first = client.call("pay", PAY)
    joined = client.call("pay", PAY)
    assert joined.id == first.id and "repeat_of" in joined.text
    again = client.call("pay", {**PAY, "repeat_of": first.id})
    assert again.state == "completed_success" and again.id != first.id, again
    keyed = client.call("pay", PAY, key="another intent")
    assert keyed.state == "completed_success" and keyed.id not in (first.id, again.id), keyed
    assert len(orders.effects) == 3 and not any("repeat_of" in effect for effect in orders.effects)


# ---- S87: a claim without a call behind it ----


def test_S87_no_receipt_no_success(onced, orders):
    client = Mcp(onced.port)
    run = {"dev.onced/run-id": "r1"}
    unknown = client.call("onced_status", {"operation_id": "op_01J00000000000000000000000"}, meta=run)
    assert "completed" not in unknown.text, unknown
    empty = client.call("onced_run_report", {}, meta=run)
    assert empty.result["structuredContent"]["summary"]["total"] == 0, empty
    client.call("note", {"text": "begun"}, meta={**run, "dev.onced/step-id": "s1"})
    report = client.call("onced_run_report", {}, meta=run).result["structuredContent"]
    assert report["summary"]["total"] == 1 and [each["tool"] for each in report["ended"]] == ["note"], report  # no pay, whatever is claimed
    assert [effect["tool"] for effect in orders.effects] == ["note"]
