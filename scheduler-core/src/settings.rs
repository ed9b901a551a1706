//! Settings of an administrator: policy, preconditions, order, recovery, throttling, eviction.

use serde::{Deserialize, Serialize};

use crate::amount;
use crate::interference::{Activity, Constants, USUAL};
use crate::ladder::Rung;
use crate::partitions;
pub use crate::policy::{NoSuchPolicy, Policy};
use crate::sharing_mode::{SharingMode, TimeSlices};
use crate::units::{Bytes, Millis, Permille};

/// Accounting of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// Needs of the jobs on a device are added up, and limits are enforced at them: nothing is
    /// ever over-committed.
    #[default]
    Reserved,
    /// Free memory is what the monitor sees. A job that still grows looks smaller than it will be.
    Observed,
    /// It is not sampled.
    Blind,
}

/// Conditions that a device must meet before a job joins others on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preconditions {
    /// Its SM activity is at or under this.
    pub smact: Option<Permille>,
    /// That is the mean over this time of samples; until a device was observed so long with the jobs that it has, its highest
    /// sample decides.
    #[serde(deserialize_with = "amount::millis")]
    pub window: Millis,
    /// With this, a device over `smact` still takes jobs unless its SM occupancy or its DRAM
    /// activity is also at or over these.
    pub hot: Option<Hot>,
    /// A job of unknown need finds at least this much memory free.
    #[serde(deserialize_with = "amount::bytes")]
    pub min_free: Bytes,
    /// A job of known need finds this much more than it needs.
    #[serde(deserialize_with = "amount::bytes")]
    pub margin: Bytes,
    /// A device takes no other job for this long after a job's process showed up on it.
    #[serde(deserialize_with = "amount::millis")]
    pub settle: Millis,
    /// At most so many jobs on one device. Where it is not set: 48 where the policy predicts what jobs do to each other, else 8.
    pub most_jobs: Option<u16>,
}

/// Thresholds at which a busy device is also hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    /// SM occupancy.
    pub smocc: Permille,
    /// DRAM activity.
    pub drama: Permille,
}

/// Jobs on one device where nothing is predicted of them, and where predictions bound them: there as many as a server of MPS takes
/// clients.
const MAX_JOBS: u16 = 8;
const MAX_PREDICTED_JOBS: u16 = 48;

impl Default for Preconditions {
    fn default() -> Self {
        Self {
            smact: None,
            window: Millis::from_secs(90),
            hot: None,
            min_free: Bytes::from_gib(5),
            margin: Bytes::ZERO,
            settle: Millis::ZERO,
            most_jobs: None,
        }
    }
}

/// Treatment of a job whose need is unknown, where memory is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// It gets devices of its own; once it ran for `learn_after`, what it was seen to
    /// hold plus a quarter is set aside for it and others may join.
    #[default]
    Exclusive,
    /// It joins others where `min_free` is free. All that is free there is set aside for it, and beside others it is limited to
    /// that; once it ran for `learn_after`, what it was seen to hold plus a quarter is set aside.
    MinFree,
}

