-- Schema version 4: what a token is limited to (core/scope.h), JSON lists of patterns; NULL = not limited.
ALTER TABLE principals ADD COLUMN tools TEXT;
ALTER TABLE principals ADD COLUMN entities TEXT;
