//! `cargo xtask test`.

mod beside;
mod junit;
mod phases;
mod table;
mod torch;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};
use xtask::{shell, venv};

use crate::genuine;

use beside::Check;
use phases::Phases;

/// File that `--times` writes.
const TIMES: &str = "bench/TESTS.md";

/// Tests that `--quick` leaves out, as filters of the runner, and what they are.
const LEFT_OUT: [(&str, &str); 6] = [
    ("binary(dry_run)", "dry runs of PyTorch programs"),
    ("binary(slurm) or binary(kubelet)", "clusters: Slurm, Kubernetes"),
    ("binary(share) or binary(explore)", "shared loading, and pages in a browser"),
    ("binary(sweep)", "sweeps with real processes"),
    (
        "binary(daemon) and not test(/^(jobs|hooks|bounds|usage|host)::/)",
        "kills, restarts, load and traces of the daemon",
    ),
    (
        "package(radrm-preload-tests) and test(/^(kill|load|throttle|throttle_node|targets|calibrate|containers|packages|gpu_bundle|documents)::/)",
        "throttling and fairness over time, packages, documents",
    ),
];

/// Options of `test`.
#[derive(clap::Args)]
pub struct Flags {
    /// Leave out the checks of conventions.
    #[arg(long)]
    no_tidy: bool,
    /// Leave out the model checker.
    #[arg(long)]
    no_loom: bool,
    /// Leave out the Python clients.
    #[arg(long)]
    no_venv: bool,
    /// Check a change in hand: unit tests, and the tests with real processes that take seconds. Lists at its end what it
    /// left out.
    #[arg(long)]
    quick: bool,
    /// Run each phase by itself and write bench/TESTS.md: where the time went, by phase, test program and test.
    #[arg(long, conflicts_with = "quick")]
    times: bool,
    /// Further arguments for the test runner, for instance a filter.
    #[arg(last = true)]
    runner: Vec<String>,
}

