//! README tells of real GPUs what the kept results say.

use std::path::Path;

use anyhow::Result;
use xtask::gpu::figures;

use super::finding::Finding;

/// Finds a README that tells something else than the kept results.
pub fn check(root: &Path) -> Result<Option<Finding>> {
    let stale = "README.md: what it tells of real GPUs is not what bench/gpu says";
    Ok((!figures::is_fresh(root)?).then(|| stale.to_owned()))
}
