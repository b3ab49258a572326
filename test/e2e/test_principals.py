"""Who may do what: tokens limited to tools, entities, tenants and roles, and signed tokens of an identity provider, over REST
and MCP, for 64 callers at once, while keys change, the issuer is away and the daemon is killed (design 16)."""

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from onced_e2e import ledgers, registry
from onced_e2e.crash import rounds
from onced_e2e.figures import figure
from onced_e2e.issuer import AUDIENCE, Issuer, Key
from onced_e2e.rpc import Legacy, Mcp
from onced_e2e.wait import Background, together, wait_until

CALLERS = 64
TOOLS = {name: registry.refund() for name in ("refund.create", "refund.cancel", "payout.create")}
ARGUMENTS = {"payment_id": "p1", "amount_cents": 4900}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def issuer():
    issuer = Issuer().start()
    yield issuer
    issuer.stop()


def guarded(world, issuer=None, registered=TOOLS, **section):
    """A daemon that wants tokens, and takes the issuer's."""
    signed = {"jwt": {"corp": issuer.section(**section)}} if issuer else {}
    return world.onced(registered, server={"auth": "tokens", "connections_max": 512, **signed})


def made(onced, *options, tenant="acme", principal="agent", role="agent"):
    """A token of onced's own."""
    done = onced.cli("token", "create", "--ledger", onced.ledger, "--tenant", tenant, "--principal", principal, "--role", role,
                     *options)
    return done.stdout.strip()


def rest_tools(onced, token):
    answer = onced.client.get("/v1/tools", headers=bearer(token))
    assert answer.status == 200, answer
    return {tool["name"] for tool in answer["tools"]}


def mcp_tools(onced, token):
    return {name for name in Mcp(onced.port, headers=bearer(token)).tools() if not name.startswith("onced_")}


# ---- 64 callers ----

SCOPES = [("refund.*", {"refund.create", "refund.cancel"}), ("payout.create", {"payout.create"}), ("", set()),
          ("refund.create payout.*", {"refund.create", "payout.create"})]


def everything_as(onced, issuer, number):
    """One caller: what it is listed and what its calls come to, over both doors. Returns its effects and refusals."""
    patterns, allowed = SCOPES[number % len(SCOPES)]
    token = issuer.token(list(issuer.keys)[number % 3], sub=f"agent-{number}", tenant=f"tenant-{number % 8}", scope=patterns)
    mcp = Mcp(onced.port, headers=bearer(token))
    effects = refusals = 0
    assert rest_tools(onced, token) == allowed
    assert {name for name in mcp.tools() if not name.startswith("onced_")} == allowed
    for tool in TOOLS:
        arguments = {"payment_id": f"{number}-{tool}", "amount_cents": 100}
        answer = onced.call(tool, arguments, key=f"{number}-{tool}", headers=bearer(token), client=mcp.client)
        over_mcp = mcp.call(tool, {**arguments, "payment_id": f"{number}-{tool}-mcp"}, key=f"{number}-{tool}-mcp")
        if tool in allowed:
            assert answer.status == 201 and answer["status"] == "completed_success", answer
            assert over_mcp.state == "completed_success", over_mcp
            effects += 2
        else:
            said = f'the token does not cover tool "{tool}"; its tools: {patterns.replace(" ", ", ") or "none"}'
            assert (answer.status, answer.problem, answer["detail"]) == (403, "forbidden", said)
            assert over_mcp.error["message"] == f"{said}; nothing was run"
            refusals += 2
    return effects, refusals


@pytest.mark.on_both_ledgers
def test_64_callers_see_and_call_what_their_tokens_cover(world, issuer):
    onced = guarded(world, issuer, tools="/scope")
    counts = together([lambda n=n: everything_as(onced, issuer, n) for n in range(CALLERS)])
    effects, refusals = (sum(each[i] for each in counts) for i in (0, 1))
    onced.stop()
    assert world.provider.effects() == effects == len(onced.select("SELECT id FROM operations"))
    figure("principals", f"{CALLERS} callers over REST and MCP: {effects} effects of {effects} allowed calls, {refusals} refused calls "
                         "of which none reached the provider")


# ---- every refusal has its own words ----

def encoded(value):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def by_hand(issuer, header, claims, sign):
    signed = f"{encoded({'kid': 'first-RS256', 'typ': 'JWT', **header})}.{encoded(claims)}"
    return f"{signed}.{encoded(sign(signed.encode()))}"


