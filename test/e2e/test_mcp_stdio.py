"""`onced mcp`: one line in a client's configuration. Several processes, one ledger, real kills; judged by the provider's own
count of effects and by what each client was told: every request gets one answer, whoever dies."""

import json
import os
import signal
import threading
import time

import pytest

from onced_e2e import ledgers, registry
from onced_e2e.crash import chance, rounds
from onced_e2e.figures import figure
from onced_e2e.stdio import MODERN, Stdio
from onced_e2e.wait import wait_until

ARGUMENTS = {"payment_id": "p1", "amount_cents": 100}


class Stage:
    """One registry file and the processes on it."""

    def __init__(self, world):
        self.world = world
        self.provider = world.provider
        self.onced = world.prepare({"refund.create": registry.refund(keyed=False, wait="20s"),
                                    "refund.keyed": registry.refund(while_in_doubt="allow", wait="20s")},
                                   providers={"plain": registry.provider(world.provider.url, timeout="20s")})
        self.folder = self.onced.folder
        self.clients = []

    def client(self, legacy=True, command=None):
        client = Stdio(self.folder, self.onced.file, f"client-{len(self.clients) + 1}", command)
        self.clients.append(client)
        return client.initialize() if legacy else client

    def owner(self):
        """The pid that has the ledger."""
        return int((self.folder / "onced.db.lock").read_text())

    def in_flight(self, client, hold_ms=3000, payment="p1", **named):
        """A call whose effect is there and whose answer is not."""
        before = self.provider.effects()
        self.provider.script(f"timeout_after_commit:{hold_ms}")
        id = client.ask_call("refund.create", {**ARGUMENTS, "payment_id": payment}, **named)
        wait_until(lambda: self.provider.effects() == before + 1, what="the effect")
        return id


@pytest.fixture
def stage(world):
    stage = Stage(world)
    yield stage
    for client in stage.clients:
        client.dispose()


def expect_success(answer):
    assert answer.state == "completed_success", answer
    assert answer.shape["next_action"] == "use_result", answer


# ---- one client ----

def test_a_client_alone(stage):
    client = stage.client()
    names = {tool["name"] for tool in client.request("tools/list").result["tools"]}
    assert {"refund.create", "onced_status"} <= names
    expect_success(client.call("refund.create", ARGUMENTS))
    again = client.call("refund.create", ARGUMENTS)
    expect_success(again)
    assert again.shape["replayed"] is True
    assert stage.provider.effects() == 1
    assert client.end() == 0
    assert not (stage.folder / "onced.db.mcp").exists()
    expect_success(stage.client(legacy=False).call("refund.create", ARGUMENTS, modern=True))  # the next process knows it
    assert stage.provider.effects() == 1


def test_answers_after_the_client_has_said_all(stage):
    client = stage.client()
    id = stage.in_flight(client, 600)
    assert client.end() == 0
    expect_success(client.answer(id))
    assert stage.provider.effects() == 1


def test_refused_without_a_file(stage):
    client = Stdio(stage.folder, stage.folder / "none.yaml", "lost")
    assert client.child.wait(10) != 0
    assert "none.yaml" in client.text() and not client.messages


# ---- several ----

@ledgers.only_sqlite("processes that share a file")
def test_clients_share_the_daemon(stage):
    stage.onced.start()
    first, second = stage.client(), stage.client(legacy=False)
    expect_success(first.call("refund.create", ARGUMENTS))
    answer = second.call("refund.create", ARGUMENTS, modern=True)
    expect_success(answer)
    assert answer.shape["replayed"] is True
    assert stage.provider.effects() == 1
    assert stage.owner() == stage.onced.process.pid
    assert first.end() == 0 and second.end() == 0


@ledgers.only_sqlite("processes that share a file")
def test_the_owner_stays_for_others(stage):
    owner = stage.client()
    other = stage.client()
    owner.close_input()
    time.sleep(0.5)
    assert owner.alive()
    expect_success(other.call("refund.create", ARGUMENTS))
    assert stage.owner() == owner.child.pid
    assert other.end() == 0
    assert owner.child.wait(10) == 0


def test_a_probe_beside_the_real_process(stage):
    """A client that starts a second process only to ask server/discover, and kills it."""
    probe = stage.client(legacy=False)
    found = probe.request("server/discover", {"_meta": MODERN})
    assert "2026-07-28" in found.result["supportedVersions"], found
    client = stage.client()
    probe.kill()
    expect_success(client.call("refund.create", ARGUMENTS))
    assert stage.provider.effects() == 1