/// In which order jobs are looked at: the lowest key first, where
///
/// ```text
/// key = submitted - priority * aging + min(shortest * run time, shortest_most) + penalty(user)
/// ```
///
/// All parts but the first are bounded, so no job waits for ever: a job is passed only by jobs
/// submitted before a time that is known when it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Order {
    /// Waiting this long is worth one step of priority.
    #[serde(deserialize_with = "amount::millis")]
    pub aging: Millis,
    /// Priorities beyond this (up or down) count as this.
    pub most_priority: i32,
    /// Set-back of a job as a multiple of its expected run time: shorter jobs go first.
    /// In thousandths; 0 is first come, first served.
    pub shortest: u32,
    /// The most it is set back by that. Jobs longer than this allows to tell apart keep their order
    /// among themselves, so that the longest are not all left for the end, where they would run
    /// beside nothing. A job of unknown run time is set back by an eighth of it.
    #[serde(deserialize_with = "amount::millis")]
    pub shortest_most: Millis,
    /// GPU time after which a job goes to a second queue. Its jobs come after all of the first one, and where their preemption
    /// allows it they give way to those and to jobs before them. Where it is not set there is one queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "amount::some_millis")]
    pub demote_after: Option<Millis>,
    /// Fair shares over users.
    pub fair: Option<FairShare>,
    /// May later jobs pass a blocked one, where they neither take its room nor slow whom it waits for?
    pub backfill: bool,
    /// Number of blocked jobs of different requests behind which others are considered.
    pub depth: u32,
    /// Time that one decision takes, from the last one or from a submission to an empty queue; then
    /// one job starts. Zero decides at once, and starts as many as there is room for. Some published
    /// managers sleep before each decision.
    #[serde(deserialize_with = "amount::millis")]
    pub pace: Millis,
    /// With `pace`: only idle devices are looked at first, whatever the policy; if that starts
    /// no job, those in use are looked at after so much longer. Zero looks at all of them at once.
    #[serde(deserialize_with = "amount::millis")]
    pub pace_shared: Millis,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            aging: Millis::from_mins(60),
            most_priority: 24,
            shortest: 3000,
            shortest_most: Millis::from_mins(100),
            demote_after: None,
            fair: Some(FairShare::default()),
            backfill: true,
            depth: 256,
            pace: Millis::ZERO,
            pace_shared: Millis::ZERO,
        }
    }
}

/// Fair shares: users who used more GPU time of late than others are set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FairShare {
    /// Use counts half after this time.
    #[serde(deserialize_with = "amount::millis")]
    pub half_life: Millis,
    /// The set-back of a user who used everything; one who used a part is set back by that part.
    #[serde(deserialize_with = "amount::millis")]
    pub most: Millis,
}

impl Default for FairShare {
    fn default() -> Self {
        Self { half_life: Millis::from_mins(24 * 60), most: Millis::from_mins(8 * 60) }
    }
}

/// Recovery from an out-of-memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recovery {
    /// Attempts in all; the first counts.
    pub attempts: u32,
    /// Memory that is added to what was seen, for each retry.
    #[serde(deserialize_with = "amount::bytes")]
    pub step: Bytes,
    /// Rungs of the ladder, one for each retry; the last one stays.
    pub ladder: Vec<Rung>,
    /// May others join a retry that was started on a device of its own?
    pub joinable: bool,
    /// Is a program's output believed where no shim saw the request?
    pub trust_log: bool,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            attempts: 4,
            step: Bytes::from_gib(5),
            ladder: vec![Rung::More, Rung::Emptier, Rung::Exclusive],
            joinable: false,
            trust_log: true,
        }
    }
}

/// Objective of launch budgets where jobs with targets share a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Jobs keep their targets; those without one get what is left.
    #[default]
    Targets,
    /// Targets count for nothing: all jobs of a device are slowed alike, as little as can be.
    MaxMin,
}

/// Throttling of jobs for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Throttle {
    /// Is anything done at all (beside declared shares)?
    pub on: bool,
    /// A shared device's SM activity above which its least important job is slowed. Without it a
    /// full device is a good device, as long as no more important job suffers.
    pub smact: Option<Permille>,
    /// A job of higher priority keeps at least this speed.
    pub speed: Permille,
    /// The lowest budget.
    pub least: Permille,
    /// Increase of a budget when all is calm; it is halved when it is not.
    pub step: Permille,
    /// The time between two changes of one job's budget.
    #[serde(deserialize_with = "amount::millis")]
    pub every: Millis,
    /// Launches in flight under a budget.
    pub in_flight: u16,
    /// Objective that comes first where jobs have targets.
    pub objective: Objective,
    /// Interval between observations of jobs with targets.
    #[serde(deserialize_with = "amount::millis")]
    pub window: Millis,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            on: true,
            smact: None,
            speed: Permille(800),
            least: Permille(50),
            step: Permille(50),
            every: Millis::from_secs(10),
            in_flight: 10,
            objective: Objective::Targets,
            window: Millis(500),
        }
    }
}

