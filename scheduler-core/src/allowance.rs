//! Limits of the queue, by user: the one table of their names, and what they come to for a user.

use std::collections::BTreeMap;
use std::fmt;

use radrm_base::{UserId, written};
use serde::{Deserialize, Serialize};

use crate::device::DeviceId;
use crate::hours::Hours;
use crate::job::{Job, JobId};
use crate::units::{Bytes, Millis};

/// A limit, as files and `radrm admin set` name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKey {
    /// GPUs at once.
    Gpus,
    /// Running jobs.
    RunningJobs,
    /// Time limit of a job without one.
    DefaultTime,
    /// Longest time limit of a job.
    MaxTime,
    /// Memory of a job on each GPU.
    Memory,
    /// GPUs that jobs may use.
    AllowedGpus,
    /// GPU-hours in seven days.
    GpuHours,
    /// Times at which no job starts, or small ones only.
    QuietHours,
    /// Memory on each GPU of a job that starts in quiet hours all the same.
    QuietMemory,
    /// GPU share of a job that does.
    QuietShare,
    /// Time limit of a job that does.
    QuietTime,
}

/// Form of a limit's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitUnit {
    /// A whole number.
    Count,
    /// A span of time; the value is in ms.
    Time,
    /// An amount of memory; the value is in bytes.
    Bytes,
    /// A list of GPUs, by number, UUID or model.
    Gpus,
    /// Hours of the day, on all days or on some.
    Hours,
    /// A part of a GPU in per cent; the value is in thousandths.
    Share,
}

/// A row of the table of limits.
#[derive(Clone, Copy, Debug)]
pub struct LimitInfo {
    /// The limit.
    pub key: LimitKey,
    /// Its name.
    pub name: &'static str,
    /// Form of its value.
    pub unit: LimitUnit,
    /// Description, without a full stop.
    pub bounds: &'static str,
    /// A value, as users write it.
    pub example: &'static str,
}

/// All limits. Reading, `radrm limits`, `radrm admin set` and the documentation are made of this table.
pub const LIMITS: [LimitInfo; 11] = [
    row(LimitKey::Gpus, "gpus", LimitUnit::Count, "GPUs of a user's running jobs, at once", "4"),
    row(LimitKey::RunningJobs, "running_jobs", LimitUnit::Count, "running jobs of a user", "8"),
    row(LimitKey::DefaultTime, "default_time", LimitUnit::Time, "time limit of a job without --time", "4h"),
    row(LimitKey::MaxTime, "max_time", LimitUnit::Time, "longest time limit of a job", "2d"),
    row(LimitKey::Memory, "memory", LimitUnit::Bytes, "memory of a job on each of its GPUs", "20GiB"),
    row(
        LimitKey::AllowedGpus,
        "allowed_gpus",
        LimitUnit::Gpus,
        "GPUs that jobs may use, by number, UUID or model",
        "0,1",
    ),
    row(
        LimitKey::GpuHours,
        "gpu_hours",
        LimitUnit::Count,
        "GPU-hours in seven days, beyond which jobs go behind those of other users",
        "200",
    ),
    row(
        LimitKey::QuietHours,
        "quiet_hours",
        LimitUnit::Hours,
        "times at which no job of a user starts, but for small ones",
        "Mon-Fri 08:00-18:00",
    ),
    row(
        LimitKey::QuietMemory,
        "quiet_memory",
        LimitUnit::Bytes,
        "memory on each GPU of a job that starts in quiet_hours",
        "4GiB",
    ),
    row(
        LimitKey::QuietShare,
        "quiet_share",
        LimitUnit::Share,
        "--gpu-share of a job that starts in quiet_hours",
        "25%",
    ),
    row(
        LimitKey::QuietTime,
        "quiet_time",
        LimitUnit::Time,
        "time limit of a job that starts in quiet_hours",
        "1h",
    ),
];

const fn row(
    key: LimitKey,
    name: &'static str,
    unit: LimitUnit,
    bounds: &'static str,
    example: &'static str,
) -> LimitInfo {
    LimitInfo { key, name, unit, bounds, example }
}

impl LimitKey {
    /// The limit of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        LIMITS.iter().find(|row| row.name == name).map(|row| row.key)
    }

    /// Its row.
    ///
    /// # Panics
    /// Never: each limit has a row.
    #[must_use]
    pub fn info(self) -> &'static LimitInfo {
        LIMITS.iter().find(|row| row.key == self).unwrap_or(&LIMITS[0])
    }
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// Value of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitValue {
    /// There is no limit, whatever a less special section says.
    None,
    /// A number: a count, ms or bytes.
    Number(u64),
    /// GPUs, as they are named.
    Gpus(Vec<String>),
    /// Hours.
    Hours(Hours),
}

