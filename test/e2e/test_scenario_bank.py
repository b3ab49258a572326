"""tools/scenarios.py: the table of the scenario bank is complete, and every way in which it may lie is noticed."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "test/scenarios.toml"


def bank(*argv, cases=None):
    environment = {name: value for name, value in os.environ.items() if name != "ONCED_CASES" or not cases}
    if cases:
        environment["ONCED_CASES"] = str(cases)
    return subprocess.run([sys.executable, ROOT / "tools/scenarios.py", *map(str, argv)], env=environment, capture_output=True,
                          text=True, timeout=60)


@pytest.fixture
def cases(tmp_path):
    """A cases.md with the titles of the table."""
    path = tmp_path / "cases.md"
    rows = re.findall(r"^\[(S\d\d)\]\ntitle = (?:'''|'|\")(.*?)(?:'''|'|\")$", TABLE.read_text(), re.MULTILINE)
    path.write_text("".join(f"## {number} {title}\n- Mechanism: …\n" for number, title in rows))
    return path


def test_the_table_is_complete():
    done = bank("--list")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^S\d\d (?:tested|waiting for .*\(issue \d+\))  ", done.stdout, re.MULTILINE)) == 62, done.stdout


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize("old, new, said", [
    ("## S10 Go's", "## S10 Our", "S10: the title in cases.md is"),
    ("## S88", "## S99 One more\n## S88", "S99: is in cases.md and not in the table"),
    ("## S88", "## X88", "S88: is not in cases.md"),
])
def test_another_case_file_is_noticed(cases, old, new, said):
    assert bank("--list", cases=cases).returncode == 0
    done = bank("--list", cases=change(cases, old, new))
    assert done.returncode == 1 and said in done.stdout, done.stdout[-2000:]


@pytest.mark.parametrize("old, new, said", [
    ("::test_S01_one_key_on_every_attempt", "::test_S01_gone", "S01: there is no test test_cases_ambiguity.py::test_S01_gone"),
    ("::test_S01_one_key_on_every_attempt", "::test_S01_same_key_after_a_restart", "S01: names a test twice"),
    ("::test_S01_one_key_on_every_attempt", "::test_wire_accounting",
     "S01: test_cases_ambiguity.py::test_S01_one_key_on_every_attempt has this number in its name and is not in its list"),
])
def test_a_wrong_table_is_noticed(tmp_path, cases, old, new, said):
    table = tmp_path / "scenarios.toml"
    table.write_text(TABLE.read_text())
    done = bank("--list", "--table", change(table, old, new), cases=cases)
    assert done.returncode == 1 and said in done.stdout, done.stdout[-2000:]


REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="test_cases_ambiguity" name="test_S01_a[x]"/>
<testcase classname="test_cases_ambiguity" name="test_S01_a[y]">{a}</testcase>
</testsuite></testsuites>"""
LOG = '{{"name": "onced:unit / engine", "result": "{result}", "stdout": "1..2\\nok 1 - one\\n{two}", "stderr": ""}}\n'
SMALL = """[S01]
title = "first"
tests = ["test_cases_ambiguity.py::test_S01_a", "engine::one", "engine::two"]

[S02]
title = "second"
tests = []
waiting = [{what = "wings", issue = 9}]
"""


@pytest.mark.parametrize("a, result, two, word, said", [
    ("", "OK", "ok 2 - two", "pass", None),
    ("<skipped message='no root'/>", "OK", "ok 2 - two", "skipped", "was skipped"),
    ("<failure/>", "OK", "ok 2 - two", "fail", "test_S01_a failed"),
    ("<error/>", "OK", "ok 2 - two", "fail", "test_S01_a failed"),
    ("", "FAIL", "not ok 2 - two", "fail", "engine::two failed"),
    ("", "FAIL", "", "fail", "engine::two did not run"),
    ("", "ERROR", "ok 2 - two", "fail", "engine::one failed"),
])
def test_verdicts(tmp_path, cases, a, result, two, word, said):
    logs = tmp_path / "build/meson-logs"
    logs.mkdir(parents=True)
    table = tmp_path / "small.toml"
    table.write_text(SMALL)
    (logs / "e2e.xml").write_text(REPORT.format(a=a))
    (logs / "testlog.json").write_text(LOG.format(result=result, two=two))
    done = bank("--report", "--table", table, logs.parent, cases=cases)
    lines = done.stdout.splitlines()
    assert lines[0] == f"S01 {word}  first" and lines[1].startswith("S02 waiting for wings (issue 9)  second"), done.stdout
    assert said is None or any(said in line for line in lines[2:]), done.stdout


def test_no_report_is_no_pass(tmp_path):
    done = bank("--report", tmp_path)
    assert done.returncode == 1 and "no report" in done.stderr, done
