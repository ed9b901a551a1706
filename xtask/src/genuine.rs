//! `cargo xtask genuine`: NVIDIA's own driver, NVML and MPS daemon of three generations, from Debian's packages, and the
//! tests that compare this project with them. All three run on a machine without a GPU.
//!
//! The packages are unpacked below `target/genuine` and used in place. Nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// Generations of the driver, and the releases of Debian that have them.
const GENERATIONS: [(&str, &str); 3] = [("535", "bookworm"), ("550", "trixie"), ("555", "experimental")];
const PACKAGES: [&str; 3] = ["libcuda1", "libnvidia-ml1", "nvidia-cuda-mps"];

/// Options of `genuine`.
#[derive(clap::Args)]
pub struct Flags {
    /// Only fetch the packages.
    #[arg(long)]
    fetch_only: bool,
}

/// Fetches what is missing and runs every comparison.
///
/// # Errors
/// Nothing could be fetched, or a comparison failed.
pub fn run(flags: &Flags) -> Result<()> {
    let folder = fetch()?;
    if flags.fetch_only {
        println!("{}", folder.display());
        return Ok(());
    }
    shell::run(shell::cargo().args(["build", "--workspace"]))?;
    shell::run(
        shell::cargo()
            .args(["nextest", "run", "--workspace", "--success-output", "final"])
            .args(["-E", "test(genuine)"])
            .env("RADRM_TEST_NO_BUILD", "1")
            .env("RADRM_TEST_GENUINE", folder)
            .env("RADRM_TEST_GENUINE_ALL", "1"),
    )
}

/// Fetches what is missing of the generations and gives the folder that has one folder for each.
///
/// # Errors
/// There is none, and the reason.
pub fn fetch() -> Result<PathBuf> {
    let folder = shell::target_dir().join("genuine");
    let missing: Vec<_> = GENERATIONS.iter().filter(|(name, _)| !folder.join(name).exists()).collect();
    if missing.is_empty() {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let apt = Apt::new(&folder.join("apt"))?;
    for (generation, release) in missing {
        match apt.unpack(generation, release, &folder) {
            Ok(()) => eprintln!("xtask: driver {generation} is in {}", folder.join(generation).display()),
            Err(error) => eprintln!("xtask: driver {generation} cannot be fetched: {error:#}"),
        }
    }
    if GENERATIONS.iter().all(|(name, _)| !folder.join(name).exists()) {
        bail!("no package of the genuine driver could be fetched");
    }
    Ok(folder)
}

/// An apt with lists and caches of its own: the machine's are left alone.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path) -> Result<Self> {
        let targets = Command::new("apt-get")
            .args(["indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(COMPONENT)"])
            .output()
            .context("there is no apt-get")?;
        let targets = String::from_utf8_lossy(&targets.stdout).into_owned();
        let mirror =
            mirror(&targets).context("apt is not configured with a mirror of Debian's main archive")?;
        for part in ["lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(folder.join(part)).with_context(|| format!("{}", folder.display()))?;
        }
        let sources = GENERATIONS.map(|(_, release)| format!("deb {mirror} {release} non-free\n"));
        fs::write(folder.join("sources.list"), sources.concat())?;
        let apt = Self { folder: folder.to_owned() };
        // A release without this component must not keep the others away.
        if let Err(error) = shell::run(apt.command().args(["--quiet", "update"])) {
            eprintln!("xtask: {error:#}");
        }
        Ok(apt)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        let folder = self.folder.display();
        for option in [
            format!("Dir::Etc::sourcelist={folder}/sources.list"),
            "Dir::Etc::sourceparts=-".into(),
            format!("Dir::State::lists={folder}/lists"),
            format!("Dir::Cache={folder}/cache"),
            // Else root's apt reads as a user who may not enter a private folder.
            "APT::Sandbox::User=root".into(),
            "Acquire::Languages=none".into(),
            // Without a network this gives up, rather than that tests wait for it.
            "Acquire::http::Timeout=20".into(),
        ] {
            command.args(["-o", &option]);
        }
        command.current_dir(self.folder.join("packages"));
        command
    }

    /// Unpacks one generation; it is there as a whole or not at all.
    fn unpack(&self, generation: &str, release: &str, folder: &Path) -> Result<()> {
        let packages = self.folder.join("packages");
        fs::remove_dir_all(&packages).and_then(|()| fs::create_dir(&packages))?;
        let names = PACKAGES.map(|package| format!("{package}/{release}"));
        shell::run(self.command().args(["--quiet", "download"]).args(names))?;
        let fresh = self.folder.join(generation);
        for file in fs::read_dir(&packages)?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if !name.contains(&format!("_{generation}.")) {
                bail!("{release} has {name}");
            }
            shell::run(Command::new("dpkg").arg("-x").arg(file.path()).arg(&fresh))?;
        }
        fs::rename(&fresh, folder.join(generation)).context("unpacked packages")
    }
}

/// The mirror among apt's index targets, which are lines of URI, origin and component.
fn mirror(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| line.strip_suffix(" Debian main"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_debians_main_archive() {
        let targets = "https://other/ $(ORIGIN) main\nhttp://mirror/debian/ Debian contrib\nhttp://mirror/debian/ \
                       Debian main\nhttp://security/ Debian main\n";
        assert_eq!(mirror(targets), Some("http://mirror/debian/"));
        assert_eq!(mirror("http://archive/ubuntu/ Ubuntu main\n"), None);
    }
}
