"""The configuration snippets of examples/clients, started as their clients would start them, with the real SDKs: two equal calls,
one effect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onced_e2e import binary, mcp, registry
from onced_e2e.registry import INTEGER, TEXT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "clients"
CLIENTS = mcp.FOLDER / "clients"
TOOL = "refund_create"
ARGUMENTS = json.dumps({"payment_id": "p1", "amount_cents": 2500})

CASES = {
    "claude-code.mcp.json": "example_config.py",
    "cursor.mcp.json": "example_config.py",
    "vscode.mcp.json": "example_config.py",
    "openai_agents.py": "example_openai_agents.py",
    "langchain_tools.py": "example_langchain.py",
}


def test_every_example_is_tried():
    assert sorted(path.name for path in EXAMPLES.iterdir() if path.is_file() and path.suffix in (".json", ".py")) == sorted(CASES)


@pytest.mark.parametrize("example", CASES)
def test_an_example_as_its_client_starts_it(tmp_path, provider, example):
    """In a folder with the registry file onced.yaml, and onced in the PATH."""
    tools = {TOOL: registry.write("refunds", {"payment_id": TEXT, "amount_cents": INTEGER}, keyed=False)}
    (tmp_path / "onced.yaml").write_text(registry.text(registry.file(provider.url, tools)))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "onced").symlink_to(binary.onced())
    environment = {**mcp.node_environment(), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    if example.startswith("langchain"):
        environment["PYTHONPATH"] = str(mcp.FOLDER / ".langchain")
    done = subprocess.run([sys.executable, "-B", str(CLIENTS / CASES[example]), str(EXAMPLES / example), TOOL, ARGUMENTS],
                          capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(said["told"]) == 2 and "already done" in said["told"][1], said
    assert provider.effects() == 1 and len(provider.writes()) == 1
