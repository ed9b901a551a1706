//! Limits of users in the queue and drained GPUs, as they are shown.

use serde::{Deserialize, Serialize};

/// A limit of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitRow {
    /// Its name.
    pub name: String,
    /// Description, without a full stop.
    pub bounds: String,
    /// Its value as text; `None`: no section states one.
    pub value: Option<String>,
    /// Its value in `unit`, if that is a number.
    pub number: Option<u64>,
    /// `count`, `ms`, `bytes`, `gpus` or `hours`.
    pub unit: String,
    /// The section that states it: `default`, `group lab`, `user alice`.
    pub from: Option<String>,
    /// The administrator who set it while the daemon ran.
    pub set_by: Option<String>,
    /// When, ms since 1970.
    pub set_at_ms: Option<u64>,
    /// In use now, in `unit`.
    pub used: Option<f64>,
}

/// Limits of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitsRow {
    /// The user's name.
    pub user: String,
    /// Names of the user's groups that have limits.
    pub groups: Vec<String>,
    /// All limits, in the order of their table.
    pub limits: Vec<LimitRow>,
    /// The budget of GPU-hours is spent: jobs go behind those of other users.
    pub behind: bool,
}

/// A limit that an administrator has set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLimitRow {
    /// `default`, `user:NAME` or `group:NAME`.
    pub scope: String,
    /// The limit's name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The administrator.
    pub by: String,
    /// When, ms since 1970.
    pub at_ms: u64,
}

/// Drain of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRow {
    /// Reason, if the administrator stated one.
    pub reason: Option<String>,
    /// The administrator.
    pub by: String,
    /// When, ms since 1970.
    pub at_ms: u64,
}
