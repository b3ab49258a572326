"""examples/stripe.yaml against stripe-stateful-mock, a provider that none of us wrote, behind a proxy that loses answers.
Judged by the mock's own list endpoints: each charge and each refund is there once, whatever was lost, and whenever onced was
killed. Only the example's times are shortened."""

import json
import urllib.parse

import pytest

from onced_e2e import binary, ledgers
from onced_e2e.crash import Callers, Intent, ask_again, chance, rounds
from onced_e2e.figures import figure
from onced_e2e.onced import Onced
from onced_e2e.stripe import KEY, Mock, Proxy
from onced_e2e.wait import wait_until

COMMITTING = ["drop_after", "half", "delay:1500", "503_after"]


class Shop:
    def __init__(self, folder):
        self.mock = Mock(folder)
        self.proxy = Proxy(self.mock)
        self.onced = Onced(folder)
        self.text = (binary.ROOT / "examples/stripe.yaml").read_text()
        self.shorten("timeout: 30s", "timeout: 800ms")
        self.shorten("settle: 5s", "settle: 300ms\n    lookup_interval: 50ms\n    retry: {attempts: 5, backoff: 50ms, "
                     "backoff_max: 200ms}\n    wait: 15s")
        if ledgers.POSTGRES:
            self.shorten("path: stripe.db", json.dumps(ledgers.section(self.onced.ledger))[1:-1].replace(", ", "\n  "))
        self.onced.file.write_text(self.text)

    def shorten(self, old, new):
        assert old in self.text
        self.text = self.text.replace(old, new)

    def charge(self, order, amount=2000, source="tok_visa", **named):
        return self.onced.call("charge.create", {"order_id": order, "amount": amount, "currency": "usd", "source": source},
                               **named)

    def refund(self, charge, amount, **named):
        return self.onced.call("refund.create", {"charge": charge, "amount": amount}, **named)

    def close(self):
        if self.onced.process.alive():
            self.onced.stop()
        self.proxy.stop()
        self.mock.stop()


@pytest.fixture
def shop(tmp_path, processes, monkeypatch):
    shop = Shop(tmp_path)
    monkeypatch.setenv("STRIPE_BASE_URL", f"http://127.0.0.1:{shop.proxy.port}")
    monkeypatch.setenv("STRIPE_KEY", KEY)
    processes.append(shop.onced.process)
    try:
        shop.onced.start()
        yield shop
    finally:
        shop.close()
    assert not shop.onced.process.findings()


def test_stripe_charge_and_refund(shop):
    charge = shop.charge("order-1")
    assert charge.status == 201 and charge.state == "completed_success", charge
    assert charge["result"]["amount"] == 2000 and charge["external_id"].startswith("ch_")
    first, second = shop.refund(charge["external_id"], 500), shop.refund(charge["external_id"], 1500)
    assert first.state == second.state == "completed_success"
    assert len(shop.proxy.posts()) == 3
    again = [shop.charge("order-1"), shop.refund(charge["external_id"], 500), shop.refund(charge["external_id"], 1500)]
    assert [each.id for each in again] == [charge.id, first.id, second.id] and all(each.replayed for each in again)
    assert len(shop.proxy.posts()) == 3
    (there,) = shop.mock.list("charges")
    assert there["metadata"] == {"operation": charge.id, "order": "order-1"} and there["amount_refunded"] == 2000
    assert {refund["metadata"]["operation"] for refund in shop.mock.list("refunds")} == {first.id, second.id}
    too_much = shop.refund(charge["external_id"], 1)
    assert too_much.state == "failed_permanent" and "already been refunded" in too_much["error"]["message"]


@pytest.mark.parametrize("fault", COMMITTING)
def test_stripe_lost_answer_is_replayed_with_wrong_content_type(shop, fault):
    """The mock replays a key's answer as text/html; it is JSON all the same, and it counts."""
    shop.proxy.script(fault)
    charge = shop.charge("order-1")
    assert charge.state == "completed_success" and charge["attempts"] == 2, charge
    first, replay = shop.proxy.posts()
    assert first.key == replay.key
    assert replay.headers["idempotent-replayed"] == "true" and replay.headers["Content-Type"].startswith("text/html")
    shop.proxy.script(fault)
    refund = shop.refund(charge["external_id"], 700)
    assert refund.state == "completed_success" and refund["attempts"] == 2, refund
    assert [each["id"] for each in shop.mock.list("charges")] == [charge["external_id"]]
    assert [each["id"] for each in shop.mock.list("refunds")] == [refund["external_id"]]


def test_stripe_lost_request(shop):
    shop.proxy.script("drop_before", "drop_before")
    charge = shop.charge("order-1")
    assert charge.state == "completed_success" and charge["attempts"] == 3
    assert len(shop.mock.list("charges")) == 1


