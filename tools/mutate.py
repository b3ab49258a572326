#!/usr/bin/env python3
"""Breaks each safety rule in turn and tells which test caught it: mutate.py [options] [RULE...]

The rules stand in test/mutation/rules.toml: what the rule says, and the one line that breaks it. For each rule the line is
replaced in a private copy of the sources, the test programs are built and run until one of them fails, and the line is put
back. A rule that no test guards fails the check; so does one whose line is gone or whose replacement does not compile. A
catch counts when the same test fails twice, so that a test that merely wavers guards nothing.

With --simulator the rules that are marked for it are broken and only the simulator (onced simulate) looks on: its checker, not an
assertion of the program, must see each of them within --seconds, in a run in which it finds nothing without the mutation.

Without RULE all rules are tried. Exit status 0 only when each of them was caught; the last line is "N of M mutations caught".
"""

import argparse
import concurrent.futures
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RULES = os.path.join(ROOT, "test", "mutation", "rules.toml")
COPIED = ("src", "test", "meson.build", "meson_options.txt", "docs", "examples", "tools/with-postgres.sh")
LEFT_OUT = ("test/e2e/", "test/fuzz/")
MEMBERS = {"name", "design", "says", "file", "function", "before", "after", "caught_by", "historical", "simulator"}
HANG_SECONDS = 60  # a test program that runs longer under a mutation is caught by its time-out
PATIENCE_SECONDS = 20  # for what a test program was started by to put things away
MEMORY_BYTES = 4 << 30
SKIPPED = 77  # meson's: what it needs is not installed
SIMULATOR = "src/cli/onced"
QUICK_TO_BUILD = ["--buildtype=debug", "-Doptimization=0", "-Ddebug=false"]
QUICK_TO_RUN = ["--buildtype=plain", "-Doptimization=2"]


class ListError(Exception):
    """The list of rules is wrong, or what it needs does not work."""


# ---- the list ----


def function_span(text: str, name: str) -> tuple[int, int]:
    """The definition of a C function: from the line that names it at the left margin to its closing brace."""
    found = [m for m in re.finditer(rf"^[a-z][^\n;{{}}=]*\b{re.escape(name)}\([^;{{}}]*\)\s*\n\{{\n", text, re.MULTILINE)]
    if len(found) != 1:
        raise ListError(f"{len(found)} functions {name}, expected one")
    end = text.find("\n}\n", found[0].start())
    return found[0].start(), end + 2


class Rule:
    def __init__(self, entry: dict):
        for member in ("name", "design", "says", "file", "before", "after"):
            if not isinstance(entry.get(member), str):
                raise ListError(f"rule {entry.get('name', '?')}: {member} is missing")
        if set(entry) - MEMBERS:
            raise ListError(f"rule {entry['name']}: unknown members {sorted(set(entry) - MEMBERS)}")
        self.name: str = entry["name"]
        self.design: str = entry["design"]
        self.says: str = entry["says"]
        self.file: str = entry["file"]
        self.function: str | None = entry.get("function")
        self.before: str = entry["before"].strip("\n")
        self.after: str = entry["after"].strip("\n")
        self.caught_by: str | None = entry.get("caught_by")
        self.historical: str | None = entry.get("historical")
        self.simulator: bool = entry.get("simulator", False)

    def apply(self, text: str) -> str:
        """The broken file. The line must be there exactly once, else the rule has moved and the list must follow."""
        start, end = function_span(text, self.function) if self.function else (0, len(text))
        part = text[start:end]
        count = part.count(self.before)
        if count != 1:
            where = f"{self.function} in {self.file}" if self.function else self.file
            raise ListError(f"the rule's line is {'gone' if count == 0 else f'there {count} times'}: {where}: {self.before.strip()}")
        return text[:start] + part.replace(self.before, self.after) + text[end:]


def read_rules(names: list[str]) -> list[Rule]:
    with open(RULES, "rb") as file:
        rules = [Rule(entry) for entry in tomllib.load(file)["rule"]]
    known = {rule.name for rule in rules}
    if len(known) != len(rules):
        raise ListError("two rules have the same name")
    unknown = set(names) - known
    if unknown:
        raise ListError(f"no such rules: {', '.join(sorted(unknown))}")
    return [rule for rule in rules if not names or rule.name in names]


# ---- test programs ----


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_group(process: subprocess.Popen, gently: bool) -> None:
    if gently:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
            return
        except subprocess.TimeoutExpired:
            pass
    os.killpg(process.pid, signal.SIGKILL)


