//! `cargo xtask venv`: the Python environments of the client tests, made once per requirements.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::shell;

/// An environment: folder under `target/`, requirements, and how pip takes them.
pub struct Environment {
    folder: &'static str,
    requirements: &'static str,
    options: &'static [&'static str],
}

impl Environment {
    /// One of its own kind.
    pub const fn new(
        folder: &'static str,
        requirements: &'static str,
        options: &'static [&'static str],
    ) -> Self {
        Self { folder, requirements, options }
    }
}

/// Clients that talk to the driver.
pub const CLIENTS: Environment =
    Environment { folder: "venv", requirements: "ld-preload-tests/clients/requirements.txt", options: &[] };

/// PyTorch for dry runs. Its dependencies are all in the list, but for NVIDIA's libraries, which a dry run
/// replaces: without them it is a fifth of the size.
pub const TORCH: Environment = Environment {
    folder: "venv-torch",
    requirements: "ld-preload-tests/clients/requirements-torch.txt",
    options: &["--no-deps"],
};

/// JAX and CuPy for dry runs, and MLflow: 2.3 GB, which the test command does not ask for.
pub const FRAMEWORKS: [Environment; 3] = [
    Environment {
        folder: "venv-jax",
        requirements: "ld-preload-tests/clients/requirements-jax.txt",
        options: &["--no-deps"],
    },
    Environment {
        folder: "venv-cupy",
        requirements: "ld-preload-tests/clients/requirements-cupy.txt",
        options: &["--no-deps"],
    },
    Environment {
        folder: "venv-mlflow",
        requirements: "ld-preload-tests/clients/requirements-mlflow.txt",
        options: &[],
    },
];

/// The PyTorch that Debian's source package of its tests fits (1.9 GB), for `peers`.
pub const TORCH_TESTS: Environment = Environment {
    folder: "venv-torch-tests",
    requirements: "ld-preload-tests/clients/requirements-torch-tests.txt",
    options: &["--no-deps"],
};

/// Options of `venv`.
#[derive(clap::Args)]
pub struct Flags {
    /// Make those of JAX, CuPy and MLflow too (2.3 GB).
    #[arg(long)]
    frameworks: bool,
}

/// Makes the environments. Gives the Python of the first.
///
/// # Errors
/// As [`make`].
pub fn run(flags: &Flags) -> Result<Option<PathBuf>> {
    let clients = make(&CLIENTS)?;
    make(&TORCH)?;
    if flags.frameworks {
        for environment in &FRAMEWORKS {
            make(environment)?;
        }
    }
    Ok(clients)
}

/// Makes an environment if it is not there or was made from other requirements. Gives its Python,
/// or `None` where there is nothing to install.
///
/// # Errors
/// There is no `python3` with venv, or the packages cannot be had.
pub fn make(environment: &Environment) -> Result<Option<PathBuf>> {
    let requirements = shell::root().join(environment.requirements);
    if !requirements.is_file() {
        return Ok(None);
    }
    let folder = shell::target_dir().join(environment.folder);
    let python = folder.join("bin/python3");
    let stamp = folder.join(".stamp");
    let wanted = digest(&requirements)?;
    if python.exists() && fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(Some(python));
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    }
    shell::run(shell::command("python3").args(["-m", "venv"]).arg(&folder))?;
    let install = || {
        shell::run(
            shell::command(&python)
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--only-binary=:all:",
                ])
                .args(environment.options)
                .arg("-r")
                .arg(&requirements),
        )
    };
    // A gigabyte from a registry: one connection that breaks must not count as a failed test.
    install().or_else(|error| {
        eprintln!("xtask: once more, since {error:#}");
        install()
    })?;
    // Written last: an environment that was interrupted is made anew.
    fs::write(&stamp, wanted).with_context(|| format!("{}", stamp.display()))?;
    Ok(Some(python))
}

/// The environment of a folder below `target/`.
pub fn of(folder: &str) -> Option<&'static Environment> {
    [&CLIENTS, &TORCH, &TORCH_TESTS].into_iter().chain(&FRAMEWORKS).find(|known| known.folder == folder)
}

/// The Python of an environment that was made, of whatever requirements.
pub fn made(environment: &Environment) -> Option<PathBuf> {
    let folder = shell::target_dir().join(environment.folder);
    let python = folder.join("bin/python3");
    (python.exists() && folder.join(".stamp").exists()).then_some(python)
}

fn digest(file: &Path) -> Result<String> {
    let content = fs::read(file).with_context(|| format!("{}", file.display()))?;
    Ok(Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect())
}
