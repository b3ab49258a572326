"""Pass-through across eras, in front of the conformance suite's fixture server: a client of one era reaches a server of the other,
questions included; several servers look like one; calls of protected tools ask, too."""

import http.client
import json
import queue
import socket
import threading
import time

import pytest

from onced_e2e import mcp
from onced_e2e.rpc import VERSION, CallAnswer, Legacy, Mcp
from onced_e2e.wait import wait_until

LEGACY = "2025-11-25"
CAN_ALL = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
ACCEPT = {"action": "accept", "content": {"username": "u", "email": "e@example.com"}}


@pytest.fixture
def fixtures(tmp_path, processes):
    """Starts fixture servers: fixtures(n)."""
    started = []

    def start(count=1):
        for _ in range(count):
            folder = tmp_path / f"fixture-{len(started)}"
            folder.mkdir()
            started.append(mcp.Fixture(folder))
            processes.append(started[-1].process)
            started[-1].start()
        return started

    yield start
    for each in started:
        each.stop()


def server(fixture, protocol, prefix="", **more):
    imported = {"classes": {"*": "read"}, "forwarded": True, **({"prefix": prefix} if prefix else {}), **more}
    return {"mcp": {"url": fixture.url, "protocol": protocol, "import": imported}}


class Live:
    """One POST whose messages are read as they come."""

    def __init__(self, port, body, headers):
        self.messages = queue.Queue()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.connection.request("POST", "/mcp", json.dumps(body), {"Content-Type": "application/json", **headers})
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            answer = self.connection.getresponse()
            if not answer.headers["content-type"].startswith("text/event-stream"):
                self.messages.put(json.loads(answer.read()))
                return
            for line in answer:
                if line.startswith(b"data:") and line[5:].strip():
                    self.messages.put(json.loads(line[5:]))
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            pass  # closed by the test

    def next(self, seconds=10):
        return self.messages.get(timeout=seconds)

    def close(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)  # the reader waits on it
        self.connection.close()


