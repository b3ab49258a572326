"""Scenarios of the case bank about which calls are the same call. The numbers in the names are the bank's."""

import itertools
import json
import time
import unicodedata

import pytest

from onced_e2e import registry
from onced_e2e.client import Client
from onced_e2e.judge import judge, never_failed
from onced_e2e.registry import INTEGER, NUMBER, TEXT
from onced_e2e.wait import Background, together, wait_until

pytestmark = pytest.mark.provider_timeout(registry.PATIENT)

ANY = {}
REFUND = {"payment_id": "p1", "amount_cents": 2500}


def conflict(answer, operation):
    return answer.status == 422 and answer.problem == "key_reused" and answer.id == operation


# ---- S12, over REST: a new session is the same caller ----


def give_up(onced, provider, **named):
    """A call whose caller leaves while it is on the wire, where it is held."""
    provider.script("timeout_after_commit")
    with pytest.raises(TimeoutError):
        onced.call("pay", REFUND, client=Client(onced.port), timeout=0.3, **named)
    wait_until(lambda: provider.effects() == 1 and onced.waiters() == 0, what="the request, and that its caller is gone")


def come_again(onced, provider, **named):
    """The next session's answer; it comes while the first one's request is still held."""
    again = Background(onced.call, "pay", REFUND, client=Client(onced.port), **named)
    wait_until(lambda: onced.waiters() == 1, what="the second caller")
    provider.release()
    return again.result()


def test_S12_a_new_session_finds_the_first_call(world, provider):
    onced = world.onced({"pay": registry.refund()})
    give_up(onced, provider, key="k", session_id="s1")
    again = come_again(onced, provider, key="k", session_id="s2")
    assert again.state == "completed_success" and again.replayed, again
    judge(onced, provider, again.id, effects=1, dispatches=1)


def test_S12_without_any_key_and_session(world, provider):
    onced = world.onced({"pay": registry.refund()})
    give_up(onced, provider)
    again = come_again(onced, provider)
    assert again.state == "completed_success" and again.replayed, again
    judge(onced, provider, again.id, effects=1, dispatches=1)


@pytest.mark.parametrize("key", [None, "k"], ids=["no key", "caller key"])
def test_S12_never_again_while_the_first_is_unknown(world, provider, key):
    """Nothing can be looked up: each new session is told about the one operation, that it may have happened, and what to do."""
    onced = world.onced({"pay": registry.refund(keyed=False, look=False, timeout="1s")})
    give_up(onced, provider, key=key, session_id="s1")
    operation = onced.operations()[0]["operation_id"]
    assert onced.settled(operation).state == "unknown_outcome"
    for session in ("s2", "s3"):
        again = onced.call("pay", REFUND, key=key, session_id=session, client=Client(onced.port))
        assert again.id == operation and again.replayed and again.status == 202, again
        assert again.state == "unknown_outcome" and again["next_action"] == "ask_human" and operation in again["note"]
    judge(onced, provider, operation, effects=1, dispatches=1)
    assert len(provider.writes()) == 1
    never_failed(onced, operation)


# ---- S16: the model was told that the key must be new on every request ----


def test_S16_a_new_key_while_the_first_is_unknown_is_held(world, provider):
    onced = world.onced({"pay": registry.refund(reconcile=["lookup", "resend", "manual"], while_in_doubt="hold", settle="10s")})
    provider.config(lookup_fault="lookup_500")
    provider.script("close_after_commit")
    first = onced.call("pay", REFUND, key="k1", wait_ms=0)
    wait_until(lambda: onced.operation(first.id).state == "unknown_outcome", what="the lost answer")
    second = onced.call("pay", REFUND, key="k2", wait_ms=300)
    assert (second.status, second.problem, second.id) == (409, "in_doubt", first.id), second
    assert onced.by_key("pay", "k2").status == 404
    provider.config(lookup_fault="")
    done = onced.settled(first.id)
    assert done.state == "completed_success", done
    judge(onced, provider, first.id, effects=1, dispatches=1)
    assert provider.effects() == 1
    # the key that counts replays
    assert onced.call("pay", REFUND, key="k1").replayed


