"""The inbox (design 11.1) with real processes: signatures, matching, order, 64 senders, kill -9. Names with a number are
scenarios of the case bank."""

import itertools
import json
import os
import threading
import time

import pytest

from onced_e2e import registry, webhooks
from onced_e2e.client import LOST
from onced_e2e.figures import figure
from onced_e2e.judge import judge
from onced_e2e.wait import Background, wait_until
from onced_e2e.webhooks import event, tell

pytestmark = pytest.mark.provider_timeout(registry.PATIENT)

REFUND = {"payment_id": "p1", "amount_cents": 4900}


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for name, value in webhooks.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def tool(**more):
    """Weak, without a look-up: only the provider's event can tell."""
    settings = {"keyed": False, "look": False, "reconcile": ["webhook", "manual"], "webhook_wait": "20s", "while_in_doubt": "allow", **more}
    return registry.refund(**settings)


def listening(world, providers=None, **more):
    return world.onced({"refund": tool(**more)}, inbox=webhooks.sources(), providers=providers)


def fault_of_the_call(provider, fault):
    provider.script({"fault": fault, "on": "write"})


def doubtful(onced, provider, fault="close_after_commit", key="k", arguments=REFUND, wait_ms=0):
    """A call whose answer is lost; the provider's object, if there is one."""
    fault_of_the_call(provider, fault)
    answer = onced.call("refund", arguments, key=key, wait_ms=wait_ms)
    wait_until(lambda: onced.operation(answer.id).state == "unknown_outcome", what="the lost answer")
    return answer.id


def there(provider, reference):
    found = [each for each in provider.objects("refunds") if each.get("reference") == reference]
    return found[0]["id"] if found else None


def inbox(onced, **filters):
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    return onced.client.get(f"/v1/inbox?{query}")["events"]


# ---- signatures ----


def test_only_the_provider_is_believed(world, provider):
    onced = listening(world)
    operation = doubtful(onced, provider)
    body = event(1, "thing.succeeded", operation, "re_1")
    now = time.time()
    good = webhooks.stripe(body)
    signed_for_another = webhooks.stripe(body.replace("re_1", "re_2"))
    refused = [{}, {"Stripe-Signature": ""}, webhooks.stripe(body, secret="whsec_wrong"), webhooks.stripe(body, at=now - 400),
               webhooks.stripe(body, at=now + 400), signed_for_another, webhooks.github(body), webhooks.standard(body, "m")]
    for headers in refused:
        answer = webhooks.post(onced.port, "pay", body, headers)
        assert (answer.status, answer.problem) == (401, "bad_signature"), (headers, answer)
    assert webhooks.post(onced.port, "pay", body + " ", good).status == 401, "the bytes are signed, not the JSON"
    assert webhooks.post(onced.port, "nobody", body, good).status == 404
    assert inbox(onced) == [] and onced.operation(operation).state == "unknown_outcome"
    answer = webhooks.post(onced.port, "pay", body, good)
    assert (answer.status, answer["duplicate"]) == (200, False), answer
    replayed = webhooks.post(onced.port, "pay", body, good)  # within the tolerance: known
    assert (replayed.status, replayed["duplicate"], replayed["id"]) == (200, True, answer["id"]), replayed
    assert onced.settled(operation).state == "completed_success"
    old = webhooks.stripe(body, secret="whsec_before")  # rotation: the former secret is still good
    assert webhooks.post(onced.port, "pay", body, old)["duplicate"]
    text = onced.process.text()
    assert all(value not in text for value in webhooks.ENVIRONMENT.values()), "no secret in the log"


def test_events_that_cannot_be_read(world):
    onced = listening(world)
    for body, status in (("not json", 400), ("{}", 400), ('{"id":""}', 400), ('{"id":"x","id":"y"}', 400), ('{"id":7}', 200), ('{"id":"other"}', 200)):
        answer = tell(onced, body)
        assert answer.status == status, (body, answer)
    large = json.dumps({"id": "large", "text": "x" * 300_000})
    assert tell(onced, large).status == 413
    assert {each["event"] for each in inbox(onced)} == {"7", "other"}
    assert {each["status"] for each in inbox(onced)} == {"ignored"}