# ---- the owner dies ----

@ledgers.only_sqlite("processes that share a file")
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_owner_killed_with_a_call_in_flight(stage, modern):
    owner = stage.client()
    client = stage.client(legacy=not modern)
    idle = stage.client()
    named = {"modern": modern, "meta": {"claudecode/toolUseId": "toolu_1"}}
    id = stage.in_flight(client, **named)
    owner.kill()
    expect_success(client.answer(id))
    assert stage.provider.effects() == 1
    expect_success(client.call("refund.create", ARGUMENTS, **named))
    expect_success(idle.call("refund.create", ARGUMENTS))
    assert stage.provider.effects() == 1
    assert stage.owner() in (client.child.pid, idle.child.pid)
    assert len(client.answers[json.dumps(id)]) == 1
    client.close_input()  # whoever has the ledger stays for the other
    assert idle.end() == 0 and client.end() == 0


@ledgers.only_sqlite("processes that share a file")
def test_owners_die_one_after_the_other(stage):
    clients = [stage.client() for _ in range(3)]
    last = clients[-1]
    for n in range(2):
        arguments = {"payment_id": f"p{n}", "amount_cents": 100}
        stage.provider.script("timeout_after_commit:1500")
        id = last.ask_call("refund.create", arguments)
        wait_until(lambda: stage.provider.effects() == n + 1, what="the effect")
        [victim] = [client for client in clients if client.child.pid == stage.owner()]
        if victim is last:
            break  # it took over itself
        victim.kill()
        clients.remove(victim)
        expect_success(last.answer(id))
    assert stage.provider.effects() == n + 1


@ledgers.only_sqlite("processes that share a file")
def test_daemon_killed_and_started_again(stage):
    stage.onced.start()
    client = stage.client()
    id = stage.in_flight(client)
    stage.onced.restart(kill=True)
    expect_success(client.answer(id))
    assert stage.provider.effects() == 1
    assert stage.owner() == stage.onced.process.pid  # the client left it the ledger


@ledgers.only_sqlite("processes that share a file")
def test_owner_told_to_stop(stage):
    """Gracefully: what is on the wire is finished and answered, the others find the next one."""
    owner, client = stage.client(), stage.client()
    id = stage.in_flight(client, 500)
    owner.child.send_signal(signal.SIGTERM)
    expect_success(client.answer(id))
    assert owner.child.wait(10) == 0
    expect_success(client.call("refund.create", {"payment_id": "p2", "amount_cents": 5}))
    assert stage.provider.effects() == 2
    assert stage.owner() == client.child.pid


@ledgers.only_sqlite("processes that share a file")
def test_one_that_took_over_is_told_to_stop(stage):
    first, second, third = stage.client(), stage.client(), stage.client()
    first.kill()
    expect_success(second.call("refund.create", ARGUMENTS))
    owner, other = (second, third) if stage.owner() == second.child.pid else (third, second)
    id = stage.in_flight(other, 500, payment="p2")
    owner.child.send_signal(signal.SIGTERM)
    expect_success(other.answer(id))
    assert owner.child.wait(10) == 0
    assert stage.provider.effects() == 2


@ledgers.only_sqlite("processes that share a file")
def test_client_leaves_while_nobody_has_the_ledger(stage):
    owner, client = stage.client(), stage.client()
    id = stage.in_flight(client)
    os.kill(owner.child.pid, signal.SIGSTOP)
    client.close_input()
    owner.kill()
    assert client.child.wait(20) == 0
    expect_success(client.answer(id))
    assert stage.provider.effects() == 1


class Caller:
    """A client that calls one after the other, each call with arguments of its own. When its process is killed it starts another
    one and calls again, as a model would."""

    def __init__(self, stage, name, over):
        self.stage, self.name, self.over = stage, name, over
        self.done = []
        self.client = stage.client()
        self.error = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            while not self.over.is_set():
                self._call({"payment_id": f"{self.name}-{len(self.done)}", "amount_cents": 1})
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def _call(self, arguments):
        for _ in range(5):
            client = self.client
            try:
                answer = client.call("refund.keyed", arguments, 30)
            except AssertionError:
                if not client.ended or client.child.wait(10) != -signal.SIGKILL:
                    raise
                self.client = self.stage.client()
                continue
            expect_success(answer)
            self.done.append(arguments["payment_id"])
            return
        raise AssertionError(f"five processes were killed during {arguments}")