def test_S16_the_first_key_is_sent_again_never_the_second(world, provider):
    """Settled by replay: every request at the provider carries the one key of the first operation, which is kept."""
    onced = world.onced({"pay": registry.refund(reconcile=["resend", "manual"], while_in_doubt="hold",
                                                retry={"attempts": 1000, "total": "1h", "backoff": "50ms", "backoff_max": "50ms"})})
    provider.script("close_after_commit", {"fault": "in_use", "times": 1000})
    first = onced.call("pay", REFUND, key="k1", wait_ms=0)
    wait_until(lambda: len(provider.writes()) >= 2, what="that it is sent again")
    for key in ("k2", "k3"):
        held = onced.call("pay", REFUND, key=key, wait_ms=300)
        assert (held.status, held.problem, held.id) == (409, "in_doubt", first.id), held
        assert first.id in held["detail"], "which one counts"
    provider.client.request("DELETE", "/_fake/script")
    done = onced.settled(first.id)
    assert done.state == "completed_success" and done["external_id"] == provider.objects("refunds")[0]["id"], done
    judge(onced, provider, first.id, effects=1, dispatches=len(provider.writes()))
    assert provider.effects() == 1 and provider.writes()[-1]["replayed"]
    assert onced.by_key("pay", "k1").id == first.id and onced.by_key("pay", "k2").status == 404


# ---- S17: one key per client instead of one per operation ----


def test_S17_each_order_has_its_own_provider_key(world, provider):
    onced = world.onced({"pay": registry.refund()})
    ten = {"payment_id": "order-1", "amount_cents": 1000}
    twenty = {"payment_id": "order-2", "amount_cents": 2000}
    provider.script({"fault": "close_after_commit", "payment_id": "order-1"})
    one, two = onced.call("pay", ten, key="o1"), onced.call("pay", twenty, key="o2")
    assert one.state == two.state == "completed_success"
    assert one["external_id"] != two["external_id"] and provider.effects() == 2
    assert len(provider.keys(one.id)) == len(provider.keys(two.id)) == 1
    assert provider.keys(one.id) != provider.keys(two.id)
    again = onced.call("pay", ten, key="o1")
    assert again.replayed and again["external_id"] == one["external_id"]
    judge(onced, provider, one.id, effects=1, dispatches=2)
    assert provider.effects() == 2


def test_S17_a_static_key_header_is_refused_at_start(world):
    contents = world.file({"pay": registry.refund()})
    contents["providers"]["keyed"]["headers"] = {"Idempotency-Key": "the-same-for-all"}
    onced = world.prepare({})
    onced.configure(contents)
    done = onced.cli("check", onced.file, check=False)
    assert done.returncode != 0 and "Idempotency-Key" in done.stdout + done.stderr, done


# ---- S40: canonical form ----


def test_S40_order_of_members_does_not_matter(world, provider):
    onced = world.onced({"run": registry.write("runs", {"plan": ANY})})
    one = '{"plan":{"a":1,"b":{"c":{"x":1,"y":[{"m":1,"n":2}]},"d":2}}}'
    two = '{ "plan" : {"b":{"d":2.0,"c":{"y":[{"n":2,"m":1}],"x":1}},"a":1e0} }'
    answers = [onced.client.post("/v1/calls", raw=b'{"tool":"run","idempotency_key":"k","arguments":%s}' % text.encode())
               for text in (one, two)]
    assert answers[0].state == "completed_success" and answers[1].replayed, answers[1]
    assert answers[1].id == answers[0].id
    judge(onced, provider, answers[0].id, effects=1, dispatches=1)


def test_S40_order_of_arrays_does(world, provider):
    onced = world.onced({"run": registry.write("runs", {"steps": {"type": "array"}})})
    first = onced.call("run", {"steps": ["charge", "ship"]}, key="k")
    second = onced.call("run", {"steps": ["ship", "charge"]}, key="k")
    assert conflict(second, first.id), second
    assert all(pointer.startswith("/steps") for pointer in second["differing"])
    assert provider.effects() == 1 and provider.objects("runs")[0]["steps"] == ["charge", "ship"]


@pytest.mark.parametrize("declared", [False, True], ids=["list", "set"])
def test_S40_unless_the_field_is_declared_a_set(world, provider, declared):
    tool = registry.write("mails", {"to": {"type": "array", "items": TEXT}}, normalize={"to": "sort"} if declared else None)
    onced = world.onced({"mail": tool})
    first = onced.call("mail", {"to": ["b@x", "a@x"]}, key="k")
    second = onced.call("mail", {"to": ["a@x", "b@x"]}, key="k")
    assert second.replayed and second.id == first.id if declared else conflict(second, first.id), second
    judge(onced, provider, first.id, effects=1, dispatches=1)