/// Eviction of jobs from their devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Eviction {
    /// A shared device with less than this free gives up its least important job. 0: never.
    #[serde(deserialize_with = "amount::bytes")]
    pub min_free: Bytes,
    /// May a waiting job take the place of running ones of lower priority?
    pub for_priority: bool,
    /// Time slots of jobs that have none of their own, if others wait.
    #[serde(deserialize_with = "amount::some_millis")]
    pub slot: Option<Millis>,
    /// Time from SIGTERM to SIGKILL.
    #[serde(deserialize_with = "amount::millis")]
    pub kill_after: Millis,
    /// Room that is kept beside what a suspended job held, when it comes back.
    #[serde(deserialize_with = "amount::bytes")]
    pub resume_margin: Bytes,
    /// May a suspended job come back on other devices of the same model?
    pub migrate: bool,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            min_free: Bytes::from_mib(256),
            for_priority: true,
            slot: None,
            kill_after: Millis::from_secs(30),
            resume_margin: Bytes::from_mib(512),
            migrate: true,
        }
    }
}

/// All settings. Parts that a file leaves out keep their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Placement policy.
    pub policy: Policy,
    /// Accounting of memory.
    pub memory: Memory,
    /// Conditions that a device must meet.
    pub preconditions: Preconditions,
    /// Set aside on top of a measured peak, where memory is reserved: equal runs differ a little.
    pub slack: Permille,
    /// Jobs of unknown need.
    pub unknown: Unknown,
    /// A job of unknown need has shown what it holds when it ran for this long: others may join it then.
    #[serde(deserialize_with = "amount::some_millis")]
    pub learn_after: Option<Millis>,
    /// Shrinks the reservation of a job of estimated or unknown need after its third optimizer step.
    /// The reservation becomes 1.05 times what the job holds then, if its user states fixed shapes or an earlier run of
    /// its program took no more later.
    pub early_bounds: bool,
    /// The order of the queue.
    pub order: Order,
    /// Recovery of a job that ran out of GPU memory.
    pub recovery: Recovery,
    /// Throttling of jobs for others.
    pub throttle: Throttle,
    /// Eviction of jobs for others.
    pub eviction: Eviction,
    /// `aware`: sharing must add at least this much of a lone job's work.
    pub min_gain: Permille,
    /// `aware`: no job is placed where any job's predicted speed falls under this.
    pub min_speed: Permille,
    /// `aware`: a job of higher priority keeps at least this speed beside a newcomer, by the lower end of the predicted
    /// speed's 95 % interval. 0: it is not protected.
    pub protect: Permille,
    /// `aware`: what is assumed of a job that was never seen.
    pub assumed: Activity,
    /// Mode in which jobs share a device, for the predictions of `aware`. Where it is not set, radrmd follows its setting `mps`,
    /// and anything else takes MPS.
    pub sharing: Option<SharingMode>,
    /// Numbers of devices on which jobs share by time slices whatever `sharing` says.
    pub time_sliced: Vec<u32>,
    /// `aware`: the constants that its predictions under MPS begin with.
    pub interference: Constants,
    /// `aware`: the constants of its predictions for time slices.
    pub time_slices: TimeSlices,
    /// `aware`: the constants of its predictions for jobs in SM partitions.
    pub partitions: Constants,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::Aware,
            memory: Memory::Reserved,
            preconditions: Preconditions::default(),
            slack: Permille(20),
            unknown: Unknown::Exclusive,
            learn_after: Some(Millis::from_mins(2)),
            early_bounds: true,
            order: Order::default(),
            recovery: Recovery::default(),
            throttle: Throttle::default(),
            eviction: Eviction::default(),
            min_gain: Permille(220),
            min_speed: Permille(200),
            protect: Permille(700),
            assumed: USUAL,
            sharing: None,
            time_sliced: Vec::new(),
            interference: Constants::A100_40GB,
            time_slices: TimeSlices::default(),
            partitions: partitions::CONSTANTS,
        }
    }
}

