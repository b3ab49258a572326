"""idemkit's conformance scenarios (a peer project's, language-neutral: HTTP, queue, AI tool calls) played against onced. The
scenarios are read from the public test data (ONCED_SUITES, else ../shared/data beside the sources); this file says how each
is mapped, and where onced means something else on purpose: DIFFERS has what idemkit expects, what onced does, and the number
of the design that says so. All that idemkit expects is compared, member by member; what the mapping does not know fails.

    idemkit                       onced
    request to /resources         POST /v1/calls, a tool per scenario; the body is the arguments, the header stays
    handler                       the provider: a collection of the fake provider per tool; "called" is what it counted
    caller_identity tenant:user   Onced-Tenant, Onced-Principal
    problem type                  PROBLEMS
    consumer, deliver             guard mode: begin, perform, complete or fail; replay is an ack, wait and unknown are left
    lease_ttl                     guard_mode.lease
    tool call                     tools/call over MCP; key_fields are the key template, other arguments volatile"""

import http.server
import json
import os
import pathlib
import threading
import time

import pytest
import yaml

from onced_e2e import binary, ledgers, registry, webhooks
from onced_e2e.client import LOST, Client
from onced_e2e.figures import figure
from onced_e2e.judge import judge
from onced_e2e.onced import Onced
from onced_e2e.provider import Provider
from onced_e2e.registry import TEXT
from onced_e2e.rpc import Mcp
from onced_e2e.wait import Background, together, wait_until

PROBLEMS = {"urn:idemkit:payload-mismatch": "key_reused", "urn:idemkit:missing-key": "key_missing"}

REPLAY = (201, 200, "12: a replay is 200, 201 is the first answer's")

# scenario → step and member → (idemkit's, onced's, where the design says why)
DIFFERS = {
    "basic-replay": {"2 status": REPLAY},
    "in-flight-wait-then-replay": {"r2 status": REPLAY},
    "in-flight-wait-timeout": {
        "r2 status": (423, 202, "12: under way is no failure: 202 with Location, and Retry-After as idemkit's"),
        "r2 problem_type": ("urn:idemkit:in-progress", None, "12"),
    },
    "crash-recovery-lease-expiry": {"3 status": REPLAY},
    "5xx-not-cached-by-default": {
        "1 status": (500, 201, "6: what the provider's key makes harmless is sent again within the call"),
        "2 handler_called": (True, False, "6: …so that the second call finds it done"),
        "2 status": REPLAY,
    },
    "5xx-not-cached-by-default: no key at the provider": {
        "1 status": (500, 202, "3.2, 6: a 500 may have happened: unknown_outcome, not a failure"),
        "2 handler_called": (True, False, "6: nothing is sent again that may have happened"),
        "2 status": (201, 202, "3.2, 6"),
    },
    "response-headers-preserved": {
        "2 status": REPLAY,
        "2 headers_present": ({"Location": "/resources/abc123", "ETag": '"v1"', "Idempotency-Replayed": "true"},
                              {"Location": None, "ETag": None, "Idempotency-Replayed": "true"},
                              "12: one result shape over HTTP and MCP; no header of the provider goes through, safe or not"),
    },
    "corrupt-record-treated-as-absent": {
        "2 handler_called": (True, False, "15: a key is never forgotten: what can not be read may have been done"),
        "2 status": (201, 503, "12, 15: the ledger can not tell: nothing was sent"),
        "2 emits_event": ("idempotency.corrupt_record", "request_failed", "17: a line in the log that names what can not be read"),
    },
    "body-size-exceeded-bypass": {
        "1 status": (200, 201, "12: 201 is the first answer's, whatever the provider's was"),
        "1 headers_present": ({"Idempotency-Replay-Unavailable": "size-exceeded"}, {"Idempotency-Replay-Unavailable": None},
                              "12: said in the body: result_dropped, result_bytes"),
        "2 handler_called": (True, False, "12: the effect is kept as digest, size and external id; it is never done again"),
    },
    "queue-crash-recovery": {
        "3 handler_called": (True, False, "3.3, 11.2: silence until the lease ends is unknown_outcome, never a second execution"),
        "3 zombie_completion_rejected": (True, False, "3.4: the late word is evidence and settles it"),
    },
    "queue-lease-shorter-than-visibility": {
        "1 construction_error": (True, False, "11.2: no lease is too long: a redelivery meanwhile waits, one after it is told unknown"),
    },
    "tool-crash-recovery": {
        "1 raised": (True, False, "6: sent again within the call, under the same provider key"),
        "2 executed": (True, False, "6: …so that the second call finds it done"),
    },
    "tool-unserializable-result-fails-closed": {
        "1 error_raised": (True, False, "5.4: an unreadable 2xx is unknown_outcome, not an error that invites another try"),
        "2 conflict": (True, False, "4: joined: the same operation, still unknown"),
    },
    "tool-pickle-opt-in-warns": {
        "1 security_warning_emitted": (True, False, "13, 16: results are JSON; another codec is refused when the file is checked"),
    },
}

