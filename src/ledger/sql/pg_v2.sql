-- Schema version 2 of the PostgreSQL ledger: what gateways write in many rows at once comes as an array of these (one
-- statement for all of them costs a third of one for each). The types are ours alone: bigint, text and bytea.
CREATE TYPE admission_row AS (
  open bigint,
  repeat_hash bigint,
  admitted_state text COLLATE "C",
  admitted_reason text COLLATE "C",
  first_attempt text COLLATE "C",
  unless_repeated bigint,               -- 1: not where the same call was made before
  unless_in_doubt bigint,               -- 1: not beside what is in doubt
  {typed operation}
);
CREATE TYPE move_row AS (
  tenant text COLLATE "C",
  id text COLLATE "C",
  fence text COLLATE "C",               -- only if this is the owner
  unheld bigint,                        -- 1: only if there is none
  sequence bigint,                      -- of its line in history; NULL: none
  {typed life},
  {typed event e_},
  {typed attempt a_}
);
CREATE TYPE mark_row AS (
  id text COLLATE "C",
  delivered bigint,
  orphaned bigint,
  not_orphaned bigint
);
