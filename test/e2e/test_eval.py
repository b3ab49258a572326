"""`onced eval`: the shipped scenarios hold, weakened registries are found out with the calls concerned, files that cannot be
used are told with every place."""

import json
import os
import re
import socket
import subprocess

import pytest

from onced_e2e import binary
from onced_e2e.figures import figure

ROOT = binary.ROOT
CORPUS = ROOT / "examples/eval"
NAMES = ["mail", "payments", "quickstart", "stripe", "tickets"]
HOLDS, FAILS, UNUSABLE = 0, 1, 2


def run(*words, cwd=None, **environment):
    inherited = {name: value for name, value in os.environ.items() if name not in ("STRIPE_KEY", "PAYMENTS_URL")}
    done = subprocess.run([binary.onced(), "eval", *map(str, words)], capture_output=True, text=True, cwd=cwd, timeout=60,
                          env={**inherited, **environment})
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
    return done


def judge(*words, status, **more):
    done = run("--json", *words, **more)
    assert done.returncode == status, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def scenario(folder, text, registry=ROOT / "examples/payments.yaml"):
    file = folder / "scenario.yaml"
    file.write_text(f"onced_eval: 1\nregistry: {registry}\ndefaults: {{tenant: acme, principal: agent}}\ngroups:\n{text}")
    return file


# ---- the shipped corpus ----

def test_corpus_has_no_collisions_and_no_splits():
    result = judge(*(CORPUS / f"{name}.yaml" for name in NAMES), status=HOLDS)
    assert result["ok"] and result["groups"] >= 200 and result["hold"] == result["groups"]
    assert result["collisions"] == result["splits"] == result["others"] == 0
    assert sorted(path.stem for path in CORPUS.glob("*.yaml")) == NAMES
    for file, name in zip(result["files"], NAMES):
        assert file["ok"] and file["groups"] >= 25 and file["problems"] == file["findings"] == []
        assert file["registry"] == str(CORPUS / f"../{name}.yaml") and re.fullmatch(r"[0-9a-f]{12}", file["policy_version"])
    figure("eval corpus", f"{result['groups']} groups over {len(NAMES)} registries: {result['collisions']} collisions, "
                          f"{result['splits']} splits, {result['others']} others")


def test_same_file_same_report_and_nothing_is_sent():
    with socket.socket() as provider:
        provider.bind(("127.0.0.1", 0))
        provider.listen()
        provider.setblocking(False)
        url = f"http://127.0.0.1:{provider.getsockname()[1]}"
        reports = {run("--all", "--json", CORPUS / "payments.yaml", PAYMENTS_URL=url).stdout for _ in range(2)}
        with pytest.raises(BlockingIOError):
            provider.accept()
    (report,) = reports
    (file,) = json.loads(report)["files"]
    assert len(file["details"]) == file["groups"] and all(group["holds"] for group in file["details"])
    assert all(len(group["calls"]) >= 1 for group in file["details"])


