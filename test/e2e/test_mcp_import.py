"""Tools of an MCP server become tools of the registry: onced mcp import, onced check --connect, import at start, lists that
change while onced runs."""

import json
import os
import pathlib
import re
import signal
import sys

import pytest

import onced_e2e
from onced_e2e import binary, ledgers, mcp
from onced_e2e.rpc import Mcp
from onced_e2e.wait import wait_until

PROGRAM = str(pathlib.Path(onced_e2e.__file__).parent / "plain_server.py")
PATH = {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}
READ = {"name": "read", "description": "Read a file.", "annotations": {"readOnlyHint": True}, "inputSchema": PATH}
WRITE = {"name": "write", "description": "Write a line.", "inputSchema": {
    "type": "object", "required": ["path", "text"],
    "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "request_id": {"type": "string"}}}}
CHANGE = {"name": "change", "inputSchema": {"type": "object"}}
BROKEN = {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "wrong"}}}}
TOOLS = [READ, WRITE, CHANGE, BROKEN]
IMPORT = {"unclassified": "read_only_hints", "classes": {"change": "internal_write"}}


class Server:
    def __init__(self, folder):
        self.folder = folder
        self.list = folder / "tools.json"
        self.list.write_text(json.dumps(TOOLS))

    @property
    def command(self):
        return [sys.executable, PROGRAM, str(self.list), str(self.folder)]

    def section(self, **mcp):
        return {"mcp": {"command": self.command, "import": IMPORT, **mcp}, "timeout": "5s"}


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    return Server(folder)


def names(onced, principal=None):
    answer = onced.client.get("/v1/tools", headers={"Onced-Principal": principal} if principal else None)
    assert answer.status == 200, answer
    return {tool["name"]: tool["class"] for tool in answer["tools"]}


# ---- onced mcp import ----


def test_skeleton_is_usable(world, server, tmp_path):
    onced = world.prepare({})
    file = tmp_path / "made.yaml"
    done = onced.cli("mcp", "import", "--name", "files", "-o", file, "--", *server.command)
    assert f"{file} is written: 4 tools." in done.stdout
    text = file.read_text()
    assert "plain 3, MCP 2025-11-25" in text
    assert "# mcp: {key_argument: request_id}" in text
    assert '# lookup: {tool: read, arguments: {path: "{path}"}' in text
    assert "fine, 4 tools" in onced.cli("check", file).stdout
    # what the comments offer is right once it is taken
    decided = text.replace("    # mcp: {key", "    mcp: {key").replace("    # lookup:", "    lookup:").replace("    # key:", "    key:")
    decided = decided.replace("'jq over its result'", "'.isError | not'", 1).replace("'jq over its result'", ".isError", 1)
    file.write_text(decided)
    checked = onced.cli("check", "--connect", file)
    assert "fine, 3 tools" in checked.stdout  # without the one that cannot be compiled
    assert 'tool "broken" is left out' in checked.stdout

    onced.file.write_text(decided)  # --ledger says where its ledger is
    onced.start()
    assert names(onced) == {"read": "read", "write": "external_weak", "change": "external_weak"}
    first = onced.call("write", {"path": "a", "text": "one"})
    again = onced.call("write", {"path": "a", "text": "one"}, principal="another")
    assert first.state == "completed_success" and again.id == first.id, (first, again)
    assert onced.call("write", {"path": "a", "text": "two"}).status == 422  # the key is the path
    assert (server.folder / "a").read_text() == "one\n"


