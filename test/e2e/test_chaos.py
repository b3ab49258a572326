"""`onced chaos`: the example registries under faults, what is counted where contracts are weak or broken, and the three forms of
the report. ONCED_CHAOS_OPERATIONS sets the length (default 1000 per run, about a minute in all with sanitizers)."""

import html.parser
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from onced_e2e import binary
from onced_e2e.figures import figure

ROOT = binary.ROOT
# not the multi-step one: what it promises is of several operations together (test_steps.py)
EXAMPLES = [file for file in sorted((ROOT / "examples").glob("*.yaml")) if file.stem != "order"]
OPERATIONS = int(os.environ.get("ONCED_CHAOS_OPERATIONS", 1000))
HOLDS, BROKEN, UNUSABLE = 0, 1, 2

REGISTRY = """\
onced: 1
providers:
  plain: {base_url: http://127.0.0.1:9}
  keyed: {base_url: http://127.0.0.1:9, key: {header: Idempotency-Key, retention: 24h}}
tools:
  note.send:
    class: external_weak
    provider: plain
    input_schema: {type: object, required: [to, text], properties: {to: {type: string}, text: {type: string}}}
    request: {path: /v1/notes, json: {to: "{to}", text: "{text}"}}
  level.set:
    class: external_weak
    provider: plain
    key: "level:{level}"
    input_schema: {type: object, required: [level], properties: {level: {enum: [low, middle, high]}}}
    request: {path: /v1/levels, json: {level: "{level}"}}
  stock.reserve:
    class: external_weak
    provider: plain
    input_schema: {type: object, required: [sku], properties: {sku: {type: string, pattern: "^(?!x)[a-z]+$"}}}
    request: {path: /v1/skus, json: {sku: "{sku}"}}
  charge.create:
    class: external_idempotent
    provider: keyed
    key: "charge:{order}"
    input_schema: {type: object, required: [order], properties: {order: {type: string}}}
    request: {path: /v1/charges, json: {order: "{order}"}}
  note.get:
    class: read
    provider: plain
    input_schema: {type: object, required: [id], properties: {id: {type: string}}}
    request: {path: "/v1/notes/{id}"}
"""


