"""Every command against a daemon that the test plays: what is asked, what people and programs see, the exit code.

Run with ONCED=path/to/onced."""

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

OP = "op_01J8ZQ6D8M3V7N2K5T9X4B6C1R"
OK, FAILED, USAGE, OPEN, UNREACHABLE, NOT_FOUND, DENIED = range(7)


@pytest.fixture(scope="module")
def onced():
    if not os.environ.get("ONCED"):
        pytest.skip("ONCED names no program")
    return os.environ["ONCED"]


class Daemon:
    """Answers as told: self.answers maps "METHOD path" to (status, body, headers) or to a function of the request."""

    def __init__(self):
        self.answers = {}
        self.requests = []
        daemon = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                text = self.rfile.read(length)
                request = {"method": self.command, "path": self.path, "headers": dict(self.headers),
                           "body": json.loads(text) if text else None}
                daemon.requests.append(request)
                found = daemon.answers.get(f"{self.command} {self.path}") or daemon.answers.get("*")
                if callable(found):
                    found = found(request)
                if found is None:
                    found = problem(404, "not_found", "Not found", f"nothing at {self.path}")
                if found == "hang up":
                    self.close_connection = True
                    return
                status, body, headers = found
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                kind = "application/problem+json" if status >= 400 else "application/json"
                for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def problem(status, name, title, detail, **more):
    return status, {"type": f"urn:onced:problem:{name}", "title": title, "status": status, "detail": detail, **more}, {}


def operation(**changes):
    return {"operation_id": OP, "tool": "refund.create", "status": "completed_success", "reason": None, "replayed": False,
            "attempts": 1, "lookups": 0, "version": 2, "key_source": "business", "key_version": 1,
            "created_at": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:01.000Z",
            "completed_at": "2026-01-01T00:00:01.000Z", "not_before": None, "result": {"id": "re_1", "amount": 9007199254740993},
            "error": None, "external_id": "re_1", "http_status": 201, "result_dropped": False, "next_action": "use_result",
            "retry_after_ms": None, "safe_user_message": "The refund was made.", "principal": "agent-7", "run_id": "run-1",
            "step_id": None, "session_id": None, "workflow": None, "repeat_of": None, "distinct_from": None, "previous": None,
            "incidents": [], "links": {}, **changes}


@pytest.fixture
def daemon():
    daemon = Daemon()
    yield daemon
    daemon.stop()


@pytest.fixture
def run(onced, daemon, tmp_path):
    def run(*arguments, environment=None, server=True, stdin=None):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ONCED_")}
        clean.update({"ONCED_SERVER": daemon.url} if server else {})
        clean.update(environment or {})
        return subprocess.run([onced, *arguments], capture_output=True, text=True, timeout=30, env=clean, cwd=tmp_path,
                              input=stdin)
    return run


# ---- the program itself ----

def test_without_command_shows_all(run):
    done = run()
    assert done.returncode == USAGE
    for name in ("serve", "check", "init", "call", "show", "list", "trace", "resolve", "retry", "cancel", "incidents", "backup",
                 "token", "fake-provider", "completion", "version", "help"):
        assert re.search(rf"^  {name} ", done.stderr, re.M), name


def test_unknown_command_suggests_the_nearest(run):
    done = run("trcae")
    assert done.returncode == USAGE
    assert "did you mean 'trace'" in done.stderr


def test_version(run):
    assert run("--version").stdout.startswith("onced 0.")
    assert json.loads(run("version", "--json").stdout)["version"].startswith("0.")


def test_serve_without_file_explains(run):
    done = run("serve")
    assert done.returncode == USAGE
    assert "onced init onced.yaml" in done.stderr


