"""SQL tools before a real PostgreSQL: money moves from one row to another. Judged by the rows: every transfer that a caller was
told of is there once, none is there twice, and the sum never changes. The answer to COMMIT is lost, COMMIT itself is lost, onced
is killed between any two statements, PostgreSQL is killed under load.

ONCED_ROUNDS: how often it is killed at each step, and for how many calls answers are lost (CI: 1; evidence/sql-tools-act-once: 25)."""

import os
import pathlib
import random
import signal
import threading
import time

import pytest

from onced_e2e import binary, registry
from onced_e2e.crash import Callers, Intent, Line, rounds, word
from onced_e2e.figures import figure
from onced_e2e.onced import Onced
from onced_e2e.postgres import Cluster, Wire, there
from onced_e2e.process import Failed
from onced_e2e.wait import wait_until

from test_failover import session

pytestmark = pytest.mark.skipif(not there(), reason="PostgreSQL is missing (tools/setup.sh test)")

ROUNDS = rounds(1)
START = 1_000_000
SCHEMA = ("CREATE TABLE account (id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0))",
          "CREATE TABLE transfer (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, operation text NOT NULL, reference text NOT NULL,"
          " cents bigint NOT NULL)",
          f"INSERT INTO account VALUES ('a', {START}), ('b', {START})")
FIELDS = {"type": "object", "required": ["from", "to", "cents", "reference"], "additionalProperties": False,
          "properties": {"from": registry.TEXT, "to": registry.TEXT, "cents": registry.INTEGER, "reference": registry.TEXT, "delay": registry.NUMBER}}


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.stop()


class World:
    def __init__(self, cluster, folder, processes):
        self.cluster = cluster
        self.database = cluster.database()
        self.database.run(*SCHEMA)
        self.wire = Wire(cluster.port)
        self.onced = Onced(folder)
        processes.append(self.onced.process)

    def provider(self, port=None, **more):
        sql = {"url": "${env:ONCED_TEST_DATABASE}", **more.pop("sql", {})}
        os.environ["ONCED_TEST_DATABASE"] = self.cluster.url(self.database.name, port=port or self.wire.port)
        return {"sql": sql, "timeout": "5s", "breaker": {"failures": 0}, **more}

    def start(self, tools=None, provider=None, install=True):
        self.onced.configure({**registry.file("http://127.0.0.1:1", tools or {"transfer": transfer()}), "providers": {"db": provider or self.provider()}})
        if install:
            self.onced.cli("sql", "install", self.onced.file)
        return self.onced.start()

    def transfers(self):
        """By operation: how often it is there."""
        rows = self.database.run("SELECT operation, count(*) FROM transfer GROUP BY 1")
        return {operation: int(count) for operation, count in rows}

    def balances(self):
        return dict((name, int(cents)) for name, cents in self.database.run("SELECT id, cents FROM account ORDER BY id"))

    def judge(self, told, cents=1):
        """told: operations that callers know as done. Open ones must have ended."""
        transfers, balances = self.transfers(), self.balances()
        assert set(transfers.values()) <= {1}, "a transfer is there twice"
        assert set(told) == set(transfers), (sorted(set(told) ^ set(transfers)), len(told), len(transfers))
        assert balances == {"a": START - cents * len(told), "b": START + cents * len(told)}


@pytest.fixture
def world(cluster, tmp_path, processes):
    world = World(cluster, tmp_path, processes)
    yield world
    world.wire.close()
    if world.onced.process.alive():
        world.onced.stop()
    assert not world.onced.process.findings()


def transfer(**more):
    sql = {"statements": [
        {"text": "UPDATE account SET cents = cents - $1 WHERE id = $2", "parameters": ["{cents}", "{from}"], "expect_rows": 1, "refusal": "no such payer"},
        {"text": "UPDATE account SET cents = cents + $1 WHERE id = $2 RETURNING cents", "parameters": ["{cents}", "{to}"], "expect_rows": 1},
        {"text": "INSERT INTO transfer (operation, reference, cents) VALUES ($1, $2, $3) RETURNING id, reference, cents",
         "parameters": ["{$operation}", "ref-{reference}", "{cents}"]},
    ], "result": "/rows/0", "external_id": "/rows/0/id", **more.pop("sql", {})}
    return {"class": "internal_write", "provider": "db", "input_schema": FIELDS, "sql": sql, "while_in_doubt": "allow", "lookup_interval": "20ms",
            "lookup_interval_max": "100ms", "watch": [], "wait": "15s", "retry": {"attempts": 20, "total": "1h", "backoff": "10ms", "backoff_max": "50ms"}, **more}


