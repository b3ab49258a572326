"""`onced simulate`: what it tells, the same for the same seeds however many workers there are, and what it does when a run ends
its process."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from onced_e2e import binary

HOLDS, VIOLATED, USAGE = 0, 1, 2


def run(*words: object, status: int = HOLDS, **environment: str) -> str:
    done = subprocess.run([binary.onced(), "simulate", *map(str, words)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_same_seeds_same_digest_with_any_number_of_workers():
    one, two = (json.loads(run("--seed", 11, "--seeds", 6, "--intents", 40, "--jobs", jobs, "--json")) for jobs in (1, 2))
    assert one["seeds"] == two["seeds"] == 6
    assert one["operations"] > 100
    for times in ("wall_ms", "cpu_ms", "operations_per_core_second"):
        one.pop(times), two.pop(times)
    assert one == two


def test_operations_are_enough_and_faults_are_told_by_kind():
    told = json.loads(run("--operations", 300, "--intents", 40, "--faults", "crash,net_lost", "--fault-percent", 20, "--json"))
    assert told["operations"] >= 300
    assert told["violations"] == 0
    happened = {name for name, count in told["faults_by_kind"].items() if count}
    assert happened == {"crash", "net_lost"}
    assert told["faults"] == sum(told["faults_by_kind"].values())
    text = run("--seeds", 2, "--intents", 40)
    assert re.search(r"^seeds +2 \(1 to 2\), digest [0-9a-f]{16}$", text, re.MULTILINE)
    assert re.search(r"^violations +0$", text, re.MULTILINE)


def test_both_ledgers_give_the_same_digest_and_leave_nothing_behind(tmp_path: pathlib.Path):
    options = ("--seed", 5, "--seeds", 4, "--intents", 40, "--json")
    memory = json.loads(run(*options))
    sqlite = json.loads(run(*options, "--ledger", "sqlite", TMPDIR=str(tmp_path)))
    assert memory["digest"] == sqlite["digest"]
    assert not list(tmp_path.iterdir())


def test_trace_tells_one_run_and_its_digest():
    digest = json.loads(run("--seed", 3, "--seeds", 1, "--intents", 10, "--json"))["digest"]
    text = run("--seed", 3, "--intents", 10, "--trace")
    assert " admits op_" in text
    assert "faults are over" in text
    assert re.search(r"^\d+ operations, \d+ effects, \d+ faults, digest [0-9a-f]{16}$", text, re.MULTILINE)
    assert len(digest) == 16


@pytest.mark.parametrize("words, says", [
    (["--faults", "weather"], 'there is no fault "weather"'),
    (["--gateways", "9"], "--gateways: 9 is not a number from 1 to 8"),
    (["--seeds", "-1"], "--seeds: -1 is not a number"),
    (["--ledger", "postgres"], "postgres is neither memory nor sqlite"),
])
def test_wrong_words_are_told(words: list[str], says: str):
    assert says in run(*words, status=USAGE)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_run_that_ends_its_process_is_told_with_its_seed():
    process = subprocess.Popen([binary.onced(), "simulate", "--seed", "1000", "--operations", "100000000", "--jobs", "1"],
                               stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 20
        while not (workers := children_of(process.pid)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)
        os.kill(workers[0], signal.SIGABRT)
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == VIOLATED
    found = re.search(r"^VIOLATION in seed (\d+): the run ended by signal 6 ", text, re.MULTILINE)
    assert found and int(found[1]) >= 1000
    assert f"repeat with: onced simulate --seed {found[1]} --seeds 1 --intents 200 --faults all --trace" in text