def public_pem(issuer):
    return issuer.keys["first-RS256"].private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def with_public_key_as_secret(issuer):
    return by_hand(issuer, {"alg": "HS256"}, issuer.claims(),
                   lambda text: hmac.new(public_pem(issuer), text, hashlib.sha256).digest())


def changed_payload(issuer):
    header, _, signature = issuer.token().split(".")
    return f"{header}.{encoded(issuer.claims(sub='somebody-else'))}.{signature}"


def changed_signature(issuer):
    token = issuer.token("first-RS256")
    return token[:-10] + ("A" if token[-10] != "A" else "B") + token[-9:]


def said_twice(issuer):
    claims = json.dumps(issuer.claims())
    twice = claims[:-1] + ', "tenant": "other"}'
    return by_hand(issuer, {"alg": "RS256"}, twice.encode(), lambda _: b"x")


def stranger_of_same_kid(issuer):
    key = Key("first-ES256", "ES256")
    return jwt.encode(issuer.claims(), key.private, algorithm="ES256", headers={"kid": key.kid})


def wrong_family(issuer):
    """An RSA key's name over an EC signature."""
    return jwt.encode(issuer.claims(), issuer.keys["first-ES256"].private, algorithm="ES256", headers={"kid": "first-RS256"})


def unaccepted(issuer):
    return jwt.encode(issuer.claims(), issuer.keys["first-RS256"].private, algorithm="PS256", headers={"kid": "first-RS256"})


def soon(seconds):
    return int(time.time()) + seconds


REFUSED = {
    "expired": (lambda i: i.token(exp=soon(-5)), "the token has expired at 20"),
    "not yet valid": (lambda i: i.token(nbf=soon(60)), "the token is not valid yet: not before 20"),
    "without an end": (lambda i: i.token(exp=None), "the token does not say when it ends (exp)"),
    "wrong issuer": (lambda i: i.token(iss="https://evil.example"), "the token's issuer (iss) is not one of this server's"),
    "without issuer": (lambda i: i.token(iss=None), "the token does not say who issued it (iss)"),
    "wrong audience": (lambda i: i.token(aud="https://other.example"),
                       "the token was made for somebody else: its audience is \"https://other.example\", not \"https://onced.example\""),
    "without audience": (lambda i: i.token(aud=None), "the token does not say for whom it was made (aud)"),
    "unknown kid": (lambda i: i.token(headers={"kid": "stranger"}), "issuer corp has no key \"stranger\" (kid)"),
    "another's key": (stranger_of_same_kid, "the token's signature is wrong: it was changed, or signed with another key"),
    "alg none": (lambda i: jwt.encode(i.claims(), None, algorithm="none", headers={"kid": "first-RS256"}),
                 "the token is not signed (alg none), which is never accepted"),
    "public key as secret": (with_public_key_as_secret, "the token's alg HS256 is symmetric, which is never accepted"),
    "key of another kind": (wrong_family, "the token's alg ES256 does not go with issuer corp's key \"first-RS256\""),
    "alg not accepted": (unaccepted, "the token's alg PS256 is not among those of issuer corp (algorithms)"),
    "tampered": (changed_payload, "the token's signature is wrong: it was changed, or signed with another key"),
    "tampered signature": (changed_signature, "the token's signature is wrong: it was changed, or signed with another key"),
    "said twice": (said_twice, "the token's payload is not JSON: "),
    "too large": (lambda i: i.token(padding="x" * 4800), "the token has 6"),
    "encrypted": (lambda i: "a.b.c.d.e", "the token is not a signed one: expected HEADER.PAYLOAD.SIGNATURE"),
    "no base64url": (lambda i: i.token() + "=", "the token's signature is not base64url"),
    "critical extension": (lambda i: i.token(headers={"crit": ["x"], "x": 1}),
                           "the token's header has critical extensions (crit), which are not known here"),
    "of another type": (lambda i: i.token(headers={"typ": "logout+jwt"}),
                        "the token is of type \"logout+jwt\" (typ), expected JWT or at+jwt"),
    "tenant missing": (lambda i: i.token(tenant=None), "the token has no claim /tenant, which is to name the tenant"),
    "tenant not a name": (lambda i: i.token(tenant="a b"), "the token's claim /tenant, which is to name the tenant, is not 1 to 128"),
    "principal missing": (lambda i: i.token(sub=None), "the token has no claim /sub, which is to name the principal"),
    "without role": (lambda i: i.token(roles=["other"]), "the token has no role here: its claim /roles names none of those"),
}


