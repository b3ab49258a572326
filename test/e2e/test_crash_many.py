"""Many keys, 64 callers that retry until they are answered, kill -9 of the daemon at 20, 50 and 80 % of the answers, restart
half a second later. ONCED_ROUNDS=50 is the full size of 10,000 keys; CI runs a fifth of it.

The provider that knows no keys is asked again by look-up only, so it must see each key's request at most once. What was in
flight at a kill and had not reached it is proven absent then: such a call ends as a failure with reason `absent`, which is
true, and a person's retry makes it happen."""

import json
import threading
import time

import pytest

from onced_e2e import registry
from onced_e2e.crash import Callers, Intent, Line, ask_again, rounds
from onced_e2e.figures import figure
from onced_e2e.wait import wait_until

KEYS = 200 * rounds()
CALLERS = 64
KILL_AT = (0.2, 0.5, 0.8)
DOWN_S = 0.5


def tool(keyed):
    return registry.refund(keyed=keyed, while_in_doubt="allow", settle="300ms", lookup_interval="50ms",
                           retry={"attempts": 10, "total": "1h", "backoff": "20ms", "backoff_max": "200ms"})


def intents():
    return [Intent("refund.create", f"k{n}", {"payment_id": f"p{n}", "amount_cents": 100 + n}) for n in range(KEYS)]


def kill_now_and_then(onced, callers):
    """From the command that restarts it until the first answer, in seconds, for each kill."""
    gaps = []
    for share in KILL_AT:
        wait_until(lambda: callers.answered >= share * KEYS or callers.problems, seconds=100, every=0.002)
        onced.kill()
        time.sleep(DOWN_S)
        answered, begin = callers.answered, time.monotonic()
        onced.start()
        wait_until(lambda: callers.answered > answered or callers.problems, seconds=30, every=0.002)
        first = callers.answer_times[answered] if len(callers.answer_times) > answered else time.monotonic()
        gaps.append(first - begin)
    return gaps


def retry_what_was_not_done(onced, failed):
    """What a person does with a failure that is proven to have had no effect."""
    for intent in failed:
        operation = intent.told[0][0]
        answer = onced.client.post(f"/v1/operations/{operation}/retry", {"note": "proven absent: once more"})
        assert answer.status in (200, 201, 202), answer
        assert onced.settled(answer.id).state == "completed_success"


@pytest.mark.parametrize("keyed", [False, True], ids=["provider-without-keys", "provider-with-keys"])
def test_crash_many(world, keyed):
    world.provider.config(latency_ms=2)
    onced = world.onced({"refund.create": tool(keyed)}, server={"log": "error"})
    todo = intents()
    callers = Callers(onced.port, todo, CALLERS)
    gaps = kill_now_and_then(onced, callers)
    callers.join()
    assert callers.answered == KEYS

    truth, stats = world.provider.truth(), world.provider.client.get("/_fake/stats").body
    beyond = stats["writes"] - KEYS
    extra = truth["effects"] - len(truth["by_key"])
    assert truth["duplicates_by_key"] == 0 and truth["duplicates_by_reference"] == 0 and extra == 0
    if not keyed:
        assert beyond <= 0

    done = [intent for intent in todo if intent.told[0][1] == "completed_success"]
    failed = [intent for intent in todo if intent.told[0][1] == "failed_permanent"]
    assert len(done) + len(failed) == KEYS
    assert len(done) == truth["effects"], "a success without an effect, or an effect that was called a failure"
    assert not (keyed and failed)
    changed = ask_again(onced.port, todo)
    assert not changed, changed[:3]

    assert len(failed) <= CALLERS * len(KILL_AT)
    retry_what_was_not_done(onced, failed)
    truth = world.provider.truth()
    assert truth["effects"] == KEYS and truth["duplicates_by_key"] == 0
    figure("crash many", f"{'keyed' if keyed else 'keyless'} provider: {KEYS} keys, {CALLERS} callers, {len(gaps)} kills: "
           f"{max(0, beyond)} calls beyond one per key, {extra} extra effects, {len(changed)} answers changed, first answer "
           f"{', '.join(f'{gap * 1000:.0f}' for gap in gaps)} ms after the restarts ({stats['lookups']} look-ups, "
           f"{len(failed)} proven not done and then retried by a person)",
           keys=KEYS, first_answer_ms=max(gaps) * 1000)


def test_crash_many_without_protection(world):
    """The same callers straight to the provider, which is killed with their answers: the count is not 0 by itself."""
    provider = world.provider
    provider.config(latency_ms=2, faults="close_after_commit=0.05")
    keys, jobs, lock, problems = KEYS // 10, iter(range(KEYS // 10)), threading.Lock(), []

    def work():
        line = Line(provider.port)
        try:
            while True:
                with lock:
                    n = next(jobs, None)
                if n is None:
                    return
                body = json.dumps({"payment_id": f"p{n}", "amount_cents": 100 + n}).encode()
                while True:
                    try:
                        line.ask("POST", "/v1/refunds", body)
                        break
                    except OSError:
                        pass
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)
        finally:
            line.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    truth = provider.truth()
    figure("unprotected", f"unprotected: {keys} keys, {truth['duplicates_by_key']} duplicates")
    assert truth["duplicates_by_key"] > 0
