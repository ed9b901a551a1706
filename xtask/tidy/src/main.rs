//! `cargo xtask tidy`: the conventions, as failing checks.

mod additions;
mod cycles;
mod documentation;
mod doors;
mod edges;
mod exports;
mod figures;
mod finding;
mod links;
mod modules;
mod panics;
mod places;
mod unused;
mod words;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use finding::Finding;
use xtask::{glibc, shell};

/// Check the conventions that no compiler checks.
#[derive(clap::Parser)]
#[command(name = "cargo xtask tidy")]
struct Flags {
    /// Only the checks that need no build: no formatter, no clippy, no libraries.
    #[arg(long)]
    sources_only: bool,
    /// Print the uses inside of large cycles of modules, and check nothing.
    #[arg(long)]
    cycles: bool,
    /// Take the libraries of the workspace as they are built. Built alone, the shim has fewer features of its
    /// dependencies, which is another build of all of them.
    #[arg(long)]
    built: bool,
    /// Leave out clippy.
    #[arg(long)]
    no_clippy: bool,
}

fn main() -> ExitCode {
    xtask::exit_code(run(&Flags::parse()))
}

/// Runs all checks and fails with all findings.
///
/// # Errors
/// A convention is broken, or a check could not be made.
fn run(flags: &Flags) -> Result<()> {
    let root = shell::root();
    if flags.cycles {
        return cycles::print(&root);
    }
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(cycles::check(&root)?);
    findings.extend(edges::check()?);
    findings.extend(unused::check(&root)?);
    findings.extend(doors::check(&root)?);
    findings.extend(panics::check(&root)?);
    findings.extend(links::check(&root)?);
    findings.extend(places::check(&root)?);
    findings.extend(additions::check(&root)?);
    findings.extend(figures::check(&root)?);
    findings.extend(words::check(&root)?);
    findings.extend(documentation::check(&root)?);
    if !flags.sources_only {
        let formatted = || shell::run(shell::cargo().args(["fmt", "--all", "--check", "--", "--quiet"]));
        let clippy = || if flags.no_clippy { Ok(()) } else { shell::run(&mut xtask::clippy()) };
        findings.extend(
            [formatted(), clippy()].into_iter().filter_map(Result::err).map(|error| format!("{error:#}")),
        );
        if !flags.built {
            shell::run(shell::cargo().args(["build", "--quiet", "-p", "radrm-shim"]))?;
        }
        let shim = shell::target_dir().join("debug/libradrm.so");
        findings.extend(exports::check(&root, &shim)?);
        findings.extend(glibc::check(&shim)?);
    }
    if findings.is_empty() {
        eprintln!("tidy: all conventions are kept");
        return Ok(());
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    bail!("{} conventions are broken", findings.len());
}
