//! GPU memory from several sources: a program's own runs, a dry run, a learned model; and their combination.
//!
//! All figures are in bytes (or any one unit) of the peak on one GPU.

mod combine;
mod line;
mod own;

pub use combine::{Cell, Combined, Estimates, Range, Rule, SOURCES, Sample, Source};
pub use line::Line;
pub use own::{Anchor, Point, from_one_run, learned, own};
