"""The outbox relay between a real PostgreSQL, gateways and the provider: judged by the rows, the ledger's operations and the
objects at the provider, which must be the same ones, in the order of each entity. The relay is killed at each of its steps, two
work at once, one stands still, the gateway and PostgreSQL are killed, rows are hostile.

ONCED_ROUNDS: how often each is done (CI: 1; evidence/relay-loses-and-doubles-nothing: 20)."""

import http.server
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from onced_e2e import binary, registry
from onced_e2e.crash import rounds
from onced_e2e.figures import figure
from onced_e2e.onced import Onced
from onced_e2e.postgres import Cluster, there
from onced_e2e.process import Failed, Process, environment
from onced_e2e.wait import wait_until

pytestmark = pytest.mark.skipif(not there(), reason="PostgreSQL is missing (tools/setup.sh test)")

ROUNDS = rounds(1)
ENTITIES = 5
OPEN = "status IN ('new', 'admitted')"


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.stop()


class World:
    def __init__(self, cluster, folder, provider, processes):
        self.cluster, self.folder, self.provider, self.processes = cluster, folder, provider, processes
        self.database = cluster.database()
        self.numbers = {}
        self.relays = []
        self.onced = self.gateway("onced")
        self.onced.configure(registry.file(provider.url, {"refund": registry.refund()}, server={"log": "info"}))
        os.environ["ONCED_TEST_OUTBOX"] = self.database.url

    def gateway(self, name):
        folder = self.folder / name
        folder.mkdir()
        onced = Onced(folder)
        self.processes.append(onced.process)
        return onced

    def start(self):
        return self.onced.start()

    # ---- the relay ----

    def configure(self, **more):
        """The relay's own file."""
        section = {"database": "${env:ONCED_TEST_OUTBOX}", "gateways": [f"http://127.0.0.1:{self.onced.port}"], "poll": "100ms", "lease": "8s", **more}
        file = self.folder / "relay.yaml"
        file.write_text(json.dumps({"onced": 1, "relay": section}))
        return file

    def cli(self, *argv, seconds=60):
        return subprocess.run([binary.onced(), "relay", *map(str, argv)], capture_output=True, text=True, timeout=seconds, env=environment())

    def install(self, **more):
        file = self.configure(**more)
        done = self.cli("install", file)
        assert done.returncode == 0 and "is there" in done.stdout, done
        return file

    def relay(self, file, prefix=()):
        process = Process(f"relay {len(self.relays) + 1}", self.folder / f"relay-{len(self.relays) + 1}.log")
        self.relays.append(process)
        self.processes.append(process)
        process.start([binary.onced(), "relay", str(file)], prefix)
        return process

    def once(self, file):
        done = self.cli("--once", file)
        assert done.returncode == 0, done
        return done

    # ---- rows ----

    def rows(self, count, entities=ENTITIES):
        """So many further rows in one statement; each entity's are numbered."""
        values = []
        for n in range(count):
            entity = f"e{n % entities}"
            self.numbers[entity] = self.numbers.get(entity, 0) + 1
            values.append(f"('refund', '{{\"payment_id\": \"{entity}\", \"amount_cents\": {self.numbers[entity]}}}', '{entity}')")
        return f"INSERT INTO outbox (tool, arguments, entity) VALUES {', '.join(values)}"

    def insert(self, count, **more):
        self.database.run(self.rows(count, **more))

    def ended(self, seconds=60):
        wait_until(lambda: self.database.value(f"SELECT count(*) FROM outbox WHERE {OPEN}") == "0", seconds, 0.05, "the end of all rows")

    # ---- the truth ----

    def objects(self):
        """The provider's, oldest first."""
        found, after = [], ""
        while True:
            page = self.provider.client.get(f"/v1/refunds?limit=1000{after}").body
            found += page["data"]
            if not page["has_more"]:
                return found[::-1]
            after = f"&starting_after={found[-1]['id']}"

    def judge(self, completed=True):
        """Rows, operations and effects are the same ones, each once. The order of each entity is kept in the ledger (ids are in the
        order of admission) and, where operations were completed one after the other, at the provider."""
        rows = self.database.run("SELECT operation_id, status, entity, arguments->>'amount_cents' FROM outbox ORDER BY id")
        assert {row[1] for row in rows} == {"completed_success"}, {row[1] for row in rows}
        operations = [row[0] for row in rows]
        assert len(set(operations)) == len(rows) == sum(self.numbers.values()), "an operation stands for two rows, or a row is lost"
        objects = self.objects()
        assert sorted(each["reference"] for each in objects) == sorted(operations), (len(objects), len(operations))
        assert self.provider.effects() == len(rows)
        states = self.onced.client.get("/v1/stats").body["ledger"]["operations"]
        assert states["completed_success"] == len(rows) == sum(states.values()), states
        for entity, last in self.numbers.items():
            admitted = [row[0] for row in rows if row[2] == entity]
            assert admitted == sorted(admitted), entity
            if not completed:
                continue
            order = [each["amount_cents"] for each in objects if each["payment_id"] == entity]
            assert order == list(range(1, last + 1)), f"{entity}: {order}"
        return len(rows)


