//! Estimates of what a GPU job needs and of how much jobs on one GPU slow each other.
//!
//! Everything here is a pure function of its arguments: no clock, no file, no random number. Model files are handed
//! over as text and are untrusted ([`Model::parse`] checks every index).
//!
//! | module | has |
//! |---|---|
//! | [`features`] | rows of numbers with named columns |
//! | [`boost`] | gradient boosting of regression trees, squared and pinball loss |
//! | [`calibrate`] | conformal bounds: split, cross by group, by cell, adaptive at a new site |
//! | [`early`] | a bound on a run's peak from its own first steps |
//! | [`evaluate`] | folds by group, and the scores that the documents print |
//! | [`memory`] | memory from a program's own runs, a dry run and a learned model, and their combination |
//! | [`interference`] | speeds of jobs that share a GPU, learned effects of programs, larger groups from pairs |
//! | [`linalg`] | small dense systems |
//! | [`across`] | throughput on a GPU model from runs on another one |
//!
//! Published estimators to compare with, and readers of measurements, are in `lab`. `docs/estimators.md` and `docs/interference.md` have formulas and sources, `docs/estimator-accuracy.md` and
//! `docs/interference-accuracy.md` measured figures.

pub mod across;
pub mod boost;
pub mod calibrate;
pub mod early;
pub mod error;
pub mod evaluate;
pub mod features;
pub mod interference;
pub mod linalg;
pub mod memory;
pub mod model;

pub use error::Error;
pub use features::Table;
pub use model::Model;
