//! The version that Slurm compares before it loads a plug-in: it must be Slurm's own, in major and minor.
//!
//! One file serves all versions because it takes the version from a plug-in of the Slurm that is loading it. That
//! happens in a constructor, before Slurm reads the symbol.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Of Slurm 20.02: an older one has no interface that this plug-in knows.
const OLDEST: u32 = 0x14_0200;
/// A plug-in directory has some hundred files; most of them are plug-ins.
const TRIES: usize = 40;

/// The version, as Slurm's `SLURM_VERSION_NUMBER`.
#[unsafe(export_name = "plugin_version")]
pub static VERSION: AtomicU32 = AtomicU32::new(0);

/// Run by the loader when it maps the plug-in.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_THE_CHECK: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = learn;

extern "C" fn learn(_: c_int, _: *const *const c_char, _: *const *const c_char) {
    let found = std::panic::catch_unwind(|| library().and_then(|file| of_siblings(&file)));
    if let Ok(Some(version)) = found {
        VERSION.store(version, Relaxed);
    }
}

/// The library that has Slurm's interface.
fn library() -> Option<PathBuf> {
    // SAFETY: looks up a name; null if Slurm is not loaded here.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"spank_get_item".as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: filled by the call, whose strings live as long as the library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address.cast_const(), &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = Path::new(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())).to_owned();
        name.canonicalize().ok()
    }
}

/// The version of a plug-in beside Slurm's library. Slurm opens them all in the same way to look at this symbol.
fn of_siblings(library: &Path) -> Option<u32> {
    let entries = fs::read_dir(library.parent()?).ok()?;
    let plugin = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.ends_with(b".so") && !name.starts_with(b"lib") && !name.starts_with(b"radrm")
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(plugin).collect();
    // Those without further libraries of their own first.
    files.sort_by_cached_key(|path| fs::metadata(path).map_or(u64::MAX, |found| found.len()));
    files.iter().take(TRIES).find_map(|file| version_of(file))
}

fn version_of(file: &Path) -> Option<u32> {
    let path = CString::new(file.as_os_str().as_bytes()).ok()?;
    // SAFETY: as Slurm itself does it; the handle is closed once, and the number read before that.
    unsafe {
        let handle: *mut c_void = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL);
        if handle.is_null() {
            return None;
        }
        let symbol = libc::dlsym(handle, c"plugin_version".as_ptr()).cast::<u32>();
        let version = (!symbol.is_null()).then(|| symbol.read_unaligned());
        libc::dlclose(handle);
        version.filter(|version| *version >= OLDEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_slurm_there_is_no_version() {
        assert_eq!((library(), VERSION.load(Relaxed)), (None, 0));
    }

    #[test]
    fn a_directory_without_plugins_gives_no_version() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["x.so", "libc.so", "text"] {
            fs::write(directory.path().join(name), "no library").unwrap();
        }
        assert_eq!(of_siblings(&directory.path().join("libslurmfull.so")), None);
    }
}