/// A text is no value of a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {text:?}: {expected} is expected, or \"none\"")]
pub struct NoLimitValue {
    key: &'static str,
    text: String,
    expected: &'static str,
}

impl LimitValue {
    /// Reads the value of a limit as users write it.
    ///
    /// # Errors
    /// It is none.
    pub fn read(key: LimitKey, text: &str) -> Result<Self, NoLimitValue> {
        let text = text.trim();
        if text == "none" {
            return Ok(Self::None);
        }
        let info = key.info();
        let (value, expected) = match info.unit {
            LimitUnit::Count => (text.parse().ok().map(Self::Number), "a whole number such as \"4\""),
            LimitUnit::Time => (
                written::span(text).filter(|ms| *ms > 0).map(Self::Number),
                "a time such as \"4h\", \"4h30m\" or \"2d\"",
            ),
            LimitUnit::Bytes => (
                written::size(text).filter(|bytes| *bytes > 0).map(Self::Number),
                "an amount such as \"20GiB\" or \"20GB\"",
            ),
            LimitUnit::Gpus => {
                let names: Vec<String> = text
                    .split(',')
                    .map(|name| name.trim().to_owned())
                    .filter(|name| !name.is_empty())
                    .collect();
                ((!names.is_empty()).then_some(Self::Gpus(names)), "GPUs such as \"0,1\" or \"A100\"")
            }
            LimitUnit::Share => (share(text).map(Self::Number), "a part of a GPU such as \"25%\""),
            LimitUnit::Hours => (
                Hours::read(text).map(Self::Hours),
                "hours such as \"22:00-07:00\" or \"Mon-Fri 08:00-18:00\"",
            ),
        };
        value.ok_or_else(|| NoLimitValue { key: info.name, text: text.to_owned(), expected })
    }

    /// As users write it, so that [`Self::read`] gives it back.
    #[must_use]
    pub fn text(&self, key: LimitKey) -> String {
        match (self, key.info().unit) {
            (Self::None, _) => "none".to_owned(),
            (Self::Gpus(names), _) => names.join(","),
            (Self::Hours(hours), _) => hours.to_string(),
            (Self::Number(ms), LimitUnit::Time) => span(*ms),
            (Self::Number(bytes), LimitUnit::Bytes) => amount(*bytes),
            (Self::Number(thousandths), LimitUnit::Share) => percent(*thousandths),
            (Self::Number(count), _) => count.to_string(),
        }
    }
}

/// Thousandths of `25%` or `12.5%`: above 0, and at most the whole.
fn share(text: &str) -> Option<u64> {
    let thousandths = (written::percent(text).ok()? * 10.0).round();
    (1.0..=1000.0).contains(&thousandths).then_some(thousandths as u64)
}

/// `25%`, `12.5%`.
fn percent(thousandths: u64) -> String {
    match (thousandths / 10, thousandths % 10) {
        (whole, 0) => format!("{whole}%"),
        (whole, part) => format!("{whole}.{part}%"),
    }
}

/// `1d4h`, `90s`.
fn span(ms: u64) -> String {
    let mut rest = ms;
    let mut text = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest >= size {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if text.is_empty() { "0ms".to_owned() } else { text }
}

/// `20GiB`, `20GB`, else bytes: without rounding.
fn amount(bytes: u64) -> String {
    let units = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
    ];
    let whole = units.into_iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    whole.map_or_else(|| format!("{bytes}B"), |(unit, size)| format!("{}{unit}", bytes / size))
}

/// A number that bounds something, and the section that it is from: `default`, `group lab`, `user alice`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The number.
    pub most: u64,
    /// The section.
    pub from: String,
}

/// Devices that a user's jobs may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedDevices {
    /// The devices; none: the user's jobs get no GPU.
    pub devices: Vec<DeviceId>,
    /// The section.
    pub from: String,
}

/// Memory on a device that all jobs of a user, or of the members of a group, may have together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceQuota {
    /// The device.
    pub device: DeviceId,
    /// Amount.
    pub bytes: Bytes,
    /// The group; `None`: it is the user's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupMembers>,
}

