//! Debian's archive, read with lists and caches of our own: nothing is installed, and the machine's lists are left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use xtask::shell;

/// An apt with lists and caches of its own.
pub struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Reads the lists of `sources`, lines of a sources.list in which `{mirror}` stands for the machine's mirror.
    ///
    /// # Errors
    /// There is no apt, or it has no mirror of Debian's main archive.
    pub fn new(folder: &Path, sources: &[String]) -> Result<Self> {
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
        let lines: Vec<String> = sources.iter().map(|line| line.replace("{mirror}", mirror) + "\n").collect();
        fs::write(folder.join("sources.list"), lines.concat())?;
        let apt = Self { folder: folder.to_owned() };
        // A release without this component must not keep the others away.
        if let Err(error) = shell::run(apt.command().args(["--quiet", "update"])) {
            eprintln!("xtask: {error:#}");
        }
        Ok(apt)
    }

    /// Folder of its lists and caches.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Downloads packages, each `NAME/RELEASE`, and gives their files. The next download removes them.
    ///
    /// # Errors
    /// A package cannot be fetched.
    pub fn download(&self, packages: impl IntoIterator<Item = String>) -> Result<Vec<PathBuf>> {
        self.fetch(self.command().args(["--quiet", "download"]).args(packages))
    }

    /// Downloads a source package, `NAME/RELEASE`, and gives its files. The next download removes them.
    ///
    /// # Errors
    /// The package cannot be fetched.
    pub fn source(&self, package: &str) -> Result<Vec<PathBuf>> {
        self.fetch(self.command().args(["--quiet", "source", "--download-only", package]))
    }

    fn fetch(&self, command: &mut Command) -> Result<Vec<PathBuf>> {
        let packages = self.packages();
        fs::remove_dir_all(&packages).and_then(|()| fs::create_dir(&packages))?;
        shell::run(command)?;
        Ok(fs::read_dir(&packages)?.flatten().map(|file| file.path()).collect())
    }

    /// Folder of its downloads.
    fn packages(&self) -> PathBuf {
        self.folder.join("packages")
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
        command.current_dir(self.packages());
        command
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
