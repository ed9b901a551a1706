//! Fuzz targets. As tests they run for a second each, and for as long as `BOLERO_RANDOM_TEST_TIME_MS` says.
//!
//! A target reads what another user may have written, and must give an answer or an error: no panic, no more memory than a
//! reader may take.

mod dataset;
mod elf;
mod ledger;
mod proc;
mod profile;
mod protocol;
mod rad;
mod segment;
mod traces;
