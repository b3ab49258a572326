-- Schema version 3: the inbox. What providers told on their own, as they signed it; ids are "ev_" + ULID, so the primary
-- key is the order of arrival.
CREATE TABLE inbox (
  id TEXT PRIMARY KEY,
  source TEXT NOT NULL,
  event TEXT NOT NULL,
  type TEXT,
  status TEXT NOT NULL,                 -- waiting, applied, ignored
  outcome TEXT NOT NULL,
  match TEXT NOT NULL,                  -- by what it names an operation …
  value TEXT,                           -- … and the name
  external_id TEXT,
  operation TEXT,                       -- applied to
  created_ms INTEGER NOT NULL,
  received_ms INTEGER NOT NULL,
  settled_ms INTEGER NOT NULL,
  duplicates INTEGER NOT NULL,
  duplicate_ms INTEGER NOT NULL,
  retain_until_ms INTEGER NOT NULL,
  result TEXT,
  body BLOB
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX inbox_event ON inbox (source, event);
CREATE INDEX inbox_waiting ON inbox (value, match) WHERE status = 'waiting';
CREATE INDEX inbox_waiting_id ON inbox (id) WHERE status = 'waiting';
CREATE INDEX inbox_operation ON inbox (operation) WHERE operation IS NOT NULL;
CREATE INDEX inbox_retain ON inbox (retain_until_ms);

-- Since the beginning, also of what was removed since.
CREATE TABLE inbox_counts (
  source TEXT PRIMARY KEY,
  events INTEGER NOT NULL,
  duplicates INTEGER NOT NULL,
  applied INTEGER NOT NULL,
  ignored INTEGER NOT NULL,
  dropped INTEGER NOT NULL              -- still waiting when their time was over
) STRICT, WITHOUT ROWID;

-- How an event finds its operation. Keys that are the operation's id need no index.
CREATE INDEX operations_provider_key ON operations (provider_key) WHERE provider_key IS NOT NULL AND provider_key <> id;
CREATE INDEX operations_external_id ON operations (external_id) WHERE external_id IS NOT NULL;

CREATE VIEW inbox_view AS
SELECT id, source, event, type, status, outcome, match, value, external_id, operation,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_ms / 1000.0, 'unixepoch') AS created,
       strftime('%Y-%m-%dT%H:%M:%fZ', received_ms / 1000.0, 'unixepoch') AS received,
       CASE WHEN settled_ms > 0
            THEN strftime('%Y-%m-%dT%H:%M:%fZ', settled_ms / 1000.0, 'unixepoch') END AS settled,
       duplicates, result, CAST(body AS TEXT) AS body
FROM inbox;
