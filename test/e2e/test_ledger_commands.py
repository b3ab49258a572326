"""`onced ledger`: migrate, verify, stats, copy, on SQLite and PostgreSQL, with ledgers that the simulator left behind: every kind of
row is in them. Damage is done by SQL, one rule at a time; copies are killed at random moments and resumed.

ONCED_LEDGER_KILLS: how often a copy is killed each way (CI: 1; evidence/ledger-copies-are-equal: 20). ONCED_LEDGER_SEEDS: how many simulated
ledgers are verified and copied (CI: 1). ONCED_LEDGER_LARGE: operations of a large one (CI: none). ONCED_LEDGER_DAMAGE=each: every kind of damage,
each in a database of its own (CI: some in SQLite, all that go together in one PostgreSQL database; test_audit.c has most of the rules)."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest

from onced_e2e import binary, registry, webhooks
from onced_e2e.figures import figure
from onced_e2e.postgres import Cluster, Database, there
from onced_e2e.process import environment
from onced_e2e.wait import wait_until

KILLS = int(os.environ.get("ONCED_LEDGER_KILLS", "1"))
SEEDS = int(os.environ.get("ONCED_LEDGER_SEEDS", "1"))
LARGE = int(os.environ.get("ONCED_LEDGER_LARGE", "0"))
EACH = os.environ.get("ONCED_LEDGER_DAMAGE") == "each"
FIRST_SEED = 16  # with inbound events (every sixteenth run)
LARGE_SEED = 21  # all that it intends is admitted
INTENTS = 100
IN_USE, SCHEMA, UNSOUND = 9, 7, 10
needs_postgres = pytest.mark.skipif(not there(), reason="PostgreSQL is missing (tools/setup.sh test)")


def onced(*argv, status=0, timeout=120):
    done = subprocess.run([binary.onced(), *map(str, argv)], capture_output=True, text=True, timeout=timeout, env=environment())
    assert status is None or done.returncode == status, f"{argv}: exit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def ledger(verb, where, *argv, **named):
    return onced("ledger", verb, "--ledger", where, *argv, **named)


def findings(where, **named):
    """Each finding of verify, and its sum."""
    *found, total = [json.loads(line) for line in ledger("verify", where, "--json", "--max", 1000, **named).stdout.splitlines()]
    return found, total


def copy(source, target, **named):
    return json.loads(onced("ledger", "copy", source, target, "--json", **named).stdout)


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Files that simulated runs left, by seed; tokens, which no simulated person has, are added."""
    made = {}

    def make(seed, intents=INTENTS):
        if (seed, intents) in made:
            return made[seed, intents]
        folder = tmp_path_factory.mktemp("simulated")
        done = subprocess.run([binary.onced(), "simulate", "--seed", str(seed), "--seeds", "1", "--intents", str(intents), "--ledger", "sqlite", "--keep",
                               "--jobs", "1"], capture_output=True, text=True, timeout=600, env={**environment(), "TMPDIR": str(folder)})
        assert done.returncode == 0, done.stdout
        [file] = folder.glob("*.db")
        onced("token", "create", "--ledger", file, "--principal", "ann", "--role", "approver")
        onced("token", "create", "--ledger", file, "--principal", "bot", "--role", "agent", "--tools", "refund.*")
        made[seed, intents] = file
        return file

    return make


def duplicate(file, folder):
    """A copy of the file of a ledger that nobody has open."""
    target = folder / "copy.db"
    for ending in ("", "-wal"):
        if pathlib.Path(f"{file}{ending}").exists():
            shutil.copy(f"{file}{ending}", f"{target}{ending}")
    return target


def remove(file):
    for ending in ("", "-wal", "-shm"):
        pathlib.Path(f"{file}{ending}").unlink(missing_ok=True)


def another(folder):
    """A ledger with one token and nothing else."""
    file = folder / "another.db"
    onced("token", "create", "--ledger", file, "--principal", "eve", "--role", "agent")
    return file


# ---- verify ----