/// Unix group that has a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMembers {
    /// Its name.
    pub name: String,
    /// Its members who have jobs.
    pub users: Vec<UserId>,
}

/// Jobs that start in quiet hours all the same: within each of these bounds that is stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmallJobs {
    /// Memory on each GPU, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Share of each GPU, thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u64>,
    /// Time limit, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<u64>,
}

impl SmallJobs {
    /// Returns true if nothing is stated: then no job is small.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if a job is one of them. What is not known of it is not small, nor is a GPU of its own.
    /// `floor`: memory that it is known to need more than.
    pub(crate) fn contains(&self, job: &Job, floor: Bytes) -> bool {
        let on_host = job.gpus == 0;
        let is_alone = job.exclusive && (self.memory.is_some() || self.share.is_some());
        // An estimate that is not its limit binds it to nothing.
        let memory =
            |most: u64| job.need.as_ref().is_some_and(|need| need.enforce && need.upper.max(floor).0 <= most);
        let share = |most: u64| job.share.is_some_and(|share| u64::from(share.0) <= most);
        let time = |most: u64| job.time_limit.is_some_and(|limit| limit.0 <= most);
        !self.is_none()
            && (on_host || !is_alone && self.memory.is_none_or(memory) && self.share.is_none_or(share))
            && self.time.is_none_or(time)
    }
}

impl fmt::Display for SmallJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory.map(|bytes| format!("{} on each GPU", Bytes(bytes)));
        let share = self.share.map(|thousandths| format!("--gpu-share {}", percent(thousandths)));
        let time = self.time.map(|ms| format!("--time {}", span(ms)));
        let parts: Vec<String> = [memory, share, time].into_iter().flatten().collect();
        f.write_str(&parts.join(" and "))
    }
}

/// Hours at which a user's jobs do not start: it is such an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    /// All of the hours, as they are written.
    pub hours: String,
    /// The section.
    pub from: String,
    /// Jobs that do.
    #[serde(default, skip_serializing_if = "SmallJobs::is_none")]
    pub small: SmallJobs,
}

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hours, from, small } = self;
        match small.is_none() {
            true => write!(f, "jobs of its user do not start at {hours} (quiet_hours, {from})"),
            false => write!(
                f,
                "of its user's jobs only those of at most {small} start at {hours} (quiet_hours, {from})"
            ),
        }
    }
}

/// Limits of a user's jobs. What is not there is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowance {
    /// GPUs of running jobs; a GPU that two of them share counts twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Bound>,
    /// Running jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Bound>,
    /// Time limit of a job, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Bound>,
    /// Memory of a job on each GPU, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bound>,
    /// Devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<AllowedDevices>,
    /// Memory of all jobs together, on the devices where it is limited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<DeviceQuota>,
    /// The hour is one at which no job starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<Quiet>,
    /// The user's budget of GPU-hours is spent: jobs go behind those of other users.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub behind: bool,
}

impl Allowance {
    /// Returns true if nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Devices and jobs of a user that run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Jobs.
    pub jobs: u64,
    /// GPUs of all of them.
    pub gpus: u64,
}

/// A limit under which a job can never start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Breach {
    /// It, or its group, requests more GPUs than the user may have at once.
    Gpus {
        /// Requested.
        needs: u64,
        /// Limit.
        bound: Bound,
    },
    /// Its group has more jobs than the user may run.
    Running {
        /// Jobs of the group.
        needs: u64,
        /// Limit.
        bound: Bound,
    },
    /// Its time limit is too long, or it has none.
    Time {
        /// Its time limit.
        asks: Option<Millis>,
        /// Limit.
        bound: Bound,
    },
    /// It requests too much memory on each GPU.
    Memory {
        /// Requested.
        needs: Bytes,
        /// Limit.
        bound: Bound,
    },
    /// Too few of the GPUs that the user may use would do.
    Devices {
        /// Requested.
        needs: u64,
        /// GPUs that would do.
        fit: u64,
        /// The section.
        from: String,
    },
}

/// `1 GPU`, `2 GPUs`.
fn gpus(count: u64) -> String {
    if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") }
}

