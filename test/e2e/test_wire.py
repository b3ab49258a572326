"""Wire accounting (design 5.2): the provider sees exactly as many requests as there are attempt rows that were sent, for
calls and for each page of a look-up. Judged by the provider's log, per operation and in total."""

import collections
import socket

import pytest

from onced_e2e import registry
from onced_e2e.crash import rounds
from onced_e2e.figures import figure
from onced_e2e.wait import together

ENDED = ("completed_success", "failed_permanent")
# fault, and what the write ends with at a provider without keys
CALL_FAULTS = {
    "close_after_commit": "completed_success",   # on a connection that was kept: no hidden re-send
    "close_before_commit": "failed_permanent",
    "reset_after_commit": "completed_success",
    "reset_before_commit": "failed_permanent",
    "redirect:307": "failed_permanent",          # not followed
    "redirect:302": "failed_permanent",
    "challenge": "failed_permanent",             # not answered by a second request
    "drip:3000": "completed_success",
    "truncated": "completed_success",
    "malformed": "completed_success",
    "503": "failed_permanent",
    "429:1": "completed_success",
    "big": "completed_success",
    "empty": "completed_success",
}
RESEND_FAULTS = ["close_after_commit", "redirect:307", "challenge", "drip:3000", "truncated", "reset_after_commit"]
LOOKUP_FAULTS = ["close_after_commit", "reset_after_commit", "redirect:307", "challenge", "drip:3000", "truncated",
                 "lookup_500", "lookup_partial", "lookup_malformed", "lookup_timeout", "429:1"]


def sent(rows):
    return [row for row in rows if row["outcome"] != "not_sent"]


def account(world, onced, operations):
    """Rows and requests, per operation: nothing more, nothing less, in the same order. Returns how many."""
    by_reference = collections.defaultdict(list)
    for entry in world.provider.requests():
        by_reference[entry["reference"]].append(entry)
    total = 0
    for operation in operations:
        rows = sent(onced.attempt_rows(operation))
        kinds = ["call" if entry["method"] == "POST" else "lookup" for entry in by_reference[operation]]
        assert kinds == [row["kind"] for row in rows], (rows, by_reference[operation])
        total += len(rows)
    assert total == len(world.provider.requests())
    return total


def tool(**more):
    """A look-up that asks by reference: each of its pages can be told by it, too."""
    return registry.refund(while_in_doubt="allow", **more)


def tools(keyed):
    return {"refund.create": tool(keyed=keyed)}


@pytest.mark.parametrize("fault", CALL_FAULTS)
def test_wire_calls(world, fault):
    onced = world.onced(tools(keyed=False))
    warm = onced.call("refund.create", {"payment_id": "warm", "amount_cents": 1})
    assert warm.state == "completed_success"
    world.provider.script(fault)
    answer = onced.call("refund.create", {"payment_id": "p1", "amount_cents": 2})
    assert answer.state == CALL_FAULTS[fault], answer
    writes = world.provider.writes()
    assert writes[0]["connection"] == writes[1]["connection"], "the connection was to be a kept one"
    account(world, onced, [warm.id, answer.id])
    assert len(world.provider.writes(answer.id)) == (2 if fault == "429:1" else 1)


@pytest.mark.parametrize("fault", RESEND_FAULTS)
def test_wire_resends(world, fault):
    """At the provider with keys each re-send is a row of its own."""
    onced = world.onced(tools(keyed=True))
    warm = onced.call("refund.create", {"payment_id": "warm", "amount_cents": 1})
    world.provider.script(fault, fault)
    answer = onced.call("refund.create", {"payment_id": "p1", "amount_cents": 2})
    assert answer.state in ENDED
    account(world, onced, [warm.id, answer.id])
    assert world.provider.effects(answer.id) == (answer.state == "completed_success")


