"""Bad input is refused with the place where it is bad, nothing is recorded and nothing is sent (design 2.5, 12)."""

import json

import pytest

from onced_e2e import registry
from onced_e2e.figures import figure

GOOD = {"payment_id": "p", "amount_cents": 1}
START = b'{"tool":"refund.create","arguments":'


def call(arguments=GOOD, **members):
    return json.dumps({"tool": "refund.create", "arguments": arguments, **members}).encode()


# name: (body, headers, status, problem, what the answer must name)
CASES = {
    "oversize": (b"x" * 20000, {}, 413, "too_large", "16384 bytes"),
    "too-deep": (START + b"[" * 200 + b"]" * 200 + b"}", {}, 413, "too_large", "column 100"),
    "duplicate-name": (START + b'{"payment_id":"a","payment_id":"b"}}', {}, 400, "malformed", 'byte 54): member name "payment_id"'),
    "invalid-utf8": (START + b'{"payment_id":"\xff"}}', {}, 400, "malformed", "byte 51): byte 0xff"),
    "lone-surrogate": (START + b'{"payment_id":"\\ud800"}}', {}, 400, "malformed", "byte 51): high surrogate"),
    "nan": (START + b'{"amount_cents":NaN}}', {}, 400, "malformed", "byte 52): 'N'"),
    "ends-early": (START, {}, 400, "malformed", "line 1, column"),
    "more-after-the-end": (call() + b" x", {}, 400, "malformed", "'x' where the end"),
    "byte-order-mark": (b"\xef\xbb\xbf" + call(), {}, 400, "malformed", "byte order mark"),
    "not-an-object": (b"[]", {}, 400, "malformed", "must be an object"),
    "empty": (b"", {}, 400, "malformed", "empty"),
    "unknown-member": (call(colour="red"), {}, 400, "malformed", "/colour"),
    "wrong-type-of-member": (call(wait_ms="soon"), {}, 400, "malformed", "/wait_ms"),
    "bad-time": (call(not_before="soon"), {}, 400, "malformed", "/not_before"),
    "arguments-no-object": (call([1]), {}, 400, "malformed", "/arguments"),
    "wrong-type-of-argument": (call({**GOOD, "amount_cents": "1"}), {}, 422, "invalid_arguments", "/amount_cents"),
    "fraction-for-integer": (call({**GOOD, "amount_cents": 1.5}), {}, 422, "invalid_arguments", "/amount_cents"),
    "unknown-argument": (call({**GOOD, "extra": 1}), {}, 422, "invalid_arguments", "/extra"),
    "missing-argument": (call({"amount_cents": 1}), {}, 422, "invalid_arguments", "payment_id"),
    "not-json": (call(), {"Content-Type": "text/plain"}, 415, "not_json", "application/json"),
    "two-keys": (call(idempotency_key="a"), {"Idempotency-Key": "b"}, 400, "malformed", "/idempotency_key"),
    "open-key": (call(), {"Idempotency-Key": '"open'}, 400, "key_invalid", "quote"),
    "long-key": (call(idempotency_key="x" * 5000), {}, 400, "key_invalid", "512"),
    "no-such-tool": (json.dumps({"tool": "nope"}).encode(), {}, 404, "no_such_tool", "nope"),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One daemon for all cases: none of them may do it any harm."""
    from conftest import World
    from onced_e2e.provider import Provider
    folder = tmp_path_factory.mktemp("bad-input")
    provider = Provider(folder).start()
    world = World(folder, provider, [])
    onced = world.onced({"refund.create": registry.refund()}, server={"body_bytes_max": "16KB"})
    yield world, onced
    world.stop()
    provider.stop()
    assert not onced.process.findings()


@pytest.mark.parametrize("name", CASES)
def test_bad_input(shared, name):
    world, onced = shared
    body, headers, status, problem, place = CASES[name]
    answer = onced.client.post("/v1/calls", raw=body, headers=headers)
    assert answer.status == status and answer.problem == problem, answer
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert place in json.dumps(answer.body, ensure_ascii=False).replace('\\"', '"'), answer
    if status == 422:
        assert all(set(error) == {"pointer", "message", "keyword"} for error in answer["errors"])
    assert onced.operations() == [] and world.provider.requests() == []


def test_good_input_after_all_that(shared):
    _, onced = shared
    assert onced.client.post("/v1/calls", raw=call()).state == "completed_success"
    figure("bad input", f"{len(CASES)} kinds of bad input refused with their place, nothing recorded, nothing sent")