/// `1 job`, `2 jobs`.
fn jobs(count: u64) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpus { needs, bound: Bound { most, from } } => {
                write!(f, "it needs {}, and its user may have {most} at once (gpus, {from})", gpus(*needs))
            }
            Self::Running { needs: 1, bound: Bound { most, from } } => {
                write!(f, "its user may run {} (running_jobs, {from})", jobs(*most))
            }
            Self::Running { needs, bound: Bound { most, from } } => {
                write!(
                    f,
                    "{needs} jobs are to start together, and their user may run {most} (running_jobs, {from})"
                )
            }
            Self::Time { asks: Some(asks), bound: Bound { most, from } } => {
                write!(f, "its --time of {asks} is above its user's {} (max_time, {from})", Millis(*most))
            }
            Self::Time { asks: None, bound: Bound { most, from } } => {
                write!(
                    f,
                    "it has no --time, and its user's jobs run for {} at most (max_time, {from})",
                    Millis(*most)
                )
            }
            Self::Memory { needs, bound: Bound { most, from } } => {
                write!(
                    f,
                    "it needs {needs} on each GPU, and its user may have {} (memory, {from})",
                    Bytes(*most)
                )
            }
            Self::Devices { needs, fit, from } => write!(
                f,
                "it needs {}, and {fit} of those that its user may use would do (allowed_gpus, {from})",
                gpus(*needs)
            ),
        }
    }
}

/// A limit that a waiting job's user has reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// GPUs, or else jobs.
    pub of_gpus: bool,
    /// Held by the user's running jobs.
    pub held: u64,
    /// The job's, or those of its group.
    pub needs: u64,
    /// Limit.
    pub bound: Bound,
    /// A job of the same user that is before it and waits for the rest.
    pub ahead: Option<JobId>,
}

impl Reached {
    /// Returns true if the limit lets it start never, whatever ends.
    pub(crate) fn is_never(&self) -> bool {
        self.needs > self.bound.most
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of_gpus, held, needs, bound: Bound { most, from }, ahead } = self;
        let missing = (held + needs).saturating_sub(*most);
        if let Some(ahead) = ahead.filter(|_| missing == 0) {
            let limit = if *of_gpus { gpus(*most) } else { jobs(*most) };
            let name = if *of_gpus { LimitKey::Gpus } else { LimitKey::RunningJobs };
            let does = if *needs == 0 { "waits for more" } else { "leaves too little" };
            return write!(f, "job {ahead} of its user is before it and {does} of {name} ({limit}, {from})");
        }
        match of_gpus {
            true => {
                let most = gpus(*most);
                write!(
                    f,
                    "its user may have {most} at once (gpus, {from}), has {held}, and it needs {needs}"
                )?;
            }
            false => {
                write!(f, "its user may run {} (running_jobs, {from}), and {held} run", jobs(*most))?;
            }
        }
        match (ahead, of_gpus, missing) {
            _ if self.is_never() => f.write_str("; it can start when that limit is raised"),
            (Some(ahead), ..) => write!(f, "; job {ahead} of that user is before it"),
            (None, true, more) => {
                write!(f, "; it can start when jobs of that user give {} back", gpus(more))
            }
            (None, false, 1) => f.write_str("; it can start when one of them ends"),
            (None, false, more) => write!(f, "; it can start when {more} of them end"),
        }
    }
}

/// The rest of users' limits in a walk over the queue: each job that comes takes its part, whether it starts or waits.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Sums over running jobs and those that came of each user, and the last one that came.
    users: BTreeMap<UserId, (Holding, Option<JobId>)>,
}