@pytest.mark.parametrize("arguments,says", [
    (["show"], "OP is missing"),
    (["show", "a", "b"], "'b' is one word too many"),
    (["list", "--limit", "0"], "expected a number from 1"),
    (["list", "--status", "unknown"], "no such state"),
    (["list", "--nonsense"], "unknown option --nonsense"),
    (["call", "t", "--wait", "soon"], "--wait"),
    (["call", "t", "--arg", "x"], "NAME=VALUE"),
    (["call", "t", "--args", "[1]"], "expected a JSON object"),
    (["call", "t", "--args", '{"a":1,"a":2}'], "arguments: "),
    (["call", "t", "--key"], "needs a value"),
    (["resolve", OP, "--note", "n"], "either --happened or --did-not-happen"),
    (["resolve", OP, "--happened", "--did-not-happen", "--note", "n"], "either"),
    (["resolve", OP, "--happened"], "--note is missing"),
    (["resolve", OP, "--happened", "--retry", "--note", "n"], "would happen twice"),
    (["resolve", OP, "--did-not-happen", "--external-id", "x", "--note", "n"], "--happened only"),
    (["resolve", OP, "--happened", "--note", "n", "--version", "x"], "--version x"),
    (["resolve", OP, "--happened", "--note", "n", "--result", "{"], "--result: "),
    (["incidents", "in_1"], "ack INCIDENT"),
    (["token", "create", "--ledger", "l"], "--principal NAME and --role ROLE"),
    (["token", "create", "--role", "king"], "--role king"),
    (["token", "revoke", "--ledger", "l"], "takes one token id"),
    (["token", "list"], "--ledger FILE or URL, or --config FILE"),
    (["backup", "to"], "--ledger FILE or URL, or --config FILE"),
    (["completion", "fish"], "expected bash or zsh"),
    (["help", "nothing"], "no command 'nothing'"),
    (["show", OP, "--server", "ftp://x"], "begins with http:// or https://"),
    (["show", OP, "--token-file", "/does/not/exist"], "token file /does/not/exist"),
    (["show", "--tool", "t"], "--tool and --key belong together"),
])
def test_wrong_command_lines_say_what_is_wrong(run, daemon, arguments, says):
    done = run(*arguments)
    assert done.returncode == USAGE
    assert says in done.stderr
    assert done.stdout == ""
    assert daemon.requests == []


# ---- call ----

def test_call_sends_what_was_said(run, daemon, tmp_path):
    (tmp_path / "args.json").write_text('{"note": "from file", "amount": 1}')
    daemon.answers["POST /v1/calls"] = 201, operation(), {}
    done = run("call", "refund.create", "--args-file", "args.json", "-a", "amount=9007199254740993", "--arg", "id=pay_1",
               "--key", "k-1", "--run", "r", "--step", "s", "--session", "se", "--call-id", "c", "--workflow", "w",
               "--wait", "10s", "--repeat-of", OP, "--distinct-from", OP, "--distinct-from", "op_2",
               "--not-before", "2026-12-01T00:00:00Z")
    assert done.returncode == OK, done.stderr
    assert daemon.requests[0]["body"] == {
        "tool": "refund.create", "arguments": {"note": "from file", "amount": 9007199254740993, "id": "pay_1"},
        "idempotency_key": "k-1", "run_id": "r", "step_id": "s", "session_id": "se", "call_id": "c", "workflow": "w",
        "not_before": "2026-12-01T00:00:00Z", "repeat_of": OP, "distinct_from": [OP, "op_2"], "wait_ms": 10000}
    assert len(daemon.requests) == 1
    assert "completed_success" in done.stdout and OP in done.stdout and "9007199254740993" in done.stdout
    assert "The refund was made." in done.stdout


def test_call_reads_arguments_from_standard_input(run, daemon):
    daemon.answers["POST /v1/calls"] = 200, operation(), {"Idempotency-Replayed": "true"}
    done = run("call", "t", "--args-file", "-", stdin='{"a": [1, 2]}')
    assert daemon.requests[0]["body"]["arguments"] == {"a": [1, 2]}
    assert "replayed" in done.stdout


