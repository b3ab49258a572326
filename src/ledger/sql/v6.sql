-- Schema version 6: compensations (core/playbook.h). On the one side what an operation undoes and by which playbook, on the
-- other the operation that undoes it, undid it or was to. What the operator is told when it fails comes with it, as the
-- registry file said when it was run.
ALTER TABLE operations ADD COLUMN compensates TEXT;
ALTER TABLE operations ADD COLUMN playbook TEXT;
ALTER TABLE operations ADD COLUMN escalation TEXT;
ALTER TABLE operations ADD COLUMN compensation TEXT;
