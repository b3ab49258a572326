"""Guard mode: the application performs the effect, onced says who does, and when. Effects are lines of a file that the
application writes, counted there, while onced and the application's processes are killed (-9)."""

import os
import random
import signal
import subprocess
import threading
import time
import uuid

import pytest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from onced_e2e import binary
from onced_e2e.client import LOST, Client
from onced_e2e.process import environment
from onced_e2e.wait import wait_until

ROUNDS = int(os.environ.get("ONCED_ROUNDS", "8"))
SEED = int(os.environ.get("ONCED_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


def tools(lease="30s", **more):
    return {"pay": {"class": "external_weak", "identity": "caller", "guard_mode": {"lease": lease}, "wait": "0", **more}}


def begin(client, key, arguments=None, tool="pay", **more):
    return client.post(f"/v1/guard/{tool}/begin", {"arguments": arguments or {"n": 1}, "idempotency_key": key, **more})


def say(client, word, answer, tool="pay", **more):
    return client.post(f"/v1/guard/{tool}/{word}", {"lease": answer["lease"]["token"], **more})


def complete(client, answer, **more):
    return say(client, "complete", answer, **more)


def ends_at(answer):
    """Its lease, in seconds since 1970."""
    return datetime.fromisoformat(answer["lease"]["expires_at"]).timestamp()


def test_one_executes_the_others_wait_and_get_the_result(world):
    onced = world.onced(tools())
    client = onced.client
    first = begin(client, "k")
    assert first.status == 201 and first["decision"] == "execute" and first["lease"]["lease_ms"] == 30000, first
    assert first["operation"]["status"] == "dispatched" and first["lease"]["idempotency_key"]
    second = begin(client, "k")
    assert second.status == 202 and second["decision"] == "wait" and second["lease"] is None, second
    renewed = say(client, "heartbeat", first)
    assert renewed["decision"] == "execute" and renewed["lease"]["expires_at"] >= first["lease"]["expires_at"], renewed
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(begin, Client(onced.port), "k", wait_ms=10000)
        time.sleep(0.2)
        done = complete(client, first, result={"paid": True}, external_id="x-1")
        assert done.status == 200 and done["operation"]["status"] == "completed_success", done
        told = waiting.result()
    assert told["decision"] == "replay" and told["operation"]["result"] == {"paid": True}, told
    again = begin(client, "k")
    assert again.status == 200 and again["decision"] == "replay" and again["operation"]["external_id"] == "x-1", again
    assert complete(client, first, result={"paid": False})["operation"]["result"] == {"paid": True}
    conflict = begin(client, "k", {"n": 2})
    assert conflict.status == 422 and conflict.problem == "key_reused", conflict
    rows = onced.attempt_rows(first["operation"]["operation_id"])
    assert [row["outcome"] for row in rows] == ["success"], rows


def test_failures_say_whether_the_effect_is_proven_absent(world):
    onced = world.onced(tools(retry={"attempts": 2}))
    client = onced.client
    gone = begin(client, "none")
    assert say(client, "fail", gone, effect="none", error={"message": "refused"})["operation"]["status"] == "failed_permanent"
    assert begin(client, "none")["decision"] == "replay"
    open_ = begin(client, "unknown")
    assert say(client, "fail", open_, effect="unknown", error={"message": "lost"})["decision"] == "unknown"
    stuck = begin(client, "unknown")
    assert stuck.status == 202 and stuck["decision"] == "unknown" and stuck["operation"]["reason"] == "needs_operator", stuck
    other = Client(onced.port, {"Onced-Principal": "p"})
    retry = begin(other, "again")
    assert say(other, "fail", retry, effect="none", retry=True)["operation"]["status"] == "failed_retryable"
    second = begin(other, "again")
    assert second["decision"] == "execute" and second["operation"]["attempts"] == 2, second
    assert second["lease"]["token"] != retry["lease"]["token"]
    assert say(other, "fail", second, effect="none", retry=True)["operation"]["reason"] == "attempts_exhausted"
    # what it must say, and what it must not
    third = begin(other, "words")
    for body in ({}, {"effect": "maybe"}, {"effect": "unknown", "retry": True}, {"effect": "none", "error": {}}):
        assert say(other, "fail", third, **body).status == 400, body
    assert other.post("/v1/guard/pay/complete", {"lease": third["lease"]["token"][:-1] + "x"}).status == 404
    assert begin(client, "x", not_before="2030-01-01T00:00:00Z").status == 400
    assert onced.call("pay", {"n": 1}, key="y").problem == "not_possible"


def test_silence_is_unknown_and_late_words_still_count(world):
    """The first one's lease is longer, so that its heartbeat comes in time on a busy machine, too."""
    onced = world.onced({**tools(lease="1s"), "long": tools(lease="3s")["pay"]})
    clients = [Client(onced.port, {"Onced-Principal": f"p{i}"}) for i in range(3)]
    held = [begin(client, f"k{i}", tool="pay" if i else "long") for i, client in enumerate(clients)]
    time.sleep(0.6)
    renewed = say(clients[0], "heartbeat", held[0], tool="long")
    assert renewed["decision"] == "execute" and ends_at(renewed) >= ends_at(held[0]) + 0.5, (held[0], renewed)
    assert begin(clients[0], "k0", tool="long")["decision"] == "wait"
    wait_until(lambda: begin(clients[1], "k1")["decision"] == "unknown", what="the lease's end")
    wait_until(lambda: begin(clients[0], "k0", tool="long")["decision"] == "unknown", what="the lease's end")
    assert time.time() >= ends_at(renewed), renewed
    assert say(clients[1], "heartbeat", held[1]).problem == "not_possible"
    assert begin(clients[1], "k1")["operation"]["reason"] in ("lease_lost", "needs_operator")
    assert complete(clients[0], held[0], tool="long", result={"late": True})["operation"]["status"] == "completed_success"
    assert say(clients[1], "fail", held[1], effect="none", retry=True)["operation"]["status"] == "failed_retryable"
    assert begin(clients[1], "k1")["decision"] == "execute"
    assert say(clients[2], "fail", held[2], effect="none")["operation"]["status"] == "failed_permanent"
    assert not onced.incidents()


def test_approval_comes_first(world):
    onced = world.onced(tools(approval="required"))
    asked = begin(onced.client, "k")
    assert asked.status == 202 and asked["decision"] == "approval_required", asked
    operation = asked["operation"]["operation_id"]
    boss = Client(onced.port, {"Onced-Principal": "boss"})
    assert boss.post(f"/v1/operations/{operation}/approve", {}).status in (200, 202)
    got = wait_until(lambda: (lambda answer: answer if answer["decision"] == "execute" else None)(begin(onced.client, "k")),
                     what="the approved operation")
    assert got["operation"]["operation_id"] == operation
    assert complete(onced.client, got)["operation"]["status"] == "completed_success"
    denied = begin(onced.client, "k2")["operation"]["operation_id"]
    boss.post(f"/v1/operations/{denied}/deny", {"note": "no"})
    assert begin(onced.client, "k2")["decision"] == "denied"


# ---- many, and kill -9 ----


class Application:
    """Performs payments: a line per effect."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        path.touch()

    def perform(self, entry):
        with self.lock, open(self.path, "a") as file:
            file.write(f"{entry}\n")

    def lines(self):
        return Counter(self.path.read_text().split())


@pytest.mark.on_both_ledgers
def test_64_callers_of_one_key_perform_it_once(world, tmp_path):
    onced = world.onced(tools())
    application = Application(tmp_path / "effects")

    def run(number):
        client = Client(onced.port)
        answer = begin(client, "one", wait_ms=15000)
        if answer["decision"] == "execute":
            application.perform("one")
            answer = complete(client, answer, result={"by": number})
        return answer

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(run, range(64)))
    assert application.lines() == {"one": 1}
    assert {answer["operation"]["status"] for answer in answers} == {"completed_success"}
    assert len({answer["operation"]["result"]["by"] for answer in answers}) == 1


def test_64_callers_race_for_what_may_be_tried_again(world):
    onced = world.onced(tools(retry={"attempts": 50}))
    for _ in range(3):
        with ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda _: begin(Client(onced.port), "k"), range(64)))
        elected = [answer for answer in answers if answer["decision"] == "execute"]
        assert len(elected) == 1 and all(answer["decision"] == "wait" for answer in answers if answer is not elected[0]), answers
        say(onced.client, "fail", elected[0], effect="none", retry=True)


@pytest.mark.on_both_ledgers
def test_effects_under_kill_9_of_onced(world, tmp_path):
    """The application keeps its lease over restarts of onced, and says its word until it is heard."""
    print(f"\nseed {SEED}")
    rng = random.Random(SEED)
    onced = world.onced(tools(lease="20s"))
    application = Application(tmp_path / "effects")
    intents, end, errors = 6 * ROUNDS, time.monotonic() + 60, []

    def until_heard(path, body):
        while time.monotonic() < end:
            try:
                answer = Client(onced.port, timeout=5).post(path, body)
                if answer.status != 503:
                    return answer
            except LOST:
                pass
            time.sleep(0.02)
        raise AssertionError(f"{path} was not heard")

    def work(numbers):
        try:
            for number in numbers:
                entry = f"n{number}"
                body = {"arguments": {"n": number}, "idempotency_key": entry, "executor": uuid.uuid4().hex}
                answer = until_heard("/v1/guard/pay/begin", body)
                assert answer["decision"] == "execute", answer
                application.perform(entry)
                done = until_heard("/v1/guard/pay/complete", {"lease": answer["lease"]["token"], "result": {"n": number}})
                assert done["operation"]["status"] == "completed_success", done
                again = until_heard("/v1/guard/pay/begin", {**body, "executor": "another"})
                assert again["decision"] == "replay" and again["operation"]["result"] == {"n": number}, again
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(range(start, intents, 8),)) for start in range(8)]
    for thread in threads:
        thread.start()
    kills = 0
    while any(thread.is_alive() for thread in threads) and kills < ROUNDS:
        time.sleep(rng.uniform(0.01, 0.15))
        onced.restart(kill=True)
        kills += 1
    for thread in threads:
        thread.join(70)
    assert not errors, errors
    counts = application.lines()
    print(f"{intents} effects, {kills} kills of onced: {sum(count == 1 for count in counts.values())} once")
    assert counts == {f"n{number}": 1 for number in range(intents)}


# ---- onced guard -- command ----


def guard(onced, key, *command, **options):
    """The finished process of `onced guard`."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return subprocess.run([binary.onced(), "guard", "--server", f"http://127.0.0.1:{onced.port}", "--tool", "pay", "--key", key,
                           "--principal", key, *words, "--", *map(str, command)], capture_output=True, text=True, timeout=60, env=environment())