def test_call_json_is_the_daemons(run, daemon):
    daemon.answers["POST /v1/calls"] = 201, operation(), {}
    done = run("call", "t", "--json")
    assert json.loads(done.stdout) == operation()
    assert done.stderr == ""


def test_call_async(run, daemon):
    daemon.answers["POST /v1/calls"] = 202, operation(status="pending_dispatch"), {}
    done = run("call", "t", "--async")
    assert daemon.requests[0]["headers"]["Prefer"] == "respond-async"
    assert done.returncode == OPEN
    assert f"onced show {OP} --wait 60s" in done.stdout


@pytest.mark.parametrize("status,reason,code,says", [
    ("completed_success", None, OK, ""),
    ("completed_noop", None, OK, ""),
    ("failed_permanent", "provider_refused", FAILED, "It did not happen"),
    ("rejected", "cancelled", FAILED, "It did not happen"),
    ("dispatched", None, OPEN, "--wait"),
    ("failed_retryable", "not_sent", OPEN, "onced cancel"),
    ("unknown_outcome", "timeout", OPEN, "Do not repeat the call"),
    ("unknown_outcome", "needs_operator", OPEN, f"onced resolve {OP} --happened"),
])
def test_call_exit_code_says_what_is_known(run, daemon, status, reason, code, says):
    daemon.answers["POST /v1/calls"] = 200, operation(status=status, reason=reason, result=None), {}
    done = run("call", "t")
    assert done.returncode == code
    assert status in done.stdout and says in done.stdout
    assert run("call", "t", "--json").returncode == code


@pytest.mark.parametrize("answer,code,says", [
    (problem(422, "invalid_arguments", "Arguments do not fit", "2 errors",
             errors=[{"pointer": "/amount_cents", "message": "must be an integer", "keyword": "type"},
                     {"pointer": "", "message": "payment_id is required", "keyword": "required"}]),
     FAILED, ["Arguments do not fit", "/amount_cents: must be an integer", "payment_id is required"]),
    (problem(422, "key_reused", "Key reused", "other arguments", differing=["/amount"], operation_id=OP,
             operation_status="completed_success"), FAILED, ["/amount: differs", f"onced trace {OP}"]),
    (problem(409, "in_doubt", "Held", f"{OP} is unresolved", operation_id=OP, operation_status="unknown_outcome"),
     FAILED, ["Held", "is unresolved", "unknown_outcome"]),
    (problem(409, "result_expired", "Expired", "known executed", operation_status="completed_success", operation_id=OP),
     OK, ["known executed"]),
    (problem(400, "key_missing", "Key missing", "needs a key"), FAILED, ["needs a key"]),
    (problem(401, "unauthorized", "No token", "a token is needed"), DENIED, ["a token is needed"]),
    (problem(403, "forbidden", "Forbidden", "operators only"), DENIED, ["operators only"]),
    (problem(404, "no_such_tool", "No such tool", "no tool 't'"), NOT_FOUND, ["no tool 't'"]),
    (problem(503, "unavailable", "Unavailable", "disk full"), UNREACHABLE, ["disk full"]),
    ((500, b"<html>oops</html>", {}), OPEN, ["not JSON"]),
    ((200, b"not json", {}), FAILED, ["not JSON"]),
])
def test_call_problems(run, daemon, answer, code, says):
    daemon.answers["POST /v1/calls"] = answer
    done = run("call", "t")
    assert done.returncode == code
    assert done.stdout == ""
    for text in says:
        assert text in done.stderr
    as_json = run("call", "t", "--json")
    assert as_json.returncode == code
    if not isinstance(answer[1], bytes):
        assert json.loads(as_json.stdout) == answer[1]


