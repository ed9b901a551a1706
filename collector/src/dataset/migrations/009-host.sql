-- What a run took of its host: CPU time in a unit of time (thousandths of a core), threads at the same time, resident memory.
-- The features stay the last column, so that other queries do not read through them.
ALTER TABLE runs RENAME COLUMN features TO former_features;
ALTER TABLE runs ADD COLUMN host_cpu_milli INTEGER;
ALTER TABLE runs ADD COLUMN host_threads INTEGER;
ALTER TABLE runs ADD COLUMN host_resident_bytes INTEGER;
ALTER TABLE runs ADD COLUMN features TEXT;
UPDATE runs SET features = former_features WHERE former_features IS NOT NULL;
ALTER TABLE runs DROP COLUMN former_features;
