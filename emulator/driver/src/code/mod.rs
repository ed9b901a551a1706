//! Modules, libraries, kernels and functions.

use std::sync::Arc;

use crate::context::Context;
use crate::state::Driver;

/// A context ends: its modules end with it.
pub fn context_destroyed(_driver: &Driver, _context: &Arc<Context>) {}