PLAYED = set()
TABLE = pathlib.Path(__file__).parents[2] / "docs/idemkit.md"


# ---- the scenarios and what is compared ----


def vectors():
    """Scenario by id, of all three surfaces."""
    path = pathlib.Path(os.environ.get("ONCED_SUITES") or binary.ROOT.parent / "shared/data") / "idemkit-conformance.yaml"
    if not path.is_file():
        pytest.skip(f"there is no {path.name} beside the sources (ONCED_SUITES)")
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    lists = [document[name] for name in document if name.endswith("scenarios")]
    assert len(lists) == len(document["surfaces"]), "a surface that the mapping does not know"
    return {each["id"]: each for list_ in lists for each in list_}


def scenario(name):
    PLAYED.add(name)
    return pytest.mark.parametrize("given", [name], indirect=True)


class Given(dict):
    """A scenario; meets() compares what a step of it expects with what was seen."""

    def __init__(self, members):
        super().__init__(members)
        self.steps_ = members.get("steps") or members.get("sequence") or [members]

    def step(self, number):
        return self.steps_[number - 1]

    def meets(self, step, variant="", **seen):
        """step: from 1, or the id of one of a sequence. seen: a value, or a function of what idemkit expects."""
        one = self.step(step) if isinstance(step, int) else next(each for each in self.steps_ if each["id"] == step)
        differs = {name.split(" ")[1]: value for name, value in DIFFERS.get(self["id"] + variant, {}).items() if name.startswith(f"{step} ")}
        for member, theirs in one.get("expect", {}).items():
            assert member in seen, f"the mapping does not say what {member} is"
            got = seen[member](theirs) if callable(seen[member]) else seen[member]
            wanted = theirs
            if member in differs:
                stated, wanted, _ = differs.pop(member)
                assert stated == theirs, f"idemkit expects {theirs!r} by now"
            assert got == wanted, f"{self['id']}, step {step}: {member} is {got!r}, not {wanted!r}"
        assert not differs, f"idemkit does not expect {differs} any more"


@pytest.fixture
def given(request):
    return Given(vectors()[request.param])


