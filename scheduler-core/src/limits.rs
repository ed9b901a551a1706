//! Limits of users: how many jobs each may have, and how important they may be.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Limits on what each user may have at once. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserLimits {
    /// Jobs that have not ended.
    pub jobs: Option<u32>,
    /// The highest priority of a job that no administrator submits.
    pub priority: Option<i32>,
}

/// A limit that a job would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "limit", rename_all = "snake_case")]
pub enum Exceeded {
    /// Its user has as many jobs as a user may have.
    Jobs {
        /// The jobs that the user has, with those of the same submission before it.
        has: u32,
        /// So many may be.
        #[serde(default)]
        most: u32,
    },
    /// Its priority is higher than its user may give.
    Priority {
        /// The job's.
        priority: i32,
        /// The highest.
        highest: i32,
    },
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jobs { has, most } => {
                write!(
                    f,
                    "you would have {} jobs waiting and running, and {most} is the most",
                    has.saturating_add(1)
                )
            }
            Self::Priority { priority, highest } => {
                write!(f, "priority {priority} is for administrators: up to {highest} is yours")
            }
        }
    }
}
