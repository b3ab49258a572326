"""A PostgreSQL ledger fails under its gateways: it is killed and started again, its primary is lost and the standby takes over, the
answer to COMMIT is lost, it is locked, silent, full of connections, replaced by a newer schema. Judged by the provider: every intent
had its effect once, and what callers were told is told again. The neighbours: test_sql.py (SQL tools), test_disk_full.py (SQLite).

ONCED_ROUNDS: how long each goes on (CI: 1; the scripts of evidence/ take more)."""

import contextlib
import itertools
import os
import signal
import subprocess
import threading
import time

import pytest

from onced_e2e import binary, registry
from onced_e2e.crash import Callers, Intent, Line, ask_again, rounds
from onced_e2e.figures import figure
from onced_e2e.onced import Onced
from onced_e2e.pg_faults import SYNCHRONOUS, Between, Standby, older_server, other_process
from onced_e2e.postgres import BINARIES, Cluster, Database, Wire, there
from onced_e2e.process import environment
from onced_e2e.wait import Background, wait_until

pytestmark = pytest.mark.skipif(not there(), reason="PostgreSQL is missing (tools/setup.sh test)")

ROUNDS = rounds(1)
STOP_SECONDS = 16  # stop_timeout of 1 s, 5 s for the ledger, and the rest for a busy machine; a silent server is given up after 20 s only
PERIOD = float(os.environ.get("ONCED_PERIOD", "1.5"))  # seconds between kills of the server


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def database(cluster):
    return cluster.database()


def tool(**more):
    return registry.refund(keyed=False, while_in_doubt="allow", wait="2s", **more)


def gateway(world, url, tools=None, **more):
    """What it leaves when it is killed is taken up soon: its lease is short."""
    onced = world.prepare(tools or {"refund.create": tool()}, ledger=url, **more)
    onced.configure({**world.file(tools or {"refund.create": tool()}, **more), "ledger": {"lease": "2s"}})
    return onced.start()


def intent(n, prefix=""):
    return Intent("refund.create", f"{prefix}k{n}", {"payment_id": f"{prefix}p{n}", "amount_cents": n + 1})


class Load:
    """The same intents by way of every gateway at once, until told to stop: both ask for each until it is settled."""

    def __init__(self, gateways, threads=8, **named):
        self.intents, self.over = [], threading.Event()
        self.lock = threading.Lock()
        self.callers = [Callers(each.port, self._jobs(), threads, **named) for each in gateways]

    def _jobs(self):
        for n in itertools.count():
            with self.lock:
                if n == len(self.intents):
                    if self.over.is_set():
                        return
                    self.intents.append(intent(n))
            yield self.intents[n]

    @property
    def answered(self):
        return sum(each.answered for each in self.callers)

    def check(self):
        problems = [problem for each in self.callers for problem in each.problems]
        if problems:
            raise problems[0]

    def goes_on(self, calls=20, seconds=30):
        before = self.answered
        wait_until(lambda: self.answered > before + calls or any(each.problems for each in self.callers), seconds, what="service")
        self.check()

    def stop(self):
        self.over.set()
        for each in self.callers:
            each.join()


def judge(world, gateways, intents, killed=False):
    """Each intent was executed once, all its callers were told the same, and are told it again by every gateway. What a killed
    gateway had recorded and not sent is proven absent and has failed: it is not sent again by itself (external_weak)."""
    truth = world.provider.truth()
    states = [each.told[0][1] for each in intents]
    done, failed = states.count("completed_success"), states.count("failed_permanent")
    assert done + failed == len(intents) and (killed or not failed), (done, failed, len(intents))
    assert truth["duplicates_by_key"] == 0 and truth["effects"] == done, (truth["duplicates_by_key"], truth["effects"], done, failed)
    for each in intents:
        assert {told[:2] for told in each.told} == {each.told[0][:2]}, each
    for each in gateways:
        assert not ask_again(each.port, intents)


# ---- it dies ----


