//! The shared-memory segment of a job: layout, writer and reader.