@pytest.mark.parametrize("seed", [FIRST_SEED * (1 + n) for n in range(SEEDS)])
def test_what_the_simulator_leaves_is_sound(simulated, seed):
    found, total = findings(simulated(seed))
    assert found == [] and total["rows"] > 50


# Rule, and what breaks it. {state:x} is the stored value of a name; several statements are parted by semicolons. DONE is an
# operation that succeeded with its own attempt, OLD a row that may be given any meaning.
DONE = ("(SELECT min(id) FROM operations WHERE state = {state:completed_success} AND attempts = 1 AND tries = 1 AND claims IS NULL AND steps IS NULL "
        "AND parent IS NULL AND compensates IS NULL AND compensation IS NULL)")
ROW = f"WHERE id = {DONE}"
OTHER = (f"(SELECT max(id) FROM operations WHERE compensates IS NULL AND steps IS NULL AND tenant = (SELECT tenant FROM operations {ROW}) "
         f"AND id <> {DONE})")
DAMAGE = {
    "events-end": f"UPDATE operations SET state = {{state:failed_permanent}}, may_have_applied = 0 {ROW}",
    "no-effect": f"UPDATE operations SET state = {{state:failed_permanent}} {ROW}",
    "may-have-applied": f"UPDATE operations SET may_have_applied = 0 {ROW}",
    "completed": f"UPDATE operations SET completed_ms = 0 {ROW}",
    "retain": f"UPDATE operations SET retain_until_ms = 0 {ROW}",
    "created": f"UPDATE operations SET created_ms = 0 {ROW}",
    "unknown-since": f"UPDATE operations SET unknown_since_ms = 5 {ROW}",
    "lease": f"UPDATE operations SET owner = 'somebody' {ROW}",
    "lease-noticed": f"UPDATE operations SET owner = 'somebody', lease_until_ms = 7, wake_at_ms = 8 {ROW}",
    "claimable": f"UPDATE operations SET state = {{state:dispatched}}, reason = {{reason:timeout}}, open = 1, completed_ms = 0, wake_at_ms = 0 {ROW}",
    "rejected-unsent": f"UPDATE operations SET state = {{state:rejected}}, may_have_applied = 0 {ROW}",
    "open": f"UPDATE operations SET open = 1 {ROW}",
    "repeat-hash": f"UPDATE operations SET repeat_hash = repeat_hash + 1 {ROW}",
    "key-hash": f"UPDATE operations SET key = 'another' {ROW}",
    "versions": f"UPDATE operations SET rev = 0 {ROW}",
    "attempt-counts": f"UPDATE operations SET attempts = 2 {ROW}",
    "event-attempt": f"UPDATE operations SET tries = 0 {ROW}",
    "key-versions": f"UPDATE operations SET key_version = 4 {ROW}",
    "link": f"UPDATE operations SET repeat_of = 'op_01ARZ3NDEKTSV4RRFFQ69G5FAV' {ROW}",
    "compensates": f"UPDATE operations SET playbook = 'refund' {ROW}",
    "compensation": f"UPDATE operations SET compensation = {OTHER} {ROW}",
    "steps": f"UPDATE operations SET parent = {OTHER} {ROW}",
    "approval-record": f"UPDATE operations SET approval = '{{{{}}' {ROW}",
    "approval-first": f"UPDATE operations SET approval = '{{\"needed\":2,\"expires_ms\":5,\"policy\":\"p\",\"decisions\":[]}}' {ROW}",
    "claims-record": f"UPDATE operations SET claims = 'none' {ROW}",
    "steps-record": f"UPDATE operations SET steps = 'none' {ROW}",
    "duplicate-told": f"UPDATE operations SET duplicate_seen = 1 {ROW}",
    "value": "UPDATE operations SET state = {strange} " + ROW,
    "events-begin": "UPDATE operations SET admitted_state = NULL, admitted_reason = NULL, first_attempt = NULL " + ROW,
    "events-chain": "DELETE FROM history WHERE (operation, sequence) = (SELECT operation, max(sequence) FROM history WHERE from_state <> to_state "
                    "AND to_state = {state:unknown_outcome} GROUP BY operation ORDER BY operation LIMIT 1)",
    "events-move": "UPDATE history SET from_state = {state:rejected}, to_state = {state:planned} WHERE (operation, sequence) = (SELECT operation, "
                   "max(sequence) FROM history WHERE cause IS NOT NULL GROUP BY operation ORDER BY operation LIMIT 1)",
    "event-actor": "UPDATE history SET cause = {cause:operator}, actor = NULL WHERE (operation, sequence) = (SELECT operation, max(sequence) "
                   "FROM history WHERE cause IS NOT NULL GROUP BY operation ORDER BY operation LIMIT 1)",
    "event-sequence": "UPDATE history SET sequence = sequence + 2 WHERE (operation, sequence) = (SELECT operation, max(sequence) FROM history "
                      "WHERE cause IS NOT NULL GROUP BY operation ORDER BY operation LIMIT 1)",
    "attempt-numbers": "UPDATE history SET attempt_number = 9 WHERE attempt_number > 1 AND outcome = {outcome:open}",
    "attempt-times": "UPDATE history SET finished_ms = 0 WHERE outcome = {outcome:success}",
    "attempt-kind": "UPDATE history SET attempt_kind = {attempt_kind:lookup} WHERE outcome = {outcome:success}",
    "history-owner": "{orphan}",
    "history-holds": "UPDATE history SET cause = NULL, attempt_id = NULL WHERE (operation, sequence) = (SELECT operation, max(sequence) FROM history "
                     "GROUP BY operation ORDER BY operation LIMIT 1)",
    "owner": "UPDATE incidents SET operation = 'op_01ARZ3NDEKTSV4RRFFQ69G5FAV' WHERE id = (SELECT min(id) FROM incidents)",
    "owner-tenant": "UPDATE incidents SET tenant = 'nobody' WHERE id = (SELECT min(id) FROM incidents)",
    "acknowledged": "UPDATE incidents SET acknowledged_ms = 5, acknowledged_by = NULL WHERE id = (SELECT min(id) FROM incidents)",
    "tombstone-state": "{stone}; UPDATE tombstones SET state = {state:dispatched} WHERE operation = (SELECT min(operation) FROM tombstones)",
    "tombstone-times": "{stone}; UPDATE tombstones SET dropped_ms = 0 WHERE operation = (SELECT min(operation) FROM tombstones)",
    "tombstone-alone": "{stone}",
    "counter": "UPDATE counters SET operations = operations + 1 WHERE state = {state:completed_success}",
    "held-since": "INSERT INTO entities (tenant, type, id, holder, held_ms, rev) VALUES ('default', 'x', 'y', NULL, 5, 0)",
    "holder": f"INSERT INTO entities (tenant, type, id, holder, held_ms, rev) VALUES ('default', 'x', 'y', {DONE}, 5, 0)",
    "waiter": f"INSERT INTO entity_waits (tenant, type, id, ticket, operation) VALUES ('default', 'x', 'y', 1, {DONE})",
    "doubts": "{doubt}",
    "place": "{place}",
}
# Of a ledger that a daemon has just left: nothing is over yet.
LIVED = {
    "window-used": "DELETE FROM windows",
    "token-times": "UPDATE principals SET created_ms = 0",
    "inbox-applied": "UPDATE inbox SET operation = NULL WHERE status = 'applied'",
    "inbox-settled": "UPDATE inbox SET settled_ms = 0 WHERE status = 'applied'",
    "inbox-duplicates": "UPDATE inbox SET duplicates = 3, duplicate_ms = 0",
    "forward-times": "UPDATE inbox SET forward = 'due', forward_at_ms = 0",
    "inbox-counts": "UPDATE inbox_counts SET applied = 999999999",
    "window": "UPDATE windows SET until_ms = until_ms + 1",
    "budget": "UPDATE budget_slices SET amount = '0.001'",
}
ALONE = {"owner-tenant", "history-holds", "window-used"}  # done to what another damage has taken away
ONLY_SQLITE = {"doubts", "place"}  # what follows from rows is an index in PostgreSQL
STONE = ("INSERT INTO tombstones (operation, tenant, tool, principal, key_hash, key_version, fingerprint, canonical_version, key_source, state, "
         f"completed_ms, dropped_ms) SELECT id, tenant, tool, principal, key_hash, key_version, fingerprint, canonical_version, key_source, state, 5, 5 "
         f"FROM operations {ROW}")


