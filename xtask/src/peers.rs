//! `cargo xtask peers`: other projects' test suites from their packages, run with and without the shim.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{shell, venv};

/// Options of `peers`.
#[derive(clap::Args)]
pub struct Flags {
    /// Suites of ld-preload-tests/data/peers.tsv; with `:TEXT` those files of one whose path contains TEXT. None: all.
    suites: Vec<String>,
    /// Run also what target/peers has results of.
    #[arg(long)]
    again: bool,
    /// Seconds after which no further file of tests is begun; a later run goes on there.
    #[arg(long)]
    budget: Option<u64>,
}

/// Fetches source packages, runs the suites and writes bench/PEERS.md.
///
/// # Errors
/// There is no Python environment, or a suite cannot be started. A source package that cannot be fetched is reported.
pub fn run(flags: &Flags) -> Result<()> {
    let Some(python) = venv::make(&venv::CLIENTS)? else { bail!("the clients' requirements are empty") };
    let work = shell::target_dir().join("peers");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let list = fs::read_to_string(shell::root().join("ld-preload-tests/data/peers.tsv"))?;
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let asked = |name: &str| flags.suites.iter().any(|suite| suite.split(':').next() == Some(name));
        if let [name, package, version, "sdist", ..] = fields[..]
            && (flags.suites.is_empty() || asked(name))
            && let Err(error) = fetch(&python, &work, package, version)
        {
            eprintln!("xtask: the source of {package} {version} cannot be fetched: {error:#}");
        }
    }
    shell::run(shell::cargo().args(["build", "--workspace"]))?;
    let mut command = shell::cargo();
    command.args(["run", "--quiet", "-p", "radrm-preload-tests", "--bin", "radrm-peers", "--"]);
    command.args(&flags.suites).arg("--python").arg(python).arg("--work").arg(work);
    command.args(["--out", "bench/PEERS.md"]).env("RADRM_TEST_NO_BUILD", "1");
    if flags.again {
        command.arg("--again");
    }
    if let Some(budget) = flags.budget {
        command.args(["--budget", &budget.to_string()]);
    }
    shell::run(&mut command)
}

/// Fetches and unpacks a source package. Nothing of it is built or installed.
fn fetch(python: &Path, work: &Path, package: &str, version: &str) -> Result<()> {
    let folder = work.join(format!("{package}-{version}"));
    if folder.exists() {
        return Ok(());
    }
    let packed = work.join("packed");
    fs::create_dir_all(&packed)?;
    let wanted = format!("{package}=={version}");
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest"];
    shell::run(Command::new(python).args(pip).arg(&packed).arg(wanted))?;
    let archive = packed.join(format!("{package}-{version}.tar.gz"));
    shell::run(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(work))
}
