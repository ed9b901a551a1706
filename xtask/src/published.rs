//! `cargo xtask published`: dry runs of programs whose memory others measured on real GPUs and published, and the
//! comparison in bench/PUBLISHED.md.

mod page;
mod reading;
mod results;
mod run;
mod table;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use xtask::shell;

use results::{Outcome, Results};
use table::{Digests, Row, Table};

/// Page that the command writes.
const PAGE: &str = "bench/PUBLISHED.md";

/// Options of `published`.
#[derive(clap::Args)]
pub struct Flags {
    /// Run only figures whose name contains this, and print their lines instead of writing the page.
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// List the figures with their programs, and run none.
    #[arg(long)]
    list: bool,
    /// Write the page of the results that earlier calls left, and run none: a figure without one is listed as not run.
    #[arg(long, conflicts_with_all = ["only", "list"])]
    page: bool,
    /// Run figures again that an earlier call already has a result of.
    #[arg(long)]
    again: bool,
    /// Limit of one dry run, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,
    /// Directory of built programs and libraries; without it they are built.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// Makes the missing dry runs one after the other and writes the page.
///
/// Results are kept in `target/published/results.tsv` after each run, so that an interrupted call continues where it
/// stopped. A figure whose program, script or requirements changed is run again.
///
/// # Errors
/// The table is wrong, or an environment cannot be made. A dry run that fails is a line of the page.
pub fn run(flags: &Flags) -> Result<()> {
    let table = Table::load()?;
    let chosen = |row: &Row| flags.only.as_ref().is_none_or(|only| row.id.contains(only.as_str()));
    if flags.list {
        for row in table.rows.iter().filter(|row| chosen(row)) {
            println!("{}\t{}\t{}\t{}", row.id, row.stack, row.card, row.program);
        }
        return Ok(());
    }
    let file = shell::target_dir().join("published/results.tsv");
    let mut results = Results::load(&file)?;
    let mut programs = flags.programs.clone();
    let mut known = Digests::load()?;
    if flags.page {
        return write(&table, &results, &mut known);
    }
    for row in table.rows.iter().filter(|row| chosen(row)) {
        let digest = known.of(row)?;
        // Figures of one program are of one dry run: the first of them makes it for all.
        if results.get(&row.id, &digest).is_none() || (flags.again && !results.is_new(&row.id)) {
            let built = match &programs {
                Some(built) => built.clone(),
                None => programs.insert(run::build()?).clone(),
            };
            let dry_run = run::dry_run(row, &built, flags.timeout)?;
            for other in table.rows.iter().filter(|other| other.same_run(row)) {
                results.set(&other.id, &digest, Outcome::of(&dry_run, other));
            }
            results.save(&file)?;
        }
        if let Some(outcome) = results.get(&row.id, &digest) {
            println!("{}", page::line(row, &table.sources[&row.source], outcome));
        }
    }
    if flags.only.is_none() {
        write(&table, &results, &mut known)?;
    }
    Ok(())
}

fn write(table: &Table, results: &Results, known: &mut Digests) -> Result<()> {
    let mut outcomes = Vec::new();
    for row in &table.rows {
        let digest = known.of(row)?;
        let outcome = results.get(&row.id, &digest).cloned().unwrap_or_else(Outcome::not_run);
        outcomes.push((row, outcome));
    }
    let shown: Vec<page::Shown<'_>> =
        outcomes.iter().map(|(row, outcome)| (*row, &table.sources[&row.source], outcome)).collect();
    let page = page::page(&shown, &table.reasons);
    fs::write(shell::root().join(PAGE), page).context(PAGE)
}
