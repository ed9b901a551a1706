-- One JSON object: `processes`, of each its pid and its features by name, and how many were left out.
-- It is the last column: a query that does not ask for it does not read through it.
ALTER TABLE runs ADD COLUMN features TEXT;