def test_database_is_killed_under_load(world, cluster, database):
    gateways = [gateway(world, database.url) for _ in range(2)]
    load = Load(gateways)
    kills = 0
    while kills < 2 * ROUNDS:
        load.goes_on()
        time.sleep(PERIOD)
        cluster.kill()
        cluster.start()
        kills += 1
    load.goes_on()
    load.stop()
    judge(world, gateways, load.intents)
    figure("database_killed", f"PostgreSQL killed {kills} times, every {PERIOD:g} s, under {len(load.intents)} calls by way of two gateways: "
           "each effect there once, each answer told again", kills=kills)


def slow_gateway(world, url, timeout="20s", **more):
    """The provider's first answer comes when it is told to release it; its effect is there at once."""
    world.provider.script("timeout_after_commit")
    return gateway(world, url, providers={"plain": registry.provider(world.provider.url, timeout=timeout)}, **more)


def answered(onced):
    """An attempt has ended, recorded or not."""
    return '"outcome":"success"' in onced.process.text()


def test_while_it_is_away(world, cluster, database):
    """503 and nothing sent; what is on the wire ends, and its result is recorded when the ledger is back."""
    onced = slow_gateway(world, database.url)
    waiting = Background(onced.call, "refund.create", {"payment_id": "p", "amount_cents": 1}, key="held", wait_ms=100)
    wait_until(lambda: world.provider.requests(), what="the request")
    cluster.kill()
    try:
        line = Line(onced.port)
        refused = wait_until(lambda: (answer := line.ask("POST", "/v1/calls", intent(1).body))[0] == 503 and answer, what="503")[1]
        assert refused["type"] == "urn:onced:problem:unavailable" and refused["retry_after_ms"] > 0, refused
        began = time.monotonic()
        for n in range(200):
            status, body = line.ask("POST", "/v1/calls", intent(n).body)
            assert status == 503, body
        assert time.monotonic() - began < 60, "refusals take their time"
        ready = onced.client.get("/readyz")
        assert ready.status == 503 and "the ledger does not work" in ready["reasons"][0], ready
        assert onced.client.get("/healthz").status == 200
        assert waiting.result().status == 202, waiting.value  # it may have happened: never "nothing was sent"
        world.provider.release()
        wait_until(lambda: answered(onced), what="the answer")
        assert len(world.provider.requests()) == 1
    finally:
        cluster.start()
    answer = wait_until(lambda: (told := onced.call("refund.create", {"payment_id": "p", "amount_cents": 1}, key="held")).status in (200, 201) and told)
    assert answer.state == "completed_success" and answer["attempts"] == 1, answer
    wait_until(lambda: onced.client.get("/readyz").status == 200)
    assert world.provider.truth()["effects"] == 1
    log = onced.process.text()
    assert log.count("the ledger works again") >= 1 and "nothing was recorded, nothing was sent" in log


def test_stopped_while_it_is_away(world, cluster, database):
    """SIGTERM ends it at its deadline; the log says what is open; the next one finds out what came of it."""
    onced = slow_gateway(world, database.url, "6s", server={"stop_timeout": "1s"})  # so long the next one waits
    operation = onced.submit("refund.create", {"payment_id": "p", "amount_cents": 1}, key="held")
    wait_until(lambda: world.provider.requests(), what="the request")
    cluster.kill()
    try:
        world.provider.release()
        wait_until(lambda: answered(onced), what="the answer")
        began = time.monotonic()
        onced.stop()
        assert time.monotonic() - began < STOP_SECONDS
        log = onced.process.text()
        told = log[log.index("operations are open"):]
        assert operation in told and '"outcome":"success"' in told, told
    finally:
        cluster.start()
    onced.start()
    assert onced.settled(operation).state == "completed_success"
    assert world.provider.truth()["effects"] == 1


# ---- another one takes its place ----


def both(primary, standby, database):
    url = primary.url(database.name)
    return url.replace(f"127.0.0.1:{primary.port}", f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}")