def test_every_refusal_says_why(world, issuer):
    onced = guarded(world, issuer)
    good = onced.call("refund.create", ARGUMENTS, key="good", headers=bearer(issuer.token()))
    assert good.status == 201, good
    told = set()
    for name, (make, words) in REFUSED.items():
        token = make(issuer)
        answer = onced.call("refund.create", ARGUMENTS, key=name, headers=bearer(token))
        assert (answer.status, answer.problem) == (401, "unauthorized"), (name, answer)
        assert answer["detail"].startswith(words), (name, answer)
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="onced", error="invalid_token"'
        over_mcp = Mcp(onced.port, headers=bearer(token)).call("refund.create", ARGUMENTS, key=name)
        assert over_mcp.status == 401 and over_mcp.error["message"] == answer["detail"], (name, over_mcp)
        assert token not in answer.raw.decode()
        told.add(words)
    assert len(told) >= len(REFUSED) - 2  # a changed token and one of another's key cannot be told apart
    assert world.provider.effects() == 1 and len(onced.client.get("/v1/operations", headers=bearer(
        issuer.token(roles=["app-admin"])))["operations"]) == 1
    figure("refusals", f"{len(REFUSED)} kinds of bad tokens, each refused over REST and MCP, with {len(told)} different sentences")


def test_signed_tokens_without_an_issuer(world, issuer):
    onced = guarded(world)
    answer = onced.client.get("/v1/tools", headers=bearer(issuer.token()))
    assert answer.status == 401
    assert answer["detail"] == "the token is a signed one (JWT), and this server knows no issuer (server.jwt)"


def test_one_issuer_is_not_another(world, issuer):
    """Each issuer has keys, tenant and names of its own: one that is trusted with its own users says nothing of others'."""
    other = Issuer("https://second.example").start()
    other.rotate(Key("second", "ES256"))
    try:
        sections = {"corp": issuer.section(prefix="corp:"), "second": other.section(tenant="second", prefix="second:")}
        onced = world.onced(TOOLS, server={"auth": "tokens", "jwt": sections})
        mine = onced.call("refund.create", ARGUMENTS, key="1", headers=bearer(issuer.token()))
        theirs = onced.call("refund.create", ARGUMENTS, key="1", headers=bearer(other.token("second")))
        assert mine.status == theirs.status == 201 and mine.id != theirs.id
        seen = onced.client.get(f"/v1/operations/{theirs.id}", headers=bearer(other.token("second")))
        assert seen["principal"] == "second:agent"
        assert onced.client.get(f"/v1/operations/{theirs.id}", headers=bearer(issuer.token())).status == 404
        forged = other.token("second", iss=issuer.name)
        answer = onced.client.get("/v1/tools", headers=bearer(forged))
        assert answer.status == 401 and answer["detail"] == 'issuer corp has no key "second" (kid)', answer
    finally:
        other.stop()


# ---- keys change, the issuer is away ----

def test_keys_rotate_while_calls_run(world, issuer):
    onced = guarded(world, issuer)
    stop = threading.Event()
    kid = ["first-ES256"]
    refused, ended_with = [], {}

    def caller(number):
        calls = 0
        while not stop.is_set():
            key = kid[0]
            answer = onced.call("refund.create", {"payment_id": f"{number}-{calls}", "amount_cents": 1}, key=f"{number}-{calls}",
                                headers=bearer(issuer.token(key, sub=f"agent-{number}")))
            ended_with[number] = key
            calls += answer.status == 201
            if answer.status != 201:
                refused.append(answer)
        return calls

    running = [Background(caller, n) for n in range(8)]
    generations = min(3, rounds(1))
    for generation in range(generations):
        time.sleep(0.1)
        old, new = kid[0], f"generation-{generation}"
        issuer.rotate(Key(new, ["ES256", "EdDSA", "ES256"][generation]))
        fetches = issuer.fetches  # issuers publish a key before they use it: one question has brought it as the next one comes
        wait_until(lambda fetches=fetches: issuer.fetches >= fetches + 2, 30, what="the new key's being read")
        kid[0] = new
        wait_until(lambda new=new: set(ended_with.values()) == {new} and len(ended_with) == 8, 30, what="the old key's last call")
        issuer.withdraw(old)
        wait_until(lambda old=old: onced.client.get("/v1/tools", headers=bearer(issuer.token(old))).status == 401,
                   30, what="the old key's end")
    stop.set()
    calls = sum(each.result() for each in running)
    assert not refused, refused[:3]
    assert world.provider.effects() == calls
    figure("rotation", f"{generations} key rotations under load, {calls} calls, none refused; the keys that were withdrawn are")


