-- Schema version 1. Times are milliseconds since 1970 UTC, 0 = not (yet). Enumerations are small numbers whose texts are
-- in `names`; the views at the end show texts and times for a person with sqlite3. Never change this file once released:
-- a change is the next numbered step.

CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE names (
  kind TEXT NOT NULL,
  number INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (kind, number),
  UNIQUE (kind, text)
) STRICT, WITHOUT ROWID;

-- One row per intended effect. `n` is the row's place in this file: milliseconds of the ULID, times 32768, plus its lowest
-- 15 bits (or the next free number), so that an id leads to its row without an index and rows lie in order of time. Columns
-- are ordered by how often they are looked at; payload comes last, so that what does not need it does not read it.
-- The first line of an operation's life and its first attempt, as they nearly always are, lie in the row itself
-- (admitted_state, first_attempt); otherwise those are NULL and history has them.
CREATE TABLE operations (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  tool TEXT NOT NULL,
  principal TEXT NOT NULL,
  run TEXT,
  open INTEGER NOT NULL,                -- 1: the state is not terminal
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  rev INTEGER NOT NULL,
  owner TEXT,
  lease_until_ms INTEGER NOT NULL,
  wake_at_ms INTEGER NOT NULL,
  delivered INTEGER NOT NULL,
  orphaned INTEGER NOT NULL,
  key_hash BLOB NOT NULL,
  key_version INTEGER NOT NULL,
  repeat_hash INTEGER NOT NULL,         -- 64 bits over (tenant, tool, principal, fingerprint)
  fingerprint BLOB NOT NULL,
  base_hash BLOB,                       -- NULL: equal to key_hash
  key_source INTEGER NOT NULL,
  canonical_version INTEGER NOT NULL,
  key TEXT,
  policy_version TEXT,
  workflow TEXT,
  step TEXT,
  session TEXT,
  call TEXT,
  trace TEXT,
  repeat_of TEXT,
  distinct_from TEXT,
  previous TEXT,
  provider_key TEXT,
  created_ms INTEGER NOT NULL,
  not_before_ms INTEGER NOT NULL,
  may_have_applied INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  lookups INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  first_sent_ms INTEGER NOT NULL,
  last_sent_ms INTEGER NOT NULL,
  unknown_since_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  completed_ms INTEGER NOT NULL,
  retries INTEGER NOT NULL,
  absent_count INTEGER NOT NULL,
  watch_next INTEGER NOT NULL,
  retain_until_ms INTEGER NOT NULL,
  http_status INTEGER NOT NULL,
  external_id TEXT,
  result_bytes INTEGER NOT NULL,
  result_dropped INTEGER NOT NULL,
  duplicate_seen INTEGER NOT NULL,
  admitted_state INTEGER,               -- "admitted by principal at created_ms into this state"
  admitted_reason INTEGER,
  first_attempt TEXT,                   -- id of call attempt 1, begun at created_ms
  arguments TEXT,
  result TEXT,
  error TEXT
);

CREATE UNIQUE INDEX operations_key ON operations (key_hash, key_version);
CREATE INDEX operations_repeat ON operations (repeat_hash);
CREATE INDEX operations_run ON operations (run) WHERE run IS NOT NULL;
-- Rows that somebody must look at: claims walk it in order of wake_at_ms; it also lists all open rows.
CREATE INDEX operations_due ON operations (open, wake_at_ms) WHERE open = 1 OR wake_at_ms > 0;