impl Room {
    /// Takes the part of a job that is next of its user.
    ///
    /// # Errors
    /// Its user's limit is reached: no later job of the user may start before it.
    pub(crate) fn take(
        &mut self,
        allowance: &Allowance,
        held: Holding,
        user: UserId,
        job: JobId,
        needs: Holding,
    ) -> Result<(), Reached> {
        let (taken, ahead) = self.users.entry(user).or_insert((held, None));
        let after = Holding { jobs: taken.jobs + needs.jobs, gpus: taken.gpus + needs.gpus };
        let reached = |of_gpus: bool, held: u64, needs: u64, bound: Option<&Bound>, after: u64| {
            let bound = bound.filter(|bound| needs > 0 && after > bound.most)?;
            // What jobs that came take is not held yet: they are before this one.
            let ahead = ahead.filter(|_| held + needs <= bound.most);
            Some(Reached { of_gpus, held, needs, bound: bound.clone(), ahead })
        };
        let gpus = reached(true, held.gpus, needs.gpus, allowance.gpus.as_ref(), after.gpus);
        let jobs = || reached(false, held.jobs, needs.jobs, allowance.running.as_ref(), after.jobs);
        if let Some(reached) = gpus.or_else(jobs) {
            return Err(reached);
        }
        (*taken, *ahead) = (after, Some(job));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them_and_come_back() {
        for row in &LIMITS {
            let value = LimitValue::read(row.key, row.example).unwrap();
            assert_eq!(value.text(row.key), row.example, "{}", row.name);
            assert_eq!(LimitValue::read(row.key, "none"), Ok(LimitValue::None));
            assert!(LimitValue::read(row.key, "").is_err(), "{}", row.name);
            assert_eq!(LimitKey::named(row.name), Some(row.key));
        }
        let of = |key, text| LimitValue::read(key, text);
        assert_eq!(of(LimitKey::MaxTime, "4h30m"), Ok(LimitValue::Number(16_200_000)));
        assert_eq!(LimitValue::Number(16_200_000).text(LimitKey::MaxTime), "4h30m");
        assert_eq!(of(LimitKey::Memory, "20GB"), Ok(LimitValue::Number(20_000_000_000)));
        assert_eq!(LimitValue::Number(20_000_000_000).text(LimitKey::Memory), "20GB");
        assert_eq!(LimitValue::Number(1_234_567).text(LimitKey::Memory), "1234567B");
        assert_eq!(of(LimitKey::QuietShare, "12.5%"), Ok(LimitValue::Number(125)));
        assert_eq!(LimitValue::Number(125).text(LimitKey::QuietShare), "12.5%");
        for (key, text) in [
            (LimitKey::Gpus, "-1"),
            (LimitKey::Gpus, "4GiB"),
            (LimitKey::Memory, "20"),
            (LimitKey::Memory, "0GiB"),
            (LimitKey::MaxTime, "4"),
            (LimitKey::MaxTime, "0h"),
            (LimitKey::QuietShare, "0%"),
            (LimitKey::QuietShare, "101%"),
            (LimitKey::QuietShare, "a few"),
        ] {
            let why = of(key, text).unwrap_err().to_string();
            assert!(why.contains("such as") && why.contains("\"none\""), "{why}");
        }
    }

    #[test]
    fn the_page_the_help_and_the_example_list_every_limit() {
        let page = include_str!("../../docs/how-to/limit-a-lab.md");
        for row in &LIMITS {
            let line = format!("| `{}` | {} | `{}` |", row.name, row.bounds, row.example);
            assert!(page.contains(&line), "{line}");
        }
        let names = LIMITS.map(|row| row.name);
        let (last, first) = names.split_last().unwrap();
        let help = include_str!("../../radrm/src/client/limits.rs");
        let line = format!("/// {} or {last}\n", first.join(", "));
        assert!(help.contains(&line), "{line}");
        let file = include_str!("../../contrib/config/radrmd.toml");
        let (_, part) = file.split_once("\n# Limits of users in the queue: ").unwrap();
        let (list, _) = part.split_once('.').unwrap();
        let words: Vec<&str> = list.split(|c: char| c != '_' && !c.is_alphanumeric()).collect();
        assert!(names.iter().all(|name| words.contains(name)), "{list}");
    }

    #[test]
    fn jobs_that_are_listed_take_their_part_of_the_room() {
        let bound = |most| Some(Bound { most, from: "default".to_owned() });
        let allowance = Allowance { gpus: bound(4), running: bound(3), ..Allowance::default() };
        let held = Holding { jobs: 1, gpus: 2 };
        let mut room = Room::default();
        let mut take =
            |job, gpus| room.take(&allowance, held, UserId(7), JobId(job), Holding { jobs: 1, gpus });
        assert_eq!(take(1, 1), Ok(()));
        let text = take(2, 2).unwrap_err().to_string();
        assert_eq!(text, "job 1 of its user is before it and leaves too little of gpus (4 GPUs, default)");
        assert_eq!(take(3, 0), Ok(()));
        let text = take(4, 0).unwrap_err().to_string();
        let of_jobs =
            "job 3 of its user is before it and leaves too little of running_jobs (3 jobs, default)";
        assert_eq!(text, of_jobs, "only 1 runs: the limit itself is not reached");
        let text = Room::default()
            .take(&allowance, Holding { jobs: 1, gpus: 4 }, UserId(7), JobId(9), Holding { jobs: 1, gpus: 2 })
            .unwrap_err()
            .to_string();
        assert!(text.ends_with("it can start when jobs of that user give 2 GPUs back"), "{text}");
    }
}
