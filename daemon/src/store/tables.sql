CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, uid INTEGER NOT NULL, gid INTEGER NOT NULL, user TEXT NOT NULL,
    spec TEXT NOT NULL, environment TEXT NOT NULL, stage TEXT NOT NULL, held INTEGER NOT NULL,
    cancelled INTEGER NOT NULL, attempt INTEGER NOT NULL, ooms INTEGER NOT NULL, floor INTEGER NOT NULL,
    devices TEXT NOT NULL, reserved INTEGER, mem_limit INTEGER, submitted_ms INTEGER NOT NULL,
    first_start_ms INTEGER, started_ms INTEGER, ended_ms INTEGER, ran_ms INTEGER NOT NULL, peak INTEGER,
    boot TEXT NOT NULL, verdict TEXT, why TEXT NOT NULL, suspension TEXT NOT NULL DEFAULT '{}', lined_up_ms INTEGER,
    activity TEXT, leaving TEXT, needs TEXT, emulated TEXT, refused INTEGER NOT NULL DEFAULT 0,
    idle_ms INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_open ON jobs(id) WHERE stage <> 'ended';
CREATE INDEX jobs_user ON jobs(uid, id);
CREATE TABLE history (job INTEGER NOT NULL, at_ms INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX history_job ON history(job);
CREATE TABLE usage (uid INTEGER PRIMARY KEY, gpu_ms INTEGER NOT NULL, at_ms INTEGER NOT NULL);
CREATE TABLE drained (gpu TEXT PRIMARY KEY);
CREATE TABLE watched (
    gpu TEXT PRIMARY KEY, samples INTEGER NOT NULL, used REAL NOT NULL, smact REAL NOT NULL,
    smact_samples INTEGER NOT NULL, power REAL NOT NULL, power_samples INTEGER NOT NULL, energy REAL
);