# registry, what is weakened (old text → new text), kind of finding, group that tells
WEAKENED = {
    "refund key without the amount": ("payments", '"refund:{payment_id}:{amount_cents}:v1"', '"refund:{payment_id}:v1"', "collision",
                                      "another amount of the same payment"),
    "refund key without the payment": ("payments", '"refund:{payment_id}:{amount_cents}:v1"', '"refund:{amount_cents}:v1"', "collision",
                                       "the same amount of another payment"),
    "refund key with the note": ("payments", '"refund:{payment_id}:{amount_cents}:v1"', '"refund:{payment_id}:{amount_cents}:{currency}:v1"',
                                 "split", "the same refund in another currency"),
    "payment ids as they come": ("payments", "payment_id: trim, amount_cents: integer, currency", "amount_cents: integer, currency", "split",
                                 "white space around the payment id, as copied from a mail"),
    "amounts as they come": ("payments", "amount_cents: integer, currency", "currency", "other", "a model puts the amount in quotes"),
    "the note counts": ("payments", "    volatile: [/note]", "    volatile: [/nothing]", "other", "the note to the customer is worded anew each time"),
    "currencies as they come": ("payments", "currency: [trim, lower], note", "note", "other", "the currency's default is left out or spelt out"),
    "results for their principal only": ("payments", '    key: "refund', '    share_result: principal\n    key: "refund', "other",
                                         "two agents of one tenant handle the same ticket"),
    "results for the whole tenant": ("payments", '    key: "refund', '    share_result: tenant\n    key: "refund', "collision",
                                     "the caller's key of another agent"),
    "other arguments get the old result": ("payments", '    key: "refund', '    on_mismatch: replay\n    key: "refund', "collision",
                                           "the caller's key with another payment, while the first is running"),
    "no repeats on purpose": ("payments", '    key: "refund', '    repeat: denied\n    key: "refund', "other", "one more equal refund on purpose"),
    "the caller's key required": ("payments", '    key: "refund', '    identity: caller\n    key: "refund', "other",
                                  "a framework retries with a new tool call id"),
    "charge key with the amount": ("stripe", '"charge:{order_id}:v1"', '"charge:{order_id}:{amount}:{currency}:v1"', "split", "dollars for cents"),
    "stripe refund key without the amount": ("stripe", '"refund:{charge}:{amount}:v1"', '"refund:{charge}:v1"', "collision",
                                             "the rest of the charge after a part"),
    "quick start without the payment": ("quickstart", '"refund:{payment_id}:{amount_cents}"', '"refund:{amount_cents}"', "collision",
                                        "other payments"),
    "no repeat window": ("mail", "repeat_window: 24h", "repeat_window: 0", "split", "the model repeats a message within the day"),
    "a longer repeat window": ("mail", "repeat_window: 24h", "repeat_window: 30h", "collision", "the same message again on the next day"),
    "addresses as they come": ("mail", "to: [trim, lower]", "to: trim", "split", "capitals in the address"),
    "copies as a list": ("mail", "      cc: sort\n", "", "split", "copies in another order, twice, in capitals"),
    "times as text": ("mail", "      send_at: timestamp\n", "", "split", "the same moment in other time zones"),
    "text without normal form": ("mail", "subject: [trim, collapse_space, nfc]", "subject: [trim, collapse_space]", "split",
                                 "a name with one code point for its accent, or two"),
    "not held while in doubt": ("mail", "while_in_doubt: hold", "while_in_doubt: allow", "split", "reworded after a time-out"),
    "steps told apart by arguments": ("mail", "    repeat_window", "    step_identity: per_arguments\n    repeat_window", "split",
                                      "the replayed step has another body"),
    "ticket key with the subject": ("tickets", '"ticket:{incident_id}:v1"', '"ticket:{incident_id}:{subject}:v1"', "split",
                                    "the subject is worded anew"),
    "the subject counts": ("tickets", "volatile: [/subject, /body]", "volatile: [/body]", "other", "a second agent sees the same incident"),
    "other incidents held": ("tickets", "while_in_doubt: allow", "while_in_doubt: hold", "other", "another incident is not held while one is unknown"),
    "small letters are other letters": ("tickets", "incident_id: [trim, upper]", "incident_id: trim", "other", "the incident in small letters"),
}


@pytest.mark.parametrize("name", WEAKENED)
def test_weakened_registry_is_found_out(tmp_path, name):
    """The corpus can fail: each rule of the example registries is weakened in turn."""
    example, old, new, kind, group = WEAKENED[name]
    text = (ROOT / f"examples/{example}.yaml").read_text()
    assert text.count(old) >= 1, "the example has changed"
    registry = tmp_path / "registry.yaml"
    registry.write_text(text.replace(old, new, 1))
    result = judge("--registry", registry, CORPUS / f"{example}.yaml", status=FAILS)
    findings = result["files"][0]["findings"]
    assert {kind} & {finding["kind"] for finding in findings if finding["group"] == group}, findings
    assert result["hold"] < result["groups"] and not result["ok"]


def test_bad_key_template_is_reported_with_the_two_calls(tmp_path):
    text = (ROOT / "examples/payments.yaml").read_text()
    registry = tmp_path / "registry.yaml"
    registry.write_text(text.replace("refund:{payment_id}:{amount_cents}:v1", "refund:{payment_id}:v1"))
    file = scenario(tmp_path, """
  - name: two parts of one payment
    tool: refund.create
    arguments: {payment_id: pay_1, amount_cents: 4900}
    distinct:
      - {}
      - {with: {amount_cents: 100}}
""", registry)
    result = judge(file, status=FAILS)
    (finding,) = result["files"][0]["findings"]
    assert finding["kind"] == "collision" and finding["group"] == "two parts of one payment" and finding["expected"] == "distinct"
    first, second = finding["calls"]
    assert [first["number"], second["number"]] == [1, 2] and [first["line"], second["line"]] == [10, 11]
    assert first["key"] == second["key"] == "refund:pay_1:v1" and first["key_source"] == "business"
    assert first["operation_id"] == second["operation_id"] and first["fingerprint"] != second["fingerprint"]
    assert (first["answer"], second["answer"]) == ("opened", "conflict")
    assert second["arguments"] == {"payment_id": "pay_1", "amount_cents": 100, "currency": "eur"}
    assert "refund:{payment_id}:v1" in finding["why"] and "/amount_cents (4900, 100)" in finding["why"]
    told = run(file)
    assert told.returncode == FAILS and told.stderr == ""
    for part in (f"{file}:6:5: collision: two parts of one payment", "call 1, line 10: refund.create", "call 2, line 11: refund.create",
                 "key refund:pay_1:v1 (business)", f"why: {finding['why']}", "1 group, 0 hold: 1 collision, 0 splits, 0 others"):
        assert part in told.stdout, told.stdout
    figure("eval bad key", f"{finding['kind']}: {json.dumps(first['arguments'])} and {json.dumps(second['arguments'])} have key {first['key']}")


