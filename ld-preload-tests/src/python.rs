//! The interpreter that clients from PyPI run in.

use std::{env, path::PathBuf, process::Command};

use crate::artifacts;

/// The interpreter of the virtual environment with `clients/requirements.txt`; `None`, said aloud,
/// where there is none.
pub fn interpreter() -> Option<PathBuf> {
    let python = env::var_os("RADRM_TEST_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| artifacts::workspace().join("target/venv/bin/python3"));
    let works = Command::new(&python).args(["-c", "import numba_cuda, cuda.bindings, pynvml"]).output();
    if works.is_ok_and(|o| o.status.success()) {
        return Some(python);
    }
    eprintln!(
        "skipped: {} has no numba-cuda, cuda-bindings, nvidia-ml-py (cargo xtask venv)",
        python.display()
    );
    None
}

/// The interpreter of the virtual environment with PyTorch; `None`, said aloud, where there is none.
pub fn torch() -> Option<PathBuf> {
    let python = env::var_os("RADRM_TEST_TORCH_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| artifacts::workspace().join("target/venv-torch/bin/python3"));
    if python.exists() {
        return Some(python);
    }
    eprintln!("skipped: {} is not there (cargo xtask venv)", python.display());
    None
}

/// The interpreter of the virtual environment with JAX; `None`, said aloud, where there is none.
pub fn jax() -> Option<PathBuf> {
    let python = env::var_os("RADRM_TEST_JAX_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| artifacts::workspace().join("target/venv-jax/bin/python3"));
    if python.exists() {
        return Some(python);
    }
    eprintln!("skipped: {} is not there (cargo xtask venv --frameworks)", python.display());
    None
}

/// A program of `clients/`.
pub fn script(name: &str) -> String {
    format!("{}/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}