def test_import_from_a_file_and_refusals(world, server, tmp_path):
    onced = world.prepare({}, providers={"files": server.section(), "other": {"mcp": {"command": ["/bin/false"]}}})
    made = onced.cli("mcp", "import", "--config", onced.file, "files").stdout
    assert "provider: files" in made and "/bin/false" not in made
    file = tmp_path / "made.yaml"
    file.write_text(made)
    assert onced.cli("check", file).returncode == 0

    def refused(status, *argv):
        done = onced.cli("mcp", "import", *argv, check=False)
        assert done.returncode == status and not done.stdout, done
        return done.stderr

    assert 'no MCP server "plain"' in refused(5, "--config", onced.file, "plain")
    assert "exited" in refused(4, "--", "/bin/false")
    assert "takes one of" in refused(2)
    assert "takes one of" in refused(2, "--url", "http://127.0.0.1:1/mcp", "--", "/bin/false")
    assert "--config FILE" in refused(2, "files")
    assert "variable" in refused(2, "--env", "A=b", "--", "/bin/false")
    assert "Failed to connect" in refused(4, "--url", "http://127.0.0.1:1/mcp")
    assert "exists already" in refused(1, "-o", file, "--", *server.command)
    assert "environment variable NO_SUCH_VARIABLE is not set" in refused(2, "--env", "NO_SUCH_VARIABLE", "--", "/bin/false")


def test_check_connect(world, server):
    onced = world.prepare({"write": {"class": "read"}}, providers={"files": server.section()})
    plain = onced.cli("check", onced.file)
    assert "fine, 1 tool," in plain.stdout and "readOnlyHint" not in plain.stdout
    asked = onced.cli("check", "--connect", onced.file)
    assert "fine, 3 tools," in asked.stdout
    assert re.search(r"warning: /tools/write/class: class read, but server files does not say readOnlyHint", asked.stdout)
    as_json = json.loads(onced.cli("check", "--connect", "--json", onced.file).stdout)
    assert as_json["tools"] == 3 and as_json["policy_version"] in asked.stdout
    server.list.unlink()
    silent = onced.cli("check", "--connect", onced.file, check=False)
    assert silent.returncode == 4 and "MCP server files: " in silent.stderr


