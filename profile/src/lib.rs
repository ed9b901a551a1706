//! The profile file: append-only frames, readable after a crash.
