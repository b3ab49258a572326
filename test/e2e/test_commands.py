"""Commands as tools: effects are lines of a file, counted there, while onced and the commands are killed (-9)."""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onced_e2e.client import LOST, Client
from onced_e2e.wait import wait_until

ROUNDS = int(os.environ.get("ONCED_ROUNDS", "8"))
SEED = int(os.environ.get("ONCED_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)

# ENTRY BEFORE AFTER: waits, writes its line, waits, says which line
ACT = """#!/bin/sh
sleep "$2"
echo "$1 $ONCED_IDEMPOTENCY_KEY" >> "$EFFECTS"
sleep "$3"
echo "{\\"id\\": \\"$1\\"}"
"""
LOOK = """#!/bin/sh
n=$(grep -c "^$1 " "$EFFECTS")
[ "$n" = 0 ] && exit 1
echo "{\\"id\\": \\"$1\\", \\"count\\": $n}"
"""
TEXT = {"type": "string"}


class Commands:
    """Scripts in a folder, and the file that they write to."""

    def __init__(self, folder):
        self.folder = folder
        self.effects = folder / "effects"
        self.effects.touch()
        self.script("act", ACT)
        self.script("look", LOOK)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def provider(self, **more):
        command = {"cwd": str(self.folder), "kill_after": "100ms", "env": {"EFFECTS": str(self.effects)}}
        command["env"].update(more.pop("env", {}))
        return {"command": command, "timeout": "1s", "breaker": {"failures": 0}, **more}

    def lines(self):
        return Counter(line.split()[0] for line in self.effects.read_text().splitlines())


def tool(argv, look=True, **more):
    run = {"argv": argv, "output": "json", **more.pop("run", {})}
    section = {
        "class": "external_weak", "provider": "scripts", "identity": "caller", "run": run,
        "settle": "100ms", "absent_times": 2, "lookup_interval": "50ms", "lookup_interval_max": "300ms", "give_up": "60s",
        "watch": [], "retry": {"attempts": 20, "total": "1h", "backoff": "50ms", "backoff_max": "200ms"}, "wait": "5s", **more,
    }
    if look:
        section["lookup"] = {"run": {"argv": ["./look", "{entry}"], "output": "json"}, "exit": {"found": [0], "absent": [1]},
                             "external_id": "/id"}
    return section


ENTRY = {"type": "object", "required": ["entry"], "properties": {"entry": TEXT}, "additionalProperties": True}


def act(before="0", after="0", **more):
    return tool(["./act", "{entry}", before, after], input_schema=ENTRY, **{"run": {"external_id": "/id"}, **more})


@pytest.fixture
def commands(tmp_path):
    folder = tmp_path / "commands"
    folder.mkdir()
    return Commands(folder)


def running(operation):
    """Processes that work on it, whoever has started them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if operation.encode() in (folder / "environ").read_bytes():  # that of what has ended is empty
                found.append(int(folder.name))
    return found


# ---- the contract ----


def test_exit_codes_are_the_contract(world, commands):
    commands.script("end", '#!/bin/sh\necho "said $SECRET" >&2\necho "{\\"id\\": 7}"\n[ "$1" = kill ] && kill -9 $$\nexit "$1"\n')
    exits = {"success": [0, 3], "noop": [10], "no_effect": ["64-66", 78], "not_processed": [75]}
    os.environ["COMMAND_SECRET"] = "geheimnis-42"
    tools = {"end": tool(["./end", "{code}"], look=False, run={"exit": exits, "external_id": "/id"}, retry={"attempts": 1})}
    onced = world.onced(tools, providers={"scripts": commands.provider(env={"SECRET": "${env:COMMAND_SECRET}"})})
    expected = {"0": ("completed_success", None), "3": ("completed_success", None), "10": ("completed_noop", None),
                "64": ("failed_permanent", "provider_refused"), "66": ("failed_permanent", "provider_refused"),
                "78": ("failed_permanent", "provider_refused"), "75": ("failed_permanent", "attempts_exhausted"),
                "1": ("unknown_outcome", "needs_operator"), "67": ("unknown_outcome", "needs_operator"),
                "127": ("unknown_outcome", "needs_operator"), "kill": ("unknown_outcome", "needs_operator")}
    for code, (state, reason) in expected.items():
        answer = onced.call("end", {"code": code}, key=f"end-{code}", principal=f"p{code}")
        assert (answer.state, answer.get("reason")) == (state, reason), (code, answer)
        if state == "completed_success":
            assert answer["external_id"] == "7" and answer["result"] == {"id": 7}, answer
        elif state != "completed_noop":
            error = onced.operation(answer.id)["error"]
            assert error["provider"]["stderr"] == "said ***", error
        rows = onced.attempt_rows(answer.id)
        assert len(rows) == 1, rows
    assert "geheimnis-42" not in onced.process.text()
    plan = onced.call("end", {"code": "0"}, key="plan", dry_run=True)
    assert plan["request"]["argv"] == ["./end", "0"] and "SECRET=***" in plan["request"]["env"], plan
    assert any(line.startswith("ONCED_IDEMPOTENCY_KEY=") for line in plan["request"]["env"])


def test_no_shell_no_options_no_other_environment(world, commands):
    commands.script("show", '#!/bin/sh\nprintf "%s\\n" "$@" > args\ncat > input\nenv > env\n')
    tools = {"show": tool(["./show", "--to={to}", "{names}", "{maybe?}", "--", "{last}"], look=False,
                          run={"output": "none", "stdin": {"to": "{to}", "op": "{$operation}"}, "env": {"TO": "{to}"}})}
    onced = world.onced(tools, providers={"scripts": commands.provider()})
    hostile = "$(touch pwned); `touch pwned` > x \"'"
    answer = onced.call("show", {"to": hostile, "names": ["a b", "c"], "last": "-rf"}, key="one")
    assert answer.state == "completed_success", answer
    assert (commands.folder / "args").read_text().splitlines() == [f"--to={hostile}", "a b", "c", "--", "-rf"]
    assert not (commands.folder / "pwned").exists()
    assert f'"op":"{answer.id}"' in (commands.folder / "input").read_text()
    seen = dict(line.split("=", 1) for line in (commands.folder / "env").read_text().splitlines())
    assert seen["TO"] == hostile and seen["ONCED_OPERATION"] == answer.id and seen["ONCED_IDEMPOTENCY_KEY"]
    assert set(seen) <= {"PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "EFFECTS", "TO", "ONCED_OPERATION", "ONCED_TENANT",
                         "ONCED_IDEMPOTENCY_KEY", "TRACEPARENT"}, seen
    refused = onced.call("show", {"to": "x", "names": ["--force"], "last": "y"}, key="two")
    assert refused.status in (400, 422) and "option" in refused.raw.decode(), refused
    nul = onced.call("show", {"to": "a\0b", "names": [], "last": "y"}, key="three")
    assert nul.status in (400, 422) and "NUL" in nul.raw.decode(), nul


def test_what_could_not_be_started_was_not_sent(world, commands):
    tools = {"later": tool(["./later"], look=False, run={"output": "text"})}
    onced = world.onced(tools, providers={"scripts": commands.provider()})
    operation = onced.submit("later", {}, key="one")
    wait_until(lambda: len(onced.attempt_rows(operation)) >= 2, what="a second try")
    waiting = onced.operation(operation)
    assert waiting.state in ("failed_retryable", "dispatched") and waiting["attempts"] <= 1, waiting
    assert {row["outcome"] for row in onced.attempt_rows(operation)} <= {"not_sent", "open"}
    commands.script("later", '#!/bin/sh\necho "late" >> "$EFFECTS"\necho done\n')
    assert onced.settled(operation).state == "completed_success"
    assert onced.operation(operation)["result"] == {"text": "done\n"}
    assert commands.lines() == {"late": 1}


def test_the_whole_group_is_killed_at_the_time_out(world, commands):
    """The command's own child would write long after the time-out: it is gone with it, and the look-up may say absent."""
    commands.script("slow", '#!/bin/sh\ntrap "" TERM\n(touch begun; sleep 60; echo "$1 late" >> "$EFFECTS") &\nwait\n')
    tools = {"slow": tool(["./slow", "{entry}"], input_schema=ENTRY, run={"timeout": "2s"})}
    onced = world.onced(tools, providers={"scripts": commands.provider(timeout="5s")})
    operation = onced.submit("slow", {"entry": "a"}, key="one")
    wait_until((commands.folder / "begun").exists, what="the command's child")
    answer = onced.settled(operation)
    assert running(operation) == []
    assert (answer.state, answer["reason"]) == ("failed_permanent", "absent"), answer
    assert onced.attempt_rows(answer.id)[0]["outcome"] == "timeout"
    assert commands.lines() == {}


def test_output_beyond_its_limit_is_dropped(world, commands):
    commands.script("flood", '#!/bin/sh\nhead -c 300000 /dev/zero | tr "\\0" x\necho "flood" >> "$EFFECTS"\n')
    tools = {"text": tool(["./flood"], look=False, run={"output": "text", "output_bytes_max": "64KB"}, result_bytes_max="1MB"),
             "json": tool(["./flood"], look=False)}
    onced = world.onced(tools, providers={"scripts": commands.provider()})
    cut = onced.call("text", {}, key="one")
    assert cut.state == "completed_success" and cut["result"]["cut"] is True and len(cut["result"]["text"]) == 65536
    assert onced.call("json", {}, key="one").state == "unknown_outcome"
    assert commands.lines() == {"flood": 2}


# ---- many callers ----


@pytest.mark.on_both_ledgers
def test_64_callers_of_one_key_and_of_64(world, commands):
    onced = world.onced({"act": act("0.05")}, providers={"scripts": commands.provider(timeout="10s")})

    def one(number):
        return onced.call("act", {"entry": "one"}, key="one", timeout=30)

    def each(number):
        return onced.call("act", {"entry": f"n{number}"}, key=f"n{number}", principal=f"p{number}", timeout=30, wait_ms=20000)

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(one, range(64)))
        others = list(pool.map(each, range(64)))
    assert {answer.state for answer in answers + others} == {"completed_success"}
    assert len({answer.id for answer in answers}) == 1 and sum(not answer.replayed for answer in answers) == 1
    assert commands.lines() == {"one": 1, **{f"n{number}": 1 for number in range(64)}}


# ---- kill -9 ----


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


def kill_commands(onced):
    for pid in children(onced.process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def settle(port, entry, end):
    """Calls with the same key until it is done. What a look-up proves absent is closed; then an operator has it tried again."""
    while time.monotonic() < end:
        try:
            client = Client(port(), timeout=8)
            answer = client.post("/v1/calls", {"tool": "act", "arguments": {"entry": entry}, "idempotency_key": entry, "wait_ms": 3000},
                                 headers={"Onced-Principal": entry})
            if answer.state == "completed_success":
                return answer
            if answer.state == "failed_permanent":
                assert answer["reason"] == "absent", answer
                client.post(f"/v1/operations/{answer.id}/retry", {"note": "proven absent"})
        except LOST:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{entry} did not settle")


@pytest.mark.on_both_ledgers
def test_effects_under_kill_9_of_onced_and_of_the_commands(world, commands):
    print(f"\nseed {SEED}")
    rng = random.Random(SEED)
    onced = world.onced({"act": act("0.03", "0.03")}, providers={"scripts": commands.provider(timeout="500ms")})
    intents, end = 4 * ROUNDS, time.monotonic() + 60
    errors, done = [], []

    def work(numbers):
        try:
            for number in numbers:
                done.append(settle(lambda: onced.port, f"n{number}", end).id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(range(start, intents, 8),)) for start in range(8)]
    for thread in threads:
        thread.start()
    kills = {"onced": 0, "command": 0}
    while any(thread.is_alive() for thread in threads) and sum(kills.values()) < ROUNDS:
        time.sleep(rng.uniform(0.02, 0.25))
        if rng.random() < 0.5:
            kill_commands(onced)
            kills["command"] += 1
        else:
            onced.restart(kill=True)
            kills["onced"] += 1
    for thread in threads:
        thread.join(70)
    assert not errors, errors
    counts = commands.lines()
    print(f"{intents} commands, kills {kills}: {sum(count == 1 for count in counts.values())} once, "
          f"{sum(count > 1 for count in counts.values())} more often, {intents - len(counts)} never")
    assert counts == {f"n{number}": 1 for number in range(intents)}
    assert len(set(done)) == intents
