//! Programs and libraries for an older C library, their debug symbols apart.
//!
//! Zig's linker knows the symbol versions of every glibc. It comes as a wheel, as does the cargo command that uses it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::Flags;
use super::tree::{LIBRARIES, PROGRAMS};
use crate::shell;
use crate::tidy::glibc;
use crate::venv::{self, Environment};

/// The linker for older C libraries.
const ZIG: Environment = Environment::new("venv-zig", "xtask/data/requirements-zig.txt", &[]);

/// The machine that is built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What was built.
pub struct Built {
    /// A folder with the stripped files.
    pub folder: PathBuf,
    /// The glibc that all of them run on.
    pub glibc: (u32, u32),
}

/// Builds, strips and checks. Debug symbols go to `out/debug`.
///
/// # Errors
/// It does not build, or a file needs a newer glibc.
pub fn run(flags: &Flags, out: &Path) -> Result<Built> {
    let Some(floor) = parse(&flags.glibc) else { bail!("--glibc {} is no version", flags.glibc) };
    let from = if flags.native { native(flags.debug) } else { with_zig(&flags.glibc)? };
    let (folder, debug) = (out.join("stage"), out.join("debug"));
    fs::create_dir_all(&folder)?;
    fs::create_dir_all(&debug)?;
    let mut newest = (0, 0);
    for name in PROGRAMS.into_iter().chain(LIBRARIES.map(|(name, _)| name)) {
        let (file, symbols) = (folder.join(name), debug.join(format!("{name}.debug")));
        fs::copy(from.join(name), &file)
            .with_context(|| format!("{} is not built", from.join(name).display()))?;
        shell::run(shell::command("objcopy").arg("--only-keep-debug").arg(&file).arg(&symbols))?;
        shell::run(shell::command("strip").arg("--strip-unneeded").arg(&file))?;
        let link = format!("--add-gnu-debuglink={}", symbols.display());
        shell::run(shell::command("objcopy").arg(link).arg(&file))?;
        let needed = glibc::needed(&file)?.unwrap_or_default();
        if !flags.native && needed > floor {
            bail!("{name} needs glibc {}.{}, and the packages are for {}", needed.0, needed.1, flags.glibc);
        }
        let (size, (major, minor)) = (fs::metadata(&file)?.len().div_ceil(1024), needed);
        eprintln!("xtask: {name}: {size} KiB, glibc {major}.{minor}");
        newest = newest.max(needed);
    }
    Ok(Built { folder, glibc: if flags.native { newest } else { floor } })
}

fn parse(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn native(debug: bool) -> PathBuf {
    shell::target_dir().join(if debug { "debug" } else { "release" })
}

fn with_zig(version: &str) -> Result<PathBuf> {
    let python = venv::make(&ZIG)?.context("the requirements of zig are missing")?;
    let bin = python.parent().unwrap_or(Path::new("/"));
    let path = std::env::var("PATH").unwrap_or_default();
    let target_dir = shell::target_dir().join("dist-build");
    let mut command = shell::cargo();
    command
        .args([
            "zigbuild",
            "--release",
            "--locked",
            "--target",
            &format!("{TARGET}.{version}"),
            "-p",
            "radrm",
        ])
        .args(LIBRARIES.iter().flat_map(|(_, package)| ["-p", package]))
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("CARGO_TARGET_DIR", &target_dir)
        // Paths of this machine are not reproducible, and do not belong into a package.
        .env("RUSTFLAGS", format!("--remap-path-prefix={}=radrm", shell::root().display()));
    shell::run(&mut command)?;
    Ok(target_dir.join(TARGET).join("release"))
}
