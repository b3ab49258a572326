#!/usr/bin/env python3
"""What an LLM agent's retries do to 200 refunds, without onced and with it.

Real processes on free loopback ports, nothing outside a temporary folder: the fault-injecting provider, then onced with its
SQLite ledger, killed with SIGKILL and started again while it works. Two agents work through overlapping lists; their model
writes a failed call anew (other order of members, 4900.0 for 4900, other white space) or, now and then, just says "done".

Direct, the agents do what agent frameworks do: the SDK repeats a request once with the same idempotency key where the provider
knows keys, and the model calls the failed tool again, up to three calls. Through onced, the same agents make the same calls,
and the application tells the user only what onced confirms. What happened is judged by the provider's own count.

Exit status 0 only if the guarantee held: through onced no duplicate, nothing lost, no false claim, everything settled."""

import argparse
import http.client
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

INTENDED = 200
BOTH = 20  # intents that reach both agents: the event behind them was delivered twice
CONVERSATIONS = 6  # at once, per agent
CALLS_MAX = 3  # a model calls a failing tool so often
SAYS_DONE = 0.3  # share of failed calls after which the model says "done" instead of trying again
PATIENCE_S = 0.5  # the agents' time limit for one call
KILLS_AT = (0.2, 0.45, 0.7)  # share of settled intents at which onced is killed
DEADLINE_S = 50  # for each half, so that a broken build ends, too
FAULTS = ("timeout_after_commit:1200=0.08,reset_after_commit=0.06,5xx_committed=0.06,close_after_commit=0.03,"
          "timeout_before_commit:1200=0.07,5xx_not_committed=0.06,rate_limited:1=0.01,slow:150=0.05,"
          "lookup_500=0.1,lookup_empty=0.05")


class Intent:
    def __init__(self, number):
        self.number = number
        self.tool, self.collection = (("refund.create", "refunds"), ("credit.create", "credits"))[number % 2]
        self.payment = f"pay_{number:04d}"
        self.amount_cents = 1000 + 37 * number
        self.note = f"customer asked, ticket {number}"
        self.claims = []  # what users were told in the end: "done" or "failed"

    @property
    def key(self):
        return f"{self.collection}/{self.payment}"


class Model:
    """What an LLM does with one intent; the same in every run with the same seed."""

    def __init__(self, seed, agent, intent):
        self.random = random.Random(f"{seed} {agent} {intent.number}")
        self.intent = intent

    def write_arguments(self):
        """The same arguments, in the words of the moment."""
        amount = self.random.choice([str(self.intent.amount_cents), f"{self.intent.amount_cents}.0",
                                     f"{self.intent.amount_cents // 10}.{self.intent.amount_cents % 10}e1"])
        words = self.intent.note.split(" ")
        note = " " * self.random.randrange(2) + self.random.choice([" ", "  "]).join(words) + " " * self.random.randrange(2)
        members = [("payment_id", json.dumps(self.intent.payment)), ("amount_cents", amount), ("note", json.dumps(note))]
        self.random.shuffle(members)
        return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in members) + "}"

    def says_done_anyway(self):
        return self.random.random() < SAYS_DONE


class Connection:
    """One keep-alive connection; a request either has an answer or raises OSError."""

    def __init__(self, port, timeout_s):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    def ask(self, method, path, body=None, headers=None):
        try:
            self.http.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            answer = self.http.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as problem:
            self.http.close()
            raise OSError(f"no answer: {problem!r}") from problem
        except OSError:
            self.http.close()
            raise

    def json(self, method, path, body=None, headers=None):
        status, text = self.ask(method, path, body, headers)
        return status, json.loads(text)


