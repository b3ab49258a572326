"""Real MCP servers behind onced: the reference servers everything, filesystem and memory, over stdio and over HTTP (filesystem
and memory speak stdio only: mcp-proxy puts them behind HTTP). Effects are counted on disk, while onced and the servers are killed
(-9)."""

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from onced_e2e import mcp
from onced_e2e.client import LOST, Client
from onced_e2e.ports import free_port
from onced_e2e.process import environment
from onced_e2e.rpc import Mcp
from onced_e2e.wait import Background, wait_until

ROUNDS = int(os.environ.get("ONCED_ROUNDS", "10"))
SEED = int(os.environ.get("ONCED_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


def program(package, *arguments):
    return [*mcp.program(f"@modelcontextprotocol/server-{package}", "dist/index.js"), *map(str, arguments)]


def provider(**where):
    return {"mcp": {"import": {"unclassified": "read_only_hints"}, **where}, "timeout": "5s", "breaker": {"failures": 0}}


def server(package, *arguments):
    return provider(command=program(package, *arguments), env={"PATH": mcp.node_environment()["PATH"]})


class Stdio:
    """A reference server that onced starts itself."""

    def __init__(self, argv, variables):
        self.provider = provider(command=argv, env={"PATH": mcp.node_environment()["PATH"], **variables})

    def kill(self, onced):
        kill_all(children(onced.process.pid))

    def stop(self):
        pass


class Http:
    """A reference server behind mcp-proxy, which starts it for each session. After a kill both are started anew."""

    def __init__(self, argv, variables, log):
        self.port, self.log, self.child = free_port(), log, None
        self.argv = [sys.executable, "-m", "mcp_proxy", "--port", str(self.port), "--pass-environment", "--", *argv]
        self.environment = {**environment(), **variables, "PATH": mcp.node_environment()["PATH"],
                            "PYTHONPATH": str(mcp.FOLDER / ".langchain")}
        self.provider = provider(url=f"http://127.0.0.1:{self.port}/mcp")
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
        wait_until(lambda: listens(self.port), what="mcp-proxy", seconds=20)

    def kill(self, onced):
        del onced
        self.stop()
        self.start()

    def stop(self):
        kill_all([self.child.pid, *children(self.child.pid)])
        self.child.wait()


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


@pytest.fixture(params=["stdio", "http"])
def serve(request, tmp_path):
    """serve(package, *arguments, **environment variables): the server over this transport."""
    served = []

    def make(package, *arguments, **variables):
        argv = program(package, *arguments)
        served.append(Stdio(argv, variables) if request.param == "stdio" else Http(argv, variables, tmp_path / "proxy.log"))
        return served[-1]

    # Programs in JavaScript and mcp-proxy take their time to start: by default fewer rounds, so that it does not go on for long.
    at_length = "ONCED_ROUNDS" in os.environ
    make.rounds = ROUNDS if request.param == "stdio" or at_length else max(2, ROUNDS // 3)
    make.deaths = make.rounds if at_length else max(2, make.rounds // 2)
    yield make
    for one in served:
        one.stop()


def children(pid):
    """Process ids below pid, of any depth."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *children(int(child))]
    return found


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def settle(port, tool, arguments, key, end):
    """Calls with the same key until it is done, as a caller does that has durable keys. What a look-up proves absent is closed
    (a server without keys is never sent anything twice); then an operator has it tried again."""
    while time.monotonic() < end:
        try:
            answer = Mcp(port(), timeout=8).call(tool, arguments, key)
            if answer.state in ("completed_success", "completed_noop"):
                return answer
            if answer.state == "failed_permanent":
                assert answer.shape["reason"] == "absent", answer
                Client(port()).post(f"/v1/operations/{answer.id}/retry", {"note": "proven absent"})
        except LOST:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{key} did not settle")


# ---- filesystem: an edit that happens twice shows twice ----


def files(served):
    edit = {
        "provider": "files", "class": "external_weak", "identity": "caller",
        "lookup": {"tool": "read_text_file", "arguments": {"path": "{path}"},
                   "found": '.content[0].text | contains("entry")', "absent": '.content[0].text | contains("entry") | not'},
        "settle": "200ms", "absent_times": 2, "lookup_interval": "50ms", "lookup_interval_max": "300ms", "give_up": "60s", "watch": [],
        "retry": {"attempts": 20, "total": "1h", "backoff": "50ms", "backoff_max": "200ms"}, "wait": "5s",
    }
    return {"edit_file": edit}, {"files": served.provider}


def edit(folder, number):
    return {"path": str(folder / f"{number}.txt"), "edits": [{"oldText": "END", "newText": "entry\nEND"}]}


def test_filesystem_edits_under_kill_9(world, tmp_path, serve):
    print(f"\nseed {SEED}")
    rng = random.Random(SEED)
    folder = tmp_path / "files"
    folder.mkdir()
    served = serve("filesystem", folder)
    tools, providers = files(served)
    onced = world.onced(tools, providers=providers)
    numbers, over = itertools.count(), threading.Event()
    errors, done = [], {}

    def work():
        """As long as something is killed, and one more."""
        try:
            while not over.is_set():
                number = next(numbers)
                (folder / f"{number}.txt").write_text("END\n")
                done[number] = settle(lambda: onced.port, "edit_file", edit(folder, number), f"edit-{number}", time.monotonic() + 90).id
                time.sleep(0.02)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    kills = {"onced": 0, "server": 0}
    while not errors and kills["onced"] + kills["server"] < serve.rounds:
        time.sleep(rng.uniform(0.02, 0.4))
        if rng.random() < 0.5:
            served.kill(onced)
            kills["server"] += 1
        else:
            onced.restart(kill=True)
            kills["onced"] += 1
    wait_until(lambda: errors or len(done) >= serve.rounds, 90, what="as many edits as kills")  # the servers start slowly after each
    over.set()
    for thread in threads:
        thread.join(100)
    assert not errors, errors
    counts = [(folder / f"{number}.txt").read_text().count("entry") for number in range(len(done))]
    print(f"{len(counts)} edits, kills {kills}: effects {counts.count(1)} once, {sum(count > 1 for count in counts)} more often, "
          f"{counts.count(0)} never")
    assert counts == [1] * len(done) and len(done) >= serve.rounds
    assert len(set(done.values())) == len(done)


def test_the_servers_own_results_come_through(world, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("END\n")
    tools, providers = files(Stdio(program("filesystem", folder), {}))
    onced = world.onced(tools, providers=providers)
    client = Mcp(onced.port)
    listed = client.tools()
    assert {"read_text_file", "write_file", "edit_file", "list_directory"} <= listed.keys()
    assert listed["read_text_file"]["annotations"]["readOnlyHint"] is True
    first = client.call("edit_file", edit(folder, "a"), key="once")
    again = client.call("edit_file", edit(folder, "a"), key="once")
    assert first.state == "completed_success" and not first.is_error, first
    assert "entry" in first.text
    assert again.id == first.id and again.shape["replayed"] and first.id in again.text and "repeat_of" in again.text, again
    assert (folder / "a.txt").read_text() == "entry\nEND\n"
    read = client.call("read_text_file", {"path": str(folder / "a.txt")})
    assert read.text == "entry\nEND\n", read
    outside = client.call("read_text_file", {"path": "/etc/hostname"})
    assert outside.is_error and "Access denied" in outside.text, outside


# ---- memory ----


def test_memory_entities_under_kill_9(world, tmp_path, serve):
    """The server rewrites its whole file in place, so that a kill of the server in the middle would lose all of it by itself:
    onced is killed at any moment, the server only between calls."""
    print(f"\nseed {SEED}")
    rng = random.Random(SEED)
    store = tmp_path / "memory.jsonl"
    served = serve("memory", MEMORY_FILE_PATH=str(store))
    tool = {"provider": "memory", "class": "external_weak", "identity": "caller",
            "lookup": {"tool": "open_nodes", "arguments": {"names": ["{/entities/0/name}"]},
                       "found": ".structuredContent.entities | length == 1", "absent": ".structuredContent.entities | length == 0"},
            "settle": "200ms", "absent_times": 2, "lookup_interval": "50ms", "lookup_interval_max": "300ms", "give_up": "60s",
            "watch": [], "retry": {"attempts": 20, "total": "1h", "backoff": "50ms", "backoff_max": "200ms"}, "wait": "5s"}
    onced = world.onced({"create_entities": tool}, providers={"memory": served.provider})

    def create(name):
        settle(lambda: onced.port, "create_entities", {"entities": [{"name": name, "entityType": "order", "observations": []}]}, name, time.monotonic() + 90)

    def kill():
        for _ in range(serve.deaths):
            time.sleep(rng.uniform(0.05, 0.4))
            onced.restart(kill=True)

    killing, created = Background(kill), []
    while killing.running():
        created.append(f"n{len(created)}")
        create(created[-1])
    killing.result()
    served.kill(onced)
    create("last")
    names = [json.loads(line)["name"] for line in store.read_text().splitlines()]
    assert sorted(names) == sorted([*created, "last"])
    print(f"{len(names)} entities, onced killed {serve.deaths} times: each there once")


# ---- everything: over stdio and over HTTP ----


@pytest.fixture
def everything_http(tmp_path):
    port = free_port()
    log = open(tmp_path / "everything.log", "wb")
    child = subprocess.Popen([*mcp.program("@modelcontextprotocol/server-everything", "dist/index.js"), "streamableHttp"],
                             stdout=log, stderr=log, env={**environment(), "PORT": str(port)})
    wait_until(lambda: b"listening" in (tmp_path / "everything.log").read_bytes().lower(), what="the server", seconds=15)
    yield f"http://127.0.0.1:{port}/mcp"
    child.kill()
    child.wait()


def shows_everything(onced):
    client = Mcp(onced.port)
    listed = client.tools()
    assert {"echo", "get-sum"} <= listed.keys(), sorted(listed)
    assert client.call("echo", {"message": "hello"}).text == "Echo: hello"
    assert "5" in client.call("get-sum", {"a": 2, "b": 3}).text
    resources = client.request("resources/list")
    assert resources.status == 200 and resources["result"]["resources"], resources
    prompts = client.request("prompts/list")
    assert prompts.status == 200 and prompts["result"]["prompts"], prompts
    first = resources["result"]["resources"][0]["uri"]
    read = client.request("resources/read", {"uri": first}, name=first)
    assert read.status == 200 and read["result"]["contents"], read


def test_everything_over_stdio(world):
    shows_everything(world.onced({}, providers={"everything": server("everything", "stdio")}))


def test_everything_over_http(world, everything_http):
    section = {"mcp": {"url": everything_http, "import": {"unclassified": "read_only_hints"}}}
    shows_everything(world.onced({}, providers={"everything": section}))
