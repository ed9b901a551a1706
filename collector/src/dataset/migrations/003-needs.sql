-- What the need of a later run follows from. A new table, because `features` has to stay the last column. Figures
-- that a writer without a profile does not know may be NULL from here on: NULL is "not measured", 0 is a measurement.
-- Older rows have no program key, as their working directory was not kept: no need is derived from them.
CREATE TABLE runs_3 (
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
    predicted_bytes INTEGER,
    predicted_upper_bytes INTEGER,
    predicted_confidence_permille INTEGER,
    predicted_source TEXT,
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
INSERT INTO runs_3 (id, origin, start_unix_ns, duration_ns, run_time_ns, command, program, program_sha256, arguments,
    user, uid, host, gpu_model, gpus, driver, framework, emulated, complete, peak_bytes, peak_exact, peaks,
    device_peak_bytes, pool_reserved_peak_bytes, pool_used_peak_bytes, vmm_peak_bytes, array_peak_bytes,
    graph_peak_bytes, managed_peak_bytes, pinned_peak_bytes, nvml_peak_bytes, launches, graph_launches, kernels,
    processes, failed_requests, outcome, exit_code, signal, out_of_memory, profile_path, radrm_version, features)
SELECT id, CASE WHEN emulated IS NULL THEN 'measured' ELSE 'emulated' END, start_unix_ns, duration_ns, duration_ns,
    command, program, program_sha256, arguments, user, uid, host,
    CASE WHEN json_valid(gpus) THEN json_extract(gpus, '$[0]') END, gpus, driver, framework, emulated,
    exit_code IS 0, peak_bytes, peak_exact, peaks,
    device_peak_bytes, pool_reserved_peak_bytes, pool_used_peak_bytes, vmm_peak_bytes, array_peak_bytes,
    graph_peak_bytes, managed_peak_bytes, pinned_peak_bytes, nvml_peak_bytes, launches, graph_launches, kernels,
    processes, failed_requests, outcome, exit_code, signal, out_of_memory, profile_path, radrm_version, features
FROM runs;
DROP TABLE runs;
ALTER TABLE runs_3 RENAME TO runs;
CREATE INDEX runs_by_start ON runs (start_unix_ns);
CREATE INDEX runs_by_program ON runs (program_sha256);
-- They hold all that the search of a program's newest runs compares, on one model of GPU and on any.
CREATE INDEX runs_by_program_key_and_model ON runs (program_key, origin, uid, bounds_need, gpu_model, id, emulated);
CREATE INDEX runs_by_program_key ON runs (program_key, origin, uid, bounds_need, id, emulated);
-- A daemon that died between its two databases writes the row of an attempt again: in place of the first one.
CREATE UNIQUE INDEX runs_of_daemon_jobs ON runs (job_id, attempt) WHERE origin = 'daemon';
