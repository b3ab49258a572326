"""Multi-step tools (design 10.2), judged by the provider's count: in the end all steps are done or what was done is undone,
whoever asks, however often, whatever dies in between; what can not be undone is told to a person, by name.

The tool is an order: reserve and charge and ship and tell, at a provider that fails on demand. Its arguments say what goes wrong:
fault_STEP at the step's request, undo_STEP at the request of what undoes it (docs/fake-provider.md).

With ONCED_SWEEP set it kills at every pass of every mark, else at some of them, chosen by a seed that is printed."""

import itertools
import json
import os
import signal
import time

import pytest

from onced_e2e import binary, registry
from onced_e2e.client import LOST, Client
from onced_e2e.crash import Line, chance, rounds
from onced_e2e.figures import figure
from onced_e2e.process import Failed
from onced_e2e.provider import Provider
from onced_e2e.registry import INTEGER, TEXT
from onced_e2e.rpc import Legacy, Mcp
from onced_e2e.wait import Background, together, wait_until

MARKED = binary.find() and b"ONCED_KILL_AT" in binary.find().read_bytes()
CALLERS = 64
STEPS = ("reserve", "charge", "ship", "tell")
UNDOABLE = STEPS[:3]
COLLECTION = {"reserve": "reservations", "charge": "charges", "ship": "shipments", "tell": "messages"}
UNDO_COLLECTION = {"reserve": "releases", "charge": "refunds", "ship": "recalls"}
COLLECTIONS = [*COLLECTION.values(), *UNDO_COLLECTION.values()]
ESCALATE = {name: f"Look after the {name} by hand." for name in UNDOABLE}
QUICK = {"settle": "100ms", "lookup_interval": "20ms", "while_in_doubt": "allow",
         "retry": {"attempts": 20, "total": "1h", "backoff": "10ms", "backoff_max": "50ms"}}
MARKS = ["step_admitting", "admission_submitted", "admission_committed", "before_sql_commit", "log_written", "log_synced",
         "batch_committed", "before_send", "request_let_out", "request_written", "answer_received", "before_commit", "commit_done"]

FAULT = {"type": "string", "default": "success"}
order_ids = (f"o{n}" for n in itertools.count(1))


# ---- the registry ----


def undo_tool(name, **more):
    return registry.write(UNDO_COLLECTION[name], {"of": TEXT, "order_id": TEXT, "fake_fault?": TEXT}, **{**QUICK, **more})


def step_tool(name, keyed, more, collection=None):
    fields = {"order_id": TEXT, "n?": INTEGER, "reservation?": TEXT, "fake_fault?": TEXT, "undo_fault?": TEXT}
    playbook = {"tool": f"un{name}", "arguments": {"of": "{$external_id}", "order_id": "{order_id}", "fake_fault": "{undo_fault}"},
                "escalate": ESCALATE.get(name)}
    compensation = {"undo": playbook} if name in UNDOABLE else None
    # nothing of what knows no keys is proven absent before its time-out has passed; what undoes a step has a short one, too
    settings = {**QUICK, "timeout": "20s" if keyed else "1s", "compensation": compensation, **more}
    return registry.write(collection or COLLECTION[name], fields, keyed=keyed, **settings)


def order_tool(steps=None, **more):
    """steps: name → members that differ; None leaves the step out."""
    properties = {"order_id": TEXT, **{f"{kind}_{name}": FAULT for name in STEPS for kind in ("fault", "undo")},
                  "gift": {"type": "boolean", "default": False}}
    arguments = {name: {"order_id": "{order_id}", "fake_fault": f"{{fault_{name}}}", "undo_fault": f"{{undo_{name}}}"} for name in STEPS}
    arguments["ship"]["reservation"] = "{$steps.reserve.external_id}"
    arguments["charge"]["n"] = 7
    list_ = []
    for name in STEPS:
        step = {"name": name, "tool": name, "arguments": arguments[name], **({"undo": "undo"} if name in UNDOABLE else {}),
                **({"when": ".arguments.gift | not"} if name == "charge" else {}), **((steps or {}).get(name) or {})}
        if not steps or steps.get(name, {}) is not None:
            list_.append(step)
    tool = {"key": "order:{order_id}", "wait": "10s", "while_in_doubt": "allow", "steps": list_,
            "input_schema": {"type": "object", "required": ["order_id"], "properties": properties, "additionalProperties": False}, **more}
    return {name: value for name, value in tool.items() if value is not None}


