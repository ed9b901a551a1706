//! `cargo xtask models`: dry runs of well-known models, and the table of them in the documentation.

mod fits;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use xtask::{shell, venv};

/// File that lists the runs, one a line.
const LIST: &str = "ld-preload-tests/data/dry_run_models.tsv";
const PROGRAM: &str = "ld-preload-tests/clients/dry_run_models.py";
const PAGE: &str = "docs/dry-run-accuracy.md";
/// The table stands between these lines of the page.
const BEGIN: &str = "<!-- made by cargo xtask models -->";
const END: &str = "<!-- end -->";

/// Options of `models`.
#[derive(clap::Args)]
pub struct Flags {
    /// Card of the dry runs.
    #[arg(long, default_value = "A100-80GB")]
    emulate: String,
    /// Run only models whose name contains this, and print their lines instead of writing the table.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Run each model on each of these cards (`T4,A10` or `all`), compare what each run says of the others with the runs
    /// there, and write no table. A "yes" that a run contradicts is an error.
    #[arg(long, value_name = "CARDS", num_args = 0..=1, default_missing_value = "all", require_equals = true)]
    fits: Option<String>,
    /// Programs and libraries, if they are not to be built.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// A line of the list.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    shown: &'a str,
    model: &'a str,
    batch: &'a str,
    options: &'a str,
    measured: &'a str,
}

fn rows(list: &str) -> Result<Vec<Row<'_>>> {
    list.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [shown, model, batch, options, measured] => Ok(Row { shown, model, batch, options, measured }),
            _ => bail!("{LIST}: not five fields: {line}"),
        })
        .collect()
}

/// Runs the models one after the other and writes the table.
///
/// # Errors
/// A model does not run, or its figure is withheld.
pub fn run(flags: &Flags) -> Result<()> {
    let Some(python) = venv::make(&venv::TORCH)? else { bail!("there is no environment with PyTorch") };
    let programs = match &flags.programs {
        Some(programs) => programs.clone(),
        None => build()?,
    };
    let list = fs::read_to_string(shell::root().join(LIST)).context(LIST)?;
    let mut table = vec![
        "| model | batch | allocated | reserved | driver | modelled | measured, 2024 | seconds | host memory |".to_owned(),
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|".to_owned(),
    ];
    let mut tally = fits::Tally::default();
    for row in rows(&list)? {
        if flags.only.as_ref().is_some_and(|only| !row.model.contains(only.as_str())) {
            continue;
        }
        if let Some(cards) = &flags.fits {
            println!("{}", fits::one(&row, (&python, &programs), (&flags.emulate, cards), &mut tally)?);
            continue;
        }
        let line = one(&row, &python, &programs, &flags.emulate)?;
        println!("{line}");
        table.push(line);
    }
    if flags.fits.is_some() {
        print!("{}", tally.text());
        return tally.check();
    }
    if flags.only.is_none() {
        let page = shell::root().join(PAGE);
        let text = fs::read_to_string(&page).context(PAGE)?;
        fs::write(&page, replaced(&text, &table.join("\n"))?).context(PAGE)?;
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    let mut build = shell::cargo();
    build.args(["build", "--quiet"]);
    for package in
        ["radrm", "radrm-shim", "radrm-emulator-driver", "radrm-emulator-nvml", "radrm-emulator-toolkit"]
    {
        build.args(["-p", package]);
    }
    shell::run(&mut build)?;
    Ok(shell::target_dir().join("debug"))
}

fn one(row: &Row<'_>, python: &Path, programs: &Path, card: &str) -> Result<String> {
    let report = shell::target_dir().join("models.json");
    let mut command = program(row, python, programs, &report, &[OsStr::new("--emulate"), OsStr::new(card)]);
    let output = command.output().context("radrm-run")?;
    if !output.status.success() {
        bail!("{} {}: {}", row.model, row.batch, String::from_utf8_lossy(&output.stderr));
    }
    let text = fs::read(&report).with_context(|| format!("{}", report.display()))?;
    fs::remove_file(&report)?;
    let told: Value = serde_json::from_slice(&text)?;
    line(row, &told["dry_run"])
}

/// A dry run of a model with further options, and a report as JSON.
fn program(row: &Row<'_>, python: &Path, programs: &Path, report: &Path, options: &[&OsStr]) -> Command {
    let mut command = shell::command(programs.join("radrm-run"));
    command
        .args(["--dry-run", "--quiet", "--no-profile", "--no-dataset"])
        .args(options)
        .arg(format!("--json={}", report.display()))
        .arg("--")
        .arg(python)
        .arg(shell::root().join(PROGRAM))
        .args([row.model, row.batch])
        .args(row.options.split_whitespace());
    command
}

fn line(row: &Row<'_>, told: &Value) -> Result<String> {
    if let Some(why) = told["withheld"].as_str() {
        bail!("{} {}: {why}", row.model, row.batch);
    }
    let bytes = |value: &Value| value.as_u64().with_context(|| format!("a figure is missing in {told:#}"));
    let gpu = &told["gpus"][0];
    let whole = &gpu["phases"]["whole"];
    let modelled =
        told["modelled"].as_array().into_iter().flatten().filter_map(|size| size["bytes"].as_u64()).max();
    Ok(format!(
        "| {} | {} | {} | {} | {} | {} | {} | {:.0} | {} |",
        row.shown,
        row.batch,
        mib(bytes(&whole["allocated"])?),
        mib(bytes(&whole["reserved"])?),
        mib(bytes(&gpu["held_peak"])?),
        modelled.map_or_else(|| "–".to_owned(), mib),
        row.measured.parse().map_or_else(|_| "–".to_owned(), grouped),
        told["seconds"].as_f64().unwrap_or(0.0),
        mib(bytes(&told["host_memory"])?),
    ))
}

/// Bytes as MiB, rounded.
fn mib(bytes: u64) -> String {
    grouped((bytes + (1 << 19)) >> 20)
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|part| str::from_utf8(part).ok()).collect();
    parts.join(",")
}