def legacy_session(port, capabilities):
    session = Legacy(port, connect=False)
    session.capabilities = capabilities
    answer = session.client.post("/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}}})
    assert answer.status == 200, answer
    session.client.headers |= {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
    next(session.ids)
    assert session.notify("notifications/initialized").status == 202
    return session


def live_call(session, tool, arguments, **params):
    body = {"jsonrpc": "2.0", "id": next(session.ids), "method": "tools/call", "params": {"name": tool, "arguments": arguments, **params}}
    return Live(session.client.port, body, session.client.headers)


def answer_question(session, question, result):
    assert session.client.post("/mcp", {"jsonrpc": "2.0", "id": question["id"], "result": result}).status == 202


def again(client, answer, responses):
    """The next round of a call that asked."""
    first = answer.request
    return call(client, first["tool"], first["arguments"], inputResponses=responses,
                **({"requestState": answer.result["requestState"]} if "requestState" in answer.result else {}))


def call(client, tool, arguments, **params):
    answer = client.call(tool, arguments, **params)
    answer.request = {"tool": tool, "arguments": arguments}
    return answer


def test_legacy_server_asks_modern_client(world, fixtures):
    [fixture] = fixtures()
    port = world.onced({}, providers={"fixture": server(fixture, LEGACY)}).port
    client = Mcp(port, CAN_ALL)
    first = call(client, "test_sampling", {"prompt": "hi"})
    assert first.result["resultType"] == "input_required"
    [key] = first.result["inputRequests"]
    asked = first.result["inputRequests"][key]
    assert asked["method"] == "sampling/createMessage" and asked["params"]["maxTokens"] == 100
    incomplete = again(client, first, {"other": {}})
    assert incomplete.result["inputRequests"] == first.result["inputRequests"]
    second = again(client, incomplete, {key: {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m"}})
    assert second.text == "LLM response: ho" and second.result["resultType"] == "complete"
    assert again(client, incomplete, {key: {}}).error["code"] == -32602  # used
    first = call(client, "test_elicitation", {"message": "who?"})
    [key] = first.result["inputRequests"]
    assert "action=accept" in again(client, first, {key: ACCEPT}).text
    # who cannot be asked is not asked
    refused = call(Mcp(port), "test_sampling", {"prompt": "hi"})
    assert refused.is_error or refused.error


def test_modern_server_asks_legacy_client(world, fixtures):
    [fixture] = fixtures()
    port = world.onced({}, providers={"fixture": server(fixture, VERSION)}).port
    session = legacy_session(port, CAN_ALL)
    live = live_call(session, "test_input_required_result_elicitation", {})
    question = live.next()
    assert question["method"] == "elicitation/create" and question["params"]["message"] == "What is your name?"
    answer_question(session, question, {"action": "accept", "content": {"name": "Alice"}})
    final = live.next()["result"]
    assert final["content"][0]["text"] == "Hello, Alice!" and "resultType" not in final
    live = live_call(session, "test_input_required_result_multi_round", {})
    for _ in range(2):
        answer_question(session, live.next(), {"action": "accept", "content": {"value": "v"}})
    assert live.next()["result"]["content"][0]["text"] == "both rounds are done"
    live = live_call(session, "test_input_required_result_multiple_inputs", {})
    answers = {"elicitation/create": {"action": "accept", "content": {"name": "n"}},
               "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "t"}, "model": "m"},
               "roots/list": {"roots": []}}
    for question in [live.next() for _ in range(3)]:
        answer_question(session, question, answers[question["method"]])
    assert live.next()["result"]["content"][0]["text"] == "all inputs were given"


@pytest.mark.parametrize("protocol", [LEGACY, VERSION])
def test_protected_tools_ask_too(world, fixtures, protocol):
    [fixture] = fixtures()
    onced = world.onced({}, providers={"fixture": {"mcp": {"url": fixture.url, "protocol": protocol,
                                                           "import": {"unclassified": "external_weak"}}}})
    tool, arguments = (("test_elicitation", {"message": "who?"}) if protocol == LEGACY
                       else ("test_input_required_result_request_state", {}))
    given = ACCEPT if protocol == LEGACY else {"action": "accept", "content": {"ok": "yes"}}
    client = Mcp(onced.port, CAN_ALL)
    first = call(client, tool, arguments)
    [key] = first.result["inputRequests"]
    second = again(client, first, {key: given})
    assert second.state == "completed_success" and not second.shape.get("replayed"), second
    assert "accept" in second.text or "state-ok" in second.text
    session = legacy_session(onced.port, CAN_ALL)
    live = live_call(session, tool, {**arguments, **({"message": "another"} if protocol == LEGACY else {})})
    if protocol == LEGACY:
        answer_question(session, live.next(), given)
        assert "action=accept" in live.next()["result"]["content"][0]["text"]
    else:  # the same call as before: its outcome is known
        assert live.next()["result"]["_meta"]["dev.onced/result"]["operation_id"] == second.id


def names(answer, what, name="name"):
    assert answer.status == 200, answer
    return [each[name] for each in answer["result"][what]]


def test_two_servers_look_like_one(world, fixtures):
    one, two = fixtures(2)
    providers = {"one": server(one, LEGACY, "one_"), "two": server(two, VERSION, "two_")}
    port = world.onced({}, providers=providers).port
    for client in (Mcp(port, CAN_ALL), legacy_session(port, CAN_ALL)):
        prompts = names(client.request("prompts/list"), "prompts")
        assert "one_test_simple_prompt" in prompts and "two_test_simple_prompt" in prompts
        assert "two_test_input_required_result_prompt" in prompts and len(prompts) == len(set(prompts))
        resources = names(client.request("resources/list"), "resources", "uri")
        assert "test://static-text" in resources and len(resources) == len(set(resources))
        assert names(client.request("resources/templates/list"), "resourceTemplates", "uriTemplate") == ["test://template/{id}/data"]
        modern = isinstance(client, Mcp)
        named = {"name": "two_test_simple_prompt"} if modern else {}
        got = client.request("prompts/get", {"name": "two_test_simple_prompt"}, **named)
        assert got["result"]["messages"][0]["content"]["text"] == "This is a simple prompt for testing."
        read = client.request("resources/read", {"uri": "test://template/9/data"}, **({"name": "test://template/9/data"} if modern else {}))
        assert "9" in read["result"]["contents"][0]["text"]
        absent = client.request("resources/read", {"uri": "test://none"}, **({"name": "test://none"} if modern else {}))
        assert absent["error"]["code"] == (-32602 if modern else -32002) and absent["error"]["data"]["uri"] == "test://none"
        completed = client.request("completion/complete", {"ref": {"type": "ref/prompt", "name": "one_test_prompt_with_arguments"},
                                                           "argument": {"name": "arg1", "value": "test"}})
        assert "values" in completed["result"]["completion"]
    # one of them dies: the other's prompts are there, its own are a clear error
    two.stop()
    client = legacy_session(port, {})
    prompts = names(client.request("prompts/list"), "prompts")
    assert "one_test_simple_prompt" in prompts and not [each for each in prompts if each.startswith("two_")]
    lost = client.request("prompts/get", {"name": "two_test_simple_prompt"})
    assert lost["error"]["code"] == -32603 and "two" in lost["error"]["message"]


@pytest.mark.parametrize("protocol", [LEGACY, VERSION])
def test_list_changes_reach_both_eras(world, fixtures, protocol):
    [fixture] = fixtures()
    port = world.onced({}, providers={"fixture": server(fixture, protocol)}).port
    client = Mcp(port, CAN_ALL)
    body = {"jsonrpc": "2.0", "id": "l1", "method": "subscriptions/listen", "params": {
        "notifications": {"promptsListChanged": True, "toolsListChanged": True, "resourceSubscriptions": ["test://watched-resource"]},
        "_meta": {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}}}
    live = Live(port, body, {**client.client.headers, "Mcp-Method": "subscriptions/listen"})
    tag = {"io.modelcontextprotocol/subscriptionId": "l1"}
    first = live.next()
    assert first["method"] == "notifications/subscriptions/acknowledged" and first["params"]["_meta"] == tag
    assert first["params"]["notifications"] == body["params"]["notifications"]
    assert not client.call("test_trigger_prompt_change", {}).error
    changed = live.next()
    assert changed["method"] == "notifications/prompts/list_changed" and changed["params"] == {"_meta": tag}
    assert "test_extra_prompt" in names(client.request("prompts/list"), "prompts")
    assert not client.call("test_trigger_tool_change", {}).error
    said = live.next()["method"]
    while said == "notifications/prompts/list_changed":  # the server tells each of its sessions, so it may come more than once
        said = live.next()["method"]
    assert said == "notifications/tools/list_changed"
    live.close()
    # legacy: on the session's own stream, once it has asked for prompts
    session = legacy_session(port, {})
    names(session.request("prompts/list"), "prompts")
    stream = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    stream.request("GET", "/mcp", headers={**session.client.headers, "Accept": "text/event-stream"})
    answer = stream.getresponse()
    assert answer.status == 200
    session.call("test_trigger_prompt_change", {})
    for line in answer:
        if line.startswith(b"data:") and line[5:].strip():
            said = json.loads(line[5:])["method"]
            assert said in ("notifications/prompts/list_changed", "notifications/tools/list_changed")
            if said == "notifications/prompts/list_changed":
                break
    stream.close()


def test_cancel_reaches_the_server(world, fixtures):
    """Closing the stream of a modern call, cancelling a legacy one: nobody is left waiting, the next call is served."""
    [fixture] = fixtures()
    port = world.onced({}, providers={"fixture": server(fixture, LEGACY)}).port
    client = Mcp(port, CAN_ALL)
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}, "progressToken": 5}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "test_tool_with_progress", "arguments": {}, "_meta": meta}}
    live = Live(port, body, {**client.client.headers, "Mcp-Method": "tools/call", "Mcp-Name": "test_tool_with_progress"})
    assert live.next()["params"] == {"progressToken": 5, "progress": 0, "total": 100, "message": "Completed step 0 of 100"}
    live.close()
    session = legacy_session(port, {})
    live = live_call(session, "test_tool_with_progress", {}, _meta={"progressToken": "t"})
    assert live.next()["params"]["progressToken"] == "t"
    assert session.notify("notifications/cancelled", {"requestId": 1}).status == 202
    for each in (session, client):
        assert CallAnswer(each.request("tools/call", {"name": "test_simple_text"},
                                       **({"name": "test_simple_text"} if each is client else {}))).text.startswith("This is a simple")
    time.sleep(0.3)  # its answer would have come by now
    assert not [each for each in live.messages.queue if "id" in each]


def test_a_shared_server_asks_whom_it_serves(world):
    """One process over stdio for all clients: nothing in its messages says whose they are."""
    argv = mcp.program("@modelcontextprotocol/server-everything", "dist/index.js")
    port = world.onced({}, providers={"everything": {"mcp": {"command": argv, "import": {"classes": {"*": "read"},
                                                                                      "forwarded": True}}}}).port
    sessions = [legacy_session(port, CAN_ALL) for _ in range(2)]
    for number, session in enumerate(sessions):
        session.request("resources/list")
        live = live_call(session, "trigger-sampling-request", {"prompt": "p", "maxTokens": 5})
        question = live.next()
        while question["method"] != "sampling/createMessage":  # roots may be asked first: the server has just heard of the client
            answer_question(session, question, {"roots": []})
            question = live.next()
        answer_question(session, question, {"role": "assistant", "content": {"type": "text", "text": f"to {number}"}, "model": "m"})
        final = live.next()
        while "result" not in final:
            final = live.next()
        assert f"to {number}" in final["result"]["content"][0]["text"]
    # roots of the client that says that they have changed
    session = sessions[0]
    stream = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    stream.request("GET", "/mcp", headers={**session.client.headers, "Accept": "text/event-stream"})
    answer = stream.getresponse()
    assert session.notify("notifications/roots/list_changed").status == 202
    for line in answer:
        if line.startswith(b"data:") and line[5:].strip():
            question = json.loads(line[5:])
            if question.get("method") == "roots/list":
                answer_question(session, question, {"roots": [{"uri": "file:///mine", "name": "mine"}]})
                break
    stream.close()
    wait_until(lambda: "file:///mine" in session.call("get-roots-list", {}).text, what="the server knows the roots", seconds=5)
    first = call(Mcp(port, CAN_ALL), "trigger-elicitation-request", {})
    [key] = first.result["inputRequests"]
    assert "declined" in again(Mcp(port, CAN_ALL), first, {key: {"action": "decline"}}).text
