//! No file grows beyond what a person keeps in mind.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::{Finding, sources};

const MOST_LINES: usize = 800;

/// Finds source files that are too long.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in sources::below(root, &[".rs", ".c", ".h", ".py"])? {
        let lines = fs::read_to_string(&file)?.lines().count();
        if lines > MOST_LINES {
            findings.push(format!("{}: {lines} lines, more than {MOST_LINES}", sources::shown(root, &file)));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_one_line_too_many_is_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("fits.rs"), "\n".repeat(MOST_LINES)).unwrap();
        fs::write(dir.path().join("long.rs"), "\n".repeat(MOST_LINES + 1)).unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        fs::write(dir.path().join("target/made.rs"), "\n".repeat(9999)).unwrap();
        let found = check(dir.path()).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("long.rs: 801 lines"), "{found:?}");
    }
}