fn replaced(page: &str, table: &str) -> Result<String> {
    let cut = || {
        let (before, rest) = page.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    };
    let Some((before, after)) = cut() else { bail!("{PAGE} has no lines {BEGIN} and {END}") };
    Ok(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_and_every_model_is_one_of_the_program() {
        let list = fs::read_to_string(shell::root().join(LIST)).unwrap();
        let program = fs::read_to_string(shell::root().join(PROGRAM)).unwrap();
        let rows = rows(&list).unwrap();
        assert!(rows.len() > 24);
        for row in &rows {
            assert!(program.contains(&format!("\"{}\":", row.model)), "{}", row.model);
        }
        assert!(super::rows("a\tb").is_err());
    }

    #[test]
    fn only_the_table_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        assert_eq!(replaced(&page, "new").unwrap(), format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
        assert!(replaced("without", "new").is_err());
    }

    #[test]
    fn figures_are_rounded_and_grouped() {
        assert_eq!(mib(5803 << 20), "5,803");
        assert_eq!(mib((1 << 20) - 1), "1");
        assert_eq!(grouped(1_234_567), "1,234,567");
        let row = Row { shown: "M", model: "m", batch: "4", options: "", measured: "5262" };
        let told = serde_json::json!({
            "gpus": [{"held_peak": 3_u64 << 30, "phases": {"whole": {"allocated": 1 << 30, "reserved": 2_u64 << 30}}}],
            "modelled": [{"what": "w", "bytes": 5 << 20}], "seconds": 9.6, "host_memory": 500 << 20,
        });
        assert_eq!(line(&row, &told).unwrap(), "| M | 4 | 1,024 | 2,048 | 3,072 | 5 | 5,262 | 10 | 500 |");
        assert!(line(&row, &serde_json::json!({"withheld": "no"})).is_err());
    }
}