def tools(steps=None, order=None, **more):
    """more: name of a tool → members that differ. Charges and messages are at the provider that knows no keys."""
    made = {"order": order_tool(steps, **(order or {}))}
    for name in STEPS:
        made[name] = step_tool(name, name in ("reserve", "ship"), more.get(name, {}))
    for name in UNDOABLE:
        made[f"un{name}"] = undo_tool(name, **more.get(f"un{name}", {}))
    return made


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """One provider and one daemon for all tests that need none of their own; orders tell them apart."""
    from conftest import World
    folder, processes = tmp_path_factory.mktemp("shop"), []
    provider = Provider(folder).start()
    world = World(folder, provider, processes)
    world.onced(tools(), server={"connections_max": 256})
    yield world
    world.stop()
    provider.stop()
    for process in (world.daemons[0].process, provider.process):
        assert not process.findings(), process.findings()


@pytest.fixture
def onced(shop):
    return shop.daemons[0]


def place(onced, order, client=None, wait_ms=None, timeout=20, **faults):
    return onced.call("order", {"order_id": order, **faults}, run_id=order, wait_ms=wait_ms, client=client, timeout=timeout)


# ---- the judge ----


def by_name(parent):
    return {step["name"]: step for step in parent["steps"]}


def statuses(parent):
    return [step["status"] for step in parent["steps"]]


def parents_of(onced, order):
    """All attempts at the order, as they are now."""
    return [onced.operation(each["operation_id"]) for each in onced.operations(run_id=order, tool="order", limit=100)]


def effects_of(world, order):
    """reference → effects at the provider for this order."""
    found = {}
    for collection in COLLECTIONS:
        for thing in world.provider.objects(collection, f"order_id={order}&limit=100"):
            found[thing["reference"]] = found.get(thing["reference"], 0) + 1
    return found


ENDS = {"completed_success": {"done", "skipped"}, "compensated": {"undone", "left", "failed", "skipped", "waiting"},
        "failed_permanent": {"failed", "skipped", "waiting"}}


def judge_steps(parent, effects):
    """Takes from effects what the parent accounts for."""
    assert set(statuses(parent)) <= ENDS[parent.state], parent
    for step in parent["steps"]:
        stands, undone = effects.pop(step["operation_id"], 0), effects.pop(step.get("undo_operation_id"), 0)
        wanted = {"done": (1, 0), "undone": (1, 1), "left": (1, 0), "failed": (0, 0), "skipped": (0, 0), "waiting": (0, 0)}
        assert (stands, undone) == wanted[step["status"]], (step, stands, undone)
        assert step["operation_id"] or step["status"] in ("skipped", "waiting", "failed"), step


def judge(onced, world, order, state=None, attempts=None):
    """Each attempt at the order is all done or all undone, by the provider's count, and nothing else was done for it."""
    parents, effects = parents_of(onced, order), effects_of(world, order)
    assert state is None or parents[0].state == state, parents
    assert attempts is None or len(parents) == attempts, parents
    for parent in parents:
        judge_steps(parent, effects)
    assert not effects, f"effects that no step accounts for: {effects}"
    assert sum(parent.state == "completed_success" for parent in parents) <= 1, parents
    return parents[0]


def undone_in_order(world, parent):
    """Names of what was undone, in the order in which the provider was asked."""
    asked = {}
    for step in parent["steps"]:
        for request in world.provider.writes(step.get("undo_operation_id") or "none"):
            asked[step["name"]] = request["n"]
    return sorted(asked, key=asked.get)


