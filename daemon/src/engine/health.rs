//! Health issues of the daemon at the moment, and its counters since its start.

use std::collections::BTreeMap;

use radrm_scheduler_core::{Outcome, Verdict};

use crate::store::Entry;

/// Counted since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) submitted: u64,
    pub(super) started: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    /// Attempts that ran out of GPU memory.
    pub(super) ooms: u64,
    /// Jobs that ran and ended, their time in the queue and on GPUs, ms.
    pub(super) ended: u64,
    pub(super) waited_ms: u64,
    pub(super) ran_ms: u64,
}

impl Counters {
    /// Counts a job that ends now.
    pub(super) fn job_ended(&mut self, entry: &Entry, verdict: &Verdict, now_ms: u64) {
        if entry.first_start_ms.is_some() {
            self.ended += 1;
            self.ran_ms += entry.ran_ms;
            self.waited_ms += now_ms.saturating_sub(entry.submitted_ms).saturating_sub(entry.ran_ms);
        }
        match verdict {
            Verdict::Ended(Outcome::Exited { code: 0 }) => self.succeeded += 1,
            Verdict::Cancelled => self.cancelled += 1,
            _ => self.failed += 1,
        }
        if matches!(verdict, Verdict::Ended(Outcome::OutOfMemory { .. })) {
            self.ooms += 1;
        }
    }
}

/// Issues by subject, each reported once.
#[derive(Debug, Default)]
pub(super) struct Health {
    issues: BTreeMap<&'static str, String>,
    pub(super) counters: Counters,
}

impl Health {
    /// Something cannot be done; true if that is news.
    pub(super) fn report(&mut self, subject: &'static str, sentence: String) -> bool {
        let news = self.issues.get(subject) != Some(&sentence);
        if news {
            radrm_text::output::say(crate::process::NAME, &sentence);
            self.issues.insert(subject, sentence);
        }
        news
    }

    /// It can be done again.
    pub(super) fn resolve(&mut self, subject: &str) {
        self.issues.remove(subject);
    }

    /// The issue of this subject.
    pub(super) fn issue(&self, subject: &str) -> Option<&str> {
        self.issues.get(subject).map(String::as_str)
    }

    /// All issues, a sentence each.
    pub(super) fn issues(&self) -> impl ExactSizeIterator<Item = &String> {
        self.issues.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issue_is_reported_once_until_it_changes_or_is_resolved() {
        let mut health = Health::default();
        let full = || "the disk is full".to_owned();
        assert!(health.report("disk", full()));
        assert!(!health.report("disk", full()));
        assert!(health.report("disk", "the disk is read-only".to_owned()));
        health.resolve("disk");
        assert_eq!(health.issue("disk"), None);
        assert!(health.report("disk", full()));
        assert_eq!(health.issues().len(), 1);
    }

    #[test]
    fn waiting_time_is_what_running_time_leaves() {
        let mut counters = Counters::default();
        let ran = Entry { first_start_ms: Some(50), submitted_ms: 10, ran_ms: 30, ..Entry::default() };
        counters.job_ended(&ran, &Verdict::Ended(Outcome::Exited { code: 0 }), 100);
        counters.job_ended(&Entry::default(), &Verdict::Cancelled, 100);
        let expected = Counters {
            succeeded: 1,
            cancelled: 1,
            ended: 1,
            waited_ms: 60,
            ran_ms: 30,
            ..Counters::default()
        };
        assert_eq!(counters, expected);
    }
}
