//! Figures of real GPUs in README: made from the results that are kept, between two marks.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Folder of the results that are kept, with one folder for each GPU.
pub const RESULTS: &str = "bench/gpu";
/// Mark in README: the text between these lines is generated.
pub const BEGIN: &str = "<!-- made of bench/gpu by `cargo xtask gpu --keep` -->";
/// See [`BEGIN`].
pub const END: &str = "<!-- end -->";

/// Writes the block into README.
///
/// # Errors
/// README has no marks, or results cannot be read.
pub fn write(root: &Path) -> Result<()> {
    let file = root.join("README.md");
    let readme = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let fresh = replaced(&readme, &block(root)?)?;
    if fresh != readme {
        fs::write(&file, fresh)?;
    }
    Ok(())
}

/// Returns true if README has the figures of the results that are kept.
///
/// # Errors
/// As [`write`].
pub fn is_fresh(root: &Path) -> Result<bool> {
    let readme = fs::read_to_string(root.join("README.md"))?;
    Ok(replaced(&readme, &block(root)?)? == readme)
}

fn replaced(readme: &str, block: &str) -> Result<String> {
    let marks = || format!("README has no lines `{BEGIN}` and `{END}`");
    let (before, rest) = readme.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    Ok(format!("{before}{BEGIN}\n{block}{END}{after}"))
}

fn block(root: &Path) -> Result<String> {
    let folder = root.join(RESULTS);
    let mut results = Vec::new();
    if folder.is_dir() {
        for entry in fs::read_dir(&folder)? {
            let file = entry?.path().join("result.json");
            if file.is_file() {
                let result: Value = serde_json::from_str(&fs::read_to_string(&file)?)
                    .with_context(|| format!("{}", file.display()))?;
                results.push((file, result));
            }
        }
    }
    if results.is_empty() {
        return Ok("It has not been run on a real GPU yet.\n".to_owned());
    }
    results.sort_by(|a, b| a.0.cmp(&b.0));
    let mut text = String::from("On real GPUs, by `cargo xtask gpu`:\n");
    for (file, result) in results {
        let summary = file.with_file_name("summary.md");
        let summary = summary.strip_prefix(root).unwrap_or(&summary).display().to_string();
        let word = |key: &str| result[key].as_str().unwrap_or("?").to_owned();
        write!(
            text,
            "\n**{}**, driver {}, {}, commit {} ([all of it]({summary}))\n\n| | |\n|---|---|\n",
            word("gpu"),
            word("driver"),
            word("date"),
            word("commit")
        )?;
        for (what, value) in rows(&result) {
            writeln!(text, "| {what} | {value} |")?;
        }
    }
    Ok(text)
}

