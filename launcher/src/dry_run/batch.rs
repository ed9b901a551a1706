//! The largest batch that fits: dry runs with other values of one option of the program.
//!
//! Values double until the program does not fit, or go at once to where its need would reach the card's memory if it grew
//! as before; then the gap closes in the same way. That finds the largest one if need grows with the value, as it does
//! for batches.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use radrm_emulator_machine::{GpuSpec, MachineSpec};
use radrm_profile::model::dry_run::Verdict;
use radrm_profile::{Bytes, Profile};
use radrm_text::output;
use serde_json::{Value, json};
use tempfile::TempDir;
use thiserror::Error;

use super::answer;
use super::flags::FindBatch;
use super::kept::{self, KeptError};
use super::stored;
use super::throughput::{self, Throughput};
use super::trial::{Reading, Signals, Trial};
use super::verdict::Evidence;
use crate::NAME;
use crate::cli::{Plan, ProfileTo};
use crate::ending::FAILED;
use crate::error::LaunchError;
use crate::leftovers;
use crate::place::{self, Place};

/// Outcome of one trial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tried {
    /// It fits; with what it needs of GPU memory at most, bytes.
    Fits(u64),
    /// Memory did not suffice.
    TooLarge,
    /// Nothing follows for memory from how it ended: why, as a clause.
    Unknown(String),
}

/// Reason that no dry run was made, as one sentence.
#[derive(Debug, Error)]
enum TrialError {
    #[error("none is asked for")]
    NotAsked,
    #[error("{}", radrm_base::reason(.0))]
    System(#[from] io::Error),
}

/// Result of a search.
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

/// Tries that follow the growth of the need, before the gap is halved: the need may not be a line.
const GUIDED: u32 = 5;

/// Fits from which on the growth is followed also beyond a doubling, and how far: that of small values is not the one of
/// large values.
const KNOWN: usize = 3;
const JUMP: u64 = 16;

/// Value at which the need would reach the capacity, by the two largest values that fit and what they need.
fn predicted(fits: &[(u64, u64)], capacity: Option<u64>) -> Option<u64> {
    let [.., (smaller, little), (larger, much)] = fits else { return None };
    let (values, bytes) = (larger.checked_sub(*smaller)?, much.checked_sub(*little)?);
    let left = u128::from(capacity?.saturating_sub(*much)) * u128::from(values);
    let more = left.checked_div(u128::from(bytes))?;
    Some(larger.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)))
}