def run(command: list[str], cwd: str, env: dict[str, str], seconds: float, first: bool,
        gently: bool = False) -> tuple[int | None, str]:
    """Exit status (None: took too long) and output. first: ends with the first test that fails. What the program started ends
    with it; gently: it sees to that itself."""
    process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                               preexec_fn=limit_memory)
    late = threading.Event()

    def end() -> None:
        late.set()
        end_group(process, gently)

    timer = threading.Timer(seconds, end)
    timer.start()
    lines = []
    for line in process.stdout:
        lines.append(line)
        if first and FAILED.match(line):
            end_group(process, gently)
            break
    process.stdout.close()
    status = process.wait()
    timer.cancel()
    return None if late.is_set() else status, "".join(lines)


FAILED = re.compile(r"^\[ *(FAILED|ERROR) *\] (?!-|\d+ test)\S+$")


def failed_tests(output: str) -> list[str]:
    """Names from cmocka's output; of a program that died, the test that it was in and the assertion."""
    failed, running = [], None
    for kind, name in re.findall(r"^\[ *(RUN|OK|FAILED|ERROR|SKIPPED) *\] (?!-|\d+ test)(\S+)", output, re.MULTILINE):
        running = name if kind == "RUN" else None
        if kind in ("FAILED", "ERROR") and name not in failed:
            failed.append(name)
    if running:
        assertion = re.search(r"([\w.]+:\d+): \w+: (?:Assertion|assertion)", output)
        failed.append(f"{running} (assertion {assertion.group(1)})" if assertion else f"{running} (died)")
    return failed


class Program:
    def __init__(self, test: dict, build: str):
        at = next(n for n, word in enumerate(test["cmd"]) if os.path.join(build, word).startswith(build + os.sep))
        self.before: list[str] = test["cmd"][:at]  # what the program is started by
        self.path = os.path.relpath(os.path.join(build, test["cmd"][at]), build)
        self.name = test["name"].split(" / ")[-1] if self.before else os.path.basename(self.path)
        self.args: list[str] = test["cmd"][at + 1:]
        self.seconds = 0.0  # of the sound sources

    def run(self, tree: "Tree", first: bool = False) -> list[str]:
        """Which tests fail; empty: all is well. first: one is enough."""
        env = dict(os.environ, ONCED_SOURCE=tree.path, CMOCKA_MESSAGE_OUTPUT="STDOUT", MALLOC_ARENA_MAX="2", TMPDIR=tree.temporary)
        status, output = run([*self.before, os.path.join(tree.build, self.path), *self.args], tree.build, env,
                             HANG_SECONDS * 2 if self.before else HANG_SECONDS, first, bool(self.before))
        if status in (0, SKIPPED):
            return []
        failed = failed_tests(output)
        if status is None:
            running = [name.removesuffix(" (died)") for name in failed[-1:]] or ["?"]
            return [f"{self.name}: {running[0]} (time-out)"]
        return [f"{self.name}: {name}" for name in failed] or [f"{self.name}: exit status {status}"]


# ---- private copies ----


def source_files() -> list[str]:
    """What git knows or would add; without git, all."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *COPIED], cwd=ROOT,
                            capture_output=True)
    if listed.returncode == 0:
        files = sorted({name.decode() for name in listed.stdout.split(b"\0") if name})
    else:
        files = [top for top in COPIED if os.path.isfile(os.path.join(ROOT, top))]
        for top in COPIED:
            for folder, _, names in os.walk(os.path.join(ROOT, top)):
                files += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return [name for name in files if not name.startswith(LEFT_OUT)]


class Tree:
    """A copy of the sources with a build folder: test programs without sanitizers and optimisation, for speed of building."""

    def __init__(self, folder: str, options: list[str]):
        self.path = folder
        self.build = os.path.join(folder, "build")
        self.temporary = os.path.join(folder, "temporary")  # what killed programs leave is gone with the copy
        os.makedirs(self.temporary)
        os.chmod(self.temporary, 0o1777)
        for name in source_files():
            if os.path.isfile(os.path.join(ROOT, name)):
                target = os.path.join(folder, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(os.path.join(ROOT, name), target)
        # the suites' data lie beside the checkout, when they are there
        shared = os.path.join(os.path.dirname(ROOT), "shared")
        if os.path.isdir(shared) and not os.path.exists(os.path.join(os.path.dirname(folder), "shared")):
            os.symlink(shared, os.path.join(os.path.dirname(folder), "shared"))
        link = ["-Dc_link_args=-fuse-ld=gold"] if shutil.which("ld.gold") else []
        self.command(["meson", "setup", self.build, folder, "-Db_sanitize=none", *options, *link])

    def command(self, command: list[str]) -> None:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise ListError(f"{' '.join(command)}:\n{done.stdout}")

    def take_over(self, other: "Tree") -> None:
        """What the other one has built of the same sources; what depends on its place Ninja builds anew. The sources here must be
        older than what was built there."""
        for folder, _, names in os.walk(other.build):
            here = os.path.join(self.build, os.path.relpath(folder, other.build))
            os.makedirs(here, exist_ok=True)
            for name in names:
                if name in (".ninja_log", ".ninja_deps") or not os.path.exists(os.path.join(here, name)):
                    shutil.copy2(os.path.join(folder, name), os.path.join(here, name))

    def tests(self) -> list[Program]:
        done = subprocess.run(["meson", "introspect", "--tests", self.build], capture_output=True, text=True, check=True)
        return [Program(test, self.build) for test in json.loads(done.stdout)
                if any(suite.split(":")[-1] in ("unit", "contract") for suite in test["suite"])]

    def ninja(self, targets: list[str]) -> str | None:
        """None when it was built, else the compiler's words."""
        done = subprocess.run(["ninja", "-C", self.build, *([] if len(targets) > 1 else ["-j1"]), *targets],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout if done.returncode else None

    def write(self, name: str, text: str) -> None:
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name: str) -> str:
        with open(os.path.join(self.path, name), encoding="utf-8") as file:
            return file.read()


