//! Files below a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// All files below a folder: their paths from there, sorted, and where they are.
///
/// # Errors
/// A folder cannot be read.
pub fn files_below(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(files_below(&path)?.into_iter().map(|(below, at)| (format!("{name}/{below}"), at)));
        } else {
            files.insert(name, path);
        }
    }
    Ok(files)
}
