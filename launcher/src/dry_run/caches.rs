//! Folders of compiled kernels that dry runs share: with the program's own files they would be thrown away, and a compiled
//! model would take minutes each time.

use std::env;
use std::fs;
use std::path::PathBuf;

use radrm_limits::program::environment::Environment;

/// Variables that name such folders, and the folders' names.
const CACHES: [(&str, &str); 2] = [("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")];

/// Lets the program use the dry runs' own folders, unless it has some of its own; gives them.
pub(super) fn enter(environment: &mut Environment) -> Vec<PathBuf> {
    let Some(place) = place() else { return Vec::new() };
    let mut own = Vec::new();
    for (variable, name) in CACHES {
        let folder = place.join(name);
        if environment.get(variable).is_none() && fs::create_dir_all(&folder).is_ok() {
            environment.set(variable, folder.as_os_str().as_encoded_bytes());
            own.push(folder);
        }
    }
    own
}

/// `$XDG_CACHE_HOME/radrm/dry-run`.
fn place() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    cache.filter(|path| path.is_absolute()).map(|path| path.join("radrm/dry-run"))
}
