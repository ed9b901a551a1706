//! The Rust files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// All files below `folder` whose names end in one of `endings`, sorted; build output and hidden
/// folders are left out.
///
/// # Errors
/// A folder cannot be read.
pub fn below(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The Rust files of these folders of the workspace, sorted in each: their paths as they are printed, and their texts.
///
/// # Errors
/// A folder or a file cannot be read.
pub fn texts(root: &Path, folders: &[&str]) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for folder in folders {
        for path in below(&root.join(folder), &[".rs"])? {
            let place = shown(root, &path);
            let text = fs::read_to_string(&path).with_context(|| place.clone())?;
            texts.push((place, text));
        }
    }
    Ok(texts)
}

/// A path as it is printed: from the root.
pub fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
