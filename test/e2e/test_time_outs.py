"""A tool's own time-out, longer than its provider's: lease and settle go by it."""

import time

import pytest

from onced_e2e import ledgers, registry
from onced_e2e.judge import judge
from onced_e2e.wait import wait_until

REFUND = {"payment_id": "p1", "amount_cents": 1}
TOOLS = {"refund": registry.refund(keyed=False, timeout="20s")}  # the provider's is 500 ms, settle 300 ms


def on_the_wire(onced, provider):
    provider.script("slow:600000")  # it happens at the end
    operation = onced.submit("refund", REFUND)
    wait_until(lambda: provider.writes(), what="the request")
    return operation


def test_settle_waits_for_it(world, provider):
    onced = world.onced(TOOLS)
    operation = on_the_wire(onced, provider)
    onced.kill()
    onced.start()
    wait_until(lambda: len([row for row in provider.lookups() if row["outcome"] == "answered"]) >= 3, 30, what="look-ups that see nothing")
    time.sleep(0.5)
    assert onced.operation(operation).state in ("dispatched", "unknown_outcome")
    provider.release()
    assert onced.settled(operation, 40).state == "completed_success"
    assert "failed_permanent" not in onced.states_seen(operation)
    judge(onced, provider, operation, effects=1, dispatches=1)


@pytest.mark.skipif(not ledgers.POSTGRES, reason="two gateways on one ledger")
def test_nobody_takes_over_meanwhile(world, provider):
    a = world.onced(TOOLS)
    b = world.prepare(TOOLS, ledger=a.ledger).start()
    operation = on_the_wire(a, provider)
    time.sleep(4)  # the lease of 1 s behind the provider's time-out would be over
    provider.release()
    assert b.settled(operation).state == "completed_success"
    assert a.states_seen(operation) == {"dispatched", "completed_success"} and not provider.lookups()
