//! `cargo xtask dist`: packages of the programs for other machines, in `target/dist`.
//!
//! | file | is |
//! |---|---|
//! | [`build`] | programs and libraries for an older C library, without their debug symbols |
//! | [`tree`] | the one list of what is installed, and from where |
//! | [`archive`] | reproducible tar archives: the relocatable tarball |
//! | [`wheel`] | a Python wheel: `pip install` puts the programs on the PATH |
//! | [`deb`], [`rpm`] | packages of the system, with units, users, configuration and the same [`scripts`] |
//! | [`trial`] | packages installed, used and removed in a small Debian |
//! | [`sbom`] | what the programs were linked from, as CycloneDX |
//!
//! Every archive has the time of the commit in place of the clock, sorted entries and root as the owner, so that the same
//! commit and toolchain give the same bytes.

mod archive;
mod build;
mod deb;
mod flags;
mod links;
mod release;
mod rpm;
mod sbom;
mod tree;
mod trial;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sha2::{Digest, Sha256};

use flags::Flags;
use release::Release;
use xtask::files::files_below;
use xtask::shell;

fn main() -> ExitCode {
    xtask::exit_code(run(&Flags::parse()))
}

/// Makes all packages and their checksums.
///
/// # Errors
/// Something does not build, or a file needs a newer glibc than stated.
fn run(flags: &Flags) -> Result<()> {
    let out = match &flags.out {
        Some(folder) => folder.clone(),
        None => {
            let folder = shell::target_dir().join("dist");
            if folder.exists() {
                fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
            }
            folder
        }
    };
    fs::create_dir_all(&out)?;
    if fs::read_dir(&out)?.next().is_some() {
        bail!("{} is not empty: it is left alone", out.display());
    }
    let built = build::run(flags, &out)?;
    let release = Release {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        glibc: built.glibc,
        time: commit_time()?,
        // A debug build is packed to be tried, not to be carried around.
        compression: if flags.debug { 1 } else { 9 },
        tree: tree::entries(&built.folder)?,
    };
    archive::tarball(&release, &out)?;
    wheel::write(&release, &out)?;
    deb::write(&release, &out)?;
    rpm::write(&release, &out)?;
    sbom::write(&release, &out)?;
    fs::remove_dir_all(&built.folder)?;
    let sums = sums(&out)?;
    fs::write(out.join("SHA256SUMS"), &sums)?;
    eprintln!("xtask: packages in {}", out.display());
    eprint!("{sums}");
    if flags.trial { trial::run(&out, built.glibc) } else { Ok(()) }
}

/// Seconds since 1970 of the commit; of `SOURCE_DATE_EPOCH` where that is set.
fn commit_time() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => shell::read(shell::command("git").args(["log", "-1", "--format=%ct"]))?,
    };
    text.trim().parse().with_context(|| format!("`{}` is no time", text.trim()))
}

/// A line for each file below a folder, as `sha256sum` writes it.
fn sums(folder: &Path) -> Result<String> {
    let line = |(name, path): (String, PathBuf)| Ok(format!("{}  {name}\n", hex(&fs::read(path)?)));
    files_below(folder)?.into_iter().map(line).collect()
}

fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