@pytest.fixture
def world(cluster, tmp_path, provider, processes):
    world = World(cluster, tmp_path, provider, processes)
    yield world
    for process in [*world.relays, world.onced.process]:
        if process.alive():
            assert process.terminate() == 0
        assert not process.findings()


# ---- one row, and what an application may rely on ----


def test_rows_become_operations(world):
    """Told of by NOTIFY; rolled back ones are never sent; asked for what cannot change; the key is the row's."""
    world.start()
    file = world.install(poll="10m")
    assert world.cli("install", file).returncode == 0  # a second time changes nothing
    world.relay(file)
    world.insert(7)
    world.ended(10)
    world.database.run("BEGIN", world.rows(3), "ROLLBACK")
    world.numbers = {entity: int(last) for entity, last in world.database.run("SELECT entity, count(*) FROM outbox GROUP BY 1")}
    world.insert(5)
    world.ended(10)
    assert world.judge() == 12
    [[row, operation]] = world.database.run("SELECT id, operation_id FROM outbox ORDER BY id LIMIT 1")
    assert world.onced.by_key("refund", f"outbox:outbox:{row}").id == operation
    changed = subprocess.run(["psql", "-XAtq", world.database.url, "-c", "UPDATE outbox SET tool = 'other'"], capture_output=True, text=True, check=False)
    assert "is not changed: it may have been sent" in changed.stderr, changed
    times = world.database.value("SELECT bool_and(created_at <= admitted_at AND admitted_at <= ended_at AND next_at IS NULL AND problem IS NULL) FROM outbox")
    assert times == "t"


def test_notify_is_lost(world):
    """A table without the trigger, or a pooler that hands nothing on: the poll finds the rows."""
    world.start()
    file = world.install()
    world.database.run("DROP TRIGGER outbox_told ON outbox")
    world.relay(file)
    world.insert(3)
    world.ended(10)
    assert world.judge() == 3


# ---- killed ----

MARKS = ["relay_taken", "relay_answered", "relay_marked", "relay_committed", "relay_looked"]
LIVES = {"after_completion": 2 * ROUNDS, "after_admission": 2 * ROUNDS if ROUNDS > 1 else 1}


@pytest.mark.parametrize("order", ["after_completion", "after_admission"])
def test_killed_at_each_step(world, order):
    """kill -9 at a pass of each mark, with rows written meanwhile; then one undisturbed life. Looks are needed for all: nobody waits."""
    if b"ONCED_KILL_AT" not in pathlib.Path(binary.onced()).read_bytes():
        pytest.skip("this build has no marks (meson option marks)")
    world.start()
    file = world.install(order=order, wait="0", batch=7)
    kills = 0
    for life in range(LIVES[order]):
        for mark in MARKS:
            world.insert(5)
            nth = 1 + (life + kills) % 3 if mark in ("relay_answered", "relay_looked") else 1
            try:
                process = world.relay(file, ("env", f"ONCED_KILL_AT={mark}:{nth}"))
            except Failed:
                process = world.relays[-1]
            wait_until(lambda: process.child.poll() is not None, 20, what=f"the mark {mark}")
            assert process.child.returncode == -signal.SIGKILL, f"{mark}: status {process.child.returncode}\n{process.text()[-4000:]}"
            kills += 1
    world.relay(file)
    world.insert(3)
    world.ended()
    count = world.judge(completed=order == "after_completion")
    figure(f"relay_killed_{order}", f"{order}: relay killed {kills} times at {len(MARKS)} steps, {count} rows = operations = effects, order kept", kills=kills)