def test_call_without_daemon(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: connections are refused
        done = run("call", "t", "--server", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == UNREACHABLE
    assert "no daemon answers" in done.stderr and "onced serve" in done.stderr


def test_call_whose_answer_is_lost_is_open_and_sent_once(run, daemon):
    daemon.answers["POST /v1/calls"] = lambda request: "hang up"
    done = run("call", "t")
    assert done.returncode == OPEN
    assert "may have been taken" in done.stderr
    assert len(daemon.requests) == 1


def test_call_dry_run(run, daemon):
    plan = {"decision": "new", "key": "k"}
    daemon.answers["POST /v1/calls"] = 200, plan, {}
    done = run("call", "t", "--dry-run")
    assert daemon.requests[0]["body"]["dry_run"] is True
    assert done.returncode == OK
    assert "nothing was recorded" in done.stdout and '"decision": "new"' in done.stdout
    assert json.loads(run("call", "t", "--dry-run", "--json").stdout) == plan


def test_terminal_is_not_steered_by_what_a_provider_says(run, daemon):
    daemon.answers["POST /v1/calls"] = 200, operation(status="failed_permanent", external_id="a\x1b[2Jb",
                                                     error={"message": "no\x1b]0;title\x07"}), {}
    done = run("call", "t")
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout
    assert "a\\x1b[2Jb" in done.stdout


# ---- tokens and coordinates on the way ----

def test_token_comes_from_file_or_environment_and_never_shows(run, daemon, tmp_path):
    daemon.answers["*"] = 200, operation(), {}
    (tmp_path / "t").write_text("onced_secret1\n")
    run("show", OP, "--token-file", "t")
    run("show", OP, environment={"ONCED_TOKEN": "onced_secret2"})
    run("show", OP, environment={"ONCED_TENANT": "acme"})
    run("show", OP, "--tenant", "beta", "--principal", "ann", environment={"ONCED_TENANT": "acme"})
    headers = [request["headers"] for request in daemon.requests]
    assert headers[0]["Authorization"] == "Bearer onced_secret1"
    assert headers[1]["Authorization"] == "Bearer onced_secret2"
    assert "Authorization" not in headers[2] and headers[2]["Onced-Tenant"] == "acme"
    assert headers[3]["Onced-Tenant"] == "beta" and headers[3]["Onced-Principal"] == "ann"
    broken = run("show", OP, environment={"ONCED_TOKEN": "onced_sec ret3"})
    assert broken.returncode == USAGE
    assert "ret3" not in broken.stderr


def test_no_proxy_is_asked(run, daemon):
    daemon.answers["*"] = 200, operation(), {}
    done = run("show", OP, environment={"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"})
    assert done.returncode == OK


def test_redirects_are_not_followed(run, daemon):
    daemon.answers["POST /v1/calls"] = 307, {}, {"Location": "/v1/other"}
    run("call", "t")
    assert [request["path"] for request in daemon.requests] == ["/v1/calls"]


# ---- show, list ----

def test_show(run, daemon):
    daemon.answers[f"GET /v1/operations/{OP}"] = 200, operation(status="unknown_outcome", reason="timeout"), {}
    done = run("show", OP)
    assert done.returncode == OK  # it was shown
    assert "unknown_outcome (timeout)" in done.stdout
    assert json.loads(run("show", OP, "--json").stdout)["status"] == "unknown_outcome"


def test_show_wait_says_how_it_ended(run, daemon):
    daemon.answers[f"GET /v1/operations/{OP}?wait=1500"] = 200, operation(status="failed_permanent"), {}
    assert run("show", OP, "--wait", "1500ms").returncode == FAILED
    daemon.answers[f"GET /v1/operations/{OP}?wait=1500"] = 202, operation(status="dispatched"), {}
    assert run("show", OP, "--wait", "1500ms").returncode == OPEN


def test_show_by_key_escapes_it(run, daemon):
    daemon.answers["GET /v1/tools/refund.create/operations/a%2Fb%20%3F"] = 200, operation(), {}
    assert run("show", "--tool", "refund.create", "--key", "a/b ?").returncode == OK


def test_show_unknown(run):
    done = run("show", OP)
    assert done.returncode == NOT_FOUND
    assert "Not found" in done.stderr


def test_list_follows_pages(run, daemon):
    first = [operation(operation_id=f"op_{i}") for i in range(3)]
    daemon.answers["GET /v1/operations?limit=5&status=unknown_outcome%2Cdispatched&tool=a%26b"] = \
        200, {"operations": first, "next": "op_2"}, {}
    daemon.answers["GET /v1/operations?limit=2&status=unknown_outcome%2Cdispatched&tool=a%26b&cursor=op_2"] = \
        200, {"operations": [operation(operation_id="op_3"), operation(operation_id="op_4")], "next": "op_4"}, {}
    done = run("list", "--limit", "5", "--status", "unknown_outcome,dispatched", "--tool", "a&b")
    assert done.returncode == OK, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:6]] == ["op_0", "op_1", "op_2", "op_3", "op_4"]
    assert "there are more" in done.stdout
    page = json.loads(run("list", "--limit", "5", "--status", "unknown_outcome,dispatched", "--tool", "a&b", "--json").stdout)
    assert len(page["operations"]) == 5 and page["next"] == "op_4"


