//! Running other programs from the workspace's root.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The folder of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Folder of cargo's builds.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs us.
pub fn cargo() -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program that will run in the workspace's root.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The shim, whose profile is `preload`.
pub const SHIM: &str = "radrm-shim";

/// Puts the shim of profile `preload`, which was built, in the place of that of the release build in `folder`.
///
/// # Errors
/// It was not built, or cannot be copied.
pub fn take_preload(folder: &Path) -> Result<()> {
    let built = folder.with_file_name("preload").join("libradrm.so");
    let place = folder.join("libradrm.so");
    // A link to what cargo keeps: not written through.
    if place.exists() {
        fs::remove_file(&place).with_context(|| place.display().to_string())?;
    }
    fs::copy(&built, &place).with_context(|| format!("{} is not built", built.display()))?;
    Ok(())
}

/// Runs a command whose output people see.
///
/// # Errors
/// It could not be started, or failed.
pub fn run(command: &mut Command) -> Result<()> {
    let words = words(command);
    eprintln!("+ {words}");
    let status = command.status().with_context(|| format!("{words}: could not be started"))?;
    if !status.success() {
        bail!("{words}: {status}");
    }
    Ok(())
}

/// Runs a command and takes its standard output.
///
/// # Errors
/// It could not be started, failed, or printed something that is not UTF-8.
pub fn read(command: &mut Command) -> Result<String> {
    let words = words(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{words}: could not be started"))?;
    if !output.status.success() {
        bail!("{words}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{words}: its output is not UTF-8"))
}

/// Returns true if a program can be started with `--version`.
pub fn exists(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn words(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={:?} ", name.to_string_lossy(), value?)));
    let arguments = command.get_args().map(|word| format!(" {}", word.to_string_lossy()));
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    format!("{}{}{}", variables.collect::<String>(), program.to_string_lossy(), arguments.collect::<String>())
}
