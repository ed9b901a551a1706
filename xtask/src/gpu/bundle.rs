//! The bundle: programs as they ship, sources of what is compiled where it runs, scripts, and a manifest.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::{glibc, shell, sources};

/// Files of the build, and their packages.
const BUILT: [(&str, &str); 5] = [
    ("libradrm.so", "radrm-shim"),
    ("radrm-run", "radrm"),
    ("radrm", "radrm"),
    ("radrmd", "radrm"),
    ("radrm-kernels", "radrm-kernels"),
];
/// Packages that a run on emulated GPUs needs besides; they are taken from where they were built.
const EMULATOR: [&str; 3] = ["radrm-emulator-driver", "radrm-emulator-nvml", "radrm-emulator-toolkit"];
/// Prints the header of the C programs.
const HEADER: &str = "radrm-driver-header";
/// Says what a bundle was made of.
const MANIFEST: &str = "manifest.json";
/// Most bytes of a bundle: what machines are lent with takes no more.
const MAX_BYTES: u64 = 60 << 20;

/// Settings of the bundle's build.
pub struct Build {
    /// `debug` or `release`.
    pub profile: &'static str,
    /// Take the files that are there.
    pub is_built: bool,
    /// Build the emulator too.
    pub with_emulator: bool,
    /// Folder of the bundle, if not the usual one.
    pub folder: Option<PathBuf>,
}

/// Makes the bundle anew and gives its folder.
///
/// # Errors
/// Something does not build, or the bundle is too large.
pub fn assemble(build: &Build) -> Result<PathBuf> {
    let root = shell::root();
    let built = shell::target_dir().join(build.profile);
    if !build.is_built {
        let mut command = shell::cargo();
        command.args(["build", "--quiet"]);
        if build.profile == "release" {
            command.arg("--release");
        }
        let emulator = EMULATOR.iter().filter(|_| build.with_emulator);
        let packages: BTreeSet<_> = BUILT.iter().map(|(_, package)| package).chain(emulator).collect();
        for package in packages {
            command.args(["-p", package]);
        }
        shell::run(&mut command)?;
    }
    let name = if build.profile == "release" { "gpu-bundle" } else { "gpu-bundle-debug" };
    let folder = build.folder.clone().unwrap_or_else(|| shell::target_dir().join(name));
    if folder.exists() && !folder.join(MANIFEST).is_file() {
        bail!("{} is there and is not a bundle: it is left alone", folder.display());
    }
    // Beside it first: two that assemble at the same time, or one that fails, leave a whole bundle.
    let fresh = folder.with_extension(format!("new{}", std::process::id()));
    let made = fill(&root, &built, &fresh, build);
    let placed = made.and_then(|()| {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::rename(&fresh, &folder).with_context(|| format!("{}", folder.display()))
    });
    if placed.is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    placed.map(|()| folder)
}

fn fill(root: &Path, built: &Path, folder: &Path, build: &Build) -> Result<()> {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin)?;
    let mut needs = serde_json::Map::new();
    for (file, _) in BUILT {
        let to = bin.join(file);
        fs::copy(built.join(file), &to)
            .with_context(|| format!("{} is not built", built.join(file).display()))?;
        // Names of functions stay: they are in what a panic says.
        shell::run(shell::command("strip").arg("--strip-debug").arg(&to))?;
        let needed = glibc::needed(&to)?;
        if needed > Some(glibc::FLOOR) {
            eprintln!("xtask: {file} needs glibc {}", shown(needed));
        }
        needs.insert(file.to_owned(), json!(shown(needed)));
    }
    let scripts = root.join("xtask/gpu");
    for file in sources::below(&scripts, &[".py", ".c", ".cu", ".sh"])? {
        let name = file.strip_prefix(&scripts)?;
        place(&file, &folder.join(name))?;
    }
    let programs = root.join("ld-preload-tests/programs");
    for file in sources::below(&programs, &[".c", ".h"])? {
        place(&file, &folder.join("programs").join(file.strip_prefix(&programs)?))?;
    }
    fs::write(folder.join("programs/cuda_api.h"), header(build)?)?;
    let manifest = json!({
        "version": 1,
        "commit": commit()?,
        "profile": build.profile,
        "glibc_needed": needs,
    });
    fs::write(folder.join(MANIFEST), format!("{manifest:#}\n"))?;
    let bytes = size(folder)?;
    eprintln!("xtask: the bundle has {:.1} MiB", bytes as f64 / f64::from(1 << 20));
    if bytes > MAX_BYTES && build.profile == "release" {
        bail!("the bundle has {bytes} bytes, more than {MAX_BYTES}");
    }
    Ok(())
}

fn place(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| format!("{}", from.display()))?;
    let mode = if to.extension().is_some_and(|extension| extension == "sh") { 0o755 } else { 0o644 };
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// The header, by a program of the tests' own package.
fn header(build: &Build) -> Result<String> {
    if build.is_built {
        return shell::read(&mut shell::command(shell::target_dir().join("debug").join(HEADER)));
    }
    shell::read(shell::cargo().args(["run", "--quiet", "-p", "radrm-preload-tests", "--bin", HEADER]))
}

fn commit() -> Result<String> {
    let head = shell::read(shell::command("git").args(["rev-parse", "--short", "HEAD"]))?;
    let changed = shell::read(shell::command("git").args(["status", "--porcelain", "--untracked-files=no"]))?;
    let changes = if changed.trim().is_empty() { "" } else { ", with changes" };
    Ok(format!("{}{changes}", head.trim()))
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let what = entry.metadata()?;
        bytes += if what.is_dir() { size(&entry.path())? } else { what.len() };
    }
    Ok(bytes)
}

fn shown(version: Option<(u32, u32)>) -> String {
    version.map_or_else(|| "none".to_owned(), |(major, minor)| format!("{major}.{minor}"))
}