def test_list_empty(run, daemon):
    daemon.answers["GET /v1/operations?limit=20&run_id=r&principal=p"] = 200, {"operations": [], "next": None}, {}
    done = run("list", "--run", "r", "--by", "p")
    assert (done.returncode, done.stdout) == (OK, "no operations\n")


def test_list_watch_goes_on_until_interrupted(onced, daemon):
    daemon.answers["GET /v1/operations?limit=20"] = 200, {"operations": [operation()], "next": None}, {}
    process = subprocess.Popen([onced, "list", "--watch", "--every", "100ms", "--server", daemon.url], stdout=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # ignored by jobs in the background
    deadline = time.monotonic() + 10
    while len(daemon.requests) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert len(daemon.requests) >= 5
    assert out.count(OP.encode()) >= 2


# ---- trace ----

def life(daemon):
    def at(ms):
        return f"2026-01-01T00:00:{ms // 1000:02d}.{ms % 1000:03d}Z"
    daemon.answers[f"GET /v1/operations/{OP}"] = 200, operation(
        status="unknown_outcome", reason="needs_operator", key="refund:pay_1", arguments={"payment_id": "pay_1"}, result=None,
        completed_at=None, incidents=[{"id": "in_1", "kind": "wrong_object", "operation_id": OP, "at": at(12500), "note": "odd",
                                       "acknowledged_by": None, "acknowledged_at": None}]), {}
    daemon.answers[f"GET /v1/operations/{OP}/events"] = 200, {"events": [
        {"at": at(0), "cause": "admitted", "from": "dispatched", "to": "dispatched", "reason": None, "actor": "agent-7",
         "attempt": 1, "note": None},
        {"at": at(10000), "cause": "answer", "from": "dispatched", "to": "unknown_outcome", "reason": "timeout",
         "actor": "onced", "attempt": 1, "note": None},
        {"at": at(13000), "cause": "gave_up", "from": "unknown_outcome", "to": "unknown_outcome", "reason": "needs_operator",
         "actor": "onced", "attempt": None, "note": None}]}, {}
    daemon.answers[f"GET /v1/operations/{OP}/attempts"] = 200, {"attempts": [
        {"id": "at_1", "number": 1, "kind": "call", "outcome": "timeout", "started_at": at(0), "finished_at": at(10000),
         "http_status": None, "provider_request_id": None, "detail": "no answer in 10 s"},
        {"id": "at_2", "number": 2, "kind": "lookup", "outcome": "cannot_tell", "started_at": at(12000),
         "finished_at": at(12200), "http_status": 500, "provider_request_id": "req_9", "detail": None}]}, {}


def test_trace_tells_the_whole_life_in_order(run, daemon):
    life(daemon)
    done = run("trace", OP)
    assert done.returncode == OK, done.stderr
    in_order = ["refund.create", "needs_operator", "possible: a request left", "refund:pay_1", "agent-7", "+0 ms        admitted",
                "#1 request", "#1 ended: timeout, after 10.0 s", "answer      dispatched → unknown_outcome (timeout)",
                "#2 look-up", "#2 ended: cannot_tell, HTTP 500, after 200 ms, provider's req_9", "wrong_object", "gave_up",
                f"onced resolve {OP} --happened"]
    positions = [done.stdout.find(text) for text in in_order]
    assert -1 not in positions and positions == sorted(positions), done.stdout


def test_trace_json(run, daemon):
    life(daemon)
    trace = json.loads(run("trace", OP, "--json").stdout)
    assert (len(trace["events"]), len(trace["attempts"]), trace["operation"]["operation_id"]) == (3, 2, OP)


def test_trace_unknown(run):
    assert run("trace", OP).returncode == NOT_FOUND


# ---- decisions ----

def test_resolve_passes_on_the_version_it_saw(run, daemon):
    daemon.answers[f"GET /v1/operations/{OP}"] = 200, operation(status="unknown_outcome", reason="needs_operator", version=7), {}
    daemon.answers[f"POST /v1/operations/{OP}/resolve"] = 200, operation(version=8), {}
    done = run("resolve", OP, "--happened", "--external-id", "re_1", "--result", '{"id":"re_1"}', "--note", "dashboard")
    assert done.returncode == OK, done.stderr
    assert daemon.requests[1]["body"] == {"version": 7, "happened": True, "external_id": "re_1", "result": {"id": "re_1"},
                                          "note": "dashboard"}
    assert "unknown_outcome (needs_operator), version 7" in done.stdout and "completed_success" in done.stdout
    as_json = run("resolve", OP, "--did-not-happen", "--retry", "--note", "n", "--version", "5", "--json")
    assert daemon.requests[3]["body"] == {"version": 5, "happened": False, "retry": True, "note": "n"}
    assert json.loads(as_json.stdout)["version"] == 8


def test_resolve_on_an_older_version(run, daemon):
    daemon.answers[f"GET /v1/operations/{OP}"] = 200, operation(status="unknown_outcome"), {}
    daemon.answers[f"POST /v1/operations/{OP}/resolve"] = problem(409, "stale_version", "Stale", "it moved on", operation_id=OP,
                                                                 operation_status="completed_success")
    done = run("resolve", OP, "--did-not-happen", "--note", "n")
    assert done.returncode == FAILED
    assert "it moved on" in done.stderr and "completed_success" in done.stderr


@pytest.mark.parametrize("verb", ["retry", "cancel"])
def test_retry_and_cancel(run, daemon, verb):
    daemon.answers[f"GET /v1/operations/{OP}"] = 200, operation(status="failed_retryable", version=3), {}
    daemon.answers[f"POST /v1/operations/{OP}/{verb}"] = 200, operation(status="rejected", reason="cancelled"), {}
    done = run(verb, OP, "--note", "why")
    assert done.returncode == OK
    assert daemon.requests[1]["body"] == {"version": 3, "note": "why"}
    assert json.loads(run(verb, OP, "--json").stdout)["status"] == "rejected"
    daemon.answers[f"POST /v1/operations/{OP}/{verb}"] = problem(409, "not_possible", "Not possible", "on the wire")
    done = run(verb, OP)
    assert done.returncode == FAILED and "on the wire" in done.stderr
    daemon.answers[f"POST /v1/operations/{OP}/{verb}"] = lambda request: "hang up"
    assert run(verb, OP).returncode == OPEN


# ---- incidents ----

def test_incidents(run, daemon):
    incident = {"id": "in_1", "kind": "late_landing", "operation_id": OP, "at": "2026-01-01T00:00:00.000Z", "note": "it landed",
                "acknowledged_by": None, "acknowledged_at": None}
    daemon.answers["GET /v1/incidents?open=true"] = 200, {"incidents": [incident], "next": None}, {}
    daemon.answers["GET /v1/incidents"] = 200, {"incidents": [], "next": None}, {}
    daemon.answers["POST /v1/incidents/in_1/acknowledge"] = 200, {**incident, "acknowledged_by": "ann"}, {}
    done = run("incidents")
    assert done.returncode == OK and "late_landing" in done.stdout and "it landed" in done.stdout
    assert json.loads(run("incidents", "--json").stdout)["incidents"] == [incident]
    assert run("incidents", "--all").stdout == "no incidents\n"
    assert run("incidents", "ack", "in_1").stdout == "in_1 acknowledged by ann\n"
    assert run("incidents", "ack", "in_2").returncode == NOT_FOUND


# ---- on the ledger file ----

def test_tokens_live_and_die(run, tmp_path):
    ledger = str(tmp_path / "l.db")
    made = run("token", "create", "--ledger", ledger, "--tenant", "acme", "--principal", "agent-7", "--role", "agent",
               "--expires", "90d")
    assert made.returncode == OK, made.stderr
    secret = made.stdout.strip()
    assert re.fullmatch(r"onced_[A-Za-z0-9_-]{43}", secret)
    assert secret not in made.stderr and "agent-7" in made.stderr
    assert oct((tmp_path / "l.db").stat().st_mode & 0o777) == "0o600"
    as_json = json.loads(run("token", "create", "--ledger", ledger, "--principal", "ann", "--role", "operator", "--json").stdout)
    assert as_json["tenant"] == "default" and as_json["expires_at"] is None and as_json["token"].startswith("onced_")
    listed = json.loads(run("token", "list", "--ledger", ledger, "--json").stdout)["tokens"]
    assert [(token["principal"], token["role"]) for token in listed] in ([("agent-7", "agent"), ("ann", "operator")],
                                                                        [("ann", "operator"), ("agent-7", "agent")])
    assert all("token" not in token for token in listed)
    assert b"".join(path.read_bytes() for path in tmp_path.glob("l.db*")).find(secret.encode()) == -1
    gone = run("token", "revoke", as_json["id"], "--ledger", ledger)
    assert gone.returncode == OK
    table = run("token", "list", "--ledger", ledger).stdout
    assert re.search(r"ann +operator +all +all +revoked", table) and re.search(r"agent-7 +agent +all +all +good", table)
    assert run("token", "revoke", "tok_01J8ZQ6D8M3V7N2K5T9X4B6C1R", "--ledger", ledger).returncode == NOT_FOUND
    assert run("token", "list", "--ledger", str(tmp_path / "none.db")).returncode == NOT_FOUND
    assert not (tmp_path / "none.db").exists()


def test_ledger_is_found_through_the_registry_file(run, tmp_path):
    assert run("init", "r.yaml").returncode == OK
    made = run("token", "create", "--config", "r.yaml", "--principal", "a", "--role", "admin")
    assert made.returncode == OK, made.stderr
    assert (tmp_path / "onced.db").exists()
    broken = tmp_path / "broken.yaml"
    broken.write_text("onced: 2\n")
    refused = run("token", "list", "--config", "broken.yaml")
    assert refused.returncode == USAGE
    assert "broken.yaml:1:" in refused.stderr and "--ledger does without it" in refused.stderr


def test_backup(run, tmp_path):
    ledger = str(tmp_path / "l.db")
    run("token", "create", "--ledger", ledger, "--principal", "a", "--role", "admin")
    done = run("backup", "copy.db", "--ledger", ledger)
    assert done.returncode == OK, done.stderr
    assert "checked" in done.stdout
    assert len(json.loads(run("token", "list", "--ledger", "copy.db", "--json").stdout)["tokens"]) == 1
    again = run("backup", "copy.db", "--ledger", ledger)
    assert again.returncode == FAILED and "copy.db" in again.stderr
    assert json.loads(run("backup", "copy2.db", "--ledger", ledger, "--json").stdout)["bytes"] > 0
    assert run("backup", "copy3.db", "--ledger", "none.db").returncode in (FAILED, NOT_FOUND)
    assert not (tmp_path / "copy3.db").exists()


# ---- help, manual page and completion agree ----

def manual():
    """Options of each command in docs/onced.1."""
    path = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "onced.1")
    commands, current = {}, None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(".Ss "):
                current = commands.setdefault(line.split()[1], set())
            elif line.startswith(".Sh "):
                current = None
            elif line.startswith(".It ") and current is not None:
                current.update(re.findall(r"Fl -([a-z-]+)", line))
    return commands


