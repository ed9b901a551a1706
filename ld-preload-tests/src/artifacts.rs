//! The libraries and programs under test.
//!
//! `cargo test` of this package alone does not build them, so they are built when a test first asks
//! for one. `RADRM_TEST_NO_BUILD` turns that off where everything was built before.

use std::{
    collections::HashSet,
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Files and the packages that they come from.
const FILES: [(&str, &str); 13] = [
    ("libradrm.so", "radrm-shim"),
    ("libradrm_emulated_cuda.so", "radrm-emulator-driver"),
    ("libradrm_emulated_nvml.so", "radrm-emulator-nvml"),
    ("libradrm_emulated_toolkit.so", "radrm-emulator-toolkit"),
    ("libradrm_instant_cuda.so", "radrm-instant-driver"),
    ("libradrm_passthrough.so", "radrm-passthrough"),
    ("libradrm_share.so", "radrm-share"),
    ("libradrm_spank.so", "radrm-spank"),
    ("radrm-kernels", "radrm-kernels"),
    ("radrm-kubelet-plugin", "radrm-kubelet"),
    ("radrm-policy-template", "radrm-policy-template"),
    ("radrm-run", "radrm"),
    ("radrm", "radrm"),
];

/// Root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Directory of built files of the profile that this program was built with.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let exe = env::current_exe().expect("path of this program");
        let parent = exe.parent().expect("directory of this program");
        let directory = if parent.ends_with("deps") { parent.parent().expect("target") } else { parent };
        directory.to_owned()
    })
}

/// A built file by its name, such as `libradrm.so`, fresh.
///
/// # Panics
/// If its package does not build.
pub fn file(name: &str) -> PathBuf {
    static BUILT: Mutex<Option<HashSet<&str>>> = Mutex::new(None);
    if let Some((_, package)) = FILES.iter().find(|(file, _)| *file == name)
        && env::var_os("RADRM_TEST_NO_BUILD").is_none()
    {
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        let built = built.get_or_insert_default();
        if !built.contains(package) {
            build(package);
            built.insert(package);
        }
    }
    directory().join(name)
}

fn build(package: &str) {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace()).args(["build", "--quiet", "-p", package]);
    if directory().ends_with("release") {
        command.arg("--release");
    }
    // Variables that describe the package of this test must not reach the build of others.
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            command.env_remove(name);
        }
    }
    let status = command.status().expect("cargo");
    assert!(status.success(), "{package} does not build");
}

/// Directory for compiled C programs and their headers.
pub fn programs_directory() -> PathBuf {
    let directory = directory().parent().expect("target").join("preload-programs");
    std::fs::create_dir_all(&directory).expect("target/preload-programs");
    directory
}
