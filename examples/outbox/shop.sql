-- The shop's own table. The outbox beside it is made by: onced relay install examples/outbox/relay.yaml
-- (onced relay install --print shows its statements).
CREATE TABLE IF NOT EXISTS orders (
    id text PRIMARY KEY,
    payment_id text NOT NULL,
    paid_cents bigint NOT NULL CHECK (paid_cents >= 0),
    refunded_cents bigint NOT NULL DEFAULT 0 CHECK (refunded_cents BETWEEN 0 AND paid_cents)
);
