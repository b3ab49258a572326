#!/usr/bin/env python3
"""`make bench`: how fast protected calls are, and what they cost compared with no protection, in one run on one machine.

Starts the fault-injecting provider (faults off), nginx as a plain proxy to it, and onced with a SQLite ledger in a temporary
folder on a real disk, default settings; drives each with the same load generator. Nothing is asserted: figures only. CPU of
onced is user + system time of its process (both threads) from /proc. Python standard library only."""

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TICKS = os.sysconf("SC_CLK_TCK")
BODY = '{"payment_id":"{run}-{n}","amount_cents":4900,"note":"customer asked"}'
DIRECT = ["--method", "POST", "--path", "/v1/refunds", "--body",
          '{"payment_id":"{run}-{n}","amount_cents":4900,"note":"customer asked","metadata":{"operation":"{run}-{n}"}}',
          "--header", "Idempotency-Key: {run}-{n}"]
CALL = ["--method", "POST", "--path", "/v1/calls", "--body",
        '{"tool":"refund.create","arguments":' + BODY + ',"idempotency_key":"{run}-{n}"}']

REGISTRY = """\
onced: 1
server: {{listen: 127.0.0.1:{port}, log: error}}
ledger: {{path: bench.db}}
providers:
  payments:
    base_url: http://127.0.0.1:{provider}
    key: {{header: Idempotency-Key, retention: 24h, in_use: [409], mismatch: [422]}}
tools:
  refund.create:
    class: external_idempotent
    provider: payments
    input_schema:
      type: object
      required: [payment_id, amount_cents]
      additionalProperties: false
      properties:
        payment_id: {{type: string, minLength: 1}}
        amount_cents: {{type: integer, minimum: 1}}
        note: {{type: string}}
    request:
      method: POST
      path: /v1/refunds
      json: {{payment_id: "{{payment_id}}", amount_cents: "{{amount_cents}}", note: "{{note}}", metadata: {{operation: "{{$operation}}"}}}}
    response: {{success: [200, 201], external_id: /id}}
    verify: {{/payment_id: "{{payment_id}}", /amount_cents: "{{amount_cents}}"}}
    lookup:
      request: {{method: GET, path: /v1/refunds, query: {{reference: "{{$operation}}", limit: "100"}}}}
      items: /data
      match: {{/metadata/operation: "{{$operation}}"}}
      next: {{cursor: /next_cursor, query: cursor}}
      external_id: /id
  refund.get:
    class: read
    provider: payments
    input_schema: {{type: object, required: [id], properties: {{id: {{type: string, minLength: 1}}}}}}
    request: {{method: GET, path: "/v1/refunds/{{id}}"}}
"""

NGINX = """\
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  upstream provider {{ server 127.0.0.1:{provider}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, method, path, body=None, timeout=5):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def wait_ready(port, path, child, seconds=20):
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        if child.poll() is not None:
            raise SystemExit("bench: a program ended at its start; see above")
        try:
            if ask(port, "GET", path)[0] < 500:
                return (time.monotonic() - begin) * 1000
        except OSError:
            pass
        time.sleep(0.001)
    raise SystemExit("bench: a program is not ready after 20 s")


def stop(child):
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(60)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout:
        child.stdout.close()


# ---- what /proc knows ----


def cpu_s(pid):
    """User and system time of the process, all threads."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def memory_kb(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1])
    return 0


def file_system(folder):
    """Type of the file system that holds folder."""
    best, kind = "", "unknown"
    with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
        for line in file:
            _, place, found, *_ = line.split()
            if (folder + "/").startswith(place.rstrip("/") + "/") and len(place) > len(best):
                best, kind = place, found
    return kind


def fsync_us(folder, times=200):
    """Append 4 KiB and fdatasync: what a commit waits for at least."""
    path, taken = os.path.join(folder, "fsync"), []
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.posix_fallocate(file, 0, 4096 * times)
        os.fsync(file)
        for i in range(times):
            begin = time.perf_counter()
            os.pwrite(file, b"x" * 4096, 4096 * i)
            os.fdatasync(file)
            taken.append((time.perf_counter() - begin) * 1e6)
    finally:
        os.close(file)
        os.unlink(path)
    return {"p50": statistics.median(taken), "p90": sorted(taken)[int(times * 0.9)]}


