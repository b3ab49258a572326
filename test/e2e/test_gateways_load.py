"""Three gateways, one PostgreSQL, many clients, and all the time a random gateway that is killed (-9) or stands still (SIGSTOP for
longer than the lease, then SIGCONT): effects at the provider = intents, and no acknowledged result is lost. CI runs it for some
seconds; evidence/gateways-may-die for a minute with 64 clients (ONCED_LOAD_SECONDS, ONCED_LOAD_CLIENTS, ONCED_LOAD_EVERY)."""

import collections
import itertools
import json
import os
import random
import threading
import time

import pytest

from onced_e2e import postgres, registry
from onced_e2e.client import LOST, Client
from onced_e2e.gateways import Gateways
from onced_e2e.onced import TERMINAL
from onced_e2e.wait import wait_until

pytestmark = pytest.mark.skipif(not postgres.there(), reason="no PostgreSQL server is installed (Debian: postgresql-15)")

SECONDS = float(os.environ.get("ONCED_LOAD_SECONDS", "3"))
CLIENTS = int(os.environ.get("ONCED_LOAD_CLIENTS", "12"))
EVERY = float(os.environ.get("ONCED_LOAD_EVERY", "1"))
SEED = int(os.environ.get("ONCED_LOAD_SEED", "0")) or random.randrange(1 << 32)
LEASE_SECONDS = 1
TIMEOUT_SECONDS = 0.5  # of the provider, as registry.provider has it
KEYS = 50
PATIENCE = 2.5  # of a client, before it asks another gateway


@pytest.fixture
def cluster():
    made = postgres.Cluster(auth="trust", max_connections=60)
    yield made
    made.stop()


@pytest.fixture
def gateways(tmp_path, provider, processes, cluster):
    made = Gateways(tmp_path, provider, processes, cluster)
    yield made
    made.end()


class Caller:
    """Calls until it is told a result, at whatever gateway answers; then the next one."""

    def __init__(self, load, number, keys):
        self.load = load
        self.keys = keys
        self.random = random.Random(SEED * 1000 + number)
        self.told = {}  # key → operation id, of what was acknowledged
        self.asked = set()
        self.nothing = set()  # keys of what is told to have had no effect
        self.tries = 0
        self.heard = collections.Counter()  # what answers said
        self.slowest = 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.error = None

    def run(self):
        try:
            for key in self.keys:
                if time.monotonic() > self.load.end:
                    return
                self.call(key)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.error = error

    def call(self, key):
        tool = ("keyed.pay", "plain.pay")[int(key.rsplit("-", 1)[1]) % 2]
        began = time.monotonic()
        self.asked.add(key)
        while True:
            assert time.monotonic() < self.load.end + 30, f"{key}: no result {time.monotonic() - began:.0f} s after its first call, seed {SEED}"
            self.tries += 1
            gateway = self.random.choice(self.load.gateways)
            client = Client(gateway.port, timeout=PATIENCE)
            try:
                answer = gateway.call(tool, {"payment_id": key, "amount_cents": 100}, key=key, client=client, wait_ms=2000)
            except LOST as lost:
                self.heard[type(lost).__name__] += 1
                time.sleep(0.02)
                continue
            finally:
                client.drop()
            self.heard[f"{answer.status} {answer.problem or answer.state}"] += 1
            if answer.state == "completed_success":
                assert self.told.setdefault(key, answer.id) == answer.id, f"{key} has two operations, seed {SEED}"
                break
            if answer.state == "failed_permanent" and tool == "plain.pay" and answer["reason"] == "absent":
                self.nothing.add(key)  # stopped before it was sent, and nobody may send it again: the provider has nothing
                break
            if answer.state in TERMINAL:
                raise AssertionError(f"{key} ended as {answer}, seed {SEED}")
            if answer.status == 503:
                time.sleep(0.05)
        self.slowest = max(self.slowest, time.monotonic() - began)


class Load:
    def __init__(self, gateways, shared):
        self.gateways = gateways
        self.end = time.monotonic() + SECONDS
        self.callers = [Caller(self, n, self.common(n) if shared else self.own(n)) for n in range(CLIENTS)]

    @staticmethod
    def own(number):
        return (f"c{number}-{i}" for i in itertools.count())

    @staticmethod
    def common(number):
        """The same ones again and again, each client from another one on."""
        return (f"k-{(number + i) % KEYS}" for i in itertools.count())

    def run(self, trouble):
        for caller in self.callers:
            caller.thread.start()
        while time.monotonic() < self.end:
            trouble()
            time.sleep(EVERY)
        trouble.over()
        for caller in self.callers:
            caller.thread.join(max(0.0, self.end + 40 - time.monotonic()))
            assert not caller.thread.is_alive() and not caller.error, caller.error or f"a client hangs, seed {SEED}"


