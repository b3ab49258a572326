#!/usr/bin/env python3
"""`make bench-mcp`: what an MCP tools/call through onced costs, over the same call without onced, in one run on one machine.

A fast MCP server stands behind onced, over stdio and over HTTP; the load generator posts modern tools/call requests to onced's
/mcp, and the same requests to the server itself over HTTP. Nothing is asserted: figures only. CPU of onced is user + system time
of its process from /proc; nginx as a plain proxy before the server tells what a call costs on this machine. Python standard
library only."""

import argparse
import http.client
import json
import os
import shutil
import subprocess
import tempfile

from bench import NGINX, children, cpu_s, free_port, say, stop, wait_ready

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def request(tool):
    """Body and headers of a call; {run} and {n} are the load generator's."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {"n": "{run}-{n}"}, "_meta": META}}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
               "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
    return json.dumps(body), headers


def load_options(tool):
    body, headers = request(tool)
    argv = ["--method", "POST", "--path", "/mcp", "--body", body]
    for name, text in headers.items():
        argv += ["--header", f"{name}: {text}"]
    return argv


def try_once(port, tool):
    """The load generator only sees the HTTP status: an error within the answer would be fast and worthless."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/mcp", *request(tool))
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.status != 200 or '"value"' not in text:
        raise SystemExit(f"bench: {tool}: {answer.status} {text}")


class Bench:
    def __init__(self, options, folder):
        self.build, self.onced, self.nginx = options.build, options.onced, options.nginx
        self.seconds, self.connections, self.folder = options.seconds, options.connections, folder

    def load(self, port, tool, run, pids=()):
        """Requests per second, and CPU µs of these processes per request over all of them."""
        try_once(port, tool)
        before = sum(cpu_s(pid) for pid in pids)
        done = subprocess.run([f"{self.build}/test/bench/load", "--port", str(port), "--connections", str(self.connections),
                               "--seconds", str(self.seconds), "--warm", "1", "--run", run, *load_options(tool)],
                              capture_output=True, text=True, check=True)
        figures = json.loads(done.stdout)
        used = sum(cpu_s(pid) for pid in pids) - before
        assert figures["errors"] == 0, figures
        return {"per_second": figures["per_second"], "p50_us": figures["p50_us"], "p99_us": figures["p99_us"],
                "cpu_us": used * 1e6 / figures["finished"]}

    def through_nginx(self, server):
        """None where nginx is not installed."""
        if not shutil.which(self.nginx):
            return None
        port = free_port()
        path = os.path.join(self.folder, "nginx.conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write(NGINX.format(folder=self.folder, port=port, provider=server))
        child = subprocess.Popen([self.nginx, "-c", path, "-p", self.folder], stderr=subprocess.DEVNULL)
        try:
            wait_ready(port, "/mcp", child)
            return self.load(port, "write_value", "n", children(child.pid))
        finally:
            stop(child)

    def through_onced(self, name, section):
        file = os.path.join(self.folder, f"{name}.yaml")
        mcp = {**section, "import": {"unclassified": "read_only_hints"}}
        registry = {"onced": 1, "server": {"listen": "127.0.0.1:0", "log": "error"}, "ledger": {"path": f"{name}.db"},
                    "providers": {"bench": {"mcp": mcp, "connections": 64}}}
        passed = {**registry, "providers": {"bench": {"mcp": {**mcp, "import": {**mcp["import"], "forwarded": ["read_*"]}},
                                                       "connections": 64}}}
        figures = {}
        for how, contents in (("", registry), (", handed through", passed)):
            with open(file, "w", encoding="utf-8") as out:
                json.dump(contents, out)
            child = subprocess.Popen([self.onced, "serve", file], stdout=subprocess.PIPE, text=True)
            try:
                port = json.loads(child.stdout.readline())["port"]
                wait_ready(port, "/healthz", child)
                figures[f"read over {name}{how}"] = self.load(port, "read_value", "r", [child.pid])
                if not how:
                    figures[f"protected write over {name}"] = self.load(port, "write_value", name, [child.pid])
            finally:
                stop(child)
        return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=os.path.abspath)
    parser.add_argument("--onced", default=os.environ.get("ONCED"))
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--json")
    options = parser.parse_args()
    server = f"{options.build}/test/bench/mcp_server"
    figures = {}
    with tempfile.TemporaryDirectory(prefix="onced-bench-mcp-") as folder:
        bench = Bench(options, folder)
        direct = subprocess.Popen([server, "0"], stdout=subprocess.PIPE, text=True)
        try:
            port = json.loads(direct.stdout.readline())["port"]
            say("without onced")
            figures["without onced"] = bench.load(port, "write_value", "d")
            say("through nginx")
            nginx = bench.through_nginx(port)
            if nginx:
                figures["through nginx"] = nginx
            say("over HTTP")
            figures |= bench.through_onced("http", {"url": f"http://127.0.0.1:{port}/mcp"})
        finally:
            direct.kill()
            direct.wait()
        say("over stdio")
        figures |= bench.through_onced("stdio", {"command": [server]})
    print(f"{'':<38}{'calls/s':>10}{'p50 µs':>10}{'p99 µs':>10}{'CPU µs of the proxy':>22}")
    for name, row in figures.items():
        print(f"{name:<38}{row['per_second']:>10.0f}{row['p50_us']:>10.0f}{row['p99_us']:>10.0f}{row['cpu_us']:>22.1f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(figures, out)


main()