def statements(damage, postgres):
    """As the database at hand has them."""
    orphan = ("INSERT INTO history (tenant, operation, sequence, at_ms, cause, from_state, to_state, reason) SELECT tenant, 'op_00ARZ3NDEKTSV4RRFFQ69G5FAV', "
              "sequence, at_ms, cause, from_state, to_state, reason FROM history WHERE cause IS NOT NULL LIMIT 1" if postgres else
              "INSERT INTO history (operation, sequence, at_ms, cause, from_state, to_state, reason) SELECT 5, sequence, at_ms, cause, from_state, "
              "to_state, reason FROM history WHERE cause IS NOT NULL LIMIT 1")
    words = {"stone": STONE, "strange": "'resting'" if postgres else "50", "orphan": orphan,
             "doubt": f"INSERT INTO doubts SELECT n, tenant, tool, principal, 5 FROM operations {ROW}",
             "place": f"UPDATE operations SET n = n - 1000 {ROW}"}
    for word, text in words.items():
        damage = damage.replace("{" + word + "}", text)
    name = r"'\2'" if postgres else r"(SELECT number FROM names WHERE kind = '\1' AND text = '\2')"
    damage = re.sub(r"\{(\w+):(\w+)\}", name, damage)
    return [part.replace("{{", "{") for part in damage.split("; ")]