# ---- one rule ----


class Result:
    def __init__(self, rule: Rule):
        self.rule = rule
        self.caught: list[str] = []
        self.error = ""
        self.seconds = 0.0


def in_order(rule: Rule, programs: list[Program]) -> list[Program]:
    """The hint first, then the quick ones; what a server is started for only for rules that name it."""
    hint = hint_of(rule)
    wanted = [program for program in programs if program.name == hint or not program.before]
    return sorted(wanted, key=lambda program: (program.name != hint, program.seconds))


def try_programs(tree: Tree, rule: Rule, programs: list[Program], every: bool, result: Result) -> None:
    for program in in_order(rule, programs):
        words = tree.ninja([program.path])
        if words:
            errors = [line for line in words.splitlines() if "error" in line] or words.splitlines()[-3:]
            result.error = "does not compile: " + " ".join(errors[:2])
            return
        failed = program.run(tree, not every)
        if failed and "(time-out)" not in failed[0]:
            again = program.run(tree, not every)
            if not set(failed) & set(again):  # each at another first one: of all that fail
                failed, again = program.run(tree), program.run(tree)
            failed = [name for name in failed if name in again]
        result.caught += failed
        if failed and not every:
            return


def try_rule(tree: Tree, rule: Rule, check) -> Result:
    result = Result(rule)
    start = time.monotonic()
    sound = tree.read(rule.file) if os.path.exists(os.path.join(tree.path, rule.file)) else ""
    try:
        tree.write(rule.file, rule.apply(sound))
        check(tree, rule, result)
    except ListError as error:
        result.error = str(error)
    finally:
        tree.write(rule.file, sound)
    result.seconds = time.monotonic() - start
    return result


def show(result: Result, every: bool) -> None:
    if result.error:
        verdict = "ERROR: " + result.error
    elif result.caught:
        more = len(result.caught) - 1
        verdict = ", ".join(result.caught) if every else result.caught[0] + (f" and {more} more" if more else "")
    else:
        verdict = "NOT CAUGHT: " + result.rule.says
    print(f"{result.rule.name:<44} {result.rule.design:<7} {result.seconds:5.1f} s  {verdict}", flush=True)


# ---- the whole ----


def build_all(trees: list[Tree], targets: list[str]) -> None:
    """The sound sources, compiled once."""
    for tree in trees:
        if tree is not trees[0]:
            tree.take_over(trees[0])
        words = tree.ninja(targets)
        if words:
            raise ListError(f"the sound sources do not compile:\n{words}")


def baseline(trees: list[Tree], programs: list[Program]) -> None:
    """The sound sources: everything must pass, and tells how long it takes."""

    def one(program: Program, tree: Tree) -> list[str]:
        start = time.monotonic()
        failed = program.run(tree)
        program.seconds = time.monotonic() - start
        return failed

    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        runs = [pool.submit(one, program, trees[n % len(trees)]) for n, program in enumerate(programs)]
    failed = [name for run in runs for name in run.result()]
    if failed:
        raise ListError(f"tests fail without any mutation: {', '.join(failed)}")


def work_through(trees: list[Tree], rules: list[Rule], check, every: bool, last: bool = True) -> list[Result]:
    """last: what is not caught now is not caught."""
    results, lock, left = [], threading.Lock(), list(rules)

    def worker(tree: Tree) -> None:
        while True:
            with lock:
                if not left:
                    return
                rule = left.pop(0)
            result = try_rule(tree, rule, check)
            with lock:
                results.append(result)
                if last or result.caught or result.error:
                    show(result, every)

    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        for future in [pool.submit(worker, tree) for tree in trees]:
            future.result()
    return results


def hint_of(rule: Rule) -> str:
    return (rule.caught_by or "").split(":")[0]


