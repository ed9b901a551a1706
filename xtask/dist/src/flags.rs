//! The command line.

use std::path::PathBuf;

/// Make packages in target/dist: a tarball, a wheel, a .deb, an .rpm, checksums.
#[derive(clap::Parser)]
#[command(name = "cargo xtask dist")]
pub struct Flags {
    /// The oldest glibc that the packages run on.
    #[arg(long, default_value = "2.28")]
    pub glibc: String,
    /// Pack what an ordinary build in target/release or, with --debug, in target/debug holds, for this machine's glibc.
    #[arg(long)]
    pub native: bool,
    /// With --native: the debug build.
    #[arg(long, requires = "native")]
    pub debug: bool,
    /// An empty or new folder for the packages instead of target/dist.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Install each package into a small Debian (as root, with mmdebstrap), use it, and remove it again; boot one with
    /// systemd, where units start and users log in.
    #[arg(long = "try")]
    pub trial: bool,
}
