#!/usr/bin/env python3
"""Runs every test suite of a build folder and tells one sum: run-suites.py BUILD [pytest arguments]

Unit, contract and other compiled tests run under `meson test`; a cmocka program counts each of its tests, any other program
counts as one. The end-to-end tests run under pytest. The closing line is "N passed, N failed, N skipped"; every failed and
every skipped test is named above it. Exit status 1 when anything failed, or when nothing ran."""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAP = re.compile(r"^(ok|not ok) (\d+)(?: - (.*?))?\s*(# SKIP\b.*)?$", re.MULTILINE)
PLAN = re.compile(r"^1\.\.(\d+)", re.MULTILINE)


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add(self, outcome, name):
        if outcome == "passed":
            self.passed += 1
        else:
            getattr(self, outcome).append(name)


def cmocka_outcomes(text):
    """(outcome, name) of each test in cmocka's TAP output, and how many were promised."""
    outcomes = []
    for ok, number, name, skip in TAP.findall(text):
        if skip:
            outcomes.append(("skipped", name or skip.removeprefix("# SKIP").strip() or number))
        else:
            outcomes.append(("passed" if ok == "ok" else "failed", name or number))
    return outcomes, sum(int(n) for n in PLAN.findall(text))


def count_program(test, tally):
    name = test["name"].split(" / ")[-1]  # without project and suite
    result = test["result"]
    outcomes, promised = cmocka_outcomes((test.get("stdout") or "") + "\n" + (test.get("stderr") or ""))
    for outcome, part in outcomes:
        tally.add(outcome, f"{name}: {part}")
    good = result in ("OK", "EXPECTEDFAIL")
    if outcomes:
        # a program that died counts for the tests that it no longer told about
        for _ in range(max(0, promised - len(outcomes))):
            tally.add("failed", f"{name}: did not get to its end ({result})")
        if not good and not any(outcome == "failed" for outcome, _ in outcomes) and promised <= len(outcomes):
            tally.add("failed", f"{name}: {result}")
    elif result == "SKIP":
        tally.add("skipped", name)
    else:
        tally.add("passed" if good else "failed", name if good else f"{name}: {result}")


def run_meson(build, tally):
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
    environment.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    log = os.path.join(build, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.remove(log)
    status = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs"],
                            env=environment, cwd=ROOT).returncode
    before = tally.passed + len(tally.failed) + len(tally.skipped)
    if os.path.exists(log):
        with open(log, encoding="utf-8") as lines:
            for line in lines:
                count_program(json.loads(line), tally)
    if before == tally.passed + len(tally.failed) + len(tally.skipped):
        tally.add("failed", "meson test ran nothing")
    elif status != 0 and not tally.failed:
        tally.add("failed", f"meson test ended with {status}")


def pytest_environment(build):
    environment = dict(os.environ, ONCED_BUILD=build)
    environment.setdefault("ONCED", os.path.join(build, "src", "cli", "onced"))
    environment.setdefault("ONCED_BIN", environment["ONCED"])
    environment.setdefault("ONCED_FAKE_PROVIDER", os.path.join(build, "test", "support", "fake-provider"))
    environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
    environment.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    return environment


# Two thirds of the time the end-to-end tests wait: four groups at once, of about the same length. What the others print comes at the end.
GROUPS = 4
SECONDS = {"cases_ambiguity": 94, "cases_crash": 73, "windows": 62, "mcp_conformance": 58, "chaos": 53, "sweep": 51,
           "kill_points": 46, "mcp_clients": 46, "wire": 37, "mcp_stdio": 36, "cases_identity": 35, "mail": 30,
           "mcp_calls": 28, "cases_repeats": 27, "stripe": 26, "inbox": 24, "forward": 24, "cases_policies": 6, "cases_mcp": 20, "cli": 19,
           "steps": 17, "claims": 17, "compensation": 16, "principals": 16, "mcp_import": 16, "mcp_forward": 15,
           "sql": 24, "gateways": 25, "gateways_load": 20, "failover": 52, "disk_full_postgres": 9, "ledger_commands": 30, "relay": 30, "notify": 13, "idemkit": 12, "elicit": 9}
SECONDS_OF_OTHERS = 11


def groups():
    """(name of the report, pytest's arguments): the longest file first, each to the group that has least to do."""
    lots = [[0, []] for _ in range(GROUPS)]
    files = {file: SECONDS.get(os.path.basename(file)[len("test_"):-len(".py")], SECONDS_OF_OTHERS)
             for file in sorted(glob.glob("test/e2e/test_*.py", root_dir=ROOT))}
    for file in sorted(files, key=files.get, reverse=True):
        lot = min(lots, key=lambda each: each[0])
        lot[0] += files[file]
        lot[1].append(file)
    return [(f"e2e-{n}", sorted(list_)) for n, (_, list_) in enumerate(lots, 1)]


# What decides before dispatch and what repairs afterwards, with 64 callers and under kill -9, once more on PostgreSQL.
POSTGRES = "e2e-postgres"


def on_postgres():
    marked = [file for file in sorted(glob.glob("test/e2e/test_*.py", root_dir=ROOT))
              if "pytest.mark.on_both_ledgers" in open(os.path.join(ROOT, file), encoding="utf-8").read()]
    return POSTGRES, ["-m", "on_both_ledgers", *marked]


def start_pytest(build, name, arguments, output):
    report = os.path.join(build, "meson-logs", f"{name}.xml")
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "--timeout=900", f"--junitxml={report}",
               *arguments]
    environment = pytest_environment(build)
    if name == POSTGRES:
        environment["ONCED_TEST_LEDGER"] = "postgres"
    return report, subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=output)


def count_report(report, status, tally):
    if not os.path.exists(report):
        tally.add("failed", f"pytest ended with {status} and left no report")
        return
    counted = 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        where = " on PostgreSQL" if os.path.basename(report) == f"{POSTGRES}.xml" else ""
        name = f"{case.get('classname')}.{case.get('name')}{where}"
        counted += 1
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            tally.add("failed", name)
        elif skip is not None:
            tally.add("skipped", f"{name}: {skip.get('message')}")
        else:
            tally.add("passed", name)
    if counted == 0:
        tally.add("failed", f"pytest ran nothing (it ended with {status})")
    elif status not in (0, 1):
        tally.add("failed", f"pytest ended with {status}")


def run_pytest(build, arguments, tally):
    wanted = [("e2e", arguments)] if arguments else [*groups(), on_postgres()]
    for old in glob.glob(os.path.join(build, "meson-logs", "e2e*.xml")):
        os.remove(old)
    with tempfile.TemporaryFile() as output:
        started = [start_pytest(build, name, list_, output if n else None) for n, (name, list_) in enumerate(wanted)]
        statuses = [child.wait() for _, child in started]
        output.seek(0)
        sys.stdout.write(output.read().decode(errors="replace"))
        sys.stdout.flush()
    for (report, _), status in zip(started, statuses):
        count_report(report, status, tally)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    build = os.path.abspath(sys.argv[1])
    tally = Tally()
    run_meson(build, tally)
    run_pytest(build, sys.argv[2:], tally)
    print()
    for name in tally.skipped:
        print(f"skipped: {name}")
    for name in tally.failed:
        print(f"failed: {name}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped", flush=True)
    return 1 if tally.failed or tally.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