def run(*words, status=HOLDS, cwd=None):
    """Standard output as bytes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("STRIPE_", "PAYMENTS_"))}
    done = subprocess.run([binary.onced(), "chaos", *map(str, words)], capture_output=True, cwd=cwd, timeout=300,
                          env=environment)
    assert b"Sanitizer" not in done.stderr and b"runtime error" not in done.stderr, done.stderr.decode()
    assert done.returncode == status, (done.returncode, done.stdout.decode()[:3000], done.stderr.decode())
    return done.stdout if status != UNUSABLE else done.stderr.decode()


def judge(*words, **named):
    return json.loads(run(*words, "--json", **named))


@pytest.fixture
def registry(tmp_path):
    file = tmp_path / "onced.yaml"
    file.write_text(REGISTRY)
    return file


def tool(report, name):
    return next(tool for tool in report["tools"] if tool["name"] == name)


# ---- the guarantee ----

def test_answers_with_a_repetition_on_purpose_are_no_false_dedupe():
    """Without a key a plain call joins the newest operation of the same arguments: here one that repeat_of had opened."""
    report = judge(ROOT / "examples" / "mail.yaml", "--seed", 16, "--operations", 300)
    assert report["total"]["false_dedupe"]["count"] == 0


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_make_no_duplicates_within_their_contracts(file):
    report = judge(file, "--operations", OPERATIONS)
    total = report["total"]
    assert report["holds"] and report["violation"] is None
    assert total["operations"] >= OPERATIONS
    assert total["duplicates"] == total["duplicates_excused"] == 0
    assert total["false_dedupe"]["count"] == 0
    injected = {fault["name"]: fault["injected"] for fault in report["faults"]}
    assert not any(fault["breaks_contract"] for fault in report["faults"])
    for name in ("crash", "answer_lost", "net_late", "error_after", "ledger_slow", "client_retry"):
        assert injected[name] > 0, name
    assert total["unknown_outcomes"]["count"] > 0
    unknown = total["unknown_outcomes"]
    figure("chaos", f"{file.name}: {total['operations']} operations, 0 duplicates, {unknown['count']} unknown outcomes, "
           f"{unknown['operator']} given to the operator", operations=total["operations"], duplicates=total["duplicates"],
           unknown=unknown["count"], operator=unknown["operator"])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_broken_contracts_are_excused_and_shown(file):
    report = judge(file, "--operations", 2 * OPERATIONS, "--faults", "all", "--rate", 20)
    assert report["holds"]
    assert report["total"]["duplicates"] == 0
    assert report["total"]["duplicates_excused"] > 0
    text = run(file, "--operations", 2 * OPERATIONS, "--faults", "all", "--rate", 20).decode()
    assert re.search(r"^  excused duplicates +[1-9]", text, re.M)
    assert "after contracts were broken" in text.splitlines()[-1]


def test_a_key_that_is_not_honoured_makes_excused_duplicates(registry):
    """The same registry and seed without that fault has none: it is this fault that makes them."""
    words = (registry, "--operations", 2 * OPERATIONS, "--tool", "charge.create", "--rate", 20)
    broken = judge(*words, "--faults", "contract,key_ignored")["total"]
    kept = judge(*words, "--faults", "contract")["total"]
    assert broken["duplicates"] == kept["duplicates"] == 0
    assert broken["duplicates_excused"] > kept["duplicates_excused"] == 0


def test_without_key_and_look_up_unknowns_go_to_the_operator(registry):
    report = judge(registry, "--operations", OPERATIONS, "--tool", "note.send")
    outcomes = tool(report, "note.send")["unknown_outcomes"]
    assert report["total"]["duplicates"] == 0
    assert outcomes["count"] > 0
    assert outcomes["operator"] + outcomes["open"] == outcomes["count"]
    assert outcomes["resend"] == outcomes["lookup"] == 0
    assert outcomes["resolved_without_human"] == 0
    assert report["total"]["reconciliation_ms"]["count"] == 0
    keyed = judge(registry, "--operations", OPERATIONS, "--tool", "charge.create")
    assert keyed["total"]["unknown_outcomes"]["resolved_without_human"] > 0.5


def test_the_figures_add_up(registry):
    report = judge(registry, "--operations", OPERATIONS)
    for part in [report["total"], *report["tools"]]:
        outcomes = part["unknown_outcomes"]
        assert sum(part["ends"].values()) == part["operations"]
        assert sum(outcomes[name] for name in ("resend", "lookup", "evidence", "operator", "open")) == outcomes["count"]
        requests = part["provider_requests"]
        extra = (requests["calls"] + requests["lookups"]) / part["operations"] - 1
        assert requests["extra_per_operation"] == pytest.approx(extra, abs=1e-5)
        contention = part["lock_contention"]
        busy = contention["stale"] + contention["joined"] + contention["held"]
        assert contention["rate"] == pytest.approx(busy / (contention["commits"] + part["calls"]), abs=1e-5)
        assert part["added_latency_ms"]["p50"] <= part["added_latency_ms"]["p99"] <= part["added_latency_ms"]["max"]
    for name in ("operations", "effects", "calls", "duplicates_without_key"):
        assert report["total"][name] == sum(tool[name] for tool in report["tools"])


def test_without_faults_nothing_is_in_doubt(registry):
    """What the figures are when nothing goes wrong: one request and one effect each, and the time of two commits."""
    report = judge(registry, "--operations", OPERATIONS, "--tool", "charge.create", "--faults", "retention")
    total = report["total"]
    assert total["unknown_outcomes"]["count"] == 0
    assert total["unknown_outcomes"]["resolved_without_human"] is None
    assert total["effects"] == total["operations"] == total["ends"]["success"] == total["provider_requests"]["calls"]
    assert 2 <= total["added_latency_ms"]["p50"] <= 10


# ---- the same report again ----

def test_equal_seeds_give_equal_bytes(registry, tmp_path):
    def forms(name, *words):
        page = tmp_path / name
        text = run(registry, "--operations", OPERATIONS, "--html", page, *words)
        return text, run(registry, "--operations", OPERATIONS, "--json", *words), page.read_bytes()

    first = forms("a.html", "--seed", 7)
    assert forms("b.html", "--seed", 7) == first
    assert forms("c.html", "--seed", 7, "--jobs", 3) == first
    other = forms("d.html", "--seed", 8)
    assert all(one != two for one, two in zip(first, other))


def test_the_command_in_the_report_gives_the_report(registry, tmp_path):
    first = run(registry, "--operations", 300, "--tool", "charge.create", "--rate", 9, "--gateways", 3, "--seed", 12345)
    command = re.search(r"^again: onced chaos (.*)$", first.decode(), re.M)[1]
    assert run(*command.split()) == first


# ---- forms ----

NUMBER, COUNT = (int, float), int
TIMES = dict.fromkeys(("count", "mean", "p50", "p90", "p99", "max"), COUNT)
FIGURES = {
    "operations": COUNT, "calls": COUNT, "effects": COUNT, "duplicates": COUNT, "duplicates_per_10000": NUMBER,
    "duplicates_excused": COUNT, "duplicates_without_key": COUNT,
    "unknown_outcomes": {"count": COUNT, "resend": COUNT, "lookup": COUNT, "evidence": COUNT, "operator": COUNT,
                         "open": COUNT, "resolved_without_human": NUMBER},
    "ends": dict.fromkeys(("success", "noop", "failed", "rejected", "operator", "open"), COUNT),
    "reconciliation_ms": TIMES,
    "false_dedupe": {"count": COUNT, "answers": COUNT, "rate": NUMBER},
    "missed_dedupe": {"count": COUNT, "repeats": COUNT, "rate": NUMBER},
    "lock_contention": {"commits": COUNT, "stale": COUNT, "joined": COUNT, "held": COUNT, "rate": NUMBER},
    "added_latency_ms": TIMES,
    "provider_requests": {"calls": COUNT, "lookups": COUNT, "extra_per_operation": NUMBER},
}
REPORT = {
    "onced": str, "file": str, "policy_version": str, "command": str, "seed": str, "gateways": COUNT, "rate_percent": COUNT,
    "worlds": COUNT, "crashes": COUNT, "incidents": COUNT, "simulated_ms": COUNT, "holds": bool, "violation": type(None),
    "trace": type(None), "model": str, "total": FIGURES, "tools": [{"name": str, "contract": str, **FIGURES}],
    "not_exercised": [{"name": str, "why": str}], "faults": [{"name": str, "breaks_contract": bool, "injected": COUNT}],
}


def assert_shape(value, shape, place="report"):
    if isinstance(shape, dict):
        assert list(value) == list(shape), place
        for name, inner in shape.items():
            assert_shape(value[name], inner, f"{place}.{name}")
    elif isinstance(shape, list):
        assert value, place
        for item in value:
            assert_shape(item, shape[0], f"{place}[]")
    else:
        assert isinstance(value, shape), place


def test_json_has_the_documented_members_in_order(registry):
    report = judge(registry, "--operations", 300)
    assert_shape(report, REPORT)
    page = (ROOT / "docs/chaos.md").read_text()
    names = set(REPORT) | set(FIGURES) | {name for part in FIGURES.values() if isinstance(part, dict) for name in part}
    assert [name for name in sorted(names) if f"`{name}" not in page] == []


class Page(html.parser.HTMLParser):
    """Counts elements and collects whatever could lead outside."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs
                            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster", "background")]
        self.references += [value for name, value in attrs if name.startswith("on") or (name == "style" and "url" in value)]

    def handle_data(self, data):
        self.text += data