@pytest.fixture(scope="module")
def whole(simulated):
    """A ledger with what every rule needs."""
    return simulated(FIRST_SEED)


def missed_in_sqlite(base, folder, damages):
    missed = []
    for rule, damage in damages.items():
        file = duplicate(base, folder)
        with sqlite3.connect(file) as db:
            changed = [db.execute(each).rowcount for each in statements(damage, False)]
        db.close()
        found, _ = findings(file, status=None)
        if changed[-1] == 0 or rule not in {each["rule"] for each in found}:
            missed.append((rule, changed, sorted({each["rule"] for each in found})))
        remove(file)
    return missed


def missed_in_postgres(base, cluster, damages):
    """base: a database that nobody is connected to."""
    missed = []
    damages = {rule: damage for rule, damage in damages.items() if rule not in ONLY_SQLITE}
    if not EACH:  # those that spare the row which the others are done to, all in one
        spared = {rule: damage for rule, damage in damages.items() if DONE not in damage and "{stone}" not in damage and rule not in ALONE}
        base.run("SET search_path = onced", *[each for damage in spared.values() for each in statements(damage, True)])
        seen = {each["rule"] for each in findings(base.url, status=UNSOUND)[0]}
        return [rule for rule in spared if rule not in seen]
    for rule, damage in damages.items():
        name = f"damage{cluster.databases}"
        cluster.databases += 1
        Database(cluster, "postgres").run(f"CREATE DATABASE {name} TEMPLATE {base.name}")
        database = Database(cluster, name)
        database.run("SET search_path = onced", *statements(damage, True))
        found, _ = findings(database.url, status=None)
        if rule not in {each["rule"] for each in found}:
            missed.append((rule, sorted({each["rule"] for each in found})))
        Database(cluster, "postgres").run(f"DROP DATABASE {name}")
    return missed


def test_each_damage_is_found(whole, tmp_path):
    damages = DAMAGE if EACH else dict(list(DAMAGE.items())[::5])
    assert missed_in_sqlite(whole, tmp_path, damages) == []
    figure("damage-sqlite", f"{len(damages) + len(LIVED)} kinds of damage, each found in SQLite", found=len(damages) + len(LIVED))


@needs_postgres
def test_damage_in_postgres_is_found(whole, cluster):
    base = cluster.database()
    copy(whole, base.url)
    assert missed_in_postgres(base, cluster, DAMAGE) == []
    count = len(DAMAGE) + len(LIVED) - len(ONLY_SQLITE)
    figure("damage-postgres", f"{count} kinds of damage, each found in PostgreSQL", found=count, each=EACH)


