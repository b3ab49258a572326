"""Sixty-four callers with one key at once: the provider is asked once, all get the same answer (design 4)."""

import json

import pytest

from onced_e2e import registry
from onced_e2e.crash import Line
from onced_e2e.figures import figure
from onced_e2e.wait import together

pytestmark = pytest.mark.provider_timeout(registry.PATIENT)

CALLERS = 64


def call_all_at_once(onced, body):
    lines = [Line(onced.port) for _ in range(CALLERS)]
    try:
        return together([lambda line=line: line.ask("POST", "/v1/calls", body) for line in lines])
    finally:
        for line in lines:
            line.close()


def what_it_says(answer):
    return {name: value for name, value in answer.items() if name not in ("replayed", "note")}


def test_64_callers_one_key(world):
    onced = world.onced({"refund.create": registry.refund()}, server={"connections_max": 256})
    world.provider.script("slow:200")
    body = json.dumps({"tool": "refund.create", "arguments": {"payment_id": "p1", "amount_cents": 4900},
                       "idempotency_key": "one"}).encode()
    answers = call_all_at_once(onced, body)
    assert len(world.provider.requests()) == 1
    assert world.provider.effects() == 1
    first = what_it_says(answers[0][1])
    assert first["status"] == "completed_success" and first["attempts"] == 1
    assert all(what_it_says(answer) == first for _, answer in answers)
    assert sorted(status for status, _ in answers) == [200] * (CALLERS - 1) + [201]
    assert sum(not answer["replayed"] for _, answer in answers) == 1
    figure("one key", f"{len(answers)} callers, {len(world.provider.requests())} provider call, {len(answers)} equal answers")


def test_64_callers_one_key_after_a_lost_answer(world):
    """The same while the outcome is unknown: nobody but the one executor goes to the provider."""
    onced = world.onced({"refund.create": registry.refund(keyed=False, while_in_doubt="allow")},
                        server={"connections_max": 256})
    world.provider.script("close_after_commit")
    body = json.dumps({"tool": "refund.create", "arguments": {"payment_id": "p1", "amount_cents": 4900},
                       "idempotency_key": "one"}).encode()
    answers = call_all_at_once(onced, body)
    assert len(world.provider.writes()) == 1
    assert {answer["operation_id"] for _, answer in answers} == {answers[0][1]["operation_id"]}
    assert {answer["status"] for _, answer in answers} == {"completed_success"}
    assert len({json.dumps(answer["result"], sort_keys=True) for _, answer in answers}) == 1