# ---- several relays ----


def test_two_relays(world):
    """At once, the gateway killed under them, one killed, one stopped (its rows are free when the lease ends)."""
    world.start()
    file = world.install(lease="2s", wait="200ms", batch=20)
    one, two = world.relay(file), world.relay(file)
    for _ in range(ROUNDS):
        world.insert(30)
        world.onced.restart()
        world.insert(30)
        one.kill()
        one = world.relay(file)
    two.pause()
    world.insert(20)
    world.ended()
    two.go_on()
    world.insert(20)
    world.ended()
    count = world.judge()
    figure("relay_two", f"two relays, gateway and a relay killed {ROUNDS} times, one stopped: {count} rows = operations = effects")


def test_stopped_while_it_holds_rows(world):
    """SIGSTOP between taking and sending: the server ends its transaction, another relay goes on, and it goes on afterwards."""
    world.start()
    file = world.install(lease="2s", wait="500ms")
    world.provider.script(*[{"fault": "slow=400", "on": "write"}] * 5)
    one = world.relay(file)
    world.insert(5)
    wait_until(lambda: world.provider.writes(), what="the first request")
    one.pause()
    two = world.relay(file)
    world.ended(20)
    one.go_on()
    world.insert(5)
    world.ended()
    assert world.judge() == 10 and one.alive() and two.alive()


# ---- what it depends on goes away ----


def test_postgres_is_killed(world):
    world.start()
    file = world.install(wait="0")
    relay = world.relay(file)
    for _ in range(ROUNDS):
        world.insert(40)
        world.cluster.kill()
        world.cluster.start()
        world.insert(10)
    world.ended()
    count = world.judge()
    assert relay.alive() and "relay_database" in relay.text()
    figure("relay_postgres_killed", f"PostgreSQL killed {ROUNDS} times under the relay: {count} rows = operations = effects")


