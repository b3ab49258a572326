"""The fault-injecting provider does each fault as it says: judged on the raw socket and by its own count of effects.

Run with ONCED_FAKE_PROVIDER=path/to/fake-provider, or ONCED=path/to/onced (then `onced fake-provider` is tested)."""

import base64
import hashlib
import hmac
import http.client
import http.server
import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time

import pytest


def command():
    if os.environ.get("ONCED_FAKE_PROVIDER"):
        return shlex.split(os.environ["ONCED_FAKE_PROVIDER"])
    if os.environ.get("ONCED"):
        return [os.environ["ONCED"], "fake-provider"]
    pytest.skip("neither ONCED_FAKE_PROVIDER nor ONCED names a program")


class Provider:
    def __init__(self, *options):
        self.process = subprocess.Popen([*command(), "--port", "0", *options], stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        assert ready["ready"] is True
        self.port = ready["port"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(10)
        self.process.stdout.close()
        return status

    def call(self, method, path, body=None, headers=None, timeout=5, raw=None):
        """Status, headers, body (parsed when JSON). Raises what http.client raises."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = raw if raw is not None else json.dumps(body) if body is not None else None
            headers = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
            try:
                parsed = json.loads(text)
            except ValueError:
                parsed = text
            return answer.status, answer.headers, parsed
        finally:
            connection.close()

    def write(self, fault=None, key=None, path="/v1/refunds", **body):
        headers = {}
        if fault:
            headers["Fake-Fault"] = fault
        if key:
            headers["Idempotency-Key"] = key
        return self.call("POST", path, body or {"payment_id": "p1", "amount_cents": 4900, "reference": "r1"}, headers)

    def lookup(self, query="reference=r1", fault=None, path="/v1/refunds", **more):
        return self.call("GET", f"{path}?{query}", headers={"Fake-Fault": fault} if fault else {}, **more)

    def effects(self):
        return self.call("GET", "/_fake/effects")[2]

    def stats(self):
        return self.call("GET", "/_fake/stats")[2]

    def requests(self, query=""):
        return self.call("GET", "/_fake/requests" + query)[2]["requests"]

    def config(self, **settings):
        status, _, answer = self.call("POST", "/_fake/config", settings)
        assert status == 200, answer

    def script(self, *faults):
        status, _, answer = self.call("POST", "/_fake/script", list(faults))
        assert status == 200, answer


@pytest.fixture(scope="module")
def server():
    provider = Provider()
    yield provider
    assert provider.stop() == 0


@pytest.fixture
def provider(server):
    server.call("POST", "/_fake/reset")
    return server


def post_bytes(fault, body=b'{"payment_id":"p1","amount_cents":4900,"reference":"r1"}', path="/v1/refunds"):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nFake-Fault: {fault}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def raw(provider, fault, timeout=3):
    """All bytes until the end, and how it ended: eof, reset or timeout."""
    with socket.create_connection(("127.0.0.1", provider.port), timeout=timeout) as connection:
        connection.sendall(post_bytes(fault))
        received = b""
        while True:
            try:
                piece = connection.recv(65536)
            except ConnectionResetError:
                return received, "reset"
            except TimeoutError:
                return received, "timeout"
            if not piece:
                return received, "eof"
            received += piece


def wait_until(check, seconds=20):
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


# ---- the plain API ----


def test_create_echoes_and_counts(provider):
    status, headers, made = provider.write(payment_id="p1", amount_cents=4900, reference="r1", note="zwölf")
    assert status == 201 and headers["Content-Type"] == "application/json"
    assert made["object"] == "refunds" and made["status"] == "succeeded" and made["note"] == "zwölf"
    assert provider.call("GET", "/v1/refunds/" + made["id"])[2] == made
    effects = provider.effects()
    assert effects["effects"] == 1 and effects["collections"] == {"refunds": 1}
    assert effects["by_reference"] == {"r1": 1} and effects["by_key"] == {"refunds/p1": 1}


def test_numbers_keep_their_digits(provider):
    made = provider.call("POST", "/v1/orders", raw='{"order_id":9007199254740993,"x":1.50}')[2]
    assert made["order_id"] == 9007199254740993
    assert provider.effects()["by_key"] == {"orders/9007199254740993": 1}


def test_reference_from_metadata(provider):
    provider.write(amount=1, metadata={"operation": "op_1"})
    assert provider.lookup("reference=op_1")[2]["data"][0]["reference"] == "op_1"


def test_form_body_with_brackets(provider):
    body = "amount=4900&currency=eur&metadata[operation]=op_9&metadata[n]=7&tags[]=a&tags[]=b+c&items[0][sku]=x%26y"
    status, _, made = provider.call("POST", "/v1/charges", raw=body,
                                    headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 201 and made["amount"] == 4900 and made["reference"] == "op_9"
    assert made["metadata"] == {"operation": "op_9", "n": "7"}
    assert made["tags"] == ["a", "b c"] and made["items"] == [{"sku": "x&y"}]


@pytest.mark.parametrize("text", ["{", "[]", '{"a":1,"a":2}', "\xff"])
def test_bad_body_is_refused(provider, text):
    status, _, answer = provider.call("POST", "/v1/refunds", raw=text)
    assert status == 400 and answer["error"]["code"] == "invalid_request"
    assert provider.effects()["effects"] == 0


def test_list_newest_first_with_pages(provider):
    for i in range(7):
        provider.write(reference=f"r{i}", n=i, payment_id="odd" if i % 2 else "even")
    first = provider.lookup("limit=3")[2]
    assert [o["n"] for o in first["data"]] == [6, 5, 4] and first["has_more"] is True
    second = provider.lookup("limit=3&starting_after=" + first["data"][-1]["id"])[2]
    third = provider.lookup("limit=3&cursor=" + second["next_cursor"])[2]
    assert [o["n"] for o in second["data"] + third["data"]] == [3, 2, 1, 0]
    assert third["has_more"] is False and third["next_cursor"] is None
    assert [o["n"] for o in provider.lookup("payment_id=odd")[2]["data"]] == [5, 3, 1]
    assert provider.lookup("reference=nobody")[2]["data"] == []


def test_target_beyond_the_first_page(provider):
    """S79: 120 newer objects, page size 30."""
    provider.write(n=-1, reference="target")
    for i in range(120):
        provider.write(n=i)
    pages, query, found = 0, "", None
    while found is None:
        page = provider.lookup(query)[2]
        pages += 1
        found = next((o for o in page["data"] if o["reference"] == "target"), None)
        query = f"cursor={page['next_cursor']}"
    assert pages == 5


def test_put_and_delete_are_idempotent(provider):
    put = lambda body, **h: provider.call("PUT", "/v1/records/a", body, h)
    assert put({"v": 1})[0] == 201
    assert put({"v": 1})[0] == 200
    assert put({"v": 2})[2]["version"] == 2
    assert put({"v": 3}, **{"If-Match": '"1"'})[0] == 412
    assert put({"v": 3}, **{"If-Match": '"2"'})[0] == 200
    assert provider.effects()["effects"] == 3
    assert provider.call("DELETE", "/v1/records/a")[0] == 200
    assert provider.call("DELETE", "/v1/records/a")[0] == 404
    assert provider.call("GET", "/v1/records/a")[0] == 404
    assert provider.effects()["effects"] == 4


def test_unknown_paths_and_methods(provider):
    assert provider.call("GET", "/nothing")[0] == 404
    assert provider.call("PUT", "/v1/refunds", {})[0] == 405
    assert provider.call("PATCH", "/v1/refunds/1", {})[0] == 405
    assert provider.call("POST", "/v1/Ref%20unds", {})[0] == 404


def test_token(provider):
    provider.config(token="secret")
    assert provider.write()[0] == 401
    assert provider.call("POST", "/v1/refunds", {}, {"Authorization": "Bearer secret"})[0] == 201


def test_bad_fault_is_told(provider):
    status, _, answer = provider.write("no_such_thing")
    assert status == 400 and "no_such_thing" in answer["error"]["message"]
    assert provider.effects()["effects"] == 0


# ---- keys ----


def test_key_replays(provider):
    first = provider.write(key="k1", amount=1, b={"x": 1, "y": 2})
    again = provider.call("POST", "/v1/refunds", raw='{"b":{"y":2,"x":1.0},"amount":1}',
                          headers={"Idempotency-Key": "k1"})
    assert first[2] == again[2] and again[1]["Idempotent-Replayed"] == "true"
    assert first[1]["Idempotent-Replayed"] is None
    assert provider.effects()["effects"] == 1 and provider.stats()["replays"] == 1


def test_key_mismatch(provider):
    provider.write(key="k1", amount=1)
    status, _, answer = provider.write(key="k1", amount=2)
    assert status == 422 and answer["error"]["code"] == "key_mismatch"
    provider.config(mismatch_status=0)
    status, _, answer = provider.write(key="k1", amount=2)
    assert status == 201 and answer["amount"] == 1
    assert provider.effects()["effects"] == 1


def test_key_scope(provider):
    provider.write(key="k1", amount=1)
    provider.write(key="k1", amount=1, path="/v1/charges")
    assert provider.effects()["effects"] == 2
    provider.config(scope="global")
    provider.write(key="k2", amount=1)
    provider.write(key="k2", amount=1, path="/v1/charges")
    assert provider.effects()["effects"] == 3


def test_key_modes_and_lifetime(provider):
    provider.config(keys="ignore")
    provider.write(key="k"), provider.write(key="k")
    assert provider.effects()["effects"] == 2
    provider.config(keys="forget")
    provider.write(key="k"), provider.write(key="k")
    assert provider.effects()["effects"] == 4
    provider.config(keys="honour", retention_ms=60000)
    provider.write(key="k"), provider.write(key="k")
    assert provider.effects()["effects"] == 5
    provider.config(retention_ms=1)
    time.sleep(0.01)
    provider.write(key="k")
    assert provider.effects()["effects"] == 6 and provider.stats()["keys_forgotten"] == 1


def test_key_ignored_and_forgotten_once(provider):
    provider.write(key="k")
    provider.write("key_ignored", key="k")
    assert provider.effects()["effects"] == 2
    provider.write("key_forgotten", key="k")
    provider.write(key="k")
    assert provider.effects()["effects"] == 3


def test_key_in_a_field(provider):
    provider.config(key_field="idempotency_key", key_header="X-Request-Id")
    provider.write(idempotency_key="k", a=1), provider.write(idempotency_key="k", a=1)
    assert provider.effects()["effects"] == 1
    assert provider.requests()[0]["key"] == "k"


def test_key_in_use_while_held(provider):
    """S07: attempt 1 is held and then commits; the second is told 409 meanwhile, the third is replayed."""
    answers = []
    first = threading.Thread(target=lambda: answers.append(provider.write("slow=500", key="k")))
    first.start()
    wait_until(lambda: provider.stats()["late_commits_to_come"] == 1)
    assert provider.effects()["effects"] == 0
    status, _, answer = provider.write(key="k")
    assert status == 409 and answer["error"]["code"] == "key_in_use"
    first.join()
    assert answers[0][0] == 201
    assert provider.write(key="k")[2] == answers[0][2]
    assert provider.effects()["effects"] == 1


@pytest.mark.parametrize("contract, after_500, changed", [
    ("qonto", 201, 201),      # committed 504 is not kept: the retry is a new effect, then replayed though the body differs
    ("checkout", 201, 422),
    ("truelayer", 504, 422),  # the 504 itself is replayed
    ("easyship", 504, 422),
    ("stripe", 504, 400),
    ("epay", 201, 422),
])
def test_contracts(provider, contract, after_500, changed):
    """S63: what "supports idempotency keys" means at different providers."""
    provider.config(contract=contract, retention_ms=60000)
    assert provider.write("504_committed", key="k", amount=1)[0] == 504
    assert provider.write(key="k", amount=1)[0] == after_500
    assert provider.write(key="k", amount=2)[0] == changed
    assert provider.effects()["effects"] == (2 if contract in ("qonto", "checkout") else 1)


# ---- faults of writes ----


def test_timeout_before_commit(provider):
    assert raw(provider, "timeout_before_commit", 0.3) == (b"", "timeout")
    assert raw(provider, "timeout_before_commit=100") == (b"", "eof")
    assert provider.effects()["effects"] == 0


def test_timeout_after_commit(provider):
    assert raw(provider, "timeout_after_commit", 0.3) == (b"", "timeout")
    assert provider.effects()["effects"] == 1
    wait_until(lambda: provider.stats()["held"] == 0)  # the client's leaving ends the hold
    assert provider.requests()[0]["outcome"] == "left"
    start = time.monotonic()
    assert provider.write("timeout_after_commit=300")[0] == 201
    assert time.monotonic() - start >= 0.29


def test_commit_happens_though_the_client_left(provider):
    """S02: slow provider, impatient client."""
    assert raw(provider, "slow=400", 0.1) == (b"", "timeout")
    assert provider.effects()["effects"] == 0
    wait_until(lambda: provider.effects()["effects"] == 1)


@pytest.mark.parametrize("fault, ending, effects", [
    ("reset_before_commit", "reset", 0), ("reset_after_commit", "reset", 1),
    ("close_before_commit", "eof", 0), ("close_after_commit", "eof", 1)])
def test_connection_ends_without_answer(provider, fault, ending, effects):
    assert raw(provider, fault) == (b"", ending)
    assert provider.effects()["effects"] == effects
    assert provider.requests()[0]["outcome"] == {"reset": "reset", "eof": "closed"}[ending]


@pytest.mark.parametrize("fault, ending", [("close_after_commit", "eof"), ("reset_after_commit", "reset")])
def test_on_a_warmed_connection(provider, fault, ending):
    """S10: keep-alive connection, full request read, committed, closed without an answer."""
    with socket.create_connection(("127.0.0.1", provider.port), timeout=3) as connection:
        connection.sendall(b"GET /v1/refunds HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(post_bytes(fault))
        try:
            assert connection.recv(65536) == b"" and ending == "eof"
        except ConnectionResetError:
            assert ending == "reset"
    seen = provider.requests()
    assert [r["method"] for r in seen] == ["GET", "POST"]
    assert seen[0]["connection"] == seen[1]["connection"]
    assert provider.effects()["effects"] == 1


def test_rate_limited(provider):
    status, headers, _ = provider.write("429=7")
    assert status == 429 and headers["Retry-After"] == "7"
    assert provider.effects()["effects"] == 0


@pytest.mark.parametrize("fault, status, effects", [
    ("5xx_committed", 500, 1), ("5xx_committed=502", 502, 1), ("504_committed", 504, 1),
    ("5xx_not_committed", 503, 0), ("500_not_committed", 500, 0), ("500", 500, 0), ("refused", 402, 0), ("in_use", 409, 0)])
def test_status(provider, fault, status, effects):
    assert provider.write(fault)[0] == status
    assert provider.effects()["effects"] == effects


def test_malformed(provider):
    status, headers, body = provider.write("malformed")
    assert status == 200 and headers["Content-Type"] == "application/json" and isinstance(body, bytes)
    assert provider.effects()["effects"] == 1


def test_truncated(provider):
    received, ending = raw(provider, "truncated")
    head, _, body = received.partition(b"\r\n\r\n")
    length = int([line for line in head.split(b"\r\n") if line.startswith(b"Content-Length")][0].split(b":")[1])
    assert ending == "eof" and 0 < len(body) < length
    with pytest.raises(http.client.IncompleteRead):
        provider.write("truncated")
    assert provider.effects()["effects"] == 2


def test_drip(provider):
    start = time.monotonic()
    pieces, first = 0, None
    with socket.create_connection(("127.0.0.1", provider.port), timeout=3) as connection:
        connection.sendall(post_bytes("drip=1000"))
        received = b""
        while piece := connection.recv(65536):
            first = first or time.monotonic() - start
            received += piece
            pieces += 1
    total = time.monotonic() - start
    assert pieces > 5 and total > 0.9 and total - first > 0.3, (pieces, first, total)
    assert json.loads(received.partition(b"\r\n\r\n")[2])["amount_cents"] == 4900
    assert provider.effects()["effects"] == 1


def test_drip_to_a_client_that_leaves(provider):
    assert raw(provider, "drip=5000", 0.2)[1] == "timeout"
    wait_until(lambda: provider.stats()["held"] == 0)


def test_release(provider):
    """What waits ends when told, and is counted as if it had ended by itself."""
    answers = {}

    def write(fault):
        try:
            answers[fault] = provider.write(fault, payment_id=fault, reference=fault)[0]
        except (ConnectionError, http.client.HTTPException):
            answers[fault] = "closed"

    faults = ["timeout_after_commit", "timeout_before_commit", "slow:600000", "late_commit:600000"]
    threads = [threading.Thread(target=write, args=[fault]) for fault in faults]
    for thread in threads:
        thread.start()
    wait_until(lambda: provider.stats()["held"] == 4)
    assert provider.effects()["effects"] == 1 and not answers
    provider.call("POST", "/_fake/release")
    wait_until(lambda: len(answers) == 4)
    for thread in threads:
        thread.join()
    assert answers == {"timeout_after_commit": 201, "timeout_before_commit": "closed", "slow:600000": 201,
                       "late_commit:600000": "closed"}
    assert provider.effects()["by_reference"] == {"timeout_after_commit": 1, "slow:600000": 1, "late_commit:600000": 1}
    assert provider.write(payment_id="next")[0] == 201


def test_late_commit(provider):
    """S77: the client is gone (or told an error), the effect comes later."""
    assert raw(provider, "late_commit=300", 0.1) == (b"", "timeout")
    assert provider.lookup()[2]["data"] == []
    wait_until(lambda: provider.effects()["effects"] == 1)
    assert provider.write("late_commit=200:504", reference="r2")[0] == 504
    assert provider.effects()["effects"] == 1
    wait_until(lambda: provider.effects()["effects"] == 2)
    assert provider.write("late_commit=100:202", reference="r3")[0] == 202
    assert raw(provider, "late_commit=100:close") == (b"", "eof")
    assert raw(provider, "late_commit=100:reset") == (b"", "reset")
    wait_until(lambda: provider.effects()["effects"] == 5)


def test_late_commit_holds_the_key(provider):
    assert provider.write("late_commit=300:504", key="k")[0] == 504
    assert provider.write(key="k")[0] == 409
    wait_until(lambda: provider.effects()["effects"] == 1)
    status, headers, _ = provider.write(key="k")
    assert status == 201 and headers["Idempotent-Replayed"] == "true"
    assert provider.effects()["effects"] == 1


def test_propagation_delay(provider):
    made = provider.write("propagation=300")[2]
    assert provider.effects()["effects"] == 1
    assert provider.lookup()[2]["data"] == []
    assert provider.call("GET", "/v1/refunds/" + made["id"])[0] == 404
    wait_until(lambda: provider.lookup()[2]["data"] == [made])
    provider.config(propagation_ms=60000)
    provider.write(reference="hidden")
    assert provider.lookup("reference=hidden")[2]["data"] == []


def test_propagation_with_another_fault(provider):
    assert raw(provider, "propagation=200, close_after_commit") == (b"", "eof")
    assert provider.lookup()[2]["data"] == []
    wait_until(lambda: len(provider.lookup()[2]["data"]) == 1)


def test_wrong_object(provider):
    status, _, other = provider.write("wrong_object")
    assert status == 200 and other["amount_cents"] == 4901 and other["reference"] == "other"
    assert provider.effects()["effects"] == 0
    assert provider.write("wrong_object=1")[2]["amount_cents"] == 1
    _, _, other = provider.write("wrong_object_committed")
    assert other["amount_cents"] == 4901 and other["reference"] == "r1"
    assert provider.effects()["effects"] == 1


@pytest.mark.parametrize("fault, final", [("accepted=300", "succeeded"), ("accepted=300:failed", "failed")])
def test_accepted(provider, fault, final):
    """S81: 202 with an id, the outcome comes later."""
    status, _, made = provider.write(fault)
    assert status == 202 and made["status"] == "pending"
    status_now = lambda: provider.call("GET", "/v1/refunds/" + made["id"])[2]["status"]
    assert status_now() == "pending"
    wait_until(lambda: status_now() == final)


def test_double_commit(provider):
    """S65: the provider doubles the effect by itself."""
    assert provider.write("double_commit")[0] == 201
    assert len(provider.lookup()[2]["data"]) == 2
    effects = provider.effects()
    assert effects["effects"] == 2 and effects["duplicates_by_reference"] == 1 and effects["duplicates_by_key"] == 1
    assert provider.call("GET", "/_fake/effects?duplicates=1")[2]["by_reference"] == {"r1": 2}


def test_redirect(provider):
    status, headers, _ = provider.write("redirect")
    assert status == 307 and headers["Location"] == "/v1/refunds?redirected=1"
    assert provider.effects()["effects"] == 0
    assert provider.write(path=headers["Location"])[0] == 201  # what a client that follows would do


def test_challenge(provider):
    status, headers, _ = provider.write("challenge")
    assert status == 401 and headers["WWW-Authenticate"].startswith("Basic")
    assert provider.effects()["effects"] == 0


def test_error_in_a_200(provider):
    status, _, body = provider.write("error_200")
    assert status == 200 and body["data"] is None and body["errors"]
    assert provider.effects()["effects"] == 1
    provider.write("error_200_not_committed")
    assert provider.effects()["effects"] == 1


def test_big_answer(provider):
    status, headers, body = provider.write("big")
    assert status == 201 and int(headers["Content-Length"]) > 10 << 20 and body["amount_cents"] == 4900
    assert int(provider.write("big=2000")[1]["Content-Length"]) < 3000


def test_wrong_content_type(provider):
    status, headers, body = provider.write("content_type")
    assert status == 201 and headers["Content-Type"].startswith("text/plain") and body["amount_cents"] == 4900


def test_html_page(provider):
    """S04: 200 and a page that says "session timed out", though it was saved."""
    status, headers, body = provider.write("html")
    assert status == 200 and headers["Content-Type"].startswith("text/html") and b"timed out" in body
    assert provider.effects()["effects"] == 1


def test_empty_answer(provider):
    status, headers, body = provider.write("empty")
    assert (status, body) == (200, b"")
    assert provider.write("empty=204")[0] == 204
    assert provider.effects()["effects"] == 2


# ---- faults of look-ups ----


def test_lookup_faults(provider):
    made = provider.write()[2]
    assert provider.lookup(fault="lookup_500")[0] == 500
    assert provider.lookup(fault="lookup_500=502")[0] == 502
    assert provider.lookup(fault="lookup_empty")[2]["data"] == []
    partial = provider.lookup(fault="lookup_partial")[2]
    assert partial["data"] == [] and partial["has_more"] is True
    assert provider.lookup("cursor=" + partial["next_cursor"])[0] == 500
    assert provider.lookup(fault="lookup_wrong")[2]["data"][0]["amount_cents"] == 4901
    twice = provider.lookup(fault="lookup_twice")[2]["data"]
    assert len(twice) == 2 and twice[0]["reference"] == twice[1]["reference"] and twice[0]["id"] != twice[1]["id"]
    assert isinstance(provider.lookup(fault="lookup_malformed")[2], bytes)
    assert provider.lookup(fault="html")[1]["Content-Type"].startswith("text/html")
    with pytest.raises(TimeoutError):
        provider.lookup(fault="lookup_timeout", timeout=0.2)
    by_id = lambda fault: provider.call("GET", "/v1/refunds/" + made["id"], headers={"Fake-Fault": fault})
    assert by_id("lookup_500")[0] == 500 and by_id("lookup_empty")[0] == 404
    assert by_id("lookup_wrong")[2]["amount_cents"] == 4901
    assert provider.lookup()[2]["data"] == [made]


def test_write_faults_do_not_touch_lookups(provider):
    provider.write()
    assert len(provider.lookup(fault="late_commit=100")[2]["data"]) == 1
    assert provider.write("lookup_500")[0] == 201


# ---- how a fault is chosen ----


def test_alternatives_by_attempt(provider):
    """S01: commit and drop on attempts 1 and 2, answer on 3; also as a member of the body, where an agent can put it."""
    body = {"fake_fault": "close_after_commit|reset_after_commit|success", "reference": "r1"}
    for _ in range(2):
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            provider.call("POST", "/v1/messages", body, {"Idempotency-Key": "k"})
    assert provider.call("POST", "/v1/messages", body, {"Idempotency-Key": "k"})[0] == 201
    assert provider.call("POST", "/v1/messages", body, {"Idempotency-Key": "k"})[0] == 201
    assert provider.effects()["effects"] == 1
    assert [r["outcome"] for r in provider.requests()] == ["closed", "reset", "answered", "answered"]


def test_script(provider):
    provider.script("500", {"fault": "503", "payment_id": "p2", "nth": 2}, {"fault": "429", "collection": "charges", "times": 2},
                    {"fault": "lookup_500"})
    assert provider.write(payment_id="p1")[0] == 500
    assert provider.write(payment_id="p2")[0] == 201
    assert provider.write(payment_id="p2")[0] == 503
    assert [provider.write(path="/v1/charges")[0] for _ in range(3)] == [429, 429, 201]
    assert provider.lookup()[0] == 500 and provider.lookup()[0] == 200
    assert provider.stats()["script_left"] == 0
    assert provider.call("POST", "/_fake/script", ["nonsense"])[0] == 400


def test_chances_are_seeded_and_independent_of_order(provider):
    def outcome(order):
        provider.call("POST", "/_fake/reset")
        provider.config(faults={"5xx_not_committed": 0.2, "429": 0.2, "5xx_committed:502": 0.1}, seed=7)
        seen = {}
        for i in order:
            seen[i] = [provider.write(payment_id=f"p{i}")[0] for _ in range(2)]
        return seen

    one, other = outcome(range(100)), outcome(reversed(range(100)))
    assert one == other
    statuses = [s for pair in one.values() for s in pair]
    assert 20 < statuses.count(503) < 60 and 20 < statuses.count(429) < 60 and 5 < statuses.count(502) < 40
    assert provider.effects()["effects"] == statuses.count(201) + statuses.count(502)


def test_config_is_all_or_nothing(provider):
    before = provider.call("GET", "/_fake/config")[2]
    status, _, answer = provider.call("POST", "/_fake/config", {"page_size": 5, "keys": "sometimes"})
    assert status == 400 and "keys" in answer["error"]["message"]
    assert provider.call("GET", "/_fake/config")[2] == before


def test_latency_and_fixed_faults(provider):
    provider.config(latency_ms=200, lookup_fault="lookup_empty")
    start = time.monotonic()
    assert provider.write()[0] == 201 and time.monotonic() - start >= 0.19
    assert provider.lookup()[2]["data"] == []
    provider.config(fault="500_committed", lookup_fault="")
    assert provider.write()[0] == 500 and len(provider.lookup()[2]["data"]) == 2


# ---- control ----


def test_every_request_is_listed(provider):
    provider.write("5xx_committed", key="k")
    provider.write(key="k")
    provider.lookup()
    first, second, third = provider.requests()
    assert (first["n"], first["method"], first["path"], first["key"]) == (1, "POST", "/v1/refunds", "k")
    assert first["reference"] == "r1" and first["fault"] == "5xx_committed" and first["status"] == 500
    assert first["effect"] and first["object"] and not second["effect"] and second["replayed"]
    assert third["path"] == "/v1/refunds?reference=r1"
    assert len({r["connection"] for r in (first, second, third)}) == 3
    assert [r["n"] for r in provider.requests("?since=2&limit=1")] == [2]
    stats = provider.stats()
    assert (stats["requests"], stats["writes"], stats["lookups"], stats["effects"]) == (3, 2, 1, 1)
    assert stats["faults"]["5xx_committed"] == 1


def test_reset_ends_what_is_held(provider):
    ends = []
    holding = threading.Thread(target=lambda: ends.append(raw(provider, "timeout_before_commit")))
    holding.start()
    provider.write("late_commit=200:504")
    wait_until(lambda: provider.stats()["held"] == 1)
    provider.call("POST", "/_fake/reset")
    holding.join()
    assert ends == [(b"", "eof")]
    time.sleep(0.3)
    assert provider.effects() == {"effects": 0, "duplicates_by_reference": 0, "duplicates_by_key": 0, "collections": {},
                                  "by_reference": {}, "by_key": {}}
    assert provider.requests() == []


def test_limits_forget_objects_but_not_counts():
    provider = Provider("--objects-max", "10", "--requests-max", "5")
    for i in range(25):
        provider.write(key=f"k{i}", reference=f"r{i % 5}", payment_id=f"p{i}")
    stats = provider.stats()
    assert stats["effects"] == 25 and stats["objects_forgotten"] == 15 and stats["keys"] == 10
    assert stats["duplicates_by_reference"] == 20 and stats["duplicates_by_key"] == 0
    assert [r["n"] for r in provider.requests()] == [21, 22, 23, 24, 25]
    assert len(provider.lookup("reference=r0")[2]["data"]) == 2
    assert provider.stop() == 0


def test_stop_with_held_requests():
    provider = Provider("--set", "latency_ms=100000", "--set", "keys=ignore")
    connections = []
    for fault in ("timeout_after_commit", "success", "late_commit=60000", "drip=60000"):
        connection = socket.create_connection(("127.0.0.1", provider.port), timeout=3)
        connection.sendall(post_bytes(fault))
        connections.append(connection)
    wait_until(lambda: provider.stats()["held"] == 4)
    assert provider.stop() == 0  # long before any of them is over
    for connection in connections:
        connection.close()


def test_wrong_options():
    for options in (["--port", "x"], ["--faults", "nope=0.1"], ["--faults", "slow=2"], ["--set", "keys=never"], ["extra"]):
        done = subprocess.run([*command(), *options], capture_output=True, text=True, timeout=5)
        assert done.returncode == 2 and done.stderr


# ---- webhooks ----


class Endpoint:
    """Keeps what comes: (headers, bytes, time); answers the statuses, then 200."""

    def __init__(self):
        endpoint = self
        self.got, self.statuses = [], []
        self.asked, self.gate = 0, threading.Event()  # shut: it keeps everybody waiting
        self.gate.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802 - http.server's name
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.asked += 1
                endpoint.gate.wait(20)
                endpoint.got.append((dict(self.headers), raw, time.monotonic()))
                self.send_response(endpoint.statuses.pop(0) if endpoint.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def events(self):
        return [json.loads(raw) for _, raw, _ in self.got]

    def types(self):
        return [each["type"] for each in self.events()]


@pytest.fixture
def endpoint():
    endpoint = Endpoint()
    yield endpoint
    endpoint.gate.set()
    endpoint.server.shutdown()
    endpoint.server.server_close()


def tell(provider, endpoint, **settings):
    status, _, body = provider.call("POST", "/_fake/webhooks", {"url": endpoint.url, "secret": "whsec_" + "A" * 32, **settings})
    assert status == 200, body


@pytest.mark.parametrize("scheme", ["stripe", "github", "standard_webhooks"])
def test_webhooks_are_signed(provider, endpoint, scheme):
    tell(provider, endpoint, scheme=scheme)
    status, _, made = provider.write(payment_id="p1", amount_cents=4900, reference="r1")
    assert status == 201
    wait_until(lambda: endpoint.got)
    headers, raw, _ = endpoint.got[0]
    event = json.loads(raw)
    assert (event["type"], event["data"]["object"]) == ("refunds.succeeded", made) and abs(event["created"] - time.time()) < 5
    secret = b"whsec_" + b"A" * 32
    if scheme == "stripe":
        at, signature = headers["Stripe-Signature"].split(",")
        assert signature == "v1=" + hmac.new(secret, at[2:].encode() + b"." + raw, hashlib.sha256).hexdigest()
    elif scheme == "github":
        assert headers["X-Hub-Signature-256"] == "sha256=" + hmac.new(secret, raw, hashlib.sha256).hexdigest()
        assert headers["X-GitHub-Event"] == "refunds.succeeded"
    else:
        signed = f"{event['id']}.{headers['webhook-timestamp']}.".encode() + raw
        made = base64.b64encode(hmac.new(base64.b64decode("A" * 32), signed, hashlib.sha256).digest()).decode()
        assert (headers["webhook-id"], headers["webhook-signature"]) == (event["id"], "v1," + made)
    told = provider.call("GET", "/_fake/webhooks")[2]
    assert "secret" not in told
    wait_until(lambda: provider.call("GET", "/_fake/webhooks")[2]["events"][0]["taken"] == 1)


def test_when_webhooks_come(provider, endpoint):
    endpoint.gate.clear()
    tell(provider, endpoint, scheme="github", when="before_answer")
    writing = threading.Thread(target=provider.write, kwargs={"payment_id": "p1"})
    writing.start()
    wait_until(lambda: endpoint.asked == 1)
    time.sleep(0.1)
    assert writing.is_alive(), "the answer waits for it"
    endpoint.gate.set()
    writing.join()
    assert len(endpoint.got) == 1
    endpoint.gate.clear()
    tell(provider, endpoint, when="after_commit")
    provider.write(payment_id="p2")
    assert len(endpoint.got) == 1, "the answer waits for nothing"
    endpoint.gate.set()
    wait_until(lambda: len(endpoint.got) == 2)
    tell(provider, endpoint, when="late", delay_ms=300)
    began = time.monotonic()
    provider.write(payment_id="p3")
    wait_until(lambda: len(endpoint.got) == 3)
    assert endpoint.got[2][2] - began >= 0.3
    tell(provider, endpoint, when="never")
    provider.write(payment_id="p4")
    provider.write("refused", payment_id="p5")
    tell(provider, endpoint, when="after_commit")
    provider.write("refused", payment_id="p6")  # no effect, nothing to tell
    time.sleep(0.2)
    assert len(endpoint.got) == 3


def test_before_an_answer_that_is_lost(provider, endpoint):
    tell(provider, endpoint, scheme="github", when="before_answer")
    with pytest.raises((http.client.HTTPException, OSError)):
        provider.write("close_after_commit", payment_id="p1")
    assert len(endpoint.got) == 1
    began = time.monotonic()
    status, _, _ = provider.write("timeout_after_commit:300", payment_id="p2")
    assert status == 201 and time.monotonic() - began >= 0.3 and len(endpoint.got) == 2
    status, _, _ = provider.write("slow:100", payment_id="p3")
    assert status == 201 and len(endpoint.got) == 3


def test_webhooks_again_and_in_another_order(provider, endpoint):
    endpoint.statuses += [500, 503]
    tell(provider, endpoint, scheme="github", copies=3, every_ms=20, retry_ms=20)
    provider.write(payment_id="p1")
    wait_until(lambda: len(endpoint.got) == 5)  # two refusals, three copies
    assert len({raw for _, raw, _ in endpoint.got}) == 1
    tell(provider, endpoint, copies=1)
    endpoint.got.clear()
    provider.write("accepted:1000", payment_id="p2")
    wait_until(lambda: len(endpoint.got) == 2)
    assert endpoint.types() == ["refunds.pending", "refunds.succeeded"]
    tell(provider, endpoint, reversed=True)
    endpoint.got.clear()
    provider.write("accepted:1100:failed", payment_id="p3")
    wait_until(lambda: len(endpoint.got) == 2)
    assert endpoint.types() == ["refunds.failed", "refunds.pending"]
    assert endpoint.events()[1]["created"] < endpoint.events()[0]["created"], "the times are theirs, not those of sending"


def test_webhooks_that_nobody_takes(provider, endpoint):
    endpoint.server.shutdown()
    endpoint.server.server_close()
    tell(provider, endpoint, scheme="github", when="before_answer", tries=3, retry_ms=10)
    assert provider.write(payment_id="p1")[0] == 201
    wait_until(lambda: provider.call("GET", "/_fake/webhooks")[2]["events"][0]["posts"] == 3)
    provider.call("POST", "/_fake/reset")
    told = provider.call("GET", "/_fake/webhooks")[2]
    assert (told["events"], told["url"], told["tries"]) == ([], "", 100)


@pytest.mark.parametrize("settings", [{"when": "soon"}, {"copies": 0}, {"scheme": "none"}, {"url": 7}, {"reversed": 1}, {"what": 1}, [],
                                      {"url": "http://127.0.0.1:1/", "scheme": "standard_webhooks", "secret": "not base 64"},
                                      {"url": "http://127.0.0.1:1/", "secret": ""}])
def test_bad_settings_of_webhooks(provider, settings):
    before = provider.call("GET", "/_fake/webhooks")[2]
    assert provider.call("POST", "/_fake/webhooks", settings)[0] == 400
    assert provider.call("GET", "/_fake/webhooks")[2] == before