def test_a_new_key_works_at_once_and_strangers_cannot_make_us_ask(world, issuer):
    onced = guarded(world, issuer, refresh="5s")  # a tenth of it is how often an unknown key may cause a reading
    assert onced.client.get("/v1/tools", headers=bearer(issuer.token())).status == 200
    issuer.rotate(Key("new", "ES256"))
    begin, fetches = time.monotonic(), issuer.fetches
    time.sleep(0.6)
    assert onced.client.get("/v1/tools", headers=bearer(issuer.token("new"))).status == 200
    assert issuer.fetches == fetches + 1
    flood = together([lambda n=n: [onced.client.get("/v1/tools", headers=bearer(issuer.token(headers={"kid": f"x{n}-{k}"})))
                                   for k in range(4)] for n in range(CALLERS)])
    assert {answer.status for answers in flood for answer in answers} == {401}
    assert issuer.fetches <= fetches + 2 + (time.monotonic() - begin) / 0.5
    figure("strangers", f"{4 * CALLERS} tokens with made-up keys cost {issuer.fetches - fetches - 1} questions to the issuer")


def test_the_issuer_is_down(world, issuer):
    issuer.stop()
    onced = guarded(world, issuer)
    answer = onced.client.get("/v1/tools", headers=bearer(issuer.token()))
    assert (answer.status, answer.problem) == (503, "unavailable")
    assert answer["detail"].startswith("the keys of issuer corp cannot be read now: "), answer
    assert Mcp(onced.port, headers=bearer(issuer.token())).request("tools/list").status == 503
    own = made(onced)
    assert rest_tools(onced, own) == set(TOOLS)  # onced's own tokens do not need it
    issuer.start()
    wait_until(lambda: onced.client.get("/v1/tools", headers=bearer(issuer.token())).status == 200, what="the keys")
    issuer.stop()
    time.sleep(0.4)  # a refresh has failed
    calls = together([lambda n=n: onced.call("refund.create", {"payment_id": f"p{n}", "amount_cents": 1}, key=f"k{n}",
                                             headers=bearer(issuer.token(sub=f"agent-{n}"))) for n in range(16)])
    assert {call.status for call in calls} == {201}  # the last keys stay in force
    issuer.rotate(Key("unheard-of", "ES256"))
    answer = onced.client.get("/v1/tools", headers=bearer(issuer.token("unheard-of")))
    assert answer.status == 503 and "cannot be read now" in answer["detail"], answer
    issuer.start()
    wait_until(lambda: onced.client.get("/v1/tools", headers=bearer(issuer.token("unheard-of"))).status == 200, what="the new key")


def test_redirects_of_an_issuer_are_not_followed(world, issuer):
    issuer.status = 302
    onced = guarded(world, issuer)
    answer = onced.client.get("/v1/tools", headers=bearer(issuer.token()))
    assert answer.status == 503 and "redirect (302), which is not followed" in answer["detail"], answer


def test_keys_from_a_file(world, issuer, tmp_path):
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(issuer.jwks()))
    onced = guarded(world, issuer, jwks=f"file:{file}")
    assert rest_tools(onced, issuer.token()) == set(TOOLS)
    issuer.rotate(Key("new", "ES256"))
    file.write_text(json.dumps(issuer.jwks()))
    wait_until(lambda: onced.client.get("/v1/tools", headers=bearer(issuer.token("new"))).status == 200, what="the new key")
    file.write_text("{broken")
    time.sleep(0.4)
    assert rest_tools(onced, issuer.token("new")) == set(TOOLS)
    assert issuer.fetches == 0


# ---- kill -9 ----

@pytest.mark.on_both_ledgers
def test_kill_9_under_signed_tokens(world, issuer):
    """Callers sign anew for each attempt; whoever they are stays the same, and so does each effect."""
    onced = guarded(world, issuer)
    deadline = time.monotonic() + 30

    def caller(number):
        while time.monotonic() < deadline:
            try:
                answer = onced.call("refund.create", {"payment_id": f"p{number}", "amount_cents": 1}, key=f"k{number}",
                                    headers=bearer(issuer.token(sub=f"agent-{number}", jti=str(time.time()))))
            except OSError:
                time.sleep(0.02)
                continue
            if answer.status in (200, 201):
                return answer
            assert answer.status in (202, 503), answer
            time.sleep(0.02)
        raise AssertionError("not settled")

    kills = 3
    world.provider.script(*["slow:100"] * CALLERS)
    running = [Background(caller, n) for n in range(CALLERS)]
    for _ in range(kills):
        time.sleep(0.05)
        onced.kill()
        onced.start()
    answers = [each.result(40) for each in running]
    assert {answer["status"] for answer in answers} == {"completed_success"}
    assert len({answer.id for answer in answers}) == world.provider.effects() == CALLERS
    assert all(world.provider.effects(answer.id) == 1 for answer in answers)
    figure("kill", f"{CALLERS} callers with signed tokens, {kills} kills: {CALLERS} effects, one each")