class Stranger(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # noqa: N802 - the library's name
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(404, "not here")

    def log_message(self, *_):
        pass


@pytest.fixture
def stranger():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_gateway_is_away(world, stranger):
    """None at the start; another address that answers; a page that is not onced's; no row is touched by any of it."""
    world.start()
    file = world.install(gateways=["http://127.0.0.1:9", f"http://127.0.0.1:{stranger.server_port}", f"http://127.0.0.1:{world.onced.port}"])
    world.onced.kill()
    relay = world.relay(file)
    world.insert(10)
    wait_until(lambda: "relay_away" in relay.text(), what="the news")
    assert set(world.database.run("SELECT status, operation_id IS NULL FROM outbox")[0]) == {"new", "t"}
    world.onced.start()
    world.ended()
    assert world.judge() == 10


# ---- refusals, hostile rows ----


def hostile(world):
    deep = "[" * 500 + "]" * 500
    return {
        "no such tool": "('nothing.here', '{}', 'x')",
        "no tool": "('', '{}', 'x')",
        "tool with quotes": "(E'a\"}, \"b\\n\\t', '{}', 'x')",
        "schema": "('refund', '{\"payment_id\": 7, \"amount_cents\": \"x\"}', 'x')",
        "not an object": "('refund', '[1]', 'x')",
        "escaped NUL": "('refund', '{\"payment_id\": \"a\\u0000b\", \"amount_cents\": 1, \"more\": 1}', 'x')",
        "deep": f"('refund', '{{\"payment_id\": {deep}, \"amount_cents\": 1}}', 'x')",
        "duplicate member": "('refund', '{\"payment_id\": \"a\", \"payment_id\": \"b\", \"amount_cents\": 1}', 'x')",
        "huge": "('refund', ('{\"payment_id\": \"' || repeat('x', 3000000) || '\", \"amount_cents\": 1}'), 'x')",
        "breaks out": "('refund', '{\"payment_id\": \"a\", \"amount_cents\": 1}, \"tool\": \"other\", \"x\": {}', 'x')",
        "no JSON": "('refund', 'hello', 'x')",
    }


def test_hostile_rows(world):
    """Arguments as text, so that anything may stand in them: refused with a reason, once; what comes after in their entity goes on."""
    world.start()
    file = world.install()
    world.database.run("DROP TRIGGER outbox_fixed ON outbox", "ALTER TABLE outbox ALTER arguments DROP DEFAULT, ALTER arguments TYPE text")
    rows = hostile(world)
    world.database.run(f"INSERT INTO outbox (tool, arguments, entity) VALUES {', '.join(rows.values())}")
    world.database.run("INSERT INTO outbox (tool, arguments, entity) VALUES ('refund', '{\"payment_id\": \"x\", \"amount_cents\": 1}', 'x')")
    world.once(file)
    told = world.database.run("SELECT status, problem, attempts FROM outbox ORDER BY id")
    for name, row in zip(rows, told):
        assert row[0] == "refused" and row[1], (name, row)
    assert told[-1][0] == "completed_success", told[-1]
    words = dict(zip(rows, (row[1] for row in told)))
    assert "no_such_tool" in words["no such tool"] and "names no tool" in words["no tool"] and "/payment_id" in words["schema"], words
    assert "3000" in words["huge"] and "expected an object" in words["not an object"] and "cannot be sent" in words["breaks out"], words
    assert world.provider.effects() == 1
    world.once(file)  # nothing is tried again
    assert world.provider.effects() == 1


@pytest.mark.parametrize("on_refusal, sent", [("skip", [1, 3]), ("hold", [1])])
def test_refusal_in_the_middle(world, on_refusal, sent):
    """Other entities go on in any case."""
    world.start()
    file = world.install(on_refusal=on_refusal)
    world.database.run("""INSERT INTO outbox (tool, arguments, entity) VALUES
        ('refund', '{"payment_id": "a", "amount_cents": 1}', 'a'), ('refund', '{"payment_id": 2}', 'a'),
        ('refund', '{"payment_id": "a", "amount_cents": 3}', 'a'), ('refund', '{"payment_id": "b", "amount_cents": 1}', 'b'),
        ('refund', '{"payment_id": "c", "amount_cents": 1}', NULL)""")
    world.once(file)
    world.once(file)
    assert [each["amount_cents"] for each in world.objects() if each["payment_id"] == "a"] == sent
    assert world.provider.effects() == len(sent) + 2
    if on_refusal == "hold":  # somebody has looked at it
        world.database.run("UPDATE outbox SET status = 'settled' WHERE status = 'refused'")
        world.once(file)
        assert world.provider.effects() == 4


def test_changed_row_is_not_sent_again(world):
    """A restored table, or an id used again: the key is known with other arguments, and nothing runs."""
    world.start()
    file = world.install()
    world.insert(1)
    world.once(file)
    world.database.run("TRUNCATE outbox RESTART IDENTITY", "INSERT INTO outbox (tool, arguments) VALUES ('refund', '{\"payment_id\": \"z\", \"amount_cents\": 9}')")
    world.once(file)
    [[status, problem]] = world.database.run("SELECT status, problem FROM outbox")
    assert status == "refused" and problem.startswith("key_reused"), problem
    assert world.provider.effects() == 1


def test_trigger_of_the_application_refuses_a_mark(world):
    """The row cannot be marked; others are, and it is done no second time."""
    world.start()
    file = world.install()
    world.database.run("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not this one'; END$$",
                       "CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION no()")
    world.insert(6, entities=6)
    relay = world.relay(file)
    wait_until(lambda: world.database.value(f"SELECT count(*) FROM outbox WHERE {OPEN}") == "1", what="the others")
    wait_until(lambda: "not this one" in relay.text(), what="the news")
    world.database.run("DROP TRIGGER no ON outbox")
    world.ended()
    assert world.judge() == 6


# ---- set up wrongly: exit codes ----


def test_exit_codes(world):
    world.start()
    file = world.configure()
    missing = world.cli(file)
    assert missing.returncode == 5 and "onced relay install" in missing.stderr, missing
    world.install()
    world.database.run("ALTER TABLE outbox DROP COLUMN problem")
    column = world.cli(file)
    assert column.returncode == 5 and "problem" in column.stderr, column
    world.database.run("ALTER TABLE outbox ADD COLUMN problem integer")
    unfit = world.cli(file)
    assert unfit.returncode == 1 and "problem" in unfit.stderr, unfit
    world.database.run("ALTER TABLE outbox DROP COLUMN problem", "ALTER TABLE outbox ADD COLUMN problem text")
    world.database.run("CREATE ROLE clerk LOGIN PASSWORD 'clerk'", "GRANT SELECT ON outbox TO clerk", check=False)
    os.environ["ONCED_TEST_OUTBOX"] = world.cluster.url(world.database.name, "clerk", "clerk")
    rights = world.cli(file)
    assert rights.returncode == 1 and "permission denied" in rights.stderr, rights
    os.environ["ONCED_TEST_OUTBOX"] = world.cluster.url(world.database.name, port=9)
    away = world.cli(file)
    assert away.returncode == 4 and "correct-horse" not in away.stderr, away
    os.environ["ONCED_TEST_OUTBOX"] = world.database.url
    onced = world.gateway("tokens")
    onced.configure({**registry.file(world.provider.url, {"refund": registry.refund()}, server={"auth": "tokens"})})
    onced.start()
    os.environ["ONCED_TEST_TOKEN"] = "onced_wrong"
    token = world.cli(world.configure(gateways=[f"http://127.0.0.1:{onced.port}"], token="${env:ONCED_TEST_TOKEN}"))
    assert token.returncode == 6 and "token" in token.stderr, token
    onced.stop()
    del os.environ["ONCED_TEST_TOKEN"]  # as where the gateway runs, which may have the same file
    checked = subprocess.run([binary.onced(), "check", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and "ONCED_TEST_TOKEN" in checked.stdout + checked.stderr, checked
    unset = world.cli(file)
    assert unset.returncode == 2 and "ONCED_TEST_TOKEN" in unset.stderr, unset
    broken = world.folder / "broken.yaml"
    broken.write_text('onced: 1\nrelay: {database: "postgresql://u:secret@h/d", table: "x; drop", gateways: ["ftp://x"], wait: 60s, columns: {id: "I d"}}\n')
    found = subprocess.run([binary.onced(), "check", broken], capture_output=True, text=True, check=False)
    for words in ("holds a password", "/relay/table", "/relay/gateways/0", "/relay/wait", "/relay/columns/id"):
        assert words.replace("/", ".").lstrip(".") in found.stdout.replace("/", ".") or words in found.stdout, (words, found.stdout)
    assert "secret" not in found.stdout


# ---- the example ----


def test_example(world):
    """examples/outbox: an order is refunded in parts; what its own bookkeeping rolls back is never sent."""
    root = pathlib.Path(__file__).parents[2] / "examples"
    os.environ["PAYMENTS_URL"], os.environ["SHOP_DATABASE_URL"] = world.provider.url, world.database.url
    world.onced.file.write_text((root / "payments.yaml").read_text())
    world.start()
    file = world.folder / "relay.yaml"
    file.write_text((root / "outbox" / "relay.yaml").read_text().replace("http://127.0.0.1:7070", f"http://127.0.0.1:{world.onced.port}"))
    assert world.cli("install", file).returncode == 0

    def shop(*argv):
        return subprocess.run([root / "outbox" / "shop.py", *argv], capture_output=True, text=True, check=False)
    assert shop("open", "order-1", "10000").returncode == 0
    assert shop("refund", "order-1", "2500").returncode == 0
    assert shop("refund", "order-1", "9000").returncode == 1
    assert shop("refund", "order-1", "7500").returncode == 0
    world.once(file)
    world.once(file)
    assert [each["amount_cents"] for each in world.objects()] == [2500, 7500]
    assert shop("show").stdout.count("completed_success") == 2


# ---- much ----


def test_backlog(world):
    """Bounded memory and speed, with a long backlog."""
    count = 600 if ROUNDS == 1 else 10000
    world.start()
    file = world.install()
    for _ in range(count // 200):
        world.insert(200, entities=200)
    world.database.run("ANALYZE outbox")
    begun = time.monotonic()
    relay = world.relay(file)
    wait_until(lambda: world.database.value(f"SELECT count(*) FROM outbox WHERE {OPEN}") == "0", 120, 0.1, "the end of all rows")
    seconds = time.monotonic() - begun
    peak = next(int(line.split()[1]) for line in pathlib.Path(f"/proc/{relay.child.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    assert world.judge() == count
    figure("relay_backlog", f"{count} rows in {seconds:.1f} s: {count / seconds:.0f} rows/s, {peak // 1024} MiB at most", rate=count / seconds, mib=peak // 1024)
