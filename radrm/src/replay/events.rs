//! `radrm replay --events`: a daemon's own events again, and whether it decides the same.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use radrm_os::untrusted;
use radrm_scheduler_core::replay::events::{Again, Difference, Entry, Fed};
use radrm_scheduler_core::{Action, Bytes, Decision, Millis};
use serde::Serialize;

use super::ReplayError;
use super::input::{MAX_OTHERS, too_large};
use crate::client::text::open_named;
use crate::error::FileProblem;
use crate::{Failure, print, print_json};

/// An event is an array of 10,000 jobs at most.
const LONGEST_LINE: u64 = 24 << 20;

/// Result of a log.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// Starts of daemons.
    daemons: u64,
    events: u64,
    decisions: u64,
    /// Decisions by kind.
    kinds: BTreeMap<String, u64>,
    /// Events behind a gap, of which nothing can be said.
    unknown: u64,
    /// Lines that a daemon without room cut off.
    cut: u64,
    from: Option<Millis>,
    to: Option<Millis>,
    /// The first event after which something else was decided.
    difference: Option<Where>,
}

#[derive(Debug, Serialize)]
struct Where {
    line: u64,
    at: Millis,
    event: serde_json::Value,
    logged: Vec<Decision>,
    now: Vec<Decision>,
}

/// Feeds the events of the file again, and says whether the decisions are the same.
pub(super) fn run(path: &Path, json: bool) -> Result<(), Failure> {
    let file = open_named(path).map_err(|problem| problem.of(path))?;
    let most = if untrusted::is_others(&file) { MAX_OTHERS } else { (usize::MAX, usize::MAX) };
    let outcome = check(path, BufReader::new(file), most)?;
    if json {
        print_json(&outcome)?
    } else {
        print(&words(&outcome))?
    }
    match outcome.difference {
        Some(Where { line, .. }) => Err(ReplayError::Differs { log: path.into(), line }.into()),
        None => Ok(()),
    }
}

/// Feeds so many bytes and lines at most.
fn check(path: &Path, mut lines: impl BufRead, most: (usize, usize)) -> Result<Outcome, Failure> {
    let no_event = |(line, why)| ReplayError::NoEvent { log: path.into(), line, why };
    let mut outcome = Outcome::default();
    let mut again = Again::default();
    let mut cut: Option<(u64, String)> = None;
    let (mut number, mut bytes) = (0, 0_usize);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line is in memory as a whole: no more of it is read than may be fed.
        let rest = (most.0.saturating_sub(bytes) as u64).saturating_add(1);
        let mut part = (&mut lines).take(LONGEST_LINE.min(rest));
        if part.read_until(b'\n', &mut line).map_err(|error| FileProblem::Io(error).of(path))? == 0 {
            break;
        }
        number += 1;
        bytes = bytes.saturating_add(line.len());
        if bytes > most.0 || number > most.1 as u64 {
            return Err(too_large(most).of(path));
        }
        if line.len() as u64 == LONGEST_LINE {
            let why = format!("the line is longer than {}", Bytes(LONGEST_LINE));
            return Err(no_event((number, why)).into());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let entry: Entry = match serde_json::from_slice(&line) {
            Ok(entry) => entry,
            Err(error) => {
                // Only the last line before a daemon's start may be cut off.
                if let Some(first) = cut.replace((number, error.to_string())) {
                    return Err(no_event(first).into());
                }
                continue;
            }
        };
        let started = matches!(entry, Entry::Start { .. });
        if let Some(line) = cut.take() {
            if !started {
                return Err(no_event(line).into());
            }
            outcome.cut += 1;
        }
        if let Entry::Step { at, .. } = &entry {
            outcome.events += 1;
            outcome.from.get_or_insert(*at);
            outcome.to = Some(*at);
        }
        match again.feed(entry) {
            Fed::Started => outcome.daemons += 1,
            Fed::Same(decisions) => {
                outcome.decisions += decisions.len() as u64;
                for decision in decisions {
                    *outcome.kinds.entry(kind(&decision.action)).or_default() += 1;
                }
            }
            Fed::Different(difference) => {
                let Difference { at, event, logged, now } = *difference;
                let event = serde_json::to_value(event).unwrap_or_default();
                let at = Where { line: number, at, event, logged, now };
                outcome.difference.get_or_insert(at);
            }
            Fed::Passed => outcome.unknown += 1,
        }
    }
    if let Some(line) = cut {
        if line.0 < 2 {
            return Err(no_event(line).into());
        }
        outcome.cut += 1;
    }
    if outcome.daemons == 0 {
        return Err(ReplayError::NoStart(path.into()).into());
    }
    Ok(outcome)
}

/// An action's name, as in the file.
fn kind(action: &Action) -> String {
    let value = serde_json::to_value(action).unwrap_or_default();
    value["action"].as_str().unwrap_or_default().to_owned()
}

