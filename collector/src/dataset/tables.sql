-- Sizes are bytes, times nanoseconds; JSON arrays are text. `peaks` holds one object per GPU: index, uuid, name,
-- peak_bytes, exact. NULL is "not measured", 0 is a measurement. `dry_run` is what a dry run found: it pairs with later
-- real runs whatever was predicted for them. `features` is one JSON object: `processes`, of each its pid and its
-- features by name, and how many were left out. It is the last column: a query that does not ask for it does not read
-- through it.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    origin TEXT NOT NULL CHECK (origin IN ('measured', 'emulated', 'dry_run', 'daemon')),
    start_unix_ns INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    run_time_ns INTEGER NOT NULL,
    command TEXT NOT NULL,
    program TEXT,
    program_sha256 TEXT,
    arguments TEXT NOT NULL,
    cwd TEXT,
    program_key TEXT,
    batch INTEGER,
    user TEXT,
    uid INTEGER NOT NULL,
    host TEXT NOT NULL,
    job_id INTEGER,
    attempt INTEGER,
    gpus_requested INTEGER,
    gpu_model TEXT,
    gpus TEXT NOT NULL,
    driver TEXT,
    framework TEXT,
    emulated TEXT,
    footprint_bytes INTEGER,
    oom_request_bytes INTEGER,
    complete INTEGER NOT NULL,
    smact_permille INTEGER,
    smocc_permille INTEGER,
    drama_permille INTEGER,
    host_cpu_milli INTEGER,
    host_threads INTEGER,
    host_resident_bytes INTEGER,
    host_traffic INTEGER,
    host_stalled_permille INTEGER,
    predicted_bytes INTEGER,
    predicted_upper_bytes INTEGER,
    predicted_confidence_permille INTEGER,
    predicted_source TEXT,
    dry_run TEXT,
    peak_bytes INTEGER NOT NULL,
    peak_exact INTEGER NOT NULL,
    peaks TEXT NOT NULL,
    device_peak_bytes INTEGER,
    pool_reserved_peak_bytes INTEGER,
    pool_used_peak_bytes INTEGER,
    vmm_peak_bytes INTEGER,
    array_peak_bytes INTEGER,
    graph_peak_bytes INTEGER,
    managed_peak_bytes INTEGER,
    pinned_peak_bytes INTEGER,
    nvml_peak_bytes INTEGER,
    launches INTEGER,
    graph_launches INTEGER,
    kernels INTEGER,
    processes INTEGER,
    failed_requests INTEGER,
    outcome TEXT NOT NULL,
    exit_code INTEGER,
    signal INTEGER,
    out_of_memory INTEGER NOT NULL,
    profile_path TEXT,
    radrm_version TEXT NOT NULL,
    bounds_need INTEGER GENERATED ALWAYS AS
        (program_key IS NOT NULL AND footprint_bytes IS NOT NULL AND (complete OR out_of_memory)) VIRTUAL,
    features TEXT
);
CREATE INDEX runs_by_start ON runs (start_unix_ns);
CREATE INDEX runs_by_program ON runs (program_sha256);
-- They hold all that the search of a program's newest runs compares, on one model of GPU and on any.
CREATE INDEX runs_by_program_key_and_model ON runs (program_key, origin, uid, bounds_need, gpu_model, id, emulated);
CREATE INDEX runs_by_program_key ON runs (program_key, origin, uid, bounds_need, id, emulated);
-- A daemon that died between its two databases writes the row of an attempt again: in place of the first one.
CREATE UNIQUE INDEX runs_of_daemon_jobs ON runs (job_id, attempt) WHERE origin = 'daemon';

-- Jobs that were seen to share a GPU, with the launch rate of each alone and in this company: how much programs slow
-- each other is learned from them.
CREATE TABLE sharing (
    id INTEGER PRIMARY KEY,
    unix_ns INTEGER NOT NULL,
    host TEXT NOT NULL,
    gpu_model TEXT NOT NULL,
    emulated TEXT,
    jobs TEXT NOT NULL
);

-- On which cards a dry run's program fits: a row for each card. `seconds` is NULL where the verdict follows from a run on
-- another card.
CREATE TABLE fits (
    run INTEGER NOT NULL,
    card TEXT NOT NULL,
    verdict TEXT NOT NULL,
    why TEXT,
    need_bytes INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    seconds REAL,
    PRIMARY KEY (run, card)
) WITHOUT ROWID;
CREATE TRIGGER fits_are_deleted_with_their_run AFTER DELETE ON runs BEGIN
    DELETE FROM fits WHERE run = OLD.id;
END;

-- Which ranks of a larger job a dry run ran, as a JSON array: the others were modelled.
CREATE TABLE ranks (
    run INTEGER PRIMARY KEY,
    world INTEGER NOT NULL,
    per_node INTEGER NOT NULL,
    ran TEXT NOT NULL
);
CREATE TRIGGER ranks_are_deleted_with_their_run AFTER DELETE ON runs BEGIN
    DELETE FROM ranks WHERE run = OLD.id;
END;

-- Launches in a second of a program at parts of a GPU's multiprocessors under MPS, as radrm calibrate measured them: the
-- points are a JSON array of per cent and rate.
CREATE TABLE share_curves (
    id INTEGER PRIMARY KEY,
    unix_ns INTEGER NOT NULL,
    host TEXT NOT NULL,
    gpu_model TEXT NOT NULL,
    emulated INTEGER NOT NULL,
    program TEXT NOT NULL,
    points TEXT NOT NULL
);
CREATE UNIQUE INDEX one_share_curve_each ON share_curves (program, gpu_model, emulated);

-- What jobs of radrmd held after their first optimizer steps: beside their peak it shows whether they took more later.
CREATE TABLE first_steps (
    run INTEGER PRIMARY KEY,
    steps INTEGER NOT NULL,
    held_bytes INTEGER NOT NULL
);
CREATE TRIGGER first_steps_are_deleted_with_their_run AFTER DELETE ON runs BEGIN
    DELETE FROM first_steps WHERE run = OLD.id;
END;
