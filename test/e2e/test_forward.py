"""Forwarding of inbound events to the application's own endpoint (design 11.1) with real processes: the bytes as they came, one
webhook-id, again until it is taken and then never again, also over kill -9."""

import json
import signal
import threading
import time

import pytest

from onced_e2e import binary, webhooks
from onced_e2e.crash import rounds
from onced_e2e.figures import figure
from onced_e2e.hook import SECRET, Hook
from onced_e2e.process import Failed
from onced_e2e.wait import wait_until
from onced_e2e.webhooks import event, tell

from test_inbox import inbox, tool

MARKED = binary.find() and b"ONCED_KILL_AT" in binary.find().read_bytes()


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for name, value in {**webhooks.ENVIRONMENT, "NOTIFY_SECRET": SECRET}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def endpoint():
    hook = Hook().start()
    yield hook
    hook.stop()


def sources(endpoint, **more):
    forward = {"url": endpoint.url, "secret": "${env:NOTIFY_SECRET}", "timeout": "1s", **more}
    return {name: {**source, "forward": forward} for name, source in webhooks.sources().items()}


def forwarding(world, endpoint, **more):
    return world.onced({"refund": tool()}, inbox=sources(endpoint, **more))


def forward_of(onced, number=1):
    return next(each["forward"] for each in inbox(onced) if each["event"] == f"evt_{number}")


def delivered(onced, number=1):
    return wait_until(lambda: (found := forward_of(onced, number))["status"] == "delivered" and found, what="the delivery")


def test_the_bytes_as_they_came(world, endpoint):
    """Also of events that are of no interest to onced, and once however often the provider sends them."""
    onced = forwarding(world, endpoint)
    body = json.dumps({"id": "evt_1", "type": "other", "text": "é €", "number": 1}, indent=2, ensure_ascii=False)
    for _ in range(3):
        assert tell(onced, body).status == 200
    assert delivered(onced)["tries"] == 1
    time.sleep(0.3)
    assert len(endpoint.messages) == 1
    message = endpoint.messages[0]
    assert message.raw == body.encode() and message.id == "pay:evt_1" and message.signed()
    assert abs(int(message.headers["webhook-timestamp"]) - time.time()) < 10
    assert inbox(onced)[0]["status"] == "ignored" and inbox(onced)[0]["duplicates"] == 2
    hub = event(2, "thing.pending")  # github: its id is a digest; the application's is the same everywhere
    assert webhooks.post(onced.port, "hub", hub, webhooks.github(hub)).status == 200
    wait_until(lambda: len(endpoint.messages) == 2, what="the other source's event")
    assert endpoint.messages[1].id.startswith("hub:") and "." not in endpoint.messages[1].id


def test_again_until_it_is_taken(world, endpoint):
    """Refusals, redirects, nobody there, no answer in time: the same id and bytes on every try, and none after the 2xx."""
    onced = forwarding(world, endpoint)
    endpoint.stop()
    body = event(1, "thing.pending")
    assert tell(onced, body).status == 200
    wait_until(lambda: "connect" in forward_of(onced).get("last_failure", "").lower(), what="nobody there")
    endpoint.statuses += [500, 302]
    endpoint.start()
    wait_until(lambda: forward_of(onced).get("last_failure") == "the endpoint answered 302: redirects are not followed",
               seconds=20, what="the second refusal")
    assert delivered(onced)["tries"] >= 4
    assert {(each.id, each.raw) for each in endpoint.messages} == {("pay:evt_1", body.encode())}, "no redirect was followed"
    figures = onced.metrics()
    assert figures["onced_forwarded_total"] == 1 and figures["onced_forward_failures_total"] == forward_of(onced)["tries"] - 1
    assert figures["onced_forwards_given_up_total"] == 0 and figures["onced_inbound_total"] == 1
    assert all(each.signed() for each in endpoint.messages)
    count = len(endpoint.messages)
    onced.restart()
    tell(onced, body)
    time.sleep(1)
    assert len(endpoint.messages) == count


def test_given_up_and_sent_again(world, endpoint):
    onced = forwarding(world, endpoint, give_up="1s")
    endpoint.statuses += [503] * 10
    assert tell(onced, event(1, "thing.pending")).status == 200
    assert tell(onced, event(2, "thing.pending")).status == 200
    wait_until(lambda: {forward_of(onced, n)["status"] for n in (1, 2)} == {"undelivered"}, what="the end of its time")
    url = f"http://127.0.0.1:{onced.port}"
    endpoint.statuses.clear()
    known = {each["event"]: each["id"] for each in inbox(onced)}
    listed = onced.cli("inbox", "--undelivered", "--server", url).stdout
    assert "evt_1" in listed and "evt_2" in listed
    assert "undelivered after" in onced.cli("inbox", "show", known["evt_1"], "--server", url).stdout
    onced.cli("inbox", "forward", known["evt_1"], "--server", url)
    delivered(onced)
    assert [each["event"] for each in inbox(onced, forward="undelivered")] == ["evt_2"]
    refused = onced.client.post(f"/v1/inbox/{known['evt_1']}/forward", {})
    assert (refused.status, refused.problem) == (409, "not_possible"), "what was taken is not sent again"
    assert onced.client.post("/v1/inbox/ev_01JZZZZZZZZZZZZZZZZZZZZZZZ/forward", {}).status == 404
    other = onced.client.post(f"/v1/inbox/{known['evt_2']}/forward", {}, headers={"Onced-Tenant": "other"})
    assert other.status == 404
    assert {each.id for each in endpoint.messages} == {"pay:evt_1", "pay:evt_2"}
    assert "does not reach the application" in onced.process.text()
    assert SECRET not in onced.process.text()