def test_every_scenario_is_mapped():
    """None is left out, and docs/idemkit.md says of each what is so."""
    known = vectors()
    assert PLAYED == set(known), "scenarios without a mapping, or mappings without a scenario"
    assert {name.split(":")[0] for name in DIFFERS} <= PLAYED
    rows = [line.split("|")[1:4] for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    documented = {row[0].strip(" `"): row[1].strip() for row in rows}
    differing = {name.split(":")[0] for name in DIFFERS}
    assert {name: "differs" if name in differing else "same" for name in known} == documented
    figure("idemkit", f"{len(known)} scenarios mapped, {len(known) - len(differing)} as idemkit says, {len(differing)} differ on purpose",
           scenarios=len(known))


def headers(answer):
    """How the expectations about headers are seen."""
    return {
        "headers_present": lambda wanted: {name: answer.headers.get(name) for name in wanted},
        "headers_present_any": lambda wanted: [name for name in wanted if answer.headers.get(name)],
        "headers_absent": lambda wanted: [name for name in wanted if answer.headers.get(name) is None],
    }


def problem(answer):
    return {ours: theirs for theirs, ours in PROBLEMS.items()}.get(answer.problem, answer.problem)


# ---- one daemon for what needs none of its own ----


def resource(name, **more):
    """What stands behind /resources: {"name": "x"}; the caller's tenant is part of what is made."""
    request = {"path": f"/v1/{name}", "json": {"name": "{name}", "owner": "{$tenant}", "reference": "{$operation}"}}
    return registry.write(name, {"name": TEXT}, **{"request": request, "timeout": "5s", **more})


def trip(name, **more):
    """A tool of the AI surface with idemkit's key fields."""
    fields = {"origin": TEXT, "destination": TEXT, "request_id?": TEXT}
    return registry.write(name, fields, key=name + ":{origin}:{destination}", volatile=["/request_id"], **more)


def simple(name, **more):
    return registry.write(name, {"x": TEXT}, key=name + ":{x}", **more)


def queue(lease="30s", **more):
    return {"class": "external_weak", "identity": "caller", "guard_mode": {"lease": lease}, "wait": "0", "while_in_doubt": "allow", **more}


TOOLS = {
    **{name: resource(name) for name in (
        "basic-replay", "payload-mismatch", "concurrent-same-key-exactly-once", "in-flight-wait-then-replay", "in-flight-wait-timeout",
        "5xx-not-cached-by-default", "cross-tenant-isolation")},
    "5xx-weak": resource("5xx-weak", keyed=False, look=False, while_in_doubt="allow"),
    "missing-key-when-required": resource("missing-key-when-required", identity="caller"),
    "tool-retry-dedup": trip("tool-retry-dedup"),
    "tool-arg-normalization": trip("tool-arg-normalization"),
    "tool-concurrent-calls": simple("tool-concurrent-calls"),
    "tool-crash-recovery": simple("tool-crash-recovery"),
    "tool-unserializable": simple("tool-unserializable", keyed=False, look=False, while_in_doubt="allow"),
    "queue": queue(),
    "queue-short": queue(lease="1s"),
    "queue-poison": queue(retry={"attempts": 3, "total": "1h", "backoff": "1ms", "backoff_max": "1ms"}),
}


class Handler(http.server.BaseHTTPRequestHandler):
    """A handler of which the scenarios say what it answers: headers, size, chunks."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls.append(self.path)
        answer = self.server.answers[self.path]
        self.send_response(answer["status"])
        for name, value in answer.get("headers", {}).items():
            self.send_header(name, value)
        body = json.dumps({"id": "r1", "pad": "x" * answer.get("body_bytes", 0)}).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (body[:100], body[100:]):
            if piece:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class House:
    def __init__(self, folder):
        self.provider = Provider(folder).start()
        self.handlers = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.handlers.daemon_threads = True
        self.handlers.calls, self.handlers.answers = [], {}
        threading.Thread(target=self.handlers.serve_forever, args=(0.05,), daemon=True).start()
        own = {name: resource(name, provider="own", look=False, request={"path": f"/{name}"}, **more)
               for name, more in (("response-headers-preserved", {}), ("body-size-exceeded-bypass", {"result_bytes_max": 1024}))}
        contents = registry.file(self.provider.url, {**TOOLS, **own}, inbox=webhooks.sources(), providers={
            "own": registry.provider(f"http://127.0.0.1:{self.handlers.server_address[1]}", key=registry.KEY_CONTRACT)})
        self.onced = Onced(folder)
        self.onced.configure(contents)
        self.onced.start()

    def calls(self, tool):
        """How often the tool's handler was called."""
        return self.handlers.calls.count(f"/{tool}") + sum(each["path"].startswith(f"/v1/{tool}") for each in self.provider.writes())

    def request(self, request, tool=None, **named):
        """An HTTP request of a scenario to its tool: the answer, and whether the handler was called meanwhile."""
        tenant, _, principal = request.get("caller_identity", "default:local").partition(":")
        before = self.calls(tool)
        answer = Client(self.onced.port).post("/v1/calls", {"tool": tool, "arguments": json.loads(request["body"]), **named}, headers={
            **request.get("headers", {}), "Onced-Tenant": tenant, "Onced-Principal": principal})
        return answer, self.calls(tool) > before

    def stop(self):
        self.handlers.shutdown()
        self.handlers.server_close()
        self.onced.stop()
        self.provider.stop()
        assert not self.onced.process.findings() and not self.provider.process.findings()


@pytest.fixture(scope="module")
def house_of_all(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in webhooks.ENVIRONMENT.items():
            patch.setenv(name, value)
        house = House(tmp_path_factory.mktemp("idemkit"))
        yield house
        house.stop()


@pytest.fixture
def house(house_of_all, processes):
    processes += [house_of_all.provider.process, house_of_all.onced.process]
    return house_of_all


def play(house, given, number, tool=None, variant=""):
    """A step that is one request."""
    answer, called = house.request(given.step(number)["request"], tool or given["id"])
    given.meets(number, variant, handler_called=called, status=answer.status, problem_type=problem(answer), **headers(answer),
                body_contains=lambda text: text if text in answer.raw.decode() else answer.raw)
    return answer


# ---- HTTP ----


@scenario("basic-replay")
def test_basic_replay(house, given):
    first, again = play(house, given, 1), play(house, given, 2)
    assert first["result"] == again["result"] and first.id == again.id
    assert house.calls(given["id"]) == 1


@scenario("payload-mismatch")
def test_payload_mismatch(house, given):
    play(house, given, 1)
    refused = play(house, given, 2)
    assert refused["differing"] == ["/name"] and "result" not in refused.body


@scenario("concurrent-same-key-exactly-once")
def test_concurrent(house, given):
    answers = together([lambda: house.request(given["request"], given["id"])[0]] * given["parallel_count"])
    told = {json.dumps([answer["operation_id"], answer["status"], answer["result"]], sort_keys=True) for answer in answers}
    given.meets(1, total_handler_calls=house.calls(given["id"]), all_responses_identical=len(told) == 1,
                replayed_count=sum(answer.headers.get("Idempotency-Replayed") == "true" for answer in answers))
    assert sorted({answer.status for answer in answers}) == [200, 201]


def in_flight(house, given, delay_ms, **second):
    """The first request, on its way for so long, and what the second was told."""
    first, other = given.steps_
    house.provider.script({"fault": f"slow:{delay_ms}", "on": "write", "collection": given["id"]})
    running = Background(house.request, first["request"], given["id"])
    wait_until(lambda: house.calls(given["id"]), what="the first request")
    answer, called = house.request(other["request"], given["id"], **second)
    given.meets(other["id"], handler_called=called, status=answer.status, problem_type=problem(answer), **headers(answer))
    return running, answer


@scenario("in-flight-wait-then-replay")
def test_in_flight_wait_then_replay(house, given):
    running, answer = in_flight(house, given, given.step(1)["request"]["handler_delay_ms"])
    first, _ = running.result()
    assert first["result"] == answer["result"] and first.status == 201 and house.calls(given["id"]) == 1


@scenario("in-flight-wait-timeout")
def test_in_flight_wait_timeout(house, given):
    """A tenth of the delay: what counts is that it is longer than the wait."""
    delay = given.step(1)["request"]["handler_delay_ms"] // 10
    running, answer = in_flight(house, given, delay, wait_ms=given["config"]["wait_timeout_ms"])
    assert running.running() and answer.state == "dispatched" and answer.headers["Location"].endswith(answer.id), answer
    first, _ = running.result()
    again, called = house.request(given.step(1)["request"], given["id"])
    assert again.id == first.id == answer.id and again.replayed and not called and house.calls(given["id"]) == 1


def crash(world, given, fault, **more):
    """The process dies with the request claimed; what the next one with the same key is told."""
    onced = world.onced({given["id"]: resource(given["id"], settle="50ms", **more)})
    request = given.step(1)["request"]
    arguments, sent = json.loads(request["body"]), request["headers"]
    world.provider.script({"fault": fault, "on": "write"})
    lost = Background(onced.call, given["id"], arguments, headers=sent)
    wait_until(world.provider.writes, what="the claimed request")
    onced.restart()
    with pytest.raises(LOST):
        lost.result()
    return onced, onced.call(given["id"], arguments, headers=sent)


@scenario("crash-recovery-lease-expiry")
def test_crash_before_the_effect(world, given):
    """The handler did not get to its effect: as idemkit expects, it is called again. Under the same provider key, so that it would be
    harmless had it got there (design 6)."""
    onced, answer = crash(world, given, "timeout_before_commit")
    given.meets(3, handler_called=len(world.provider.writes()) == 2, status=answer.status)
    judge(onced, world.provider, answer.id, effects=1, dispatches=2)


@scenario("crash-recovery-lease-expiry")
def test_crash_after_the_effect(world, given):
    """The provider takes no keys, and the handler did run: idemkit would run it again, since a lease that ended means "not done" there.
    Here it means "the owner is gone" (design 3.3): the effect is found, and not repeated."""
    onced, answer = crash(world, given, "timeout_after_commit", keyed=False)
    assert answer.state == "completed_success" and answer.replayed and answer["reason"] == "reconciled", answer
    judge(onced, world.provider, answer.id, effects=1, dispatches=1)


@scenario("crash-recovery-lease-expiry")
def test_crash_before_the_effect_of_a_handler_without_keys(world, given):
    """Look-ups prove the absence, and that is what is said: external_weak is never sent again of its own (design 13). Doing it after
    all has a word (2.8)."""
    onced, answer = crash(world, given, "timeout_before_commit", keyed=False)
    assert (answer.state, answer["reason"]) == ("failed_permanent", "absent"), answer
    judge(onced, world.provider, answer.id, effects=0, dispatches=1)
    request = given.step(1)["request"]
    done = onced.call(given["id"], json.loads(request["body"]), headers=request["headers"], repeat_of=answer.id)
    assert done.state == "completed_success" and done.id != answer.id and world.provider.effects() == 1, done


@scenario("5xx-not-cached-by-default")
def test_5xx(house, given):
    status = given.step(1)["request"]["handler_response"]["status"]
    house.provider.script({"fault": f"5xx_not_committed:{status}", "on": "write", "collection": given["id"]})
    first = play(house, given, 1)
    assert first["attempts"] == 2 == house.calls(given["id"]), "not cached: sent again, within the call"
    again = play(house, given, 2)
    assert again["result"] == first["result"]


@scenario("5xx-not-cached-by-default")
@pytest.mark.parametrize("fault", ["5xx_committed", "5xx_not_committed"])
def test_5xx_of_a_handler_without_keys(house, given, fault):
    """The handler's 500 says nothing about the effect; with one that has happened, idemkit's second call would double it."""
    variant = ": no key at the provider"
    for step in given.steps_:
        step["request"]["headers"] = {"Idempotency-Key": f"{fault}-{step['request']['headers']['Idempotency-Key']}"}
    house.provider.script({"fault": f"{fault}:500", "on": "write", "collection": "5xx-weak"})
    before = house.calls("5xx-weak")
    first, again = (play(house, given, number, "5xx-weak", variant) for number in (1, 2))
    assert first.state == again.state == "unknown_outcome" and first.id == again.id, again
    assert again["next_action"] == "ask_human" and house.calls("5xx-weak") == before + 1


@scenario("cross-tenant-isolation")
def test_cross_tenant_isolation(house, given):
    one, other = play(house, given, 1), play(house, given, 2)
    assert one.id != other.id and house.calls(given["id"]) == 2
    tenant_b = {"Onced-Tenant": "tenant-B", "Onced-Principal": "user-2"}
    assert house.onced.client.get(f"/v1/operations/{one.id}", headers=tenant_b).status == 404


@scenario("missing-key-when-required")
def test_missing_key(house, given):
    play(house, given, 1)
    assert house.onced.operations(tool=given["id"]) == [], "nothing is recorded (design 2.2)"


@scenario("response-headers-preserved")
def test_response_headers(house, given):
    house.handlers.answers[f"/{given['id']}"] = given.step(1)["request"]["handler_response"]
    first, again = play(house, given, 1), play(house, given, 2)
    assert first["result"] == again["result"] and first["http_status"] == 201
    assert first.headers["Location"] == f"/v1/operations/{first.id}", "the operation's, not the provider's"
    for answer in (first, again):
        assert "secret-value" not in answer.raw.decode() + str(answer.headers)


@scenario("corrupt-record-treated-as-absent")
def test_corrupt_record(world, given):
    """Three records, each with something else that cannot be read."""
    name, step = given["id"], given.step(2)["request"]
    onced = world.onced({name: resource(name)})
    nonsense = "nonsense" if ledgers.POSTGRES else 99
    damages = {"state": ("state", nonsense), "key source": ("key_source", nonsense), "fingerprint": ("fingerprint", b"\0")}
    calls = {part: (json.loads(step["body"]), {**step["headers"], "Idempotency-Key": f"{step['headers']['Idempotency-Key']}-{number}"})
             for number, part in enumerate(damages)}
    first = {part: onced.call(name, arguments, headers=sent) for part, (arguments, sent) in calls.items()}
    onced.stop()
    for part, (column, damage) in damages.items():
        onced.change(f"UPDATE operations SET {column} = ? WHERE id = ?", (damage, first[part].id))
    onced.start()
    for part, (arguments, sent) in calls.items():
        answer = onced.call(name, arguments, headers=sent)
        given.meets(2, handler_called=len(world.provider.writes()) > len(damages), status=answer.status,
                    emits_event=lambda _: "request_failed" if '"request_failed"' in onced.process.text() else None)
        assert part in answer["detail"].replace("_", " "), answer


@scenario("body-size-exceeded-bypass")
def test_body_size_exceeded(house, given):
    """Chunked, without Content-Length."""
    name, told = given["id"], given.step(1)["request"]["handler_response"]
    house.handlers.answers[f"/{name}"] = told
    first, again = play(house, given, 1), play(house, given, 2)
    assert len(first["result"]["pad"]) == told["body_bytes"] > given["config"]["max_body_bytes"], "delivered whole, once"
    assert again["result"] is None and again["result_dropped"] and again["result_bytes"] > told["body_bytes"], again
    assert again.replayed and house.calls(name) == 1


# ---- queue ----


class Crashed(Exception):
    """The consumer's process is gone: no complete, no fail, no ack."""


class Consumer:
    """A consumer in guard mode. dispatch() tells its broker "ack" or "retry"; the handler's effects are counted here."""

    def __init__(self, house, tool="queue", handler=lambda: {"done": True}):
        self.client = Client(house.onced.port)
        self.tool = tool
        self.handler = handler
        self.called = 0
        self.exhausted = 0
        self.lock = threading.Lock()
        self.last = None

    def say(self, word, **body):
        return self.client.post(f"/v1/guard/{self.tool}/{word}", body)

    def begin(self, dedup_id):
        self.last = self.say("begin", arguments={"message": dedup_id}, idempotency_key=dedup_id)
        return self.last

    def dispatch(self, dedup_id):
        decided = self.begin(dedup_id)
        if decided["decision"] != "execute":
            return "ack" if decided["decision"] == "replay" else "retry"
        lease = decided["lease"]["token"]
        with self.lock:
            self.called += 1
        try:
            self.last = self.say("complete", lease=lease, result=self.handler())
            return "ack"
        except ValueError as error:
            self.last = self.say("fail", lease=lease, effect="none", retry=True, error={"message": str(error)})
            if self.last["operation"]["status"] == "failed_retryable":
                return "retry"
            self.exhausted += 1  # whoever is told so by its own fail: nobody else is
            return "ack"


@scenario("queue-at-least-once-dedup")
def test_queue_dedup(house, given):
    consumer = Consumer(house)
    deliver = given.step(1)["deliver"]
    told = [consumer.dispatch(deliver["dedup_id"]) for _ in range(deliver["times"])]
    given.meets(1, total_handler_calls=consumer.called, all_acked=set(told) == {"ack"})


@scenario("queue-at-least-once-dedup")
def test_queue_dedup_by_the_inbox(house, given):
    """The same for a queue that pushes (design 11.1): the dedup id is the event's, an ack is 200 after it is on disk."""
    deliver = given.step(1)["deliver"]
    body = json.dumps({"id": deliver["dedup_id"], "type": "thing.succeeded", "data": {}})
    answers = [webhooks.tell(house.onced, body) for _ in range(deliver["times"])]
    recorded = house.onced.client.get("/v1/inbox")["events"]
    given.meets(1, total_handler_calls=sum(each["event"] == deliver["dedup_id"] for each in recorded),
                all_acked={answer.status for answer in answers} == {200})
    assert [answer["duplicate"] for answer in answers] == [False] + [True] * (deliver["times"] - 1)


@scenario("queue-concurrent-redelivery")
def test_queue_concurrent(house, given):
    consumer = Consumer(house)
    told = together([lambda: Consumer.dispatch(consumer, given["deliver"]["dedup_id"])] * given["parallel_consumers"])
    given.meets(1, total_handler_calls=consumer.called)
    assert "ack" in told and consumer.dispatch(given["deliver"]["dedup_id"]) == "ack" and consumer.called == 1


def crashed(house, given, suffix):
    """A consumer that claimed and is gone, and the first redelivery after its lease."""
    dedup_id = given.step(1)["deliver"]["dedup_id"] + suffix
    zombie, other = Consumer(house, "queue-short"), Consumer(house, "queue-short")
    lease = zombie.begin(dedup_id)["lease"]["token"]
    assert other.dispatch(dedup_id) == "retry" and other.last["decision"] == "wait", other.last
    wait_until(lambda: other.dispatch(dedup_id) == "retry" and other.last["decision"] == "unknown", what="the lease's end")
    return dedup_id, zombie, lease, other


@scenario("queue-crash-recovery")
def test_queue_crash_recovery(house, given):
    dedup_id, zombie, lease, other = crashed(house, given, "")
    late = zombie.say("complete", lease=lease, result={"by": "zombie"})
    given.meets(3, handler_called=other.called > 0, zombie_completion_rejected=late.status >= 400)
    assert other.dispatch(dedup_id) == "ack" and other.called == 0
    assert other.last["operation"]["result"] == {"by": "zombie"}, "done once, by who was believed dead"


@scenario("queue-crash-recovery")
def test_queue_crash_recovery_with_a_person(house, given):
    """What idemkit takes for granted, "the lease is over, so it did not happen", somebody must state here (7.4). Then the redelivery
    executes, and the zombie's claim that it did it after all does not end the second one's lease."""
    dedup_id, zombie, lease, other = crashed(house, given, "-stated")
    unknown = other.last["operation"]
    answer = house.onced.client.post(f"/v1/operations/{unknown['operation_id']}/resolve",
                                     {"version": unknown["version"], "happened": False, "retry": True, "note": "never ran"})
    assert answer.state == "failed_retryable", answer
    assert other.dispatch(dedup_id) == "ack" and other.called == 1, other.last
    late = zombie.say("complete", lease=lease, result={"by": "zombie"})
    assert other.dispatch(dedup_id) == "ack" and other.called == 1
    assert other.last["operation"]["result"] == {"done": True}, (late, other.last)


@scenario("queue-lease-shorter-than-visibility")
def test_queue_lease_and_visibility(house, given):
    """A redelivery before the lease's end (visibility 1 s or less of 30) and one after it: neither runs beside a handler."""
    within = Consumer(house)
    assert within.begin("Q4")["decision"] == "execute"
    during = Consumer(house)
    assert during.dispatch("Q4") == "retry" and during.last["decision"] == "wait"
    given.meets(1, construction_error=during.called > 0)
    contents = registry.file(house.provider.url, {"q": queue(lease="0")})
    refused = house.onced.folder / "no-lease.yaml"
    refused.write_text(registry.text(contents))
    done = house.onced.cli("check", refused, check=False)
    assert done.returncode != 0 and "lease" in done.stdout + done.stderr, done


@scenario("queue-poison-dlq")
def test_queue_poison(house, given):
    def poison():
        raise ValueError("cannot be processed")

    consumer, dedup_id = Consumer(house, "queue-poison", poison), given["deliver"]["dedup_id"]
    wait_until(lambda: consumer.dispatch(dedup_id) == "ack", what="the end of its attempts")
    given.meets(1, total_handler_calls=consumer.called, on_exhausted_calls=consumer.exhausted, finally_acked=True)
    assert consumer.last["operation"]["reason"] == "attempts_exhausted"
    assert consumer.dispatch(dedup_id) == "ack" and consumer.called == 3 and consumer.exhausted == 1


@scenario("queue-result-bearing-replay")
def test_queue_result_replay(house, given):
    consumer = Consumer(house, handler=lambda: {"total": 12.50, "at": time.time()})
    dedup_id = given.step(1)["deliver"]["dedup_id"]
    consumer.dispatch(dedup_id)
    first = consumer.last["operation"]["result"]
    given.meets(1, handler_called=consumer.called == 1, result_present=first is not None)
    consumer.dispatch(dedup_id)
    given.meets(2, handler_called=consumer.called == 2, result_matches_first=consumer.last["operation"]["result"] == first)


# ---- AI tool calls ----


def tell(house, tool, arguments):
    """A tool call over MCP: the answer, and whether it was executed."""
    before = house.calls(tool)
    answer = Mcp(house.onced.port).call(tool, arguments)
    return answer, house.calls(tool) > before


@scenario("tool-retry-dedup")
def test_tool_retry_dedup(house, given):
    call = given.step(1)["call"]
    told = [tell(house, given["id"], call["args"])[0] for _ in range(call["times"])]
    results = {json.dumps([each.id, each.shape["result"]], sort_keys=True) for each in told}
    given.meets(1, total_executions=house.calls(given["id"]), all_results_identical=len(results) == 1)
    assert [each.shape["replayed"] for each in told] == [False] + [True] * (call["times"] - 1)


@scenario("tool-arg-normalization")
def test_tool_arg_normalization(house, given):
    for number, step in enumerate(given.steps_, 1):
        answer, executed = tell(house, given["id"], step["call"]["args"])
        given.meets(number, executed=executed, replayed=answer.shape["replayed"])
    assert house.calls(given["id"]) == 2


@scenario("tool-concurrent-calls")
def test_tool_concurrent(house, given):
    told = together([lambda: tell(house, given["id"], given["call"]["args"])[0]] * given["parallel_calls"])
    given.meets(1, total_executions=house.calls(given["id"]))
    assert len({json.dumps(each.shape["result"], sort_keys=True) for each in told}) == 1


@scenario("tool-crash-recovery")
def test_tool_crash(house, given):
    """The tool dies before it did anything, which its caller cannot know."""
    house.provider.script({"fault": "close_before_commit", "on": "write", "collection": given["id"]})
    first, _ = tell(house, given["id"], given.step(1)["call"]["args"])
    given.meets(1, raised=first.is_error)
    assert first.state == "completed_success" and house.calls(given["id"]) == 2, first
    again, executed = tell(house, given["id"], given.step(2)["call"]["args"])
    given.meets(2, executed=executed)
    assert again.shape["result"] == first.shape["result"]


@scenario("tool-crash-recovery")
def test_tool_that_tells_of_its_crash(house, given):
    """An application that knows that nothing happened says so (guard mode): then the retry executes, as idemkit's does."""
    consumer = Consumer(house)
    lease = consumer.begin("crashing tool")["lease"]["token"]
    failed = consumer.say("fail", lease=lease, effect="none", retry=True, error={"message": "raised"})
    assert failed["operation"]["status"] == "failed_retryable" and consumer.dispatch("crashing tool") == "ack" and consumer.called == 1


@scenario("tool-unserializable-result-fails-closed")
def test_tool_unserializable(house, given):
    tool = "tool-unserializable"
    house.provider.script({"fault": "malformed", "on": "write", "collection": tool})
    first, _ = tell(house, tool, given.step(1)["call"]["args"])
    given.meets(1, error_raised=first.is_error, cached=first.shape["result"] is not None)
    again, executed = tell(house, tool, given.step(2)["call"]["args"])
    given.meets(2, conflict=again.error is not None, executed=executed)
    assert first.state == again.state == "unknown_outcome" and first.id == again.id and house.calls(tool) == 1, again


@scenario("tool-pickle-opt-in-warns")
def test_tool_pickle(house, given):
    tool = {**simple("t"), "result_codec": given["tool"]["result_codec"]}
    file = house.onced.folder / "pickle.yaml"
    file.write_text(registry.text(registry.file(house.provider.url, {"t": tool})))
    done = house.onced.cli("check", file, check=False)
    said = done.stdout + done.stderr
    given.meets(1, security_warning_emitted=done.returncode == 0)
    assert done.returncode != 0 and "/tools/t/result_codec: unknown member" in said, said