impl Settings {
    /// All settings that are parts of a whole, by their names in a file.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, Option<Permille>); 14] {
        let (before, throttle) = (&self.preconditions, &self.throttle);
        [
            ("preconditions.smact", before.smact),
            ("preconditions.hot.smocc", before.hot.map(|hot| hot.smocc)),
            ("preconditions.hot.drama", before.hot.map(|hot| hot.drama)),
            ("slack", Some(self.slack)),
            ("throttle.smact", throttle.smact),
            ("throttle.speed", Some(throttle.speed)),
            ("throttle.least", Some(throttle.least)),
            ("throttle.step", Some(throttle.step)),
            ("min_gain", Some(self.min_gain)),
            ("min_speed", Some(self.min_speed)),
            ("protect", Some(self.protect)),
            ("assumed.smact", Some(self.assumed.smact)),
            ("assumed.smocc", Some(self.assumed.smocc)),
            ("assumed.drama", Some(self.assumed.drama)),
        ]
    }

    /// Largest number of jobs on one device.
    pub(crate) fn most_jobs(&self) -> u16 {
        let usual = if self.policy.predicts() { MAX_PREDICTED_JOBS } else { MAX_JOBS };
        self.preconditions.most_jobs.unwrap_or(usual)
    }

    /// Mode in which jobs share this device.
    pub(crate) fn sharing_of(&self, device: u32) -> SharingMode {
        match self.time_sliced.contains(&device) {
            true => SharingMode::TimeSlices,
            false => self.sharing.unwrap_or_default(),
        }
    }

    /// A policy as it was published: strict first come, first served; a retry of a job that ran out
    /// of memory goes first, on a device of its own, and blocks the others; no limits, no
    /// throttling, no eviction. Free memory is what the monitor sees. Preconditions as in the
    /// thesis: SM activity at or under 80 %, 5 GB free without an estimate, else the estimate and
    /// 2 GB; for round-robin none, and exclusive needs none.
    #[must_use]
    pub fn published(policy: Policy) -> Self {
        let mut settings = Self {
            policy,
            memory: Memory::Observed,
            preconditions: Preconditions {
                smact: Some(Permille(800)),
                window: Millis::from_secs(90),
                hot: None,
                min_free: Bytes::from_gib(5),
                margin: Bytes::from_gib(2),
                settle: Millis::ZERO,
                most_jobs: Some(u16::MAX),
            },
            unknown: Unknown::MinFree,
            learn_after: None,
            early_bounds: false,
            order: Order {
                shortest: 0,
                fair: None,
                backfill: false,
                pace: Millis::from_secs(36),
                pace_shared: Millis::from_secs(30),
                ..Order::default()
            },
            recovery: Recovery {
                attempts: u32::MAX,
                step: Bytes::ZERO,
                ladder: vec![Rung::Exclusive],
                joinable: true,
                trust_log: true,
            },
            throttle: Throttle { on: false, ..Throttle::default() },
            eviction: Eviction {
                min_free: Bytes::ZERO,
                for_priority: false,
                slot: None,
                ..Eviction::default()
            },
            ..Self::default()
        };
        policy.rules().as_published(&mut settings);
        settings
    }
}

impl Settings {
    /// Settings under a [`crate::Planner`]: needs are reserved, and nothing else decides. No budgets, no eviction; an
    /// unknown need may join other jobs; a job that ran out of memory is tried again as by default.
    #[must_use]
    pub fn planned() -> Self {
        let own = Self::default();
        let mut settings = Self::published(Policy::FirstFit);
        settings.memory = Memory::Reserved;
        settings.preconditions.smact = None;
        (settings.preconditions.min_free, settings.preconditions.margin) = (Bytes::ZERO, Bytes::ZERO);
        (settings.order.pace, settings.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
        settings.order.backfill = true;
        (settings.learn_after, settings.recovery) = (own.learn_after, own.recovery);
        settings
    }
}

/// Settings of another system, under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// RAD-RM, the resource manager of the thesis.
    RadRm,
}

impl Preset {
    /// The policy that comes with it.
    #[must_use]
    pub fn policy(self) -> Policy {
        match self {
            Self::RadRm => Policy::Magm,
        }
    }

    /// Its settings under a policy: [`Settings::published`], but decisions are made at once and a job has four attempts,
    /// as RAD-RM's sleeps before each decision and its retries without end are no part of its method.
    #[must_use]
    pub fn settings(self, policy: Policy) -> Settings {
        let mut settings = Settings::published(policy);
        (settings.order.pace, settings.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
        settings.recovery.attempts = Recovery::default().attempts;
        settings
    }
}

/// For command lines.
impl std::str::FromStr for Preset {
    type Err = NoSuchPreset;

