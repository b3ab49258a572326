"""Real MCP clients before onced, the fault-injecting provider behind it. For each: the answer to one call is lost on its way to
the client, the client retries in its own way, and a model-like second call follows. Judged by the provider's count; printed is
what the model gets to read."""

import json
import subprocess
import sys

import pytest

from onced_e2e import mcp, registry
from onced_e2e.lossy import Lossy
from onced_e2e.registry import INTEGER, TEXT

TOOL = "refund_create"
ARGUMENTS = {"payment_id": "p1", "amount_cents": 2500}
CLIENTS = mcp.FOLDER / "clients"

PROGRAMS = {
    "typescript sdk 1": [str(mcp.NODE), str(CLIENTS / "sdk.mjs"), "v1"],
    "typescript sdk 2, legacy": [str(mcp.NODE), str(CLIENTS / "sdk.mjs"), "legacy"],
    "typescript sdk 2, modern": [str(mcp.NODE), str(CLIENTS / "sdk.mjs"), "modern"],
    "python mcp": [sys.executable, str(CLIENTS / "python_mcp.py")],
    "python fastmcp": [sys.executable, str(CLIENTS / "python_fastmcp.py")],
    "openai-agents, retries set": [sys.executable, str(CLIENTS / "python_openai_agents.py")],
    "langchain-mcp-adapters with langgraph": [sys.executable, str(CLIENTS / "python_langgraph.py")],
    "vercel ai sdk, retries on": [str(mcp.NODE), str(CLIENTS / "ai_sdk.mjs")],
}


def tools(**more):
    return {TOOL: registry.write("refunds", {"payment_id": TEXT, "amount_cents": INTEGER}, keyed=False, **more)}


@pytest.fixture
def onced(world):
    return world.onced(tools())


@pytest.fixture
def lossy(onced):
    proxy = Lossy(onced.port)
    yield proxy
    proxy.close()


def run(argv, seconds=60):
    environment = mcp.node_environment()
    if any("langgraph" in part for part in argv):
        environment["PYTHONPATH"] = str(mcp.FOLDER / ".langchain")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, env=environment, cwd=mcp.FOLDER)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("client", PROGRAMS)
def test_an_answer_is_lost(onced, provider, lossy, client):
    lossy.lose = 1
    told = run([*PROGRAMS[client], f"http://127.0.0.1:{lossy.port}/mcp", TOOL, json.dumps(ARGUMENTS)])
    print(f"\n{client}: {lossy.calls} tools/call requests\n  first:  {told['first']}\n  second: {told['second']}")
    assert lossy.lost == 1
    assert provider.effects() == 1 and len(provider.writes()) == 1, provider.requests()
    assert len(onced.operations()) == 1
    text = told["second"].get("text", "")
    operation = onced.operations()[0]["operation_id"]
    assert operation in text and "repeat_of" in text, told  # already done, and how to do it once more on purpose


# One client of each family is enough where no answer is lost: what is tested is what the model reads.
@pytest.mark.parametrize("client", ["typescript sdk 2, modern", "python mcp", "vercel ai sdk, retries on"])
def test_the_outcome_is_unknown(world, provider, client):
    """The provider commits and says nothing; the look-up cannot see the effect until after the callers' wait."""
    onced = world.onced(tools(settle="4s", wait="700ms"))
    provider.config(propagation_ms=3000)
    provider.script("timeout_after")
    told = run([*PROGRAMS[client], f"http://127.0.0.1:{onced.port}/mcp", TOOL, json.dumps(ARGUMENTS)])
    print(f"\n{client}\n  first:  {told['first']}\n  second: {told['second']}")
    assert onced.settled(onced.operations()[0]["operation_id"]).state == "completed_success"
    assert provider.effects() == 1 and len(provider.writes()) == 1, provider.requests()
    for answer in told.values():
        assert "error" not in answer, told  # nothing that invites another try
    assert "not done" not in told["first"]["text"] and "onced_wait" in told["first"]["text"], told


# ---- the inspector's command line ----


def inspect(url, era, *arguments, seconds=60):
    done = subprocess.run([*mcp.program("@modelcontextprotocol/inspector", "clients/launcher/build/index.js"), "--cli", url, "--transport", "http",
                           "--protocol-era", era, *arguments],
                          capture_output=True, text=True, timeout=seconds, env=mcp.node_environment(), cwd=mcp.FOLDER)
    return done


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_calls_twice(onced, provider, lossy, era):
    lossy.lose = 1
    call = ["--method", "tools/call", "--tool-name", TOOL, "--tool-arg", "payment_id=p1", "--tool-arg", "amount_cents=2500"]
    first = inspect(f"http://127.0.0.1:{lossy.port}/mcp", era, *call)
    second = inspect(f"http://127.0.0.1:{lossy.port}/mcp", era, *call)
    print(f"\ninspector, {era}\n  first:  {first.returncode} {first.stderr.strip()[-300:]}\n  second: {second.stdout.strip()[-600:]}")
    assert second.returncode == 0, second
    assert lossy.lost == 1 and provider.effects() == 1 and len(provider.writes()) == 1
    assert onced.operations()[0]["operation_id"] in second.stdout


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_loads(world, provider, era):
    """--load: many calls at once of one tool, all of one intent."""
    onced = world.onced(tools())
    done = inspect(f"http://127.0.0.1:{onced.port}/mcp", era, "--method", "tools/call", "--tool-name", TOOL,
                   "--tool-arg", "payment_id=p1", "--tool-arg", "amount_cents=2500",
                   "--load", "--load-concurrency", "32", "--load-requests", "400")
    print(f"\ninspector --load, {era}: {done.stdout.strip()[-700:]}")
    assert done.returncode == 0, done
    assert provider.effects() == 1 and len(provider.writes()) == 1
