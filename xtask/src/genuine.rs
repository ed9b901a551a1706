//! `cargo xtask genuine`: NVIDIA's own driver, NVML and MPS daemon of three generations, from Debian's packages, and the
//! tests that compare this project with them. All three run on a machine without a GPU.
//!
//! The packages are unpacked below `target/genuine` and used in place. Nothing is installed. In the place of a driver that cannot be
//! fetched, what was recorded of its answers is compared (`ld-preload-tests/data/genuine`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use xtask::shell;

use crate::debian::Apt;

/// Generations of the driver, and the releases of Debian that have them.
const GENERATIONS: [(&str, &str); 3] = [("535", "bookworm"), ("550", "trixie"), ("555", "experimental")];
const PACKAGES: [&str; 3] = ["libcuda1", "libnvidia-ml1", "nvidia-cuda-mps"];

/// Options of `genuine`.
#[derive(clap::Args)]
pub struct Flags {
    /// Only fetch the packages.
    #[arg(long)]
    fetch_only: bool,
    /// Record the answers anew.
    #[arg(long)]
    record: bool,
}

/// Fetches what is missing and runs every comparison.
///
/// # Errors
/// A comparison failed; with `--fetch-only`, nothing could be fetched.
pub fn run(flags: &Flags) -> Result<()> {
    let fetched = fetch();
    if flags.fetch_only {
        println!("{}", fetched?.display());
        return Ok(());
    }
    shell::run(shell::cargo().args(["build", "--workspace"]))?;
    let mut runner = shell::cargo();
    runner
        .args(["nextest", "run", "--workspace", "--success-output", "final"])
        .args(["-E", "test(genuine)"])
        .env("RADRM_TEST_NO_BUILD", "1")
        .env("RADRM_TEST_GENUINE_ALL", "1");
    match fetched {
        Ok(folder) => _ = runner.env("RADRM_TEST_GENUINE", folder),
        Err(error) => eprintln!("xtask: {error:#}: only recorded answers are compared"),
    }
    if flags.record {
        runner.env("RADRM_TEST_GENUINE_RECORD", "1");
    }
    shell::run(&mut runner)
}

/// Fetches what is missing of the generations and gives the folder that has one folder for each.
///
/// # Errors
/// There is none, and the reason.
pub fn fetch() -> Result<PathBuf> {
    let folder = shell::target_dir().join("genuine");
    if let Err(error) = fetch_runtime(&folder.join("runtime")) {
        eprintln!("xtask: the CUDA runtime cannot be fetched, its tests are skipped: {error:#}");
    }
    let missing: Vec<_> = GENERATIONS.iter().filter(|(name, _)| !folder.join(name).exists()).collect();
    if missing.is_empty() {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let sources: Vec<String> =
        GENERATIONS.map(|(_, release)| format!("deb {{mirror}} {release} non-free")).into();
    let apt = Apt::new(&folder.join("apt"), &sources)?;
    for (generation, release) in missing {
        match unpack(&apt, generation, release, &folder) {
            Ok(()) => eprintln!("xtask: driver {generation} is in {}", folder.join(generation).display()),
            Err(error) => eprintln!(
                "xtask: driver {generation} cannot be fetched, its recorded answers are used: {error:#}"
            ),
        }
    }
    if GENERATIONS.iter().all(|(name, _)| !folder.join(name).exists()) {
        bail!("no package of the genuine driver could be fetched");
    }
    Ok(folder)
}

/// The package of NVIDIA's CUDA runtime at PyPI.
const RUNTIME: &str = "nvidia-cuda-runtime==13.*";

/// Unpacks NVIDIA's CUDA runtime, if it is not there yet.
fn fetch_runtime(folder: &Path) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(folder).arg(RUNTIME);
    shell::run(&mut pip)
}

/// Unpacks one generation; it is there as a whole or not at all.
fn unpack(apt: &Apt, generation: &str, release: &str, folder: &Path) -> Result<()> {
    let fresh = apt.folder().join(generation);
    for file in apt.download(PACKAGES.map(|package| format!("{package}/{release}")))? {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.contains(&format!("_{generation}.")) {
            bail!("{release} has {name}");
        }
        shell::run(Command::new("dpkg").arg("-x").arg(&file).arg(&fresh))?;
    }
    fs::rename(&fresh, folder.join(generation)).context("unpacked packages")
}
