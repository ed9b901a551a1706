-- What a run took of its host: CPU time in a unit of time (thousandths of a core), threads at the same time, resident memory.
ALTER TABLE runs ADD COLUMN host_cpu_milli INTEGER;
ALTER TABLE runs ADD COLUMN host_threads INTEGER;
ALTER TABLE runs ADD COLUMN host_resident_bytes INTEGER;
