#!/usr/bin/env python3
"""`make bench-postgresql`: how fast protected calls are with the ledger in PostgreSQL, and what they cost, in one run on
one machine.

Runs under tools/with-postgres.sh, whose cluster has default settings and syncs to the disk. Gateways, PostgreSQL,
provider and load generator share the machine. Measured by turns, so that what else the machine does hits all alike:

    one gateway, a small table     three gateways, the same table     one gateway, a table of --rows operations

CPU is that of each program with all its processes, from /proc. Nothing is asserted: figures only. Standard library
only."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench as base

MODEL = 1000  # operations made by calls, which the filled rows are copies of
# What differs from row to row when rows are multiplied; n counts the copies. Keys are hashed as identity_key_hash does.
PART = r"'\x01'::bytea || decode(lpad(to_hex(octet_length({0})), 16, '0'), 'hex') || convert_to({0}, 'UTF8')"
KEY = "('old-' || n)"
NEW_ID = "('op_01J' || lpad(upper(to_hex(n)), 23, '0'))"
OPERATION = {
    "id": NEW_ID,
    "key": KEY,
    "key_hash": "sha256(" + " || ".join(PART.format(text) for text in ("model.tenant", "model.tool", KEY)) + ")",
    "base_hash": "NULL",
    "fingerprint": "sha256(convert_to(" + KEY + ", 'UTF8'))",
    "repeat_hash": "('x' || substr(md5(" + KEY + "), 1, 16))::bit(64)::bigint",
    "provider_key": NEW_ID,
    "external_id": "('re_old_' || n)",
    "first_attempt": "('at_01J' || lpad(upper(to_hex(n)), 23, '0'))",
    "arguments": "replace(model.arguments, 'model-', 'old-' || n || '-')",
    "created_ms": "model.created_ms - 86400000 + n / 100",
}
HISTORY = {"operation": NEW_ID, "attempt_id": "('at_01J' || lpad(upper(to_hex(n)), 23, '0'))"}


class Cluster:
    """The server that tools/with-postgres.sh has started."""

    def __init__(self):
        self.url = os.environ.get("ONCED_POSTGRES")
        if not self.url:
            raise SystemExit("bench: no PostgreSQL server: run this under tools/with-postgres.sh")
        self.psql = os.path.join(os.environ["ONCED_POSTGRES_BIN"], "psql")
        self.data = self.ask("postgres", "SHOW data_directory")
        with open(os.path.join(self.data, "postmaster.pid"), encoding="ascii") as file:
            self.pid = int(file.readline())

    def url_of(self, database):
        return self.url.replace("/postgres?", f"/{database}?")

    def ask(self, database, *statements):
        command = [self.psql, "-XAtq", "-v", "ON_ERROR_STOP=1", self.url_of(database)]
        for statement in statements:
            command += ["-c", statement]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def create(self, database):
        self.ask("postgres", f"CREATE DATABASE {database}")
        return self.url_of(database)

    def cpu_s(self):
        """Of the server, of its processes now and of those that have ended."""
        total = family_cpu_s(self.pid, ended=True)
        for child in base.children(self.pid):
            try:
                total += family_cpu_s(child, ended=False)
            except FileNotFoundError:
                pass
        return total

    def settings(self):
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "wal_sync_method")
        return {name: self.ask("postgres", f"SHOW {name}") for name in names}


def family_cpu_s(pid, ended):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15 if ended else 13]) / base.TICKS


class PgBench(base.Bench):
    def __init__(self, options, folder, cluster):
        super().__init__(options, folder)
        self.cluster = cluster
        self.figures["file_system"] = base.file_system(cluster.data)
        self.figures["postgresql"] = cluster.settings()
        self.runs = 0

    def measure_all(self, name, gateways, connections):
        """One round: the load on all gateways, CPU per call of each program."""
        self.runs += 1
        parties = {"gateways": lambda: sum(base.cpu_s(child.pid) for child, _, _ in gateways),
                   "postgresql": self.cluster.cpu_s, "provider": lambda: base.cpu_s(self.provider.pid)}
        before = {party: read() for party, read in parties.items()}
        loads = self.run_loads([port for _, port, _ in gateways], connections, f"r{self.runs}")
        finished = sum(load["finished"] for load in loads)
        cpu = {party: (read() - before[party]) * 1e6 / max(1, finished) for party, read in parties.items()}
        cpu["load"] = sum(load["client_cpu_us"] * load["finished"] for load in loads) / max(1, finished)
        figure = {"per_second": sum(load["per_second"] for load in loads), "cpu_us": cpu,
                  "cpu_sum_us": sum(cpu.values()), "p50_us": max(load["p50_us"] for load in loads),
                  "p99_us": max(load["p99_us"] for load in loads),
                  "finished": finished, "connections": connections}
        bad = sum(load["errors"] + load["finished"] - load["status"]["2xx"] for load in loads)
        if bad:
            base.say(f"  {name}: {bad} of {finished} answers were not 2xx")
        self.figures.setdefault(name, []).append(figure)
        return figure

    def run_loads(self, ports, connections, run, seconds=None):
        """One load generator per gateway, the connections spread evenly."""
        share = [connections // len(ports) + (i < connections % len(ports)) for i in range(len(ports))]
        times = ["--warm", str(self.options.warm), "--seconds", str(seconds or self.options.seconds)]
        programs = [subprocess.Popen([self.load, "--port", str(port), "--connections", str(count), *times, *base.CALL,
                                      "--run", f"{run}-{i}"], stdout=subprocess.PIPE, text=True)
                    for i, (port, count) in enumerate(zip(ports, share))]
        answers = [program.communicate(timeout=600)[0] for program in programs]
        if not all(answers):
            raise SystemExit("bench: a load generator failed")
        return [json.loads(answer) for answer in answers]


# ---- the large table ----


def columns_of(cluster, database, table):
    return cluster.ask(database, "SELECT string_agg(quote_ident(attname), ',' ORDER BY attnum) FROM pg_attribute "
                       f"WHERE attnum > 0 AND NOT attisdropped AND attrelid = 'onced.{table}'::regclass").split(",")


def copies(cluster, database, table, differing, first, last):
    """Rows of the model, each with its own identity: copy n is of model row n mod MODEL."""
    columns = columns_of(cluster, database, table)
    missing = [name for name in differing if name not in columns]
    if missing:
        raise SystemExit(f"bench: table {table} has no {', '.join(missing)} any more")
    values = ", ".join(differing.get(name, f"model.{name}").replace("model.", "m.") for name in columns)
    return (f"INSERT INTO onced.{table} ({', '.join(columns)}) SELECT {values} "
            f"FROM generate_series({first}, {last - 1}) AS n JOIN model_{table} AS m ON m.model_number = n % {MODEL}")


def fill(bench, database, rows):
    """rows operations with their history, a tombstone for every tenth beside them, as churn would leave them: sorted by
    id, keys spread at random. One in a thousand waits for its operator."""
    cluster = bench.cluster
    begin = time.monotonic()
    number = "dense_rank() OVER (ORDER BY {0}) - 1 AS model_number"
    tables = [f"CREATE TABLE model_operations AS SELECT o.*, {number.format('id')} FROM onced.operations AS o",
              "CREATE TABLE model_history AS SELECT h.*, o.model_number FROM onced.history AS h "
              "JOIN model_operations AS o ON o.id = h.operation",
              "CREATE INDEX ON model_operations (model_number)", "CREATE INDEX ON model_history (model_number)",
              "ANALYZE model_operations", "ANALYZE model_history"]
    cluster.ask(database, *tables)
    step = 100000
    for first in range(0, rows, step):
        last = min(rows, first + step)
        cluster.ask(database, "SET synchronous_commit = off",
                    copies(cluster, database, "operations", OPERATION, first, last),
                    copies(cluster, database, "history", HISTORY, first, last))
    stone = {"operation": NEW_ID.replace("op_01J", "op_01H"), "key_hash": "sha256('stone' || n::text::bytea)"}
    stones = columns_of(cluster, database, "tombstones")
    values = {"dropped_ms": "m.completed_ms", **stone}
    chosen = ", ".join(values.get(name, f"m.{name}") for name in stones)
    cluster.ask(database, f"INSERT INTO onced.tombstones ({', '.join(stones)}) SELECT {chosen} FROM "
                f"generate_series(0, {rows // 10 - 1}) AS n JOIN model_operations AS m ON m.model_number = n % {MODEL}")
    cluster.ask(database, "UPDATE onced.operations SET state = 'unknown_outcome', reason = 'needs_operator', open = 1, "
                "wake_at_ms = 0, unknown_since_ms = created_ms WHERE id LIKE 'op_01J%' AND rev = 2 "
                "AND key ~ '^old-[0-9]*777$'")
    cluster.ask(database, "DROP TABLE model_operations, model_history", "VACUUM ANALYZE", "CHECKPOINT")
    return time.monotonic() - begin


def measure_large(bench, provider_port, rows):
    """Makes the large table; start-up and look-ups with it."""
    cluster = bench.cluster
    url = cluster.create("large")
    gateway = bench.start_onced(provider_port, url)
    bench.run_load(gateway[1], *base.CALL, "--run", "model", "--requests", str(MODEL), connections=32)
    bench.stop(gateway[0])
    base.say(f"  filling a table with {rows} operations …")
    figure = {"fill_s": fill(bench, "large", rows)}
    figure["bytes_per_operation"] = int(cluster.ask("large", "SELECT pg_database_size('large')")) / rows
    gateway = bench.start_onced(provider_port, url)
    figure["start_ms"] = gateway[2]
    middle = cluster.ask("large", f"SELECT id FROM onced.operations WHERE key = 'old-{rows // 2}'")
    by_id = ["--path", f"/v1/operations/{middle}"]
    by_key = ["--path", "/v1/tools/refund.create/operations/old-{n}", "--keys", str(rows)]
    for name, options in (("by_id", by_id), ("by_key", by_key)):
        load = bench.run_load(gateway[1], *options, seconds=2, warm=0.5)
        if load["status"]["2xx"] != load["finished"]:
            base.say(f"  look-up {name}: not all answers were 2xx: {load['status']}")
        figure[f"lookup_{name}_p50_us"], figure[f"lookup_{name}_p99_us"] = load["p50_us"], load["p99_us"]
    figure["rss_mb"] = base.memory_kb(gateway[0].pid, "VmRSS") / 1024
    bench.figures["large"] = figure
    return gateway


# ---- report ----


def summarise(figures):
    """Medians over the rounds, and the ratios that are claimed, each between neighbours in time."""
    for name in ("one 1", "one 64", "three 64", "large 1", "large 64"):
        rounds = figures.get(name)
        if rounds:
            middle = {what: statistics.median(one[what] for one in rounds)
                      for what in ("per_second", "p50_us", "p99_us", "cpu_sum_us")}
            middle["cpu_us"] = {party: statistics.median(one["cpu_us"][party] for one in rounds)
                                for party in rounds[0]["cpu_us"]}
            figures.setdefault("medians", {})[name] = middle
    ratios = figures["ratios"] = {}
    for name, above, below in (("three_to_one", "three 64", "one 64"), ("large_to_small", "large 64", "one 64"),
                               ("large_to_small_1", "large 1", "one 1")):
        pairs = list(zip(figures.get(above, []), figures.get(below, [])))
        if pairs:
            ratios[name] = {"per_second": statistics.median(a["per_second"] / b["per_second"] for a, b in pairs),
                            "cpu": statistics.median(a["cpu_sum_us"] / b["cpu_sum_us"] for a, b in pairs),
                            "p50": statistics.median(a["p50_us"] / b["p50_us"] for a, b in pairs)}


def report(figures):
    machine, database, medians = figures["machine"], figures["postgresql"], figures["medians"]
    print(f"\n{machine['cores']} cores ({machine['cpu']}), client, provider, gateways and PostgreSQL "
          f"{database['server_version']} on the same machine; data on {figures['file_system']}, fsync {database['fsync']}, "
          f"synchronous_commit {database['synchronous_commit']}, fdatasync of 4 KiB p50 {figures['fsync_us']['p50']:.0f} "
          f"µs, p90 {figures['fsync_us']['p90']:.0f} µs\n")
    print(f"{'':12}{'calls/s':>9}{'p50 µs':>9}{'p99 µs':>9}   CPU µs per call: {'gateways':>9}{'postgresql':>11}"
          f"{'provider':>9}{'load':>6}{'sum':>7}")
    for name, figure in medians.items():
        cpu = figure["cpu_us"]
        print(f"{name:12}{figure['per_second']:>9.0f}{figure['p50_us']:>9.0f}{figure['p99_us']:>9.0f}{'':20}"
              f"{cpu['gateways']:>9.0f}{cpu['postgresql']:>11.0f}{cpu['provider']:>9.0f}{cpu['load']:>6.0f}"
              f"{figure['cpu_sum_us']:>7.0f}")
    print("(medians of the rounds; gateways, their table, connections: one = one gateway, large = one with the large "
          "table)\n")
    for name in ("one 64", "three 64", "large 64"):
        if name in medians:
            full = machine["cores"] * 1e6 / medians[name]["cpu_sum_us"]
            print(f"{name}: {machine['cores']} cores fully used would make {full:.0f} calls/s")
    for name, ratio in figures["ratios"].items():
        print(f"{name}: calls/s {ratio['per_second']:.2f}, CPU per call {ratio['cpu']:.2f}, p50 {ratio['p50']:.2f}")
    if "large" in figures:
        large = figures["large"]
        print(f"with {figures['rows']} operations ({large['bytes_per_operation']:.0f} bytes each with indexes; filled in "
              f"{large['fill_s']:.0f} s): start-up {large['start_ms']:.0f} ms (empty: {figures['start_empty_ms']:.0f} ms), "
              f"RSS of the gateway {large['rss_mb']:.1f} MB; look-up by id p50 {large['lookup_by_id_p50_us']:.0f} µs, by "
              f"key {large['lookup_by_key_p50_us']:.0f} µs")


def read_options():
    parser = argparse.ArgumentParser(description="How fast protected calls are with the ledger in PostgreSQL.")
    parser.add_argument("--build", default=os.environ.get("ONCED_BUILD") or base.build_folder(), help="build folder")
    parser.add_argument("--onced", help="program under test (default: of the build folder)")
    parser.add_argument("--provider", help="command of the provider (default: onced fake-provider)")
    parser.add_argument("--seconds", type=float, default=3, help="per measurement")
    parser.add_argument("--warm", type=float, default=1, help="before each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settle", type=float, default=10, help="unmeasured load on the large table first")
    parser.add_argument("--rows", type=int, default=1000000, help="of the large table; 0 = none")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    if not options.build:
        parser.error("no build folder with test/bench/load; build first, or give --build")
    if not options.provider:
        options.provider = f"{options.onced or os.path.join(options.build, 'src', 'cli', 'onced')} fake-provider"
    return options


def measure(bench, options):
    bench.provider, provider_port = bench.start_provider()
    url = bench.cluster.create("small")
    gateways = [bench.start_onced(provider_port, url)]
    bench.figures["start_empty_ms"] = gateways[0][2]
    gateways += [bench.start_onced(provider_port, url) for _ in range(2)]
    large = measure_large(bench, provider_port, options.rows) if options.rows else None
    if large:  # pages that were written before the last checkpoint go into the log whole the first time
        bench.run_loads([large[1]], 64, "settle", seconds=options.settle)
    for number in range(options.rounds):
        base.say(f"  round {number + 1} of {options.rounds} …")
        bench.measure_all("one 64", gateways[:1], 64)
        bench.measure_all("three 64", gateways, 64)
        if large:
            bench.measure_all("large 64", [large], 64)
        bench.measure_all("one 1", gateways[:1], 1)
        if large:
            bench.measure_all("large 1", [large], 1)
    bench.figures["peak_rss_mb"] = base.memory_kb(gateways[0][0].pid, "VmHWM") / 1024


def main():
    options = read_options()
    cluster = Cluster()
    folder = tempfile.mkdtemp(prefix="onced-bench-", dir=options.build)
    bench = PgBench(options, folder, cluster)
    bench.figures["rows"] = options.rows
    try:
        if bench.figures["file_system"] in ("tmpfs", "ramfs"):
            base.say(f"bench: {cluster.data} is not on a disk: figures say nothing about durable calls")
        bench.figures["fsync_us"] = base.fsync_us(os.path.dirname(cluster.data))
        measure(bench, options)
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
    summarise(bench.figures)
    report(bench.figures)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(bench.figures, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