# ---- tokens of onced's own ----

def test_tokens_limited_by_the_command_line(world):
    onced = guarded(world)
    token = made(onced, "--tools", "refund.*", "--tools", "nothing.*", principal="ann")
    assert rest_tools(onced, token) == mcp_tools(onced, token) == {"refund.create", "refund.cancel"}
    listed = json.loads(onced.cli("token", "list", "--ledger", onced.ledger, "--json").stdout)["tokens"]
    assert [(each["principal"], each["tools"], each["entities"]) for each in listed] == [("ann", ["refund.*", "nothing.*"], None)]
    shown = onced.cli("token", "list", "--ledger", onced.ledger).stdout
    assert "refund.*, nothing.*" in shown and "ENTITIES" in shown
    assert onced.call("payout.create", ARGUMENTS, key="1", headers=bearer(token)).status == 403
    assert onced.call("refund.create", ARGUMENTS, key="1", headers=bearer(token)).status == 201
    # a tool that its token does not cover is none for onced_plan either, nor is its page there
    plan = Mcp(onced.port, headers=bearer(token)).call("onced_plan", {"tool": "payout.create", "arguments": ARGUMENTS})
    assert plan.error["message"].startswith('the token does not cover tool "payout.create"')
    assert onced.client.get("/v1/tools/payout.create", headers=bearer(token)).status == 403


def test_what_a_limited_token_is_shown(world):
    """Even an operator's: what lies outside is there without arguments and result, and cannot be decided."""
    onced = guarded(world)
    admin, operator = made(onced, role="admin"), made(onced, "--tools", "refund.*", role="operator", principal="op")
    paid = onced.call("payout.create", {**ARGUMENTS, "note": "secret"}, key="1", headers=bearer(admin))
    refunded = onced.call("refund.create", {**ARGUMENTS, "note": "open"}, key="1", headers=bearer(admin))
    assert onced.client.get(f"/v1/operations/{refunded.id}", headers=bearer(operator))["arguments"]["note"] == "open"
    hidden = onced.client.get(f"/v1/operations/{paid.id}", headers=bearer(operator))
    assert hidden.status == 200 and b"secret" not in hidden.raw, hidden
    assert b"secret" not in onced.client.get("/v1/operations", headers=bearer(operator)).raw


def test_tokens_limited_to_entities(world):
    """By what the call would touch, whoever calls and whatever the tool; a tool that does not say is refused."""
    of_order = [{"type": "order", "id": "{payment_id}", "exclusive": "queue"}]
    onced = guarded(world, registered={"refund.create": registry.refund(entities=of_order), "payout.create": registry.refund()})
    token, admin = made(onced, "--entities", "order/a-*", "--entities", "customer/*"), made(onced, role="admin")
    mcp = Mcp(onced.port, headers=bearer(token))

    def order(name, key, door="rest"):
        arguments = {**ARGUMENTS, "payment_id": name}
        return onced.call("refund.create", arguments, key=key, headers=bearer(token)) if door == "rest" else \
            mcp.call("refund.create", arguments, key=key)

    assert order("a-1", "1").status == 201 and order("a-2", "2", "mcp").state == "completed_success"
    refused = order("b-1", "3")
    assert (refused.status, refused.problem) == (403, "forbidden")
    assert refused["detail"] == "the token does not cover entity order/b-1; its entities: order/a-*, customer/*"
    over_mcp = order("b-1", "3", "mcp")
    assert over_mcp.is_error and refused["detail"] in over_mcp.text, over_mcp
    unnamed = onced.call("payout.create", ARGUMENTS, key="4", headers=bearer(token))
    assert unnamed.status == 403 and unnamed["detail"].startswith("the token is limited to certain entities"), unnamed
    plan = mcp.call("onced_plan", {"tool": "refund.create", "arguments": {**ARGUMENTS, "payment_id": "b-1"}})
    assert plan.is_error and refused["detail"] in plan.text, plan
    # a repetition is not told what it may not see
    theirs = onced.call("refund.create", {**ARGUMENTS, "payment_id": "b-1"}, key="5", headers=bearer(admin))
    assert theirs.status == 201 and order("b-1", "5").status == 403
    mine = onced.client.get(f"/v1/operations/{theirs.id}", headers=bearer(token))
    assert mine.status == 200 and mine["result"] is None and mine["external_id"] is None
    assert world.provider.effects() == 3


