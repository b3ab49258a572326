"""Several gateways on one PostgreSQL ledger: news between them, takeover, hand-over, clocks that are wrong, and the scenarios of
the case bank (S25 S31 S34 S35 S37 S60) over several processes. How long they are under load: test_gateways_load.py."""

import json
import os
import pathlib
import time

import pytest

from onced_e2e import postgres, registry
from onced_e2e.client import LOST, Client
from onced_e2e.gateways import Gateways
from onced_e2e.judge import judge, never_failed
from onced_e2e.registry import INTEGER, TEXT
from onced_e2e.wait import Background, together, wait_until

pytestmark = pytest.mark.skipif(not postgres.there(), reason="no PostgreSQL server is installed (Debian: postgresql-15)")

REFUND = {"payment_id": "p1", "amount_cents": 2500}
RACES = int(os.environ.get("ONCED_RACES", "12"))


@pytest.fixture(scope="module")
def cluster():
    made = postgres.Cluster(auth="trust")
    yield made
    made.stop()


@pytest.fixture
def gateways(tmp_path, provider, processes, cluster):
    made = Gateways(tmp_path, provider, processes, cluster)
    yield made
    made.end()


def person(onced, name):
    return Client(onced.port, headers={"Onced-Principal": name})


def figure(**values):
    if "ONCED_FIGURES" in os.environ:
        with open(os.environ["ONCED_FIGURES"], "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


# ---- news ----


def test_who_waits_at_another_gateway_is_told_at_once(gateways, provider):
    """Joined by key, or asked for by id: with the end of the operation, not with that of the wait."""
    a, b, c = gateways.start({"refund": registry.refund()}, 3, providers={"keyed": registry.provider(provider.url, key=registry.KEY_CONTRACT, timeout="20s")})

    def told_later(n):
        """So many ms after the first one was answered have both of the others been."""
        call = ("refund", {**REFUND, "payment_id": f"p{n}"})
        provider.script("timeout_after_commit")
        first = Background(a.call, *call, key=f"k{n}")
        wait_until(lambda: len(provider.writes()) == n + 1)
        joined = Background(b.call, *call, key=f"k{n}")
        id = b.by_key("refund", f"k{n}").id
        asked = Background(c.client.get, f"/v1/operations/{id}?wait=10000")
        time.sleep(1.7)  # they have looked after 0.5 and 1.5 s, and do so again after 3.5 s
        provider.release()
        done = first.result()
        told = time.monotonic()
        assert done.state == "completed_success", done
        assert joined.result().id == asked.result().id == done.id
        late_ms = (time.monotonic() - told) * 1000
        assert joined.value.state == asked.value.state == "completed_success" and joined.value.replayed
        judge(a, provider, done.id, effects=1, dispatches=1)
        return late_ms

    for n in range(5):  # on a busy machine one round may be late; by looks alone each one is
        late_ms = told_later(n)
        if late_ms < 800:
            break
    assert late_ms < 800, f"told {late_ms:.0f} ms later"
    figure(news_ms=late_ms)


# ---- takeover and hand-over ----


def test_a_dead_gateways_work_is_taken_over(gateways, provider):
    """What waited in its memory is sent by another; what it had sent is looked up, not sent again."""
    one = {"plain": registry.provider(provider.url, connections=1, timeout="3s")}
    a, b = gateways.start({"refund": registry.refund(keyed=False)}, 2, providers=one)
    provider.script("timeout_after_commit")
    ids = [a.submit("refund", {**REFUND, "payment_id": f"p{n}"}, key=f"k{n}") for n in range(4)]
    wait_until(lambda: provider.effects() == 1)
    a.kill()
    assert {b.settled(id).state for id in ids} == {"completed_success"}
    for id in ids:
        judge(b, provider, id, effects=1, dispatches=1)


def test_a_tools_own_time_out_is_waited_for(gateways, provider):
    """Longer than its provider's: nobody takes over what is on the wire for so long."""
    a, b = gateways.start({"refund": registry.refund(keyed=False, timeout="20s")}, 2)
    provider.script("slow:600000")  # it happens at the end
    operation = a.submit("refund", REFUND)
    wait_until(lambda: provider.writes())
    time.sleep(4)  # the provider's time-out and the lease behind it would be over
    provider.release()
    assert b.settled(operation).state == "completed_success"
    assert a.states_seen(operation) == {"dispatched", "completed_success"} and not provider.lookups()


def test_a_stopping_gateway_hands_over(gateways, provider):
    """The lease is long: without the hand-over the others would wait for two minutes."""
    one = {"keyed": registry.provider(provider.url, key=registry.KEY_CONTRACT, connections=1, timeout="2s")}
    a, b = gateways.start({"refund": registry.refund()}, 2, providers=one, lease="60s")
    provider.config(latency_ms=150)
    ids = [a.submit("refund", {**REFUND, "payment_id": f"p{n}"}, key=f"k{n}") for n in range(5)]
    wait_until(lambda: provider.writes())
    waiting = Background(b.call, "refund", {**REFUND, "payment_id": "p4"}, key="k4")
    a.stop()
    assert {b.settled(id).state for id in ids} == {"completed_success"} and waiting.result().state == "completed_success"
    for id in ids:
        judge(b, provider, id, effects=1, dispatches=1)


def test_what_another_gateway_made_due_is_picked_up(gateways, provider):
    """Approved at one gateway that dies at once: nobody holds the operation, and whoever lives sends it."""
    tool = registry.refund(approval="required")
    a, b = gateways.start({"refund": tool}, 2)
    held = a.call("refund", REFUND, key="k")
    assert (held.state, held["reason"]) == ("planned", "awaiting_approval"), held
    a.kill()
    assert person(b, "alice").post(f"/v1/operations/{held.id}/approve", {}).status in (200, 202)
    assert b.settled(held.id).state == "completed_success"
    judge(b, provider, held.id, effects=1, dispatches=1)


# ---- approvals ----


def test_two_gateways_approve_at_the_same_moment(gateways, provider):
    a, b = gateways.start({"refund": registry.refund(approval="required", key="refund:{payment_id}")}, 2)
    people = person(a, "alice"), person(b, "bob")
    for n in range(RACES):
        held = a.call("refund", {**REFUND, "payment_id": f"r{n}"})
        assert held.state == "planned", held
        answers = together([lambda who=who: who.post(f"/v1/operations/{held.id}/approve", {}) for who in people])
        assert {answer.status for answer in answers} <= {200, 202} and sum(answer["decision"]["counted"] for answer in answers) == 1, answers
        assert b.settled(held.id).state == "completed_success"
        assert len(provider.writes(held.id)) == 1 == provider.effects(held.id)
    assert provider.effects() == RACES == len(provider.writes())
    figure(races=RACES)


# ---- clocks ----

FAKETIME = next(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def clock_off(offset):
    """The sanitizers' own preloaded library need not come first then; they look for leaks with the clock that is wrong."""
    return ["env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME={offset}", "ASAN_OPTIONS=exitcode=99:detect_leaks=0:verify_asan_link_order=0"]


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed (Debian: faketime)")
def test_a_clock_that_is_minutes_off_harms_nobody(gateways, provider):
    """One gateway's clock is ten minutes ahead, another's ten behind. What the first one sends and dies over is looked up no
    earlier than its settle time, and nothing is taken from a gateway that lives."""
    tool = registry.refund(keyed=False, settle="1s")
    ahead, = gateways.prepare({"refund": tool}, prefix=clock_off("+10m"))
    behind, = gateways.prepare({"refund": tool}, prefix=clock_off("-10m"))
    right, = gateways.prepare({"refund": tool})
    for each in gateways.all:
        each.start()
    for n, each in enumerate([ahead, behind, right]):
        assert each.call("refund", {**REFUND, "payment_id": f"p{n}"}, key=f"k{n}").state == "completed_success"
        others = [other for other in gateways.all if other is not each]
        assert {other.call("refund", {**REFUND, "payment_id": f"p{n}"}, key=f"k{n}").id for other in others} == {each.by_key("refund", f"k{n}").id}
    for n, (dies, lives) in enumerate([(behind, ahead), (ahead, right)]):
        provider.script("slow:700")  # the effect lands after the death of who asked for it
        sent = Background(dies.call, "refund", {**REFUND, "payment_id": f"late{n}"}, key=f"late{n}")
        wait_until(lambda: provider.writes() and len(provider.writes()) == 4 + n)
        dies.kill()
        with pytest.raises(LOST):
            sent.result()
        id = lives.by_key("refund", f"late{n}").id
        assert lives.settled(id).state == "completed_success"
        judge(lives, provider, id, effects=1, dispatches=1)
        never_failed(lives, id)


# ---- scenarios of the case bank ----


def test_S25_twenty_approvals_at_two_gateways_are_one_dispatch(gateways, provider):
    pair = gateways.start({"refund": registry.refund(approval="required")}, 2)
    held = pair[0].call("refund", REFUND, key="k")
    answers = together([lambda n=n: person(pair[n % 2], f"person-{n}").post(f"/v1/operations/{held.id}/approve", {}) for n in range(20)])
    assert {answer.status for answer in answers} <= {200, 202} and {answer.id for answer in answers} == {held.id}, answers
    assert sum(answer["decision"]["counted"] for answer in answers) == 1
    assert len({answer["decision"]["by"] for answer in answers}) == 1  # nineteen are told whose it was
    assert {each.settled(held.id).state for each in pair} == {"completed_success"}
    judge(pair[1], provider, held.id, effects=1, dispatches=1)


def test_S31_a_gateway_that_stood_still_sends_nothing_more(gateways, provider):
    """Stopped past its lease with an operation that waits for a slot: another one sends it. Then the first goes on."""
    one = {"plain": registry.provider(provider.url, connections=1, timeout="1s")}
    a, b = gateways.start({"refund": registry.refund(keyed=False)}, 2, providers=one)
    provider.config(latency_ms=300)
    first = Background(a.call, "refund", REFUND, key="k1")
    wait_until(lambda: provider.writes())
    waits = a.submit("refund", {**REFUND, "payment_id": "p2"}, key="k2")
    a.process.pause()
    taken = b.settled(waits)
    assert taken.state == "completed_success", taken
    attempts = b.attempt_rows(waits)
    a.process.go_on()
    done = first.result()
    assert done.state == "completed_success", done
    wait_until(lambda: a.operation(done.id).state == "completed_success")
    time.sleep(0.3)  # what it would send it sends now
    assert b.attempt_rows(waits) == attempts and b.operation(waits)["version"] == taken["version"]
    for id in (done.id, waits):
        judge(b, provider, id, effects=1, dispatches=1)
        never_failed(b, id)


def test_S34_thirty_deliveries_over_four_gateways(gateways, provider):
    gateways.start({"mail.send": registry.write("mails", {"to": TEXT}, keyed=False)}, 4)
    provider.config(latency_ms=100)
    answers = together([lambda n=n: gateways.all[n % 4].call("mail.send", {"to": "a@x.test"}, key="message-1") for n in range(30)])
    assert {answer.state for answer in answers} == {"completed_success"} and len({answer.id for answer in answers}) == 1, answers
    assert sum(not answer.replayed for answer in answers) == 1  # 29 are duplicates
    judge(gateways.all[0], provider, answers[0].id, effects=1, dispatches=1)


def test_S35_a_superseded_gateway_sends_no_further_request_of_several(gateways, provider):
    """Three requests; the gateway that began stands still during the second one, another goes on; then both run."""
    names = "book", "pay", "tell"
    tools = {name: registry.write(name + "s", {"order": TEXT}, keyed=False) for name in names}
    tools["order"] = {"input_schema": {"type": "object", "required": ["order"], "properties": {"order": TEXT}}, "wait": "10s", "while_in_doubt": "allow",
                      "steps": [{"name": name, "tool": name, "arguments": {"order": "{order}"}, "undo": "leave"} for name in names]}
    a, b = gateways.start(tools, 2, providers={"plain": registry.provider(provider.url, timeout="1s")})
    provider.config(latency_ms=250)
    began = Background(a.call, "order", {"order": "o1"}, key="k")
    wait_until(lambda: len(provider.writes()) == 2)
    a.process.pause()
    parent = b.by_key("order", "k")
    done = b.settled(parent.id)
    assert done.state == "completed_success", done
    a.process.go_on()
    assert began.result().id == parent.id and began.value.state == "completed_success"
    time.sleep(0.3)
    writes = provider.writes()
    assert len(writes) == 3 == provider.effects() and len({write["reference"] for write in writes}) == 3, writes


def test_S37_finished_stays_finished_whoever_restarts(gateways, provider):
    three = gateways.start({"refund": registry.refund()}, 3)
    done = three[0].call("refund", REFUND, key="k")
    for each in three:
        each.kill()
    for each in three:
        each.start()
    seen = [each.call("refund", REFUND, key="k") for each in three]
    assert {(answer.id, answer.state, answer["version"], str(answer["result"])) for answer in seen} == {
        (done.id, "completed_success", done["version"], str(done["result"]))}
    judge(three[1], provider, done.id, effects=1, dispatches=1)


def test_S60_thirty_equal_calls_round_robin_over_three(gateways, provider):
    gateways.start({"buy": registry.write("orders", {"sku": TEXT, "n": INTEGER}, keyed=False)}, 3)
    answers = []
    for n in range(30):
        if n == 10:
            gateways.all[1].restart()
        answers.append(gateways.next().call("buy", {"sku": "s", "n": 1}, key="k"))
    assert len({answer.id for answer in answers}) == 1 and {answer.state for answer in answers} == {"completed_success"}
    assert len({str(answer["result"]) for answer in answers}) == 1 and [answer.replayed for answer in answers] == [False] + [True] * 29
    judge(gateways.all[2], provider, answers[0].id, effects=1, dispatches=1)
