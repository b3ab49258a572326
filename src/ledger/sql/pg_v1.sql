-- Schema version 1 of the PostgreSQL ledger. The columns of the records stand in pg_rows.c. Texts are compared byte by byte
-- (COLLATE "C"), enumerations are stored as their texts. Moments that processes compare (lease_until_ms, wake_at_ms) are on
-- the database's clock.
CREATE TABLE meta (
  name text PRIMARY KEY,
  value bytea NOT NULL
);

-- Processes that write. A writing transaction sets batch where epoch is still the writer's: so a process whose connection
-- broke finds out whether its last commit happened, and nothing of that connection can be committed later.
CREATE TABLE gateways (
  id text COLLATE "C" PRIMARY KEY,
  epoch bigint NOT NULL,
  batch bigint NOT NULL,
  seen_ms bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE operations (
  {define operation},
  open smallint NOT NULL,               -- 1: the state is not terminal
  watched smallint NOT NULL DEFAULT 0,  -- 1: somebody waits for it elsewhere; its moves are told as news (pg_news.h)
  repeat_hash bigint NOT NULL,          -- 64 bits over (tenant, tool, principal, fingerprint)
  -- The first line of an operation's life and its first attempt, as they nearly always are, lie in the row itself;
  -- otherwise these are NULL and history has them.
  admitted_state text COLLATE "C",      -- "admitted by principal at created_ms into this state"
  admitted_reason text COLLATE "C",
  first_attempt text COLLATE "C",       -- id of call attempt 1, begun at created_ms
  PRIMARY KEY (id, tenant)
) PARTITION BY HASH (tenant);
{partitions operations}
-- No two indexes begin with the same column: plans are made while a table is empty, when all that could serve seem to cost
-- the same, and a plan by tenant alone would read all of its rows.
CREATE UNIQUE INDEX operations_key ON operations (key_hash, key_version, tenant);
CREATE INDEX operations_repeat ON operations (repeat_hash, created_ms);
CREATE INDEX operations_run ON operations (run, id) WHERE run IS NOT NULL;
-- Rows that somebody must look at: claims walk it in order of wake_at_ms.
CREATE INDEX operations_due ON operations (open, wake_at_ms) WHERE (open = 1 OR wake_at_ms > 0);
-- What may hold other calls: few rows.
CREATE INDEX operations_doubt ON operations (principal, tool, tenant)
  WHERE (state = 'unknown_outcome' OR (open = 1 AND (orphaned = 1 OR unknown_since_ms <> 0)));
CREATE INDEX operations_approval ON operations (id) WHERE open = 1 AND approval IS NOT NULL;
CREATE INDEX operations_provider_key ON operations (provider_key) WHERE provider_key <> id;
CREATE INDEX operations_external_id ON operations (external_id) WHERE external_id IS NOT NULL;

-- Append-only. Each line holds an event (cause not NULL), an attempt as it then was (attempt_id not NULL), or both;
-- sequence rises within an operation: rev * 4 + position within the transition. An attempt's first line is written before
-- its bytes leave.
CREATE TABLE history (
  tenant text COLLATE "C" NOT NULL,
  operation text COLLATE "C" NOT NULL,
  sequence bigint NOT NULL,
  {define event},
  {define attempt},
  PRIMARY KEY (operation, sequence, tenant)
) PARTITION BY HASH (tenant);
{partitions history}
-- They outlive their operation.
CREATE TABLE incidents (
  {define incident},
  PRIMARY KEY (id)
);
CREATE INDEX incidents_operation ON incidents (operation, id);
CREATE INDEX incidents_open ON incidents (id) WHERE acknowledged_ms = 0;

-- What stays for ever of a dropped operation.
CREATE TABLE tombstones (
  {define tombstone},
  PRIMARY KEY (operation)
);
CREATE UNIQUE INDEX tombstones_key ON tombstones (key_hash, key_version, tenant);

-- Bearer tokens: only the SHA-256 of the secret.
CREATE TABLE principals (
  {define token},
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX principals_secret ON principals (secret_hash);

-- How many operations came into each state less those that left it; each process counts in rows of its own, the sum counts.
CREATE TABLE counters (
  gateway text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL,
  operations bigint NOT NULL,
  PRIMARY KEY (gateway, state)
) WITH (fillfactor = 50);

-- What providers told on their own, as they signed it; ids are "ev_" + ULID, the order of arrival.
CREATE TABLE inbox (
  id text COLLATE "C" PRIMARY KEY,
  source text COLLATE "C" NOT NULL,
  event text COLLATE "C" NOT NULL,
  type text COLLATE "C",
  status text COLLATE "C" NOT NULL,     -- waiting, applied, ignored
  outcome text COLLATE "C" NOT NULL,
  match text COLLATE "C" NOT NULL,      -- by what it names an operation …
  value text COLLATE "C",               -- … and the name
  external_id text COLLATE "C",
  operation text COLLATE "C",           -- applied to
  created_ms bigint NOT NULL,
  received_ms bigint NOT NULL,
  settled_ms bigint NOT NULL,
  duplicates bigint NOT NULL,
  duplicate_ms bigint NOT NULL,
  retain_until_ms bigint NOT NULL,
  result text COLLATE "C",
  body bytea,
  forward text COLLATE "C" NOT NULL,    -- on to the application: none, due, delivered, undelivered
  forward_tries bigint NOT NULL,
  forward_at_ms bigint NOT NULL,        -- due: next try; else when it became so
  forward_until_ms bigint NOT NULL,
  forward_detail text COLLATE "C"
);
CREATE UNIQUE INDEX inbox_event ON inbox (source, event);
CREATE INDEX inbox_waiting ON inbox (value, match, id) WHERE status = 'waiting';
CREATE INDEX inbox_waiting_id ON inbox (id) WHERE status = 'waiting';
CREATE INDEX inbox_operation ON inbox (operation, id) WHERE operation IS NOT NULL;
CREATE INDEX inbox_forward_due ON inbox (forward_at_ms) WHERE forward = 'due';
CREATE INDEX inbox_undelivered ON inbox (id) WHERE forward = 'undelivered';
CREATE INDEX inbox_retain ON inbox (retain_until_ms);

-- Since the beginning, also of what was removed since.
CREATE TABLE inbox_counts (
  gateway text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  events bigint NOT NULL,
  duplicates bigint NOT NULL,
  applied bigint NOT NULL,
  ignored bigint NOT NULL,
  dropped bigint NOT NULL,              -- still waiting when their time was over
  PRIMARY KEY (gateway, source)
);

-- One row per entity that is held, or was given attributes, or was released by an operator.
CREATE TABLE entities (
  tenant text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  holder text COLLATE "C",              -- operation id
  held_ms bigint NOT NULL,
  rev bigint NOT NULL,                  -- of the attributes
  attributes text COLLATE "C",
  override text COLLATE "C",
  PRIMARY KEY (tenant, type, id)
);
CREATE INDEX entities_holder ON entities (tenant, type, id) WHERE holder IS NOT NULL;

-- Queues, in the order of their tickets. An operation stands in all of its queues with one ticket.
CREATE TABLE entity_waits (
  tenant text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  ticket bigint NOT NULL,
  operation text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, type, id, ticket)
);
CREATE INDEX entity_waits_operation ON entity_waits (operation);
CREATE INDEX entity_waits_ticket ON entity_waits (tenant, ticket);

-- Who used a semantic window: only operations that count.
CREATE TABLE windows (
  tenant text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  operation text COLLATE "C" NOT NULL,
  at_ms bigint NOT NULL,
  until_ms bigint NOT NULL,
  PRIMARY KEY (tenant, key, operation)
);
CREATE INDEX windows_until ON windows (until_ms);

-- Sums of budgets per slice of their period; exact decimals as text. A slice counts until over_ms.
CREATE TABLE budget_slices (
  tenant text COLLATE "C" NOT NULL,
  budget text COLLATE "C" NOT NULL,
  subject text COLLATE "C" NOT NULL,    -- principal, or empty
  key text COLLATE "C" NOT NULL,
  start_ms bigint NOT NULL,
  until_ms bigint NOT NULL,
  over_ms bigint NOT NULL,
  amount text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, budget, subject, key, start_ms, until_ms)
);
CREATE INDEX budget_slices_over ON budget_slices (over_ms);
