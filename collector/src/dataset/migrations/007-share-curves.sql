-- Launches in a second of a program at parts of a GPU's multiprocessors under MPS, as radrm calibrate measured them: the
-- points are a JSON array of per cent and rate.
CREATE TABLE IF NOT EXISTS share_curves (
    id INTEGER PRIMARY KEY,
    unix_ns INTEGER NOT NULL,
    host TEXT NOT NULL,
    gpu_model TEXT NOT NULL,
    emulated INTEGER NOT NULL,
    program TEXT NOT NULL,
    points TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_share_curve_each ON share_curves (program, gpu_model, emulated);