def check_with_tests(trees: list[Tree], rules: list[Rule], every: bool) -> list[Result]:
    """First the program that a rule names, then, for what that one did not catch, all."""
    results: list[Result] = []
    hints = {hint_of(rule) for rule in rules}
    programs = [program for program in trees[0].tests() if program.name in hints or not program.before]
    hinted = [program for program in programs if program.name in hints]
    if hinted and not every:
        prepare(trees, hinted)
        results = work_through(trees, rules, lambda tree, rule, result: try_programs(
            tree, rule, [program for program in hinted if program.name == hint_of(rule)], every, result), every, last=False)
        results = [result for result in results if result.caught or result.error]
    ended = {result.rule.name for result in results}
    left = [rule for rule in rules if rule.name not in ended]
    if left:
        prepare(trees, programs)
        results += work_through(trees, left, lambda tree, rule, result: try_programs(tree, rule, programs, every, result), every)
    return results


def prepare(trees: list[Tree], programs: list[Program]) -> None:
    build_all(trees, [program.path for program in programs])
    baseline(trees, programs)
    print(f"{len(programs)} test programs pass without mutation\n", flush=True)


# ---- the simulator alone ----


def simulate(program: str, seconds: float, seed: int, seeds: int) -> dict | None:
    """What the simulator's checker finds within the time: {"seed", "text"}."""
    command = [program, "simulate", "--json", "--no-shrink", "--jobs", "1", "--seed", str(seed), "--seeds", str(seeds)]
    status, output = run(command, os.path.dirname(program), dict(os.environ), seconds, False)
    if not status:
        return None
    try:
        return json.loads(output.splitlines()[-1])["violation"]
    except (ValueError, KeyError, IndexError) as error:
        raise ListError(f"onced simulate ended with status {status}: {output[-300:]}") from error


def simulate_rule(tree: Tree, sound: str, seconds: float, result: Result) -> None:
    words = tree.ninja([SIMULATOR])
    if words:
        result.error = "does not compile: " + " ".join(line for line in words.splitlines() if "error" in line)
        return
    found = simulate(os.path.join(tree.build, SIMULATOR), seconds, 1, 10**9)
    if not found:
        return
    words = f"seed {found['seed']}: {found['text']}"
    if found["text"].startswith("the run "):  # it ended by a signal, or took too long
        result.error = f"not seen by the checker: {words}"
    elif simulate(sound, 10 * seconds, found["seed"], 1):
        result.error = f"seen without the mutation, too: {words}"
    else:
        result.caught.append(words)


def check_with_simulator(trees: list[Tree], rules: list[Rule], seconds: float) -> list[Result]:
    build_all(trees, [SIMULATOR])
    sound = os.path.join(os.path.dirname(trees[0].path), "onced-sound")
    shutil.copy(os.path.join(trees[0].build, SIMULATOR), sound)
    return work_through(trees, rules, lambda tree, rule, result: simulate_rule(tree, sound, seconds, result), False)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*", metavar="RULE", help="names of rules; default: all")
    parser.add_argument("--all", action="store_true", dest="every", help="run all test programs, not only to the first catch")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="copies that work in parallel (default 2)")
    parser.add_argument("--simulator", action="store_true", help="rules marked for it must be seen by onced simulate alone")
    parser.add_argument("--seconds", type=float, default=60, help="time that the simulator has per rule (default 60)")
    parser.add_argument("--part", metavar="I/N", help="only every N-th rule, from the I-th on; the lines of the others must be there, too")
    parser.add_argument("--list", action="store_true", help="print the rules and end")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    start = time.monotonic()
    rules = read_rules(arguments.rules)
    if arguments.list:
        for rule in rules:
            print(f"{rule.name:<44} {rule.design:<7} {rule.says}")
        return 0
    if arguments.simulator:
        rules = [rule for rule in rules if rule.simulator]
    if arguments.part:
        for rule in rules:
            with open(os.path.join(ROOT, rule.file), encoding="utf-8") as file:
                rule.apply(file.read())
        first, count = (int(number) for number in arguments.part.split("/"))
        rules = rules[(first - 1) % count :: count]
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        os.chmod(folder, 0o711)  # tests that become other users get to their files
        jobs = max(1, min(arguments.jobs, len(rules)))
        options = QUICK_TO_RUN if arguments.simulator else QUICK_TO_BUILD
        trees = [Tree(os.path.join(folder, str(n)), options) for n in range(jobs)]
        if arguments.simulator:
            results = check_with_simulator(trees, rules, arguments.seconds)
        else:
            results = check_with_tests(trees, rules, arguments.every)
    caught = sum(1 for result in results if result.caught and not result.error)
    print(f"\ntook {time.monotonic() - start:.0f} s")
    print(f"{caught} of {len(results)} mutations caught" + (" by the simulator" if arguments.simulator else ""))
    return 0 if caught == len(results) and results else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ListError as error:
        print(f"mutate: {error}", file=sys.stderr)
        sys.exit(1)
