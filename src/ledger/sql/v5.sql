-- Schema version 5: what operations claim beyond their key (core/claims.h): entities, queues, windows, budgets.
ALTER TABLE operations ADD COLUMN claims TEXT;

-- One row per entity that is held, or was given attributes, or was released by an operator.
CREATE TABLE entities (
  tenant TEXT NOT NULL,
  type TEXT NOT NULL,
  id TEXT NOT NULL,
  holder TEXT,                          -- operation id
  held_ms INTEGER NOT NULL,
  rev INTEGER NOT NULL,                 -- of the attributes
  attributes TEXT,
  override TEXT,
  PRIMARY KEY (tenant, type, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX entities_holder ON entities (tenant, type, id) WHERE holder IS NOT NULL;

-- Queues, in the order of their tickets. An operation stands in all of its queues with one ticket.
CREATE TABLE entity_waits (
  tenant TEXT NOT NULL,
  type TEXT NOT NULL,
  id TEXT NOT NULL,
  ticket INTEGER NOT NULL,
  operation TEXT NOT NULL,
  PRIMARY KEY (tenant, type, id, ticket)
) STRICT, WITHOUT ROWID;

CREATE INDEX entity_waits_operation ON entity_waits (operation);
CREATE INDEX entity_waits_ticket ON entity_waits (ticket);

-- Who used a semantic window: only operations that count.
CREATE TABLE windows (
  tenant TEXT NOT NULL,
  key TEXT NOT NULL,
  operation TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  until_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, key, operation)
) STRICT, WITHOUT ROWID;

CREATE INDEX windows_until ON windows (until_ms);

-- Sums of budgets per slice of their period; exact decimals as text. A slice counts until over_ms.
CREATE TABLE budget_slices (
  tenant TEXT NOT NULL,
  budget TEXT NOT NULL,
  subject TEXT NOT NULL,                -- principal, or empty
  key TEXT NOT NULL,
  start_ms INTEGER NOT NULL,
  until_ms INTEGER NOT NULL,
  over_ms INTEGER NOT NULL,
  amount TEXT NOT NULL,
  PRIMARY KEY (tenant, budget, subject, key, start_ms, until_ms)
) STRICT, WITHOUT ROWID;

CREATE INDEX budget_slices_over ON budget_slices (over_ms);

CREATE VIEW entities_view AS
SELECT e.tenant, e.type, e.id, e.holder,
       CASE WHEN e.held_ms > 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', e.held_ms / 1000.0, 'unixepoch') END AS held,
       (SELECT count(*) FROM entity_waits AS w WHERE w.tenant = e.tenant AND w.type = e.type AND w.id = e.id) AS waiting,
       e.rev, e.attributes, e.override
FROM entities AS e;
