//! Advance reservations: GPUs that are kept for people from one time to another.

use std::fmt;

use radrm_base::UserId;
use serde::{Deserialize, Serialize};

use crate::device::DeviceId;
use crate::units::Millis;

/// GPUs that are kept for people from one time to another.
///
/// While it holds, only jobs of its users start there. Before it begins, another job starts there only if it is surely gone by
/// then: by its time limit, or if it has none, where the lead time has not begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvanceReservation {
    /// The GPUs.
    pub devices: Vec<DeviceId>,
    /// Users whose jobs may start there.
    pub users: Vec<UserId>,
    /// Its begin, by the scheduler's clock.
    pub begins: Millis,
    /// Its end, likewise.
    pub ends: Millis,
    /// Time before its begin in which no other job without a time limit starts there.
    pub lead: Millis,
    /// True if other jobs that still run there are asked to leave, where they may be asked at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicts: bool,
    /// Users of whom it is not known whether they are among its people: their jobs are not asked to leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spared: Vec<UserId>,
    /// Its text.
    pub text: ReservedFor,
}

impl AdvanceReservation {
    /// Returns true if it has begun and not ended.
    #[must_use]
    pub fn holds(&self, now: Millis) -> bool {
        self.begins <= now && now < self.ends
    }

    /// Returns what keeps a job of another user from a start at this time. `takes`: the longest time until the job is gone.
    pub(crate) fn clash(&self, at: Millis, limit: Option<Millis>, takes: Option<Millis>) -> Option<Clash> {
        match (limit, takes) {
            _ if self.ends <= at => None,
            _ if self.begins <= at => Some(Clash::Holds),
            (Some(limit), Some(takes)) => (at.plus(takes) > self.begins).then_some(Clash::Limit { limit }),
            _ => (at.plus(self.lead) > self.begins).then_some(Clash::NoLimit),
        }
    }
}

/// Advance reservation as users read of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedFor {
    /// Names of the GPUs: `0`, `1`.
    pub gpus: Vec<String>,
    /// The people: `alice, group lab`.
    pub whose: String,
    /// Local time of its begin: `2026-12-24 08:00`.
    pub from: String,
    /// Local time of its end.
    pub until: String,
    /// Reason that the administrator gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl fmt::Display for ReservedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gpus, whose, from, until, reason } = self;
        let (noun, verb) = if gpus.len() == 1 { ("GPU", "is") } else { ("GPUs", "are") };
        write!(f, "{noun} {} {verb} kept for {whose} from {from} until {until}", gpus.join(", "))?;
        reason.as_ref().map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

/// Reason that a job of another user may not start on reserved GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Clash {
    /// The reservation has begun.
    Holds,
    /// The job could run into it.
    Limit {
        /// Its time limit.
        limit: Millis,
    },
    /// The job has no time limit.
    NoLimit,
}

/// Advance reservation in the way of a waiting job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The reservation.
    pub reservation: ReservedFor,
    /// The part of the job that is in the way.
    pub clash: Clash,
    /// True if nothing else keeps the job from one of its GPUs.
    pub would_do: bool,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reservation.fmt(f)?;
        match self.clash {
            Clash::Holds => Ok(()),
            Clash::Limit { limit } => {
                write!(f, ", and the job could run into that by its time limit of {limit}")
            }
            Clash::NoLimit => f.write_str(", and the job has no time limit (--time)"),
        }
    }
}
