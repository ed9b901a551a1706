//! Runs other projects' test suites with and without the shim and writes bench/PEERS.md.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use radrm_preload_tests::peers::suites::{self, Origin, Suite};
use radrm_preload_tests::peers::{run, store, table};

/// Runs other projects' test suites on emulated GPUs, with and without the shim.
#[derive(Parser)]
struct Cli {
    /// Suites by name; with `:TEXT` those files of one whose path contains TEXT. None: all.
    suites: Vec<String>,
    /// Interpreter in whose environment the packages are.
    #[arg(long)]
    python: PathBuf,
    /// Folder with the unpacked source packages, and where results are kept.
    #[arg(long)]
    work: PathBuf,
    /// File for the table.
    #[arg(long)]
    out: PathBuf,
    /// Run also what has results already.
    #[arg(long)]
    again: bool,
    /// Seconds after which no further file of tests is begun.
    #[arg(long, default_value_t = u64::MAX)]
    budget: u64,
    /// Seconds after which one run of one file is ended.
    #[arg(long, default_value_t = 300)]
    patience: u64,
}

/// The folder of a suite's tests.
fn folder(cli: &Cli, suite: &Suite) -> Result<PathBuf> {
    if suite.origin == Origin::Sdist {
        return Ok(cli.work.join(format!("{}-{}", suite.package, suite.version)).join(suite.tests));
    }
    let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let output = Command::new(&cli.python).args(["-c", ask]).output().context("python")?;
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(suite.tests))
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let begun = Instant::now();
    let known = suites::all()?;
    if let Some(odd) =
        cli.suites.iter().find(|asked| !known.iter().any(|suite| suite.name == part_of(asked).0))
    {
        let names: Vec<&str> = known.iter().map(|suite| suite.name).collect();
        bail!("there is no suite {odd}: the suites are {}", names.join(", "));
    }
    let mut all = Vec::new();
    for suite in known {
        let file = cli.work.join(format!("{}.tsv", suite.name));
        let mut runs = store::load(&file);
        let parts: Vec<&str> = cli
            .suites
            .iter()
            .map(|asked| part_of(asked))
            .filter(|(name, _)| *name == suite.name)
            .map(|(_, part)| part)
            .collect();
        if suite.origin != Origin::Nowhere && (cli.suites.is_empty() || !parts.is_empty()) {
            let folder = folder(&cli, &suite)?;
            let files = suites::files(&folder).unwrap_or_default();
            if files.is_empty() {
                eprintln!("{}: no tests in {}", suite.name, folder.display());
            }
            for path in files {
                let name = path.strip_prefix(&folder).unwrap_or(&path).display().to_string();
                let wanted = parts.is_empty() || parts.iter().any(|part| name.contains(part));
                let late = begun.elapsed() > Duration::from_secs(cli.budget);
                if !wanted || late || (runs.contains_key(&name) && !cli.again) {
                    continue;
                }
                let both = run::file(&cli.python, &path, Duration::from_secs(cli.patience))?;
                eprintln!(
                    "{}: {name}: {} tests, {} differ",
                    suite.name,
                    both.bare.len(),
                    both.differences().len()
                );
                runs.insert(name, both);
                store::save(&file, &runs)?;
            }
        }
        all.push((suite, runs));
    }
    std::fs::write(&cli.out, table::page(&all)).with_context(|| cli.out.display().to_string())?;
    let differing: usize = all.iter().map(|(_, runs)| table::Counts::of(runs).differing).sum();
    println!("{} is written; {differing} tests differ", cli.out.display());
    Ok(())
}

/// `SUITE:PART` as its two halves; without a part all files are meant.
fn part_of(asked: &str) -> (&str, &str) {
    asked.split_once(':').unwrap_or((asked, ""))
}