def arguments(n, **more):
    return {"from": "a", "to": "b", "cents": 1, "reference": str(n), **more}


def load(intents, least, enough):
    """Transfers to come, kept in intents: so many, and more until that is enough."""
    for n in range(100 * least):
        if n >= least and enough():
            return
        intents.append(Intent("transfer", f"k{n}", arguments(n)))
        yield intents[n]


def ended(answer):
    assert answer.status in (200, 201) and answer.state == "completed_success", answer
    return answer.id


# ---- one call ----


def test_a_transfer(world):
    onced = world.start()
    answer = onced.call("transfer", arguments(1, cents=5), key="k1")
    assert answer["result"] == {"id": 1, "reference": "ref-1", "cents": 5} and answer["external_id"] == "1"
    again = onced.call("transfer", arguments(1, cents=5), key="k1")
    assert again.status == 200 and again["replayed"] and again["result"] == answer["result"]
    world.judge([ended(answer)], cents=5)
    [[key, tool, result]] = world.database.run("SELECT provider_key, tool, result FROM onced_dedupe")
    assert (key, tool) == (answer.id, "transfer") and '"reference":"ref-1"' in result


def test_refusals_roll_back(world):
    unique = {"statements": [{"text": "INSERT INTO account VALUES ($1, 0)", "parameters": ["{from}"]}], "noop": ["23505"], "result": "/affected"}
    onced = world.start({"transfer": transfer(), "open": {**transfer(), "sql": unique}})
    poor = onced.call("transfer", arguments(1, cents=START + 1), key="poor")
    assert poor.state == "failed_permanent" and poor["error"]["code"] == "23514" and "account_cents_check" in str(poor["error"]), poor
    nobody = onced.call("transfer", arguments(2, **{"from": "nobody"}), key="nobody")
    assert nobody.state == "failed_permanent" and nobody["error"]["message"] == "no such payer", nobody
    late = onced.call("transfer", arguments(3, to="nobody"), key="late")  # the first statement was executed
    assert late.state == "failed_permanent" and "statement 2 met 0 rows, expected 1" in late["error"]["message"], late
    there_already = onced.call("open", arguments(4), key="open")
    assert there_already.state == "completed_noop", there_already
    new = onced.call("open", arguments(5, **{"from": "c'); DROP TABLE account; --"}), key="new")
    assert new.state == "completed_success" and new["result"] == 1, new
    assert len(world.database.run("SELECT * FROM account")) == 3 and not world.transfers()
    assert world.database.value("SELECT count(*) FROM onced_dedupe") == "1"


def test_types(world):
    what = {"statements": [{"text": "SELECT $1::bigint AS whole, $2::numeric AS exact, $3::boolean AS flag, $4::jsonb AS doc, $5::text AS nothing,"
                                    " $6::text[] AS list, $7::text AS text, 'NaN'::float8 AS nan, date '2026-11-30' AS day",
                            "parameters": ["{whole}", "{exact}", "{flag}", "{doc}", "{nothing?}", "{\"1\",b}".replace("{", "{{").replace("}", "}}"), "n {whole}"]}],
            "result": "/rows/0"}
    tool = {"class": "read", "provider": "db", "sql": what, "input_schema": {"type": "object"}}
    onced = world.start({"types": tool})
    given = {"whole": 9007199254740993, "exact": 0.1, "flag": True, "doc": {"a": [1, None]}}
    answer = onced.call("types", given)
    assert answer["result"] == {"whole": 9007199254740993, "exact": 0.1, "flag": True, "doc": {"a": [1, None]}, "nothing": None, "list": "{1,b}",
                                "text": "n 9007199254740993", "nan": "NaN", "day": "2026-11-30"}, answer
    writing = onced.call("types", {**given, "whole": "x"})
    assert "22P02" in str(writing.body), writing


def test_reads_cannot_write(world):
    sneaky = {"statements": [{"text": "WITH gone AS (DELETE FROM account RETURNING id) SELECT count(*) AS n FROM gone"}]}
    onced = world.start({"look": {"class": "read", "provider": "db", "sql": sneaky, "input_schema": {"type": "object"}}})
    answer = onced.call("look", {})
    assert "25006" in str(answer.body), answer
    assert len(world.database.run("SELECT * FROM account")) == 2


