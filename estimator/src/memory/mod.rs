//! GPU memory from several sources: a program's own runs, a dry run, a learned model; and their combination.
//!
//! All figures are in bytes (or any one unit) of the peak on one GPU.

mod combine;
pub mod compare;
mod dry_runs;
mod line;
mod model;
pub mod network;
mod outliers;
mod own;
mod posterior;
mod site_line;
mod train;

pub use combine::{Cell, Combined, Estimates, Range, Rule, SOURCES, Sample, Source};
pub use dry_runs::{DryRunFigure, DryRuns};
pub use line::Line;
pub use model::{Answer, Known, MemoryModel, Site};
pub use network::{Network, Networks, Shape};
pub use outliers::LeftOut;
pub use own::{Anchor, Point, learned, own};
pub use site_line::SiteLine;
pub use train::{Program, Run, Tensors, cases, train};
