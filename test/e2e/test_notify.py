"""Notifications (design 8, 17): a signed POST when something waits for people, with a receiver that fails, with kill -9 before and
after it was told; links for approvers that may decide; and the figures of /metrics."""

import os
import time

import pytest

import test_steps as steps
from onced_e2e import binary, registry, webhooks
from onced_e2e.client import LOST, Client
from onced_e2e.figures import figure
from onced_e2e.hook import SECRET, Hook
from onced_e2e.registry import INTEGER, TEXT
from onced_e2e.wait import Background, together, wait_until

ROUNDS = int(os.environ.get("ONCED_NOTIFY_ROUNDS", "2"))
CALLERS = 64
MARKED = binary.find() and b"ONCED_KILL_AT" in binary.find().read_bytes()
REFUND = {"payment_id": "p1", "amount_cents": 25000}


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    monkeypatch.setenv("NOTIFY_SECRET", SECRET)


@pytest.fixture
def hook():
    hook = Hook().start()
    yield hook
    hook.stop()
    assert None not in hook.messages  # no redirect was followed
    assert all(each.signed() for each in hook.messages)


def refund(**more):
    return registry.refund(**{"approval": "required", "key": "refund:{payment_id}", **more})


def person(onced, name):
    return Client(onced.port, headers={"Onced-Principal": name})


def waiting(onced, arguments=REFUND, tool="refund", **named):
    answer = onced.call(tool, arguments, **named)
    assert (answer.status, answer.state, answer["reason"]) == (202, "planned", "awaiting_approval"), answer
    return answer


def told(hook, operation, count=1, kind=None, seconds=10):
    wait_until(lambda: len(hook.of(operation, kind)) >= count, seconds, what=f"message {count} about {operation}")
    return hook.of(operation, kind)


def all_waiting(onced):
    found, cursor = set(), ""
    while cursor is not None:
        page = onced.client.get(f"/v1/operations?reason=awaiting_approval&limit=500{cursor and '&cursor='}{cursor}")
        found |= {each["operation_id"] for each in page["operations"]}
        cursor = page["next"]
    return found


# ---- how long it took ----


def test_how_long_calls_took(world, provider):
    onced = world.onced({"refund": registry.refund(timeout="5s")})
    provider.config(latency_ms=60)
    for n in range(3):
        assert onced.call("refund", {"payment_id": f"p{n}", "amount_cents": 1}).state == "completed_success"
    figures = onced.metrics()
    for name in ("call", "provider_request"):
        counts = [figures[f'onced_{name}_seconds_bucket{{le="{le}"}}'] for le in ("0.001", "0.05", "10", "60", "+Inf")]
        assert counts == [0, 0, 3, 3, 3] and figures[f"onced_{name}_seconds_count"] == 3, counts
        assert 0.18 <= figures[f"onced_{name}_seconds_sum"] < 30
    assert figures["onced_commit_seconds_count"] == 3 and figures['onced_commit_seconds_bucket{le="+Inf"}'] == 3


# ---- what is told ----


def test_told_when_something_waits(world, provider, hook):
    onced = world.onced({"refund": refund(redact=["/note"])}, notify=hook.section())
    held = waiting(onced, {**REFUND, "note": "private"})
    [message] = told(hook, held.id)
    assert message.type == "approval.requested" and message.headers["content-type"] == "application/json"
    data = message.body["data"]
    assert data["tenant"] == "default" and data["operation"]["approval"]["needed"] == 1 and "links" not in data, data
    assert data["operation"]["arguments"] is None and b"private" not in message.raw and b"25000" not in message.raw
    if webhooks.Libraries.there():
        libraries = webhooks.Libraries()
        headers = {name: value for name, value in message.headers.items() if name.startswith("webhook-")}
        given = {"scheme": "standard_webhooks", "body": message.raw.decode(), "headers": headers, "check": True}
        assert libraries.ask(secret=SECRET, **given)["ok"]
        assert not libraries.ask(secret=SECRET[:-8] + "AAAAAAA=", **given)["ok"]
        libraries.close()
    person(onced, "alice").post(f"/v1/operations/{held.id}/approve", {})
    assert onced.settled(held.id).state == "completed_success"
    waiting(onced, {**REFUND, "payment_id": "p2"})
    wait_until(lambda: len(hook.messages) == 2, what="the second message")
    wait_until(lambda: onced.metrics()['onced_notifications_total{kind="approval"}'] == 2, what="both taken")