# ---- a call ----


def test_all_steps_are_done_once(shop, onced):
    order = next(order_ids)
    done = place(onced, order)
    assert (done.status, done.state, done["next_action"]) == (201, "completed_success", "use_result"), done
    assert statuses(done) == ["done"] * 4 and done["attempts"] == 0, done
    steps = by_name(done)
    shipment, = shop.provider.objects("shipments", f"order_id={order}")
    charge, = shop.provider.objects("charges", f"order_id={order}")
    assert shipment["reservation"] == onced.operation(steps["reserve"]["operation_id"])["external_id"]  # passed on
    assert charge["n"] == 7
    told = done["result"]["steps"]
    assert list(told) == list(STEPS) and told["ship"]["external_id"] == shipment["id"], told
    assert told["charge"]["result"]["id"] == charge["id"] and told["charge"]["status"] == "done", told
    step = onced.operation(steps["charge"]["operation_id"])
    assert (step["parent_operation_id"], step["key_source"], step["run_id"], step["step_id"]) == (done.id, "step", order, "charge")
    judge(onced, shop, order, "completed_success", attempts=1)
    again = place(onced, order)
    assert (again.id, again.replayed, again["result"]) == (done.id, True, done["result"]), again
    assert len(effects_of(shop, order)) == 4


@pytest.mark.parametrize("failing", STEPS)
def test_a_failed_step_has_the_others_undone_in_reverse(shop, onced, failing):
    order, before = next(order_ids), STEPS.index(failing)
    faults = {f"fault_{failing}": "402|success"}  # refused at the first attempt only
    ended = place(onced, order, **faults)
    assert ended.state == ("compensated" if before else "failed_permanent"), ended
    assert ended["reason"] == ("rolled_back" if before else "step_failed"), ended
    assert statuses(ended) == ["undone"] * before + ["failed"] + ["waiting"] * (3 - before), ended
    assert undone_in_order(shop, ended) == list(reversed(STEPS[:before])), ended
    assert failing in ended["error"]["message"] and ended["error"]["step"] == failing and ended["result"] is None, ended
    assert f"Step {failing} failed" in ended["safe_user_message"] and ended["next_action"] == "fix_arguments", ended
    judge(onced, shop, order, ended.state, attempts=1)
    again = place(onced, order, **faults)  # after the rollback the same call is a new attempt
    assert (again.state, again["key_version"], again["previous"], again.replayed) == ("completed_success", 2, ended.id, False), again
    judge(onced, shop, order, "completed_success", attempts=2)
    assert place(onced, order, **faults).id == again.id


@pytest.mark.on_both_ledgers
def test_64_callers_place_one_order(shop, onced):
    order = next(order_ids)
    lines = [Line(onced.port) for _ in range(CALLERS)]
    body = json.dumps({"tool": "order", "arguments": {"order_id": order, "fault_charge": "slow:200"}, "run_id": order}).encode()
    try:
        answers = together([lambda line=line: line.ask("POST", "/v1/calls", body) for line in lines])
    finally:
        for line in lines:
            line.close()
    assert {answer["operation_id"] for _, answer in answers} == {judge(onced, shop, order, "completed_success", attempts=1).id}
    assert {answer["status"] for _, answer in answers} == {"completed_success"}
    assert sum(status == 201 for status, _ in answers) == 1 and sum(not answer["replayed"] for _, answer in answers) == 1


def test_a_condition_that_does_not_hold_skips_the_step(shop, onced):
    order = next(order_ids)
    done = place(onced, order, gift=True)
    assert statuses(done) == ["done", "skipped", "done", "done"] and by_name(done)["charge"]["operation_id"] is None, done
    judge(onced, shop, order, "completed_success")
    order = next(order_ids)
    undone = place(onced, order, gift=True, fault_tell="402")
    assert statuses(undone) == ["undone", "skipped", "undone", "failed"], undone
    judge(onced, shop, order, "compensated")