def test_the_other_schemes(world, provider):
    onced = listening(world)
    for number, (source, sign) in enumerate((("standard", lambda body: webhooks.standard(body, "msg_1")), ("hub", webhooks.github))):
        operation = doubtful(onced, provider, key=f"k{number}")
        body = event(number, "thing.succeeded", operation, "re_1")
        assert webhooks.post(onced.port, source, body.replace("re_1", "re_x"), sign(body)).status == 401
        assert webhooks.post(onced.port, source, body, sign(body))["duplicate"] is False
        assert webhooks.post(onced.port, source, body, sign(body))["duplicate"] is True
        assert onced.settled(operation).state == "completed_success"
    again = webhooks.github(body, delivery="made-up")  # not signed, so it tells no two events apart
    assert webhooks.post(onced.port, "hub", body, again)["duplicate"] is True


def test_signed_by_the_libraries_themselves(world, provider):
    if not webhooks.Libraries.there():
        pytest.skip("test/webhooks/node_modules is not there (tools/e2e-setup.sh)")
    onced = listening(world)
    libraries = webhooks.Libraries()
    try:
        for number, (source, scheme, secret) in enumerate((("pay", "stripe", webhooks.STRIPE_SECRET),
                                                           ("standard", "standard_webhooks", webhooks.STANDARD_SECRET))):
            operation = doubtful(onced, provider, key=f"k{number}")
            body = event(number, "thing.succeeded", operation, "re_é€")
            signed = libraries.ask(scheme=scheme, secret=secret, body=body, time=int(time.time()), id=f"msg_{number}")["headers"]
            ours = webhooks.stripe(body) if scheme == "stripe" else webhooks.standard(body, "m")
            lower = {name.lower(): value for name, value in ours.items()}
            assert libraries.ask(scheme=scheme, secret=secret, body=body, headers=lower, check=True)["ok"]
            other = libraries.ask(scheme=scheme, secret=secret[:-8] + "AAAAAAA=", body=body, time=int(time.time()), id="m")["headers"]
            assert webhooks.post(onced.port, source, body, other).status == 401
            assert webhooks.post(onced.port, source, body, signed).status == 200
            assert onced.settled(operation).state == "completed_success"
    finally:
        libraries.close()


# ---- what becomes of events ----


def test_a_waiting_caller_is_told(world, provider):
    """Accepted, and told later: nobody asks the provider in between."""
    onced = listening(world, response={"external_id": "/id", "accepted": [202]})
    fault_of_the_call(provider, "accepted:600000")
    call = Background(onced.call, "refund", REFUND, key="k", wait_ms=10000)
    wait_until(lambda: onced.operations(tool="refund") and onced.operations(tool="refund")[0]["status"] == "acknowledged", what="202")
    operation = onced.operations(tool="refund")[0]["operation_id"]
    assert call.running()
    tell(onced, event(1, "thing.succeeded", None, onced.operation(operation)["external_id"]))
    answer = call.result()
    assert (answer.status, answer.state) == (201, "completed_success"), answer
    assert answer["result"]["id"] == answer["external_id"]
    assert provider.lookups() == []
    judge(onced, provider, operation, effects=1, dispatches=1)


def test_declined_later(world, provider):
    onced = listening(world, response={"external_id": "/id", "accepted": [202]})
    fault_of_the_call(provider, "accepted:600000")
    operation = onced.call("refund", REFUND, key="k", wait_ms=0).id
    wait_until(lambda: onced.operation(operation).state == "acknowledged", what="202")
    tell(onced, event(1, "thing.failed", operation))
    done = onced.settled(operation)
    assert (done.state, done["reason"], done["error"]["code"]) == ("failed_permanent", "provider_refused", "thing.failed"), done
    tell(onced, event(2, "thing.succeeded", operation, "re_1"))  # and yet it happened
    wait_until(lambda: onced.operation(operation).state == "completed_success", what="the later event")
    assert [each["kind"] for each in onced.incidents(operation)] == ["late_landing"]


def test_matched_when_the_id_is_known(world, provider):
    """The event comes while our request waits for its answer, named by an id that only the answer tells."""
    onced = listening(world)
    fault_of_the_call(provider, "timeout_after_commit")
    call = Background(onced.call, "refund", REFUND, key="k", wait_ms=20000)
    external = wait_until(lambda: provider.objects("refunds"), what="the commit")[0]["id"]
    assert tell(onced, event(1, "thing.succeeded", None, external)).status == 200
    assert [each["status"] for each in inbox(onced)] == ["waiting"]
    provider.release()
    answer = call.result()
    assert (answer.state, answer["external_id"]) == ("completed_success", external)
    wait_until(lambda: [each["status"] for each in inbox(onced)] == ["applied"], what="the match")
    assert inbox(onced, operation=answer.id)[0]["event"] == "evt_1"
    assert not onced.incidents(answer.id)