def test_payload_goes_along_where_the_registry_says_so(world, hook):
    onced = world.onced({"refund": refund(redact=["/note"])}, notify=hook.section(payload=True))
    held = waiting(onced, {**REFUND, "note": "private"})
    [message] = told(hook, held.id)
    assert message.body["data"]["operation"]["arguments"] == {**REFUND, "note": "***"} and b"private" not in message.raw


def test_operators_and_incidents(world, provider, hook):
    """An outcome that only a person can settle, and an incident; what nobody asked to be told of is not told."""
    tools = {"refund": refund(approval=None), "plain": registry.write("things", {"name": TEXT}, keyed=False, look=False),
             "other": registry.refund(keyed=False, lookup=registry.lookup("refunds", verify={"/amount_cents": "{amount_cents}"}))}
    onced = world.onced(tools, notify=hook.section(on=["operator", "incident"]))
    provider.script("close_after_commit")
    lost = onced.call("plain", {"name": "x"})
    [message] = told(hook, lost.id, kind="operator.needed")
    assert message.body["data"]["operation"]["reason"] == "needs_operator" and message.body["data"]["operation"]["result"] is None
    provider.config(lookup_fault="lookup_wrong")
    provider.script("close_after_commit")
    wrong = onced.call("other", REFUND, wait_ms=0)
    [message] = told(hook, wrong.id, kind="incident.raised")
    assert message.body["data"]["incident"]["kind"] == "wrong_object"
    onced.client.post(f"/v1/incidents/{message.body['data']['incident']['id']}/acknowledge")
    before = len(hook.of(wrong.id, "incident.raised"))
    onced.restart()
    told(hook, lost.id, 2, kind="operator.needed")
    assert len({each.id for each in hook.of(lost.id)}) == 1
    wait_until(lambda: onced.metrics()["onced_notifications_queued"] == 0, what="the end of the scan")
    assert len(hook.of(wrong.id, "incident.raised")) == before  # acknowledged: nobody waits for anybody


def test_a_rollback_that_is_stuck(world, provider, hook):
    """Told as it gets stuck, and after a restart again; its incidents are told by themselves."""
    onced = world.onced(steps.tools(), notify=hook.section())
    parent = steps.place(onced, "o1", fault_ship="402", undo_charge="402|success")
    assert (parent.state, parent["reason"]) == ("compensating", "needs_operator"), parent
    [message] = told(hook, parent.id, kind="rollback.stuck")
    assert message.body["data"]["operation"]["status"] == "compensating"
    incidents = {each["id"] for each in onced.incidents()}
    wait_until(lambda: {each.body["data"]["incident"]["id"] for each in hook.messages if each.type == "incident.raised"} == incidents)
    assert len(incidents) == 2  # of the step and of its parent
    onced.restart()
    assert len({each.id for each in told(hook, parent.id, 2, kind="rollback.stuck")}) == 1
    onced.client.post(f"/v1/operations/{parent.id}/retry", {"note": "the bank is back"})
    assert onced.settled(parent.id).state == "compensated"
    onced.restart()
    wait_until(lambda: onced.metrics()['onced_notifications_total{kind="incident"}'] == 2, what="the scan")
    assert len(hook.of(parent.id, "rollback.stuck")) == 2


# ---- receivers that fail ----


def test_a_receiver_that_is_away_hurts_nobody(world, provider, hook):
    """Who waited for it would wait longer than callers do: it comes back only after they were answered."""
    hook.stop()
    onced = world.onced({"refund": refund(), "free": refund(approval=None)}, notify=hook.section())
    held = [waiting(onced, {**REFUND, "payment_id": f"p{n}"}).id for n in range(3)]
    assert onced.call("free", REFUND).state == "completed_success"
    person(onced, "alice").post(f"/v1/operations/{held[1]}/deny", {"note": "no"})
    wait_until(lambda: onced.metrics()["onced_notification_failures_total"] >= 1, what="a failure")
    hook.start()
    told(hook, held[0])
    told(hook, held[2])
    assert hook.of(held[1]) == []  # decided meanwhile
    figures = onced.metrics()
    assert figures["onced_notifications_moot_total"] == 1 and figures["onced_approvals_waiting"] == 2, figures