def test_a_command_runs_once_and_is_replayed(world, tmp_path):
    onced = world.onced(tools())
    effects = tmp_path / "effects"
    script = f'echo "$1" >> {effects}; echo "out $1 $ONCED_IDEMPOTENCY_KEY"; echo "err $1" >&2; exit $2'

    def run(key, code, **options):
        return guard(onced, key, "sh", "-c", script, "sh", key, code, **options)

    first, again = run("a", 0), run("a", 0)
    assert first.returncode == again.returncode == 0 and first.stdout == again.stdout and first.stdout.startswith("out a op_"), again
    assert first.stderr == "err a\n" and again.stderr.startswith("err a\n") and "nothing was run now" in again.stderr, again
    lost, still = run("b", 3), run("b", 3)
    assert lost.returncode == still.returncode == 3 and still.stdout == lost.stdout and "may have happened" in still.stderr, still
    proven, twice = run("c", 64, no_effect="64-66"), run("c", 64, no_effect="64-66")
    assert proven.returncode == twice.returncode == 64 and "nothing was run now" in twice.stderr, twice
    assert [run("d", 75, try_again="75").returncode, run("d", 0).returncode, run("d", 0).returncode] == [75, 0, 0]
    absent = guard(onced, "e", tmp_path / "no-such-program")
    assert absent.returncode == 127 and "cannot be started" in absent.stderr, absent
    assert run("e", 0).returncode == 0
    killed = guard(onced, "f", "sh", "-c", f"echo f >> {effects}; kill -9 $$")
    assert killed.returncode == 137 and guard(onced, "f", "true").returncode == 137
    assert Counter(effects.read_text().split()) == {"a": 1, "b": 1, "c": 1, "d": 2, "e": 1, "f": 1}
    assert guard(onced, "g", "true", arg="n=1").returncode == 0
    assert "reused" in guard(onced, "g", "true", arg="n=2").stderr.lower() or guard(onced, "g", "true", arg="n=2").returncode == 1