def test_S85_webhook_first_and_a_late_failure(world, provider):
    """S85: the event, and 50 ms later the answer; then a failure of an earlier try. Kept both, no downgrade, no second request."""
    onced = listening(world)
    fault_of_the_call(provider, "timeout_after_commit")
    began = time.time()
    call = Background(onced.call, "refund", REFUND, key="k", wait_ms=20000)
    reference = wait_until(lambda: provider.objects("refunds"), what="the commit")[0]["reference"]
    assert tell(onced, event(1, "thing.succeeded", reference, there(provider, reference))).status == 200
    time.sleep(0.05)
    provider.release()
    answer = call.result()
    assert (answer.status, answer.state, answer.id) == (201, "completed_success", reference), answer
    assert tell(onced, event(2, "thing.failed", reference, created=began - 30)).status == 200
    wait_until(lambda: len(inbox(onced, operation=reference, status="applied")) == 2, what="both kept as evidence")
    now = onced.operation(reference)
    assert (now.state, onced.incidents(reference)) == ("completed_success", [])
    assert {each["actor"] for each in onced.events(reference) if each["cause"] == "evidence"} == {"inbox/pay"}
    judge(onced, provider, reference, effects=1, dispatches=1)


def test_S84_copies_with_ids_of_their_own(world, provider):
    """S84: eleven copies of one message, each under another event id: applied eleven times, and nothing changes after the first."""
    onced = listening(world)
    operation = doubtful(onced, provider)
    external = there(provider, operation)
    for number in range(11):
        assert tell(onced, event(number, "thing.succeeded", operation, external))["duplicate"] is False
    assert onced.settled(operation).state == "completed_success"
    wait_until(lambda: len(inbox(onced, status="applied")) == 11, what="all applied")
    assert onced.incidents(operation) == []
    judge(onced, provider, operation, effects=1, dispatches=1)


# ---- orders ----

THINGS = ("answer", "event", "again", "crash")


ORDERS = [each for each in itertools.permutations(THINGS) if each.index("event") < each.index("again")]
SOME = ORDERS if os.environ.get("ONCED_ORDERS") == "all" else [("event", "answer", "crash", "again"), ("event", "crash", "again", "answer"),
                                                               ("crash", "event", "answer", "again")]


def in_order(onced, provider, order, body, reference):
    """The answer comes when it is its turn, if no crash has cut it off."""
    for thing in order:
        if thing == "answer":
            provider.release()
            wait_until(lambda: onced.operation(reference).state != "dispatched", what="the answer, or that it is lost")
        elif thing == "crash":
            onced.restart()
        else:
            assert tell(onced, body)["duplicate"] is (thing == "again")


def applied_once(onced):
    return [(each["status"], each["duplicates"]) for each in inbox(onced)] == [("applied", 1)]


AMONG = next(each for each in SOME if "crash" in each[:2])


@pytest.mark.parametrize("order", [pytest.param(each, marks=pytest.mark.on_both_ledgers) if each == AMONG else each for each in SOME], ids="-".join)
def test_every_order(world, provider, order):
    """Request and commit; then our answer, the event, the event again and kill -9 in every order: the same end."""
    onced = listening(world, providers={"plain": registry.provider(provider.url, timeout=registry.PATIENT)})
    fault_of_the_call(provider, "timeout_after_commit" if order[0] != "answer" else "success")
    onced.call("refund", REFUND, key="k", wait_ms=0)
    reference = wait_until(lambda: provider.objects("refunds"), what="the commit")[0]["reference"]
    in_order(onced, provider, order, event(1, "thing.succeeded", reference, there(provider, reference)), reference)
    done = onced.settled(reference)
    assert (done.state, done["external_id"]) == ("completed_success", there(provider, reference)), (order, done)
    wait_until(lambda: applied_once(onced), what="the event, applied once and counted twice")
    assert onced.incidents(reference) == []
    judge(onced, provider, reference, effects=1, dispatches=1)


@pytest.mark.parametrize("order", [each for each in ORDERS if each[0] == "answer"][:3 if SOME is ORDERS else 1], ids="-".join)
def test_every_order_of_a_refusal_after_acceptance(world, provider, order):
    onced = listening(world, response={"external_id": "/id", "accepted": [202]})
    fault_of_the_call(provider, "accepted:600000")
    reference = onced.call("refund", REFUND, key="k", wait_ms=0).id
    wait_until(lambda: provider.writes(reference), what="the request")
    in_order(onced, provider, order, event(1, "thing.failed", reference), reference)
    done = onced.settled(reference)
    assert (done.state, done["reason"]) == ("failed_permanent", "provider_refused"), (order, done)
    wait_until(lambda: applied_once(onced), what="the event, applied once and counted twice")
    assert len(provider.writes(reference)) == 1 and onced.incidents(reference) == []


