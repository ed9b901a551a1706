//! The state of a job, as users, programs and metrics read it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// State of a job. Its text form, in JSON too, is the variant's name in lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// In the queue, or until jobs that it depends on have ended.
    #[default]
    Waiting,
    /// Out of the queue until its user releases it.
    Held,
    /// An attempt was started; its program is not there yet.
    Starting,
    /// Its program runs.
    Running,
    /// Its device memory is on the way to host memory.
    Suspending,
    /// Its device memory is in host memory, and its GPUs are free.
    Suspended,
    /// Its device memory is on the way back.
    Resuming,
    /// It was asked to stop, or is killed.
    Stopping,
    /// Its program has ended; the administrator's epilog runs.
    Epilog,
    /// It has ended for good.
    Ended,
}

impl JobState {
    /// All states, in the order in which a job passes them.
    pub const ALL: [Self; 10] = [
        Self::Waiting,
        Self::Held,
        Self::Starting,
        Self::Running,
        Self::Suspending,
        Self::Suspended,
        Self::Resuming,
        Self::Stopping,
        Self::Epilog,
        Self::Ended,
    ];

    /// The text form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Stopping => "stopping",
            Self::Epilog => "epilog",
            Self::Ended => "ended",
        }
    }

    /// The state of a text form; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Returns true if no attempt is under way and the job has not ended.
    #[must_use]
    pub const fn is_queued(self) -> bool {
        matches!(self, Self::Waiting | Self::Held)
    }

    /// Returns true if the job holds its GPUs.
    #[must_use]
    pub const fn is_on_gpus(self) -> bool {
        !matches!(self, Self::Waiting | Self::Held | Self::Suspended | Self::Ended)
    }

    /// Returns true if the job has ended for good.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Ended)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_one_text_form() {
        let names = [
            "waiting",
            "held",
            "starting",
            "running",
            "suspending",
            "suspended",
            "resuming",
            "stopping",
            "epilog",
            "ended",
        ];
        for (state, name) in JobState::ALL.into_iter().zip(names) {
            assert_eq!((state.as_str(), JobState::parse(name)), (name, Some(state)));
            assert_eq!(serde_json::to_value(state).unwrap(), name);
            assert_eq!(serde_json::from_value::<JobState>(name.into()).unwrap(), state);
        }
        assert_eq!(JobState::parse("Waiting"), None);
    }

    #[test]
    fn a_job_is_queued_on_gpus_suspended_or_ended() {
        for state in JobState::ALL {
            let one_of =
                [state.is_queued(), state.is_on_gpus(), state == JobState::Suspended, state.is_ended()];
            assert_eq!(one_of.into_iter().filter(|is| *is).count(), 1, "{state}");
        }
    }
}