# ---- S42: big integers ----

BIG, SMALL = 9007199254740993, 9007199254740992


def test_S42_big_integers_are_different_under_one_key(world, provider):
    onced = world.onced({"order": registry.write("orders", {"order_id": INTEGER})})
    first = onced.call("order", {"order_id": BIG}, key="k")
    assert conflict(onced.call("order", {"order_id": SMALL}, key="k"), first.id)
    assert provider.effects() == 1


@pytest.mark.parametrize("business", [None, "order:{order_id}"], ids=["no key", "business key"])
def test_S42_and_reach_the_provider_digit_by_digit(world, provider, business):
    onced = world.onced({"order": registry.write("orders", {"order_id": NUMBER}, key=business)})
    digits = ["9007199254740993", "9007199254740992", "123456789012345678901234567890", "0.1000000000000000055511151231257827"]
    ids = set()
    for text in digits:
        answer = onced.client.post("/v1/calls", raw=b'{"tool":"order","arguments":{"order_id":%s}}' % text.encode())
        assert answer.state == "completed_success", answer
        assert f'"order_id":{text}'.encode() in answer.raw
        ids.add(answer.id)
    assert len(ids) == len(digits) and provider.effects() == len(digits)
    stored = provider.client.get("/v1/orders?").raw.decode()
    assert all(f'"order_id":{text}' in stored for text in digits), stored


# ---- S43: Unicode forms and upgrades of the canonical form ----

NFC = unicodedata.normalize("NFC", "Café")
NFD = unicodedata.normalize("NFD", "Café")


@pytest.mark.parametrize("normal", [None, {"title": ["nfc", "trim", "collapse_space"]}], ids=["plain", "nfc"])
def test_S43_nfc_and_nfd_make_no_second_effect(world, provider, normal):
    assert NFC != NFD
    onced = world.onced({"page": registry.write("pages", {"title": TEXT}, normalize=normal)})
    first = onced.call("page", {"title": NFC}, key="k")
    second = onced.call("page", {"title": NFD}, key="k")
    assert second.replayed and second.id == first.id if normal else conflict(second, first.id), second
    judge(onced, provider, first.id, effects=1, dispatches=1)
    if normal:
        assert onced.call("page", {"title": f" {NFD} "}, key="k").replayed


def test_S43_other_texts_that_look_alike_stay_different(world, provider):
    """U+00C5 and U+212B are canonically equivalent: one text only where the tool says nfc."""
    onced = world.onced({"page": registry.write("pages", {"title": TEXT})})
    first, second = onced.call("page", {"title": "\u00c5"}), onced.call("page", {"title": "\u212b"})
    assert first.id != second.id and provider.effects() == 2


@pytest.mark.parametrize("business", [None, "page:{title}"], ids=["caller key", "business key"])
def test_S43_upgrade_of_the_canonical_form(world, provider, business):
    onced = world.onced({"page": registry.write("pages", {"title": TEXT, "text?": TEXT}, key=business)})
    key = None if business else "k"
    first = onced.call("page", {"title": NFC, "text": "t"}, key=key)
    onced.stop()
    # as if an older onced had recorded it: another version of the canonical form, hence another fingerprint
    onced.change("UPDATE operations SET canonical_version = 0, fingerprint = ?, repeat_hash = 0 WHERE id = ?", (bytes(32), first.id))
    onced.start()
    second = onced.call("page", {"title": NFC, "text": "t"}, key=key)
    assert second.replayed and second.id == first.id, second
    assert conflict(onced.call("page", {"title": NFC, "text": "other"}, key=key), first.id)
    judge(onced, provider, first.id, effects=1, dispatches=1)


def test_S43_upgrade_compares_without_volatile_fields(world, provider):
    onced = world.onced({"page": registry.write("pages", {"title": TEXT, "trace": TEXT}, volatile=["/trace"])})
    first = onced.call("page", {"title": NFC, "trace": "t-1"}, key="k")
    onced.stop()
    onced.change("UPDATE operations SET canonical_version = 0, fingerprint = ? WHERE id = ?", (bytes(32), first.id))
    onced.start()
    second = onced.call("page", {"title": NFC, "trace": "t-2"}, key="k")
    assert second.replayed and second.id == first.id, second
    assert conflict(onced.call("page", {"title": "other", "trace": "t-3"}, key="k"), first.id)
    judge(onced, provider, first.id, effects=1, dispatches=1)


