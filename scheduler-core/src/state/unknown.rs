//! Treatment of a job whose need of GPU memory is not known, in words.

use std::fmt;

use super::State;
use super::record::Record;
use crate::job::JobId;
use crate::ladder::Rung;
use crate::settings::Memory;
use crate::units::{Bytes, Millis};

/// Treatment of a job of unknown need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownNeed {
    /// It has its devices to itself.
    Alone {
        /// Running time after which others may join it, if it was seen to leave room.
        until: Option<Millis>,
    },
    /// It joins others where so much is free.
    Joins {
        /// `preconditions.min_free`.
        free: Bytes,
    },
    /// All that was free there is reserved for it.
    Open {
        /// Running time after which what it was seen to hold is reserved in place of that.
        until: Option<Millis>,
    },
    /// Memory that it was seen to hold is reserved for it.
    Seen,
    /// It is tried again with more than the memory at which it ran out.
    RanOut {
        /// That memory.
        floor: Bytes,
    },
    /// Memory does not decide where it runs.
    Blind,
}

impl State {
    /// Treatment of a job whose need is not known; `None`: there is no such job, or its need is known.
    #[must_use]
    pub fn unknown_need(&self, id: JobId) -> Option<UnknownNeed> {
        let record = self.jobs.get(&id).filter(|record| record.job.need.is_none())?;
        let is_there = record.phase.on_devices() && !record.devices.is_empty();
        Some(if is_there { self.unknown_there(record) } else { self.unknown_waiting(record) })
    }

    fn learns_after(&self, record: &Record) -> Option<Millis> {
        let may_learn = self.settings.memory == Memory::Reserved
            && self.settings.policy.shares()
            && !record.job.exclusive
            && record.rung(&self.settings) != Some(Rung::Exclusive);
        self.settings.learn_after.filter(|_| may_learn)
    }

    fn unknown_there(&self, record: &Record) -> UnknownNeed {
        let until = self.learns_after(record);
        match record.reserved {
            None => UnknownNeed::Alone { until },
            Some(_) if record.open => UnknownNeed::Open { until },
            Some(_) if record.floor > Bytes::ZERO => UnknownNeed::RanOut { floor: record.floor },
            Some(Bytes::ZERO) => self.unbooked(),
            Some(_) => UnknownNeed::Seen,
        }
    }

    fn unknown_waiting(&self, record: &Record) -> UnknownNeed {
        let ask = self.own_ask(record);
        if ask.whole || !self.settings.policy.shares() {
            return UnknownNeed::Alone { until: self.learns_after(record) };
        }
        match record.floor {
            Bytes::ZERO if ask.open => UnknownNeed::Joins { free: self.settings.preconditions.min_free },
            Bytes::ZERO => self.unbooked(),
            floor => UnknownNeed::RanOut { floor },
        }
    }

    /// Where nothing is reserved.
    fn unbooked(&self) -> UnknownNeed {
        match self.settings.memory {
            Memory::Blind => UnknownNeed::Blind,
            Memory::Observed | Memory::Reserved => {
                UnknownNeed::Joins { free: self.settings.preconditions.min_free }
            }
        }
    }
}

impl fmt::Display for UnknownNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone { until: None } => f.write_str("unknown: it has its GPUs to itself"),
            Self::Alone { until: Some(after) } => {
                write!(f, "unknown: it has its GPUs to itself until it has run for {after} and left room")
            }
            Self::Joins { free } => {
                write!(f, "unknown: it joins others where {free} (preconditions.min_free) are free")
            }
            Self::Open { until } => {
                f.write_str("unknown: all that was free on its GPUs is reserved for it")?;
                until.map_or(Ok(()), |after| write!(f, " until it has run for {after}"))
            }
            Self::Seen => f.write_str("unknown; reserved by what it was seen to hold"),
            Self::RanOut { floor } => write!(f, "unknown: more than {floor}, with which it ran out"),
            Self::Blind => f.write_str("unknown: memory does not decide where it runs"),
        }
    }
}
