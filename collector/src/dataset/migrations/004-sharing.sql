-- Jobs that were seen to share a GPU, with the launch rate of each alone and in this company: how much programs slow
-- each other is learned from them.
CREATE TABLE IF NOT EXISTS sharing (
    id INTEGER PRIMARY KEY,
    unix_ns INTEGER NOT NULL,
    host TEXT NOT NULL,
    gpu_model TEXT NOT NULL,
    emulated TEXT,
    jobs TEXT NOT NULL
);
