"""Several gateways on one PostgreSQL ledger: each with files of its own, the database in common."""

import itertools
import pathlib

from onced_e2e import postgres, registry
from onced_e2e.onced import Onced

LEASE = "1s"


class Gateways:
    """One database, and the gateways that a test starts on it before one provider."""

    def __init__(self, folder, provider, processes, cluster):
        self.folder = pathlib.Path(folder)
        self.provider = provider
        self.processes = processes
        database = cluster.database()
        self.database = postgres.Database(cluster, database.name)
        self.url = f"postgresql://onced@127.0.0.1:{cluster.port}/{database.name}?sslmode=disable&gssencmode=disable"
        self.all = []
        self.turn = itertools.count()

    def prepare(self, tools, count=1, prefix=(), lease=LEASE, **more):
        """So many with these tools, not started yet."""
        made = []
        for _ in range(count):
            folder = self.folder / f"gateway-{len(self.all) + 1}"
            folder.mkdir()
            onced = Onced(folder, self.url, prefix)
            onced.file.write_text(registry.text({**registry.file(self.provider.url, tools, **more),
                                                 "ledger": {"url": self.url, "lease": lease}}))
            self.all.append(onced)
            self.processes.append(onced.process)
            made.append(onced)
        return made

    def start(self, tools, count, **more):
        made = self.prepare(tools, count, **more)
        for onced in made:
            onced.start()
        return made

    def next(self):
        """Round robin."""
        return self.all[next(self.turn) % len(self.all)]

    def stop(self):
        for onced in self.all:
            if onced.process.alive():
                onced.process.go_on()
        if self.provider.process.alive():
            self.provider.reset()
        for onced in self.all:
            if onced.process.alive():
                onced.stop()

    def end(self):
        """Of a test: all are gone, and no sanitizer has found anything."""
        try:
            self.stop()
        finally:
            self.kill()
        for onced in self.all:
            assert not onced.process.findings(), onced.process.findings()

    def kill(self):
        for onced in self.all:
            if onced.process.alive():
                onced.kill()