@pytest.mark.parametrize("fault", LOOKUP_FAULTS)
def test_wire_lookups(world, fault):
    onced = world.onced(tools(keyed=False))
    warm = onced.call("refund.create", {"payment_id": "warm", "amount_cents": 1})
    world.provider.script("close_after_commit", {"fault": fault, "on": "lookup", "times": 2})
    answer = onced.call("refund.create", {"payment_id": "p1", "amount_cents": 2})
    assert answer.state == "completed_success" and world.provider.effects(answer.id) == 1
    assert len(world.provider.lookups()) >= 3
    account(world, onced, [warm.id, answer.id])


def test_wire_pages_of_a_lookup(world):
    """The list is not filtered: ten pages of two, each a request and a row."""
    for n in range(20):
        world.provider.write("refunds", {"payment_id": f"other{n}", "amount_cents": n + 1, "reference": f"other{n}"})
    before = len(world.provider.requests())
    everything = {"path": "/v1/refunds", "query": {"limit": "2"}}
    onced = world.onced({"refund.create": tool(keyed=False, lookup=registry.lookup("refunds", request=everything))})
    world.provider.script("close_before_commit")
    answer = onced.call("refund.create", {"payment_id": "p1", "amount_cents": 2})
    assert answer.state == "failed_permanent" and answer["reason"] == "absent"
    rows = sent(onced.attempt_rows(answer.id))
    assert len(rows) == len(world.provider.requests()) - before
    pages = [row for row in rows if row["kind"] == "lookup"]
    assert len(pages) % 10 == 0 and len(pages) >= 20, "two absent answers, each after all ten pages"


def test_wire_refused_connection(world):
    """Nothing listens: attempts, but nothing was sent, and nothing is spent."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    closed = registry.provider(f"http://127.0.0.1:{port}")
    onced = world.onced({"refund.create": tool(keyed=False, provider="closed", wait="1s")}, providers={"closed": closed})
    answer = onced.call("refund.create", {"payment_id": "p1", "amount_cents": 2})
    assert answer.status == 202 and answer.state == "failed_retryable" and answer["attempts"] == 0, answer
    rows = onced.attempt_rows(answer.id)
    assert len(rows) > 1 and {row["outcome"] for row in rows} <= {"not_sent", "open"} and not sent(rows[:-1])
    assert world.provider.requests() == []


def test_wire_under_load(world):
    """Many at once over few kept connections, a third of them closed, redirected, challenged or cut."""
    count = 40 * rounds()
    world.provider.config(faults="close_after_commit=0.06,reset_before_commit=0.06,redirect=0.05,challenge=0.05,truncated=0.06,"
                                 "close_before_commit=0.05,lookup_500=0.1,lookup_partial=0.1")
    keyed = registry.provider(world.provider.url, key=registry.KEY_CONTRACT, connections=8,
                              retry_budget={"per_second": 1000, "burst": 1000})
    plain = registry.provider(world.provider.url, connections=8)
    both = {"refund.create": tool(settle="100ms"), "credit.create": registry.write(
        "credits", {"payment_id": registry.TEXT, "amount_cents": registry.INTEGER}, keyed=False, while_in_doubt="allow",
        settle="100ms")}
    onced = world.onced(both, providers={"keyed": keyed, "plain": plain}, server={"log": "warn"})

    def calls(worker):
        return [onced.call(("refund.create", "credit.create")[n % 2], {"payment_id": f"p{n}", "amount_cents": n + 1})
                for n in range(worker, count, 16)]

    answers = sum(together([lambda worker=worker: calls(worker) for worker in range(16)], 120), [])
    settled = [onced.settled(answer.id) for answer in answers]
    total = account(world, onced, [each.id for each in settled])
    truth = world.provider.truth()
    assert truth["duplicates_by_reference"] == 0
    assert truth["effects"] == sum(each.state == "completed_success" for each in settled)
    figure("wire", f"{count} operations: {total} requests at the provider, {total} attempt rows")
