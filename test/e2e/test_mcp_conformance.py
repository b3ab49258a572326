"""The official conformance suite of MCP. Control: the fixture server alone passes; then onced stands in front of it and hands
its tools through (class read, forwarded): nothing may be lost, in either era."""

import re

import pytest

from onced_e2e import mcp

REVISIONS = {"2025-11-25": 30, "2026-07-28": 37}
# Not scored, and not passed by the SDK's own server alone either: it has no tasks extension and leaves the checks of its tools'
# own headers to others.
ALONE_FAILS = {"2025-11-25": set(),
               "2026-07-28": {"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal",
                              "tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope",
                              "tasks-required-task-error", "tasks-mrtr-composition", "http-custom-header-server-validation"}}


@pytest.fixture
def fixture(tmp_path, processes):
    fixture = mcp.Fixture(tmp_path)
    processes.append(fixture.process)
    yield fixture.start()
    fixture.stop()


def in_front_of(fixture, revision):
    """The fixture's tools differ by era, so onced speaks the client's era downwards, too."""
    return {"fixture": {"mcp": {"url": fixture.url, "protocol": revision, "import": {"classes": {"*": "read"}, "forwarded": True}}}}


def run(url, revision, folder):
    checks, printed = mcp.conformance(["server", "--url", url, "--requirements", revision], folder)
    failed = mcp.failures(checks)
    required = mcp.required(revision)
    missing = [name for name in required if not any(name == each for each in checks)]
    scored = [each for each in failed if each[0] in required]
    unscored = sorted({each[0] for each in failed} - set(required))
    print(f"\n{revision}: {len(required) - len({each[0] for each in scored})} of {len(required)} required scenarios pass; "
          f"unscored that fail: {', '.join(unscored) or 'none'}")
    assert len(required) == REVISIONS[revision]
    assert not missing, printed[-3000:]
    return scored, unscored


@pytest.mark.parametrize("revision", REVISIONS)
def test_control(fixture, tmp_path, revision):
    scored, unscored = run(fixture.url, revision, tmp_path / "results")
    assert not scored
    assert set(unscored) == ALONE_FAILS[revision]


@pytest.mark.parametrize("revision", REVISIONS)
def test_through_onced(world, fixture, tmp_path, revision):
    onced = world.onced({}, providers=in_front_of(fixture, revision))
    scored, unscored = run(f"http://127.0.0.1:{onced.port}/mcp", revision, tmp_path / "results")
    assert not scored
    assert set(unscored) <= ALONE_FAILS[revision]


def test_auth_scenarios_are_named():
    """onced does no OAuth towards servers: the suite's auth scenarios fail, and docs/mcp.md says so of each by name."""
    listed = mcp.client_scenarios()
    named = set(re.findall(r"`(auth/[a-z0-9-]+)`", (mcp.FOLDER.parents[1] / "docs" / "mcp.md").read_text()))
    auth = {name for name in listed if name.startswith("auth/")}
    assert len(auth) > 30 and named == auth


CLIENT_SCENARIOS = [
    ("initialize", "2025-11-25"),
    ("tools_call", "2025-11-25"),
    ("tools_call", "2026-07-28"),
    ("elicitation-sep1034-client-defaults", "2025-11-25"),
    ("sse-retry", "2025-11-25"),
    ("request-metadata", "2026-07-28"),
    ("http-standard-headers", "2026-07-28"),
    ("http-custom-headers", "2026-07-28"),
    ("http-invalid-tool-headers", "2026-07-28"),
    ("json-schema-ref-no-deref", "2026-07-28"),
    ("json-schema-2020-12-preservation", "2025-11-25"),
    ("json-schema-2020-12-preservation", "2026-07-28"),
    ("sep-2322-client-request-state", "2026-07-28"),
]


@pytest.mark.parametrize(("scenario", "revision"), CLIENT_SCENARIOS)
def test_client_side(tmp_path, scenario, revision):
    """onced as the client of the suite's server; the official SDK's client drives it from the other side."""
    command = f"{mcp.NODE} {mcp.FOLDER / 'client' / 'driver.mjs'}"
    status, checks, printed = mcp.client_scenario(command, scenario, revision, tmp_path / "results")
    assert checks, printed
    assert not mcp.failures(checks), printed[-3000:]
    assert status == 0, printed[-3000:]