    fn from_str(text: &str) -> Result<Self, NoSuchPreset> {
        match text {
            "rad-rm" => Ok(Self::RadRm),
            _ => Err(NoSuchPreset(text.to_owned())),
        }
    }
}

/// There is no preset of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset {0}; there is rad-rm")]
pub struct NoSuchPreset(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value of a tree that is none itself, by its path.
    fn leaves(value: &serde_json::Value, path: &str, to: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                map.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), to));
            }
            _ => to.push(path.to_owned()),
        }
    }

    #[test]
    fn the_list_of_parts_names_every_setting_that_takes_per_cent() {
        let mut settings = Settings::default();
        settings.preconditions.hot = Some(Hot { smocc: Permille(1), drama: Permille(2) });
        let all = serde_json::to_value(&settings).unwrap();
        let mut paths = Vec::new();
        leaves(&all, "", &mut paths);
        let mut taken: Vec<(String, Permille)> = Vec::new();
        for path in paths {
            let mut changed = all.clone();
            *changed.pointer_mut(&path).unwrap() = "7.7%".into();
            let name = path.trim_start_matches('/').replace('/', ".");
            if let Ok(settings) = serde_json::from_value::<Settings>(changed) {
                let found = settings.parts().into_iter().find(|(part, _)| *part == name);
                taken.push((name, found.and_then(|(_, part)| part).unwrap_or_default()));
            }
        }
        taken.sort();
        let mut listed: Vec<(String, Permille)> =
            settings.parts().iter().map(|(name, _)| ((*name).to_owned(), Permille(77))).collect();
        listed.sort();
        assert_eq!(taken, listed);
    }

    #[test]
    fn amounts_and_times_are_read_with_their_units() {
        let text = r#"{"preconditions":{"min_free":"8GiB","window":"60s"},"learn_after":"10min",
            "order":{"aging":"2h","demote_after":null},"eviction":{"min_free":1024}}"#;
        let settings: Settings = serde_json::from_str(text).unwrap();
        assert_eq!(settings.preconditions.min_free, Bytes::from_gib(8));
        assert_eq!(settings.preconditions.window, Millis::from_secs(60));
        assert_eq!(settings.learn_after, Some(Millis::from_mins(10)));
        assert_eq!((settings.order.aging, settings.order.demote_after), (Millis::from_mins(120), None));
        assert_eq!(settings.eviction.min_free, Bytes(1024));
        let settings: Settings = serde_json::from_str(r#"{"preconditions":{"min_free":"8GB"}}"#).unwrap();
        assert_eq!(settings.preconditions.min_free, Bytes(8_000_000_000));
        let error = serde_json::from_str::<Settings>(r#"{"preconditions":{"min_free":"8G"}}"#).unwrap_err();
        assert!(error.to_string().contains("such as \"5GiB\""), "{error}");
    }

    #[test]
    fn rad_rm_has_the_conditions_of_the_thesis_and_none_of_its_sleeps() {
        let settings = Preset::RadRm.settings(Preset::RadRm.policy());
        let before = settings.preconditions;
        assert_eq!((settings.policy, settings.memory), (Policy::Magm, Memory::Observed));
        assert_eq!((before.smact, before.window), (Some(Permille(800)), Millis::from_secs(90)));
        assert_eq!((before.min_free, before.margin), (Bytes::from_gib(5), Bytes::from_gib(2)));
        assert_eq!(
            (settings.order.pace, settings.order.shortest, settings.order.backfill),
            (Millis::ZERO, 0, false)
        );
        assert_eq!((settings.recovery.ladder, settings.recovery.attempts), (vec![Rung::Exclusive], 4));
        assert!("carma".parse::<Preset>().is_err());
    }

    #[test]
    fn settings_survive_json_and_wrong_keys_are_told() {
        let settings = Settings::published(Policy::Lug);
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), Settings::default());
        assert!(serde_json::from_str::<Settings>(r#"{"polici":"lug"}"#).is_err());
    }
}