def test_a_slow_endpoint_holds_nobody_up(world, provider, endpoint):
    onced = forwarding(world, endpoint, timeout="30s")  # longer than the caller has patience for
    endpoint.gate.clear()
    for number in range(20):
        assert tell(onced, event(number, "thing.pending")).status == 200
    assert onced.call("refund", {"payment_id": "p1", "amount_cents": 1}, key="k").state == "completed_success"
    endpoint.gate.set()
    for number in range(20):
        delivered(onced, number)


def test_the_registry_changes(world, endpoint):
    onced = forwarding(world, endpoint)
    endpoint.statuses += [500]
    tell(onced, event(1, "thing.pending"))
    wait_until(lambda: forward_of(onced).get("last_failure"), what="the refusal")
    onced.reload(world.file({"refund": tool()}, inbox=webhooks.sources()))
    wait_until(lambda: forward_of(onced)["status"] == "undelivered", what="nowhere to go")
    assert "no longer says" in forward_of(onced)["last_failure"]
    tell(onced, event(2, "thing.pending"))
    assert "forward" not in next(each for each in inbox(onced) if each["event"] == "evt_2")
    refused = onced.client.post(f"/v1/inbox/{inbox(onced)[1]['id']}/forward", {})
    assert refused.status == 409
    onced.reload(world.file({"refund": tool()}, inbox=sources(endpoint)))
    assert onced.client.post(f"/v1/inbox/{inbox(onced)[1]['id']}/forward", {}).status == 202
    delivered(onced)


def start_before_the_mark(onced):
    """A start that has something to write may meet the mark itself; the next one does not."""
    try:
        onced.start()
    except Failed:
        assert onced.process.child.returncode == -signal.SIGKILL
        return False
    return True


@pytest.mark.skipif(not MARKED, reason="a build without marks")
@pytest.mark.parametrize("mark, posts", [("forward_written", 1), ("forward_answered", 2), ("batch_committed", 1)])
def test_killed_at_a_try(world, endpoint, mark, posts):
    """Killed with the try written down and nothing posted; with the endpoint's 2xx received and not written; with the event on
    disk and nobody told: it arrives, under one id, and not once more after the 2xx was recorded."""
    onced = world.prepare({"refund": tool()}, inbox=sources(endpoint))
    onced.start()
    onced.stop()
    onced.prefix = ("env", f"ONCED_KILL_AT={mark}:1")
    body = event(1, "thing.pending")
    while not start_before_the_mark(onced):
        pass
    try:
        tell(onced, body)
    except webhooks.LOST:
        pass
    wait_until(lambda: not onced.process.alive(), what="the kill")
    onced.process.kill()
    onced.prefix = ()
    onced.start()
    webhooks.tell_until_taken(onced.port, body)
    delivered(onced)
    time.sleep(0.5)
    assert [each.id for each in endpoint.messages] == ["pay:evt_1"] * posts


def test_kill_nine_again_and_again(world, endpoint):
    """Events keep coming, the endpoint fails every third time, the daemon is killed again and again (ONCED_ROUNDS): each
    acknowledged event arrives; repetitions carry the same id."""
    kills = min(rounds(2), 50)
    events = 10 * kills
    onced = forwarding(world, endpoint)
    taken, stop = [], threading.Event()

    def send():
        for number in range(events):
            webhooks.tell_until_taken(onced.port, event(number, "thing.pending"))
            taken.append(number)
            if stop.is_set():
                return

    endpoint.statuses += [204, 204, 503] * 10 * kills
    sender = threading.Thread(target=send)
    sender.start()
    for count in range(5, events, 10):
        wait_until(lambda count=count: len(taken) >= count, what=f"{count} events")
        onced.restart()
    sender.join(30)
    assert len(taken) == events
    wait_until(lambda: len(inbox(onced, forward="delivered", limit=500)) == events, seconds=60, what="every delivery")
    ids = [each.id for each in endpoint.messages]
    assert set(ids) == {f"pay:evt_{n}" for n in range(events)}
    count = len(ids)
    onced.restart()
    time.sleep(1)
    assert len(endpoint.messages) == count, "nothing after the 2xx was recorded"
    figure("forwarding under kill -9", f"{events} events over {kills} kills, {events} delivered, 0 lost, {count - events} repetitions under the same id",
           events=events, kills=kills, repetitions=count - events)
