"""Approvals (design 8): what people decide, told by the provider's count. Names with a number are scenarios of the case
bank."""

import random
import threading
import time

import pytest

from onced_e2e import binary, registry
from onced_e2e.client import LOST, Client
from onced_e2e.issuer import Issuer
from onced_e2e.judge import judge
from onced_e2e.layer import Layer
from onced_e2e.registry import INTEGER, TEXT
from onced_e2e.rpc import Mcp
from onced_e2e.wait import together, wait_until

MARKED = binary.find() and b"ONCED_KILL_AT" in binary.find().read_bytes()
REFUND = {"payment_id": "p1", "amount_cents": 25000}


def person(onced, name):
    return Client(onced.port, headers={"Onced-Principal": name})


def approve(onced, operation, name, note=None, **body):
    return person(onced, name).post(f"/v1/operations/{operation}/approve", {"note": note, **body})


def deny(onced, operation, name, note="no"):
    return person(onced, name).post(f"/v1/operations/{operation}/deny", {"note": note})


def refund(approval="required", **more):
    return registry.refund(approval=approval, key="refund:{payment_id}", **more)


def waiting(onced, tool="refund", arguments=REFUND, **named):
    answer = onced.call(tool, arguments, **named)
    assert (answer.status, answer.state, answer["reason"]) == (202, "planned", "awaiting_approval"), answer
    return answer


# ---- the life of a request ----


def test_nothing_runs_before_people_agree(world, provider):
    onced = world.onced({"refund": refund({"approvers": 2})})
    held = waiting(onced)
    assert held["next_action"] == "wait" and held["approval"]["needed"] == 2 and held["approval"]["open"]
    listed = onced.client.get("/v1/operations?reason=awaiting_approval")["operations"]
    assert [op["operation_id"] for op in listed] == [held.id]
    first = approve(onced, held.id, "alice", "seen the order")
    assert (first.status, first.state, first["approval"]["given"]) == (202, "planned", 1), first
    assert first["decision"]["by"] == "alice" and first["decision"]["counted"]
    again = approve(onced, held.id, "alice")  # counted once
    assert again["approval"]["given"] == 1 and not again["decision"]["counted"], again
    assert provider.writes() == []
    approve(onced, held.id, "bob")
    done = onced.settled(held.id)
    assert done.state == "completed_success" and [each["by"] for each in done["approval"]["decisions"]] == ["alice", "bob"]
    judge(onced, provider, held.id, effects=1, dispatches=1)
    assert onced.client.get("/v1/operations?reason=awaiting_approval")["operations"] == []


def test_conditions_decide_who_is_asked(world, provider):
    onced = world.onced({"refund": refund({"when": ".amount_cents > 10000"})})
    small = onced.call("refund", {"payment_id": "p0", "amount_cents": 10000})
    assert small.state == "completed_success" and "approval" not in small.body, small
    waiting(onced)
    plan = onced.call("refund", {"payment_id": "p2", "amount_cents": 10001}, dry_run=True)
    assert plan["approvals"] == [{"needed": 1, "expires_in_ms": 86400000}], plan
    assert len(provider.writes()) == 1


def test_what_an_approver_looks_at(world, provider):
    onced = world.onced({"refund": refund(redact=["/note"], title="Refund")})
    refused = waiting(onced, arguments={**REFUND, "note": "private"})
    deny(onced, refused.id, "alice", "too much")
    held = waiting(onced, arguments={**REFUND, "amount_cents": 100, "note": "private"})
    view = person(onced, "alice").get(f"/v1/operations/{held.id}/approval")
    assert view["operation"]["arguments"] == {"payment_id": "p1", "amount_cents": 100, "note": "***"}, view
    assert view["request"]["method"] == "POST" and view["request"]["body"]["amount_cents"] == 100, view
    assert "private" not in view.raw.decode() and view["title"] == "Refund"
    assert [(each["operation_id"], each["status"], each["reason"]) for each in view["earlier"]] == [
        (refused.id, "rejected", "denied")]


