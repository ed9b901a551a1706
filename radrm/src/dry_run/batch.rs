//! The largest batch that fits: dry runs with other values of one option of the program.
//!
//! Values double until the program runs out of memory, then the gap is halved. That finds the largest one if
//! need grows with the value, as it does for batches.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};

use super::flags::FindBatch;
use crate::output;
use crate::run::cli::{Emulate, Plan};
use crate::run::session::NAME;

/// How a run with one value ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried {
    /// It fits.
    Fits,
    /// Memory did not suffice.
    TooLarge,
    /// It failed for another reason.
    Failed,
}

/// Searches; gives the largest value that fits, `None` if none does.
///
/// # Errors
/// The value at which the program failed for another reason than memory.
pub fn search(
    range: &RangeInclusive<u64>,
    mut attempt: impl FnMut(u64) -> Tried,
) -> Result<Option<u64>, u64> {
    let (mut good, mut bad) = (None, None);
    let mut next = *range.start();
    loop {
        match attempt(next) {
            Tried::Fits => good = Some(next),
            Tried::TooLarge => bad = Some(next),
            Tried::Failed => return Err(next),
        }
        next = match (good, bad) {
            (None, _) => return Ok(None),
            (Some(good), None) if good == *range.end() => return Ok(Some(good)),
            (Some(good), None) => good.saturating_mul(2).min(*range.end()),
            (Some(good), Some(bad)) if bad - good <= 1 => return Ok(Some(good)),
            (Some(good), Some(bad)) => good + (bad - good) / 2,
        };
    }
}

/// Finds the largest value by dry runs, says each, and gives the exit code.
#[must_use]
pub fn run(plan: &Plan, find: &FindBatch) -> i32 {
    let found = search(&find.range, |value| {
        let tried = attempt(plan, find, value);
        let word = match tried {
            Tried::Fits => "fits",
            Tried::TooLarge => "does not fit",
            Tried::Failed => "failed",
        };
        output::say(NAME, &format!("{} {value}: {word}", find.option));
        tried
    });
    match found {
        Ok(Some(value)) => {
            output::say(NAME, &format!("the largest {} that fits is {value}", find.option));
            0
        }
        Ok(None) => {
            output::say(NAME, &format!("not even {} {} fits", find.option, find.range.start()));
            1
        }
        Err(value) => {
            output::say(
                NAME,
                &format!("the program failed with {} {value}, and not for want of memory", find.option),
            );
            1
        }
    }
}

fn attempt(plan: &Plan, find: &FindBatch, value: u64) -> Tried {
    let Ok(report) = tempfile::NamedTempFile::with_prefix("radrm-dry-run-") else { return Tried::Failed };
    let Ok(own) = std::env::current_exe() else { return Tried::Failed };
    let Some(dry_run) = &plan.dry_run else { return Tried::Failed };
    let mut json = OsString::from("--json=");
    json.push(report.path());
    let mut command = Command::new(own);
    command.args(["--dry-run", "--quiet", "--no-profile", "--no-dataset"]).arg(json);
    if let Some(Emulate { spec, .. }) = &plan.emulate {
        command.args(spec.iter().flat_map(|spec| ["--emulate", spec]));
    }
    // A few steps are enough: memory is what it is after the second.
    command.args(["--steps", &dry_run.steps.unwrap_or(3).to_string()]);
    command.args(["--fill", &dry_run.fill.to_string()]);
    if dry_run.fake_data {
        command.arg("--fake-data");
    }
    command.arg("--").args(with_value(&plan.command, &find.option, value));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(status) = command.status() else { return Tried::Failed };
    let outcome: serde_json::Value = std::fs::read(report.path())
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let refused = outcome["dry_run"]["out_of_memory"].as_u64().unwrap_or(0) > 0;
    match (status.success(), refused) {
        (true, _) => Tried::Fits,
        (false, true) => Tried::TooLarge,
        (false, false) => Tried::Failed,
    }
}

/// The command with another value of the option: `--opt 1`, `--opt=1` or `opt=1` as it stands there, or at the
/// end if it does not.
fn with_value(command: &[OsString], option: &str, value: u64) -> Vec<OsString> {
    let value = value.to_string();
    let joined = format!("{option}=");
    let mut out = Vec::with_capacity(command.len() + 2);
    let mut words = command.iter();
    let mut done = false;
    while let Some(word) = words.next() {
        if word.to_string_lossy().starts_with(&joined) {
            out.push(OsString::from(format!("{joined}{value}")));
            done = true;
        } else if word == OsStr::new(option) {
            out.extend([word.clone(), OsString::from(&value)]);
            words.next();
            done = true;
        } else {
            out.push(word.clone());
        }
    }
    if !done {
        if option.starts_with('-') {
            out.extend([OsString::from(option), OsString::from(&value)]);
        } else {
            out.push(OsString::from(format!("{joined}{value}")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_is_found_wherever_it_lies() {
        for limit in 0..70 {
            let mut tries = 0;
            let found = search(&(1..=64), |value| {
                tries += 1;
                if value <= limit { Tried::Fits } else { Tried::TooLarge }
            });
            assert_eq!(found, Ok((limit > 0).then_some(limit.min(64))));
            assert!(tries <= 14, "{tries} tries for {limit}");
        }
    }

    #[test]
    fn a_failure_that_is_not_about_memory_ends_the_search() {
        let found = search(&(4..=64), |value| if value < 16 { Tried::Fits } else { Tried::Failed });
        assert_eq!(found, Err(16));
    }

    #[test]
    fn the_option_is_replaced_where_it_stands() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (before, option, after) in [
            ("python t.py --bs 4 -x", "--bs", "python t.py --bs 9 -x"),
            ("python t.py --bs=4 -x", "--bs", "python t.py --bs=9 -x"),
            ("python t.py train.bs=4", "train.bs", "python t.py train.bs=9"),
            ("python t.py", "--bs", "python t.py --bs 9"),
            ("python t.py", "train.bs", "python t.py train.bs=9"),
        ] {
            assert_eq!(with_value(&words(before), option, 9), words(after));
        }
    }
}