# ---- reasons ----

SEND = "tool: message.send, arguments: {to: a@b.c, subject: s, body: b}"
REFUND = "tool: refund.create, arguments: {payment_id: p, amount_cents: 1}"
# registry, members of the group, kind, words of the reason
REASONS = {
    "two tools": ("payments", f"{REFUND}, same: [{{}}, {{tool: charge.create, arguments: {{order_id: o, payment_id: p, amount_cents: 1}}}}]",
                  "split", ["refund.create and charge.create are two tools"]),
    "two tenants": ("payments", f"{REFUND}, same: [{{}}, {{tenant: b}}]", "split", ["tenants acme and b share no operations"]),
    "repeat_of": ("payments", f"{REFUND}, same: [{{}}, {{repeat_of: 1}}]", "split", ["call 2 asks for one more"]),
    "sources": ("payments", f"{REFUND}, same: [{{}}, {{idempotency_key: k}}]", "split",
                ["call 1 is known by key refund:p:1:v1 (business)", "call 2 by key k (caller)"]),
    "caller keys": ("payments", f"{REFUND}, same: [{{idempotency_key: a}}, {{idempotency_key: b}}]", "split", ["keys a and b"]),
    "one caller key": ("payments", f"{REFUND}, idempotency_key: k, distinct: [{{}}, {{}}]", "collision", ["both carry the caller's key k"]),
    "caller and business key": ("payments", f"{REFUND}, distinct: [{{}}, {{idempotency_key: 'refund:p:1:v1'}}]", "collision",
                                ["(business)", "(caller)", "one space"]),
    "versions": ("payments", f"{REFUND}, idempotency_key: k, same: [{{after: failed_permanent}}, {{with: {{amount_cents: 2}}}}]", "split",
                 ["ended without an effect", "/amount_cents (1, 2)", "next version"]),
    "runs": ("mail", f"{SEND}, step_id: s, same: [{{run_id: a}}, {{run_id: b}}]", "split", ["run a and b"]),
    "steps": ("mail", f"{SEND}, run_id: r, same: [{{step_id: a}}, {{step_id: b}}]", "split", ["step a and b"]),
    "one step": ("mail", f"{SEND}, run_id: r, step_id: x, distinct: [{{}}, {{with: {{body: c}}}}]", "collision",
                 ["both are step x of run r", "per_step", "refused as a conflict"]),
    "call ids": ("mail", f"{SEND}, session_id: s, same: [{{call_id: a}}, {{call_id: b}}]", "split", ["call id a and b"]),
    "one call id": ("mail", f"{SEND}, session_id: s, call_id: a, distinct: [{{}}, {{}}]", "collision", ["both carry call id a of session s"]),
    "arguments": ("mail", f"{SEND}, same: [{{}}, {{with: {{cc: [d@e.f]}}}}]", "split", ["no key", '/cc ([], ["d@e.f"])']),
    "window is over": ("mail", f"{SEND}, same: [{{}}, {{at: 25h}}]", "split", ["call 2 comes 25h after call 1", "repeat_window 24h"]),
    "within the window": ("mail", f"{SEND}, distinct: [{{}}, {{at: 1h}}]", "collision", ["equal arguments", "within repeat_window 24h"]),
    "not delivered": ("mail", f"{SEND}, distinct: [{{caller: gone}}, {{at: 9d}}]", "collision", ["finished but not delivered"]),
    "unknown": ("mail", f"{SEND}, distinct: [{{after: unknown_outcome}}, {{}}]", "collision", ["was unknown_outcome"]),
    "principals": ("mail", f"{SEND}, same: [{{}}, {{principal: b}}]", "split", ["principal agent and b"]),
    "sessions": ("mail", f"{SEND}, same: [{{session_id: a}}, {{session_id: b}}]", "split", ["session a and b"]),
    "not shared": ("payments", f"{REFUND}, idempotency_key: k, distinct: [{{}}, {{principal: b}}]", "collision", ["belongs to another principal"]),
    "held": ("mail", f"{SEND}, distinct: [{{after: unknown_outcome}}, {{with: {{body: c}}}}]", "other", ["is held", "unknown_outcome"]),
    "refused": ("payments", f"{REFUND}, same: [{{}}, {{without: [payment_id]}}]", "other", ["is refused", "payment_id"]),
    "conflict": ("payments", f"{REFUND}, same: [{{}}, {{with: {{currency: usd}}}}]", "other", ["meets a conflict", "/currency"]),
    "not refused": ("payments", f"{REFUND}, refused: [{{}}]", "other", ["call 1 opens an operation"]),
    "refused for something else": ("payments", f"{REFUND}, because: currency, refused: [{{without: [payment_id]}}]", "other",
                                   ['not because of "currency"', "payment_id"]),
    "a state that cannot be": ("payments", f"{REFUND}, same: [{{}}, {{after: unknown_outcome}}]", "other",
                               ["completed_success and does not become unknown_outcome"]),
    "an operation that is none": ("payments", f"{REFUND}, before: [{{without: [payment_id]}}], same: [{{distinct_from: 1}}, {{}}]", "other",
                                  ["call 1 has no operation that could be named"]),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons(tmp_path, name):
    example, members, kind, words = REASONS[name]
    file = scenario(tmp_path, f"  - {{name: g, {members}}}\n", ROOT / f"examples/{example}.yaml")
    finding = judge(file, status=FAILS)["files"][0]["findings"][0]
    assert finding["kind"] == kind, finding
    assert all(word in finding["why"] for word in words), finding["why"]


# ---- files ----

BAD = """onced_eval: 2
registri: x
defaults: {tenant: 1, priincipal: a, run_id: 7}
groups:
  - name: a
    tool: refund.create
    same: [{}]
  - nam: b
    same: [{}, {}]
    distinct: [{}, {}]
  - name: c
    because: x
    same: [{at: 5m}, {at: 1m, after: done, repeat_of: 2, distinct_from: [next], without: [x], with: 3}]
  - 7
"""
PLACES = [
    "1:1: /onced_eval: expected 1, found 2",
    '2:1: /registri: unknown member "registri", did you mean "registry"?',
    "3:12: /defaults/tenant: expected a text, found 1",
    '3:23: /defaults/priincipal: unknown member "priincipal", did you mean "principal"?',
    "3:38: /defaults/run_id: expected a text",
    "7:5: /groups/0/same: expected a list of 2 to 32 calls",
    '8:5: /groups/1/nam: unknown member "nam", did you mean "name"?',
    "8:5: /groups/1/name: is missing",
    "10:5: /groups/1/distinct: a group expects one thing",
    "9:12: /groups/1/same/0/tool: is missing",
    "12:5: /groups/2/because: only calls that are turned away",
    "13:23: /groups/2/same/1/at: calls stand in the order of their arrival",
    '13:31: /groups/2/same/1/after: expected one of completed_success, ',
    "13:44: /groups/2/same/1/repeat_of: there is no such earlier call",
    "13:74: /groups/2/same/1/distinct_from/0: expected previous, ",
    "13:91: /groups/2/same/1/without/0: there is no argument of this name",
    "13:95: /groups/2/same/1/with: expected a mapping",
    "14:5: /groups/3: expected a mapping, found 7",
]


def test_all_problems_of_a_file_at_once(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = run(file)
    assert done.returncode == UNUSABLE and done.stdout == ""
    for place in PLACES:
        assert f"{file}:{place}" in done.stderr, (place, done.stderr)
    problems = judge(file, status=UNUSABLE)["files"][0]["problems"]
    assert len(problems) == len(done.stderr.splitlines())
    assert set(problems[0]) == {"file", "line", "column", "pointer", "severity", "message"}


def test_tools_are_those_of_the_registry(tmp_path):
    file = scenario(tmp_path, "  - {name: a, tool: refund.creat, same: [{}, {}]}\n  - {name: b, tool: refund.get, same: [{}, {}]}\n")
    done = run(file)
    assert done.returncode == UNUSABLE
    assert f'{file}:5:15: /groups/0/tool: the registry has no tool "refund.creat", did you mean "refund.create"?\n' in done.stderr
    assert f"{file}:6:15: /groups/1/tool: refund.get is a read" in done.stderr


@pytest.mark.parametrize("text, told", [
    ("", "the file is empty"),
    ("groups: [", "1:"),
    ("onced_eval: 1\nregistry: r.yaml\ngroups: []\n", "3:1: /groups: expected a list of 1 to"),
    ("onced_eval: 1\ngroups: [{name: a, tool: t, same: [{}, {}]}]\n", "names no registry"),
    ("onced_eval: 1\nregistry: none.yaml\ngroups: [{name: a, tool: t, same: [{}, {}]}]\n", "none.yaml: cannot be opened"),
    ("onced_eval: 1\nregistry: scenario.yaml\ngroups: [{name: a, tool: t, same: [{}, {}]}]\n", "/onced_eval: unknown member"),
])
def test_files_that_cannot_be_used(tmp_path, text, told):
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    done = run(file)
    assert done.returncode == UNUSABLE and told in done.stderr, done.stderr
    assert judge(file, status=UNUSABLE)["ok"] is False


def test_worst_status_of_several_files(tmp_path):
    good, bad = CORPUS / "quickstart.yaml", tmp_path / "none.yaml"
    fails = scenario(tmp_path, f"  - {{name: g, {REFUND}, distinct: [{{}}, {{}}]}}\n")
    assert run(good, good).returncode == HOLDS
    done = run(good, fails)
    assert done.returncode == FAILS and done.stdout.splitlines()[-1].startswith("2 files: 28 groups, 27 hold: 1 collision")
    assert run(good, fails, bad).returncode == UNUSABLE
    assert run().returncode == UNUSABLE and run("--nope", good).returncode == UNUSABLE
    assert run(tmp_path).returncode == UNUSABLE


def test_registry_is_found_beside_the_file_wherever_one_stands(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "payments.yaml").write_text((ROOT / "examples/payments.yaml").read_text())
    file = scenario(tmp_path / "sub", f"  - {{name: g, {REFUND}, same: [{{}}, {{}}]}}\n", "../payments.yaml")
    assert run("sub/scenario.yaml", cwd=tmp_path).returncode == HOLDS
    assert run(file, cwd="/").returncode == HOLDS
    assert run("scenario.yaml", cwd=tmp_path / "sub").returncode == HOLDS
    assert run("--registry", "payments.yaml", "sub/scenario.yaml", cwd=tmp_path).returncode == HOLDS


def test_all_shows_groups_that_hold(tmp_path):
    file = scenario(tmp_path, f"  - {{name: g, {REFUND}, same: [{{}}, {{principal: b}}]}}\n")
    told = run("--all", file).stdout
    assert f"{file}:5:5: holds: g (expected: same)" in told and "by b of acme" in told
    assert "is taken for the same operation" in told and "why:" not in told
    assert "holds: g" not in run(file).stdout


def test_documented_members_are_the_ones_there_are(tmp_path):
    """The reader's own lists of members against docs/eval.md."""
    page = (ROOT / "docs/eval.md").read_text()
    file = tmp_path / "scenario.yaml"
    strange = "notamemberofanything: 1"
    file.write_text(f"onced_eval: 1\n{strange}\ndefaults: {{{strange}}}\ngroups:\n  - {{name: g, tool: t, {strange}, same: [{{{strange}}}, {{}}]}}\n")
    lists = re.findall(r'unknown member "notamemberofanything", expected one of (.*)', run(file).stderr)
    assert len(lists) == 4
    members = {member for line in lists for member in line.split(", ")}
    assert {"registry", "same", "with", "session_id"} < members
    for member in members:
        assert f"`{member}`" in page or f"{member}:" in page, member
    for state in re.search(r"expected one of (.*), found", run(bad_state(tmp_path)).stderr).group(1).split(", "):
        assert f"`{state}`" in page, state


def bad_state(folder):
    return scenario(folder, f"  - {{name: g, {REFUND}, same: [{{after: none}}, {{}}]}}\n")


# ---- multi-step tools ----

def test_steps_are_answered_as_their_call_is_to_end(tmp_path):
    order = "{order_id: o1, sku: abc, quantity: 1, amount_cents: 500, payment_id: p1, email: a@example.com}"
    file = scenario(tmp_path, f"""
  - {{name: written otherwise, tool: order.place, arguments: {order}, same: [{{}}, {{with: {{sku: " ABC ", quantity: 1.0}}, at: 2h}}]}}
  - {{name: two orders, tool: order.place, arguments: {order}, distinct: [{{}}, {{with: {{order_id: o2}}}}]}}
  - {{name: another quantity, tool: order.place, arguments: {order}, conflict: [{{}}, {{with: {{quantity: 2}}}}]}}
""", ROOT / "examples/order.yaml")
    result = judge(file, status=HOLDS)
    assert result["hold"] == 3 and result["others"] == 0, result