def command_names(run):
    return re.findall(r"^  ([a-z-]+) {2,}", run("help").stdout, re.M)


def help_options(run, name):
    return set(re.findall(r"^ +(?:-[a-z], )?--([a-z-]+)", run(name, "--help").stdout, re.M))


def test_manual_and_help_name_the_same(run):
    pages = manual()
    assert list(pages) == command_names(run)
    for name, options in pages.items():
        assert options == help_options(run, name), name


def test_exit_codes_are_in_the_manual():
    path = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "onced.1")
    with open(path, encoding="utf-8") as file:
        section = file.read().split(".Sh EXIT STATUS")[1].split(".Sh")[0]
    with open(os.path.join(os.path.dirname(path), "..", "src", "cli", "cli.h"), encoding="utf-8") as file:
        codes = file.read().split("enum cli_exit {")[1].split("};")[0]
    assert re.findall(r"^\.It (\d+)", section, re.M) == re.findall(r"^    CLI_\w+ = (\d+)", codes, re.M)


def complete(script, *words):
    """What bash offers for the last word."""
    line = " ".join(words)
    code = (f"source {script}; COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; "
            f"COMP_LINE={line!r}; _onced; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=10)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completion_offers_what_help_names(run, tmp_path):
    script = tmp_path / "onced.bash"
    script.write_text(run("completion", "bash").stdout)
    names = command_names(run)
    assert complete(script, "onced", "") == set(names)
    assert complete(script, "onced", "tr") == {"trace"}
    for name in names:
        assert complete(script, "onced", name, "--") == {f"--{option}" for option in help_options(run, name)}, name
    assert "unknown_outcome" in complete(script, "onced", "list", "--status", "u")
    assert complete(script, "onced", "token", "cr") == {"create"}
    assert complete(script, "onced", "help", "ca") == {"call", "cancel"}


def test_zsh_completion_names_all(run):
    script = run("completion", "zsh").stdout
    assert script.startswith("#compdef onced\n")
    for name in command_names(run):
        part = re.search(rf"^    {name}\)\n(.*?)^        ;;", script, re.M | re.S).group(1)
        for option in help_options(run, name):
            assert f"--{option}" in part, (name, option)


def test_colours_only_on_a_terminal(onced, daemon):
    """On a pseudo terminal there are colours, with NO_COLOR none."""
    import pty
    daemon.answers["*"] = 200, operation(), {}

    def on_terminal(environment):
        primary, secondary = pty.openpty()
        process = subprocess.Popen([onced, "show", OP, "--server", daemon.url], stdout=secondary,
                                   env={**os.environ, "TERM": "xterm", **environment})
        os.close(secondary)
        text = b""
        while True:
            try:
                part = os.read(primary, 65536)
            except OSError:
                break
            if not part:
                break
            text += part
        process.wait(10)
        os.close(primary)
        return text

    without = {name: "" for name in ("NO_COLOR",)}
    assert b"\x1b[32mcompleted_success" in on_terminal(without)
    assert b"\x1b" not in on_terminal({"NO_COLOR": "1"})
