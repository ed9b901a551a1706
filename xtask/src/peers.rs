//! `cargo xtask peers`: other projects' test suites from their packages, run with and without the shim.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use xtask::{shell, venv};

use crate::debian::Apt;

/// Options of `peers`.
#[derive(clap::Args)]
pub struct Flags {
    /// Suites of ld-preload-tests/data/peers.tsv; with `:TEXT` those files of one whose path contains TEXT. None: all
    /// whose environments are there. Those of suites that are named are made.
    suites: Vec<String>,
    /// Run also what target/peers has results of: the table counts runs without a difference that follow each other.
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
        let [name, package, version, from, tests, environment, ..] = fields[..] else { continue };
        let asked = |suite: &String| suite.split(':').next() == Some(name);
        if !flags.suites.is_empty() && !flags.suites.iter().any(asked) {
            continue;
        }
        if let Some(environment) = venv::of(environment).filter(|_| !flags.suites.is_empty()) {
            venv::make(environment)?;
        }
        let folder = work.join(format!("{package}-{version}"));
        let fetched = match from {
            "sdist" | "unpacked" if folder.exists() => Ok(()),
            "sdist" => source_package(&python, &work, package, version),
            "unpacked" => wheel(&python, &work, package, version),
            "crate" => compile(&folder, package, version, tests),
            _ => match from.strip_prefix("debian:") {
                Some(release) => debian_source(&work, &folder, release, tests),
                None => Ok(()),
            },
        };
        if let Err(error) = fetched {
            eprintln!("xtask: the tests of {package} {version} cannot be had: {error:#}");
        }
    }
    shell::run(shell::cargo().args(["build", "--workspace"]))?;
    let mut command = shell::command(shell::target_dir().join("debug/radrm-peers"));
    command.args(&flags.suites).arg("--environments").arg(shell::target_dir()).arg("--work").arg(work);
    command.args(["--out", "bench/PEERS.md"]).env("RADRM_TEST_NO_BUILD", "1");
    if flags.again {
        command.arg("--again");
    }
    if let Some(budget) = flags.budget {
        command.args(["--budget", &budget.to_string()]);
    }
    shell::run(&mut command)
}

/// Fetches and unpacks a source package. Nothing of it is installed.
fn source_package(python: &Path, work: &Path, package: &str, version: &str) -> Result<()> {
    let archive = download(python, work, package, version, "--no-binary")?;
    shell::run(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(work))
}

/// Fetches `tests`, files or classes of files that are separated by spaces, of a source package of a release of Debian, into `folder`, which is
/// named after package and version.
fn debian_source(work: &Path, folder: &Path, release: &str, tests: &str) -> Result<()> {
    let files: BTreeSet<&str> = tests.split(' ').filter_map(|tests| tests.split("::").next()).collect();
    if files.iter().all(|file| folder.join(file).exists()) {
        return Ok(());
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (package, version) = name.rsplit_once('-').context(name.clone())?;
    let apt = Apt::new(&work.join("apt"), &[format!("deb-src {{mirror}} {release} main")])?;
    let found = apt.source(&format!("{package}/{release}"))?.into_iter().find(|file| {
        let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What Debian's free software guidelines leave of it is marked behind the version.
        let rest = file.strip_prefix(&format!("{package}_{version}"));
        rest.is_some_and(|rest| rest.starts_with(['+', '.']) && rest.contains(".orig.tar."))
    });
    let archive = found.with_context(|| format!("{release} has another version than {version}"))?;
    fs::create_dir_all(folder)?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).args(["--strip-components=1", "--wildcards", "-C"]).arg(folder);
    shell::run(tar.args(files.iter().map(|file| format!("*/{file}"))))
}

/// Fetches and unpacks a wheel, beside the environment.
fn wheel(python: &Path, work: &Path, package: &str, version: &str) -> Result<()> {
    let archive = download(python, work, package, version, "--only-binary")?;
    let folder = work.join(format!("{package}-{version}"));
    shell::run(Command::new(python).args(["-m", "zipfile", "-e"]).arg(&archive).arg(folder))
}

/// Downloads a package in one form; gives the file.
fn download(python: &Path, work: &Path, package: &str, version: &str, form: &str) -> Result<PathBuf> {
    let packed = work.join("packed").join(package);
    fs::create_dir_all(&packed)?;
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", form, package, "--dest"];
    // pip asks a source package for its metadata, and CuPy's fails without CUDA's headers but for these: one for each
    // of its generations.
    let mut command = Command::new(python);
    command
        .args(pip)
        .arg(&packed)
        .arg(format!("{package}=={version}"))
        .env("CUPY_INSTALL_USE_STUB", "1")
        .env("READTHEDOCS", "True");
    shell::run(&mut command)?;
    let file = fs::read_dir(&packed)?.flatten().map(|entry| entry.path()).find(|path| path.is_file());
    file.with_context(|| format!("nothing in {}", packed.display()))
}

/// Compiles the tests of a crate that this workspace depends on into `folder/tests`.
fn compile(folder: &Path, package: &str, version: &str, features: &str) -> Result<()> {
    let program = folder.join("tests");
    if program.exists() {
        return Ok(());
    }
    let manifest = manifest_of(package, version)?;
    // Cargo writes beside the manifest, and the registry's copy is shared.
    let source = folder.join("source");
    fs::create_dir_all(folder)?;
    shell::run(Command::new("cp").arg("-rT").arg(manifest.parent().unwrap_or(&manifest)).arg(&source))?;
    // A workspace of its own: it lies below another one.
    let own = source.join("Cargo.toml");
    let text = fs::read_to_string(&own)?;
    if !text.contains("[workspace]") {
        fs::write(&own, text + "\n[workspace]\n")?;
    }
    let output = shell::cargo()
        .args(["test", "--no-run", "--lib", "--message-format=json", "--no-default-features", "--features"])
        .args([features, "--manifest-path"])
        .arg(own)
        .arg("--target-dir")
        .arg(folder.join("target"))
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let built = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    let built = built.with_context(|| format!("the tests of {package} do not compile"))?;
    fs::copy(&built, &program).map(drop).with_context(|| built.display().to_string())
}

/// Manifest of a dependency's source.
fn manifest_of(package: &str, version: &str) -> Result<PathBuf> {
    let output = shell::cargo().args(["metadata", "--format-version=1", "--locked"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let found = packages.iter().find(|found| found["name"] == package && found["version"] == version);
    let path = found.and_then(|found| found["manifest_path"].as_str());
    path.map(PathBuf::from).with_context(|| format!("{package} {version} is no dependency"))
}
