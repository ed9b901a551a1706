//! NVIDIA's own libraries and MPS daemon, where `cargo xtask genuine` has unpacked them.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::artifacts;

/// One generation of the genuine driver.
pub struct Generation {
    /// First part of its version, such as `555`.
    pub name: String,
    folder: PathBuf,
}

impl Generation {
    /// The folder of its libraries.
    pub fn libraries(&self) -> PathBuf {
        self.folder.join("usr/lib/x86_64-linux-gnu/nvidia/current")
    }

    /// The folder of the MPS control program.
    pub fn programs(&self) -> PathBuf {
        self.folder.join("usr/bin")
    }
}

/// The generations that are there, oldest first. Without `RADRM_TEST_GENUINE_ALL` only the newest, for the suite's
/// time. None, reported on standard error, where they could not be fetched.
pub fn generations() -> Vec<Generation> {
    let folder = env::var_os("RADRM_TEST_GENUINE")
        .map_or_else(|| artifacts::workspace().join("target/genuine"), PathBuf::from);
    let is_driver =
        |folder: &Path| folder.join("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1").exists();
    let mut found: Vec<Generation> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_driver(&entry.path()))
        .map(|entry| Generation {
            name: entry.file_name().to_string_lossy().into_owned(),
            folder: entry.path(),
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    if found.is_empty() {
        eprintln!("skipped: no genuine driver in {} (cargo xtask genuine)", folder.display());
    } else if env::var_os("RADRM_TEST_GENUINE_ALL").is_none() {
        found.drain(..found.len() - 1);
    }
    found
}