/// Builds, checks, and tests; the runner comes last so that its summary ends the output.
pub fn run(flags: &Flags) -> Result<()> {
    let mut failed = Vec::new();
    let mut phases = Phases::default();
    let fetch = || {
        // Most of the time that an environment takes is waiting for its download.
        let environments = thread::spawn(|| [&venv::CLIENTS, &venv::TORCH].map(python));
        let genuine = thread::spawn(|| {
            genuine::fetch()
                .inspect_err(|error| {
                    eprintln!("xtask: only recorded answers of the genuine driver are compared: {error:#}")
                })
                .ok()
        });
        move || (environments.join().unwrap_or([None, None]), genuine.join().ok().flatten())
    };
    let fetching = (!flags.no_venv && !flags.quick).then(fetch);
    let fetched = match fetching {
        Some(wait) if flags.times => Fetched::Now(phases.run("Python environments, drivers", wait)),
        other => Fetched::Later(other),
    };
    // Tests start programs and preload libraries of the whole workspace, so these must be there and fresh before any
    // test runs. Those of the tests are built with them: a build of a part has other features, which is another build.
    phases.run("build", || shell::run(shell::cargo().args(["build", "--workspace", "--all-targets"])))?;
    let tidy = shell::target_dir().join("debug/xtask-tidy");
    let mut check = |name, command: &mut Command| {
        if let Err(error) = phases.run(name, || shell::run(command)) {
            eprintln!("xtask: {error:#}");
            failed.push(name);
        }
    };
    let sources = if flags.quick { "--sources-only" } else { "--no-clippy" };
    if !flags.no_tidy {
        check("tidy", shell::command(&tidy).args(["--built", sources]));
    }
    let mut long = Vec::new();
    if !flags.no_tidy && !flags.quick {
        long.push(("clippy", xtask::clippy()));
    }
    if !flags.no_loom && !flags.quick {
        long.push(("loom", loom()));
    }
    if flags.times || !shell::exists("cargo-nextest") {
        long.drain(..).for_each(|(name, mut command)| check(name, &mut command));
    }
    let ([clients, torch], genuine) = match fetched {
        Fetched::Now(fetched) => fetched,
        Fetched::Later(Some(wait)) => wait(),
        Fetched::Later(None) => ([None, None], None),
    };
    if !flags.no_venv && !flags.quick && torch.is_none() {
        // Tests that have nothing to run on pass; that must not look like success.
        failed.push("the environment with PyTorch, so that no dry run was tested");
    }

    let mut runner = shell::cargo();
    if shell::exists("cargo-nextest") {
        runner.args(["nextest", "run", "--no-fail-fast"]);
        if flags.quick {
            let left_out: Vec<String> = LEFT_OUT.iter().map(|(filter, _)| format!("({filter})")).collect();
            runner.args(["-E", &format!("not ({})", left_out.join(" or "))]);
        }
        match long.is_empty() {
            true => runner.arg("--workspace"),
            false => runner.args(beside::built_programs()?),
        };
        runner.args(&flags.runner);
        // One more than there are processors: tests wait for nearly half of their time.
        if std::env::var_os("NEXTEST_TEST_THREADS").is_none() && !flags.times {
            runner.env("NEXTEST_TEST_THREADS", (processors() + 1).to_string());
        }
    } else {
        if flags.quick || flags.times {
            bail!("--quick and --times need cargo-nextest: cargo install cargo-nextest --locked");
        }
        runner.args(["test", "--workspace", "--no-fail-fast", "--"]).args(&flags.runner);
    }
    // Everything was built above; a build inside each test would only wait for the others.
    runner.env("RADRM_TEST_NO_BUILD", "1");
    let server = torch.as_deref().and_then(|python| {
        let started = torch::Server::start(python);
        started
            .inspect_err(|error| eprintln!("xtask: each dry run imports PyTorch by itself: {error:#}"))
            .ok()
    });
    for (variable, path) in [
        ("RADRM_TEST_PYTHON", clients),
        ("RADRM_TEST_TORCH_PYTHON", torch),
        ("RADRM_TEST_TORCH_SERVER", server.as_ref().map(torch::Server::socket)),
        ("RADRM_TEST_GENUINE", genuine),
    ] {
        if let Some(path) = path {
            runner.env(variable, path);
        }
    }
    let beside: Vec<Check> = long.iter().map(|(name, command)| Check::start(name, command)).collect();
    if let Err(error) = phases.run("tests", || shell::run(&mut runner)) {
        eprintln!("xtask: {error:#}");
        failed.push("tests");
    }
    drop(server);
    for check in beside {
        let name = check.name;
        if let Err(error) = check.end() {
            eprintln!("xtask: {name}: {error:#}");
            failed.push(name);
        }
    }
    if flags.times {
        write_times(&phases)?;
    }
    if flags.quick {
        eprintln!("xtask: left out: clippy, the model checker, and tests of");
        for (_, what) in LEFT_OUT {
            eprintln!("xtask:   {what}");
        }
        eprintln!("xtask: cargo xtask test runs all of them");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Python environments and the folder of NVIDIA's drivers.
type Places = ([Option<PathBuf>; 2], Option<PathBuf>);

/// Places that are fetched beside the build, or were before it.
enum Fetched<F: FnOnce() -> Places> {
    Now(Places),
    Later(Option<F>),
}

/// Writes the page of times, from the phases and the runner's JUnit file.
fn write_times(phases: &Phases) -> Result<()> {
    let root = shell::root();
    let profile = std::env::var("NEXTEST_PROFILE").unwrap_or_else(|_| "default".to_owned());
    let file = root.join("target/nextest").join(profile).join("junit.xml");
    let cases = junit::cases(&fs::read_to_string(&file).with_context(|| file.display().to_string())?);
    if cases.is_empty() {
        bail!("{} has no tests", file.display());
    }
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = processors();
    let commit = shell::read(shell::command("git").args(["log", "-1", "--format=%cs, commit %h"]))?;
    let machine = format!(
        "{}, {count} processors ({})",
        commit.trim(),
        model.map_or("model not known", |(_, name)| name)
    );
    fs::write(root.join(TIMES), table::page(&machine, &phases.ended, &cases))?;
    eprintln!("xtask: {TIMES} has where the time went");
    Ok(())
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The Python of an environment; without one its tests skip themselves, aloud.
fn python(environment: &venv::Environment) -> Option<PathBuf> {
    match venv::make(environment) {
        Ok(python) => python,
        Err(error) => {
            eprintln!("xtask: the Python clients are not tested: {error:#}");
            None
        }
    }
}

/// The command that runs the model checker's tests, which need the whole crate compiled for it.
fn loom() -> Command {
    let target = shell::target_dir().join("loom");
    let mut tests = shell::cargo();
    tests.args([
        "test",
        "--quiet",
        "--profile",
        "loom",
        "-p",
        "radrm-telemetry",
        "--test",
        "loom*",
        "--no-fail-fast",
    ]);
    tests.arg("--target-dir").arg(target).env("RUSTFLAGS", "--cfg loom");
    tests
}

#[cfg(test)]
mod tests {
    use std::fs;

    use xtask::{shell, sources};

    /// A package whose tests are one program lists their files there: a file that is not listed is not compiled.
    #[test]
    fn a_test_program_has_all_files_beside_it() {
        let programs = sources::below(&shell::root(), &["all.rs"]).unwrap();
        let programs: Vec<_> = programs.iter().filter(|path| path.ends_with("tests/all.rs")).collect();
        assert!(!programs.is_empty());
        for program in programs {
            let text = fs::read_to_string(program).unwrap();
            for entry in fs::read_dir(program.parent().unwrap()).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                if path.extension().is_some_and(|extension| extension == "rs") && path != *program {
                    assert!(text.contains(&format!("\nmod {name};")), "{}: no {name}", program.display());
                }
            }
        }
    }
}