def test_standby_takes_over(world):
    primary = Cluster(**SYNCHRONOUS)
    standby = None
    try:
        Database(primary, "postgres").run("SET synchronous_commit = local", "ALTER ROLE onced SET synchronous_commit = off")
        standby = Standby(primary)
        database = primary.database()
        url = both(primary, standby, database)
        known = f"SELECT 1 FROM pg_database WHERE datname = '{database.name}'"
        wait_until(lambda: Database(standby, "postgres").run(known), what="the database at the standby")
        alone = start_fails(world, standby.url(database.name))
        assert alone.returncode == 4 and "onced needs the primary" in alone.stderr, alone
        gateways = [gateway(world, url) for _ in range(2)]
        load = Load(gateways)
        load.goes_on(20 * ROUNDS, 60)
        primary.kill()
        standby.promote()
        load.goes_on(20 * ROUNDS, 60)

        # The former primary comes back and knows nothing: it waits for a standby that is none any more.
        primary.start()
        load.goes_on(20)
        alone = Background(start_fails, world, primary.url(database.name))
        gateways[0].kill()  # its callers go on asking until it is back, past the former primary
        gateways[0].process.start([binary.onced(), "serve", str(gateways[0].file), "--listen", f"127.0.0.1:{gateways[0].port}", "--ledger", url])
        load.goes_on(20, 60)
        load.stop()
        alone = alone.result()
        assert alone.returncode == 4 and "is away" in alone.stderr, alone
        judge(world, gateways, load.intents, killed=True)
        acknowledged = {each.told[0][0] for each in load.intents}
        stored = {row[0] for row in Database(standby, database.name).run("SELECT id FROM onced.operations")}
        assert acknowledged <= stored
        figure("standby_promoted", f"primary lost and standby promoted under {len(load.intents)} calls by way of two gateways, one killed after it: each effect "
               "there once, no acknowledged operation missing; the former primary came back and took no write")
        world.stop()
    finally:
        if standby:
            standby.stop()
        primary.stop()


def sessions(database):
    return int(database.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onced'"))


def is_given_up(database):
    """By the ledger's connections, at once: a table is missing. Those that listen stay. What waits there for its standby's word holds
    locks."""
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'onced' AND query NOT LIKE 'LISTEN%'",
                 "SET synchronous_commit = local", "SET lock_timeout = 200", "ALTER TABLE onced.gateways RENAME TO former", check=False)
    return database.value("SELECT to_regclass('onced.former') IS NOT NULL") == "t"


def test_news_follow_the_ledger(world):
    """The former primary lives on, and the connections that listen there are sound. Nothing happens there any more: they go where the
    ledger's own have gone, past the former primary, which lets them in. Who waits at one gateway is told at once of what another one did."""
    primary = Cluster(**SYNCHRONOUS)
    standby = None
    try:
        standby = Standby(primary)
        database = primary.database()
        providers = {"plain": registry.provider(world.provider.url, timeout="20s")}
        gateways = [gateway(world, both(primary, standby, database), providers=providers) for _ in range(2)]
        assert gateways[0].call("refund.create", {"payment_id": "p", "amount_cents": 1}, key="before").status == 201
        wait_until(lambda: sessions(database) == 6, 30, what="all connections of each")
        standby.promote()
        moved = Database(standby, database.name)
        wait_until(lambda: is_given_up(database), 30, what="the former primary's end")
        for each in gateways:  # who is asked for nothing takes its time
            wait_until(lambda each=each: each.client.get("/v1/operations").status == 200, what="a ledger")
        wait_until(lambda: sessions(moved) == 6 and sessions(database) == 0, 30, what="the move of all connections")
        for n in range(5):  # on a busy machine one round may be late; by looks alone each one is
            apart_s = told_apart(world, gateways, n)
            if apart_s < 0.8:
                break
        assert apart_s < 0.8
        assert world.provider.truth()["effects"] == n + 2
        world.stop()
    finally:
        if standby:
            standby.stop()
        primary.stop()