class Progress:
    """One line, rewritten in place on a terminal, one line per quarter otherwise."""

    def __init__(self, title):
        self.title, self.lock, self.done, self.note = title, threading.Lock(), 0, ""
        self.start, self.tty = time.monotonic(), sys.stderr.isatty()
        self.show()

    def step(self, note=None, done=0):
        with self.lock:
            self.done += done
            self.note = self.note if note is None else note
            if self.tty or (done and self.done % (INTENDED // 4) == 0):
                self.show()

    def show(self):
        text = f"{self.title}: {self.done}/{INTENDED} settled, {time.monotonic() - self.start:4.1f} s  {self.note}"
        print("\r\033[K" + text if self.tty else text, end="" if self.tty else "\n", file=sys.stderr, flush=True)

    def end(self):
        self.note = ""
        if self.tty:
            self.show()
            print(file=sys.stderr)


class Process:
    """A child that is stopped by its own process id."""

    def __init__(self, command, log):
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def first_line(self):
        return self.child.stdout.readline()

    def stop(self, number=signal.SIGTERM):
        if self.child.poll() is None:
            self.child.send_signal(number)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()


class Provider(Process):
    def __init__(self, onced, seed, log):
        super().__init__([*onced, "fake-provider", "--port", "0", "--faults", FAULTS, "--seed", str(seed)], log)
        line = self.first_line()
        if not line:
            raise SystemExit("demo: the fake provider did not start")
        self.port = json.loads(line)["port"]

    def truth(self):
        return Connection(self.port, 10).json("GET", "/_fake/effects")[1]

    def stats(self):
        return Connection(self.port, 10).json("GET", "/_fake/stats")[1]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Onced:
    def __init__(self, onced, folder, provider_port, log):
        self.command, self.folder, self.log, self.provider_port = onced, folder, log, provider_port
        self.port = free_port()
        self.config = os.path.join(folder, "demo.yaml")
        with open(os.path.join(HERE, "demo.yaml"), encoding="utf-8") as template, \
                open(self.config, "w", encoding="utf-8") as out:
            out.write(template.read().replace("127.0.0.1:7070", f"127.0.0.1:{self.port}")
                      .replace("127.0.0.1:9000", f"127.0.0.1:{provider_port}"))
        self.process, self.kills, self.start_ms = None, 0, []

    def start(self):
        begin = time.monotonic()
        self.process = Process([*self.command, "serve", self.config], self.log)
        while time.monotonic() < begin + 10:
            if self.process.child.poll() is not None:
                break
            try:
                if Connection(self.port, 2).ask("GET", "/readyz")[0] == 200:
                    self.start_ms.append((time.monotonic() - begin) * 1000)
                    return
            except OSError:
                time.sleep(0.005)
        self.process.stop()
        raise SystemExit(f"demo: onced did not start; its output is in {self.folder}/onced.log")

    def kill_and_start(self):
        self.process.stop(signal.SIGKILL)
        self.kills += 1
        time.sleep(0.3)
        self.start()

    def stop(self):
        if self.process:
            self.process.stop()


# ---- without onced ----


def direct_call(connection, intent, arguments):
    """The SDK: one request and, where the provider knows keys, one repetition with the same key."""
    key = {"Idempotency-Key": str(uuid.uuid4())} if intent.tool == "refund.create" else {}
    for last in ([False, True] if key else [True]):
        try:
            status, _ = connection.ask("POST", "/v1/" + intent.collection, arguments, key)
            if status < 500 and status != 429:
                return 200 <= status < 300
        except OSError:
            pass
        if last:
            return False
        time.sleep(0.05)
    return False


def direct_conversation(run, connection, agent, intent):
    model = Model(run.seed, agent, intent)
    for call in range(CALLS_MAX):
        if direct_call(connection, intent, model.write_arguments()):
            return "done"
        run.ambiguous.add(intent.number)
        if model.says_done_anyway():
            return "done"
    return "failed"


# ---- through onced ----


def outcome(answer):
    if answer.get("status") in ("completed_success", "completed_noop"):
        return "done"
    return "failed" if answer.get("status") in ("failed_permanent", "rejected") else None


def ask_until_known(run, connection, operation):
    """What onced knows of an operation in the end. Where it proved that nothing happened but may not send again by itself
    (credit.create: the provider knows no keys), an operator, here this script, lets it try again."""
    while time.monotonic() < run.deadline:
        try:
            status, answer = connection.json("GET", f"/v1/operations/{operation}?wait=1000")
            if status == 200 and outcome(answer) == "failed" and answer.get("reason") == "absent":
                status, answer = connection.json("POST", f"/v1/operations/{operation}/retry", '{"note": "proven absent"}')
                if answer.get("operation_id", operation) != operation:
                    operation = answer["operation_id"]
                    run.note(operation, retried=True)
            if status in (200, 201) and outcome(answer):
                return outcome(answer)
        except (OSError, ValueError):
            time.sleep(0.05)  # killed just now
    return None


def onced_conversation(run, connection, agent, intent):
    """The same model and the same calls. The application has the last word: it tells the user what onced confirms, and lets the
    model go on (the queue delivers the task again) while onced has no record of the call."""
    model = Model(run.seed, agent, intent)
    headers = {"Onced-Principal": agent, "Onced-Run-Id": f"{agent}-{intent.payment}"}
    operation = None
    while time.monotonic() < run.deadline:
        body = f'{{"tool": "{intent.tool}", "arguments": {model.write_arguments()}}}'
        done = False
        try:
            status, answer = connection.json("POST", "/v1/calls", body, headers)
            if status >= 400 and status not in (409, 503):
                raise SystemExit(f"demo: onced answered {status}: {json.dumps(answer)}")
            operation = answer.get("operation_id") or operation
            done = status < 300 and outcome(answer) is not None
        except (OSError, ValueError):
            pass  # timed out, or onced was killed
        if operation:
            run.note(operation)
        if not done and model.says_done_anyway():
            run.claims_held += 1  # the model says "done"; the application looks before it tells anybody
            done = operation is not None
        if done:
            return ask_until_known(run, Connection(run.port, 5), operation)
        time.sleep(0.05)
    return None


# ---- both ----


class Run:
    def __init__(self, title, seed, port, conversation):
        self.seed, self.port, self.conversation = seed, port, conversation
        self.intents = [Intent(number) for number in range(INTENDED)]
        self.ambiguous, self.operations, self.retried = set(), set(), set()
        self.claims_held, self.example = 0, None
        self.deadline = time.monotonic() + DEADLINE_S
        self.progress = Progress(title)
        self.lock, self.settled, self.problems = threading.Lock(), set(), []

    def note(self, operation, retried=False):
        with self.lock:
            self.operations.add(operation)
            if retried:
                self.retried.add(operation)

    def tasks(self):
        """Each agent's list: its own half, and the tasks that were delivered to both."""
        shared = set(random.Random(f"{self.seed} shared").sample(range(INTENDED), BOTH))
        return {agent: [i for i in self.intents if i.number in shared or i.number // 2 % 2 == side]
                for side, agent in enumerate(("agent-a", "agent-b"))}

    def work(self, agent, tasks):
        connection = Connection(self.port, PATIENCE_S)
        try:
            while not self.problems:
                intent = tasks.get_nowait()
                claim = self.conversation(self, connection, agent, intent)
                with self.lock:
                    first = claim is not None and intent.number not in self.settled
                    if claim:
                        intent.claims.append(claim)
                        self.settled.add(intent.number)
                if first:
                    self.progress.step(done=1)
        except queue.Empty:
            return
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - shown by the main thread
            self.problems.append(problem)

    def go(self, meanwhile=None):
        threads = []
        for agent, intents in self.tasks().items():
            tasks = queue.SimpleQueue()
            for intent in intents:
                tasks.put(intent)
            threads += [threading.Thread(target=self.work, args=(agent, tasks), daemon=True)
                        for _ in range(CONVERSATIONS)]
        for thread in threads:
            thread.start()
        if meanwhile:
            meanwhile(self, threads)
        for thread in threads:
            thread.join()
        self.progress.end()
        if self.problems:
            raise self.problems[0]


def count(run, truth):
    """The table's column, from the provider's own count."""
    effects = truth["by_key"]
    happened = {i.number: effects.get(i.key, 0) for i in run.intents}
    claims = [(i, claim) for i in run.intents for claim in i.claims]
    return {
        "intended": INTENDED,
        "provider effects": truth["effects"],
        "duplicates": sum(max(0, n - 1) for n in happened.values()),
        "lost": sum(n == 0 for n in happened.values()),
        'false "done" told to the user': sum(claim == "done" and not happened[i.number] for i, claim in claims),
        'false "failed" told to the user': sum(claim == "failed" and happened[i.number] > 0 for i, claim in claims),
        "not settled": INTENDED - len(run.settled),
    }


def run_direct(onced, seed, log):
    provider = Provider(onced, seed, log)
    try:
        run = Run("direct       ", seed, provider.port, direct_conversation)
        run.go()
        time.sleep(1.3)  # whatever is still held at the provider
        column = count(run, provider.truth())
        column["unknown resolved"] = f"0 of {len(run.ambiguous)}"
        return column
    finally:
        provider.stop()


def kill_now_and_then(daemon):
    def meanwhile(run, threads):
        for share in KILLS_AT:
            while len(run.settled) < share * INTENDED and any(t.is_alive() for t in threads):
                time.sleep(0.005)
            if run.problems:
                return
            run.progress.step(note=f"kill -9 number {daemon.kills + 1} and start again")
            daemon.kill_and_start()
            run.progress.step(note=f"killed and started {daemon.kills} times")

    return meanwhile


def count_unknown(run, port):
    """Of the operations that were unknown at some time: how many are resolved now."""
    connection, unknown, resolved = Connection(port, 10), 0, 0
    for operation in run.operations:
        _, events = connection.json("GET", f"/v1/operations/{operation}/events")
        events = events.get("events", events) if isinstance(events, dict) else events
        if not any(event.get("to") == "unknown_outcome" for event in events):
            continue
        unknown += 1
        if outcome(connection.json("GET", f"/v1/operations/{operation}")[1]):
            resolved += 1
            run.example = operation
    return resolved, unknown


def run_onced(onced, seed, folder, log):
    provider = Provider(onced, seed, log)
    daemon = Onced(onced, folder, provider.port, log)
    try:
        daemon.start()
        run = Run("through onced", seed, daemon.port, onced_conversation)
        run.go(kill_now_and_then(daemon))
        column = count(run, provider.truth())
        resolved, unknown = count_unknown(run, daemon.port)
        column["unknown resolved"] = f"{resolved} of {unknown}"
        return column, run, daemon
    finally:
        daemon.stop()
        provider.stop()


def print_table(direct, through):
    width = max(len(name) for name in through)
    print(f"\n{'':{width}}  {'direct':>10}  {'through onced':>13}")
    for name in through:
        print(f"{name:{width}}  {direct[name]!s:>10}  {through[name]!s:>13}")


def held(column, run):
    return (column["duplicates"] == 0 and column["lost"] == 0 and column['false "done" told to the user'] == 0 and
            column['false "failed" told to the user'] == 0 and column["not settled"] == 0 and
            column["provider effects"] == INTENDED and len(run.settled) == INTENDED)


def print_next(onced, folder, run, daemon):
    program = " ".join(onced)
    operation = run.example or min(run.operations)
    print(f"\nTry next (the ledger of this run is in {folder}):\n"
          f"  {program} fake-provider --port {daemon.provider_port} &\n"
          f"  {program} serve {folder}/demo.yaml &\n"
          f"  export ONCED_SERVER=http://127.0.0.1:{run.port}\n"
          f"  {program} list\n"
          f"  {program} trace {operation}\n"
          f"  {program} call refund.create -a payment_id=pay_0000 -a amount_cents=1000.00 -a note='customer asked, ticket 0'\n"
          f"  kill %2 %1; rm -r {folder}\n"
          "demo/demo.yaml shows how the two tools are put behind onced, docs/fake-provider.md what else can go wrong.")


def find_onced():
    """The program in a build folder, newest first."""
    found = [os.path.join(ROOT, name, "src", "cli", "onced") for name in os.listdir(ROOT) if name.startswith("build")]
    found = [path for path in found if os.access(path, os.X_OK)]
    return max(found, key=os.path.getmtime, default=None)


def main():
    parser = argparse.ArgumentParser(description="200 refunds by two agents, without onced and with it.")
    parser.add_argument("--onced", default=os.environ.get("ONCED") or find_onced(), help="the program (default: of build*/)")
    parser.add_argument("--seed", type=int, default=2, help="of faults and of the model's moods")
    parser.add_argument("--direct-only", action="store_true", help="only without onced")
    parser.add_argument("--clean", action="store_true", help="remove the temporary folder at the end")
    options = parser.parse_args()
    if not options.onced:
        parser.error("no onced program found; build it first, or give --onced PROGRAM")
    onced = options.onced.split()
    folder = tempfile.mkdtemp(prefix="onced-demo-")
    status = 1
    try:
        with open(os.path.join(folder, "onced.log"), "w", encoding="utf-8") as log:
            print(f"{INTENDED} intended payments (100 refunds at a provider that knows idempotency keys, 100 credits at one "
                  f"that does not),\ntwo agents, {BOTH} tasks delivered to both, faults at the provider.", flush=True)
            direct = run_direct(onced, options.seed, log)
            if options.direct_only:
                print("\n".join(f"{name}: {value}" for name, value in direct.items()))
                return 0
            through, run, daemon = run_onced(onced, options.seed, folder, log)
        print_table(direct, through)
        print(f"\nonced was killed with SIGKILL {daemon.kills} times and was ready again after "
              f"{', '.join(f'{ms:.0f}' for ms in daemon.start_ms[1:])} ms. "
              f"{run.claims_held} times the model said\n\"done\" before anybody knew; the application asked onced first. "
              f"{len(run.retried)} credits were proven not to have happened\nand tried again on an operator's word: a provider "
              "without keys is never sent anything twice by itself.")
        status = 0 if held(through, run) else 1
        print("The guarantee held." if status == 0 else "THE GUARANTEE DID NOT HOLD.")
        if not options.clean:
            print_next(onced, folder, run, daemon)
    finally:
        if options.clean:
            shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
