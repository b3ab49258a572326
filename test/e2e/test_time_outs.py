"""A tool's own time-out, longer than its provider's: settle goes by it (leases: test_gateways.py)."""

import time

from onced_e2e import registry
from onced_e2e.judge import judge
from onced_e2e.wait import wait_until

REFUND = {"payment_id": "p1", "amount_cents": 1}


def test_settle_waits_for_it(world, provider):
    onced = world.onced({"refund": registry.refund(keyed=False, timeout="20s")})  # the provider's is 500 ms, settle 300 ms
    provider.script("slow:600000")  # it happens at the end
    operation = onced.submit("refund", REFUND)
    wait_until(lambda: provider.writes(), what="the request")
    onced.kill()
    onced.start()
    wait_until(lambda: len([row for row in provider.lookups() if row["outcome"] == "answered"]) >= 3, 30, what="look-ups that see nothing")
    time.sleep(0.5)
    assert onced.operation(operation).state in ("dispatched", "unknown_outcome")
    provider.release()
    assert onced.settled(operation, 40).state == "completed_success"
    assert "failed_permanent" not in onced.states_seen(operation)
    judge(onced, provider, operation, effects=1, dispatches=1)