# ---- many senders, crashes ----


def senders(port, bodies, taken, stop):
    """Delivers each body until it is acknowledged; taken: those that were."""
    for body in bodies:
        while not stop.is_set():
            try:
                if webhooks.post(port, "pay", body, webhooks.stripe(body), timeout=5).status == 200:
                    taken.append(json.loads(body)["id"])
                    break
            except LOST:
                pass
            time.sleep(0.01)
        time.sleep(0.05)


def test_64_senders_and_kill_nine(world, provider):
    """Each of 64 senders delivers its events, and every third one once more, while the daemon is killed again and again:
    what was acknowledged is there, once, and every operation ends as its event says."""
    onced = listening(world)
    operations = []
    for number in range(32):
        operations.append(doubtful(onced, provider, key=f"k{number}", arguments={"payment_id": f"p{number}", "amount_cents": 1}))
    bodies = [[event(f"{sender}_{turn}", "thing.succeeded", operations[sender // 2], there(provider, operations[sender // 2]))
               for turn in range(4)] for sender in range(64)]
    for each in bodies:
        each.append(each[0])  # a repetition
    taken, stop = [], threading.Event()
    threads = [threading.Thread(target=senders, args=(onced.port, each, taken, stop)) for each in bodies]
    for thread in threads:
        thread.start()
    kills = 0
    for count in (10, 60, 110, 160, 210, 260):
        wait_until(lambda count=count: len(taken) >= count, what=f"{count} acknowledged deliveries")
        acknowledged = set(taken)
        onced.restart()
        kills += 1
        known = {each["event"] for each in all_events(onced)}
        assert acknowledged <= known, acknowledged - known
    for thread in threads:
        thread.join(30)
    stop.set()
    assert len(taken) == 64 * 5
    stored = all_events(onced)
    assert sorted(each["event"] for each in stored) == sorted(f"evt_{s}_{t}" for s in range(64) for t in range(4)), "each once"
    wait_until(lambda: all(onced.operation(each).state == "completed_success" for each in operations), what="every operation's end")
    wait_until(lambda: {each["status"] for each in all_events(onced)} == {"applied"}, what="every event applied")
    assert provider.truth()["effects"] == 32 and len(provider.writes()) == 32
    assert sum(each["duplicates"] for each in all_events(onced)) >= 64
    figure("inbox under kill -9", f"{len(taken)} acknowledged deliveries from 64 senders over {kills} kills, 0 lost, 256 events once each",
           senders=64, kills=kills, deliveries=len(taken))


def all_events(onced):
    events, cursor = [], ""
    while True:
        page = onced.client.get(f"/v1/inbox?limit=500{cursor}")
        assert page.status == 200, page
        events += page["events"]
        if not page["next"]:
            return events
        cursor = f"&cursor={page['next']}"


def test_recorded_before_it_is_applied(world, provider):
    """Killed between the event's commit and everything else (the mark batch_committed): the next start applies it, before
    anything is sent."""
    onced = world.prepare({"refund": tool()}, inbox=webhooks.sources())
    onced.start()
    operation = doubtful(onced, provider)
    body = event(1, "thing.succeeded", operation, there(provider, operation))
    onced.stop()
    onced.prefix = ("env", "ONCED_KILL_AT=batch_committed:2")
    try:
        onced.start()
        webhooks.post(onced.port, "pay", body, webhooks.stripe(body))
    except (AssertionError, *LOST):
        pass
    onced.process.kill()
    onced.prefix = ()
    onced.start()
    webhooks.tell_until_taken(onced.port, body)
    assert onced.settled(operation).state == "completed_success"
    assert [each["status"] for each in inbox(onced)] == ["applied"]
    judge(onced, provider, operation, effects=1, dispatches=1)


# ---- the provider itself tells ----


@pytest.mark.parametrize("source", ["pay", "hub", "standard"])
def test_a_lost_answer_is_settled_by_the_providers_word(world, provider, source):
    """The full circle: call, commit, the answer is lost, the provider's own webhook (twice) settles it. No look-up, no second request."""
    onced = listening(world)
    provider.webhooks(onced, source, when="late", delay_ms=100, copies=2)
    operation = doubtful(onced, provider)
    done = onced.settled(operation)
    assert (done.state, done["external_id"], done["result"]["payment_id"]) == ("completed_success", provider.told()[0]["object"], "p1"), done
    again = onced.call("refund", REFUND, key="k")
    assert (again["replayed"], again["external_id"]) == (True, done["external_id"])
    wait_until(lambda: provider.told()[0]["taken"] == 2, what="both copies")
    assert provider.lookups() == [] and onced.incidents(operation) == []
    judge(onced, provider, operation, effects=1, dispatches=1)


def test_told_before_our_answer(world, provider):
    """The provider waits for our 2xx before it answers the request itself: neither waits for the other for ever."""
    onced = listening(world)
    provider.webhooks(onced, when="before_answer", copies=2)
    answer = onced.call("refund", REFUND, key="k")
    assert (answer.status, answer.state) == (201, "completed_success"), answer
    wait_until(lambda: applied_once(onced), what="the event, applied once and counted twice")
    assert onced.incidents(answer.id) == []
    judge(onced, provider, answer.id, effects=1, dispatches=1)


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_told_in_the_other_order(world, provider, end):
    """Accepted; the outcome's event comes before the older one that says it is pending: the outcome stands."""
    onced = listening(world, response={"external_id": "/id", "accepted": [202]})
    provider.webhooks(onced, reversed=True)
    fault_of_the_call(provider, "accepted:1100" + (":failed" if end == "failed" else ""))
    operation = onced.call("refund", REFUND, key="k", wait_ms=0).id
    done = onced.settled(operation)
    assert done.state == ("completed_success" if end == "succeeded" else "failed_permanent"), done
    wait_until(lambda: [each["type"] for each in inbox(onced, status="applied")] == ["refunds.pending", f"refunds.{end}"], what="both")
    assert onced.operation(operation).state == done.state and onced.incidents(operation) == []
    assert len(provider.writes()) == 1 and provider.lookups() == []


def test_the_provider_tells_until_it_is_heard(world, provider):
    """The daemon is dead when the webhook comes, and for some tries after it."""
    onced = listening(world)
    provider.webhooks(onced, when="late", delay_ms=2000, retry_ms=100)
    operation = doubtful(onced, provider)
    onced.kill()
    wait_until(lambda: provider.told()[0]["posts"] >= 3, what="tries in vain")
    onced.start()
    assert onced.settled(operation).state == "completed_success"
    assert provider.told()[0]["taken"] == 1
    judge(onced, provider, operation, effects=1, dispatches=1)


# ---- people ----


def test_what_people_see(world, provider):
    onced = listening(world)
    operation = doubtful(onced, provider)
    tell(onced, event(1, "thing.succeeded", operation, "re_1"))
    tell(onced, event(2, "thing.succeeded", None, "nobody's"))
    tell(onced, event(3, "other"))
    tell(onced, event(3, "other"))
    onced.settled(operation)
    counts = onced.client.get("/v1/inbox-counts")["sources"]
    assert counts == [{"source": "pay", "events": 3, "duplicates": 1, "applied": 1, "ignored": 1, "waiting": 1, "dropped": 0}]
    unmatched = inbox(onced, status="waiting")
    assert [each["value"] for each in unmatched] == ["nobody's"]
    whole = onced.client.get(f"/v1/inbox/{unmatched[0]['id']}")
    assert json.loads(whole["body"])["id"] == "evt_2"
    assert onced.client.get("/v1/inbox/ev_01JZZZZZZZZZZZZZZZZZZZZZZZ").status == 404
    url = f"http://127.0.0.1:{onced.port}"
    listed = onced.cli("inbox", "--server", url).stdout
    assert "waiting" in listed and "applied" in listed and "ignored" in listed
    assert "evt_2" in onced.cli("inbox", "--unmatched", "--server", url).stdout and "evt_3" not in onced.cli("inbox", "--unmatched", "--server", url).stdout
    shown = onced.cli("inbox", "show", unmatched[0]["id"], "--server", url).stdout
    assert "nobody's" in shown and "thing.succeeded" in shown
    assert "duplicates" in onced.cli("inbox", "counts", "--server", url).stdout.lower()
    other = onced.client.get("/v1/inbox", headers={"Onced-Tenant": "other"})
    assert other["events"] == [] and onced.client.get("/v1/inbox-counts", headers={"Onced-Tenant": "other"})["sources"] == []


def test_the_source_may_come_with_a_reload(world, provider):
    onced = world.onced({"refund": tool(reconcile=["manual"])})
    operation = doubtful(onced, provider)
    body = event(1, "thing.succeeded", operation, "re_1")
    assert tell(onced, body).status == 404
    onced.reload(world.file({"refund": tool()}, inbox=webhooks.sources()))
    assert tell(onced, body).status == 200
    wait_until(lambda: onced.operation(operation).state == "completed_success", what="the event's effect")
