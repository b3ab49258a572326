"""The disk of the PostgreSQL server is full: where its tables lie (a statement fails, the server goes on), or where its write-ahead log
lies (the server dies and can not recover before there is space). Calls get 503 and are told why, nothing is sent without a record, what
was on the wire is recorded when there is space again, and no gateway has to be started anew. The neighbours: test_disk_full.py (SQLite),
test_failover.py.

ONCED_ROUNDS: how often the disk is filled (CI: 1; the script of evidence/ takes more)."""

import random
import time

import pytest

from onced_e2e import registry
from onced_e2e.crash import Callers, Intent, Line, rounds
from onced_e2e.figures import figure
from onced_e2e.pg_faults import FullDisk
from onced_e2e.postgres import Wire, there
from onced_e2e.wait import Background, wait_until
from test_failover import Load, gateway, judge

pytestmark = pytest.mark.skipif(not there(), reason="PostgreSQL is missing (tools/setup.sh test)")

ROUNDS = rounds(1)
DEADLINE_S = 60 + 30 * ROUNDS  # of all callers of a test; a busy machine takes 6 s a round
NO_SPACE = "No space left on device"


@pytest.fixture(scope="module")
def disk():
    disk = FullDisk()
    yield disk
    disk.stop()


@pytest.fixture
def database(disk):
    yield disk.database()
    disk.free()


def large(n):
    """What can not be made smaller: each needs room of its own."""
    return random.Random(n).randbytes(3000).hex()


class Prober:
    """New calls from outside, until they are refused."""

    def __init__(self, gateways):
        self.gateways = gateways
        self.intents = []

    def ask(self, onced):
        n = len(self.intents)
        self.intents.append(Intent("refund.create", f"probe{n}", {"payment_id": f"probe{n}", "amount_cents": 1, "note": large(n)}))
        line = Line(onced.port)
        answer = line.ask("POST", "/v1/calls", self.intents[-1].body)
        line.close()
        return answer

    def until_refused(self, times=10):
        """Each gateway refuses so many in a row. What it says at last."""
        for onced in self.gateways:
            refused, end = 0, time.monotonic() + 30
            while refused < times:
                assert time.monotonic() < end, "no 503 although the disk is full"
                status, body = self.ask(onced)
                refused = refused + 1 if status == 503 else 0
                if status == 503:
                    assert body["type"] == "urn:onced:problem:unavailable" and body["retry_after_ms"] > 0, body
                    assert "nothing was sent" in body["detail"], body
        return body["detail"]

    def settle(self):
        Callers(self.gateways[0].port, self.intents, 8).join()


def sent(world):
    return world.provider.client.get("/_fake/stats").body["writes"]


# The first attempt of an operation stands in its row, later ones in lines of their own.
ATTEMPTS = """SELECT first_attempt FROM onced.operations WHERE first_attempt IS NOT NULL
              UNION SELECT attempt_id FROM onced.history WHERE attempt_id IS NOT NULL"""


def nothing_without_a_record(world, database):
    """Rows come first: there are never less of them than requests."""
    requests = sent(world)
    assert requests <= int(database.value(f"SELECT count(*) FROM ({ATTEMPTS}) AS attempts"))
    return requests


def children(gateways):
    return [onced.process.child.pid for onced in gateways if onced.process.alive()]


def all_was_done(world, database, gateways, alive, load, prober):
    """There is space again: everything goes on, by the same processes. How many requests the provider had."""
    load.goes_on()
    prober.settle()
    load.stop()
    judge(world, gateways, load.intents + prober.intents)
    requests = nothing_without_a_record(world, database)
    assert children(gateways) == alive and len(alive) == 2
    return requests


def test_tables_can_not_grow(world, disk, database):
    """A statement fails with 53100; the server answers reads meanwhile."""
    gateways = [gateway(world, database.url) for _ in range(2)]
    load, prober, alive = Load(gateways, deadline_s=DEADLINE_S), Prober(gateways), children(gateways)
    for _ in range(ROUNDS):
        load.goes_on()
        disk.fill("base")
        told = prober.until_refused()
        assert "the server's disk is full (could not extend file" in told and NO_SPACE in told and "free space" in told, told
        assert f"database {database.name} at 127.0.0.1:{disk.port}" in told, told
        assert gateways[0].client.get("/healthz").status == 200
        nothing_without_a_record(world, database)
        disk.free()
    requests = all_was_done(world, database, gateways, alive, load, prober)
    figure("tables_full", f"tables could not grow {ROUNDS} times, under {len(load.intents) + len(prober.intents)} calls by way of two gateways: "
           f"{requests} requests at the provider, each with its record", requests=requests)


