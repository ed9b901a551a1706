//! Commands that show what was recorded.

pub(crate) mod compare;
pub(crate) mod dataset;
pub(crate) mod machines;
pub(crate) mod report;
mod stacks;