def told_apart(world, gateways, n):
    """How far apart, in seconds, two gateways tell the end of what one of them does."""
    world.provider.script("timeout_after_commit")
    call = ("refund.create", {"payment_id": f"q{n}", "amount_cents": 1})
    first = Background(gateways[0].call, *call, key=f"k{n}", wait_ms=8000)
    wait_until(lambda: len(world.provider.requests()) == n + 2, what="the request")
    ends = [Background(timed, each.call, *call, key=f"k{n}", wait_ms=8000) for each in gateways]
    time.sleep(1.7)  # who looks has done so after 0.5 and 1.5 s, and do so again after 3.5 s
    world.provider.release()
    told = [each.result() for each in ends]
    assert first.result().status == 201 and [answer.state for answer, _ in told] == ["completed_success"] * 2
    return abs(told[0][1] - told[1][1])


def timed(function, *args, **named):
    return function(*args, **named), time.monotonic()


# ---- the answer to COMMIT ----


def test_commit_answers_are_lost(world, cluster, database):
    wanted = 40 * ROUNDS
    wire = Wire(cluster.port)
    stop = threading.Event()
    onced = gateway(world, cluster.url(database.name, port=wire.port), server={"log": "error"})

    def lose():
        while not stop.wait(0.03):
            wire.drop = None if wire.drop else "answer"
        wire.drop = None

    load = Load([onced], deadline_s=600)
    losing = threading.Thread(target=lose)
    losing.start()
    try:
        wait_until(lambda: wire.dropped >= wanted or any(each.problems for each in load.callers), 60 + wanted, what=f"{wanted} lost answers")
    finally:
        stop.set()
        losing.join()
    load.stop()
    judge(world, [onced], load.intents)
    wire.close()
    figure("commit_answers_lost", f"answers to COMMIT lost {wire.dropped} times under {len(load.intents)} calls: each outcome found out, each effect there once",
           lost=wire.dropped)


# ---- it is there and does not work ----


def limited(url, **settings):
    return url + "&options=" + "%20".join(f"-c%20{name}%3D{value}" for name, value in settings.items())


