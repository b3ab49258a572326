-- Schema version 7: multi-step tools (core/steps.h). Of a step, and of what undoes one in a rollback, the operation that it
-- belongs to; of that one, how far its steps are, as JSON.
ALTER TABLE operations ADD COLUMN parent TEXT;
ALTER TABLE operations ADD COLUMN steps TEXT;