@needs_postgres
def test_damage_of_what_a_daemon_has_just_left_is_found(world, provider, cluster, tmp_path, monkeypatch):
    """Windows and budgets that count, inbound events, tokens."""
    for name, value in webhooks.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    tool = registry.refund(keyed=False, look=False, reconcile=["webhook", "manual"], webhook_wait="20s", while_in_doubt="allow")
    tool |= {"window": {"key": "refund:{payment_id}", "per": "24h", "override": "denied"}, "budgets": [{"budget": "refunds", "amount": "/amount_cents"}]}
    file = tmp_path / "lived.db"
    daemon = world.prepare({"refund": tool}, ledger=file, inbox=webhooks.sources(), budgets={"refunds": {"per": "24h", "limit": 1000000}}).start()
    provider.script({"fault": "close_after_commit", "on": "write"})
    asked = daemon.call("refund", {"payment_id": "p1", "amount_cents": 4900}, key="k1", wait_ms=0)
    wait_until(lambda: daemon.operation(asked.id).state == "unknown_outcome", what="the lost answer")
    assert daemon.call("refund", {"payment_id": "p2", "amount_cents": 100}, key="k2").state == "completed_success"
    for number, reference in ((1, asked.id), (1, asked.id), (2, "op_01ARZ3NDEKTSV4RRFFQ69G5FAV")):
        body = webhooks.event(number, "thing.succeeded", reference, f"re_{number}")
        assert webhooks.post(daemon.port, "pay", body, webhooks.stripe(body)).status == 200
    wait_until(lambda: daemon.operation(asked.id).state == "completed_success", what="the provider's word")
    daemon.stop()
    onced("token", "create", "--ledger", file, "--principal", "ann", "--role", "approver")
    assert findings(file)[0] == []
    database = cluster.database()
    copy(file, database.url)
    assert missed_in_sqlite(file, tmp_path, LIVED) == []
    assert missed_in_postgres(database, cluster, LIVED) == []


def test_verify_prints_some_and_counts_all(whole, tmp_path):
    file = duplicate(whole, tmp_path)
    with sqlite3.connect(file) as db:
        broken = db.execute("UPDATE operations SET repeat_hash = repeat_hash + 1").rowcount
    db.close()
    done = ledger("verify", file, "--max", 3, status=UNSOUND)
    lines = done.stdout.splitlines()
    assert sum("repeat-hash" in line for line in lines) == 3, done.stdout
    assert f"{broken} things are wrong in" in lines[-1] and f"and {broken - 3} more" in done.stdout


# ---- stats, migrate ----


def test_stats(whole):
    stats = json.loads(ledger("stats", whole, "--json").stdout)
    with sqlite3.connect(whole) as db:
        for table in ("operations", "history", "incidents", "tombstones", "principals"):
            assert stats["rows"][table] == db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > 0, table
    db.close()
    assert sum(stats["states"].values()) == stats["rows"]["operations"] and stats["kind"] == "sqlite" and stats["bytes"] > 0
    assert re.fullmatch("[0-9a-f]{16}", stats["fingerprint"])
    assert stats["fingerprint"] in ledger("stats", whole).stdout


def test_migrate(tmp_path, whole):
    ledger("migrate", tmp_path / "none.db", status=5)
    old = tmp_path / "old.db"
    versions = sorted((pathlib.Path(__file__).parents[2] / "src/ledger/sql").glob("v?.sql"))
    with sqlite3.connect(old) as db:
        db.executescript(versions[0].read_text() + "PRAGMA application_id = 1869505380; PRAGMA user_version = 1; "
                         "INSERT INTO meta VALUES ('secret', randomblob(32)), ('schema_version', 1);")
    db.close()
    assert "would migrate from schema version 1" in ledger("migrate", old, "--dry-run").stdout
    ledger("verify", old, status=SCHEMA)
    assert f"migrated from schema version 1 to {len(versions)}" in ledger("migrate", old).stdout
    assert "nothing to do" in ledger("migrate", old).stdout
    assert findings(old)[0] == []
    with sqlite3.connect(old) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert "newer" in ledger("migrate", old, status=SCHEMA).stderr
    ledger("stats", old, status=SCHEMA)


