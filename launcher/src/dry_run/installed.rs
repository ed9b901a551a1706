//! Genuine libraries of CUDA that are installed on this system, where the loader finds them by itself.
//!
//! The loader searches LD_LIBRARY_PATH before these folders, so a stand-in there would hide them.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that the loader searches by default.
const USUAL: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// Below the last two, those of this kind of machine where a system has libraries of several.
const OF_THIS_MACHINE: [&str; 2] = if cfg!(target_arch = "aarch64") {
    ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
} else {
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"]
};
/// Files that name more, one to a line.
const NAMED_IN: &str = "/etc/ld.so.conf.d";

/// Returns true if the loader finds a library of that name on this system.
#[must_use]
pub fn on_this_system(name: &str) -> bool {
    let usual = USUAL.iter().chain(&OF_THIS_MACHINE).map(PathBuf::from);
    usual.chain(named(Path::new(NAMED_IN))).any(|folder| folder.join(name).exists())
}

fn named(configuration: &Path) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(configuration) else { return Vec::new() };
    files
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .flat_map(|text| {
            text.lines()
                .map(str::trim)
                .filter(|line| line.starts_with('/'))
                .map(PathBuf::from)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_read_from_all_files_and_remarks_left_out() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.conf"), "# CUDA\n/usr/local/cuda/lib64\n\n").unwrap();
        fs::write(folder.path().join("b.conf"), "  /opt/lib\n").unwrap();
        let mut found = named(folder.path());
        found.sort();
        assert_eq!(found, [PathBuf::from("/opt/lib"), PathBuf::from("/usr/local/cuda/lib64")]);
        assert_eq!(named(&folder.path().join("none")), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_c_library_is_on_every_system() {
        assert!(on_this_system("libc.so.6"));
        assert!(!on_this_system("libnothing.so.0"));
    }
}
