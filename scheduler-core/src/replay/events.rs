//! A daemon's events, fed again: the same decisions must come out.
//!
//! A node daemon may write down what it fed into its [`State`] and what that decided, one [`Entry`]
//! after the other. [`Again`] feeds the same events to a state of its own and holds its decisions
//! against those that were written down. A daemon that comes back begins with a new state, so its
//! recovery is part of its events.

use serde::{Deserialize, Serialize};

use crate::action::Decision;
use crate::event::Event;
use crate::settings::Settings;
use crate::state::State;
use crate::units::Millis;

/// A line of a daemon's log of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A daemon began, with nothing known.
    Start {
        /// Its version.
        version: String,
        /// The settings in force.
        settings: Box<Settings>,
    },
    /// Something happened.
    Step {
        /// When, ms since 1970.
        at: Millis,
        /// What.
        event: Event,
        /// What was decided then.
        decisions: Vec<Decision>,
    },
    /// Lines are missing here: there was no room for them.
    Gap {
        /// How many.
        lines: u64,
    },
}

/// Decisions that differ from those that were written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// When, ms since 1970.
    pub at: Millis,
    /// After which event.
    pub event: Event,
    /// What the daemon decided.
    pub logged: Vec<Decision>,
    /// What comes out now.
    pub now: Vec<Decision>,
}

/// What came of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Fed {
    /// A new state.
    Started,
    /// The same decisions.
    Same(Vec<Decision>),
    /// Others.
    Different(Box<Difference>),
    /// The state is not known here: before the first start, or behind a gap.
    Passed,
}

/// Feeds entries to a state of its own.
#[derive(Clone, Debug, Default)]
pub struct Again {
    state: Option<State>,
}

impl Again {
    /// Takes the next entry.
    pub fn feed(&mut self, entry: Entry) -> Fed {
        let Entry::Step { at, event, decisions: logged } = entry else {
            self.state = match entry {
                Entry::Start { settings, .. } => Some(State::new(*settings)),
                _ => None,
            };
            return if self.state.is_some() { Fed::Started } else { Fed::Passed };
        };
        let Some(state) = &mut self.state else { return Fed::Passed };
        let now = state.step(at, event.clone());
        if now == logged {
            return Fed::Same(now);
        }
        // From here on everything would differ.
        self.state = None;
        Fed::Different(Box::new(Difference { at, event, logged, now }))
    }

    /// The state as it is now, where it is known.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Bytes, Job, JobId, Need, Reason, replay::Cluster};

    fn logged() -> Vec<Entry> {
        let settings = Settings::default();
        let mut state = State::new(settings.clone());
        let mut entries = vec![Entry::Start { version: "1".into(), settings: Box::new(settings) }];
        let devices = Cluster::uniform(2, "A", Bytes::from_gib(40)).devices;
        let events = devices.into_iter().map(|device| Event::DeviceAdded { device });
        let jobs = (1..9).map(|id| {
            let need = Some(Need::measured(Bytes::from_gib(3 * id)));
            Event::Submitted { job: Box::new(Job { need, ..Job::new(JobId(id)) }) }
        });
        for (at, event) in events.chain(jobs).chain([Event::Cancelled { job: JobId(1) }]).enumerate() {
            let at = Millis(1_700_000_000_000 + 7 * at as u64);
            let decisions = state.step(at, event.clone());
            entries.push(Entry::Step { at, event, decisions });
        }
        entries
    }

    /// As a file would have it.
    fn through_text(entry: &Entry) -> Entry {
        let text = serde_json::to_string(entry).unwrap();
        assert!(!text.contains('\n'));
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_same_events_give_the_same_decisions_also_through_a_file() {
        let entries = logged();
        let mut again = Again::default();
        let mut starts = 0;
        // A daemon that came back is a new state.
        for entry in entries.iter().chain(&entries) {
            match again.feed(through_text(entry)) {
                Fed::Same(decisions) => {
                    let started = |decision: &&Decision| matches!(decision.action, Action::Start { .. });
                    starts += decisions.iter().filter(started).count();
                }
                Fed::Started => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(starts > 4, "{starts}");
    }

    #[test]
    fn another_decision_is_found_and_nothing_is_claimed_behind_it() {
        let mut entries = logged();
        let Some(Entry::Step { decisions, .. }) = entries.get_mut(4) else { panic!() };
        decisions.push(Decision { action: Action::WakeAt { at: Millis(1) }, reason: Reason::Timer });
        let mut again = Again::default();
        let fed: Vec<Fed> = entries.into_iter().map(|entry| again.feed(entry)).collect();
        let Fed::Different(difference) = &fed[4] else { panic!("{:?}", fed[4]) };
        assert_eq!(difference.logged.len(), difference.now.len() + 1);
        assert!(matches!(fed[3], Fed::Same(_)) && fed[5..].iter().all(|fed| *fed == Fed::Passed));
    }

    #[test]
    fn behind_a_gap_nothing_is_claimed_until_the_next_start() {
        let entries = logged();
        let mut again = Again::default();
        assert_eq!(again.feed(entries[1].clone()), Fed::Passed);
        assert_eq!(again.feed(entries[0].clone()), Fed::Started);
        assert_eq!(again.feed(Entry::Gap { lines: 3 }), Fed::Passed);
        assert_eq!(again.feed(entries[2].clone()), Fed::Passed);
        assert_eq!(again.feed(entries[0].clone()), Fed::Started);
        assert!(matches!(again.feed(entries[1].clone()), Fed::Same(_)));
    }
}
