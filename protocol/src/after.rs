//! Jobs that a job waits for.

use std::fmt;
use std::str::FromStr;

use radrm_scheduler_core::{Condition, Dependency, JobId};
use serde::{Deserialize, Serialize};

use crate::ProtocolError;
use crate::job_ref::JobRef;

/// A job, an array, or a job of an array that has to end, or to succeed, before the job may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// Condition that it has to meet.
    pub condition: Condition,
    /// As the user named it.
    pub job: JobRef,
    /// The first and the last number of its jobs, as radrmd found them at the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<[u64; 2]>,
}

impl After {
    /// The scheduler's view; `None` before the daemon has found its jobs.
    #[must_use]
    pub fn dependency(&self) -> Option<Dependency> {
        let [first, last] = self.jobs?.map(JobId);
        Some(Dependency { condition: self.condition, first, last, failed: None })
    }
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.condition, self.job)
    }
}

/// Dependencies that one `--after` names: `any:12`, `ok:12,13_4`.
/// Without a word before the colon the condition is `any`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterList(pub Vec<After>);

impl FromStr for AfterList {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        let split = Condition::split(text);
        let (condition, jobs) = split.map_err(|word| ProtocolError::NoCondition(word.to_owned()))?;
        let after = |job: &str| Ok(After { condition, job: job.parse()?, jobs: None });
        jobs.split(',').map(after).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_and_jobs_are_read_and_wrong_ones_are_one_sentence() {
        let read = |text: &str| {
            let list: Result<AfterList, _> = text.parse();
            list.map(|list| list.0.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read("12"), Ok(vec!["any:12".to_owned()]));
        assert_eq!(read("any:12,13"), Ok(vec!["any:12".to_owned(), "any:13".to_owned()]));
        assert_eq!(read("ok:12_3"), Ok(vec!["ok:12_3".to_owned()]));
        for (text, part) in
            [("", "not a job"), ("ok:", "not a job"), ("afterok:12", "neither any nor ok"), ("ok:1,x", "`x`")]
        {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
