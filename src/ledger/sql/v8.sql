-- Schema version 8: inbound events that go on to the application's own endpoint (core/inbox.h, struct forward).
ALTER TABLE inbox ADD COLUMN forward TEXT NOT NULL DEFAULT 'none';            -- none, due, delivered, undelivered
ALTER TABLE inbox ADD COLUMN forward_tries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN forward_at_ms INTEGER NOT NULL DEFAULT 0;        -- due: next try; else when it became so
ALTER TABLE inbox ADD COLUMN forward_until_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN forward_detail TEXT;
CREATE INDEX inbox_forward_due ON inbox (forward_at_ms) WHERE forward = 'due';
CREATE INDEX inbox_undelivered ON inbox (id) WHERE forward = 'undelivered';
