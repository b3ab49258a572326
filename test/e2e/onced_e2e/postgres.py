"""A real PostgreSQL in a folder of its own, and what drops its answers.

    Cluster     Debian's server on a free port of 127.0.0.1, without root's rights; killed (immediate) and started again at will
    Database    one per test; statements by psql
    Wire        a port before the server that reads its side of the protocol and cuts at the answer to COMMIT

The cluster syncs nothing: its crashes are those of processes, not of machines."""

import contextlib
import os
import pathlib
import pwd
import shutil
import socket
import struct
import subprocess
import tempfile
import threading

from onced_e2e.ports import free_port

BINARIES = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0)
USER = "postgres"


def there():
    if not BINARIES or not (BINARIES[-1] / "initdb").exists():
        return False
    try:
        return os.getuid() != 0 or bool(pwd.getpwnam(USER))
    except KeyError:
        return False


class Cluster:
    def __init__(self, auth="scram-sha-256", initdb=(), environment=None, **settings):
        """initdb: more of its arguments. environment: of the server's processes, instead of ours."""
        self.environment = environment
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="onced-pg-"))  # pytest's own is private, and the server is somebody else
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB", "max_connections": "120", "autovacuum": "off",
                         "unix_socket_directories": str(self.folder), "listen_addresses": "127.0.0.1", **settings}
        self.databases = 0
        if os.getuid() == 0:
            shutil.chown(self.folder, USER, USER)
        self._server("initdb", "-D", self.data, "-U", "onced", "-A", auth, "-E", "UTF8", "--locale=C", "--no-sync",
                     f"--pwfile={self._password_file()}", *initdb)
        self.start()

    password = "correct-horse"

    def _password_file(self):
        file = self.folder / "password"
        file.write_text(self.password)
        file.chmod(0o644)
        return file

    def _server(self, program, *argv, check=True):
        user = {"user": USER, "group": USER, "extra_groups": []} if os.getuid() == 0 else {}
        done = subprocess.run([BINARIES[-1] / program, *map(str, argv)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                              timeout=60, env=self.environment, **user)
        assert not check or done.returncode == 0, done.stderr
        return done

    def start(self):
        options = " ".join(f"-c {name}={value}" for name, value in self.settings.items())
        self._server("pg_ctl", "-s", "-D", self.data, "-w", "-t", "60", "-l", self.folder / "log", "-o", f"-p {self.port} {options}", "start")

    def kill(self):
        """As kill -9 of all of its processes, but without leaving shared memory behind."""
        self._server("pg_ctl", "-s", "-D", self.data, "-w", "-m", "immediate", "stop")

    def stop(self):
        self._server("pg_ctl", "-s", "-D", self.data, "-w", "-m", "immediate", "stop", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database, user="onced", password=None, port=None):
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{port or self.port}/{database}?sslmode=disable&gssencmode=disable"

    def database(self):
        self.databases += 1
        name = f"test{self.databases}"
        Database(self, "postgres").run(f"CREATE DATABASE {name}")
        return Database(self, name)


class Database:
    def __init__(self, cluster, name):
        self.cluster = cluster
        self.name = name
        self.url = cluster.url(name)

    def run(self, *statements, check=True):
        """Rows of the last statement as lists of texts."""
        argv = [BINARIES[-1] / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-F", "\t", self.url]
        for statement in statements:
            argv += ["-c", statement]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def value(self, statement):
        return self.run(statement)[0][0]


def _error(**fields):
    """The protocol's ErrorResponse."""
    text = b"".join(f"{name}{value}\0".encode() for name, value in fields.items()) + b"\0"
    return b"E" + struct.pack("!I", 4 + len(text)) + text


PANIC = _error(S="PANIC", V="PANIC", C="53100", M='could not write to file "pg_wal/xlogtemp.1": No space left on device')


class Port:
    """A port before a server. How what comes passes, is for those who inherit: _copy(), until one side has ended."""

    def __init__(self, port, at=0):
        """at: the port to listen on."""
        self.target = port
        self.lock = threading.Lock()
        self.open = set()
        self.listener = socket.create_server(("127.0.0.1", at), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()
        with self.lock:
            for each in self.open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.lock:
            self.open |= {client, server}
        threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
        self._forward(server, client, True)

    def _forward(self, source, sink, answers):
        """answers: what the server says."""
        try:
            self._copy(source, sink, answers)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            with self.lock:
                self.open -= {source, sink}


class Wire(Port):
    """Forwards; with `drop` set it cuts the connection on which the server says that a COMMIT is done, and forwards nothing of it.
    drop: "answer" (the server has committed), "request" (COMMIT itself is swallowed), or, once, "panic" (it has committed, and says that
    it dies of a full disk; dies: what is done then)."""

    def __init__(self, port):
        self.drop = self.dies = None
        self.dropped = 0
        super().__init__(port)

    def _drops(self, side):
        with self.lock:
            drops = self.drop == side
            self.dropped += drops
        return drops

    def _panics(self):
        with self.lock:
            panics = self.drop == "panic"
            if panics:
                self.drop, self.dropped = None, self.dropped + 1
        return panics

    def _copy(self, source, sink, answers):
        """Whole messages: a type byte (but for the first ones of a client) and a length. The answer is CommandComplete "COMMIT"."""
        rest, started, mark, side = b"", answers, b"COMMIT\0", "answer" if answers else "request"
        while piece := source.recv(65536):
            rest += piece
            while len(rest) >= 8 or (started and len(rest) >= 5):
                head = 1 if started else 0
                size = head + struct.unpack_from("!I", rest, head)[0]
                if len(rest) < size:
                    break
                message, rest = rest[:size], rest[size:]
                started = True
                if message[:1] in (b"C", b"Q") and message[5:] == mark and self._drops(side):
                    return
                if message[:1] == b"C" and message[5:] == mark and answers and self._panics():
                    if self.dies:
                        self.dies()
                    sink.sendall(PANIC)
                    return
                sink.sendall(message)
