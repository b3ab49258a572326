"""A small MCP server over stdio (legacy era) whose effects can be counted: orders.py FOLDER. Standard library only.

FOLDER/effects holds one JSON line per effect, FOLDER/requests one per tools/call received. FOLDER/script holds what goes wrong,
one word per pay request, taken from the front: ok, error_after (commits, then isError), error_before, die_before, die_after
(commits, then exits without an answer), slow:SECONDS (commits first), garbage (commits, then answers nonsense). FOLDER/blind: so
many look-ups see nothing."""

import json
import os
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])

MONEY = {"type": "integer", "description": "cents"}
TOOLS = [
    {
        "name": "pay",
        "description": "Pays an order",
        "inputSchema": {
            "type": "object",
            "properties": {
                "order": {"type": "string"},
                "amount": MONEY,
                "idempotency_key": {"type": "string", "description": "must be unique for every request"},
            },
            "required": ["order", "amount", "idempotency_key"],
        },
        "annotations": {"title": "Pay", "readOnlyHint": False, "destructiveHint": True},
    },
    {
        "name": "note",
        "description": "Writes a note; takes no key",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {
        "name": "find",
        "description": "Finds payments by order",
        "inputSchema": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
        "annotations": {"readOnlyHint": True},
    },
]


def append(name, value):
    with open(FOLDER / name, "a") as file:
        file.write(json.dumps(value) + "\n")
        file.flush()
        os.fsync(file.fileno())


def lines(name):
    path = FOLDER / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def take(name):
    """The first word of a script file; None at its end."""
    path = FOLDER / name
    words = path.read_text().split() if path.exists() else []
    if words:
        path.write_text(" ".join(words[1:]))
    return words[0] if words else None


def says(value, error=False):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}], "isError": error}


def write(name, arguments, meta):
    fault, _, seconds = (take("script") or "ok").partition(":")
    if fault == "error_before":
        return says("the order cannot be paid now", error=True)
    if fault == "die_before":
        os._exit(1)
    effect = {"id": f"pay_{len(lines('effects')) + 1}", "tool": name, **arguments, "meta_key": meta.get("dev.onced/idempotency-key")}
    append("effects", effect)
    if fault == "die_after":
        os._exit(1)
    if fault == "error_after":
        return says("database error after the commit", error=True)
    if fault == "garbage":
        sys.stdout.write('{"jsonrpc":"2.0","id":[],"result":\n')
        return None
    if fault == "slow":
        time.sleep(float(seconds))
    return says(effect)


def call(params):
    name, arguments, meta = params["name"], params.get("arguments") or {}, params.get("_meta") or {}
    append("requests", {"tool": name, "arguments": arguments, "key": meta.get("dev.onced/idempotency-key")})
    if name == "find":
        if take("blind"):
            return says([])
        return says([effect for effect in lines("effects") if effect.get("order") == arguments["order"]])
    return write(name, arguments, meta)


def handle(message):
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "orders", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params)
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    known = {"initialize", "tools/list", "tools/call", "ping"}
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] not in known:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    else:
        result = handle(message)
        if result is None:
            sys.stdout.flush()
            continue
        answer["result"] = result
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