fn words(outcome: &Outcome) -> String {
    let span = outcome.to.unwrap_or_default().minus(outcome.from.unwrap_or_default());
    let count =
        |number: u64, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    let mut text = format!(
        "{} and {} in {:.1} min: {}\n",
        count(outcome.daemons, "start of the daemon", "starts of the daemon"),
        count(outcome.events, "event", "events"),
        span.0 as f64 / 60_000.0,
        count(outcome.decisions, "decision is the same", "decisions are the same"),
    );
    let kinds: Vec<String> = outcome.kinds.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
    if !kinds.is_empty() {
        text.push_str(&format!("  {}\n", kinds.join(", ")));
    }
    if outcome.unknown > 0 {
        text.push_str(&format!("  {} behind a gap, of which nothing is known\n", outcome.unknown));
    }
    if outcome.cut > 0 {
        text.push_str(&format!("  {} cut off\n", count(outcome.cut, "line was", "lines were")));
    }
    if let Some(difference) = &outcome.difference {
        let list = |decisions: &[Decision]| {
            let each = decisions.iter().map(|decision| serde_json::to_string(decision).unwrap_or_default());
            each.map(|text| format!("    {text}\n")).collect::<String>()
        };
        text.push_str(&format!(
            "  line {}: after {}\n  was decided\n{}  and comes out\n{}",
            difference.line,
            difference.event,
            list(&difference.logged),
            list(&difference.now)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_scheduler_core::{Event, Reason, Settings};

    const ALL: (usize, usize) = (usize::MAX, usize::MAX);

    fn check(text: &[u8]) -> Result<Outcome, String> {
        super::check(Path::new("log"), text, ALL).map_err(|error| error.to_string())
    }

    fn text(entries: &[Entry]) -> String {
        entries.iter().map(|entry| format!("{}\n", serde_json::to_string(entry).unwrap())).collect()
    }

    fn start() -> Entry {
        Entry::Start { version: "1".into(), settings: Box::new(Settings::default()) }
    }

    fn tick(decisions: Vec<Decision>) -> Entry {
        Entry::Step { at: Millis(9), event: Event::Tick, decisions }
    }

    #[test]
    fn only_the_line_before_a_daemons_start_may_be_cut_off() {
        let half = "{\"step\":{\"at\"";
        let good = text(&[start(), tick(Vec::new())]);
        let cut = check(format!("{good}{half}\n{good}").as_bytes()).unwrap();
        assert_eq!((cut.daemons, cut.events, cut.cut), (2, 2, 1));
        assert_eq!(check(format!("{good}{half}").as_bytes()).unwrap().cut, 1);
        let tail = text(&[tick(Vec::new())]);
        assert!(
            check(format!("{good}{half}\n{tail}").as_bytes()).unwrap_err().contains("line 3 is no event")
        );
        assert!(check(&b"\x7fELF\n"[..]).unwrap_err().contains("line 1 is no event"));
        assert!(check(&b""[..]).unwrap_err().contains("no start"));
    }

    #[test]
    fn a_line_without_an_end_is_read_up_to_the_stated_length() {
        let endless = BufReader::new(std::io::repeat(0));
        let why = super::check(Path::new("log"), endless, ALL).unwrap_err().to_string();
        assert!(why.ends_with("line 1 is no event of radrmd: the line is longer than 24.0 MiB"), "{why}");
    }

    #[test]
    fn of_another_users_log_less_is_fed_and_the_bound_is_stated() {
        let log = text(&[start(), tick(Vec::new()), tick(Vec::new()), tick(Vec::new())]);
        let fed = |most| super::check(Path::new("log"), log.as_bytes(), most).map_err(|why| why.to_string());
        assert_eq!(fed((log.len(), 4)).unwrap().events, 3);
        for most in [(log.len() - 1, 4), (log.len(), 3)] {
            let why = fed(most).unwrap_err();
            assert!(
                why.contains(&format!("or {} lines, the most that is read of another user's", most.1)),
                "{why}"
            );
        }
        // No more of a line is read either: it is in memory as a whole.
        let long = (30 << 10, 9);
        let mut endless = BufReader::with_capacity(64, std::io::repeat(0).take(1 << 20));
        let why = super::check(Path::new("log"), &mut endless, long).unwrap_err().to_string();
        assert!(why.contains("the most that is read of another user's"), "{why}");
        let read = (1 << 20) - endless.into_inner().limit();
        assert!(read <= (30 << 10) + 64 + 1, "{read} bytes are read");
        // Nor is one whose writer goes on.
        let endless = BufReader::new(std::io::repeat(b'\n'));
        let why = super::check(Path::new("log"), endless, MAX_OTHERS).unwrap_err().to_string();
        assert!(why.starts_with("log: more than 8.00 MiB or 50000 lines"), "{why}");
    }

    #[test]
    fn a_decision_that_does_not_come_out_again_is_shown() {
        let odd = Decision { action: Action::WakeAt { at: Millis(1) }, reason: Reason::Timer };
        let outcome = check(text(&[start(), tick(Vec::new()), tick(vec![odd])]).as_bytes()).unwrap();
        let found = outcome.difference.as_ref().map(|found| found.line);
        assert_eq!(found, Some(3));
        assert!(words(&outcome).contains("wake_at"), "{}", words(&outcome));
    }
}