def test_reload(world):
    """Connections of the former registry are not used any more; what it had begun ends."""
    onced = world.start()
    slow = transfer(sql={"statements": [{"text": "INSERT INTO transfer (operation, reference, cents) SELECT $1, 'slow', 1 FROM pg_sleep(0.3) RETURNING id",
                                         "parameters": ["{$operation}"]}]})
    contents = {**registry.file("http://127.0.0.1:1", {"transfer": transfer(), "slow": slow}), "providers": {"db": world.provider()}}
    onced.reload(contents)
    operation = onced.submit("slow", arguments(1), key="slow")
    contents["providers"]["db"] = world.provider(connections=2)
    onced.reload(contents)
    told = ended(onced.call("transfer", arguments(2), key="k"))
    assert onced.settled(operation).state == "completed_success"
    assert world.transfers() == {operation: 1, told: 1}


def test_64_callers_of_one_key(world):
    onced = world.start()
    intents = [Intent("transfer", "the-key", arguments(1))] * 64
    Callers(onced.port, intents, 64).join()
    told = set(intents[0].told)
    assert len(intents[0].told) == 64 and len(told) == 1
    world.judge({each[0] for each in told})


# ---- the answer to COMMIT ----


def lose(world, side, count):
    """COMMITs are cut under so many calls, and more until enough were lost; each call ends by what the database says."""
    onced = world.start({"transfer": transfer(retry=PATIENT)}, provider=world.provider(connections=8))
    world.wire.drop = side
    intents = []

    def heal():
        """Half of the time the wire is whole, so that resends get through."""
        while not stop.wait(0.05):
            world.wire.drop = None if world.wire.drop else side
    stop = threading.Event()
    healing = threading.Thread(target=heal)
    healing.start()
    Callers(onced.port, load(intents, count, lambda: world.wire.dropped >= count // 20), 8).join()
    stop.set()
    healing.join()
    world.wire.drop = None
    assert world.wire.dropped >= count // 20, "hardly a COMMIT was lost"
    assert all(told[1] == "completed_success" for each in intents for told in each.told)
    world.judge([told[0] for each in intents for told in each.told])
    assert not onced.incidents()
    return len(intents), world.wire.dropped


@pytest.mark.parametrize("side", ["answer", "request"])
def test_commit_lost(world, side):
    count, dropped = lose(world, side, 40 * ROUNDS)
    figure(f"sql_commit_{side}", f"{count} transfers, COMMIT's {side} lost {dropped} times: each there once, each found out")


def test_one_lost_answer(world):
    """The same step by step: unknown at first, then the stored result by a resend; found by a look-up where resends are not wanted."""
    onced = world.start({"transfer": transfer(), "asked": transfer(reconcile=["lookup", "manual"])})
    for tool in ("transfer", "asked"):
        world.wire.drop = "answer"
        operation = onced.submit(tool, arguments(tool), key=tool)
        wait_until(lambda: world.wire.dropped, what="the loss")
        world.wire.drop, world.wire.dropped = None, 0
        answer = onced.settled(operation)
        assert answer.state == "completed_success" and answer["result"]["reference"] == f"ref-{tool}" and answer["external_id"], answer
        assert "unknown_outcome" in onced.states_seen(operation)
    world.judge(world.transfers(), cents=1)
    assert len(world.transfers()) == 2


def test_absent_is_proven(world):
    """COMMIT never arrived: the look-up waits for the session that could still have committed, then says absent."""
    onced = world.start({"asked": transfer(reconcile=["lookup", "manual"], retry={"attempts": 1, "total": "1h", "backoff": "10ms", "backoff_max": "50ms"})},
                        provider=world.provider(timeout="2s"))
    world.wire.drop = "request"
    operation = onced.submit("asked", arguments(1), key="k")
    wait_until(lambda: world.wire.dropped, what="the loss")
    world.wire.drop = None
    answer = onced.settled(operation)
    assert answer.state == "failed_permanent" and answer["reason"] == "absent", answer
    world.judge([])


def test_look_up_waits_for_a_running_transaction(world):
    """Somebody holds the key without having committed: neither found nor absent, until it ends."""
    onced = world.start({"asked": transfer(reconcile=["lookup", "manual"])}, provider=world.provider(timeout="2s", sql={"lock_timeout": "50ms"}))
    world.wire.drop = "request"
    operation = onced.submit("asked", arguments(1), key="k")
    wait_until(lambda: world.wire.dropped, what="the loss")
    with session(world.database, f"INSERT INTO onced_dedupe VALUES ('{operation}', 'asked', '{operation}', 'other', '7', '8', now(),"
                                 " now() + interval '1 day') ON CONFLICT DO NOTHING"):
        world.wire.drop = None
        time.sleep(2.5)  # longer than the provider's time-out, after which absent would count
        assert onced.operation(operation).state == "unknown_outcome"
    answer = onced.settled(operation)
    assert answer.state in ("completed_success", "failed_permanent"), answer
    world.judge([operation] if answer.state == "completed_success" else [])


# ---- onced dies ----

MARKS = ["before_send", "sql_claimed", "sql_executed", "sql_recorded", "request_written", "sql_committed", "answer_received", "before_commit", "commit_done"]


def ask_until_settled(port, intent, seconds=40):
    line, end = Line(port), time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            told = word(*line.ask("POST", "/v1/calls", intent.body))
            if told:
                return told
        except OSError:
            time.sleep(0.01)
    raise AssertionError(f"not settled: {intent}")


@pytest.mark.parametrize("mark", MARKS if ROUNDS > 1 else ["sql_claimed", "request_written", "sql_committed"])
def test_killed_at(world, mark):
    """kill -9 at the first pass of a mark, again and again; then one undisturbed life."""
    if b"ONCED_KILL_AT" not in pathlib.Path(binary.onced()).read_bytes():
        pytest.skip("this build has no marks (meson option marks)")
    lives = ROUNDS
    onced = world.start(provider=world.provider(sql={"lock_timeout": "1s"}))
    onced.stop()
    intents = [Intent("transfer", f"k{n}", arguments(n)) for n in range(lives + 1)]
    asking = [threading.Thread(target=lambda each=each: each.told.append(ask_until_settled(onced.port, each)), daemon=True) for each in intents]
    for life in range(lives):
        onced.prefix = ("env", f"ONCED_KILL_AT={mark}:1")
        asking[life].start()
        try:
            onced.start()
        except Failed:
            pass  # it died before it was ready: of what the former life left
        child = onced.process.child
        wait_until(lambda: child.poll() is not None, 20, what=f"the mark {mark}")
        assert child.returncode == -signal.SIGKILL, f"status {child.returncode}\n{onced.process.text()[-4000:]}"
    onced.prefix = ()
    onced.start()
    asking[lives].start()
    for each in asking:
        each.join()
    assert all(each.told and each.told[0][1] == "completed_success" for each in intents), intents
    world.judge([each.told[0][0] for each in intents])
    figure(f"sql_killed_{mark}", f"killed {lives} times at {mark}: {len(intents)} transfers, each there once", kills=lives)


def test_postgres_is_killed(world):
    """Killed and started again under load."""
    onced = world.start()
    intents, kills = [], 0
    callers = Callers(onced.port, load(intents, 40 * ROUNDS, lambda: kills == 2 * ROUNDS), 16, deadline_s=600)
    while any(thread.is_alive() for thread in callers.threads) and kills < 2 * ROUNDS:
        time.sleep(random.uniform(0.05, 0.2))
        world.cluster.kill()
        world.cluster.start()
        kills += 1
    callers.join()
    assert kills == 2 * ROUNDS
    assert all(told[1] == "completed_success" for each in intents for told in each.told)
    world.judge([told[0] for each in intents for told in each.told])
    figure("sql_postgres_killed", f"PostgreSQL killed {kills} times under {len(intents)} transfers: each there once", kills=kills)


# ---- set up wrongly ----


PATIENT = {"attempts": 1000, "total": "1h", "backoff": "10ms", "backoff_max": "50ms"}


def first_error(onced, tool="transfer"):
    """What the caller is told while it is tried again."""
    operation = onced.submit(tool, arguments(1), key="k")
    return wait_until(lambda: (onced.operation(operation).body.get("error") or {}).get("message"), what="an error"), operation


def test_table_is_missing(world):
    onced = world.start({"transfer": transfer(retry=PATIENT)}, install=False)
    message, operation = first_error(onced)
    assert "onced_dedupe" in message and "onced sql install" in message, message
    assert onced.operation(operation).state in ("failed_retryable", "dispatched")
    onced.cli("sql", "install", onced.file)
    assert onced.settled(operation).state == "completed_success"
    world.judge([operation])


def test_server_takes_no_writes(world):
    """As after a switch-over: the connection is not used again, the next one is made anew."""
    onced = world.start({"transfer": transfer(retry=PATIENT)})
    world.database.run(f"ALTER DATABASE {world.database.name} SET default_transaction_read_only = on")
    message, operation = first_error(onced)
    assert "takes no writes" in message and "target_session_attrs=read-write" in message, message
    world.database.run("SET default_transaction_read_only = off", f"ALTER DATABASE {world.database.name} SET default_transaction_read_only = off")
    assert onced.settled(operation).state == "completed_success"
    world.judge([operation])


def test_rights_are_missing(world):
    world.database.run("CREATE ROLE clerk LOGIN PASSWORD 'clerk'", "GRANT SELECT, UPDATE ON account TO clerk", "GRANT INSERT, SELECT ON transfer TO clerk",
                       check=False)
    provider = world.provider()
    onced = world.start({"transfer": transfer(retry=PATIENT)}, provider=provider)
    onced.stop()
    os.environ["ONCED_TEST_DATABASE"] = world.cluster.url(world.database.name, "clerk", "clerk")
    message, operation = first_error(onced.start())
    assert "may not use table onced_dedupe" in message and "GRANT" in message, message
    world.database.run("GRANT SELECT, INSERT, UPDATE ON onced_dedupe TO clerk")
    assert onced.settled(operation).state == "completed_success"
    denied = onced.cli("sql", "prune", onced.file, check=False)
    assert denied.returncode == 6 and "permission denied" in denied.stderr, denied


@pytest.mark.parametrize("fault, words", [("password", "password authentication failed"), ("port", "Connection refused"), ("database", "does not exist")])
def test_no_connection(world, fault, words):
    onced = world.start()
    onced.stop()
    database, password, port = world.database.name, None, world.cluster.port
    if fault == "password":
        password = "wrong"
    elif fault == "port":
        port = 1
    else:
        database = "nowhere"
    os.environ["ONCED_TEST_DATABASE"] = world.cluster.url(database, password=password, port=port)
    onced.start()
    message, operation = first_error(onced)
    assert words in message and "wrong" not in message, message
    assert {row["outcome"] for row in onced.attempt_rows(operation) if row["outcome"] != "open"} == {"not_sent"}
    failed = onced.cli("sql", "install", onced.file, check=False)
    assert failed.returncode == 4 and words in failed.stderr, failed
    onced.kill()
    os.environ["ONCED_TEST_DATABASE"] = world.cluster.url(world.database.name)
    assert onced.start().settled(operation).state == "completed_success"
    world.judge([operation])


def test_registry_faults(world, tmp_path):
    onced = world.start()
    file = tmp_path / "broken.yaml"
    file.write_text("""onced: 1
providers:
  db: {sql: {url: "postgresql://u:secret@h/d", table: "x; drop"}}
tools:
  pay: {class: external_weak, provider: db, sql: {statements: [{text: "COMMIT"}]}}
  two: {class: internal_write, provider: db, sql: {statements: [{text: "SELECT 1; SELECT 2"}]}}
  few: {class: internal_write, provider: db, sql: {statements: [{text: "SELECT $1, $3", parameters: ["{a}"]}]}}
  look: {class: read, provider: db, sql: {statements: [{text: "DELETE FROM a"}]}}
""")
    found = onced.cli("check", file, check=False)
    for words in ("holds a password", "expected a name of a-z", "expected internal_write, or read", "the transaction is onced's", "several statements",
                  "uses 3 parameters ($1, $2, …), but 1 are given", "class read changes nothing"):
        assert words in found.stdout + found.stderr, (words, found)
    assert "secret" not in found.stdout + found.stderr


# ---- the table ----


def test_prune(world):
    onced = world.start()
    told = [ended(onced.call("transfer", arguments(n), key=f"k{n}")) for n in range(3)]
    assert "0 records removed" in onced.cli("sql", "prune", onced.file).stdout
    world.database.run(f"UPDATE onced_dedupe SET expires_at = now() - interval '1 minute' WHERE provider_key = '{told[0]}'")
    assert "1 record removed" in onced.cli("sql", "prune", onced.file).stdout
    assert world.database.value("SELECT count(*) FROM onced_dedupe") == "2"
    days = world.database.value("SELECT round(extract(epoch FROM expires_at - created_at) / 86400) FROM onced_dedupe LIMIT 1")
    assert days == "31"  # retention and a day