/// Rows of a run: only what it measured.
fn rows(result: &Value) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let steps = result["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let step = |name: &str| steps.iter().find(|step| step["name"] == name);
    let (mut made, mut held) = (0, 0);
    for check in steps.iter().filter_map(|step| step["checks"].as_array()).flatten() {
        made += u32::from(check["holds"].is_boolean());
        held += u32::from(check["holds"] == true);
    }
    rows.push(("checks that hold".to_owned(), format!("{held} of {made}")));
    let failed: Vec<&str> = steps
        .iter()
        .filter(|step| step["status"] == "failed" || step["status"] == "late")
        .filter_map(|step| step["name"].as_str())
        .collect();
    if !failed.is_empty() {
        rows.push(("steps that failed".to_owned(), failed.join(", ")));
    }
    for row in
        step("calls").and_then(|s| s["figures"]["nanoseconds per call"].as_array()).into_iter().flatten()
    {
        let call = row["call"].as_str().unwrap_or_default();
        if ["launch", "graph of 50", "alloc+free of 1 MiB"].contains(&call)
            && let (Some(bare), Some(count), Some(sample)) =
                (row["no shim"].as_f64(), row["count"].as_f64(), row["sample"].as_f64())
        {
            let value = format!(
                "{bare:.0} ns without the shim, {count:.0} ns counted, {sample:.0} ns with some timed"
            );
            rows.push((format!("{call}, on the host"), value));
        }
    }
    for (name, table) in step("training").and_then(|s| s["figures"].as_object()).into_iter().flatten() {
        let work = name.split(',').next().unwrap_or(name);
        let over = |mode: &str| {
            let row = table.as_array()?.iter().find(|row| row["mode"] == mode)?;
            row["over no shim, %"].as_f64()
        };
        if let (Some(count), Some(sample)) = (over("count"), over("sample")) {
            let value = format!("{count:+.2} % counted, {sample:+.2} % with some kernels timed");
            rows.push((format!("a step of {work}"), value));
        }
    }
    let figure = |name: &str, key: &str| step(name).map(|step| step["figures"][key].clone());
    let accounting =
        "largest difference between NVML's growth and what was asked for, share of NVML's figure";
    if let Some(share) = figure("accounting", accounting).and_then(|value| value.as_f64()) {
        rows.push(("accounted memory beside NVML's".to_owned(), format!("within {:.2} %", share * 100.0)));
    }
    if let Some(points) = figure("sm-activity", "difference in SM activity, points")
        && let (Some(median), Some(largest)) = (points["median"].as_f64(), points["largest"].as_f64())
    {
        let value = format!("{median:.1} points from GPM's in the median, {largest:.1} at most");
        rows.push(("SM activity by the shapes of launches".to_owned(), value));
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn root(readme: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("README.md"), readme).unwrap();
        dir
    }

    #[test]
    fn without_results_it_says_so_and_nothing_else_changes() {
        let dir = root(&format!("a\n\n{BEGIN}\nsomething old\n{END}\n\nb\n"));
        assert!(!is_fresh(dir.path()).unwrap());
        write(dir.path()).unwrap();
        assert!(is_fresh(dir.path()).unwrap());
        let text = fs::read_to_string(dir.path().join("README.md")).unwrap();
        assert_eq!(text, format!("a\n\n{BEGIN}\nIt has not been run on a real GPU yet.\n{END}\n\nb\n"));
        let unmarked = root("nothing");
        assert!(write(unmarked.path()).unwrap_err().to_string().contains("README has no lines"));
    }

    #[test]
    fn figures_are_those_of_the_results() {
        let dir = root(&format!("{BEGIN}\n{END}\n"));
        let folder = dir.path().join(RESULTS).join("some-gpu");
        fs::create_dir_all(&folder).unwrap();
        let result = json!({
            "version": 1, "gpu": "Some GPU", "driver": "1.2", "date": "2026-01-02", "commit": "abc",
            "steps": [
                {"name": "calls", "status": "passed", "checks": [{"holds": true}, {"holds": false}, {"holds": null}],
                 "figures": {"nanoseconds per call": [
                    {"call": "launch", "no shim": 2000.4, "count": 2003.0, "sample": 2011.0},
                    {"call": "memory info", "no shim": 1.0, "count": 1.0, "sample": 1.0}]}},
                {"name": "training", "status": "late", "checks": [], "figures": {"gpt2, 9 rounds of 10 steps": [
                    {"mode": "no shim", "over no shim, %": 0.0}, {"mode": "count", "over no shim, %": 0.014},
                    {"mode": "sample", "over no shim, %": -0.2}]}},
                {"name": "accounting", "status": "passed", "checks": [], "figures": {
                    "largest difference between NVML's growth and what was asked for, share of NVML's figure": 0.0041}},
                {"name": "sm-activity", "status": "missing", "checks": [], "figures": {
                    "difference in SM activity, points": {"median": 1.25, "largest": 7.0, "cells": 3}}},
            ],
        });
        fs::write(folder.join("result.json"), result.to_string()).unwrap();
        write(dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join("README.md")).unwrap();
        for line in [
            "**Some GPU**, driver 1.2, 2026-01-02, commit abc ([all of it](bench/gpu/some-gpu/summary.md))",
            "| checks that hold | 1 of 2 |",
            "| steps that failed | training |",
            "| launch, on the host | 2000 ns without the shim, 2003 ns counted, 2011 ns with some timed |",
            "| a step of gpt2 | +0.01 % counted, -0.20 % with some kernels timed |",
            "| accounted memory beside NVML's | within 0.41 % |",
            "| SM activity by the shapes of launches | 1.2 points from GPM's in the median, 7.0 at most |",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("memory info") && !text.contains("not been run"), "{text}");
    }
}