def test_what_was_so_already_is_not_undone(world):
    onced = world.onced(tools(charge={"response": {"external_id": "/id", "noop": [402]}}))
    order = next(order_ids)
    ended = place(onced, order, fault_charge="402", fault_tell="402")
    assert (ended.state, statuses(ended)) == ("compensated", ["undone", "left", "undone", "failed"]), ended
    assert undone_in_order(world, ended) == ["ship", "reserve"] and "left" not in ended["safe_user_message"], ended


def test_a_plan_names_the_steps(shop, onced):
    order = next(order_ids)
    plan = onced.call("order", {"order_id": order}, dry_run=True)
    assert [step["name"] for step in plan["steps"]] == list(STEPS) and plan["steps"][0]["arguments"]["order_id"] == order, plan
    assert plan["steps"][2]["arguments"] is None  # needs what the reservation gives
    assert parents_of(onced, order) == [] and effects_of(shop, order) == {}


# ---- unknown outcomes ----


@pytest.mark.parametrize("fault, happened", [("close_after_commit", True), ("close_before_commit", False)])
def test_an_unknown_step_is_reconciled_before_anything_else(shop, onced, fault, happened):
    """The charge knows no keys: only the look-up tells. Nothing else happens for the order until it has."""
    order = next(order_ids)
    shop.provider.config(lookup_fault="lookup_500")
    try:
        parent = onced.submit("order", {"order_id": order, "fault_charge": f"{fault}|402"}, run_id=order)
        step = wait_until(lambda: by_name(onced.operation(parent))["charge"]["operation_id"], what="the charge")
        wait_until(lambda: onced.operation(step).state == "unknown_outcome", what="the unknown outcome")
        waiting = onced.operation(parent)
        assert (waiting.state, statuses(waiting)) == ("acknowledged", ["done", "running", "waiting", "waiting"]), waiting
        assert waiting["next_action"] == "wait" and "1 of 4 steps are done; charge is running" in waiting["safe_user_message"]
        counted = {key: n for key, n in shop.provider.truth()["by_key"].items() if key.endswith(f"/{order}")}
        assert counted == {f"reservations/{order}": 1, **({f"charges/{order}": 1} if happened else {})}, counted
    finally:
        shop.provider.config(lookup_fault="")
    ended = onced.settled(parent)
    assert ended.state == ("completed_success" if happened else "compensated"), ended
    judge(onced, shop, order, ended.state)


def test_what_undoes_a_step_may_be_unknown_too(shop, onced):
    order = next(order_ids)
    ended = place(onced, order, fault_tell="402", undo_charge="close_after_commit|402", undo_ship="timeout_after_commit|success")
    assert ended.state == "compensated" and undone_in_order(shop, ended) == ["ship", "charge", "reserve"], ended
    judge(onced, shop, order, "compensated")


# ---- scenarios of the case bank, as one multi-step call ----


def test_S35_one_multi_step_call_is_given_up_and_made_again(shop, onced):
    """The first worker leaves in the midst of it; the second one, beside what the first has left running, repeats nothing."""
    order = next(order_ids)
    slow = {f"fault_{name}": "slow:120" for name in STEPS}
    with pytest.raises(LOST):
        place(onced, order, client=Client(onced.port), timeout=0.2, **slow)
    done = place(onced, order, **slow)
    assert done.state == "completed_success" and judge(onced, shop, order, attempts=1).id == done.id, done
    assert [len(shop.provider.writes(step["operation_id"])) for step in done["steps"]] == [1] * 4


