//! `cargo xtask tidy`: the conventions, as failing checks.

mod cycles;
mod edges;
mod exports;
mod figures;
pub mod glibc;
mod lengths;
mod links;
mod modules;
mod panics;
mod ratchet;
pub mod sources;
mod words;

use anyhow::{Result, bail};

use crate::shell;

/// Options of `tidy`.
#[derive(clap::Args, Default)]
pub struct Flags {
    /// Only the checks that need no build: no formatter, no clippy, no libraries.
    #[arg(long)]
    sources_only: bool,
    /// Lower the numbers of the lists in xtask/data to what is there now, and check nothing.
    #[arg(long)]
    tighten: bool,
    /// Print the uses inside of large cycles of modules, and check nothing.
    #[arg(long)]
    cycles: bool,
    /// The libraries of the workspace were built just now. Built alone, the shim has fewer features of its
    /// dependencies, which is another build of all of them.
    #[arg(skip)]
    built: bool,
}

impl Flags {
    /// All checks, right after a build of the workspace.
    pub fn after_build() -> Self {
        Self { built: true, ..Self::default() }
    }
}

/// Something that breaks a convention: one line, with the place.
type Finding = String;

/// Runs all checks and fails with all findings.
///
/// # Errors
/// A convention is broken, or a check could not be made.
pub fn run(flags: &Flags) -> Result<()> {
    let root = shell::root();
    if flags.cycles {
        return cycles::print(&root);
    }
    if flags.tighten {
        return ratchet::tighten(&root.join(lengths::LISTED), &lengths::numbers(&root)?);
    }
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(cycles::check(&root)?);
    findings.extend(edges::check()?);
    findings.extend(panics::check(&root)?);
    findings.extend(lengths::check(&root)?);
    findings.extend(links::check(&root)?);
    findings.extend(figures::check(&root)?);
    findings.extend(words::check(&root)?);
    if !flags.sources_only {
        // Clippy also holds `undocumented_unsafe_blocks`: no unsafe block without its reason.
        let formatter = ["fmt", "--all", "--check", "--", "--quiet"];
        let clippy = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
        for arguments in [&formatter[..], &clippy[..]] {
            if let Err(error) = shell::run(shell::cargo().args(arguments)) {
                findings.push(format!("{error:#}"));
            }
        }
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
