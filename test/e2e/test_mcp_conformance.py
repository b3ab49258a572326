"""The official conformance suite of MCP. Control: the fixture server alone passes; then onced stands in front of it and hands
its tools through (class read, forwarded): nothing may be lost, in either era."""

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


def in_front_of(fixture):
    return {"fixture": {"mcp": {"url": fixture.url, "import": {"classes": {"*": "read"}, "forwarded": True}}}}


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
    onced = world.onced({}, providers=in_front_of(fixture))
    scored, unscored = run(f"http://127.0.0.1:{onced.port}/mcp", revision, tmp_path / "results")
    assert not scored
    assert set(unscored) <= ALONE_FAILS[revision]