def test_stripe_400_on_changed_parameters(shop):
    """A caller's changed arguments never get that far. A changed registry file does: the re-send of a lost answer then has
    the same key and another body, Stripe's 400 proves nothing about the first one, and the look-up finds it."""
    refused = [shop.charge("order-1", key="mine"), shop.charge("order-1", amount=2100, key="mine")]
    assert refused[0].state == "completed_success"
    assert refused[1].status == 422 and refused[1].problem == "key_reused" and refused[1]["differing"] == ["/amount"]
    assert len(shop.proxy.posts()) == 1

    shop.shorten("timeout: 800ms", "timeout: 20s")
    shop.onced.file.write_text(shop.text)
    shop.onced.restart()
    shop.proxy.script("delay:15000")  # its answer is still held when onced is killed: nothing is sent again before that
    waiting = shop.onced.submit("charge.create", {"order_id": "order-2", "amount": 900, "currency": "usd",
                                                  "source": "tok_visa"})
    wait_until(lambda: len(shop.proxy.posts()) == 2 and shop.proxy.posts()[1].status == 200)
    shop.onced.kill()
    shop.onced.file.write_text(shop.text.replace("order: \"{order_id}\"", "order: \"{order_id}\", shop: new"))
    shop.onced.start()
    charge = shop.onced.settled(waiting)
    statuses = [seen.status for seen in shop.proxy.posts()]
    assert statuses[:2] == [200, 200] and set(statuses[2:]) == {400}, shop.proxy.seen
    (there,) = [each for each in shop.mock.list("charges") if each["metadata"]["order"] == "order-2"]
    assert charge.state == "completed_success" and charge["external_id"] == there["id"]
    assert len(shop.mock.list("charges")) == 2
    # directly, to be sure that the mock says what the example's registry file names
    body = urllib.parse.urlencode({"amount": 901, "currency": "usd", "source": "tok_visa"})
    status, _, text = shop.mock.ask("POST", "/v1/charges", body,
                                    {"Idempotency-Key": shop.proxy.posts()[1].key,
                                     "Content-Type": "application/x-www-form-urlencoded"})
    assert status == 400 and json.loads(text)["error"]["type"] == "idempotency_error"


def test_stripe_429_is_tried_again(shop):
    charge = shop.charge("order-1", source="tok_429|tok_429|tok_visa")
    assert charge.state == "completed_success" and charge["attempts"] == 3, charge
    assert [seen.status for seen in shop.proxy.posts()] == [429, 429, 200]
    assert len(shop.mock.list("charges")) == 1
    never = shop.charge("order-2", source="tok_429")
    assert never.state == "failed_permanent" and never["reason"] == "attempts_exhausted"
    assert len(shop.mock.list("charges")) == 1


def test_stripe_500_is_looked_up(shop):
    """The mock keeps a 500 under its key, as Stripe does: every re-send gets it again, and the list has the last word."""
    charge = shop.charge("order-1", source="tok_500")
    assert charge.state == "failed_permanent" and charge["reason"] == "absent", charge
    assert {seen.status for seen in shop.proxy.posts()} == {500} and shop.proxy.lookups()
    assert shop.mock.list("charges") == []


def test_stripe_declined(shop):
    charge = shop.charge("order-1", source="tok_chargeDeclinedInsufficientFunds")
    assert charge.state == "failed_permanent" and charge["reason"] == "provider_refused"
    assert charge["error"]["code"] == "card_declined" and charge["http_status"] == 402
    assert len(shop.proxy.posts()) == 1
    another = shop.charge("order-1", source="tok_visa")  # a corrected argument gets through (design 2.7)
    assert another.state == "completed_success" and another.id != charge.id
    # sorted, as the mock's own order goes by whole seconds
    assert sorted(each["status"] for each in shop.mock.list("charges")) == ["failed", "succeeded"]


def faults(random):
    """Of each POST."""
    return lambda: random.choices([None, *COMMITTING, "drop_before"], [70, 8, 5, 2, 8, 7])[0]


def kill_now_and_then(shop, callers, total, random):
    for share in (0.2, 0.5, 0.8):
        at = share * total + random.random() * 4
        wait_until(lambda at=at: callers.answered >= at or callers.problems, seconds=90, every=0.002)
        shop.onced.kill()
        shop.onced.start()


def test_stripe_killed_in_between(shop):
    random = chance()
    count = 30 + 6 * rounds()  # more than one page of a look-up at full size
    shop.proxy.choose = faults(random)
    charges = [Intent("charge.create", f"c{n}", {"order_id": f"o{n}", "amount": 1000 + n, "currency": "usd",
                                                 "source": "tok_visa"}) for n in range(count)]
    callers = Callers(shop.onced.port, [each for each in charges for _ in range(2)], 8)
    kill_now_and_then(shop, callers, 2 * count, random)
    callers.join()
    assert {told[1] for each in charges for told in each.told} == {"completed_success"}

    refunds = [Intent("refund.create", f"r{n}", {"charge": each.told[0][2], "amount": 100 + n})
               for n, each in enumerate(charges)]
    callers = Callers(shop.onced.port, [each for each in refunds for _ in range(2)], 8)
    kill_now_and_then(shop, callers, 2 * count, random)
    callers.join()

    for intents, what in ((charges, "charges"), (refunds, "refunds")):
        assert all(len(set(each.told)) == 1 and each.told[0][1] == "completed_success" for each in intents)
        there = shop.mock.list(what)
        assert sorted(each["metadata"]["operation"] for each in there) == sorted(each.told[0][0] for each in intents)
        assert {each["id"] for each in there} == {each.told[0][2] for each in intents}
    shop.proxy.choose = None
    assert not ask_again(shop.onced.port, charges + refunds)
    lost = sum(seen.fault is not None for seen in shop.proxy.posts())
    figure("stripe", f"{count} charges and {count} refunds, each once in the provider's own lists; {lost} faults, 6 kills, "
           f"{len(shop.proxy.posts())} POSTs, {len(shop.proxy.lookups())} look-ups")