# ---- S45: joins without or with unescaped separators ----


def test_S45_tenant_and_tool_are_not_joined_as_text(world, provider):
    tool = registry.refund()
    onced = world.onced({"b.c": tool, "c": tool})
    first = onced.call("b.c", REFUND, key="k", tenant="a")
    second = onced.call("c", REFUND, key="k", tenant="a.b")
    assert first.state == second.state == "completed_success", second
    assert first.id != second.id and not second.replayed and provider.effects() == 2
    assert first["external_id"] != second["external_id"]


def test_S45_business_keys_escape_their_separators(world, provider):
    onced = world.onced({"doc": registry.write("docs", {"a": TEXT, "b": TEXT}, key="doc:{a}:{b}")})
    pairs = [("a:b", "c"), ("a", "b:c"), ("doc-7", "12"), ("doc-71", "2"), ("a%3Ab", "c"), ("{a}", "b"), ("", "a:b"), ("a:b", "")]
    answers = [onced.call("doc", {"a": a, "b": b}) for a, b in pairs]
    assert all(answer.state == "completed_success" and not answer.replayed for answer in answers), answers
    assert len({answer.id for answer in answers}) == len(pairs) == provider.effects()


def test_S45_property_distinct_components_distinct_keys(world):
    onced = world.onced({"doc": registry.write("docs", {"a": TEXT, "b": TEXT}, key="{a}:{b}")})
    components = ["", ":", "::", "%", "%3A", "%3a", "a", "a:", ":a", "{b}", "\t", "\n", "\u001f", "null", "é", "e\u0301", " ", "0", "00"]
    keys = {}
    for a, b in itertools.product(components, repeat=2):
        plan = onced.call("doc", {"a": a, "b": b}, dry_run=True)
        assert plan.status == 200 and plan["key_source"] == "business", plan
        assert keys.setdefault(plan["key"], (a, b)) == (a, b), plan
    assert len(keys) == len(components) ** 2


def test_S45_a_template_without_separators_gives_a_conflict_not_a_replay(world, provider):
    """Its author joined two places: ("doc-7","12") and ("doc-71","2") meet under one key and never share a result."""
    onced = world.prepare({"doc": registry.write("docs", {"a": TEXT, "b": TEXT}, key="{a}{b}")})
    checked = onced.cli("check", onced.file, check=False)
    if checked.returncode != 0:
        return  # refused outright: better still
    onced.start()
    first = onced.call("doc", {"a": "doc-7", "b": "12"})
    assert conflict(onced.call("doc", {"a": "doc-71", "b": "2"}), first.id)
    assert provider.effects() == 1


# ---- S46: no key in the request ----


def test_S46_missing_components_are_refused_by_name(world, provider):
    loose = {"customer?": {"type": ["string", "null"]}, "order?": {"type": ["string", "null"]}, "amount": INTEGER}
    onced = world.onced({"pay": registry.write("payments", loose, key="pay:{customer}:{order}")})
    calls = [{"amount": 5}, {"amount": 5}, {"customer": None, "order": None, "amount": 7}, {"customer": "c", "amount": 5},
             {"customer": "c", "order": None, "amount": 5}]
    for arguments in calls:
        answer = onced.call("pay", arguments)
        assert (answer.status, answer.problem) == (422, "invalid_arguments"), answer
        assert ("customer" if not arguments.get("customer") else "order") in answer["detail"], answer
    assert provider.requests() == [] and onced.operations() == []
    whole = onced.call("pay", {"customer": "null", "order": "None", "amount": 7})  # texts are texts
    assert whole.state == "completed_success"
    judge(onced, provider, whole.id, effects=1, dispatches=1)


# ---- S48: keys are compared byte by byte ----


def test_S48_keys_are_exact(world, provider):
    onced = world.onced({"pay": registry.refund()})
    keys = ["Run-A", "run-a", "run-a ", "x" * 255 + "a" * 45, "x" * 255 + "b" * 45, "RUN-A", "run-\u0430", " run-a"]
    answers = [onced.call("pay", REFUND, key=key) for key in keys]
    assert all(answer.state == "completed_success" and not answer.replayed for answer in answers), answers
    assert len({answer.id for answer in answers}) == len(keys) == provider.effects()
    for key, answer in zip(keys, answers):
        assert onced.by_key("pay", key).id == answer.id
        assert onced.call("pay", REFUND, key=key).id == answer.id
    assert provider.effects() == len(keys)