def test_again_with_the_same_id_until_it_is_taken(world, hook):
    hook.statuses = [500, 302]
    onced = world.onced({"refund": refund()}, notify=hook.section())
    held, other = waiting(onced), waiting(onced, {**REFUND, "payment_id": "p2"})
    messages = told(hook, held.id, 3, seconds=15)
    assert [each.operation for each in hook.messages[:3]] == [held.id] * 3  # the other waits its turn
    told(hook, other.id)
    assert len({each.id for each in messages}) == 1 and len({each.raw for each in messages}) == 1
    assert len({each.headers["webhook-timestamp"] for each in messages}) > 1  # signed anew
    wait_until(lambda: onced.metrics()['onced_notifications_total{kind="approval"}'] == 2, what="both taken")
    assert onced.metrics()["onced_notification_failures_total"] == 2


def test_more_than_the_queue_holds(world, hook):
    """What did not fit in while the receiver was away is looked up in the ledger. (1,100 operations for evidence, a few in CI.)"""
    many = 1100 if ROUNDS >= 10 else 44
    hook.stop()
    onced = world.onced({"refund": refund()}, notify=hook.section())

    def some(k, client):
        return [onced.call("refund", {**REFUND, "payment_id": f"p{k}-{n}"}, client=client).id for n in range(many // 11)]

    held = {each for part in together([lambda k=k: some(k, Client(onced.port)) for k in range(11)]) for each in part}
    assert len(held) == many and onced.metrics()["onced_notification_overflows_total"] >= many - 1001
    hook.start()
    wait_until(lambda: {each.operation for each in hook.messages} == held, 40, what="all told")
    wait_until(lambda: onced.metrics()['onced_notifications_total{kind="approval"}'] == many, what="all taken")
    assert onced.metrics()["onced_notifications_queued"] == 0


def test_stopping_waits_for_no_receiver(world, hook):
    """Nor does a caller. Each of the two would be given up by the test before the receiver says a word."""
    onced = world.onced({"refund": refund(), "free": refund(approval=None)}, notify=hook.section(timeout="60s"), server={"stop_timeout": "60s"})
    hook.gate.clear()
    held = waiting(onced)
    told(hook, held.id)
    assert onced.call("free", REFUND).state == "completed_success"
    onced.stop()
    hook.gate.set()
    onced.start()
    assert len({each.id for each in told(hook, held.id, 2)}) == 1


# ---- kill -9 ----


@pytest.mark.skipif(not MARKED, reason="a build without marks")
@pytest.mark.parametrize("mark", ["admission_committed", "before_notify", "notified"])
def test_kill_nine_between_waiting_and_telling(world, hook, mark):
    """Whatever the moment: after the next start it is told, with the id that it had or would have had."""
    onced = world.prepare({"refund": refund()}, notify=hook.section())
    onced.prefix = ("env", f"ONCED_KILL_AT={mark}:1")
    onced.start()
    call = Background(lambda: onced.call("refund", REFUND))
    wait_until(lambda: not onced.process.alive(), what=f"the kill at {mark}")
    try:
        call.result()
    except LOST:
        pass
    before = len(hook.messages)
    assert before == (1 if mark == "notified" else 0)
    onced.prefix = ()
    onced.start()
    [held] = onced.operations(reason="awaiting_approval")
    messages = told(hook, held["operation_id"], before + 1)
    assert len({each.id for each in messages}) == 1
    wait_until(lambda: onced.metrics()["onced_notifications_queued"] == 0, what="the end")
    assert len(hook.messages) == before + 1


def test_64_callers_and_kill_nine(world, hook):
    """Everything that waits is told, with one id per operation; nothing else is."""
    onced = world.onced({"refund": refund()}, notify=hook.section())
    operations = set()
    for n in range(ROUNDS):
        lines = [Client(onced.port) for _ in range(CALLERS)]

        def call(k, client, n=n):
            try:
                return onced.call("refund", {**REFUND, "payment_id": f"p{n}-{k}"}, client=client).id
            except LOST:
                return None

        running = [Background(call, k, client) for k, client in enumerate(lines)]
        time.sleep(0.05 * (n % 8 + 1))
        if n == 0:  # the other kills may come before the first answer
            wait_until(lambda running=running: not all(each.running() for each in running), what="an answer")
        onced.restart()
        operations |= {each.result() for each in running} - {None}
    waits = all_waiting(onced)
    assert operations <= waits and waits
    wait_until(lambda: waits <= {each.operation for each in hook.messages}, 30, what="all told")
    ids = {}
    for each in hook.messages:
        ids.setdefault(each.operation, set()).add(each.id)
    assert set(ids) == waits and all(len(each) == 1 for each in ids.values())
    assert len({each for some in ids.values() for each in some}) == len(waits)
    figure("notify", f"{len(waits)} waiting operations over {ROUNDS} kills: each told with one id, {len(hook.messages)} messages",
           operations=len(waits), messages=len(hook.messages))


# ---- settings ----


def test_a_reload_tells_another_receiver_what_waits(world, hook):
    other = Hook().start()
    tools = {"refund": refund()}
    onced = world.onced(tools)
    held = waiting(onced)
    assert onced.metrics()["onced_notifications_queued"] == 0 and hook.messages == []
    onced.reload(world.file(tools, notify=hook.section()))
    told(hook, held.id)
    onced.reload(world.file(tools, notify=other.section()))
    [message] = told(other, held.id)
    assert message.signed() and message.id == hook.messages[0].id
    other.stop()


def test_what_the_registry_refuses(world, monkeypatch):
    monkeypatch.setenv("SHORT", "whsec_c2hvcnQ=")
    onced = world.prepare({"refund": refund()})
    for section, words in (({"url": "ftp://h/", "secret": "${env:NOTIFY_SECRET}"}, "/notify/url"),
                           ({"url": "https://h/", "secret": SECRET}, "by reference"),
                           ({"url": "https://h/", "secret": "${env:SHORT}"}, "at least 16 bytes"),
                           ({"url": "https://h/", "secret": "${env:NOTIFY_SECRET}", "on": []}, "nobody would be told"),
                           ({"url": "https://h/", "secret": "${env:NOTIFY_SECRET}", "approvers": ["a"]}, "server.links"),
                           ({"secret": "${env:NOTIFY_SECRET}"}, "url")):
        onced.configure(world.file({"refund": refund()}, notify=section))
        checked = onced.cli("check", onced.file, check=False)
        assert checked.returncode == 1 and words in checked.stdout + checked.stderr, (section, checked)


# ---- links ----

LINKS = {"base": "https://onced.example.com"}


def token(onced, principal, role, *options):
    made = onced.cli("token", "create", "--ledger", onced.ledger, "--tenant", "acme", "--principal", principal, "--role", role, *options)
    return {"Authorization": f"Bearer {made.stdout.strip()}"}


def use(onced, link, method="POST"):
    assert link.startswith("https://onced.example.com/links/")
    return onced.client.request(method, link.removeprefix("https://onced.example.com"), raw=b"note=fine")


def test_links_go_to_those_who_may_decide(world, provider, hook):
    names = ["alice", "agent", "helper", "limited", "nobody", "carol"]
    onced = world.onced({"refund": refund(approval={"approvers": 2})}, server={"auth": "tokens", "links": LINKS},
                        notify=hook.section(approvers=names))
    agent = token(onced, "agent", "operator")
    token(onced, "alice", "approver"), token(onced, "helper", "agent"), token(onced, "carol", "admin")
    token(onced, "limited", "approver", "--tools", "payout.*")
    held = onced.call("refund", REFUND, headers=agent)
    [message] = told(hook, held.id)
    links = {each["approver"]: each for each in message.body["data"]["links"]}
    assert set(links) == {"alice", "carol"}, links  # not the caller, no agent, none that does not cover it, no stranger
    events = onced.client.get(f"/v1/operations/{held.id}/events", headers=agent)["events"]
    assert [(each["actor"], each["note"]) for each in events[1:]] == [("notify", "made links for alice"), ("notify", "made links for carol")]
    assert message.body["data"]["operation"]["version"] == 3  # as they stand in the record
    for approver in links.values():
        assert use(onced, approver["approve"]).status == 200
    done = wait_until(lambda: (a := onced.client.get(f"/v1/operations/{held.id}", headers=agent)).state == "completed_success" and a)
    assert [(each["by"], each["via"], each["link_by"]) for each in done["approval"]["decisions"]] == [
        ("alice", "link", "notify"), ("carol", "link", "notify")]
    assert len(provider.writes()) == 1


# ---- figures ----


def test_figures_of_policies(world, provider):
    tools = {"refund": refund(), "brief": refund(approval={"expires": "300ms"}),
             "ship": registry.write("shipments", {"order_id": TEXT, "n?": INTEGER}, keyed=False, while_in_doubt="allow", look=False,
                                    entities=[{"type": "order", "id": "{order_id}", "exclusive": "reject"}]),
             "mail": registry.write("mails", {"to": TEXT, "n?": INTEGER}, window={"key": "mail:{to}", "per": "1h", "override": "denied"}),
             "pay": registry.write("payments", {"to": TEXT}, budgets=[{"budget": "payments"}])}
    onced = world.onced(tools, budgets={"payments": {"per": "1h", "limit": 1}})
    provider.script("close_after_commit")
    assert onced.call("ship", {"order_id": "o1"})["reason"] == "needs_operator"  # holds its order
    assert onced.call("ship", {"order_id": "o1", "n": 2}).problem == "entity_busy"
    for n, wanted in enumerate(["completed_success", "window"]):
        answer = onced.call("mail", {"to": "x", "n": n}, key=f"m{n}")
        assert wanted in (answer.state, answer.problem), answer
    for name in ("a", "b"):
        onced.call("pay", {"to": name})
    denied, granted = waiting(onced, {**REFUND, "payment_id": "d"}), waiting(onced, {**REFUND, "payment_id": "g"})
    figures = onced.metrics()
    assert figures["onced_approvals_waiting"] == 2 and 0 < figures["onced_oldest_approval_seconds"] < 60
    assert person(onced, "alice").post(f"/v1/operations/{denied.id}/deny", {"note": "no"})["reason"] == "denied"
    assert person(onced, "alice").post(f"/v1/operations/{granted.id}/approve", {}).status in (200, 202)
    assert onced.settled(granted.id).state == "completed_success"
    late = onced.call("brief", {**REFUND, "payment_id": "l"})
    assert onced.settled(late.id)["reason"] == "expired"
    figures = onced.metrics()
    wanted = {'onced_policy_refusals_total{policy="entity"}': 1, 'onced_policy_refusals_total{policy="window"}': 1,
              'onced_policy_refusals_total{policy="budget"}': 1, 'onced_policy_refusals_total{policy="guard"}': 0,
              "onced_entities_held": 1, "onced_entity_queue": 0, "onced_approvals_waiting": 0, "onced_oldest_approval_seconds": 0,
              "onced_approvals_asked_total": 3, 'onced_approvals_total{outcome="granted"}': 1,
              'onced_approvals_total{outcome="denied"}': 1, 'onced_approvals_total{outcome="expired"}': 1,
              'onced_operations{state="unknown_outcome"}': 1}
    assert {name: figures[name] for name in wanted} == wanted
    assert figures["onced_oldest_unknown_seconds"] > 0


def test_figures_are_for_operators(world):
    onced = world.onced({"refund": refund()}, server={"auth": "tokens"})
    for role, status in (("agent", 403), ("approver", 403), ("operator", 200)):
        assert onced.client.request("GET", "/metrics", headers=token(onced, role, role)).status == status
    assert onced.client.request("GET", "/metrics").status == 401