def test_64_processes_run_a_command_once(world, tmp_path):
    onced = world.onced(tools(wait="20s"))
    effects = tmp_path / "effects"
    with ThreadPoolExecutor(64) as pool:
        done = list(pool.map(lambda _: guard(onced, "k", "sh", "-c", f"sleep 0.2; echo once >> {effects}; echo done"), range(64)))
    assert effects.read_text() == "once\n"
    assert {(each.returncode, each.stdout) for each in done} == {(0, "done\n")}, [each for each in done if each.returncode]


def test_kill_9_of_onced_guard_and_of_onced(world, tmp_path):
    onced = world.onced(tools(lease="2s"))
    effects = tmp_path / "effects"
    effects.touch()

    def started(key, seconds):
        command = [binary.onced(), "guard", "--server", f"http://127.0.0.1:{onced.port}", "--tool", "pay", "--key", key,
                   "--principal", key, "--",
                   "sh", "-c", f"echo {key} >> {effects}; sleep {seconds}; echo done"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        wait_until(lambda: key in effects.read_text(), what="the command")
        return process

    dead = started("dead", 30)
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert guard(onced, "dead", "true").returncode == 3  # its lease lasts
    alive = started("alive", 1)
    onced.restart(kill=True)
    out, err = alive.communicate(timeout=30)
    assert alive.returncode == 0 and out == "done\n", (out, err)
    assert guard(onced, "alive", "false").stdout == "done\n"
    silent = wait_until(lambda: (lambda done: done if "may have happened" in done.stderr else None)(guard(onced, "dead", "true")),
                        what="the lease's end")
    assert silent.returncode == 3
    assert Counter(effects.read_text().split()) == {"dead": 1, "alive": 1}
