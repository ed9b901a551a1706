//! Runs other projects' test suites with and without the shim and writes bench/PEERS.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use radrm_emulator_facade::{Toolkit, write_all};
use radrm_preload_tests::peers::earlier::Earlier;
use radrm_preload_tests::peers::run::{self, Both, Interpreter};
use radrm_preload_tests::peers::suites::{self, Origin, Suite};
use radrm_preload_tests::peers::{compiled, store, table};
use radrm_preload_tests::{artifacts, measured};

/// Further runs of a file with a difference.
const REPEATS: u32 = 2;

/// Runs other projects' test suites on emulated GPUs, with and without the shim.
#[derive(Parser)]
struct Cli {
    /// Suites by name; with `:TEXT` those files of one whose path contains TEXT. None: all.
    suites: Vec<String>,
    /// Folder of the Python environments.
    #[arg(long)]
    environments: PathBuf,
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
    /// Seconds after which one run of one file, or of one compiled test, is ended.
    #[arg(long, default_value_t = 300)]
    patience: u64,
}

/// Run of one file of tests.
type Work<'a> = Box<dyn Fn() -> Result<Both> + 'a>;

impl Cli {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }

    /// The interpreter of an environment.
    fn python(&self, environment: &str) -> PathBuf {
        self.environments.join(environment).join("bin/python3")
    }

    /// Folder in which the packages of an environment are installed.
    fn packages(&self, environment: &str) -> Result<PathBuf> {
        let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let python = self.python(environment);
        let output = Command::new(&python).args(["-c", ask]).output();
        let output = output.with_context(|| python.display().to_string())?;
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    }

    /// Folder of the compiler of kernels, as a package of an environment has it: of CUDA 13 or of an older one.
    fn compiler(&self, environment: &str) -> Result<PathBuf> {
        let packages = self.packages(environment)?.join("nvidia");
        let folders = ["cu13/lib", "cuda_nvrtc/lib"].map(|folder| packages.join(folder));
        let found = folders.into_iter().find(|folder| folder.is_dir());
        found.with_context(|| format!("no compiler in {}", packages.display()))
    }

    /// Libraries that stand in for CUDA's, which CuPy is linked with.
    fn stand_ins(&self) -> Result<PathBuf> {
        let folder = self.work.join("stand-ins");
        std::fs::create_dir_all(&folder)?;
        let toolkit = artifacts::file("libradrm_emulated_toolkit.so");
        write_all(&Toolkit::read(&toolkit)?, &folder)?;
        Ok(folder)
    }

    /// The files of a suite's tests by name; none where they are not there.
    fn files<'a>(&'a self, suite: &Suite) -> Result<BTreeMap<String, Work<'a>>> {
        let source = suite.source(&self.work);
        let compiler = || self.compiler(suite.environment);
        let (package, packages, libraries) = match suite.origin {
            Origin::Nowhere => return Ok(BTreeMap::new()),
            Origin::Crate => return self.modules(&source.join("tests")),
            Origin::Wheel => (self.packages(suite.environment)?, None, Vec::new()),
            Origin::Unpacked => (source.clone(), Some(source), vec![compiler()?]),
            Origin::Sdist => (source, None, vec![compiler()?, self.stand_ins()?]),
            Origin::Debian => (source, None, vec![self.stand_ins()?]),
        };
        let variable = Some(suite.variable).filter(|variable| !variable.is_empty());
        let interpreter =
            Interpreter { python: self.python(suite.environment), packages, libraries, variable };
        let named = suite.files(&package).into_iter().map(|(name, path)| {
            let interpreter = interpreter.clone();
            let work: Work<'a> = Box::new(move || run::file(&interpreter, &path, self.patience()));
            (name, work)
        });
        Ok(named.collect())
    }

    /// The modules of a compiled test program.
    fn modules<'a>(&'a self, program: &Path) -> Result<BTreeMap<String, Work<'a>>> {
        if !program.exists() {
            return Ok(BTreeMap::new());
        }
        let compiler = self.compiler("venv-cupy").or_else(|_| self.compiler("venv"))?;
        let named = compiled::modules(program)?.into_iter().map(|(name, tests)| {
            let (program, compiler) = (program.to_owned(), compiler.clone());
            let work: Work<'a> =
                Box::new(move || compiled::module(&program, &tests, &[&compiler], self.patience()));
            (name, work)
        });
        Ok(named.collect())
    }
}

fn main() -> Result<()> {
    let mut cli = Cli::parse();
    // Tests run in folders of their own.
    cli.environments = std::path::absolute(&cli.environments)?;
    cli.work = std::path::absolute(&cli.work)?;
    let cli = cli;
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
        let asked = cli.suites.is_empty() || !parts.is_empty();
        let there = suite.origin == Origin::Crate || cli.python(suite.environment).exists();
        let files =
            if suite.origin != Origin::Nowhere && there { cli.files(&suite)? } else { BTreeMap::new() };
        if suite.origin != Origin::Nowhere && asked && files.is_empty() {
            eprintln!("{}: no tests; {}", suite.name, suite.remark);
        }
        let names: Vec<String> = files.keys().cloned().collect();
        for (name, work) in files.into_iter().filter(|_| asked) {
            let wanted = parts.is_empty() || parts.iter().any(|part| name.contains(part));
            let late = begun.elapsed() > Duration::from_secs(cli.budget);
            if !wanted || late || (runs.contains_key(&name) && !cli.again) {
                continue;
            }
            let mut both = work()?;
            for _ in 0..REPEATS {
                if !both.differences().is_empty() {
                    both.settle(&work()?);
                }
            }
            both.follow(runs.get(&name));
            both.made = format!("{}, commit {}", measured::date(), measured::commit());
            let differing = both.differences().len();
            eprintln!("{}: {name}: {} tests, {differing} differ", suite.name, both.bare.len());
            runs.insert(name, both);
            store::save(&file, &runs)?;
        }
        all.push((suite, names, runs));
    }
    let made = [
        format!("machine: {}", measured::machine()),
        "command: `cargo xtask peers --budget 400`, until all files are run; again with `--again`".to_owned(),
    ];
    let earlier = Earlier::read(&std::fs::read_to_string(&cli.out).unwrap_or_default());
    std::fs::write(&cli.out, table::page(&all, &made, &earlier))
        .with_context(|| cli.out.display().to_string())?;
    let differing: usize = all.iter().map(|(.., runs)| table::Counts::of(runs).differing).sum();
    println!("{} is written; {differing} tests differ", cli.out.display());
    Ok(())
}

/// `SUITE:PART` as its two halves; without a part all files are meant.
fn part_of(asked: &str) -> (&str, &str) {
    asked.split_once(':').unwrap_or((asked, ""))
}