# ---- S49: a second, intended mutation runs ----


def test_S49_new_key_new_effect_same_key_replay(world, provider):
    onced = world.onced({"stock.add": registry.write("stock", {"sku": TEXT, "qty": INTEGER})})
    add = {"sku": "x", "qty": 1}
    first = onced.call("stock.add", add, key="k1")
    second = onced.call("stock.add", add, key="k2")
    assert not second.replayed and second.id != first.id and provider.effects() == 2
    third = onced.call("stock.add", add, key="k1")
    assert third.replayed and third.id == first.id and provider.effects() == 2


def test_S49_on_purpose_has_a_verb(world, provider):
    onced = world.onced({"stock.add": registry.write("stock", {"sku": TEXT, "qty": INTEGER})})
    add = {"sku": "x", "qty": 1}
    first = onced.call("stock.add", add)
    suppressed = onced.call("stock.add", add)
    assert suppressed.replayed and suppressed.id == first.id and "repeat_of" in suppressed["note"]
    assert suppressed.headers["Idempotency-Replayed"] == "true"
    again = onced.call("stock.add", add, repeat_of=first.id)
    assert again.id != first.id and not again.replayed and again["repeat_of"] == first.id, again
    retried = onced.call("stock.add", add, repeat_of=first.id)
    assert retried.id == again.id and retried.replayed and provider.effects() == 2


def test_S49_no_key_while_the_first_is_unknown(world, provider):
    onced = world.onced({"stock.add": registry.write("stock", {"sku": TEXT, "qty": INTEGER}, keyed=False, look=False)})
    provider.script("close_after_commit")
    first = onced.call("stock.add", {"sku": "x", "qty": 1})
    assert first.state == "unknown_outcome"
    again = onced.call("stock.add", {"sku": "x", "qty": 1})
    assert again.id == first.id and again.state == "unknown_outcome"
    rewritten = onced.call("stock.add", {"sku": "x", "qty": 2})
    assert (rewritten.status, rewritten.problem, rewritten.id) == (409, "in_doubt", first.id), rewritten
    assert len(provider.writes()) == 1
    other = onced.call("stock.add", {"sku": "y", "qty": 9}, distinct_from=[first.id])
    assert other.state == "completed_success" and provider.effects() == 2


# ---- S51: what is suppressed is told, and every id resolves ----


def test_S51_replay_then_expired_every_id_resolves(world, provider):
    onced = world.onced({"job.add": registry.refund(retain="1s", repeat_window="0ms")})
    first = onced.call("job.add", REFUND, key="k")
    again = onced.call("job.add", REFUND, key="k")
    assert again.id == first.id and again.replayed and again.state == "completed_success"
    late = wait_until(lambda: (lambda answer: answer if answer.status == 409 else None)(onced.call("job.add", REFUND, key="k")))
    assert late.problem == "result_expired" and late.id == first.id and late.state == "completed_success", late
    for answer in (first, again, late):
        found = onced.client.get(f"/v1/operations/{answer.id}")
        assert found.status != 404 and found.id == first.id, found
        assert found.state == "completed_success", found
    assert conflict(onced.call("job.add", {**REFUND, "amount_cents": 1}, key="k"), first.id)
    judge_by_key = provider.effects_of("refunds/p1")
    assert judge_by_key == 1 and len(provider.writes()) == 1


# ---- S54: tenants ----


def test_S54_a_foreign_key_is_invisible(world, provider):
    onced = world.onced({"pay": registry.refund()})
    a = onced.call("pay", REFUND, key="1", tenant="A")
    b = onced.call("pay", REFUND, key="1", tenant="B")
    assert a.state == b.state == "completed_success" and not b.replayed
    assert a.id != b.id and a["external_id"] != b["external_id"] and provider.effects() == 2
    assert a.id.encode() not in b.raw and f'"{a["external_id"]}"'.encode() not in b.raw
    # a changed body under the foreign key is no conflict either
    c = onced.call("pay", {**REFUND, "amount_cents": 1}, key="1", tenant="C")
    assert c.state == "completed_success" and provider.effects() == 3
    for path in (f"/v1/operations/{a.id}", f"/v1/operations/{a.id}/events", f"/v1/operations/{a.id}/attempts"):
        assert onced.client.get(path, headers={"Onced-Tenant": "B"}).status == 404
    listed = onced.client.get("/v1/operations", headers={"Onced-Tenant": "B"})
    assert [each["operation_id"] for each in listed["operations"]] == [b.id]


