#!/usr/bin/env python3
"""A shop that refunds parts of orders: its own bookkeeping and what is to happen at the payment provider are one transaction.

    export SHOP_DATABASE_URL=postgresql://…/shop          an empty database
    onced fake-provider --port 9000 &                      stands in for the payment provider
    onced serve examples/payments.yaml &
    onced relay install examples/outbox/relay.yaml
    python3 examples/outbox/shop.py open order-1 10000     an order of 100.00
    python3 examples/outbox/shop.py refund order-1 2500    writes down the refund, and an outbox row with it
    python3 examples/outbox/shop.py refund order-1 9000    more than is left: rolled back, nothing is ever sent
    onced relay --once examples/outbox/relay.yaml          or without --once, as a service
    python3 examples/outbox/shop.py show

Nothing but psql is needed; with a driver it is the same two statements in one transaction."""

import json
import os
import pathlib
import subprocess
import sys

REFUND = """
BEGIN;
UPDATE orders SET refunded_cents = refunded_cents + :'cents' WHERE id = :'id';
INSERT INTO outbox (tool, arguments, entity)
    SELECT 'refund.create', jsonb_build_object('payment_id', payment_id, 'amount_cents', :'cents'::bigint, 'note', 'part ' || refunded_cents), 'order/' || id
    FROM orders WHERE id = :'id';
COMMIT;
"""
OPEN = "INSERT INTO orders (id, payment_id, paid_cents) VALUES (:'id', 'pay_' || :'id', :'cents');"
SHOW = "SELECT json_agg(row_to_json(o) ORDER BY o.id) FROM (SELECT id, entity, arguments->'amount_cents' AS cents, status, operation_id, problem FROM outbox) o;"


def psql(script, **variables):
    argv = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", os.environ["SHOP_DATABASE_URL"]]
    for name, value in variables.items():
        argv += ["-v", f"{name}={value}"]
    return subprocess.run(argv, input=script, capture_output=True, text=True, check=False)


def main(argv):
    match argv:
        case ["open", order, cents]:
            done = psql(pathlib.Path(__file__).with_name("shop.sql").read_text(encoding="utf-8") + OPEN, id=order, cents=cents)
        case ["refund", order, cents]:
            done = psql(REFUND, id=order, cents=cents)
        case ["show"]:
            done = psql(SHOW)
            for row in json.loads(done.stdout or "[]") or []:
                print(f"{row['id']:>4}  {row['entity']:<16} {row['cents']:>8}  {row['status']:<18} {row['operation_id'] or ''}  {row['problem'] or ''}")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    sys.stderr.write(done.stderr)
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
