"""MCP counterparts: Node programs of test/mcp, the fixture server, and the conformance suite."""

import json
import os
import platform
import re
import subprocess
from pathlib import Path

from onced_e2e import binary
from onced_e2e.process import Process, environment

FOLDER = Path(__file__).resolve().parents[2] / "mcp"
MODULES = FOLDER / "node_modules"
ARCHITECTURE = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
NODE = MODULES / f"node-linux-{ARCHITECTURE}" / "bin" / "node"


def node_environment():
    """With our Node first: the packages' programs start "node" by name."""
    return {**environment(), "PATH": f"{NODE.parent}:{MODULES / '.bin'}:{os.environ['PATH']}"}


def program(package, entry):
    """argv of a package's program."""
    return [str(NODE), str(MODULES / package / entry)]


class Fixture:
    """The conformance suite's fixture server, written with the official SDK."""

    def __init__(self, folder):
        self.process = Process("fixture", folder / "fixture.log")

    def start(self):
        ready = self.process.start([str(NODE), str(FOLDER / "fixture" / "server.mjs")])
        self.url = ready["url"]
        return self

    def stop(self):
        self.process.kill()


def conformance(arguments, folder, seconds=120):
    """Runs the suite; {scenario: [check]} of what it wrote, and what it printed."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run([*program("@modelcontextprotocol/conformance", "dist/index.js"), *arguments, "-o", str(folder)],
                          capture_output=True, text=True, timeout=seconds, env=node_environment(), cwd=folder)
    checks = {}
    for file in sorted(folder.rglob("checks.json")):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(file.parent.relative_to(folder)).removeprefix("server-"))
        checks[name] = json.loads(file.read_text())
    return checks, done.stdout + done.stderr


def client_scenario(command, scenario, revision, folder, seconds=60):
    """One client scenario: exit status, {scenario: [check]}, what was printed."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run([*program("@modelcontextprotocol/conformance", "dist/index.js"), "client", "--command", command,
                           "--scenario", scenario, "--spec-version", revision, "-o", str(folder)],
                          capture_output=True, text=True, timeout=seconds, cwd=folder,
                          env={**node_environment(), "ONCED": str(binary.onced())})
    checks = {file.parent.name: json.loads(file.read_text()) for file in folder.rglob("checks.json")}
    return done.returncode, checks, done.stdout + done.stderr


def failures(checks):
    """[(scenario, check, message)] of what failed."""
    return [(scenario, check["id"], check.get("errorMessage"))
            for scenario, list_ in checks.items() for check in list_ if check["status"] == "FAILURE"]


def client_scenarios():
    """All client scenarios that the suite has."""
    done = subprocess.run([*program("@modelcontextprotocol/conformance", "dist/index.js"), "list"],
                          capture_output=True, text=True, timeout=60, env=node_environment())
    part = done.stdout.split("Client scenarios", 1)[1].split("Authorization server scenarios", 1)[0]
    return [line[4:].split()[0] for line in part.splitlines() if line.startswith("  - ")]


def required(revision):
    """The scored server scenarios of a requirement set."""
    done = subprocess.run([*program("@modelcontextprotocol/conformance", "dist/index.js"), "list", "--requirements", revision],
                          capture_output=True, text=True, timeout=60, env=node_environment())
    names = []
    for line in done.stdout.splitlines():
        if line.startswith(("Client scenarios", "Not scored")):
            break
        if line.startswith("  - "):
            names.append(line[4:].split()[0])
    assert names, done
    return names