def test_S54_with_tokens(world, provider):
    onced = world.prepare({"pay": registry.refund()}, server={"auth": "tokens"})
    onced.start()
    tokens = {}
    for tenant in ("A", "B"):
        made = onced.cli("token", "create", "--ledger", onced.ledger, "--tenant", tenant, "--principal", "agent", "--role", "agent")
        tokens[tenant] = {"Authorization": "Bearer " + made.stdout.strip()}
    assert onced.call("pay", REFUND, key="1").status == 401
    a = onced.call("pay", REFUND, key="1", headers=tokens["A"])
    b = onced.call("pay", REFUND, key="1", headers=tokens["B"])
    assert a.state == b.state == "completed_success" and a.id != b.id and not b.replayed
    assert provider.effects() == 2 and a.id.encode() not in b.raw
    assert onced.client.get(f"/v1/operations/{a.id}", headers=tokens["B"]).status == 404
    # the header of the token-less mode names nobody here
    smuggled = onced.client.get(f"/v1/operations/{a.id}", headers={**tokens["B"], "Onced-Tenant": "A"})
    assert smuggled.status in (400, 403, 404), smuggled


# ---- S55: what selects the target belongs to the fingerprint ----


def test_S55_path_parameters_are_fingerprinted(world, provider):
    tool = registry.write("contexts", {"id": TEXT, "v": INTEGER}, look=False, keyed=True)
    tool["request"] = {"method": "PUT", "path": "/v1/contexts/{id}", "json": {"v": "{v}", "reference": "{$operation}"}}
    onced = world.onced({"feedback": tool})
    first = onced.call("feedback", {"id": "1", "v": 1}, key="k")
    second = onced.call("feedback", {"id": "2", "v": 1}, key="k")
    assert conflict(second, first.id) and second["differing"] == ["/id"], second
    judge(onced, provider, first.id, effects=1, dispatches=1)
    assert {entry["path"] for entry in provider.writes()} == {"/v1/contexts/1"}


# ---- S59: a key that can not be used is refused, never dropped ----

ODD_KEYS = ["", "   ", "k" * 300, "k" * 600, "a\u0001b", "line\nbreak", "del\u007f", 17, 1.5, True, None, ["k"], {"k": 1}, "\U0001f511", "\u00e9",
            "\u0000", "a\u0000b", "'\"\\", "\u200b"]


@pytest.mark.parametrize("key", ODD_KEYS, ids=lambda key: json.dumps(key)[:20])
def test_S59_exact_or_refused(world, provider, key):
    onced = world.onced({"pay": registry.refund()})
    body = {"tool": "pay", "arguments": REFUND, "idempotency_key": key}
    answers = [onced.client.post("/v1/calls", body) for _ in range(2)]
    if answers[0].status >= 400:
        assert {answer.status for answer in answers} == {400}, answers
        assert {answer.problem for answer in answers} <= {"key_invalid", "malformed"}, answers
        assert provider.requests() == []
    else:
        assert answers[1].replayed and answers[0].id == answers[1].id, answers
        assert answers[0]["key_source"] == "caller", "never a silent downgrade"
        judge(onced, provider, answers[0].id, effects=1, dispatches=1)
        other = onced.client.post("/v1/calls", {**body, "idempotency_key": f"{key}x"})
        assert other.id != answers[0].id


@pytest.mark.parametrize("value", ['""', '"open', '"a" b', '"a\\b"', " ", "a\tb", "k" * 600])
def test_S59_header_exact_or_refused(world, provider, value):
    onced = world.onced({"pay": registry.refund()})
    answers = [onced.call("pay", REFUND, headers={"Idempotency-Key": value}) for _ in range(2)]
    assert {answer.status for answer in answers} == {400} or (answers[1].replayed and answers[0]["key_source"] == "caller"), answers
    assert provider.effects() <= 1


