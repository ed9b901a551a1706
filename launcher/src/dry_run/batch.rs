//! The largest batch that fits: dry runs with other values of one option of the program.
//!
//! Values double until the program runs out of memory, then the gap is halved. That finds the largest one if
//! need grows with the value, as it does for batches.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use radrm_profile::Profile;
use radrm_text::output;
use serde_json::Value;
use tempfile::TempDir;
use thiserror::Error;

use super::flags::FindBatch;
use super::kept::{self, KeptError};
use super::stored;
use super::trial::{Reading, Signals, Trial};
use crate::NAME;
use crate::cli::{Plan, ProfileTo};
use crate::ending::Ending;
use crate::error::LaunchError;
use crate::place::{self, Place};

/// How a run with one value ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tried {
    /// It fits; with what it took of GPU memory, bytes.
    Fits(u64),
    /// Memory did not suffice.
    TooLarge,
    /// Nothing follows for memory from how it ended: why, as a clause.
    Unknown(String),
}

/// Why no dry run was made, as one sentence.
#[derive(Debug, Error)]
enum TrialError {
    #[error("none is asked for")]
    NotAsked,
    #[error("{}", radrm_base::reason(.0))]
    System(#[from] io::Error),
}

/// What a search has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Not even the first value fits.
    Nothing,
    /// The largest value that fits: the next one does not.
    Largest(u64),
    /// All fit up to the range's end.
    End,
    /// From this value on the program takes no more memory: something else bounds what the option does.
    Flat(u64),
}

/// Doublings without a change of need after which it has stopped growing.
const FLAT: u32 = 2;

/// Searches for the largest value that fits.
///
/// # Errors
/// The value at which nothing follows for memory from the program's end, and why.
pub fn search(
    range: &RangeInclusive<u64>,
    mut attempt: impl FnMut(u64) -> Tried,
) -> Result<Found, (u64, String)> {
    let (mut good, mut bad) = (None, None);
    // The first value with the present need, that need, and how many more had it.
    let mut flat = (0, 0, 0);
    let mut next = *range.start();
    loop {
        match attempt(next) {
            Tried::Fits(bytes) => {
                flat = if bytes == flat.1 { (flat.0, bytes, flat.2 + 1) } else { (next, bytes, 0) };
                if bad.is_none() && flat.2 >= FLAT {
                    return Ok(Found::Flat(flat.0));
                }
                good = Some(next);
            }
            Tried::TooLarge => bad = Some(next),
            Tried::Unknown(why) => return Err((next, why)),
        }
        next = match (good, bad) {
            (None, _) => return Ok(Found::Nothing),
            (Some(good), None) if good == *range.end() => return Ok(Found::End),
            (Some(good), None) => good.saturating_mul(2).min(*range.end()),
            (Some(good), Some(bad)) if bad - good <= 1 => return Ok(Found::Largest(good)),
            (Some(good), Some(bad)) => good + (bad - good) / 2,
        };
    }
}

/// The profiles of the runs, where one is wanted: of the largest value that fits.
struct Profiles {
    place: Place,
    folder: TempDir,
    /// The largest value so far.
    largest: Option<u64>,
}

/// Why no profile was kept, as one sentence.
#[derive(Debug, Error)]
enum ProfilesError {
    #[error("no profile was kept: no folder for profiles: {}", radrm_base::reason(.0))]
    Folder(io::Error),
    #[error("no profile was kept: the run with {0} wrote none")]
    Unwritten(String),
    #[error(transparent)]
    Kept(#[from] KeptError),
}

impl Profiles {
    /// Those of runs with call stacks, or if a file is named for it: else only the verdicts are of interest.
    fn prepare(plan: &Plan) -> Result<Option<Self>, LaunchError> {
        if plan.stacks.is_none() && !matches!(plan.profile, ProfileTo::File(_)) {
            return Ok(None);
        }
        let place = place::prepare(&plan.profile)?;
        if matches!(place, Place::Nowhere) {
            return Ok(None);
        }
        match tempfile::Builder::new().prefix("radrm-batch-").tempdir() {
            Ok(folder) => Ok(Some(Self { place, folder, largest: None })),
            Err(error) => {
                output::say(NAME, &ProfilesError::Folder(error).to_string());
                Ok(None)
            }
        }
    }