def test_S75_the_fallback_of_a_multi_step_call_writes_nothing_twice(shop, onced):
    """One of the chunks fails; the caller who does all of them again has each of them once in the end."""
    order = next(order_ids)
    failed = place(onced, order, fault_ship="402|success")
    assert failed.state == "compensated" and failed["error"]["step"] == "ship", failed  # named
    assert place(onced, order, fault_ship="402|success").state == "completed_success"
    judge(onced, shop, order, "completed_success", attempts=2)
    standing = {name: len(shop.provider.objects(COLLECTION[name], f"order_id={order}")) -
                len(shop.provider.objects(UNDO_COLLECTION[name], f"order_id={order}")) for name in UNDOABLE}
    assert standing == {"reserve": 1, "charge": 1, "ship": 1}, standing


def test_S76_the_lost_chunk_of_a_multi_step_call_is_looked_up(shop, onced):
    """Committed, its answer lost: looked up, not sent again; then the rest is sent."""
    order = next(order_ids)
    done = place(onced, order, fault_charge="close_after_commit|402")
    assert (done.state, statuses(done)) == ("completed_success", ["done"] * 4), done
    rows = onced.attempt_rows(by_name(done)["charge"]["operation_id"])
    assert [row["kind"] for row in rows].count("call") == 1 and "found" in [row["outcome"] for row in rows], rows
    judge(onced, shop, order, "completed_success", attempts=1)


# ---- people ----


def stuck(shop, onced, order):
    """The charge can not be paid back: the reservation before it is kept until a person decides."""
    faults = {"fault_ship": "402|success", "undo_charge": "402|success"}
    parent = place(onced, order, **faults)
    assert (parent.state, parent["reason"], parent["next_action"]) == ("compensating", "needs_operator", "ask_human"), parent
    assert statuses(parent) == ["done", "stuck", "failed", "waiting"], parent
    assert "charge" in parent["safe_user_message"] and "a person looks at it" in parent["safe_user_message"], parent
    incident, = [each for each in onced.incidents(parent.id) if each["kind"] == "compensation_failed"]
    assert "charge" in incident["note"] and ESCALATE["charge"] in incident["note"], incident
    assert not shop.provider.objects("releases", f"order_id={order}")
    joined = place(onced, order, wait_ms=0, **faults)  # nothing new begins before the rollback has ended
    assert (joined.id, joined.replayed) == (parent.id, True), joined
    return parent


def resolve(onced, parent, happened):
    return onced.client.post(f"/v1/operations/{parent.id}/resolve", {
        "version": onced.operation(parent.id)["version"], "happened": happened, "note": "looked at it"})


@pytest.mark.parametrize("happened, status", [(False, "undone"), (True, "left")])
def test_a_person_decides_on_a_stuck_step(shop, onced, happened, status):
    order = next(order_ids)
    parent = stuck(shop, onced, order)
    said = resolve(onced, parent, happened)
    assert said.status in (200, 202), said
    ended = onced.settled(parent.id)
    assert (ended.state, statuses(ended)) == ("compensated", ["undone", status, "failed", "waiting"]), ended
    assert len(shop.provider.objects("releases", f"order_id={order}")) == 1
    assert ("left as it is: charge" in ended["safe_user_message"]) == happened, ended
    assert place(onced, order, fault_ship="402|success", undo_charge="402|success").state == "completed_success"


def test_a_person_has_it_tried_again(shop, onced):
    order = next(order_ids)
    parent = stuck(shop, onced, order)
    again = onced.cli("retry", parent.id, "--note", "the bank is back", "--server", f"http://127.0.0.1:{onced.port}")
    assert parent.id in again.stdout, again
    ended = onced.settled(parent.id)
    assert (ended.state, statuses(ended)) == ("compensated", ["undone", "undone", "failed", "waiting"]), ended
    judge(onced, shop, order, "compensated")


def test_the_command_line_shows_where_it_is(shop, onced):
    order = next(order_ids)
    parent = stuck(shop, onced, order)
    at = ["--server", f"http://127.0.0.1:{onced.port}"]
    for command in ("show", "trace"):
        text = onced.cli(command, parent.id, *at, check=False).stdout
        assert "stuck    charge" in text and "done     reserve" in text and "failed   ship" in text, text
        assert f"onced resolve {parent.id} --did-not-happen" in text, text
    step = by_name(parent)["charge"]["operation_id"]
    assert f"step of       {parent.id}" in onced.cli("show", step, *at, check=False).stdout
    said = onced.cli("resolve", parent.id, "--did-not-happen", "--note", "paid back by hand", *at)
    assert parent.id in said.stdout, said
    assert onced.settled(parent.id).state == "compensated"