def test_S59_header_forms_are_one_key(world, provider):
    onced = world.onced({"pay": registry.refund()})
    bare = onced.call("pay", REFUND, headers={"Idempotency-Key": "k-1"})
    quoted = onced.call("pay", REFUND, headers={"Idempotency-Key": '"k-1"'})
    member = onced.call("pay", REFUND, key="k-1")
    assert bare.id == quoted.id == member.id and provider.effects() == 1
    differ = onced.call("pay", REFUND, key="k-2", headers={"Idempotency-Key": "k-1"})
    assert differ.status == 400 and provider.effects() == 1


def test_S59_a_required_key_is_required(world, provider):
    onced = world.onced({"pay": registry.refund(identity="caller")})
    answer = onced.call("pay", REFUND)
    assert (answer.status, answer.problem) == (400, "key_missing") and provider.requests() == []
    assert onced.operations() == []


# ---- S62: mismatch is told at once, also while the first is running ----


def test_S62_mismatch_before_status(world, provider):
    onced = world.onced({"pay": registry.refund()})
    provider.script("timeout_after_commit")
    first = Background(onced.call, "pay", {"payment_id": "p", "amount_cents": 10}, key="k")
    wait_until(lambda: provider.effects() == 1)
    amended = onced.call("pay", {"payment_id": "p", "amount_cents": 12}, key="k")
    assert first.running(), "at once"
    assert amended.problem == "key_reused" and amended.status == 422 and amended.state == "dispatched", amended
    assert amended["differing"] == ["/amount_cents"]
    provider.release()
    done = first.result()
    assert done.state == "completed_success" and amended.id == done.id
    after = onced.call("pay", {"payment_id": "p", "amount_cents": 12}, key="k")
    assert conflict(after, done.id) and after.state == "completed_success"
    judge(onced, provider, done.id, effects=1, dispatches=1)
    assert provider.objects("refunds")[0]["amount_cents"] == 10


# ---- S88: transport success, tool success and effect are three things ----


def test_S88_a_tool_error_is_not_success(world, provider):
    onced = world.onced({"pay": registry.refund()})
    provider.script("refused:402")
    answer = onced.call("pay", REFUND)
    assert answer.status == 200 and answer.state == "failed_permanent" and answer["reason"] == "provider_refused", answer
    assert answer["error"]["code"] == "refused" and answer["result"] is None
    assert provider.effects() == 0 and len(provider.writes()) == 1


@pytest.mark.parametrize("fault, effects", [("error_200", 1), ("error_200_not_committed", 0)])
def test_S88_an_error_in_a_200_is_not_success(world, provider, fault, effects):
    """The transport succeeded, the tool did not, and whether there is an effect is a third thing."""
    onced = world.onced({"pay": registry.refund(keyed=False, look=False, response={"error_when": ".errors"})})
    provider.script(fault)
    answer = onced.call("pay", REFUND)
    assert answer["http_status"] == 200 and answer.state == "unknown_outcome" and answer["result"] is None, answer
    assert "success" not in answer["safe_user_message"].lower()
    judge(onced, provider, answer.id, effects=effects, dispatches=1)


def test_S88_a_suppressed_repeat_of_a_failure_tells_that_failure(world, provider):
    onced = world.onced({"pay": registry.refund()})
    provider.script("refused:402")
    first, repeat = onced.call("pay", REFUND), onced.call("pay", REFUND)
    assert repeat.id == first.id and repeat["replayed"] is True and repeat.state == "failed_permanent", repeat
    assert repeat["error"] == first["error"] and repeat["http_status"] == first["http_status"] == 402
    judge(onced, provider, first.id, effects=0, dispatches=1)


def test_S88_a_suppressed_repeat_carries_the_real_result(world, provider):
    onced = world.onced({"pay": registry.refund()})
    first, repeat = onced.call("pay", REFUND), onced.call("pay", REFUND)
    assert repeat["replayed"] is True and repeat["result"] == first["result"] and repeat["error"] is None
    assert repeat.status == 200 and repeat.state == "completed_success" and repeat["next_action"] == "use_result"
    judge(onced, provider, first.id, effects=1, dispatches=1)


# ---- many at once ----


def test_64_callers_with_one_key_make_one_call(world, provider):
    onced = world.onced({"pay": registry.refund()})
    provider.config(latency_ms=200)
    answers = together([lambda: onced.call("pay", REFUND, key="k") for _ in range(64)])
    assert len({(answer.id, answer.state, str(answer["result"])) for answer in answers}) == 1
    assert sum(not answer.replayed for answer in answers) == 1
    judge(onced, provider, answers[0].id, effects=1, dispatches=1)
