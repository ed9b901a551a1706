//! Jobs that share a GPU.

use radrm_base::Activity;

use super::Program;

/// A job that holds part of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resident {
    /// Its program, if that is known.
    pub program: Option<Program>,
    /// Activity alone on a GPU.
    pub activity: Activity,
}

/// Jobs that were seen to share a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Company {
    /// The jobs.
    pub jobs: Vec<Resident>,
    /// Their speeds together, in the same order.
    pub speeds: Vec<f64>,
}