def test_a_step_that_can_not_be_undone_is_a_persons(world):
    onced = world.onced(tools({"ship": {"undo": "escalate"}, "charge": {"undo": "leave"}}))
    order = next(order_ids)
    parent = place(onced, order, fault_tell="402")
    assert (parent.state, parent["reason"], statuses(parent)) == ("compensating", "needs_operator", ["done", "done", "stuck", "failed"])
    assert len(effects_of(world, order)) == 3
    assert resolve(onced, parent, True).status in (200, 202)
    ended = onced.settled(parent.id)
    assert (ended.state, statuses(ended)) == ("compensated", ["undone", "left", "left", "failed"]), ended
    judge(onced, world, order, "compensated")


def test_cancel_lets_the_running_step_end(shop, onced):
    order = next(order_ids)
    parent = onced.submit("order", {"order_id": order, "fault_ship": "timeout_after_commit"}, run_id=order)
    wait_until(lambda: by_name(onced.operation(parent))["ship"]["operation_id"], what="the shipment")
    wait_until(lambda: shop.provider.objects("shipments", f"order_id={order}"), what="its request")
    cancelled = onced.client.post(f"/v1/operations/{parent}/cancel", {"note": "the customer has changed her mind"})
    assert cancelled.status in (200, 202), cancelled
    shop.provider.release()
    ended = onced.settled(parent)
    assert (ended.state, ended["reason"]) == ("compensated", "cancelled"), ended
    assert statuses(ended) == ["undone", "undone", "undone", "waiting"] and ended["next_action"] == "do_not_retry", ended
    assert "cancelled" in ended["safe_user_message"], ended
    judge(onced, shop, order, "compensated")


def test_a_single_step_is_not_undone_behind_the_order(shop, onced):
    order = next(order_ids)
    parent = stuck(shop, onced, order)
    step = by_name(parent)["reserve"]["operation_id"]
    refused = onced.client.post(f"/v1/operations/{step}/compensate", {"playbook": "undo"})
    assert refused.status == 409 and "step" in refused["detail"], refused
    assert resolve(onced, parent, False).status in (200, 202)
    assert onced.settled(parent.id).state == "compensated"


def test_people_may_be_asked_for_one_step(world):
    onced = world.onced(tools(charge={"approval": "required"}))
    order = next(order_ids)
    parent = onced.submit("order", {"order_id": order}, run_id=order)
    step = wait_until(lambda: by_name(onced.operation(parent))["charge"]["operation_id"], what="the charge")
    assert wait_until(lambda: onced.operation(step)["reason"] == "awaiting_approval", what="the question")
    assert statuses(onced.operation(parent)) == ["done", "running", "waiting", "waiting"]
    other = Client(onced.port, headers={"Onced-Principal": "boss"})
    assert other.post(f"/v1/operations/{step}/approve", {}).status == 202
    assert onced.settled(parent).state == "completed_success"
    order = next(order_ids)
    parent = onced.submit("order", {"order_id": order}, run_id=order)
    step = wait_until(lambda: by_name(onced.operation(parent))["charge"]["operation_id"], what="the charge")
    assert other.post(f"/v1/operations/{step}/deny", {"note": "no"}).status == 200
    assert onced.settled(parent).state == "compensated"
    judge(onced, world, order, "compensated")


# ---- entities, the registry, MCP ----


