//! Runs for trackers of experiments, for OpenTelemetry, and as tables.
//!
//! [`Run`] is what a profile says of a run, in the words of trackers: parameters, tags, figures and curves. It is pure, and
//! [`figure`] lists all that it can hold. [`mlflow`] and [`otlp`] send it to servers, [`table`] makes tables of runs.

pub mod figure;
pub mod mlflow;
pub mod otlp;
mod run;
pub mod table;
mod web;

pub use run::{Curve, End, Gpu, Metric, Run};
pub use web::{Credentials, WebError};