def test_eval_and_chaos_start_no_server(world, tmp_path):
    """They know the tools that the file names, and say so."""
    nothing = {"files": {"mcp": {"command": ["/bin/sh", "-c", f"touch {tmp_path}/started"], "import": IMPORT}}}
    onced = world.prepare({"write": {"key": "write:{path}"}}, providers=nothing)
    calls = tmp_path / "calls.yaml"
    call = {"tool": "write", "arguments": {"path": "a", "text": "x"}}
    other = {"tool": "write", "arguments": {"path": "b", "text": "x"}}
    calls.write_text(json.dumps({"onced_eval": 1, "registry": str(onced.file), "groups": [
        {"name": "retry", "same": [call, call]}, {"name": "two files", "distinct": [call, other]},
        {"name": "another text", "conflict": [call, {"tool": "write", "arguments": {"path": "a", "text": "y"}}]}]}))
    told = onced.cli("eval", calls, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    chaos = onced.cli("chaos", onced.file, "--operations", 100)
    assert "no MCP server is started" in chaos.stderr and re.search(r"^write +\d+", chaos.stdout, re.M)
    assert not (tmp_path / "started").exists()


# ---- the daemon ----


def test_tools_are_there_when_the_doors_open(world, server):
    onced = world.onced({"write": {"key": "write:{path}"}}, providers={"files": server.section()})
    assert names(onced) == {"read": "read", "write": "external_weak", "change": "internal_write"}
    assert onced.process.ready["tools"] == 3
    assert 'tool "broken" is left out' in onced.process.text()
    assert {name for name in Mcp(onced.port).tools() if not name.startswith("onced_")} == set(names(onced))
    assert Mcp(onced.port).call("write", {"path": "a", "text": "one"}).state == "completed_success"
    assert onced.call("read", {"path": "a"})["result"]["content"][0]["text"] == "one\n"


def test_a_changed_list_is_taken_over(world, server):
    onced = world.onced({}, providers={"files": server.section()})
    before = onced.client.get("/v1/tools")["policy_version"]
    onced.call("change", {"tools": [READ, {**WRITE, "description": "Write, and mail it to somebody."}, CHANGE]}, key="1")
    wait_until(lambda: onced.client.get("/v1/tools")["policy_version"] != before, what="the new policy")
    assert onced.client.get("/v1/tools/write")["description"] == "Write, and mail it to somebody."
    # a tool that the server withdraws is no tool any more, one that it adds is one
    onced.call("change", {"tools": [READ, CHANGE, {**CHANGE, "name": "added"}]}, key="2")
    wait_until(lambda: "added" in names(onced), what="the new tool")
    assert names(onced) == {"read": "read", "change": "internal_write", "added": "external_weak"}
    assert onced.call("write", {"path": "a", "text": "x"}).status == 404
    # and a list of nonsense takes nothing down
    onced.call("change", {"tools": [CHANGE, BROKEN, {"name": "onced_status"}, {"name": "a/b"}]}, key="3")
    wait_until(lambda: names(onced) == {"change": "internal_write"}, what="the end of the others")
    assert onced.call("change", {"tools": TOOLS}, key="4").state == "completed_success"
    wait_until(lambda: "write" in names(onced), what="the former list")


def test_what_an_editor_has_open_is_not_taken_over(world, server):
    """Only SIGHUP reads the file; a server's new list is merged into what was read."""
    onced = world.onced({}, providers={"files": server.section()})
    onced.file.write_text("onced: 1\ntools: {half a")
    onced.call("change", {"tools": [READ, CHANGE, {**CHANGE, "name": "added"}]}, key="1")
    wait_until(lambda: "added" in names(onced), what="the new tool")
    onced.process.signal(signal.SIGHUP)
    wait_until(lambda: "the registry in force stays" in onced.process.text(), what="the refusal")
    assert set(names(onced)) == {"read", "change", "added"}


def test_reload_starts_and_stops_servers(world, server, tmp_path):
    onced = world.onced({}, providers={"files": server.section()})
    folder = tmp_path / "second"
    folder.mkdir()
    second = Server(folder)
    both = {"files": server.section(), "more": second.section(**{"import": {"prefix": "more_", "allow": ["write"]}})}
    onced.reload(world.file({}, providers=both))
    wait_until(lambda: "more_write" in names(onced), what="the second server's tool")
    assert onced.call("more_write", {"path": "b", "text": "x"}).state == "completed_success"
    assert (folder / "b").read_text() == "x\n"
    onced.reload(world.file({}, providers={"files": server.section()}))
    assert "more_write" not in names(onced)
    assert onced.call("write", {"path": "c", "text": "y"}).state == "completed_success"


def test_a_server_that_does_not_start(world, server):
    """The doors open when it has failed, with what the file names; its tools come when it does."""
    server.list.rename(server.folder / "later.json")
    onced = world.onced({"read": {"class": "read"}}, providers={"files": server.section()})
    assert names(onced) == {"read": "read"}
    (server.folder / "later.json").rename(server.list)
    wait_until(lambda: "write" in names(onced), seconds=20, what="the server's tools")


def test_tools_are_known_while_their_server_is_down(world, server):
    """What a server listed is kept beside the ledger: a restart with a dead server knows its tools, and what was done."""
    onced = world.onced({}, providers={"files": server.section()})
    done = onced.call("write", {"path": "a", "text": "one"}, key="1")
    assert done.state == "completed_success"
    onced.stop()
    kept = onced.folder / ("onced.yaml.tools" if ledgers.POSTGRES else "onced.db.tools")
    assert kept.stat().st_mode & 0o777 == 0o600
    server.list.rename(server.folder / "later.json")
    onced.start()
    assert names(onced) == {"read": "read", "write": "external_weak", "change": "internal_write"}
    again = onced.call("write", {"path": "a", "text": "one"}, key="1")
    assert again.id == done.id and again["replayed"] is True
    assert (server.folder / "a").read_text() == "one\n"
    # another section is another server: what the former one listed is not taken for its
    onced.reload(world.file({}, providers={"files": server.section(command=[*server.command, "other"])}))
    assert names(onced) == {}
    # and a kept file that is none is none
    onced.reload(world.file({}, providers={"files": server.section()}))
    onced.stop()
    for rubbish in ("", "[", "[]", '{"files": 1}', '{"files": {"section": 1, "tools": 3}}'):
        kept.write_text(rubbish)
        onced.start()
        assert names(onced) == {}
        onced.stop()


def test_what_was_left_open_is_judged_at_once(world, server):
    """The restart knows the imported tool before its server answers: no minute of tool_missing."""
    server.list.write_text(json.dumps([*TOOLS, {"name": "hang", "inputSchema": {"type": "object"}}]))
    onced = world.onced({}, providers={"files": server.section()})
    operation = onced.submit("hang", {})
    wait_until(lambda: (server.folder / "hanging").exists(), what="the call")
    onced.kill()
    server.list.unlink()
    onced.start()
    left = onced.settled(operation)
    assert left.state == "unknown_outcome" and left["reason"] == "needs_operator", left
    assert "tool_missing" not in {event["reason"] for event in onced.events(operation)}


def test_principals_see_their_tools(world, server):
    file = world.file({}, providers={"files": server.section()})
    onced = world.prepare({})
    onced.configure({**file, "principals": {"reader": {"tools": ["re*"]}}})
    onced.start()
    assert names(onced, "reader") == {"read": "read"}
    refused = onced.call("write", {"path": "a", "text": "x"}, principal="reader")
    assert refused.status == 403 and refused["type"] == "urn:onced:problem:forbidden"
    client = Mcp(onced.port, headers={"Onced-Principal": "reader"})
    assert [name for name in client.tools() if not name.startswith("onced_")] == ["read"]
    assert client.call("write", {"path": "a", "text": "x"}).error["code"] == -32602
    assert not (server.folder / "a").exists()
    assert "write" in names(onced, "writer")


# ---- the example ----


def test_the_example_with_the_real_server(world, tmp_path, monkeypatch):
    """examples/mcp-filesystem.yaml as it stands; npx would fetch the package that is installed for the tests."""
    root, programs = tmp_path / "root", tmp_path / "programs"
    root.mkdir()
    programs.mkdir()
    npx = programs / "npx"
    argv = " ".join(f"'{word}'" for word in mcp.program("@modelcontextprotocol/server-filesystem", "dist/index.js"))
    npx.write_text(f'#!/bin/sh\n[ "$1 $2" = "-y @modelcontextprotocol/server-filesystem" ] || exit 9\nshift 2\nexec {argv} "$@"\n')
    npx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FILES_ROOT", str(root))
    onced = world.prepare({})
    onced.file.write_text((binary.ROOT / "examples/mcp-filesystem.yaml").read_text())
    assert "fine, 13 tools" in onced.cli("check", "--connect", onced.file).stdout
    onced.start()
    report = {"path": str(root / "report.txt"), "content": "all is well"}
    first = onced.call("write_file", report)
    assert first.state == "completed_success" and onced.call("write_file", report, principal="another").id == first.id
    assert onced.call("write_file", {**report, "content": "nothing is well"}).status == 422
    moved = {"source": str(root / "report.txt"), "destination": str(root / "old.txt")}
    assert onced.call("move_file", moved).state == "completed_success"
    assert onced.call("move_file", moved)["replayed"] is True
    assert onced.call("create_directory", {"path": str(root / "folder")}).state == "completed_success"
    assert "all is well" in Mcp(onced.port).call("read_text_file", {"path": str(root / "old.txt")}).text
    assert sorted(path.name for path in root.iterdir()) == ["folder", "old.txt"]
    assert onced.call("edit_file", {"path": str(root / "old.txt"), "edits": []}).status == 404