def test_steps_share_what_the_order_holds(world):
    entity = [{"type": "order", "id": "{order_id}", "exclusive": "reject"}]
    onced = world.onced(tools(order={"entities": entity}, **{name: {"entities": entity} for name in STEPS},
                              unreserve={"entities": entity}))
    order = next(order_ids)
    parent = Background(place, onced, order, fault_ship="timeout_after_commit", fault_tell="402")
    wait_until(lambda: world.provider.objects("shipments", f"order_id={order}"), what="the shipment")
    busy = onced.call("reserve", {"order_id": order})  # from outside
    assert (busy.status, busy.problem) == (409, "entity_busy"), busy
    world.provider.release()
    assert parent.result().state == "compensated"
    judge(onced, world, order, "compensated")
    assert onced.call("reserve", {"order_id": order}).state == "completed_success"  # given back


def test_another_list_of_steps_begins_nothing_in_what_runs(world):
    onced = world.onced(tools(charge={"approval": "required"}))
    order = next(order_ids)
    parent = onced.submit("order", {"order_id": order}, run_id=order)
    step = wait_until(lambda: by_name(onced.operation(parent))["charge"]["operation_id"], what="the charge")
    onced.reload(world.file(tools({"tell": None, "ship": {"undo": "leave"}}, charge={"approval": "required"})))
    assert Client(onced.port, headers={"Onced-Principal": "boss"}).post(f"/v1/operations/{step}/approve", {}).status == 202
    held = wait_until(lambda: (now := onced.operation(parent))["reason"] == "steps_changed" and now, what="that it stands still")
    assert statuses(held) == ["done", "done", "waiting", "waiting"] and held["next_action"] == "ask_human", held
    assert onced.client.post(f"/v1/operations/{parent}/cancel", {}).status in (200, 202)
    assert onced.settled(parent).state == "compensated"
    judge(onced, world, order, "compensated")


@pytest.mark.parametrize("era", [Legacy, Mcp])
def test_a_call_over_mcp(shop, onced, era):
    client, order = era(onced.port), next(order_ids)
    done = client.call("order", {"order_id": order})
    assert done.state == "completed_success" and not done.is_error and statuses(done.shape) == ["done"] * 4, done
    order = next(order_ids)
    ended = client.call("order", {"order_id": order, "fault_ship": "402"})
    assert ended.state == "compensated" and ended.is_error and statuses(ended.shape) == ["undone", "undone", "failed", "waiting"], ended
    assert "Step ship failed; what was done before has been undone: nothing stands." in ended.text, ended
    assert "is a new one" in ended.text and len(effects_of(shop, order)) == 4, ended


def test_a_client_that_gives_up_has_nothing_undone(shop, onced):
    """Many clients cancel a call that takes them too long."""
    client, order = Legacy(onced.port), next(order_ids)
    call = Background(client.call, "order", {"order_id": order, "fault_charge": "timeout_after_commit"}, id=77)
    wait_until(lambda: shop.provider.objects("charges", f"order_id={order}"), what="the charge")
    Legacy.notify(client, "notifications/cancelled", {"requestId": 77, "reason": "timeout"})
    parent, = [each for each in onced.operations(tool="order", limit=1)]
    wait_until(lambda: onced.waiters() == 0, what="that the caller is gone")
    shop.provider.release()
    ended = onced.settled(parent["operation_id"])
    assert ended.state == "completed_success" and len(effects_of(shop, order)) == 4, ended
    del call


# ---- kill -9 ----


def end_of(onced, order, **faults):
    """What becomes of the order after a death: nobody has to ask; when it was not recorded, it is placed."""
    if not parents_of(onced, order):
        place(onced, order, **faults)
    for parent in parents_of(onced, order):
        onced.settled(parent.id, seconds=30)


def died_at(onced, order, mark, n, faults):
    """Whether the daemon dies at the n-th pass of the mark: while it starts, works on the order, or stops."""
    onced.prefix = ("env", f"ONCED_KILL_AT={mark}:{n}")
    try:
        onced.start()
        place(onced, order, **faults)
        end_of(onced, order, **faults)
        status = onced.process.terminate()
    except (Failed, *LOST) as lost:
        assert "did not stop" not in str(lost), lost
        wait_until(lambda: not onced.process.alive(), what="the death")
        status = onced.process.child.returncode
    onced.prefix = ()
    assert status in (0, -signal.SIGKILL), f"status {status}\n{onced.process.text()[-4000:]}"
    return status != 0


