//! Paths of the libraries that `radrm-run` puts into programs, and a check that they will load.

use std::env;
use std::ffi::CStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use radrm_telemetry::layout::MAX_PAGE;

use super::elf::{Elf, OUR_MACHINE};
use crate::LimitError;

/// Names a directory that holds the libraries, in place of the usual two.
pub const DIRECTORY_VARIABLE: &str = "RADRM_LIB_DIR";

/// Parts of a path that the loader replaces (ld.so(8), "dynamic string tokens").
const TOKENS: [&str; 6] = ["$LIB", "${LIB}", "$PLATFORM", "${PLATFORM}", "$ORIGIN", "${ORIGIN}"];

/// The library that counts.
pub const SHIM: &str = "libradrm.so";
/// The emulated driver.
pub const EMULATED_CUDA: &str = "libradrm_emulated_cuda.so";
/// The emulated management library.
pub const EMULATED_NVML: &str = "libradrm_emulated_nvml.so";

/// Finds one of the libraries: beside the running program, or in `../lib/radrm/` from there.
///
/// # Errors
/// One sentence that says where it was searched for.
pub fn find(name: &str) -> Result<PathBuf, LimitError> {
    let directories = directories();
    for directory in &directories {
        let file = directory.join(name);
        if file.is_file() {
            // Programs may change their directory, so the path must not depend on it.
            return Ok(directory.canonicalize().map_or(file, |real| real.join(name)));
        }
    }
    let searched: Vec<_> = directories.iter().map(|dir| dir.display().to_string()).collect();
    Err(LimitError::NoLibrary { name: name.to_owned(), directories: searched.join(" or "), remedy: remedy() })
}

fn directories() -> Vec<PathBuf> {
    if let Some(dir) = env::var_os(DIRECTORY_VARIABLE).filter(|value| !value.is_empty()) {
        return vec![PathBuf::from(dir)];
    }
    let Some(beside) = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf)) else {
        return Vec::new();
    };
    let installed = beside.join("../lib/radrm");
    let installed = installed.canonicalize().unwrap_or(installed);
    vec![beside, installed]
}

/// Advice where a library is missing.
fn remedy() -> &'static str {
    let exe = env::current_exe().unwrap_or_default();
    // The file in which cargo keeps what it has installed into a folder's `bin`.
    let is_from_cargo = exe.ancestors().nth(2).is_some_and(|root| root.join(".crates.toml").is_file());
    match is_from_cargo {
        true => {
            "cargo installs programs only; run `cargo build --release -p radrm-shim -p radrm-emulator-driver \
             -p radrm-emulator-nvml -p radrm-emulator-toolkit` in the source tree and let RADRM_LIB_DIR name its \
             target/release"
        }
        false => {
            "keep bin/ and lib/radrm/ of the package together, or let RADRM_LIB_DIR name the folder that has it"
        }
    }
}

/// Checks that the loader will take a library into a program of this machine and C library.
///
/// # Errors
/// One sentence that says what is wrong with the file.
pub fn check(library: &Path) -> Result<(), LimitError> {
    let say = |what: &str| Err(LimitError::Unloadable { library: library.to_owned(), what: what.to_owned() });
    let elf = match File::open(library).and_then(|file| Elf::read(&file)) {
        Ok(Some(elf)) => elf,
        Ok(None) => return say("is not a shared library"),
        Err(error) => return say(&format!("cannot be read: {error}")),
    };
    if !elf.wide || !elf.little || elf.machine != OUR_MACHINE {
        return say("is made for another machine");
    }
    if !elf.shared {
        return say("is not a shared library");
    }
    if !elf.needed.iter().any(|name| name == "libc.so.6") {
        return say("is not made for glibc");
    }
    if let (Some(wanted), Some(there)) = (elf.glibc, running_glibc())
        && wanted > there
    {
        let (major, minor) = wanted;
        return say(&format!("needs glibc {major}.{minor}, and this is {}.{}", there.0, there.1));
    }
    Ok(())
}

/// Checks that a library can be named in `LD_PRELOAD` and will load.
///
/// # Errors
/// One sentence that says what is wrong.
pub fn check_preload(library: &Path) -> Result<(), LimitError> {
    check(library)?;
    // SAFETY: without precondition.
    if let Some(what) = too_large_pages(unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize) {
        return Err(LimitError::Unloadable { library: library.to_owned(), what });
    }
    let name = library.as_os_str().as_bytes();
    if let Some(token) =
        TOKENS.into_iter().find(|token| name.windows(token.len()).any(|part| part == token.as_bytes()))
    {
        let what =
            format!("lies in a folder whose name has {token}, which the loader replaces in LD_PRELOAD");
        return Err(LimitError::Unloadable { library: library.to_owned(), what });
    }
    let separates = |byte: &u8| matches!(byte, b':' | b' ' | b'\t' | b'\n');
    if name.iter().any(separates) {
        let what = "lies in a folder whose name has a space or a colon, which LD_PRELOAD cannot express";
        return Err(LimitError::Unloadable { library: library.to_owned(), what: what.to_owned() });
    }
    Ok(())
}

/// Fault of a machine whose pages have this many bytes: parts of a segment are mapped one by one.
fn too_large_pages(bytes: usize) -> Option<String> {
    let (kib, of_ours) = (bytes / 1024, MAX_PAGE / 1024);
    (bytes > MAX_PAGE)
        .then(|| format!("needs memory pages of at most {of_ours} KiB, and this kernel's have {kib} KiB"))
}

/// The oldest glibc that a library runs on; `None` if it cannot be read.
#[must_use]
pub fn needed_glibc(library: &Path) -> Option<(u32, u32)> {
    File::open(library).and_then(|file| Elf::read(&file)).ok()??.glibc
}

/// The glibc that this program runs on.
#[must_use]
pub fn running_glibc() -> Option<(u32, u32)> {
    // SAFETY: gives a constant C string.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().ok()?;
    let mut numbers = text.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_preloaded_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("libradrm.so");
        std::fs::write(&text, "hello").unwrap();
        assert!(check(&text).unwrap_err().to_string().ends_with("is not a shared library"));
        assert!(check(&dir.path().join("none")).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn a_folder_that_the_loader_renames_is_named() {
        let shim = env::current_exe().unwrap();
        for token in TOKENS {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join(format!("a{token}b"));
            std::fs::create_dir(&folder).unwrap();
            let library = folder.join("libradrm.so");
            std::fs::copy(&shim, &library).unwrap();
            let error = check_preload(&library).unwrap_err().to_string();
            assert!(error.contains(token) || error.contains("not a shared library"), "{error}");
        }
    }

    #[test]
    fn a_kernel_with_too_large_pages_is_named() {
        assert_eq!([4 << 10, 16 << 10, 64 << 10].map(too_large_pages), [const { None }; 3]);
        let what = too_large_pages(2 << 20).unwrap();
        assert_eq!(what, "needs memory pages of at most 64 KiB, and this kernel's have 2048 KiB");
    }

    #[test]
    fn the_running_glibc_is_known() {
        assert!(running_glibc() >= Some((2, 17)));
    }
}
