//! Files on the node that containers mount: the plug-in's own file system goes with its pod.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use radrm_limits::program::libraries;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

/// Files that were installed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Installed {
    /// The shim, under a name of its content.
    pub shim: PathBuf,
    /// A list for the loader that names the shim as a container has it.
    pub preload: PathBuf,
}

/// Copies the shim into a folder of the node. A container keeps the one that it was started with.
///
/// # Errors
/// A file cannot be read or written.
pub fn install(shim: &Path, folder: &Path) -> io::Result<Installed> {
    let content = fs::read(shim)?;
    let digest: String = Sha256::digest(&content).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let target = folder.join(format!("libradrm-{digest}.so"));
    fs::create_dir_all(folder)?;
    if fs::read(&target).ok().as_ref() != Some(&content) {
        let mut draft = NamedTempFile::new_in(folder)?;
        draft.write_all(&content)?;
        draft.as_file().set_permissions(fs::Permissions::from_mode(0o755))?;
        draft.as_file().sync_all()?;
        draft.persist(&target).map_err(|error| error.error)?;
    }
    let preload = folder.join("ld.so.preload");
    radrm_cdi::write(&preload, &radrm_cdi::preload_list(libraries::SHIM))?;
    Ok(Installed { shim: target, preload })
}

/// Removes shims of earlier versions that no prepared claim has.
pub fn sweep<'s>(folder: &Path, used: impl Iterator<Item = &'s Path>) {
    let used: Vec<&Path> = used.collect();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_shim = entry.file_name().to_string_lossy().starts_with("libradrm-");
        if is_shim && !used.contains(&entry.path().as_path()) {
            // One that cannot be removed takes only room.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_keeps_the_shim_that_it_was_started_with() {
        let folder = tempfile::tempdir().unwrap();
        let (source, lib) = (folder.path().join("libradrm.so"), folder.path().join("lib"));
        fs::write(&source, "one").unwrap();
        let first = install(&source, &lib).unwrap();
        assert_eq!(install(&source, &lib).unwrap(), first);
        fs::write(&source, "two").unwrap();
        let second = install(&source, &lib).unwrap();
        assert_ne!(first.shim, second.shim);
        assert_eq!(fs::read_to_string(&first.shim).unwrap(), "one");
        assert_eq!(fs::read_to_string(&second.preload).unwrap(), "/usr/lib/radrm/libradrm.so\n");
        sweep(&lib, [second.shim.as_path()].into_iter());
        assert!(!first.shim.exists() && second.shim.exists() && second.preload.exists());
        fs::write(&second.shim, "damaged").unwrap();
        assert_eq!(install(&source, &lib).unwrap(), second);
        assert_eq!(fs::read_to_string(&second.shim).unwrap(), "two");
    }
}
