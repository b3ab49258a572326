"""MCP by hand: one modern (2026-07-28) request per POST, no session. Nothing is ever sent twice behind the test's back."""

import itertools
import json

from onced_e2e.client import Client

VERSION = "2026-07-28"
RESULT = "dev.onced/result"


class CallAnswer:
    """What a tools/call was answered with."""

    def __init__(self, answer):
        self.http = answer
        self.status = answer.status
        message = answer.body if isinstance(answer.body, dict) else _last_event(answer.raw)
        self.message = message
        self.error = message.get("error")
        self.result = message.get("result") or {}

    @property
    def text(self):
        return "\n".join(part.get("text", "") for part in self.result.get("content", []))

    @property
    def shape(self):
        """onced's result shape: beside a server's own result, or the structured content itself."""
        beside = (self.result.get("_meta") or {}).get(RESULT)
        if beside:
            return beside
        own = self.result.get("structuredContent")
        return own if isinstance(own, dict) and "operation_id" in own else {}

    @property
    def id(self):
        return self.shape.get("operation_id")

    @property
    def state(self):
        return self.shape.get("status")

    @property
    def is_error(self):
        return bool(self.result.get("isError"))

    def __repr__(self):
        return f"<{self.status} {json.dumps(self.message)[:1500]}>"


def _last_event(raw):
    data = [line[5:].strip() for line in raw.decode().splitlines() if line.startswith("data:")]
    messages = [json.loads(each) for each in data if each]
    final = [each for each in messages if "id" in each and ("result" in each or "error" in each)]
    assert final, raw
    return final[-1]


class Mcp:
    def __init__(self, port, capabilities=None, headers=None, timeout=20):
        self.client = Client(port, {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": VERSION,
                                    **(headers or {})}, timeout)
        self.capabilities = capabilities or {}
        self.ids = itertools.count(1)

    def request(self, method, params=None, name=None, meta=None, headers=None, timeout=None):
        params = {**(params or {}), "_meta": {"io.modelcontextprotocol/protocolVersion": VERSION,
                                              "io.modelcontextprotocol/clientCapabilities": self.capabilities, **(meta or {})}}
        body = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}
        sent = {"Mcp-Method": method, **({"Mcp-Name": name} if name else {}), **(headers or {})}
        return self.client.post("/mcp", body, headers=sent, timeout=timeout)

    def call(self, tool, arguments, key=None, meta=None, timeout=None, headers=None, **params):
        """tools/call. key: the idempotency key of the deterministic layer."""
        keyed = {"dev.onced/idempotency-key": key} if key else {}
        return CallAnswer(self.request("tools/call", {"name": tool, "arguments": arguments, **params}, tool, {**keyed, **(meta or {})},
                                       headers, timeout))

    def tools(self):
        answer = self.request("tools/list")
        assert answer.status == 200, answer
        return {tool["name"]: tool for tool in answer["result"]["tools"]}


class Legacy:
    """One legacy session (2025-11-25) over HTTP."""

    def __init__(self, port, version="2025-11-25", headers=None, timeout=20, connect=True):
        self.client = Client(port, {"Accept": "application/json, text/event-stream", **(headers or {})}, timeout)
        self.version = version
        self.ids = itertools.count(0)  # as most clients do: the first is 0 in every session
        if connect:
            self.initialize()

    def initialize(self):
        answer = self.client.post("/mcp", {"jsonrpc": "2.0", "id": next(self.ids), "method": "initialize", "params": {
            "protocolVersion": self.version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
        assert answer.status == 200, answer
        self.session = answer.headers["mcp-session-id"]
        self.client.headers["Mcp-Session-Id"] = self.session
        self.client.headers["MCP-Protocol-Version"] = self.version
        assert self.notify("notifications/initialized").status == 202
        return answer

    def notify(self, method, params=None):
        return self.client.post("/mcp", {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})

    def request(self, method, params=None, id=None, timeout=None):
        body = {"jsonrpc": "2.0", "id": next(self.ids) if id is None else id, "method": method, "params": params or {}}
        return self.client.post("/mcp", body, timeout=timeout)

    def call(self, tool, arguments, key=None, meta=None, id=None, timeout=None):
        keyed = {"dev.onced/idempotency-key": key} if key else {}
        params = {"name": tool, "arguments": arguments}
        if keyed or meta:
            params["_meta"] = {**keyed, **(meta or {})}
        return CallAnswer(self.request("tools/call", params, id, timeout))

    def delete(self):
        return self.client.request("DELETE", "/mcp")