def test_what_a_limited_token_may_decide(world):
    onced = guarded(world, registered={name: registry.refund(approval="required") for name in TOOLS})
    agent, approver = made(onced), made(onced, "--tools", "refund.*", role="approver", principal="ann")
    waiting = {tool: onced.call(tool, ARGUMENTS, key=tool, headers=bearer(agent), wait_ms=0).id for tool in TOOLS}
    refused = onced.client.post(f"/v1/operations/{waiting['payout.create']}/approve", {}, headers=bearer(approver))
    assert refused.status == 403 and 'does not cover tool "payout.create"' in refused["detail"], refused
    allowed = onced.client.post(f"/v1/operations/{waiting['refund.create']}/approve", {}, headers=bearer(approver))
    assert allowed.status in (200, 202), allowed
    wait_until(lambda: world.provider.effects() == 1, what="the approved effect")
    limited = made(onced, "--tools", "refund.*", role="operator", principal="op")
    refused = onced.client.post(f"/v1/operations/{waiting['payout.create']}/cancel", {}, headers=bearer(limited))
    assert refused.status == 403, refused


def test_limited_tokens_make_no_tokens(world):
    onced = guarded(world)
    limited, whole = made(onced, "--tools", "refund.*", role="admin"), made(onced, role="admin")
    wish = {"principal": "new", "role": "agent"}
    answer = onced.client.post("/v1/tokens", wish, headers=bearer(limited))
    assert answer.status == 403 and answer["detail"] == "a token that is limited to certain tools or entities can make no tokens"
    answer = onced.client.post("/v1/tokens", {**wish, "tools": ["payout.*"], "entities": ["order/*"]}, headers=bearer(whole))
    assert answer.status == 201 and (answer["tools"], answer["entities"]) == (["payout.*"], ["order/*"])
    assert rest_tools(onced, answer["token"]) == {"payout.create"}
    for bad in ({"tools": [""]}, {"tools": 7}, {"entities": ["order"]}, {"tools": ["x"] * 101}):
        answer = onced.client.post("/v1/tokens", {**wish, **bad}, headers=bearer(whole))
        assert (answer.status, answer.problem) == (400, "malformed"), (bad, answer)


def test_a_session_belongs_to_one_scope(world, issuer):
    onced = guarded(world, issuer, tools="/scope")
    wide, narrow = issuer.token(scope="*"), issuer.token(scope="refund.*")
    session = Legacy(onced.port, headers=bearer(wide))
    assert session.request("tools/list").status == 200
    session.client.headers.update(bearer(issuer.token(scope="*", jti="renewed")))
    assert session.call("payout.create", ARGUMENTS, key="1").state == "completed_success"
    session.client.headers.update(bearer(narrow))
    assert session.request("tools/list").status == 404


# ---- nothing is passed on ----

def test_the_token_goes_no_further(world, issuer, tmp_path):
    """Neither to the provider nor into ledger and log."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):  # noqa: N802 - http.server's name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(f"{self.path} {self.headers} {body.decode()}")
            self.send_response(201)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b'{"id":"1"}')

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        provider = {"recorder": registry.provider(f"http://127.0.0.1:{server.server_address[1]}", key=registry.KEY_CONTRACT)}
        tools = {"refund.create": registry.refund(provider="recorder", look=False)}
        onced = world.onced(tools, providers=provider, server={"auth": "tokens", "jwt": {"corp": issuer.section()}})
        token = issuer.token()
        assert onced.call("refund.create", ARGUMENTS, key="1", headers=bearer(token)).status == 201
        assert Mcp(onced.port, headers=bearer(token)).call("refund.create", ARGUMENTS, key="2").state == "completed_success"
        onced.stop()
        assert len(seen) == 2
        kept = ledgers.everything(onced.ledger) + onced.process.text() + "".join(seen)
        assert "refund.create" in kept
        assert not any(part in kept for part in token.split(".")) and "authorization" not in kept.lower()
    finally:
        server.shutdown()
        server.server_close()