@needs_postgres
def test_migrate_postgres(cluster):
    database = cluster.database()
    assert "would create" in ledger("migrate", database.url, "--dry-run").stdout
    assert ledger("stats", database.url, status=5).stdout == ""
    assert "created" in ledger("migrate", database.url).stdout
    assert "nothing to do" in ledger("migrate", database.url).stdout
    database.run("INSERT INTO onced.migrations VALUES (99, 1, 'another')")
    ledger("migrate", database.url, status=SCHEMA)
    ledger("migrate", "postgresql://onced@127.0.0.1:1/none", status=4)


# ---- copy ----


LEDGERS = [(FIRST_SEED * (1 + n), INTENTS) for n in range(SEEDS)] + ([(LARGE_SEED, LARGE)] if LARGE else [])


@needs_postgres
@pytest.mark.parametrize("seed, intents", LEDGERS)
def test_round_trip(simulated, cluster, tmp_path, seed, intents):
    """There and back again: equal, sound, and the second file has what the first one had, its secret and tokens too."""
    file, database, back = simulated(seed, intents), cluster.database(), tmp_path / "back.db"
    there, again = copy(file, database.url, timeout=900), copy(database.url, back, timeout=900)
    assert there["equal"] and again["equal"] and there["to_digest"] == again["to_digest"] == there["from_digest"]
    if intents != LARGE:
        once_more = copy(file, database.url)  # who does not know that it was done
        assert once_more["equal"] and once_more["to_digest"] == there["to_digest"]
    begun = time.monotonic()
    found, total = findings(database.url, timeout=900)
    spent = time.monotonic() - begun
    assert found == [] and findings(back, timeout=900)[0] == []
    with sqlite3.connect(file) as one, sqlite3.connect(back) as other:
        one.text_factory = other.text_factory = bytes
        tables = [name.decode() for name, in one.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        assert "operations" in tables and len(tables) >= 15
        for table in tables:  # all of them, with all columns: a new one is not forgotten
            which = f"SELECT * FROM {table}" + (" WHERE operations <> 0" if table == "counters" else "")
            assert sorted(one.execute(which).fetchall(), key=repr) == sorted(other.execute(which).fetchall(), key=repr), table
    one.close()
    other.close()
    operations, rows = total["operations"] + there["tables"]["tombstones"]["to"]["rows"], total["rows"]
    if intents == LARGE:
        assert operations >= LARGE or LARGE < 20000
        figure("copy-large", f"{operations} operations, {rows} rows: {rows * 1000 // there['spent_ms']} rows/s to PostgreSQL and "
               f"{rows * 1000 // again['spent_ms']} rows/s back, comparison included, equal; verified at {int(rows / spent)} rows/s", operations=operations, rows=rows)


@needs_postgres
def test_killed_copies_are_resumed(simulated, cluster, tmp_path):
    """Killed again and again, there and back, and resumed by the same command: equal in the end."""
    file = simulated(FIRST_SEED)
    database, back = cluster.database(), tmp_path / "back.db"
    begun = time.monotonic()
    digest = copy(file, cluster.database().url)["from_digest"]
    spent = time.monotonic() - begun
    chance = random.Random(5)
    killed, resumed = 0, 0
    for source, target, empty in ((file, database.url, lambda: database.run("DROP SCHEMA onced CASCADE")), (database.url, back, lambda: remove(back))):
        kills = 0
        while kills < KILLS:
            process = subprocess.Popen([binary.onced(), "ledger", "copy", str(source), str(target)], stdout=subprocess.DEVNULL, env=environment())
            time.sleep(chance.uniform(0, spent))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            if process.wait() == 0:  # it was quicker: begin anew
                empty()
        result = copy(source, target)
        assert result["equal"] and result["to_digest"] == digest
        killed += kills
        resumed += result["resumed"]
    assert killed == 2 * KILLS and findings(back)[0] == []
    figure("copy-kills", f"{killed} copies killed at random moments and resumed: equal digests", kills=killed, resumed=resumed)


@needs_postgres
def test_an_unfinished_copy_is_no_ledger(simulated, cluster):
    """As a copy that was cut short leaves it; for SQLite see test/contract/ledger_sqlite.c, which cuts it at every batch."""
    file, database = simulated(FIRST_SEED), cluster.database()
    copy(file, database.url)
    database.run("""INSERT INTO onced.meta VALUES ('copy', '{"from":"0123456789abcdef","name":"first.db","snapshot":false,"table":"history","at":null}')""")
    assert "being filled" in onced("token", "list", "--ledger", database.url, status=None).stderr
    assert "is being filled from first.db" in onced("ledger", "copy", file, database.url, status=1).stderr
    database.run("DELETE FROM onced.meta WHERE name = 'copy'")
    assert "ann" in onced("token", "list", "--ledger", database.url).stdout


@needs_postgres
def test_a_daemon_goes_on_where_the_other_ended(world, cluster):
    """A key that the first daemon has settled is replayed by one on the copy, a token works there, and the way back is refused while
    a daemon has the ledger."""
    file = world.folder / "first.db"
    onced_1 = world.prepare({"pay": registry.write("payments", {"amount": registry.NUMBER})}, ledger=file)
    onced_1.start()
    first = onced_1.call("pay", {"amount": 5}, key="k1")
    assert first.state == "completed_success"
    database = cluster.database()
    assert "in use by pid" in onced("ledger", "copy", file, database.url, status=IN_USE).stderr
    assert json.loads(onced("ledger", "copy", "--snapshot", file, cluster.database().url, "--json").stdout)["equal"]
    onced_1.stop()
    copy(file, database.url)
    onced_2 = world.prepare({"pay": registry.write("payments", {"amount": registry.NUMBER})}, ledger=database.url.replace(":correct-horse", ""))
    os.environ["PGPASSWORD"] = cluster.password
    try:
        onced_2.start()
        again = onced_2.call("pay", {"amount": 5}, key="k1")
        assert again.state == "completed_success" and again.id == first.id
        assert onced_2.call("pay", {"amount": 6}, key="k2").state == "completed_success"
        assert world.provider.truth()["effects"] == 2
        assert "in use by" in onced("ledger", "copy", database.url, world.folder / "back.db", status=IN_USE).stderr
        assert findings(database.url)[0] == []  # while it runs
        onced_2.kill()
        copy(database.url, world.folder / "back.db")
        assert findings(world.folder / "back.db")[0] == []
    finally:
        del os.environ["PGPASSWORD"]


def test_copy_refuses(simulated, tmp_path):
    file = simulated(FIRST_SEED)
    assert "is not empty" in onced("ledger", "copy", file, another(tmp_path), status=1).stderr
    assert "in use" in onced("ledger", "copy", file, file, status=IN_USE).stderr
    onced("ledger", "copy", tmp_path / "none.db", tmp_path / "new.db", status=5)
    onced("ledger", "copy", file, status=2)
    onced("ledger", "copy", file, tmp_path / "new.db", "--ledger", file, status=2)
    onced("ledger", "verify", "--ledger", file, "--dry-run", status=2)
    onced("ledger", "mend", "--ledger", file, status=2)


def test_what_postgres_can_not_store_is_told(simulated, cluster, tmp_path):
    file = duplicate(simulated(FIRST_SEED), tmp_path)
    with sqlite3.connect(file) as db:
        db.execute("UPDATE history SET detail = CAST(X'61ff62' AS TEXT) WHERE (operation, sequence) = (SELECT operation, sequence FROM history "
                   "WHERE attempt_id IS NOT NULL LIMIT 1)")
    db.close()
    database = cluster.database()
    assert copy(file, database.url)["mended_texts"] == 1
    assert database.value("SELECT count(*) FROM onced.history WHERE detail = 'a\ufffdb'") == "1"