def test_results_wait_for_space(world, disk, database):
    """Requests on the wire end while the disk is full; what came of them is recorded later, without another request."""
    count = 16
    providers = {"plain": registry.provider(world.provider.url, timeout="10s")}
    onced = gateway(world, database.url, providers=providers)
    world.provider.script(*[{"fault": "slow", "ms": 700}] * count)
    operations = [onced.submit("refund.create", {"payment_id": f"p{n}", "amount_cents": 1, "note": large(n)}, key=f"k{n}") for n in range(count)]
    wait_until(lambda: sent(world) == count, what="the requests")
    disk.fill("base")
    wait_until(lambda: onced.process.text().count('"outcome":"success"') == count, what="the answers")
    time.sleep(0.3)
    done = int(database.value("SELECT count(*) FROM onced.operations WHERE state = 'completed_success'"))
    assert done < count, "all were recorded: the disk was not full"
    ready = onced.client.get("/readyz")
    assert ready.status == 503 and "the ledger does not work" in ready["reasons"][0], ready
    assert onced.operation(operations[-1]).state == "dispatched" and sent(world) == count == world.provider.effects()
    disk.free()
    for operation in operations:
        answer = onced.settled(operation)
        assert answer.state == "completed_success" and answer["attempts"] == 1, answer
    wait_until(lambda: onced.client.get("/readyz").status == 200)
    assert sent(world) == count == world.provider.effects()
    log = onced.process.text()
    assert "the server's disk is full" in log and "the ledger works again" in log
    figure("results_waited", f"{count - done} of {count} results came while the disk was full: recorded afterwards, no request more")


def start_again(disk):
    """As a service manager would: until it is up."""
    disk.free()
    if disk.ended():
        disk.start()


def test_log_can_not_grow(world, disk, database):
    """The server dies of it (PANIC) and ends, since it can not recover either."""
    gateways = [gateway(world, database.url) for _ in range(2)]
    load, prober, alive, deaths = Load(gateways, deadline_s=DEADLINE_S), Prober(gateways), children(gateways), 0
    for _ in range(ROUNDS):
        load.goes_on()
        disk.use_up_the_log()
        disk.fill("pg_wal")
        wait_until(disk.ended, what="the server's end")
        prober.until_refused()
        with pytest.raises(AssertionError):
            disk.start()
        told = wait_until(lambda: "can not be reached" in (told := prober.until_refused(1)) and told)
        assert "has its disk space left?" in told, told
        assert gateways[0].client.get("/readyz").status == 503 and gateways[0].client.get("/healthz").status == 200
        deaths += 1
        start_again(disk)
    requests = all_was_done(world, database, gateways, alive, load, prober)
    figure("log_full", f"the server died {deaths} times of a write-ahead log that could not grow, under {len(load.intents) + len(prober.intents)} calls by way of two "
           f"gateways: {requests} requests at the provider, each with its record and once", requests=requests)


def test_commits_are_answered_by_the_servers_death(world, disk, database):
    """The log's last segment took the commit, and there is no room for the next one: it happened, and the answer is PANIC. Had it been taken
    for a failure, attempts would be on record that were never sent."""
    wanted = 20 * ROUNDS
    wire = Wire(disk.port)
    onced = gateway(world, disk.url(database.name, port=wire.port), server={"log": "error"})
    load = Load([onced], deadline_s=DEADLINE_S)
    while wire.dropped < wanted:
        wire.drop = "panic"
        load.goes_on(3)
    load.stop()
    judge(world, [onced], load.intents)
    assert nothing_without_a_record(world, database) == int(database.value(f"SELECT count(*) FROM ({ATTEMPTS}) AS attempts"))

    wire.drop, wire.dies = "panic", disk.kill
    last = Background(onced.call, "refund.create", {"payment_id": "last", "amount_cents": 1}, key="last")
    wait_until(disk.ended)
    told = Prober([onced]).until_refused(1)
    assert "the server died (could not write to file" in told and NO_SPACE in told, told
    disk.start()
    assert last.result().status == 201 and world.provider.effects_of("refunds/last") == 1, last.value
    wire.close()
    figure("commits_panicked", f"{wire.dropped} commits were answered by the server's death under {len(load.intents)} calls: each outcome found out")
