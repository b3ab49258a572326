"""What befalls a PostgreSQL ledger.

    FullDisk  a Cluster whose disk is full at will
    Standby   a second server that follows a Cluster by streaming replication, and can take its place
    Between   a port before a server: it can stop forwarding without closing anything, and change what the server says of itself"""

import os
import pathlib
import shutil
import tempfile
import threading

from onced_e2e import binary
from onced_e2e.ports import free_port
from onced_e2e.postgres import USER, Cluster, Database, Port
from onced_e2e.wait import wait_until

# On the primary: its commits wait for the standby of that name.
SYNCHRONOUS = {"synchronous_standby_names": "standby", "wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"}


class FullDisk(Cluster):
    """Where no file system can be mounted either: the server's own writes fail with ENOSPC where they would make a file longer
    (test/support/full_disk.c). Its log lies outside. Segments of its write-ahead log are small, so that one is soon written."""

    def __init__(self, **settings):
        self.tools = pathlib.Path(tempfile.mkdtemp(prefix="onced-full-"))
        self.tools.chmod(0o755)
        library = shutil.copy(binary.built("test/support/full-disk.so"), self.tools)
        self.full = self.tools / "full"
        super().__init__(initdb=("--wal-segsize=1",), environment={**os.environ, "LD_PRELOAD": str(library), "ONCED_FULL_DISK": str(self.full)},
                         **{"min_wal_size": "2MB", "max_wal_size": "16MB", **settings})

    def fill(self, part=""):
        """part: "base" for the tables alone, "pg_wal" for the log alone."""
        self.full.symlink_to((self.data / part).resolve())

    def free(self):
        self.full.unlink(missing_ok=True)

    def use_up_the_log(self, rest=16384):
        """But for so many bytes, what the disk has of it."""
        database = Database(self, "postgres")
        current = database.run("CHECKPOINT", "SELECT pg_walfile_name(pg_current_wal_insert_lsn())")[0][0]
        for segment in (self.data / "pg_wal").iterdir():
            if len(segment.name) == len(current) and segment.name > current:
                segment.unlink()
        database.run(f"""SELECT pg_logical_emit_message(false, 'full', repeat('x', 1000)) FROM generate_series(1,
                         (1048576 - (pg_current_wal_insert_lsn() - '0/0')::bigint % 1048576 - {rest}) / 1100)""")

    def ended(self):
        """It has given up."""
        return self._server("pg_ctl", "-D", self.data, "status", check=False).returncode == 3

    def stop(self):
        self.free()
        super().stop()
        shutil.rmtree(self.tools, ignore_errors=True)


class Standby(Cluster):
    def __init__(self, primary):  # noqa: super().__init__ would make a cluster of its own
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="onced-pg-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.primary = primary
        self.databases = 0
        self.environment = None
        self.settings = {**primary.settings, "unix_socket_directories": str(self.folder), "synchronous_standby_names": "''"}
        if os.getuid() == 0:
            shutil.chown(self.folder, USER, USER)
        link = f"host=127.0.0.1 port={primary.port} user=onced password={self.password} application_name=standby sslmode=disable"
        self._server("pg_basebackup", "-D", self.data, "-X", "stream", "-c", "fast", "--no-sync", "-R", "-d", link)
        self.start()
        wait_until(self.in_step, what="the standby's being in step")

    def in_step(self):
        return Database(self.primary, "postgres").run("SELECT sync_state FROM pg_stat_replication") == [["sync"]]

    def promote(self):
        self._server("pg_ctl", "-s", "-D", self.data, "-w", "-t", "30", "promote")


class Between(Port):
    def __init__(self, port, change=None, at=0):
        """change: of what the server says, piece by piece. at: the port to listen on."""
        self.change = change
        self.flows = threading.Event()
        self.flows.set()
        super().__init__(port, at)

    def hold(self):
        """As a network that drops every packet: nothing is closed, nothing comes through."""
        self.flows.clear()

    def let_go(self):
        self.flows.set()

    def close(self):
        self.listener.close()
        self.flows.set()
        super().close()

    def _serve(self, client):
        self.flows.wait()
        super()._serve(client)

    def _copy(self, source, sink, answers):
        while piece := source.recv(65536):
            if answers and self.change:
                piece = self.change(piece)
            self.flows.wait()
            sink.sendall(piece)


def older_server(piece):
    """The version that the server tells at the start of a session."""
    at = piece.find(b"server_version\0")
    return piece if at < 0 else piece[:at + 15] + b"13" + piece[at + 17:]


def other_process(piece):
    """BackendKeyData with a process id made up, as poolers do it."""
    at = piece.find(b"K\0\0\0\x0c")
    return piece if at < 0 else piece[:at + 5] + b"\x7f\x01\x02\x03" + piece[at + 9:]