def machine():
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "kernel": os.uname().release}


# ---- programs ----


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.onced = options.onced or os.path.join(options.build, "src", "cli", "onced")
        self.load = os.path.join(options.build, "test", "bench", "load")
        self.fill = os.path.join(options.build, "test", "bench", "fill_ledger")
        self.figures = {"machine": machine(), "file_system": file_system(folder)}
        self.children = []

    def start(self, command, **more):
        child = subprocess.Popen(command, **more)
        self.children.append(child)
        return child

    def stop(self, child):
        stop(child)
        self.children.remove(child)

    def close(self):
        for child in reversed(self.children):
            stop(child)

    def start_provider(self):
        child = self.start([*self.options.provider.split(), "--port", "0", "--requests-max", "0", "--objects-max", "20000"],
                           stdout=subprocess.PIPE, text=True)
        line = child.stdout.readline()
        if not line:
            raise SystemExit("bench: the fake provider did not start")
        return child, json.loads(line)["port"]

    def start_nginx(self, provider):
        port = free_port()
        path = os.path.join(self.folder, "nginx.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(NGINX.format(folder=self.folder, port=port, provider=provider))
        child = self.start([self.options.nginx, "-c", path, "-p", self.folder], stderr=subprocess.DEVNULL)
        wait_ready(port, "/v1/refunds?limit=1", child)
        return child, port

    def start_onced(self, provider, ledger=None):
        port = free_port()
        config = os.path.join(self.folder, "bench.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(REGISTRY.format(port=port, provider=provider))
        child = self.start([self.onced, "serve", config, *(["--ledger", ledger] if ledger else [])],
                           stdout=subprocess.DEVNULL)
        return child, port, wait_ready(port, "/readyz", child)

    def run_load(self, port, *options, connections=1, seconds=None, warm=None):
        command = [self.load, "--port", str(port), "--connections", str(connections), "--warm",
                   str(self.options.warm if warm is None else warm), "--seconds", str(seconds or self.options.seconds),
                   *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=False)
        if not done.stdout:
            raise SystemExit(f"bench: {' '.join(command)} failed")
        return json.loads(done.stdout)

    def measure(self, name, port, pids, *options, connections=1, expect="2xx", **more):
        """Runs a load and adds the CPU time per request of the processes under test."""
        say(f"  {name} …")
        before = sum(cpu_s(pid) for pid in pids)
        figure = self.run_load(port, *options, connections=connections, **more)
        figure["cpu_us"] = (sum(cpu_s(pid) for pid in pids) - before) * 1e6 / max(1, figure["finished"])
        figure["connections"] = connections
        if figure["errors"] or figure["status"][expect] != figure["finished"]:
            say(f"  {name}: not all answers were {expect}: {figure['status']}, {figure['errors']} errors")
        self.figures[name] = figure
        return figure


# ---- what is measured ----


def find_number(value, name):
    """The first member of that name, however deep."""
    if isinstance(value, dict):
        if isinstance(value.get(name), (int, float)):
            return value[name]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            found = find_number(item, name)
            if found is not None:
                return found
    return None


def commits(port):
    status, text = ask(port, "GET", "/v1/stats")
    return find_number(json.loads(text), "commits") if status == 200 else None


def measure_baselines(bench, provider, provider_port):
    for connections in (1, 64):
        bench.measure(f"direct {connections}", provider_port, [provider.pid], *DIRECT, "--run", f"d{connections}",
                      connections=connections)
    if not shutil.which(bench.options.nginx):
        say("  nginx is not installed: no proxy baseline")
        return
    nginx, port = bench.start_nginx(provider_port)
    for connections in (1, 64):
        bench.measure(f"nginx {connections}", port, children(nginx.pid), *DIRECT, "--run", f"n{connections}",
                      connections=connections)
    bench.stop(nginx)


def ledger_bytes(folder, name="bench.db"):
    return sum(os.path.getsize(os.path.join(folder, name + end)) for end in ("", "-wal")
               if os.path.exists(os.path.join(folder, name + end)))


def measure_onced(bench, provider_port):
    onced, port, start_ms = bench.start_onced(provider_port)
    figures = bench.figures
    figures["start_empty_ms"] = start_ms
    calls = 0
    for connections in (1, 64):
        before = commits(port)
        figure = bench.measure(f"protected {connections}", port, [onced.pid], *CALL, "--run", f"c{connections}",
                               connections=connections)
        calls += figure["finished"]
        after = commits(port)
        if before is not None and after is not None:
            figure["commits_per_call"] = (after - before) / max(1, figure["finished"])
    bench.run_load(port, *CALL, "--run", "replay", "--requests", "1000", connections=16)
    calls += 1000
    bench.measure("replays 64", port, [onced.pid], *CALL, "--run", "replay", "--keys", "1000", connections=64)
    bench.measure("replays 1", port, [onced.pid], *CALL, "--run", "replay", "--keys", "1000", connections=1)
    made = json.loads(ask(provider_port, "GET", "/v1/refunds?limit=1")[1])["data"][0]["id"]
    bench.measure("reads 64", port, [onced.pid], "--method", "POST", "--path", "/v1/calls", "--body",
                  '{"tool":"refund.get","arguments":{"id":"' + made + '"}}', connections=64)
    figure = bench.measure("protected 256", port, [onced.pid], *CALL, "--run", "c256", connections=256)
    calls += figure["finished"]
    figures["peak_rss_mb"] = memory_kb(onced.pid, "VmHWM") / 1024
    figures["rss_mb"] = memory_kb(onced.pid, "VmRSS") / 1024
    bench.stop(onced)
    figures["ledger_bytes_per_operation"] = ledger_bytes(bench.folder) / max(1, calls)
    figures["operations"] = calls


def measure_size(bench, provider_port, count):
    """Start-up and look-up times with a ledger of so many operations."""
    path = os.path.join(bench.folder, f"ledger-{count}.db")
    say(f"  filling a ledger with {count} operations …")
    filled = json.loads(subprocess.run([bench.fill, path, str(count)], stdout=subprocess.PIPE, text=True, check=True).stdout)
    onced, port, start_ms = bench.start_onced(provider_port, path)
    figure = {"fill_s": filled["seconds"], "bytes": os.path.getsize(path), "start_ms": start_ms}
    # Some reads first, so that the look-ups are not timed against the start's own work.
    by_id = ["--path", f"/v1/operations/{filled['middle']}"]
    by_key = ["--path", "/v1/tools/refund.create/operations/refund%3Ap{n}%3A4900%3Av1", "--keys", str(count)]
    for name, options in (("by_id", by_id), ("by_key", by_key)):
        load = bench.run_load(port, *options, seconds=2, warm=0.5)
        if load["status"]["2xx"] != load["finished"]:
            say(f"  look-up {name}: not all answers were 2xx: {load['status']}")
        figure[f"lookup_{name}_p50_us"], figure[f"lookup_{name}_p99_us"] = load["p50_us"], load["p99_us"]
    bench.stop(onced)
    # Once more, with the file in the cache and closed in good order.
    onced, port, figure["start_again_ms"] = bench.start_onced(provider_port, path)
    bench.figures[f"ledger of {count}"] = figure
    bench.stop(onced)
    os.unlink(path)


# ---- report ----


def report(figures):
    rows = [name for name in figures if isinstance(figures[name], dict) and "per_second" in figures[name]]
    print(f"\n{figures['machine']['cores']} cores ({figures['machine']['cpu']}), client, provider and onced on the same machine; "
          f"ledger on {figures['file_system']}, fdatasync of 4 KiB p50 {figures['fsync_us']['p50']:.0f} µs, "
          f"p90 {figures['fsync_us']['p90']:.0f} µs\n")
    print(f"{'':16}{'calls/s':>10}{'p50 µs':>10}{'p99 µs':>10}{'CPU µs/call':>13}{'of direct':>11}{'of nginx':>10}")
    for name in rows:
        figure = figures[name]
        ratios = ""
        for base in ("direct", "nginx"):
            other = figures.get(f"{base} {figure['connections']}")
            same_work = not name.startswith(("replays", "reads"))
            ratios += f"{figure['per_second'] / other['per_second']:>{11 if base == 'direct' else 10}.2f}" \
                if other and same_work else " " * (11 if base == "direct" else 10)
        print(f"{name:16}{figure['per_second']:>10.0f}{figure['p50_us']:>10.0f}{figure['p99_us']:>10.0f}"
              f"{figure['cpu_us']:>13.1f}{ratios}")
    print("(CPU: of the process under test alone: the provider, nginx's worker, onced with both threads)")
    print()
    for connections in (1, 64):
        value = figures.get(f"protected {connections}", {}).get("commits_per_call")
        if value is not None:
            print(f"commits per call, {connections} connection{'s' if connections > 1 else ''}: {value:.3f}")
    for name, text in (("peak_rss_mb", "peak RSS of onced, 256 connections, MB: {:.1f}"),
                       ("ledger_bytes_per_operation", "ledger bytes per operation: {:.0f}"),
                       ("start_empty_ms", "start-up with an empty ledger, ms: {:.0f}")):
        if name in figures:
            print(text.format(figures[name]))
    for name in figures:
        if name.startswith("ledger of "):
            figure = figures[name]
            print(f"{name} operations ({figure['bytes'] / 1e6:.0f} MB): start-up {figure['start_ms']:.0f} ms, again "
                  f"{figure['start_again_ms']:.0f} ms; look-up by id p50 {figure['lookup_by_id_p50_us']:.0f} µs, by key "
                  f"{figure['lookup_by_key_p50_us']:.0f} µs")


def build_folder():
    found = [os.path.join(ROOT, name) for name in os.listdir(ROOT) if name.startswith("build")]
    found = [path for path in found if os.path.exists(os.path.join(path, "test", "bench", "load"))]
    return max(found, key=os.path.getmtime, default=None)


def read_options():
    parser = argparse.ArgumentParser(description="How fast protected calls are and what they cost.")
    parser.add_argument("--build", default=os.environ.get("ONCED_BUILD") or build_folder(), help="build folder")
    parser.add_argument("--onced", help="program under test (default: of the build folder)")
    parser.add_argument("--provider", help="command of the provider (default: onced fake-provider)")
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--folder", help="where the temporary folder goes; must be on a real disk (default: the build folder)")
    parser.add_argument("--seconds", type=float, default=4, help="per measurement")
    parser.add_argument("--warm", type=float, default=1, help="before each measurement")
    parser.add_argument("--sizes", default="10000,1000000", help="ledgers for start-up and look-up; empty: none")
    parser.add_argument("--baselines-only", action="store_true", help="only direct and nginx")
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - for standard output")
    options = parser.parse_args()
    if not options.build:
        parser.error("no build folder with test/bench/load; build first, or give --build")
    if not options.provider:
        options.provider = f"{options.onced or os.path.join(options.build, 'src', 'cli', 'onced')} fake-provider"
    return options


def main():
    options = read_options()
    folder = tempfile.mkdtemp(prefix="onced-bench-", dir=options.folder or options.build)
    bench = Bench(options, folder)
    try:
        if bench.figures["file_system"] in ("tmpfs", "ramfs"):
            say(f"bench: {folder} is not on a disk: figures say nothing about durable calls; give --folder")
        bench.figures["fsync_us"] = fsync_us(folder)
        provider, provider_port = bench.start_provider()
        measure_baselines(bench, provider, provider_port)
        if not options.baselines_only:
            measure_onced(bench, provider_port)
            for count in [int(size) for size in options.sizes.split(",") if size]:
                measure_size(bench, provider_port, count)
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
    report(bench.figures)
    if options.json == "-":
        print(json.dumps(bench.figures))
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(bench.figures, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
