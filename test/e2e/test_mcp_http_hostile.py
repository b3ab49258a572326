"""Hostile clients at /mcp over HTTP: each gets the right code, the others notice nothing, memory stays bounded, and the provider
is asked exactly for what was accepted. ONCED_HOSTILE_CALLS calls at once (2,000 unless set)."""

import asyncio
import json
import os
import socket
import time

import pytest

from onced_e2e import registry
from onced_e2e.figures import figure
from onced_e2e.rpc import VERSION, Legacy, Mcp
from onced_e2e.wait import wait_until

CALLS = int(os.environ.get("ONCED_HOSTILE_CALLS", "2000"))
AT_ONCE = 900  # connections; the daemon takes 1,024
META = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
TYPES = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
MODERN = TYPES + f"MCP-Protocol-Version: {VERSION}\r\n"


def status_of(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


def sanitized(pid):
    """AddressSanitizer keeps what was freed."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        return "libasan" in maps.read()


def head(path="/mcp", method="POST", headers=TYPES, body=b""):
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def message(id=1, method="tools/call", meta=None, **params):
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, **({"_meta": meta} if meta else {})}}).encode()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def ask(port, request):
    """Status and body of one raw request; None when the connection was closed without an answer."""
    with connect(port) as wire:
        wire.sendall(request)
        text = b""
        while b"\r\n\r\n" not in text:
            piece = wire.recv(65536)
            if not piece:
                return (None, None)
            text += piece
        first, _, body = text.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in first.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
        while len(body) < length:
            body += wire.recv(65536)
        return int(first.split()[1]), body


class Bystander:
    """A well-behaved client with a session, an open stream and a call: none of it may suffer."""

    def __init__(self, onced, provider):
        self.onced, self.provider = onced, provider
        self.session = Legacy(onced.port)
        self.stream = connect(onced.port)
        self.stream.sendall(head(method="GET", headers=f"Accept: text/event-stream\r\nMcp-Session-Id: {self.session.session}\r\n"))
        assert b"text/event-stream" in self.stream.recv(65536)
        self.effects = provider.effects()
        self.peak = status_of(onced.process.pid, "VmHWM")

    def check(self, grown_mib=64):
        answer = self.session.call("refund", {"payment_id": "bystander", "amount_cents": 1})
        assert answer.state == "completed_success", answer
        assert self.session.request("ping").body["result"] == {}
        self.stream.setblocking(False)
        try:
            while piece := self.stream.recv(65536):
                assert not piece.endswith(b"0\r\n\r\n")
            raise AssertionError("the stream was closed")
        except BlockingIOError:
            pass
        self.stream.close()
        pid = self.onced.process.pid
        grown = (status_of(pid, "VmHWM") - self.peak) // 1024
        assert grown < grown_mib or sanitized(pid), f"{grown} MiB"
        return grown


@pytest.fixture
def onced(world):
    return world.onced({"refund": registry.refund(wait="20s")}, server={"body_bytes_max": "1MB"})


@pytest.fixture
def bystander(onced, provider):
    return Bystander(onced, provider)


GARBAGE = [b"\x00" * 500, b"\xff\xfe GET /mcp", b"GET\r\n\r\n", b"POST /mcp HTTP/9.9\r\n\r\n", b"POST /mcp HTTP/1.1\r\n\r\n",
           b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"POST /mcp HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
           head(body=b"garbage"), head(body=b"\xff\xfe"), head(body=b"[]"), head(body=b'"text"'), head(body=b"{"),
           head(body=b'{"jsonrpc":"2.0"}'), head(body=b'{"jsonrpc":"1.0","id":1,"method":"ping"}'),
           head(body=b'{"jsonrpc":"2.0","id":{},"method":"ping"}'), head(body=b"[" * 10000), head(body=b'{"a":' * 5000),
           head(body=message(id="x" * 100000)), head(body=message(method="m" * 10000)), head(body=message(params="\ud800")),
           head(headers=TYPES + "Transfer-Encoding: chunked\r\n", body=b"zz\r\n")]


def test_garbage(onced, provider, bystander):
    for number, text in enumerate(GARBAGE):
        with connect(onced.port) as wire:
            wire.settimeout(1)
            try:
                wire.sendall(text)
                wire.shutdown(socket.SHUT_WR)
                answer = wire.recv(65536)
            except OSError:  # closed at once; or no whole request: it is waited for, until the daemon's own time-out
                answer = b""
            assert not answer or answer.startswith(b"HTTP/1.1 4") or answer.startswith(b"HTTP/1.1 505"), (number, answer)
    bystander.check()
    assert provider.effects() == 1


def test_codes(onced, provider, bystander):
    ping = message(method="ping")
    session = f"{TYPES}Mcp-Session-Id: {bystander.session.session}\r\n"
    modern = message(name="refund", arguments={"payment_id": "p", "amount_cents": 1}, meta=META)
    named = MODERN + "Mcp-Method: tools/call\r\nMcp-Name: refund\r\n"
    cases = [
        (TYPES, ping, 400, -32600), (TYPES + "Mcp-Session-Id: nonsense\r\n", ping, 404, -32001),
        (TYPES + f"Mcp-Session-Id: {'0' * 32}\r\n", ping, 404, -32001), (session + "Onced-Principal: mallory\r\n", ping, 404, -32001),
        (session + "Origin: http://evil.example\r\n", ping, 403, -32600), (session + "MCP-Protocol-Version: 1.0\r\n", ping, 400, -32600),
        (session.replace("text/event-stream", "text/html"), ping, 406, -32600),
        (session.replace("application/json\r\nAccept", "text/plain\r\nAccept"), ping, 415, -32600),
        (session, b"[" + ping + b"]", 400, -32600), (session, b"x", 400, -32700), (session, b" " * (1 << 20) + b"x" * 9, 413, -32600),
        (named.replace("refund", "other"), modern, 400, -32020), (named.replace("tools/call", "tools/list"), modern, 400, -32020),
        (named.replace(VERSION, "2099-01-01"), modern, 400, -32020), (MODERN, modern, 400, -32020),
        (named, modern.replace(b"clientCapabilities", b"other"), 400, -32602),
        (named.replace(VERSION, "2099-01-01"), modern.replace(VERSION.encode(), b"2099-01-01"), 400, -32022),
    ]
    for headers, body, status, code in cases:
        got, text = ask(onced.port, head(headers=headers, body=body))
        assert got == status and json.loads(text)["error"]["code"] == code, (headers, body[:200], got, text)
    bystander.check()
    assert provider.effects() == 1


def test_half_messages_and_slow_readers(onced, provider, bystander):
    wires = []
    for number in range(300):
        wire = connect(onced.port)
        wires.append(wire)
        if number % 3 == 0:
            wire.sendall(head(body=b"x" * 1000)[:-500])  # half a body
        elif number % 3 == 1:
            wire.sendall(head(headers=MODERN + "Mcp-Method: subscriptions/listen\r\n",
                              body=message(method="subscriptions/listen", notifications={"toolsListChanged": True}, meta=META)))
        else:
            wire.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
    grown = bystander.check()
    for wire in wires:
        wire.close()
    assert Mcp(onced.port).request("server/discover").status == 200
    assert provider.effects() == 1
    figure("slow", f"300 half messages and readers that do not read: {grown} MiB")


def test_giant_bodies(onced, provider, bystander):
    wires = []
    for _ in range(20):
        wire = connect(onced.port)
        wires.append(wire)
        wire.sendall(f"POST /mcp HTTP/1.1\r\nHost: x\r\n{TYPES}Content-Length: {1 << 40}\r\n\r\n".encode())
        try:
            for _ in range(40):
                wire.sendall(b"x" * (1 << 20))
        except OSError:
            pass
    bystander.check()
    for wire in wires:
        wire.close()
    arguments = {"payment_id": "x" * (900 * 1024), "amount_cents": 1}  # large, and allowed
    assert Mcp(onced.port).call("refund", arguments).state == "completed_success"
    assert provider.effects() == 2


async def call_many(port, session, numbers, answers):
    """One connection after the other request; kept alive while the server keeps it."""
    reader = writer = None
    for number in numbers:
        arguments = {"payment_id": f"many-{number}", "amount_cents": 1}
        if number % 2:
            request = head(headers=MODERN + "Mcp-Method: tools/call\r\nMcp-Name: refund\r\n",
                           body=message(id=number, name="refund", arguments=arguments, meta=META))
        else:
            request = head(headers=f"{TYPES}Mcp-Session-Id: {session}\r\n", body=message(id=number + 1, name="refund", arguments=arguments))
        if not writer:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(request)
        first = await reader.readuntil(b"\r\n\r\n")
        lines = {line.split(b":")[0].lower(): line.split(b":", 1)[1].strip() for line in first.split(b"\r\n")[1:] if line}
        if lines.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
            data = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ") and len(line) > 6]
            answers[number] = (int(first.split()[1]), data[-1] if data else None)
        else:
            answers[number] = (int(first.split()[1]), json.loads(await reader.readexactly(int(lines[b"content-length"]))))
    if writer:
        writer.close()


def test_calls_at_once(onced, provider, bystander):
    session = Legacy(onced.port).session
    answers = {}

    async def all_of_them():
        shares = [range(first, CALLS, AT_ONCE) for first in range(AT_ONCE)]
        await asyncio.gather(*(call_many(onced.port, session, share, answers) for share in shares))

    started = time.monotonic()
    asyncio.run(all_of_them())
    seconds = time.monotonic() - started
    assert len(answers) == CALLS
    busy = [number for number, (_, body) in answers.items() if (body.get("error") or {}).get("code") == 429]
    other = [each for number, each in answers.items() if number not in set(busy) and each[0] != 200]
    assert not other, other[:3]
    accepted = CALLS - len(busy)
    states = {}
    for number in set(answers) - set(busy):
        shape = answers[number][1]["result"]["_meta"]["dev.onced/result"] if "_meta" in answers[number][1]["result"] else \
            answers[number][1]["result"]["structuredContent"]
        states[shape["status"]] = states.get(shape["status"], 0) + 1
    wait_until(lambda: provider.effects() >= accepted, seconds=60, what="the effects of what was accepted")
    grown = bystander.check(grown_mib=256)
    assert provider.effects() == accepted + 1  # and the bystander's
    figure("many", f"{CALLS} calls over {AT_ONCE} connections in {seconds:.1f} s: {accepted} accepted and done once each, "
                   f"{len(busy)} refused (429); {grown} MiB", calls=CALLS, accepted=accepted)


def test_too_many_connections(onced, provider, bystander):
    wires = [connect(onced.port) for _ in range(1060)]
    refused = 0
    for wire in wires[-20:]:
        wire.sendall(head(headers=MODERN + "Mcp-Method: server/discover\r\n", body=message(method="server/discover", meta=META)))
        answer = wire.recv(65536)
        refused += b" 503 " in answer[:20]
    assert refused > 0
    for wire in wires:
        wire.close()
    bystander.check()