/// Searches for the largest value that fits, where the card has so many bytes if that is known.
///
/// # Errors
/// The value at which nothing follows for memory from the program's end, and why.
pub fn search(
    capacity: Option<u64>,
    range: &RangeInclusive<u64>,
    mut attempt: impl FnMut(u64) -> Tried,
) -> Result<Found, (u64, String)> {
    let (mut good, mut bad) = (None, None);
    // The first value with the present need, that need, and how many more had it.
    let mut flat = (0, 0, 0);
    let mut next = *range.start();
    let mut fits = Vec::new();
    let mut guided = 0;
    loop {
        match attempt(next) {
            Tried::Fits(bytes) => {
                flat = if bytes == flat.1 { (flat.0, bytes, flat.2 + 1) } else { (next, bytes, 0) };
                if bad.is_none() && flat.2 >= FLAT {
                    return Ok(Found::Flat(flat.0));
                }
                good = Some(next);
                fits.push((next, bytes));
            }
            Tried::TooLarge => bad = Some(next),
            Tried::Unknown(why) => return Err((next, why)),
        }
        let guide = predicted(&fits, capacity).filter(|_| guided < GUIDED);
        let mut follow = |usual: u64, least: u64, most: u64| match guide {
            // Where the usual step stays below it, that is the better one: the prediction gets better with it.
            Some(guide) if bad.is_some_and(|bad| guide < bad) || bad.is_none() && guide < usual => {
                guided += 1;
                guide.clamp(least, most)
            }
            Some(guide) if bad.is_none() && fits.len() >= KNOWN => {
                guided += 1;
                guide.min((least - 1).saturating_mul(JUMP)).clamp(least, most)
            }
            _ => usual,
        };
        next = match (good, bad) {
            (None, _) => return Ok(Found::Nothing),
            (Some(good), None) if good == *range.end() => return Ok(Found::End),
            (Some(good), None) => follow(good.saturating_mul(2).min(*range.end()), good + 1, *range.end()),
            (Some(good), Some(bad)) if bad - good <= 1 => return Ok(Found::Largest(good)),
            (Some(good), Some(bad)) => follow(good + (bad - good) / 2, good + 1, bad - 1),
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

/// Reason that no profile was kept, as one sentence.
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
    /// Keeps profiles only for runs with call stacks, or when a file is named for it: else only the verdicts are of
    /// interest.
    fn prepare(plan: &Plan) -> Result<Option<Self>, LaunchError> {
        if plan.stacks.is_none() && !matches!(plan.profile, ProfileTo::File(_)) {
            return Ok(None);
        }
        let place = place::prepare(&plan.profile)?;
        if matches!(place, Place::Nowhere) {
            return Ok(None);
        }
        match tempfile::Builder::new().prefix(&leftovers::prefix(leftovers::TRIALS)).tempdir() {
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
    let usable = usable(plan);
    let mut answer: Option<Answer> = None;
    let mut trials = Vec::new();
    let mut rates = Vec::new();
    let found = search(usable, &find.range, |value| {
        let profile = profiles.as_ref().map(|profiles| profiles.path(value));
        let attempt = attempt(plan, find, value, profile, usable.unwrap_or(u64::MAX));
        let does_fit = matches!(attempt.tried, Tried::Fits(_));
        if let Some(profiles) = &mut profiles {
            profiles.tried(value, does_fit);
        }
        if !plan.quiet || matches!(attempt.tried, Tried::Unknown(_)) {
            output::say(NAME, &format!("{} {value}: {}", find.option, attempt.words));
        }
        attempt.last_lines.iter().for_each(|line| output::say(NAME, &format!("| {line}")));
        let rate = Throughput::of(value, &attempt.figures);
        trials.push(attempt.as_json(value, rate.as_ref()));
        rates.extend(rate);
        if does_fit && answer.as_ref().is_none_or(|answer| answer.value < value) {
            answer = Some(Answer { value, need: attempt.need, figures: attempt.figures });
        }
        attempt.tried
    });
    let (sentence, code) = verdict(find, found);
    let need =
        answer.as_ref().map(|answer| format!("{NAME}: {} {} {}\n", find.option, answer.value, answer.need));
    let rates = throughput::sentence(&find.option, &rates).map(|sentence| format!("{NAME}: {sentence}\n"));
    let text = format!("{NAME}: {sentence}\n{}{}", need.unwrap_or_default(), rates.unwrap_or_default());
    let found = json!({
        "option": find.option,
        "largest": answer.as_ref().map(|answer| answer.value),
        "verdict": sentence,
        "trials": trials,
    });
    let figures = answer.as_ref().map(|answer| &answer.figures);
    let delivered = answer::deliver(plan, &text, ("find_batch", found), figures);
    let kept = profiles.map_or(Ok(None), |profiles| profiles.keep(plan, find));
    if let Some(sentence) = kept.unwrap_or_else(|error| Some(error.to_string())) {
        output::say(NAME, &sentence);
    }
    Ok(match delivered {
        Ok(()) => code,
        Err(error) => {
            output::say(NAME, &error.to_string());
            FAILED
        }
    })
}

/// The largest value that fits so far.
struct Answer {
    value: u64,
    need: String,
    figures: Value,
}

/// Result of the search as a sentence, and the exit code.
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

/// Memory that CUDA shows programs of the smallest GPU of the machine, bytes; `None`: it is not known here.
fn usable(plan: &Plan) -> Option<u64> {
    let wanted = plan.dry_run.as_ref()?;
    let spec = plan.emulate.as_ref().and_then(|emulate| emulate.spec.as_deref());
    let machine = MachineSpec::parse(spec.unwrap_or_else(|| wanted.usual_machine())).ok()?;
    machine.gpu.iter().map(GpuSpec::cuda_memory_bytes).min()
}

/// A run with one value.
struct Attempt {
    tried: Tried,
    /// The verdict.
    words: String,
    /// Need of the run, the usable memory and the number of steps, in words.
    need: String,
    /// Of a program that failed.
    last_lines: Vec<String>,
    /// Figures of its report, null if it wrote none.
    figures: Value,
    evidence: Evidence,
}

impl Attempt {
    /// Without the figures; bytes.
    fn as_json(&self, value: u64, rate: Option<&Throughput>) -> Value {
        json!({
            "value": value,
            "fits": matches!(self.tried, Tried::Fits(_)),
            "verdict": self.words,
            "held_peak": self.evidence.held,
            "upper": self.evidence.upper,
            "steps": self.evidence.steps,
            "samples_per_second": rate,
        })
    }
}

fn attempt(plan: &Plan, find: &FindBatch, value: u64, profile: Option<PathBuf>, usable: u64) -> Attempt {
    try_attempt(plan, find, value, profile, usable).unwrap_or_else(|why| Attempt {
        tried: Tried::Unknown(format!("no dry run was made: {why}")),
        words: "unknown".to_owned(),
        need: String::new(),
        last_lines: Vec::new(),
        figures: Value::Null,
        evidence: Evidence::default(),
    })
}

fn try_attempt(
    plan: &Plan,
    find: &FindBatch,
    value: u64,
    profile: Option<PathBuf>,
    usable: u64,
) -> Result<Attempt, TrialError> {
    let wanted = plan.dry_run.as_ref().ok_or(TrialError::NotAsked)?;
    // A few steps are enough: memory is what it is after the second.
    let mut trial = Trial::like(plan, wanted, None, 3, Signals::hold()?)?;
    match profile {
        Some(path) => trial.profile(plan, &path),
        None => _ = trial.command.arg("--no-profile"),
    }
    trial.command.arg("--").args(with_value(&plan.command, &find.option, value));
    let mut ended = trial.start()?.wait([]);
    let evidence = ended.evidence();
    let requested = Reading::of(&ended.report).of_gpus("requested_peak").fold(0, u64::saturating_add);
    let tried = judge(&evidence, requested, usable);
    let is_failed = matches!(tried, Tried::Unknown(_)) && evidence.failed.is_some();
    let words = match &tried {
        Tried::Unknown(why) => format!("unknown ({why})"),
        _ => evidence.judge(usable).words(),
    };
    let last_lines = if is_failed { ended.last_lines } else { Vec::new() };
    let figures = ended.report["dry_run"].take();
    Ok(Attempt { tried, words, need: need(&evidence, usable), last_lines, figures, evidence })
}

/// Need of a run, the usable memory, the headroom and the number of steps, in words.
fn need(evidence: &Evidence, usable: u64) -> String {
    let Evidence { held, upper, steps, .. } = evidence;
    let bound =
        upper.map_or_else(|| "without a bound".to_owned(), |upper| format!("at most {}", Bytes(upper)));
    let room = match usable {
        u64::MAX => String::new(),
        usable => {
            let left = usable.saturating_sub(upper.unwrap_or(*held));
            format!(" of {}: {} of headroom", Bytes(usable), Bytes(left))
        }
    };
    let noun = if *steps == 1 { "step" } else { "steps" };
    format!("takes {}, {bound}{room}, {steps} optimizer {noun}", Bytes(*held))
}

/// Verdict on a run for the search. A need without a bound fits as far as it was seen.
fn judge(evidence: &Evidence, requested: u64, usable: u64) -> Tried {
    if let (None, false, Some(why)) = (&evidence.failed, evidence.refused, &evidence.withheld) {
        return Tried::Unknown(format!("there is no figure: {why}"));
    }
    match evidence.judge(usable).verdict {
        Verdict::No => Tried::TooLarge,
        _ if let Some(how) = &evidence.failed => {
            Tried::Unknown(format!("the program ended {how}, and not for want of GPU memory"))
        }
        _ if requested == 0 => Tried::Unknown("the program took no GPU memory".to_owned()),
        Verdict::Yes | Verdict::Partly => Tried::Fits(evidence.upper.unwrap_or(evidence.held)),
        Verdict::Tight if evidence.upper.is_none() && evidence.retries == 0 => Tried::Fits(evidence.held),
        // The emulated card held what a real one does not show programs.
        Verdict::Tight | Verdict::Unknown => Tried::TooLarge,
    }
}

/// The option as the command spells it: `bs` is `--bs` where only that stands there.
fn spelled(command: &[OsString], option: &str) -> String {
    let stands = |name: &str| {
        let joined = format!("{name}=");
        command.iter().any(|word| word == OsStr::new(name) || word.to_string_lossy().starts_with(&joined))
    };
    if option.starts_with('-') || stands(option) {
        return option.to_owned();
    }
    let dashed = [format!("--{option}"), format!("-{option}")];
    dashed.into_iter().find(|name| stands(name)).unwrap_or_else(|| option.to_owned())
}

/// The command with another value of the option: `--opt 1`, `--opt=1` or `opt=1` as it stands there, or at the
/// end if it does not.
fn with_value(command: &[OsString], option: &str, value: u64) -> Vec<OsString> {
    let option = spelled(command, option);
    let option = option.as_str();
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
    use crate::dry_run::verdict::Stopped;

    fn find(text: &str, has_end: bool) -> FindBatch {
        FindBatch { option: text.to_owned(), range: 1..=64, has_end }
    }

    #[test]
    fn the_largest_value_is_found_wherever_it_lies() {
        for limit in 0..70 {
            let mut tries = 0;
            let found = search(None, &(1..=64), |value| {
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
        let found = search(None, &(4..=64), |value| if value < 16 { Tried::Fits(value) } else { failed() });
        assert_eq!(found, Err((16, "it failed".to_owned())));
    }

    #[test]
    fn where_the_search_gives_up_is_no_largest_value() {
        let all_fit = |bytes: fn(u64) -> u64| search(None, &(1..=64), |value| Tried::Fits(bytes(value)));
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
    fn a_need_that_grows_as_a_line_takes_few_runs() {
        // 2 GiB and 0.1 GiB for each of a batch, on 16 GiB.
        let need = |value: u64| 2000 + 100 * value;
        let mut tries = Vec::new();
        let found = search(Some(16_000), &(1..=65536), |value| {
            tries.push(value);
            if need(value) <= 16_000 { Tried::Fits(need(value)) } else { Tried::TooLarge }
        });
        assert_eq!((found, tries), (Ok(Found::Largest(140)), vec![1, 2, 4, 64, 140, 141]));
        let found = search(Some(16_000), &(100..=65536), |value| {
            if need(value) <= 16_000 { Tried::Fits(need(value)) } else { Tried::TooLarge }
        });
        assert_eq!(found, Ok(Found::Largest(140)));
    }

    #[test]
    fn a_program_without_gpu_memory_has_no_largest_batch() {
        let ran = || Evidence { held: 5, upper: Some(7), ..Evidence::default() };
        assert_eq!(judge(&ran(), 5, 10), Tried::Fits(7));
        let found = search(None, &(1..=64), |_| judge(&ran(), 0, 10));
        let (sentence, code) = verdict(&find("--bs", false), found);
        assert!(sentence.ends_with("is unknown: with 1 the program took no GPU memory"), "{sentence}");
        assert_eq!(code, 1);
        let failed = Some("with exit code 1".to_owned());
        for (evidence, expected) in [
            (
                Evidence { withheld: Some("x".to_owned()), ..ran() },
                Tried::Unknown("there is no figure: x".to_owned()),
            ),
            (Evidence { failed: failed.clone(), refused: true, ..ran() }, Tried::TooLarge),
            (Evidence { refused: true, ..ran() }, Tried::TooLarge),
            (Evidence { upper: Some(11), ..ran() }, Tried::TooLarge),
            (Evidence { upper: None, ..ran() }, Tried::Fits(5)),
            (Evidence { stopped: Some(Stopped::AtItsTime), ..ran() }, Tried::Fits(7)),
            (Evidence { retries: 1, ..ran() }, Tried::TooLarge),
        ] {
            assert_eq!(judge(&evidence, 5, 10), expected, "{evidence:?}");
        }
        assert!(matches!(judge(&Evidence { failed, ..ran() }, 5, 10), Tried::Unknown(_)));
    }

    #[test]
    fn the_option_is_replaced_where_it_stands() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (before, option, after) in [
            ("python t.py --bs 4 -x", "--bs", "python t.py --bs 9 -x"),
            ("python t.py --bs=4 -x", "--bs", "python t.py --bs=9 -x"),
            ("python t.py train.bs=4", "train.bs", "python t.py train.bs=9"),
            ("python t.py --bs 4 -x", "bs", "python t.py --bs 9 -x"),
            ("python t.py -b=4", "b", "python t.py -b=9"),
            ("python t.py --bs 4 bs=3", "bs", "python t.py --bs 4 bs=9"),
            ("python t.py", "--bs", "python t.py --bs 9"),
            ("python t.py", "train.bs", "python t.py train.bs=9"),
        ] {
            assert_eq!(with_value(&words(before), option, 9), words(after));
        }
    }
}