-- What may hold other calls: unknown_outcome, or orphaned and not ended. Few rows, kept in step with operations.
CREATE TABLE doubts (
  operation INTEGER PRIMARY KEY REFERENCES operations (n),
  tenant TEXT NOT NULL,
  tool TEXT NOT NULL,
  principal TEXT NOT NULL,
  unknown_since_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX doubts_caller ON doubts (tenant, tool, principal);
CREATE INDEX doubts_unknown_since ON doubts (unknown_since_ms) WHERE unknown_since_ms > 0;

-- Append-only. Each line holds an event (cause not NULL), an attempt as it then was (attempt_id not NULL), or both;
-- `sequence` rises within an operation: rev * 4 + position within the transition. An attempt's first line is written
-- before its bytes leave. No foreign key: a line is only ever written together with its operation's row, and the check
-- would cost a tenth of that.
CREATE TABLE history (
  operation INTEGER NOT NULL,           -- operations (n)
  sequence INTEGER NOT NULL,
  at_ms INTEGER,
  cause INTEGER,
  from_state INTEGER,
  to_state INTEGER,
  reason INTEGER,
  attempt INTEGER,
  actor TEXT,
  note TEXT,
  attempt_id TEXT,
  attempt_number INTEGER,
  attempt_kind INTEGER,
  outcome INTEGER,
  started_ms INTEGER,
  finished_ms INTEGER,
  http_status INTEGER,
  provider_request_id TEXT,
  detail TEXT,
  PRIMARY KEY (operation, sequence)
) WITHOUT ROWID;

-- They outlive their operation, hence its id and not its number.
CREATE TABLE incidents (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  operation TEXT NOT NULL,
  kind INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  note TEXT,
  acknowledged_by TEXT,
  acknowledged_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX incidents_operation ON incidents (operation);
CREATE INDEX incidents_open ON incidents (id) WHERE acknowledged_ms = 0;

-- What stays for ever of a dropped operation.
CREATE TABLE tombstones (
  operation TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  tool TEXT NOT NULL,
  principal TEXT NOT NULL,
  key_hash BLOB NOT NULL,
  key_version INTEGER NOT NULL,
  fingerprint BLOB NOT NULL,
  canonical_version INTEGER NOT NULL,
  key_source INTEGER NOT NULL,
  state INTEGER NOT NULL,
  completed_ms INTEGER NOT NULL,
  dropped_ms INTEGER NOT NULL,
  external_id TEXT
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX tombstones_key ON tombstones (key_hash, key_version);

-- Bearer tokens: only the SHA-256 of the secret.
CREATE TABLE principals (
  id TEXT PRIMARY KEY,
  secret_hash BLOB NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  principal TEXT NOT NULL,
  role INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  revoked_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How many operations are in each state; dropped ones stay counted where they ended.
CREATE TABLE counters (
  state INTEGER PRIMARY KEY,
  operations INTEGER NOT NULL
) STRICT;

CREATE VIEW operations_view AS
SELECT o.id, o.tenant, o.tool, o.principal, s.text AS state, r.text AS reason, o.may_have_applied, o.rev, o.attempts,
       o.lookups, o.tries, o.key, k.text AS key_source, o.key_version, o.run, o.step, o.workflow, o.session, o.call,
       o.repeat_of, o.distinct_from, o.previous, o.provider_key, o.external_id, o.http_status, o.owner,
       strftime('%Y-%m-%dT%H:%M:%fZ', o.created_ms / 1000.0, 'unixepoch') AS created,
       strftime('%Y-%m-%dT%H:%M:%fZ', o.updated_ms / 1000.0, 'unixepoch') AS updated,
       CASE WHEN o.completed_ms > 0
            THEN strftime('%Y-%m-%dT%H:%M:%fZ', o.completed_ms / 1000.0, 'unixepoch') END AS completed,
       CASE WHEN o.wake_at_ms > 0
            THEN strftime('%Y-%m-%dT%H:%M:%fZ', o.wake_at_ms / 1000.0, 'unixepoch') END AS wake_at,
       lower(hex(o.fingerprint)) AS fingerprint, o.delivered, o.orphaned, o.duplicate_seen, o.result_bytes,
       o.arguments, o.result, o.error
FROM operations AS o
LEFT JOIN names AS s ON s.kind = 'state' AND s.number = o.state
LEFT JOIN names AS r ON r.kind = 'reason' AND r.number = o.reason
LEFT JOIN names AS k ON k.kind = 'key_source' AND k.number = o.key_source;

CREATE VIEW events_view AS
SELECT e.operation, e.sequence, strftime('%Y-%m-%dT%H:%M:%fZ', e.at_ms / 1000.0, 'unixepoch') AS at,
       c.text AS cause, f.text AS from_state, t.text AS to_state, r.text AS reason, e.actor, e.attempt, e.note
FROM (SELECT id AS operation, 4 AS sequence, created_ms AS at_ms,
             (SELECT number FROM names WHERE kind = 'cause' AND text = 'admitted') AS cause,
             admitted_state AS from_state, admitted_state AS to_state, admitted_reason AS reason,
             principal AS actor, first_attempt IS NOT NULL AS attempt, NULL AS note
      FROM operations WHERE admitted_state IS NOT NULL
      UNION ALL
      SELECT o.id, h.sequence, h.at_ms, h.cause, h.from_state, h.to_state, h.reason, h.actor, h.attempt, h.note
      FROM history AS h JOIN operations AS o ON o.n = h.operation WHERE h.cause IS NOT NULL) AS e
LEFT JOIN names AS c ON c.kind = 'cause' AND c.number = e.cause
LEFT JOIN names AS f ON f.kind = 'state' AND f.number = e.from_state
LEFT JOIN names AS t ON t.kind = 'state' AND t.number = e.to_state
LEFT JOIN names AS r ON r.kind = 'reason' AND r.number = e.reason;

-- Every line about an attempt; the last one of each id is how it stands.
CREATE VIEW attempts_view AS
SELECT a.operation, a.number, a.id, k.text AS kind, t.text AS outcome,
       strftime('%Y-%m-%dT%H:%M:%fZ', a.started_ms / 1000.0, 'unixepoch') AS started,
       CASE WHEN a.finished_ms > 0
            THEN strftime('%Y-%m-%dT%H:%M:%fZ', a.finished_ms / 1000.0, 'unixepoch') END AS finished,
       a.http_status, a.provider_request_id, a.detail
FROM (SELECT id AS operation, 1 AS number, first_attempt AS id,
             (SELECT number FROM names WHERE kind = 'attempt_kind' AND text = 'call') AS kind,
             (SELECT number FROM names WHERE kind = 'outcome' AND text = 'open') AS outcome,
             created_ms AS started_ms, 0 AS finished_ms, 0 AS http_status, NULL AS provider_request_id, NULL AS detail
      FROM operations WHERE first_attempt IS NOT NULL
      UNION ALL
      SELECT o.id, h.attempt_number, h.attempt_id, h.attempt_kind, h.outcome, h.started_ms, h.finished_ms,
             h.http_status, h.provider_request_id, h.detail
      FROM history AS h JOIN operations AS o ON o.n = h.operation WHERE h.attempt_id IS NOT NULL) AS a
LEFT JOIN names AS k ON k.kind = 'attempt_kind' AND k.number = a.kind
LEFT JOIN names AS t ON t.kind = 'outcome' AND t.number = a.outcome;

CREATE VIEW incidents_view AS
SELECT i.id, i.tenant, i.operation, k.text AS kind,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.at_ms / 1000.0, 'unixepoch') AS at, i.note, i.acknowledged_by
FROM incidents AS i
LEFT JOIN names AS k ON k.kind = 'incident_kind' AND k.number = i.kind;
