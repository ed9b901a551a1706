//! Folders of compiled kernels that dry runs share: with the program's own files they would be thrown away, and a compiled
//! model would take minutes each time.

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use radrm_limits::program::environment::Environment;

/// Variables that name such folders, and the folders' names.
const CACHES: [(&str, &str); 2] = [("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")];

/// Lets the program use the dry runs' own folders, unless it has some of its own; gives them.
pub(super) fn enter(environment: &mut Environment) -> Vec<PathBuf> {
    let Some(place) = place() else { return Vec::new() };
    let mut own = Vec::new();
    for (variable, name) in CACHES {
        let folder = place.join(name);
        if environment.get(variable).is_none() && is_own(&folder) {
            environment.set(variable, folder.as_os_str().as_encoded_bytes());
            own.push(folder);
        }
    }
    own
}

/// Makes a folder, and returns true if only this user can write to it: what lies there is executed.
fn is_own(folder: &Path) -> bool {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let user = rustix::process::geteuid().as_raw();
    made.is_ok()
        && fs::symlink_metadata(folder)
            .is_ok_and(|of| of.is_dir() && of.uid() == user && of.mode() & 0o022 == 0)
}

/// `$XDG_CACHE_HOME/radrm/dry-run`.
fn place() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    cache.filter(|path| path.is_absolute()).map(|path| path.join("radrm/dry-run"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_folder_of_the_user_that_others_cannot_write_is_used() {
        let place = tempfile::tempdir().expect("folder");
        let folder = place.path().join("dry-run/inductor");
        assert!(is_own(&folder) && is_own(&folder));
        let link = place.path().join("link");
        symlink(&folder, &link).expect("link");
        assert!(!is_own(&link), "a link may point to the folder of another user");
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("mode");
        assert!(!is_own(&folder));
    }
}