@contextlib.contextmanager
def session(database, *statements):
    """A psql that holds what these have taken, until the end of the block."""
    child = subprocess.Popen([BINARIES[-1] / "psql", "-XAtq", database.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdin.write("BEGIN;\n" + ";\n".join(statements) + ";\n\\echo held\n")
    child.stdin.flush()
    assert child.stdout.readline() == "held\n"
    try:
        yield child
    finally:
        child.stdin.close()
        child.wait(10)
        child.stdout.close()


@pytest.mark.parametrize("setting, words", [("lock_timeout", "a lock was held too long"), ("statement_timeout", "a statement took too long")])
def test_somebody_holds_a_lock(world, database, setting, words):
    onced = gateway(world, limited(database.url, **{setting: "2s"}))  # for its start and for what succeeds, too
    assert onced.call("refund.create", {"payment_id": "p", "amount_cents": 1}, key="before").status == 201
    with session(database, "SET search_path = onced", "LOCK TABLE operations IN ACCESS EXCLUSIVE MODE"):
        answer = onced.call("refund.create", {"payment_id": "q", "amount_cents": 1}, key="k")
        assert answer.status == 503 and words in answer["detail"] and "nothing was sent" in answer["detail"], answer
        assert answer.headers["Retry-After"]
    answer = onced.call("refund.create", {"payment_id": "q", "amount_cents": 1}, key="k")
    assert answer.status == 201 and world.provider.truth()["effects"] == 2, answer


def test_session_is_ended_by_the_server(world, database):
    """As by an administrator, or by idle_in_transaction_session_timeout: a new one is made, nothing shows."""
    onced = gateway(world, database.url)
    for n in range(5):
        assert onced.call("refund.create", {"payment_id": f"p{n}", "amount_cents": 1}, key=f"k{n}").status == 201
        database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'onced' AND datname = current_database()")
    assert world.provider.truth()["effects"] == 5


def test_no_connection_left(world, cluster, database):
    database.run("CREATE ROLE crowded LOGIN PASSWORD 'crowded' CONNECTION LIMIT 2", f"GRANT CREATE ON DATABASE {database.name} TO crowded")
    url = cluster.url(database.name, "crowded", "crowded")
    onced = gateway(world, url)
    wait_until(lambda: database.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'crowded'") == "2", what="both of its connections")
    second = start_fails(world, url)
    assert second.returncode == 4 and "no connection left" in second.stderr and "crowded@" not in second.stderr, second
    database.run("ALTER ROLE crowded CONNECTION LIMIT 0",
                 "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crowded'")
    answer = onced.call("refund.create", {"payment_id": "p", "amount_cents": 1}, key="k")
    assert answer.status == 503 and "no connection left" in answer["detail"], answer
    database.run("ALTER ROLE crowded CONNECTION LIMIT 2")
    wait_until(lambda: onced.call("refund.create", {"payment_id": "p", "amount_cents": 1}, key="k").status == 201)
    assert world.provider.truth()["effects"] == 1


def test_network_swallows_everything(world, cluster, database):
    """Nobody queues up before a silent server, and SIGTERM is obeyed although the ledger thread waits for it."""
    between = Between(cluster.port)
    onced = gateway(world, cluster.url(database.name, port=between.port), server={"stop_timeout": "1s"})
    assert onced.call("refund.create", {"payment_id": "p", "amount_cents": 1}, key="before").status == 201
    between.hold()
    first = Background(onced.call, "refund.create", {"payment_id": "q", "amount_cents": 1}, key="first")
    time.sleep(1)  # it is with the server now, for 20 s
    second = onced.call("refund.create", {"payment_id": "r", "amount_cents": 1}, key="second", timeout=15)
    assert second.status == 503 and "has said nothing for" in second["detail"], second
    assert onced.client.get("/readyz").status == 503
    began = time.monotonic()
    onced.process.signal(signal.SIGTERM)
    assert onced.process.child.wait(20) == 0
    assert time.monotonic() - began < STOP_SECONDS
    between.close()
    with contextlib.suppress(Exception):
        first.result()
    assert world.provider.truth()["effects"] == 1


def newer(database):
    """What a newer onced does when it migrates: its version, and the epoch of all that run."""
    database.run("INSERT INTO onced.migrations VALUES (99, 0, 'newer'); UPDATE onced.gateways SET epoch = epoch + 1")


def test_newer_gateway_migrates_under_an_older_one(world, database):
    onced = gateway(world, database.url)
    assert onced.call("refund.create", {"payment_id": "p", "amount_cents": 1}, key="before").status == 201
    newer(database)
    answer = onced.call("refund.create", {"payment_id": "q", "amount_cents": 1}, key="k")
    assert answer.status == 503 and "schema version 99" in answer["detail"], answer
    ready = wait_until(lambda: (now := onced.client.get("/readyz")).status == 503 and now)
    assert "run the newer onced" in ready["reasons"][0], ready
    assert world.provider.truth()["effects"] == 1
    onced.kill()
    again = start_fails(world, database.url)
    assert again.returncode == 7 and "schema version 99" in again.stderr, again


# ---- it does not fit ----


def start_fails(world, url, tools=None, *more):
    """onced serve with that ledger, which ends by itself."""
    folder = world.folder / f"fails-{time.monotonic_ns()}"
    folder.mkdir()
    onced = Onced(folder)
    onced.configure(world.file(tools or {"refund.create": tool()}))
    return subprocess.run([binary.onced(), "serve", str(onced.file), "--listen", "127.0.0.1:0", "--ledger", url, *more], capture_output=True, text=True,
                          timeout=40, env=environment())


def said(done):
    """The lines for people: the log's are JSON."""
    return "".join(line for line in done.stderr.splitlines(True) if not line.startswith("{"))


SECRET = "s3cret-w0rd"


def wrong_database(cluster, database, what):
    """(URL, exit status, words)"""
    url, at = cluster.url, database.name
    if what == "url":
        return f"postgresql://onced:{SECRET}@127.0.0.1:port/{at}", 2, "expected postgresql://user@host:port/database"
    if what == "port":
        return url(at, password=SECRET, port=1), 4, "is it running, are host and port right"
    if what == "host":
        return url(at, password=SECRET).replace("127.0.0.1", "nowhere.invalid"), 4, "are host and port right"
    if what == "password":
        return url(at, password=SECRET), 6, "set user and password in the URL or a .pgpass file"
    if what == "user":
        return url(at, user="nobody", password=SECRET), 6, "set user and password in the URL or a .pgpass file"
    if what == "database":
        return url("nowhere"), 7, "create it first"
    if what == "rights":
        database.run(f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'", check=False)
        return url(at, "guest", SECRET), 6, "the role needs CREATE on the database once"
    if what == "read-only":
        database.run(f"ALTER DATABASE {at} SET default_transaction_read_only = on")
        return database.url, 4, "onced needs the primary"
    if what == "encoding":
        Database(cluster, "postgres").run(f"CREATE DATABASE latin_{at} ENCODING 'LATIN1' TEMPLATE template0")
        return url(f"latin_{at}"), 7, "create a database with ENCODING 'UTF8'"
    raise AssertionError(what)


@pytest.mark.parametrize("what", ["url", "port", "host", "password", "user", "database", "rights", "read-only", "encoding"])
def test_wrong_database(world, cluster, database, what):
    url, status, words = wrong_database(cluster, database, what)
    done = start_fails(world, url)
    assert done.returncode == status and words in said(done), done
    assert SECRET not in done.stderr + done.stdout and cluster.password not in done.stderr + done.stdout
    listed = subprocess.run([binary.onced(), "token", "list", "--ledger", url], capture_output=True, text=True, timeout=40, env=environment())
    assert listed.returncode == status, listed
    assert SECRET not in listed.stderr and cluster.password not in listed.stderr


@pytest.mark.parametrize("change, words", [(older_server, "onced needs 15 or newer"), (other_process, "is behind a connection pooler")])
def test_wrong_server(world, cluster, database, change, words):
    between = Between(cluster.port, change)
    done = start_fails(world, cluster.url(database.name, port=between.port))
    between.close()
    assert done.returncode == 7 and words in said(done), done


def test_wrong_registry_and_address(world, cluster, database):
    onced = gateway(world, database.url)
    taken = subprocess.run([binary.onced(), "serve", str(onced.file), "--listen", f"127.0.0.1:{onced.port}", "--ledger", database.url], capture_output=True,
                           text=True, timeout=40, env=environment())
    assert taken.returncode == 8 and "cannot listen" in said(taken), taken
    onced.stop()
    os.environ["ONCED_TEST_LEDGER_URL"] = f"postgresql://onced:{SECRET}@127.0.0.1:port/x"
    onced.file.write_text(registry.text({**world.file({"refund.create": tool()}), "ledger": {"url": "${env:ONCED_TEST_LEDGER_URL}"}}))
    wrong = subprocess.run([binary.onced(), "serve", str(onced.file)], capture_output=True, text=True, timeout=40, env=environment())
    assert wrong.returncode == 2 and "/ledger/url" in wrong.stderr and SECRET not in wrong.stderr, wrong


def test_waits_for_the_ledger(world, cluster, database):
    """--wait-for-ledger: for one that is away, not for one that does not fit; SIGTERM is obeyed meanwhile."""
    between = Between(cluster.port)
    port, late = between.port, world.prepare({"refund.create": tool()}, ledger=cluster.url(database.name, port=between.port))
    between.close()
    argv = [binary.onced(), "serve", str(late.file), "--listen", "127.0.0.1:0", "--ledger", str(late.ledger), "--wait-for-ledger"]
    began = time.monotonic()
    short = subprocess.run([*argv, "1s"], capture_output=True, text=True, timeout=20, env=environment())
    assert short.returncode == 4 and time.monotonic() - began >= 1, short
    assert start_fails(world, cluster.url("nowhere"), None, "--wait-for-ledger", "30s").returncode == 7
    stopped = subprocess.Popen([*argv, "60s"], stderr=subprocess.PIPE, text=True, env=environment())
    assert "waiting for the ledger" in stopped.stderr.readline()
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(10) == 0
    stopped.stderr.close()
    begun = Background(late.process.start, [*argv, "60s"])
    wait_until(lambda: "waiting for the ledger" in late.process.text())
    between = Between(cluster.port, at=port)
    assert begun.result()["ready"] is True
    late.stop()
    between.close()