def test_who_calls_does_not_decide(world, provider):
    onced = world.onced({"refund": refund()})
    held = onced.call("refund", REFUND, client=person(onced, "alice"))
    for decide in (approve, deny):
        answer = decide(onced, held.id, "alice")
        assert (answer.status, answer.problem) == (403, "forbidden"), answer
    assert onced.operation(held.id)["approval"]["decisions"] == []
    assert approve(onced, held.id, "bob").status in (200, 202)
    assert onced.settled(held.id).state == "completed_success"


def test_a_denial_is_final_for_the_same_call(world, provider):
    onced = world.onced({"refund": refund()})
    held = waiting(onced)
    denied = deny(onced, held.id, "alice", "not this customer")
    assert (denied.state, denied["reason"], denied["next_action"]) == ("rejected", "denied", "do_not_retry"), denied
    again = onced.call("refund", REFUND)
    assert again.id == held.id and again.replayed and again["approval"]["decisions"][0]["note"] == "not this customer", again
    late = approve(onced, held.id, "bob")  # contradictory: answered with the first
    assert late.state == "rejected" and late["decision"]["decision"] == "deny" and not late["decision"]["counted"], late
    assert provider.writes() == []


def test_an_expired_approval_tells_what_to_do_next(world, provider):
    onced = world.onced({"refund": refund({"expires": "300ms"})})
    held = onced.call("refund", REFUND)
    ended = wait_until(lambda: (got := onced.operation(held.id)).state == "rejected" and got)
    assert (ended["reason"], ended["next_action"]) == ("expired", "ask_human"), ended
    assert "asks for approval anew" in ended["note"] and "not approved in time" in ended["safe_user_message"]
    late = approve(onced, held.id, "alice")
    assert (late.status, late.problem) == (409, "not_possible") and "expired" in late["detail"], late
    onced.reload(world.file({"refund": refund({"expires": "1h"})}))  # there is time to approve it
    anew = waiting(onced)
    assert anew.id != held.id and anew["key_version"] == 2 and anew["previous"] == held.id
    assert approve(onced, anew.id, "alice").status in (200, 202)
    assert onced.settled(anew.id).state == "completed_success"
    judge(onced, provider, anew.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


def test_a_changed_policy_asks_anew(world, provider):
    onced = world.onced({"refund": refund()})
    held = waiting(onced)
    onced.reload(world.file({"refund": refund({"approvers": 2}), "other": registry.write("others", {"a": TEXT})}))
    told = approve(onced, held.id, "alice")
    assert (told.status, told.problem) == (409, "stale_version") and "has changed" in told["detail"], told
    now = onced.operation(held.id)
    assert now["approval"]["needed"] == 2 and now["approval"]["decisions"] == [] and now.state == "planned", now
    approve(onced, held.id, "alice"), approve(onced, held.id, "bob")
    assert onced.settled(held.id).state == "completed_success"
    judge(onced, provider, held.id, effects=1, dispatches=1)


def test_an_unrelated_edit_leaves_approvals_alone(world, provider):
    onced = world.onced({"refund": refund({"approvers": 2})})
    held = waiting(onced)
    approve(onced, held.id, "alice")
    onced.reload(world.file({"refund": refund({"approvers": 2}, description="new"), "other": registry.write("o", {"a": TEXT})}))
    approve(onced, held.id, "bob")
    assert onced.settled(held.id).state == "completed_success"


def test_repeats_on_purpose_need_approval(world, provider):
    onced = world.onced({"refund": registry.refund(repeat="with_approval")})
    first = onced.call("refund", REFUND, key="k")
    assert first.state == "completed_success"
    again = waiting(onced, repeat_of=first.id, key="k")
    assert provider.writes() and len(provider.writes()) == 1
    approve(onced, again.id, "alice")
    assert onced.settled(again.id).state == "completed_success"
    judge(onced, provider, again.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 2


def test_an_approved_call_waits_for_its_time(world, provider):
    onced = world.onced({"refund": refund()})
    for ahead in (0.6, 2, 20):  # seconds; on a machine that is so slow that its time comes first, once more
        at = time.time() + ahead
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"
        held = waiting(onced, arguments={**REFUND, "payment_id": f"in {ahead}"}, not_before=stamp)
        answer = approve(onced, held.id, "alice")
        if time.time() < at:
            break
    assert (answer.state, answer["reason"]) == ("planned", "scheduled"), answer
    assert onced.settled(held.id).state == "completed_success"
    assert time.time() >= at
    judge(onced, provider, held.id, effects=1, dispatches=1)


# ---- races ----


def test_approve_and_deny_at_the_same_instant(world, provider):
    """One of them wins, and everybody is told which."""
    onced = world.onced({"refund": refund()})
    for n in range(12):
        held = waiting(onced, arguments={**REFUND, "payment_id": f"p{n}"})
        deciders = [lambda i=i: (approve if i % 2 else deny)(onced, held.id, f"person-{i}") for i in range(8)]
        random.shuffle(deciders)
        answers = together(deciders)
        standing = {(each["decision"]["by"], each["decision"]["decision"]) for each in answers}
        assert len(standing) == 1 and sum(each["decision"]["counted"] for each in answers) == 1, answers
        done = onced.settled(held.id)
        approved = standing.pop()[1] == "approve"
        assert done.state == ("completed_success" if approved else "rejected"), done
        judge(onced, provider, held.id, effects=int(approved), dispatches=int(approved))


@pytest.mark.on_both_ledgers
def test_64_callers_and_deciders(world, provider):
    """Two must agree. Callers repeat their calls, people decide twice and against each other."""
    onced = world.onced({"refund": refund({"approvers": 2})}, server={"connections_max": 512})
    operations = [waiting(onced, arguments={**REFUND, "payment_id": f"p{n}"}).id for n in range(8)]

    def call(n):
        return onced.call("refund", {**REFUND, "payment_id": f"p{n % 8}"}, client=Client(onced.port), wait_ms=3000)

    def decide(n):
        operation, name = operations[n % 8], f"person-{n // 8 % 4}"
        return deny(onced, operation, name) if n % 8 == 7 else approve(onced, operation, name)

    answers = together([lambda n=n: call(n) if n % 2 else decide(n // 2) for n in range(64)])
    assert all(answer.status in (200, 202) for answer in answers), answers
    for n, operation in enumerate(operations):
        done = onced.settled(operation)
        given = [each["by"] for each in done["approval"]["decisions"] if each["decision"] == "approve"]
        assert len(given) == len(set(given))
        if n == 7:
            assert (done.state, given) == ("rejected", []), done
        else:
            assert done.state == "completed_success" and len(given) == 2, done
        judge(onced, provider, operation, effects=int(n != 7), dispatches=int(n != 7))
    assert len(provider.writes()) == 7


# ---- kill -9 ----


@pytest.mark.skipif(not MARKED, reason="this build has no marks (meson option marks)")
def test_an_approved_operation_whose_gateway_dies_is_dispatched_once(world, provider):
    onced = world.onced({"refund": refund()})
    held = waiting(onced)
    onced.prefix = ("env", "ONCED_KILL_AT=decision_answered:1")  # the decision is committed, nothing else is done
    onced.restart()
    assert onced.operation(held.id)["reason"] == "awaiting_approval"
    with pytest.raises(LOST):
        approve(onced, held.id, "alice")
    wait_until(lambda: not onced.process.alive())
    assert provider.writes() == []
    onced.prefix = ()
    onced.start()
    done = onced.settled(held.id)
    assert done.state == "completed_success", done
    again = approve(onced, held.id, "alice")  # the answer was lost: told what became of it
    assert again.state == "completed_success" and not again["decision"]["counted"] and again["decision"]["by"] == "alice"
    judge(onced, provider, held.id, effects=1, dispatches=1)


@pytest.mark.on_both_ledgers
def test_kill_9_while_people_decide(world, provider):
    """Decisions that were answered stand; what was approved runs once, what was denied never."""
    onced = world.onced({"refund": refund({"approvers": 2})})
    operations = [waiting(onced, arguments={**REFUND, "payment_id": f"p{n}"}).id for n in range(24)]
    told, stop = {}, threading.Event()

    def decide(n):
        chosen = random.Random(n)
        while not stop.is_set():
            index = chosen.randrange(24)
            operation, name = operations[index], f"person-{chosen.randrange(3)}"
            try:
                answer = deny(onced, operation, name) if index % 4 == 0 else approve(onced, operation, name)
            except LOST:
                time.sleep(0.02)
                continue
            if answer.status in (200, 202):
                told.setdefault(operation, set()).add((answer["decision"]["by"], answer["decision"]["decision"]))

    threads = [threading.Thread(target=decide, args=(n,), daemon=True) for n in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.15)
        onced.kill()
        onced.start()
    time.sleep(0.3)
    stop.set()
    for thread in threads:
        thread.join(20)
    for index, operation in enumerate(operations):
        denied = index % 4 == 0
        if denied:
            deny(onced, operation, "last")
        else:
            approve(onced, operation, "last"), approve(onced, operation, "really-last")
        done = onced.settled(operation)
        decisions = {(each["by"], each["decision"]) for each in done["approval"]["decisions"]}
        assert told.get(operation, set()) <= decisions, (told, done)
        assert done.state == ("rejected" if denied else "completed_success"), done
        assert provider.effects(operation) == int(not denied), provider.truth()


# ---- scenarios ----


def test_S15_the_held_call_has_run_and_the_model_calls_again(world, provider):
    onced = world.onced({"deploy.release": registry.write("deploys", {"version": TEXT}, approval="required")})
    release = {"version": "v7"}
    held = waiting(onced, "deploy.release", release, run_id="r")
    approve(onced, held.id, "alice")
    first = onced.settled(held.id)
    again = onced.call("deploy.release", release, run_id="r")
    assert again.id == held.id and again.replayed and again["result"] == first["result"], again
    assert len(again["approval"]["decisions"]) == 1  # nobody is asked again
    judge(onced, provider, held.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


def test_S22_other_arguments_than_the_approved_ones_do_not_run(world, provider):
    onced = world.onced({"post": registry.write("posts", {"message": TEXT}, approval="required")})
    held = waiting(onced, "post", {"message": "v1"}, key="thread-1")
    changed = onced.call("post", {"message": "v2"}, key="thread-1")
    assert (changed.status, changed.problem) == (422, "key_reused"), changed
    approve(onced, held.id, "alice")
    assert onced.settled(held.id).state == "completed_success"
    changed = onced.call("post", {"message": "v2"}, key="thread-1")  # the resumed client
    assert (changed.status, changed.problem) == (422, "key_reused"), changed
    other = waiting(onced, "post", {"message": "v2"}, key="thread-2")  # a call of its own: its own approval
    assert [each["message"] for each in provider.client.get("/v1/posts")["data"]] == ["v1"]
    same = onced.call("post", {"message": "v1"}, key="thread-1")
    assert same.id == held.id and same.replayed and same.state == "completed_success"
    deny(onced, other.id, "alice")
    assert len(provider.writes()) == 1


def test_S23_the_approval_is_repeated_after_the_turn_failed(world, provider):
    onced = world.onced({"deploy": registry.write("deploys", {"version": TEXT}, approval="required")})
    held = waiting(onced, "deploy", {"version": "v1"}, run_id="r")
    with Layer(onced.port) as layer:
        layer.lie(500)
        turn = Client(layer.port, {"Onced-Principal": "alice"}).post(f"/v1/operations/{held.id}/approve", {})
        assert turn.status == 500, turn  # nobody above learns what became of it
    done = onced.settled(held.id)
    again = approve(onced, held.id, "alice")
    assert again.status == 200 and again.state == "completed_success" and again["result"] == done["result"], again
    assert again["completed_at"] == done["completed_at"] and not again["decision"]["counted"]
    judge(onced, provider, held.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 1


def test_S49_the_intended_second_one_is_asked_for_by_itself(world, provider):
    onced = world.onced({"stock.add": registry.write("stock", {"sku": TEXT, "qty": INTEGER}, approval="required")})
    add = {"sku": "x", "qty": 1}
    first = waiting(onced, "stock.add", add, key="k1")
    approve(onced, first.id, "alice")
    onced.settled(first.id)
    assert onced.call("stock.add", add, key="k1").replayed
    second = waiting(onced, "stock.add", add, key="k2")
    assert len(provider.writes()) == 1  # the first approval is used up
    approve(onced, second.id, "alice")
    onced.settled(second.id)
    assert len(provider.writes()) == 2


def test_S20_a_sibling_of_a_paused_call_runs_once(world, provider):
    onced = world.onced({"ticket.create": registry.write("tickets", {"title": TEXT}), "refund": refund()})

    def node():
        ticket = onced.call("ticket.create", {"title": "t"}, run_id="thread", call_id="call_1")
        return ticket, onced.call("refund", REFUND, run_id="thread", call_id="call_2")

    ticket, held = node()
    assert ticket.state == "completed_success" and held["reason"] == "awaiting_approval"
    approve(onced, held.id, "alice")
    onced.settled(held.id)
    again, done = node()  # the node starts from its first line
    assert again.id == ticket.id and again.replayed and done.id == held.id and done.state == "completed_success", done
    judge(onced, provider, ticket.id, effects=1, dispatches=1)
    judge(onced, provider, held.id, effects=1, dispatches=1)
    assert len(provider.writes()) == 2


def test_S25_twenty_parallel_approvals_are_one_dispatch(world, provider):
    onced = world.onced({"refund": refund()})
    held = waiting(onced)
    answers = together([lambda n=n: approve(onced, held.id, f"person-{n}") for n in range(20)])
    assert {answer.status for answer in answers} <= {200, 202} and {answer.id for answer in answers} == {held.id}, answers
    assert sum(answer["decision"]["counted"] for answer in answers) == 1
    assert len({answer["decision"]["by"] for answer in answers}) == 1  # nineteen are told whose it was
    assert onced.settled(held.id).state == "completed_success"
    judge(onced, provider, held.id, effects=1, dispatches=1)


def test_S28_an_approved_effect_has_its_operation(world, provider):
    onced = world.onced({"refund": refund()})
    held = waiting(onced, run_id="r")
    approve(onced, held.id, "alice")
    onced.settled(held.id)
    report = onced.client.get("/v1/runs/r")
    done = [each for each in report["operations"] if each["status"] == "completed_success"]
    assert [each["operation_id"] for each in done] == [write["reference"] for write in provider.writes()]
    judge(onced, provider, held.id, effects=1, dispatches=1)


# ---- links ----


def path_of(link):
    assert link.startswith("https://onced.example.com/links/"), link
    return link.removeprefix("https://onced.example.com")


def test_a_link_shows_and_its_form_decides_once(world, provider):
    onced = world.onced({"refund": refund(redact=["/note"])}, server={"links": {"base": "https://onced.example.com/"}})
    held = waiting(onced, arguments={**REFUND, "note": "<secret>"})
    links = onced.client.post(f"/v1/operations/{held.id}/links", {"approver": "alice"})
    assert links.status == 200 and links["expires_at"], links
    foreign = {"Host": "onced.example.com", "Origin": "https://onced.example.com"}
    for _ in range(3):  # scanners of mail open links
        page = onced.client.request("GET", path_of(links["approve"]), headers=foreign)
        assert page.status == 200 and b"25000" in page.raw and b"secret" not in page.raw, page
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert onced.operation(held.id)["approval"]["decisions"] == [] and provider.writes() == []
    form = {**foreign, "Content-Type": "application/x-www-form-urlencoded"}
    used = onced.client.request("POST", path_of(links["approve"]), raw=b"note=seen+it%21", headers=form)
    assert used.status == 200 and b"Approved" in used.raw, used
    done = onced.settled(held.id)
    assert [(each["by"], each["via"], each["note"]) for each in done["approval"]["decisions"]] == [("alice", "link", "seen it!")]
    for link in (links["deny"], links["approve"]):  # used up: told what stands
        late = onced.client.request("POST", path_of(link), raw=b"", headers=form)
        assert late.status == 200 and b"had been decided" in late.raw and b"Approved by alice" in late.raw, late
    judge(onced, provider, held.id, effects=1, dispatches=1)


def test_links_of_others_and_old_ones_are_refused(world, provider):
    onced = world.onced({"refund": refund()}, server={"links": {"base": "https://onced.example.com", "expires": "1s"}})
    held = waiting(onced)
    ask = f"/v1/operations/{held.id}/links"
    assert onced.client.post(ask, {"approver": held["principal"]}).status == 403
    link = path_of(onced.client.post(ask, {"approver": "alice"})["approve"])
    payload, mac = link.removeprefix("/links/").split(".")
    other = payload.replace(b"alice".hex(), b"malic".hex())
    wrong = [f"{other}.{mac}", f"{payload}.{'0' * 64}", payload, f"{payload}.{mac[:-2]}", f"{payload[:-1]}.{mac}", "x.y"]
    for token in wrong:
        for method in ("GET", "POST"):
            assert onced.client.request(method, f"/links/{token}", raw=b"").status == 404, token
    time.sleep(1.1)
    late = onced.client.request("POST", link, raw=b"")
    assert late.status == 404 and onced.operation(held.id).state == "planned" and provider.writes() == []


def test_without_links_in_the_registry_there_are_none(world, provider):
    onced = world.onced({"refund": refund()})
    held = waiting(onced)
    assert onced.client.post(f"/v1/operations/{held.id}/links", {"approver": "alice"}).problem == "not_possible"
    assert onced.client.get("/links/00.00").status == 404


def token(onced, principal, role, *options):
    made = onced.cli("token", "create", "--ledger", onced.ledger, "--tenant", "acme", "--principal", principal, "--role", role, *options)
    return {"Authorization": f"Bearer {made.stdout.strip()}"}


def used(onced, link, method="POST", note="fine"):
    return onced.client.request(method, path_of(link), raw=f"note={note}".encode())


@pytest.fixture
def issuer():
    issuer = Issuer().start()
    yield issuer
    issuer.stop()


def test_links_are_for_those_who_may_decide(world, provider, issuer):
    """A name that nobody has, a role that does not decide, a token that does not cover it: no link. The record says who made it."""
    signed = {"corp": issuer.section(prefix="corp:")}
    onced = world.onced({"refund": refund({"approvers": 3})},
                        server={"auth": "tokens", "links": {"base": "https://onced.example.com"}, "jwt": signed})
    ops, agent = token(onced, "ops", "operator"), token(onced, "agent", "agent")
    token(onced, "alice", "approver"), token(onced, "bob", "approver", "--tools", "payout.*")
    held = waiting(onced, headers=agent)
    ask = f"/v1/operations/{held.id}/links"

    def links(name, headers=ops):
        return onced.client.post(ask, {"approver": name}, headers=headers)

    for name, words in (("nobody", "nobody is known as nobody"), ("bob", "payout"), ("corp:dora", "nobody is known")):
        refused = links(name)
        assert refused.problem == "not_possible" and words in refused["detail"], refused
    token(onced, "frank", "agent")
    assert "role approver or above" in links("frank")["detail"] and links("agent").problem == "not_possible"
    assert links("alice", agent).status == 403  # operators make links
    dora = {"Authorization": f"Bearer {issuer.token(sub='dora', roles=['app-approver'])}"}
    erin = {"Authorization": f"Bearer {issuer.token(sub='erin', roles=['app-agent'])}"}
    for each in (dora, erin):
        assert onced.client.get("/v1/tools", headers=each).status == 200
    assert links("corp:erin").problem == "not_possible"
    made = links("alice")
    assert made.status == 200 and made["made_by"] == "ops", made
    signed_ones = links("corp:dora")
    assert used(onced, made["approve"], "GET").status == 200 and b"ops made" in used(onced, made["approve"], "GET").raw
    assert used(onced, made["approve"]).status == 200 and used(onced, signed_ones["approve"]).status == 200
    record = onced.client.get(f"/v1/operations/{held.id}", headers=ops)["approval"]["decisions"]
    assert [(each["by"], each["via"], each["link_by"]) for each in record] == [("alice", "link", "ops"), ("corp:dora", "link", "ops")]
    events = onced.client.get(f"/v1/operations/{held.id}/events", headers=ops)["events"]
    notes = [(each["actor"], each["note"]) for each in events[1:]]
    assert notes == [("ops", "made links for alice"), ("ops", "made links for corp:dora"),
                     ("alice", "approved, 1 of 3, by a link that ops made: fine"),
                     ("corp:dora", "approved, 2 of 3, by a link that ops made: fine")], notes
    assert provider.writes() == []


def test_a_link_dies_with_the_right_that_it_rests_on(world, provider, issuer):
    tools = {"refund": refund()}
    server = {"auth": "tokens", "links": {"base": "https://onced.example.com"}}
    onced = world.onced(tools, server={**server, "jwt": {"corp": issuer.section(prefix="corp:")}})
    ops, admin = token(onced, "ops", "operator"), token(onced, "root", "admin")
    token(onced, "alice", "approver")
    dora = {"Authorization": f"Bearer {issuer.token(sub='dora', roles=['app-approver'])}"}
    onced.client.get("/v1/tools", headers=dora)
    held = waiting(onced, headers=ops)
    made = {name: onced.client.post(f"/v1/operations/{held.id}/links", {"approver": name}, headers=admin)["approve"]
            for name in ("alice", "corp:dora")}
    [alice] = [each for each in onced.client.get("/v1/tokens", headers=admin)["tokens"] if each["principal"] == "alice"]
    onced.client.request("DELETE", f"/v1/tokens/{alice['id']}", headers=admin)
    for method in ("GET", "POST"):
        assert used(onced, made["alice"], method).status == 404
        assert used(onced, made["corp:dora"], "GET").status == 200  # rests on the issuer
    onced.stop()
    onced.configure(world.file(tools, server=server))  # which is taken out of the file
    onced.start()
    assert used(onced, made["corp:dora"]).status == 404
    assert onced.client.get(f"/v1/operations/{held.id}", headers=admin).state == "planned" and provider.writes() == []


# ---- what came before ----


def test_the_history_of_entities_is_shown(world, provider):
    """To approvers over REST, on the command line and on the page of a link: what was done lately with the order."""
    order = [{"type": "order", "id": "{payment_id}", "exclusive": "reject"}]
    tools = {"refund": refund(entities=order, redact=["/note"]), "credit": registry.write("credits", {"payment_id": TEXT}, entities=order)}
    onced = world.onced(tools, server={"links": {"base": "https://onced.example.com"}})
    credits = [onced.call("credit", {"payment_id": name}, key=f"{name}:{n}").id for n in range(2) for name in ("p1", "p10", "p1<")]
    denied = waiting(onced)
    deny(onced, denied.id, "alice")
    held = waiting(onced, arguments={**REFUND, "amount_cents": 1})
    view = person(onced, "alice").get(f"/v1/operations/{held.id}/approval")
    [entity] = view["entities"]
    assert (entity["type"], entity["id"]) == ("order", "p1")
    shown = [(each["operation_id"], each["tool"], each["status"]) for each in entity["operations"]]
    assert shown == [(denied.id, "refund", "rejected"), (credits[3], "credit", "completed_success"), (credits[0], "credit", "completed_success")]
    assert [each["operation_id"] for each in view["earlier"]] == [denied.id]
    text = onced.cli("pending", held.id, "--server", f"http://127.0.0.1:{onced.port}", "--principal", "alice").stdout
    assert "lately with order p1" in text and all(each in text for each in (denied.id, credits[0], credits[3])) and credits[1] not in text
    links = onced.client.post(f"/v1/operations/{held.id}/links", {"approver": "alice"})
    page = used(onced, links["approve"], "GET").raw.decode()
    assert "Lately with order p1" in page and credits[0] in page and credits[1] not in page


# ---- over MCP ----


def test_a_model_is_told_that_people_were_asked(world, provider):
    """A pending result, no error: nothing that invites another call. The repeat after the approval is its result."""
    onced = world.onced({"refund": refund()})
    model = Mcp(onced.port)
    first = model.call("refund", REFUND, meta={"claudecode/toolUseId": "toolu_1"})
    assert first.state == "planned" and not first.is_error, first
    assert "waiting for approval" in first.text and "people have been asked" in first.text, first.text
    again = model.call("refund", REFUND, meta={"claudecode/toolUseId": "toolu_2"})
    assert again.id == first.id and again.state == "planned", again
    approve(onced, first.id, "alice")
    onced.settled(first.id)
    done = model.call("refund", REFUND, meta={"claudecode/toolUseId": "toolu_3"})
    assert done.id == first.id and done.state == "completed_success" and done.shape["replayed"], done
    judge(onced, provider, first.id, effects=1, dispatches=1)
    denied = model.call("refund", {**REFUND, "payment_id": "p2"})
    deny(onced, denied.id, "alice", "not this customer")
    told = model.call("refund", {**REFUND, "payment_id": "p2"})
    assert told.is_error and told.state == "rejected" and "not approved" in told.text, told
    assert len(provider.writes()) == 1