class Trouble:
    """One gateway at a time."""

    def __init__(self, gateways):
        self.gateways = gateways
        self.random = random.Random(SEED)
        self.kills = self.stops = 0
        self.asleep = {}  # gateway → when it goes on

    def __call__(self):
        for gateway, at in list(self.asleep.items()):
            if time.monotonic() >= at:
                gateway.process.go_on()
                del self.asleep[gateway]
        awake = [gateway for gateway in self.gateways if gateway not in self.asleep]
        if len(awake) == 1:
            return
        victim = self.random.choice(awake)
        if self.random.random() < 0.5:
            victim.kill()
            victim.start()
            self.kills += 1
        else:
            victim.process.pause()
            self.asleep[victim] = time.monotonic() + TIMEOUT_SECONDS + 2 * LEASE_SECONDS + 0.5
            self.stops += 1

    def over(self):
        for gateway in self.asleep:
            gateway.process.go_on()
        self.asleep = {}


@pytest.mark.parametrize("shared", [False, True], ids=["own_keys", "the_same_50_keys"])
def test_any_gateway_may_die_or_stand_still(gateways, provider, shared):
    tools = {"keyed.pay": registry.refund(while_in_doubt="allow"),
             "plain.pay": registry.refund(keyed=False, while_in_doubt="allow")}
    three = gateways.start(tools, 3, lease=f"{LEASE_SECONDS}s", server={"log": "info"})
    provider.config(latency_ms=20)
    load, trouble = Load(three, shared), Trouble(three)
    load.run(trouble)
    ended = load.end
    told = {}
    for caller in load.callers:
        for key, id in caller.told.items():
            assert told.setdefault(key, id) == id, f"{key} has two operations, seed {SEED}"
    asked = set().union(*(caller.asked for caller in load.callers))
    nothing = set().union(*(caller.nothing for caller in load.callers))
    assert set(told) | nothing == asked and not set(told) & nothing, f"{len(asked - set(told) - nothing)} intents without a result, seed {SEED}"
    open_rows = "SELECT count(*) FROM onced.operations WHERE open = 1"
    wait_until(lambda: gateways.database.value(open_rows) == "0", seconds=30, every=0.2, what=f"the end of all operations (seed {SEED})")
    settled = time.monotonic() - ended
    truth = provider.truth()
    counts = {key: truth["by_key"].get(f"refunds/{key}", 0) for key in asked}
    assert counts == {key: int(key in told) for key in asked} and truth["effects"] == len(told), \
        f"seed {SEED}: {({key: n for key, n in counts.items() if n != int(key in told)})}, {truth['effects']} effects of {len(told)} intents"
    rows = dict(gateways.database.run("SELECT id, state FROM onced.operations"))
    assert len(rows) == len(asked) and {rows[id] for id in told.values()} == {"completed_success"}
    repeats = list(told.items())[:40]
    for n, (key, id) in enumerate(repeats):  # at whatever gateway
        tool = ("keyed.pay", "plain.pay")[int(key.rsplit("-", 1)[1]) % 2]
        again = three[n % 3].call(tool, {"payment_id": key, "amount_cents": 100}, key=key)
        assert (again.id, again.state) == (id, "completed_success"), again
    assert provider.effects() == len(told)
    calls = sum(caller.tries for caller in load.callers)
    line = {"intents": len(asked), "effects": len(told), "told_nothing": len(nothing), "calls": calls, "kills": trouble.kills, "stops": trouble.stops, "seconds": SECONDS, "clients": CLIENTS,
            "settled_after_s": round(settled, 1), "slowest_s": round(max(caller.slowest for caller in load.callers), 1), "seed": SEED}
    heard = sum((caller.heard for caller in load.callers), collections.Counter())
    print(json.dumps({**line, "heard": heard}))
    if "ONCED_FIGURES" in os.environ:
        with open(os.environ["ONCED_FIGURES"], "a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "shared": shared}) + "\n")
