//! A trace that was read, and what of its text is not replayed.

use std::collections::BTreeMap;
use std::fmt;

use crate::replay::trace::TraceJob;

/// A trace that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Jobs in order of arrival.
    pub jobs: Vec<TraceJob>,
    /// Rows that are no jobs of the replay.
    pub left_out: LeftOut,
}

impl From<Vec<TraceJob>> for Trace {
    fn from(jobs: Vec<TraceJob>) -> Self {
        Self { jobs, left_out: LeftOut::default() }
    }
}

/// Rows of a trace that are not replayed, counted by reason. In words: `3 never ran, 1 had no GPU`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(BTreeMap<&'static str, usize>);

impl LeftOut {
    pub(super) fn count(&mut self, why: &'static str) {
        *self.0.entry(why).or_default() += 1;
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.0.values().sum()
    }

    /// Reasons with their rows.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.0.iter().map(|(why, rows)| (*why, *rows))
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(|(why, rows)| format!("{rows} {why}")).collect();
        f.write_str(&words.join(", "))
    }
}