    fn path(&self, value: u64) -> PathBuf {
        self.folder.path().join(format!("{value}.radrm"))
    }

    /// Removes the profile of the smaller of two values, or of one that does not fit.
    fn tried(&mut self, value: u64, fits: bool) {
        let before = self.largest;
        if fits && before.is_none_or(|largest| largest < value) {
            self.largest = Some(value);
        }
        for other in [before, Some(value)].into_iter().flatten().filter(|other| Some(*other) != self.largest)
        {
            // The folder goes at the end in any case.
            let _ = fs::remove_file(self.path(other));
        }
    }

    /// Brings the last one to its place; gives a sentence.
    fn keep(self, plan: &Plan, find: &FindBatch) -> Result<Option<String>, ProfilesError> {
        let Some(value) = self.largest else { return Ok(None) };
        let of = format!("{} {value}", find.option);
        let from = self.path(value);
        let mut profile = Profile::open(&from).map_err(|_| ProfilesError::Unwritten(of.clone()))?;
        // The trial read no dataset.
        if let Some(sentence) = stored::add_expected(&mut profile, Some(&from), plan) {
            output::say(NAME, &sentence);
        }
        let path = kept::keep(plan, &self.place, &profile, &from)?;
        Ok(path.map(|path| format!("the profile of {of} is {}", path.display())))
    }
}

/// Finds the largest value by dry runs, says each, and gives the exit code.
///
/// # Errors
/// The profile cannot go where it was asked for.
pub fn run(plan: &Plan, find: &FindBatch) -> Result<i32, LaunchError> {
    let mut profiles = Profiles::prepare(plan)?;
    let found = search(&find.range, |value| {
        let tried = attempt(plan, find, value, profiles.as_ref().map(|profiles| profiles.path(value)));
        if let Some(profiles) = &mut profiles {
            profiles.tried(value, matches!(tried, Tried::Fits(_)));
        }
        let word = match &tried {
            Tried::Fits(_) => "fits",
            Tried::TooLarge => "does not fit",
            Tried::Unknown(_) => "unknown",
        };
        output::say(NAME, &format!("{} {value}: {word}", find.option));
        tried
    });
    let (sentence, code) = verdict(find, found);
    output::say(NAME, &sentence);
    let kept = profiles.map_or(Ok(None), |profiles| profiles.keep(plan, find));
    if let Some(sentence) = kept.unwrap_or_else(|error| Some(error.to_string())) {
        output::say(NAME, &sentence);
    }
    Ok(code)
}

/// What was found as a sentence, and the exit code.
fn verdict(find: &FindBatch, found: Result<Found, (u64, String)>) -> (String, i32) {
    let FindBatch { option, range, has_end } = find;
    match found {
        Ok(Found::Largest(value)) => (format!("the largest {option} that fits is {value}"), 0),
        Ok(Found::End) if *has_end => (format!("{option} {} fits, where the range ends", range.end()), 0),
        Ok(Found::End) => {
            let end = range.end();
            let more = format!("{option}={end}..TO searches further");
            (format!("{option} {end} fits, where the search ends because no end was named: {more}"), 0)
        }
        Ok(Found::Flat(value)) if value == *range.start() => {
            (format!("{option} does not change the need: the program may not know the option"), 1)
        }
        Ok(Found::Flat(value)) => {
            let why = "something else limits it, such as the size of the data set";
            (format!("all larger {option} fit too: the need stops growing at {value}; {why}"), 0)
        }
        Ok(Found::Nothing) => (format!("not even {option} {} fits", range.start()), 1),
        Err((value, why)) => (format!("the largest {option} that fits is unknown: with {value} {why}"), 1),
    }
}

fn attempt(plan: &Plan, find: &FindBatch, value: u64, profile: Option<PathBuf>) -> Tried {
    try_attempt(plan, find, value, profile)
        .unwrap_or_else(|why| Tried::Unknown(format!("no dry run was made: {why}")))
}

fn try_attempt(
    plan: &Plan,
    find: &FindBatch,
    value: u64,
    profile: Option<PathBuf>,
) -> Result<Tried, TrialError> {
    let wanted = plan.dry_run.as_ref().ok_or(TrialError::NotAsked)?;
    // A few steps are enough: memory is what it is after the second.
    let mut trial = Trial::like(plan, wanted, None, 3, Signals::hold()?)?;
    match profile {
        Some(path) => trial.profile(plan, &path),
        None => _ = trial.command.arg("--no-profile"),
    }
    trial.command.arg("--").args(with_value(&plan.command, &find.option, value));
    let (ending, report) = trial.run()?;
    Ok(judge(ending == Ending::Exited(0), &report))
}

/// What a dry run's report says of memory.
fn judge(success: bool, report: &Value) -> Tried {
    let reading = Reading::of(report);
    match (success, reading.refused, reading.withheld) {
        (false, true, _) => Tried::TooLarge,
        (false, false, _) => Tried::Unknown("the program failed, and not for want of GPU memory".to_owned()),
        (true, _, Some(why)) => Tried::Unknown(format!("there is no figure: {why}")),
        (true, _, None) => match reading.of_gpus("requested_peak").fold(0, u64::saturating_add) {
            0 => Tried::Unknown("the program took no GPU memory".to_owned()),
            bytes => Tried::Fits(bytes),
        },
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

    fn find(text: &str, has_end: bool) -> FindBatch {
        FindBatch { option: text.to_owned(), range: 1..=64, has_end }
    }

    #[test]
    fn the_largest_value_is_found_wherever_it_lies() {
        for limit in 0..70 {
            let mut tries = 0;
            let found = search(&(1..=64), |value| {
                tries += 1;
                if value <= limit { Tried::Fits(value) } else { Tried::TooLarge }
            });
            let expected = match limit {
                0 => Found::Nothing,
                1..64 => Found::Largest(limit),
                _ => Found::End,
            };
            assert_eq!(found, Ok(expected));
            assert!(tries <= 14, "{tries} tries for {limit}");
        }
    }

    #[test]
    fn a_failure_that_is_not_about_memory_ends_the_search() {
        let failed = || Tried::Unknown("it failed".to_owned());
        let found = search(&(4..=64), |value| if value < 16 { Tried::Fits(value) } else { failed() });
        assert_eq!(found, Err((16, "it failed".to_owned())));
    }

    #[test]
    fn where_the_search_gives_up_is_no_largest_value() {
        let all_fit = |bytes: fn(u64) -> u64| search(&(1..=64), |value| Tried::Fits(bytes(value)));
        let (open, code) = verdict(&find("--bs", false), all_fit(|value| value));
        assert_eq!(code, 0);
        assert!(open.contains("no end was named") && open.contains("--bs=64..TO"), "{open}");
        let (named, _) = verdict(&find("--bs", true), all_fit(|value| value));
        assert_eq!(named, "--bs 64 fits, where the range ends");
        let (same, code) = verdict(&find("--bs", true), all_fit(|_| 7));
        assert!(same.contains("may not know the option") && code == 1, "{same}");
        let (capped, code) = verdict(&find("--bs", true), all_fit(|value| value.min(8)));
        assert!(capped.contains("stops growing at 8") && code == 0, "{capped}");
    }

    #[test]
    fn a_program_without_gpu_memory_has_no_largest_batch() {
        let report = |gpus: &str, more: &str| -> Value {
            serde_json::from_str(&format!(r#"{{"dry_run": {{"gpus": [{gpus}] {more}}}}}"#)).unwrap()
        };
        let gpu = |bytes: u64| format!(r#"{{"requested_peak": {bytes}}}"#);
        assert_eq!(judge(true, &report(&gpu(5), "")), Tried::Fits(5));
        for none in [report("", ""), report(&gpu(0), "")] {
            let found = search(&(1..=64), |_| judge(true, &none));
            let (sentence, code) = verdict(&find("--bs", false), found);
            assert!(sentence.ends_with("is unknown: with 1 the program took no GPU memory"), "{sentence}");
            assert_eq!(code, 1);
        }
        let withheld = report("", r#", "withheld": "the program called x""#);
        assert_eq!(
            judge(true, &withheld),
            Tried::Unknown("there is no figure: the program called x".to_owned())
        );
        assert_eq!(judge(false, &report(&gpu(5), r#", "out_of_memory": 1"#)), Tried::TooLarge);
        assert!(matches!(judge(false, &Value::Null), Tried::Unknown(_)));
        let without_framework = serde_json::json!({"outcome": {"out_of_memory": true}});
        assert_eq!(judge(false, &without_framework), Tried::TooLarge);
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
