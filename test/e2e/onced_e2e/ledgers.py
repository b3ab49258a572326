"""Where the gateways under test keep their ledgers: a SQLite file each, or, with ONCED_TEST_LEDGER=postgres, a database each in
one PostgreSQL cluster of this session. A ledger is named as --ledger names it: by a path, or by a URL.

A gateway on PostgreSQL shares its ledger and never takes what another one left before that one's lease has ended. Registry
files of tests say a short lease (LEASE), so that what a killed gateway left is taken up in a moment."""

import atexit
import functools
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile

import pytest

from onced_e2e import postgres
from onced_e2e.wait import wait_until

KIND = os.environ.get("ONCED_TEST_LEDGER", "sqlite")
assert KIND in ("sqlite", "postgres"), f"ONCED_TEST_LEDGER={KIND}, expected sqlite or postgres"
POSTGRES = KIND == "postgres"

# How long a start has to wait until what a killed gateway had can be taken up: on SQLite it knows at once that nobody else is there.
LEASE = "1s"
TAKEN_UP_S = 2.5 if POSTGRES else 0

# A column's text in a statement for select().
STATE = "state" if POSTGRES else "(SELECT text FROM names WHERE kind = 'state' AND number = state)"
# The value of the column of that name, given as a text.
NAMED = "?" if POSTGRES else "(SELECT number FROM names WHERE kind = '{}' AND text = ?)"


def only_sqlite(why):
    """Marks a test that is about the ledger's file itself."""
    return pytest.mark.skipif(POSTGRES, reason=f"only with a SQLite ledger: {why}")


GATEWAYS = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"


@functools.cache
def cluster():
    """Trusts whoever connects: its URLs hold no password, as a registry file's must not."""
    if not postgres.there():
        pytest.exit("ONCED_TEST_LEDGER=postgres, and no PostgreSQL server is installed (Debian: postgresql-15)", 1)
    made = postgres.Cluster(auth="trust", max_connections=200)
    atexit.register(made.stop)
    return made


def new(folder):
    """Of a gateway with its files in this folder."""
    if not POSTGRES:
        return folder / "onced.db"
    database = cluster().database()
    return f"postgresql://onced@127.0.0.1:{cluster().port}/{database.name}?sslmode=disable&gssencmode=disable"


def section(ledger):
    """Of a registry file."""
    return {"url": str(ledger), "lease": LEASE} if POSTGRES else {"path": str(ledger)}


# ---- past the gateway ----

def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea" if POSTGRES else f"X'{value.hex()}'"
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("'", "''") + "'"


def filled(statement, values):
    parts = statement.split("?")
    assert len(parts) == len(values) + 1, statement
    return parts[0] + "".join(literal(value) + part for value, part in zip(values, parts[1:]))


def psql(ledger, statement):
    done = subprocess.run([postgres.BINARIES[-1] / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement, ledger], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def settle(ledger):
    """What a killed gateway had under way in the server has ended, this way or that."""
    if POSTGRES:
        wait_until(lambda: psql(ledger, f"SELECT count(*) FROM pg_stat_activity WHERE {GATEWAYS}") == ["0"], what="the end of the gateway's connections")


def _copied(ledger, statement):
    """Reads a copy: opening the file itself would run SQLite's recovery, which is the daemon's to do."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy.db"
        shutil.copy(ledger, copy)
        wal = pathlib.Path(f"{ledger}-wal")
        if wal.exists():
            shutil.copy(wal, f"{copy}-wal")
        database = sqlite3.connect(copy)
        rows = database.execute(statement).fetchall()
        database.close()
    return rows


def select(ledger, statement, values=()):
    """Rows as tuples, of a gateway that is dead and may have left anything."""
    statement = filled(statement, values)
    if not POSTGRES:
        return _copied(ledger, statement)
    settle(ledger)
    return [tuple(json.loads(line).values()) for line in psql(ledger, f"SELECT row_to_json(q) FROM ({statement}) AS q")]


def change(ledger, statement, values=(), seconds=5):
    """How many rows it changed."""
    statement = filled(statement, values)
    if POSTGRES:
        return int(psql(ledger, f"WITH changed AS ({statement} RETURNING 1) SELECT count(*) FROM changed")[0])
    with sqlite3.connect(ledger, timeout=seconds) as database:
        changed = database.execute(statement).rowcount
    database.close()
    return changed


def times(ledger, table):
    """Names of its columns that hold a moment."""
    if POSTGRES:
        return psql(ledger, f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' AND column_name LIKE '%\\_ms' ORDER BY 1")
    return [row[1] for row in _copied(ledger, f"PRAGMA table_info({table})") if row[1].endswith("_ms")]


def free(ledger):
    """A paused gateway has no transaction open."""
    if POSTGRES:
        return psql(ledger, f"SELECT count(*) FROM pg_stat_activity WHERE {GATEWAYS} AND xact_start IS NOT NULL") == ["0"]
    with sqlite3.connect(ledger, timeout=0) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
            free = True
        except sqlite3.OperationalError:
            free = False
    database.close()
    return free


def tear(ledger, torn):
    """As if the crash had cut a write off. PostgreSQL's own files are its own affair."""
    wal = pathlib.Path(f"{ledger}-wal")
    if torn and not POSTGRES and wal.exists():
        with open(wal, "ab") as file:
            file.write(torn)


def everything(ledger):
    """All that a stopped gateway's ledger holds, as one text to search in."""
    if not POSTGRES:
        return ledger.read_bytes().decode("latin-1")
    return subprocess.run([postgres.BINARIES[-1] / "pg_dump", ledger], capture_output=True, text=True, timeout=60, check=True).stdout
