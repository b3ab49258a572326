"""The ledger's disk is full, or turns read-only, while the daemon runs (design 12, 15): calls get 503, nothing is sent without
a record, service resumes when space returns, and what was acknowledged is there after a kill."""

import collections
import itertools
import threading
import time

import pytest

from onced_e2e import ledgers, registry
from onced_e2e.crash import Intent, Line, ask_again, rounds, word
from onced_e2e.ext4 import Ext4Disk
from onced_e2e.figures import figure
from onced_e2e.process import Failed
from onced_e2e.wait import wait_until

WORKERS = 8
SIZE = "64m"  # the log takes 16 MiB before it is copied back


class Traffic:
    """Calls without end; each intent is asked for until it is settled, over all refusals. Counts the statuses."""

    def __init__(self, port, prefix=""):
        self.port, self.prefix = port, prefix
        self.numbers = itertools.count()
        self.statuses = collections.Counter()
        self.settled, self.probes, self.problems = [], [], []
        self.over, self.finish = threading.Event(), True
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(WORKERS)]
        for thread in self.threads:
            thread.start()

    def new(self):
        n = next(self.numbers)
        return Intent("refund.create", f"{self.prefix}k{n}", {"payment_id": f"{self.prefix}p{n}", "amount_cents": n + 1})

    def _work(self):
        line = Line(self.port)
        try:
            while not self.over.is_set():
                one = self.new()
                while not self._ask(line, one) and not (self.over.is_set() and not self.finish):
                    time.sleep(0.005)
        except BaseException as problem:  # noqa: BLE001 - raised again by stop()
            self.problems.append(problem)
        finally:
            line.close()

    def _ask(self, line, one):
        try:
            status, body = line.ask("POST", "/v1/calls", one.body)
        except OSError:
            self.statuses["lost"] += 1
            return False
        self.statuses[status] += 1
        if status == 503:
            assert body["type"] == "urn:onced:problem:unavailable", body
        told = word(status, body)
        if told:
            one.told.append(told)
            self.settled.append(one)
        return told

    def probe(self, line):
        """A new call from outside: the workers may all be held by calls whose outcome can not be written. Its status."""
        one = self.new()
        status, body = line.ask("POST", "/v1/calls", one.body)
        self.statuses[status] += 1
        assert status != 503 or body["type"] == "urn:onced:problem:unavailable", body
        self.probes.append(one)
        return status

    def until_refused(self, times=50):
        """New calls get 503, so many of them."""
        line, refused = Line(self.port), 0
        end = time.monotonic() + 30
        while refused < times and not self.problems:
            assert time.monotonic() < end, "no 503 although the ledger can not be written"
            refused += self.probe(line) == 503
        line.close()

    def settle_probes(self):
        """They are asked for again until they are done, too."""
        line = Line(self.port)
        for one in self.probes:
            wait_until(lambda one=one: self._ask(line, one), seconds=30, what=f"the end of {one}")
        self.probes = []
        line.close()

    def stop(self, finish=True):
        self.finish = finish
        self.over.set()
        for thread in self.threads:
            thread.join()
        if self.problems:
            raise self.problems[0]


def tool():
    return registry.refund(keyed=False, while_in_doubt="allow", wait="500ms")


def nothing_without_a_record(world, onced):
    """Every request that the provider saw has its operation and its attempt row. A row that a former process left open may
    have had no request: it was written first."""
    seen = collections.Counter(entry["reference"] for entry in world.provider.requests())
    for operation, count in seen.items():
        rows = [row["outcome"] for row in onced.attempt_rows(operation) if row["outcome"] != "not_sent"]
        assert len(rows) - rows.count("lost") <= count <= len(rows), (operation, rows)
    return sum(seen.values())


def all_is_true(world, onced, traffic):
    """What callers were told is what happened, and is still told after a kill."""
    onced.kill()
    onced.start()
    assert not ask_again(onced.port, traffic.settled)
    for one in traffic.settled:
        assert one.told[0][1] == "completed_success", one
    truth = world.provider.truth()
    assert truth["duplicates_by_key"] == 0 and truth["effects"] == len(traffic.settled)
    return nothing_without_a_record(world, onced)


