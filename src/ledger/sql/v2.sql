-- Schema version 2: approvals. What is asked of people and what they said (core/approval.h), with the operation that it is
-- for; and since when nothing but the provider kept the operation waiting.
ALTER TABLE operations ADD COLUMN approval TEXT;
ALTER TABLE operations ADD COLUMN ready_ms INTEGER NOT NULL DEFAULT 0;
-- Few rows: what waits for people.
CREATE INDEX operations_approval ON operations (open) WHERE open = 1 AND approval IS NOT NULL;