@ledgers.only_sqlite("processes that share a file")
def test_owners_killed_at_random(stage):
    """Clients that call without a pause; whoever has the ledger is killed, again and again (ONCED_ROUNDS / 3 times)."""
    stage.provider.config(faults="timeout_after_commit:30=0.5")
    moments, over = chance(), threading.Event()
    callers = [Caller(stage, f"c{n}", over) for n in range(3)]
    kills = max(2, rounds() // 3)
    for _ in range(kills):
        before = [len(caller.done) for caller in callers]
        wait_until(lambda: all(len(caller.done) > n + 3 for caller, n in zip(callers, before)) or any(c.error for c in callers), 30,
                   what="calls of all")
        time.sleep(moments.uniform(0, 0.1))
        os.kill(stage.owner(), signal.SIGKILL)
    over.set()
    for caller in callers:
        caller.thread.join(60)
        assert not caller.error, caller.error
    intents = sorted(name for caller in callers for name in caller.done)
    wrong = {name: stage.provider.effects_of(f"refunds/{name}") for name in intents
             if stage.provider.effects_of(f"refunds/{name}") != 1}
    assert not wrong
    assert stage.provider.effects() == len(intents)
    figure("mcp-owners-killed", f"{kills} owners killed under {len(callers)} clients: {len(intents)} calls, "
           f"{stage.provider.effects()} effects, each request answered once", kills=kills, calls=len(intents))


# ---- hostile input, through both kinds of process ----

@pytest.fixture(params=["owner", "relay"])
def hostile(stage, request):
    """A client whose process has the ledger, or passes on to one; and another, which must not notice."""
    first, second = stage.client(), stage.client()
    return (first, second) if request.param == "owner" else (second, first)


def peak_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def sanitized(pid):
    """AddressSanitizer keeps what was freed."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        return "libasan" in maps.read()


def test_garbage(stage, hostile):
    client, other = hostile
    client.send_raw(b"garbage\n\xff\xfe\x00\n[]\n\"text\"\n")
    client.wait_for(lambda: len(client.answers.get("null", [])) == 4)
    assert [each.error["code"] for each in client.answers["null"]] == [-32700, -32700, -32600, -32600]
    assert client.answer(client.ask("no/such/method")).error["code"] == -32601
    assert client.answer(client.ask("tools/call", {"name": "no-such-tool"})).error["code"] == -32602
    client.send_raw(b'{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"arguments":{"a":"\\ud800"}}}\n')
    assert client.answer("s").error["code"] == -32700
    expect_success(client.call("refund.create", ARGUMENTS))
    expect_success(other.call("refund.create", ARGUMENTS))
    assert stage.provider.effects() == 1


def test_half_a_message_at_the_end(hostile):
    client, other = hostile
    client.send_raw(b'{"jsonrpc":"2.0","id":77,"method":"tools/ca')
    client.close_input()
    client.wait_for(lambda: "null" in client.answers)
    assert client.answers["null"][0].error["code"] == -32700
    assert other.request("ping").result == {}


def test_giant_messages(hostile):
    client, other = hostile
    before = peak_kib(client.child.pid)
    piece = b"x" * (1 << 20)
    client.send_raw(b'{"jsonrpc":"2.0","id":"giant","method":"tools/call","params":{"arguments":{"a":"')
    for _ in range(40):
        client.send_raw(piece)
    assert client.answer("giant", 60).error["code"] == -32600  # while it still goes on
    client.send_raw(b'"}}}\n')
    assert client.request("ping", seconds=60).result == {}
    assert other.request("ping").result == {}
    grown = peak_kib(client.child.pid) - before
    assert grown < 64 * 1024 or sanitized(client.child.pid), grown


def test_ten_thousand_calls_at_once(stage):
    other, client = stage.client(), stage.client()
    stage.provider.config(latency_ms=400)
    ids = [client.ask_call("refund.create", {"payment_id": f"p{n}", "amount_cents": 1}) for n in range(10000)]
    assert other.request("ping").result == {}
    client.wait_for(lambda: len(client.answers) >= len(ids), 60)
    busy = [id for id in ids if (client.answer(id).error or {}).get("code") == 429]
    assert len(busy) > 5000
    for id in ids:
        answer = client.answer(id)
        assert answer.error or answer.shape["next_action"] in ("use_result", "wait"), answer
    done = sum(client.answer(id).state == "completed_success" for id in ids)
    wait_until(lambda: stage.provider.effects() >= done, what="the effects")
    assert 0 < stage.provider.effects() <= len(ids) - len(busy)
