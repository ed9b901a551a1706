//! The interpreter that clients from PyPI run in.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{artifacts, programs};

/// The interpreter of the virtual environment with `clients/requirements.txt`; `None`, said aloud,
/// where there is none.
pub fn interpreter() -> Option<PathBuf> {
    let python = env::var_os("RADRM_TEST_PYTHON").map(PathBuf::from).unwrap_or_else(|| below_target("venv"));
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
    let named = env::var_os("RADRM_TEST_TORCH_PYTHON").map(PathBuf::from);
    if_there(named.unwrap_or_else(|| below_target("venv-torch")), "cargo xtask venv")
}

/// A program that has a server with PyTorch fork what this interpreter would run (`clients/torch_server.py`); `None`
/// where there is no server, or it has another interpreter. `cargo xtask test` starts one.
pub fn forked(python: &Path) -> Option<PathBuf> {
    env::var_os("RADRM_TEST_TORCH_SERVER")?;
    (torch()? == python).then(|| programs::compile("torch_start.c", &[]))
}

/// The interpreter of a virtual environment with another framework, `venv-jax` for instance; `None`, said aloud, where
/// there is none.
pub fn framework(folder: &str) -> Option<PathBuf> {
    if_there(below_target(folder), "cargo xtask venv --frameworks")
}

fn below_target(folder: &str) -> PathBuf {
    artifacts::workspace().join("target").join(folder).join("bin/python3")
}

fn if_there(python: PathBuf, maker: &str) -> Option<PathBuf> {
    if python.exists() {
        return Some(python);
    }
    eprintln!("skipped: {} is not there ({maker})", python.display());
    None
}

/// A program of `clients/`.
pub fn script(name: &str) -> String {
    format!("{}/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}