def sweep(onced, world, marks, faults, states):
    """Kills at each pass of each mark from `first` to `last`, or until a run lives. (deaths, orders by how they ended)."""
    deaths, ends = 0, {}
    for mark, first, last in marks:
        for n in itertools.count(first):
            order = next(order_ids)
            dead = died_at(onced, order, mark, n, faults)
            deaths += dead
            onced.start()
            end_of(onced, order, **faults)
            state = judge(onced, world, order).state
            assert state in states, (mark, n, state)
            ends[state] = ends.get(state, 0) + 1
            onced.stop()
            if not dead or n == last:
                break
    return deaths, ends


@pytest.mark.skipif(not MARKED, reason="needs a build with kill points")
@pytest.mark.parametrize("name, faults, states", [
    # a charge or message that the look-up proves absent after the death has failed: it is never sent again on suspicion
    ("forward", {}, {"completed_success", "compensated"}),
    ("back", {"fault_tell": "402"}, {"compensated"}),
    ("unclear", {"fault_charge": "close_after_commit|402", "fault_tell": "402", "undo_charge": "close_after_commit|402"}, {"compensated"}),
])
def test_killed_at_every_position(world, name, faults, states):
    onced = world.prepare(tools())
    onced.start()
    onced.stop()  # the ledger is there: the marks of its creation are not passed
    if os.environ.get("ONCED_SWEEP"):
        marks = [(mark, 1, None) for mark in MARKS]
    else:
        random = chance()
        marks = [(mark, n, n) for mark in random.sample(MARKS, 3) for n in [random.randint(1, 9 if faults else 5)]]
    deaths, ends = sweep(onced, world, marks, faults, states)
    assert deaths or not os.environ.get("ONCED_SWEEP")
    assert "completed_success" in ends or "completed_success" not in states
    figure("steps killed", f"{name}: {deaths} deaths at {len(marks)} marks, orders ended {ends}, each effect once and accounted for",
           deaths=deaths, way=name, marks=len(marks))


@pytest.mark.on_both_ledgers
def test_kill_9_at_any_time(world):
    """Killed at random while 16 orders are under way, with steps and rollbacks that lose answers and are refused."""
    random = chance()
    onced = world.onced(tools(order={"retain": "1d"}), server={"connections_max": 256})
    ways = [{}, {"fault_ship": "402"}, {"fault_tell": "402", "undo_charge": "close_after_commit|402"},
            {"fault_charge": "close_after_commit|402"}, {"fault_reserve": "timeout_after_commit:60|success"}]
    ends = {}
    for _ in range(rounds(2)):
        orders = {next(order_ids): random.choice(ways) for _ in range(16)}

        def ask(order, faults):
            try:
                place(onced, order, client=Client(onced.port), timeout=5, **faults)
            except LOST:
                pass

        callers = [Background(ask, order, faults) for order, faults in orders.items()]
        wait_until(lambda: world.provider.effects() > 0, what="an effect")
        for _ in range(2):
            time.sleep(random.random() * 0.15)
            onced.kill()
            onced.start()
        for caller in callers:
            caller.result()
        for order, faults in orders.items():
            end_of(onced, order, **faults)
            parent = judge(onced, world, order)
            assert parent.state == "compensated" or (parent.state == "completed_success" and "402" not in faults.values()), parent
            ends[parent.state] = ends.get(parent.state, 0) + 1
    truth = world.provider.truth()
    assert truth["duplicates_by_reference"] == 0, truth
    figure("steps under kill -9", f"{sum(ends.values())} orders, {2 * rounds(2)} deaths: {ends}, each effect once", **ends)
