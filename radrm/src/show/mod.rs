//! Commands that show what was recorded.

pub mod compare;
pub mod dataset;
pub mod machines;
pub mod report;