@ledgers.only_sqlite("a full disk")
def test_disk_full_while_running(world, small_disk):
    disk = small_disk(SIZE)
    onced = world.onced({"refund.create": tool()}, ledger=disk.folder / "onced.db", prefix=disk.prefix, server={"log": "error"})
    traffic = Traffic(onced.port)
    for _ in range(max(2, rounds() // 5)):
        before = len(traffic.settled)
        wait_until(lambda before=before: len(traffic.settled) > before + 50 or traffic.problems)
        disk.fill()
        traffic.until_refused()
        settled = len(traffic.settled)
        assert onced.client.get("/healthz").status in (200, 503)
        disk.free()
        wait_until(lambda settled=settled: len(traffic.settled) > settled + 20 or traffic.problems, seconds=30,
                   what="service after space returned")
    traffic.stop()
    traffic.settle_probes()
    requests = all_is_true(world, onced, traffic)
    figure("disk full", f"{traffic.statuses[503]} calls got 503, {requests} requests at the provider, each with its record; "
           f"{len(traffic.settled)} acknowledged, all there after a kill")


@ledgers.only_sqlite("a full disk")
def test_disk_full_and_killed(world, small_disk):
    """Killed while full; started while full; space returns."""
    disk = small_disk(SIZE)
    onced = world.onced({"refund.create": tool()}, ledger=disk.folder / "onced.db", prefix=disk.prefix, server={"log": "error"})
    traffic = Traffic(onced.port)
    wait_until(lambda: len(traffic.settled) > 50 or traffic.problems)
    disk.fill()
    traffic.until_refused()
    onced.kill()
    try:
        onced.start()  # it may serve what it knows, or say what is wrong; it must not lose anything
    except Failed as refused:
        assert "full" in str(refused), refused
    disk.free()
    if not onced.process.alive():
        onced.start()
    settled = len(traffic.settled)
    wait_until(lambda: len(traffic.settled) > settled + 20 or traffic.problems, seconds=30)
    traffic.stop()
    traffic.settle_probes()
    done = [one for one in traffic.settled if one.told[0][1] == "completed_success"]
    lost = [one for one in traffic.settled if one.told[0][1] == "failed_permanent"]  # recorded, killed before it was sent
    truth = world.provider.truth()
    assert truth["duplicates_by_key"] == 0 and truth["effects"] == len(done) and len(lost) <= WORKERS
    assert not ask_again(onced.port, traffic.settled)
    nothing_without_a_record(world, onced)


def fail_between_commits(onced, disk):
    """A system call under way goes to its end. The kernel's own `abort` answers an fdatasync that runs into it with success
    and forgets what was appended: a plain loop of pwrite and fdatasync loses its last block so, too."""
    onced.process.pause()
    time.sleep(0.2)
    disk.fail()
    onced.process.go_on()


@ledgers.only_sqlite("a full disk")
def test_disk_turns_read_only_while_running(world, tmp_path):
    disk = Ext4Disk(tmp_path)
    try:
        onced = world.onced({"refund.create": tool()}, ledger=disk.folder / "onced.db", prefix=disk.prefix,
                            server={"log": "error"})
        traffic = Traffic(onced.port)
        wait_until(lambda: len(traffic.settled) > 100 or traffic.problems)
        fail_between_commits(onced, disk)
        traffic.until_refused()
        calls = world.provider.client.get("/_fake/stats").body["writes"]
        time.sleep(0.3)
        assert world.provider.client.get("/_fake/stats").body["writes"] == calls, "sent without a record"
        traffic.stop(finish=False)
        onced.kill()
        disk.mount_again()
        onced.start()
        assert not ask_again(onced.port, traffic.settled), "something that was acknowledged is gone"
        again = Traffic(onced.port, "again-")
        wait_until(lambda: len(again.settled) > 20 or again.problems)
        again.stop()
        nothing_without_a_record(world, onced)
        assert world.provider.truth()["duplicates_by_key"] == 0
        onced.stop()
    finally:
        for each in world.daemons:
            if each.process.alive():
                each.kill()
        disk.close()


@ledgers.only_sqlite("a full disk")
def test_disk_read_only_at_start(world, small_disk):
    """A clear error, nothing changed; afterwards everything is there."""
    disk = small_disk(SIZE)
    onced = world.onced({"refund.create": tool()}, ledger=disk.folder / "onced.db", prefix=disk.prefix)
    told = onced.call("refund.create", {"payment_id": "p1", "amount_cents": 2}, key="one")
    onced.stop()
    disk.read_only()
    with pytest.raises(Failed) as refused:
        onced.start()
    assert "onced: " in str(refused.value) and "read-only file system" in str(refused.value).lower(), refused.value
    disk.read_only(False)
    onced.start()
    again = onced.call("refund.create", {"payment_id": "p1", "amount_cents": 2}, key="one")
    assert again.id == told.id and again.replayed and again["result"] == told["result"]
    assert world.provider.effects() == 1
