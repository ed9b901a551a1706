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
mod links;
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

use xtask::files::files_below;
use xtask::shell;

/// Packages in one line.
const SUMMARY: &str = "GPU memory of any program: recorded, limited, scheduled";

/// Packages in a paragraph.
const DESCRIPTION: &str = "\
radrm-run shows what a program does with GPU memory and keeps it inside a
limit; radrmd places jobs of several users on the GPUs of a machine.";

/// Shell scripts of the system's packages: the package manager runs them as root.
mod scripts {
    /// After an installation or upgrade.
    pub const INSTALLED: &str = include_str!("../../data/package/postinst");
    /// Before a removal.
    pub const REMOVING: &str = include_str!("../../data/package/prerm");
    /// After a removal.
    pub const REMOVED: &str = include_str!("../../data/package/postrm");
}

/// Make packages in target/dist: a tarball, a wheel, a .deb, an .rpm, checksums.
#[derive(clap::Parser)]
#[command(name = "cargo xtask dist")]
pub struct Flags {
    /// The oldest glibc that the packages run on.
    #[arg(long, default_value = "2.28")]
    glibc: String,
    /// Pack what an ordinary build in target/release or, with --debug, in target/debug holds, for this machine's glibc.
    #[arg(long)]
    native: bool,
    /// With --native: the debug build.
    #[arg(long, requires = "native")]
    debug: bool,
    /// An empty or new folder for the packages instead of target/dist.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Install each package into a small Debian (as root, with mmdebstrap), use it, and remove it again; boot one with
    /// systemd, where units start and users log in.
    #[arg(long = "try")]
    trial: bool,
}

/// What all packages are made of.
pub struct Release {
    /// Version of the workspace.
    pub version: String,
    /// The oldest glibc, major and minor.
    pub glibc: (u32, u32),
    /// Seconds since 1970: the time of the commit, which stands in for that of every file.
    pub time: u64,
    /// How hard archives are compressed, from 1 to 9.
    pub compression: u32,
    /// What is installed.
    pub tree: Vec<tree::Entry>,
}

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
