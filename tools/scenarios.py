#!/usr/bin/env python3
"""The scenario bank, one line per scenario: pass, fail, or what it waits for.

    scenarios.py BUILD            runs the tests of test/scenarios.toml on this build folder (python with pytest)
    scenarios.py --report BUILD   judges by the reports that `make test` left in this build folder, runs nothing
    scenarios.py --list           compares the table with cases.md and the tests, and prints it without results

The table is compared with cases.md (ONCED_CASES, else ../shared/cases.md beside the sources; without it the table's own titles
stand) and with the end-to-end tests: whose name has a scenario's number must be in its list. Exit status 0 only when
nothing failed, every test in the table exists and ran, and the table is complete. Skipped tests are told and are no pass."""

import argparse
import ast
import collections
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "test/scenarios.toml"
E2E = ROOT / "test/e2e"
NUMBER = re.compile(r"S\d\d")


def run_suites():
    """tools/run-suites.py: how programs are run and what their output says."""
    spec = importlib.util.spec_from_file_location("run_suites", ROOT / "tools/run-suites.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- the table ----


def titles() -> dict[str, str] | None:
    """Number → title of cases.md; None where it is not there."""
    named = os.environ.get("ONCED_CASES")
    path = pathlib.Path(named) if named else ROOT.parent / "shared/cases.md"
    if not named and not path.is_file():
        return None
    return dict(re.findall(r"^## (S\d\d) (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))


def functions() -> set[str]:
    """FILE.py::FUNCTION of every end-to-end test."""
    found = set()
    for path in E2E.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(f"{path.name}::{node.name}")
    return found


def is_e2e(test: str) -> bool:
    return test.split("::")[0].endswith(".py")


def check_table(table: dict, existing: set[str]) -> list[str]:
    problems = []
    known = titles()
    if known is not None:
        problems += [f"{number}: is in cases.md and not in the table" for number in known if number not in table]
        for number, row in table.items():
            if number not in known:
                problems.append(f"{number}: is not in cases.md")
            elif row["title"] != known[number]:
                problems.append(f"{number}: the title in cases.md is {known[number]!r}")
    for number, row in table.items():
        if not row["tests"] and not row.get("waiting"):
            problems.append(f"{number}: has no test and waits for nothing")
        if len(set(row["tests"])) != len(row["tests"]):
            problems.append(f"{number}: names a test twice")
        problems += [f"{number}: there is no test {test}" for test in row["tests"] if is_e2e(test) and test not in existing]
    for test in sorted(existing):
        for number in NUMBER.findall(test.split("::")[1]):
            if test not in table.get(number, {"tests": []})["tests"]:
                problems.append(f"{number}: {test} has this number in its name and is not in its list")
    return problems


# ---- results: test → outcomes of its parts ----


def e2e_outcomes(report: pathlib.Path) -> dict[str, list[str]]:
    outcomes = collections.defaultdict(list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.get("classname").split(".")[-1] + ".py"
        function = case.get("name").split("[")[0]
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        else:
            outcome = "skipped" if case.find("skipped") is not None else "passed"
        outcomes[f"{file}::{function}"].append(outcome)
    return outcomes


def compiled_outcomes(log: pathlib.Path) -> dict[str, list[str]]:
    """By meson's log: one JSON line per program, with cmocka's TAP output. A program that died fails with all its tests."""
    suites = run_suites()
    outcomes = collections.defaultdict(list)
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            program = json.loads(line)
            name = program["name"].split(" / ")[-1]
            tests, promised = suites.cmocka_outcomes((program.get("stdout") or "") + "\n" + (program.get("stderr") or ""))
            died = program["result"] not in ("OK", "FAIL") or promised > len(tests)
            for outcome, test in tests:
                outcomes[f"{name}::{test}"].append("failed" if died else outcome)
    return outcomes


def run(build: pathlib.Path, table: dict, existing: set[str]) -> tuple[pathlib.Path, pathlib.Path]:
    """Runs what the table names; the two reports."""
    tests = {test for row in table.values() for test in row["tests"]}
    report, log = build / "meson-logs/scenarios.xml", build / "meson-logs/scenarios.json"
    for old in (report, log):
        old.unlink(missing_ok=True)
    environment = run_suites().pytest_environment(str(build))
    programs = sorted({test.split("::")[0] for test in tests if not is_e2e(test)})
    subprocess.run(["meson", "test", "-C", str(build), "--no-rebuild", "--logbase", "scenarios", *programs],
                   env=dict(environment, CMOCKA_MESSAGE_OUTPUT="TAP"), cwd=ROOT, stdout=sys.stderr)
    chosen = sorted(f"{E2E / test}" for test in tests if is_e2e(test) and test in existing)
    subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "--timeout=900",
                    f"--junitxml={report}", *chosen], env=environment, cwd=ROOT, stdout=sys.stderr)
    return report, log


# ---- the verdicts ----


def verdict(row: dict, outcomes: dict[str, list[str]]) -> tuple[str, list[str]]:
    """(fail, skipped, waiting or pass; what is behind a fail or a skip)."""
    bad, skipped = [], []
    for test in row["tests"]:
        parts = outcomes.get(test)
        if not parts:
            bad.append(f"{test} did not run")
        elif "failed" in parts:
            bad.append(f"{test} failed")
        elif "skipped" in parts:
            skipped.append(f"{test} was skipped")
    if bad:
        return "fail", bad
    if skipped:
        return "skipped", skipped
    return ("waiting" if row.get("waiting") else "pass"), []


def named(items: list[dict]) -> str:
    return ", ".join(f"{item['what']} (issue {item['issue']})" for item in items)


def line(number: str, row: dict, word: str | None) -> str:
    """word: the verdict; None when nothing was judged."""
    waiting, also, notes = row.get("waiting"), row.get("also"), []
    if waiting and word in ("waiting", None):
        part = "passes" if word else "is tested"
        word = "waiting for " + named(waiting)
        notes.append(f"what exists {part}" if row["tests"] else "nothing of it exists yet")
    elif waiting:
        notes.append("rest waits for " + named(waiting))
    word = word or "tested"
    if also:
        notes.append("later also with " + named(also))
    return f"{number} {word}  {row['title']}" + (f"  [{'; '.join(notes)}]" if notes else "")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build", nargs="?", type=pathlib.Path, metavar="BUILD")
    options.add_argument("--report", action="store_true")
    options.add_argument("--list", action="store_true")
    options.add_argument("--table", type=pathlib.Path, default=TABLE)
    given = options.parse_args()
    if bool(given.build) == given.list:
        options.error("BUILD or --list")
    with open(given.table, "rb") as file:
        table = tomllib.load(file)
    existing = functions()
    problems = check_table(table, existing)
    words, reasons = {}, []
    if given.build:
        build = given.build.resolve()
        if given.report:
            reports, log = sorted((build / "meson-logs").glob("e2e*.xml")) or [build / "meson-logs/e2e.xml"], build / "meson-logs/testlog.json"
        else:
            report, log = run(build, table, existing)
            reports = [report]
        missing = [str(path) for path in (*reports, log) if not path.exists()]
        if missing:
            print(f"no report {' and '.join(missing)}", file=sys.stderr)
            return 1
        outcomes = compiled_outcomes(log)
        for report in reports:
            outcomes |= e2e_outcomes(report)
        for number, row in table.items():
            words[number], why = verdict(row, outcomes)
            reasons += [f"{number}: {reason}" for reason in why]
    for number, row in table.items():
        print(line(number, row, words.get(number)))
    for reason in problems + reasons:
        print(reason)
    counts = collections.Counter(words.values())
    tests = len({test for row in table.values() for test in row["tests"]})
    parts = sum(1 for number, row in table.items() if words.get(number) == "waiting" and row["tests"])
    result = (f"{counts['pass']} pass, {counts['fail']} fail, {counts['waiting']} wait ({parts} of them with a part that passes), "
              f"{counts['skipped']} skipped, " if given.build else "")
    print(f"{len(table)} scenarios: {result}{tests} tests" + (f", {len(problems)} problems of the table" if problems else ""))
    return 1 if problems or counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
