//! The programs of `programs/` in C and C++, compiled when a test asks for them.

use std::{
    collections::hash_map::DefaultHasher,
    ffi::OsStr,
    fs,
    hash::{Hash, Hasher},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::{artifacts, header};

/// Folder of the sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// Directory with the generated `cuda_api.h` and, for linking, a `libcuda.so`.
fn prepared() -> &'static Path {
    static PREPARED: OnceLock<PathBuf> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let directory = artifacts::programs_directory();
        let text = header::text();
        let path = directory.join("cuda_api.h");
        if fs::read_to_string(&path).ok().as_deref() != Some(text.as_str()) {
            let mut fresh = tempfile::NamedTempFile::new_in(&directory).expect("temporary file");
            std::io::Write::write_all(&mut fresh, text.as_bytes()).expect("cuda_api.h");
            fresh.persist(&path).expect("cuda_api.h");
        }
        let link = directory.join("libcuda.so");
        let target = artifacts::file("libradrm_instant_cuda.so");
        if fs::read_link(&link).ok().as_deref() != Some(target.as_path()) {
            let _ = fs::remove_file(&link);
            // Another test may have just made the same link.
            let _ = symlink(&target, &link);
        }
        directory
    })
}

/// Compiles `programs/<source>` with gcc or g++ and the given flags and returns the program's path. The
/// same source and flags are compiled once.
///
/// # Panics
/// If the compiler does not compile it.
pub fn compile(source: &str, flags: &[&str]) -> PathBuf {
    try_compile(source, flags).unwrap_or_else(|error| panic!("{source} {flags:?}: {error}"))
}

/// Like [`compile`], with the compiler's words where it fails.
///
/// # Errors
/// The compiler's standard error.
pub fn try_compile(source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let (variable, usual) = match source.ends_with(".cpp") {
        true => ("RADRM_TEST_CXX", "g++"),
        false => ("RADRM_TEST_CC", "gcc"),
    };
    let compiler = std::env::var_os(variable).unwrap_or_else(|| usual.into());
    try_compile_by(&compiler, source, flags)
}

/// Like [`try_compile`], by this compiler.
///
/// # Errors
/// The compiler's standard error.
pub fn try_compile_by(compiler: impl AsRef<OsStr>, source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let directory = prepared();
    let compiler = compiler.as_ref();
    let mut hasher = DefaultHasher::new();
    (compiler, flags).hash(&mut hasher);
    header::text().hash(&mut hasher);
    for file in [source, "cuda_types.h", "driver.h", "draw.h", "nvtx.h"] {
        fs::read(sources().join(file)).map_err(|e| format!("{file}: {e}"))?.hash(&mut hasher);
    }
    let stem = source.split('.').next().unwrap_or(source);
    let program = directory.join(format!("{stem}-{:016x}", hasher.finish()));
    if program.exists() {
        return Ok(program);
    }
    // Only the name: a child that another thread forks meanwhile must not hold the program open for
    // writing when it is first run.
    let fresh = tempfile::Builder::new()
        .prefix(stem)
        .tempfile_in(directory)
        .map_err(|e| e.to_string())?
        .into_temp_path();
    let standard = if source.ends_with(".cpp") { "-std=gnu++17" } else { "-std=gnu11" };
    let output = Command::new(compiler)
        .args(["-O2", "-g", "-Wall", "-Werror", "-Wno-unused-function", standard, "-o"])
        .arg(&fresh)
        .arg(sources().join(source))
        .arg("-I")
        .arg(sources())
        .arg("-I")
        .arg(directory)
        .arg("-L")
        .arg(directory)
        .args(flags)
        .args(["-ldl", "-lpthread"])
        .output()
        .map_err(|e| format!("{}: {e}", compiler.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    fresh.persist(&program).map_err(|e| e.to_string())?;
    Ok(program)
}

/// Flags for a program that is linked with libcuda.
pub const LINKED: &[&str] = &["-DROUTE_LINKED", "-lcuda"];
