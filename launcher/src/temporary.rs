//! Folders that a program finds by a list in its environment, such as `LD_LIBRARY_PATH`.

use std::env;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// In place of a `TMPDIR` that no list can name.
const USUAL: &str = "/tmp";

/// Directory in which such folders are made: `TMPDIR`, unless a list cannot name it.
#[must_use]
pub fn place() -> PathBuf {
    // Programs may change their directory, so the path must not depend on it.
    let place = env::temp_dir();
    let place = std::path::absolute(&place).unwrap_or(place);
    if can_be_listed(&place) { place } else { PathBuf::from(USUAL) }
}

/// A new folder.
///
/// # Errors
/// It cannot be made.
pub fn directory(prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).tempdir_in(place())
}

/// Returns true if the loader and Python take a path in a list for what it is: both separate by colons, the loader
/// by semicolons and, in `LD_PRELOAD`, by spaces too, and it replaces what stands behind a dollar sign.
fn can_be_listed(path: &Path) -> bool {
    !path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b':' | b';' | b'$') || byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_a_list_would_tear_apart_are_known() {
        for (path, can) in
            [("/tmp", true), ("/a:b", false), ("/a b", false), ("/$LIB", false), ("/a;b", false)]
        {
            assert_eq!(can_be_listed(Path::new(path)), can, "{path}");
        }
    }
}