def test_html_is_one_well_formed_file(registry, tmp_path):
    file = tmp_path / "report.html"
    report = judge(registry, "--operations", 300, "--html", file)
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n")
    ElementTree.fromstring(text.split("\n", 1)[1])  # every element is closed, every character escaped
    page = Page(text)
    assert page.references == []
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert "url(" not in text and "@import" not in text and "http-equiv" not in text
    assert page.tags.count("svg") >= 5
    assert "viewport" in text and "prefers-color-scheme:dark" in text and "@media print" in text
    for name in ("note.send", "charge.create", "level.set"):
        assert name in page.text
    assert report["command"] in page.text
    assert "/sku: no text can be made" in page.text


def test_names_are_escaped_in_html(tmp_path):
    file = tmp_path / "a<b>&'.yaml"
    file.write_text(REGISTRY)
    run(file, "--operations", 10, "--tool", "charge.create", "--html", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "a&lt;b&gt;&amp;&#39;.yaml" in text and "<b>&" not in text


# ---- arguments ----

def test_a_tool_that_cannot_be_exercised_is_named(registry):
    report = judge(registry, "--operations", 300)
    left_out = {item["name"]: item["why"] for item in report["not_exercised"]}
    assert set(left_out) == {"stock.reserve", "note.get"}
    assert left_out["stock.reserve"].startswith("/sku: no text can be made for pattern ^(?!x)[a-z]+$: a look-ahead")
    assert "not exercised: stock.reserve: /sku: " in run(registry, "--operations", 300).decode()
    told = run(registry, "--tool", "stock.reserve", status=UNUSABLE)
    assert "tool stock.reserve cannot be exercised: /sku: " in told and "--arguments" in told


def test_examples_make_it_possible(registry, tmp_path):
    examples = tmp_path / "examples.yaml"
    examples.write_text("stock.reserve:\n  - {sku: abc}\n  - {sku: def}\n")
    report = judge(registry, "--operations", 50, "--tool", "stock.reserve", "--arguments", examples)
    assert report["total"]["operations"] >= 50
    assert report["worlds"] >= 25  # two different intents are all that there are in each


def test_problems_of_the_examples_have_their_place(registry, tmp_path):
    examples = tmp_path / "examples.yaml"
    examples.write_text("stock.reserve:\n  - {sku: abc}\n  - 5\nnothing.here: []\n")
    told = run(registry, "--arguments", examples, status=UNUSABLE)
    assert f"{examples}:3:5: /stock.reserve/1: expected an argument object, got number" in told
    assert f"{examples}:4:1: /nothing.here: the registry has no such tool" in told
    examples.write_text("stock.reserve:\n  - {sku: xyz}\n")
    told = run(registry, "--arguments", examples, "--tool", "stock.reserve", status=UNUSABLE)
    assert "tool stock.reserve cannot be exercised: /sku: " in told


def test_few_different_intents_are_no_duplicates(registry):
    """A key with three values has three intents; each world has these three, and none is taken for another."""
    report = judge(registry, "--operations", OPERATIONS, "--tool", "level.set")
    assert report["worlds"] >= OPERATIONS // 4
    assert report["total"]["false_dedupe"]["count"] == 0
    assert report["total"]["duplicates"] == 0


# ---- what cannot be used ----

def test_a_registry_that_cannot_be_used_is_told_with_places(tmp_path):
    file = tmp_path / "onced.yaml"
    file.write_text("onced: 1\ntools:\n  pay: {class: quick}\n")
    told = run(file, status=UNUSABLE)
    assert re.search(rf"^{re.escape(str(file))}:3:\d+: /tools/pay/class: ", told, re.M)
    assert "cannot be opened" in run(tmp_path / "none.yaml", status=UNUSABLE)


@pytest.mark.parametrize("words, told", [
    (("--faults", "crash,net_lots"), "there is no fault 'net_lots'; expected contract, all or some of: crash, "),
    (("--rate", "0"), "--rate 0: expected a number from 1 to 100"),
    (("--operations", "many"), "--operations many: expected a number"),
    (("--gateways", "9"), "--gateways 9: expected a number from 1 to 8"),
    (("--tool", "note.sent"), "has no tool note.sent"),
    (("--tool", "note.get"), "has no tool that can be exercised: note.get: is a read"),
])
def test_command_lines_that_cannot_be_used(registry, words, told):
    assert told in run(registry, *words, status=UNUSABLE)


def test_a_report_that_cannot_be_written_is_no_success(registry, tmp_path):
    run(registry, "--operations", 10, "--tool", "charge.create", "--html", tmp_path / "none/report.html", status=BROKEN)
