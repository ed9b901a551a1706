//! Limits of users in the queue, reservations and drained GPUs, as they are shown.

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
    /// `count`, `ms`, `bytes`, `gpus`, `hours` or `thousandths`.
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
    /// Reservations that are not over, the earliest first.
    #[serde(default)]
    pub reservations: Vec<ReservationRow>,
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

/// Reservation of GPUs for people, as an administrator asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveRow {
    /// Users whose jobs may start on the GPUs.
    pub users: Vec<String>,
    /// Unix groups whose members' jobs may.
    pub groups: Vec<String>,
    /// GPUs by number, UUID or model; none: all.
    pub gpus: Vec<String>,
    /// Begin in the node's time zone, such as `2026-12-24 08:00`; `None`: now.
    pub from: Option<String>,
    /// End, likewise.
    pub until: String,
    /// Time before the begin in which no other job without a time limit starts there, ms; `None`: a day.
    pub lead_ms: Option<u64>,
    /// True if other jobs that still run there at the begin, and may be preempted, are asked to leave.
    pub evict: bool,
    /// Reason, for those who see it.
    pub reason: Option<String>,
}

/// Reservation of GPUs for people, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationRow {
    /// Its number; `None`: it is from radrmd.toml.
    pub number: Option<u64>,
    /// The people, in words: `alice, group lab`.
    pub whose: String,
    /// Users.
    pub users: Vec<String>,
    /// Unix groups.
    pub groups: Vec<String>,
    /// Numbers of the GPUs.
    pub gpus: Vec<u32>,
    /// Begin in the node's time zone: `2026-12-24 08:00`.
    pub from: String,
    /// End, likewise.
    pub until: String,
    /// Begin, ms since 1970.
    pub from_ms: u64,
    /// End, ms since 1970.
    pub until_ms: u64,
    /// Time before the begin in which no other job without a time limit starts there, ms.
    pub lead_ms: u64,
    /// True if other jobs that may be preempted are asked to leave.
    pub evict: bool,
    /// Reason, if the administrator stated one.
    pub reason: Option<String>,
    /// The administrator.
    pub by: Option<String>,
    /// When, ms since 1970.
    pub at_ms: Option<u64>,
    /// True if it has begun.
    pub holds: bool,
    /// True if it is for the user that it is shown for.
    pub yours: bool,
    /// Jobs of other people that still run there, as far as the user may see them.
    pub others: Vec<u64>,
}
