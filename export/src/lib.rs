//! Runs for trackers of experiments.
//!
//! [`Run`] is what a profile says of a run, in the words of trackers: parameters, tags, figures and curves. It is pure.
//! [`mlflow`] sends it to a server of MLflow.

pub mod mlflow;
mod run;
mod web;

pub use run::{End, Metric, Run};
pub use web::{Credentials, WebError};
