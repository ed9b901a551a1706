//! The engine's data: its owners, and how what the scheduler decides reaches them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use radrm_collector::MemoryMeter;
use radrm_limits::mps::protocol::Protocol;
use radrm_need::{Calibration, NeedResolver};
use radrm_scheduler_core::{Decision, Event, Needs, SharingMode};

use super::arrivals::Arrivals;
use super::change_list::Changes;
use super::companies::Companies;
use super::company_load::CompanyLoads;
use super::core::Core;
use super::dry_run_queue::DryRuns;
use super::effects::Effects;
use super::health::Health;
use super::jobs::{JobTable, Over};
use super::loader_table::Loaders;
use super::monitor::NodeMonitor;
use super::outbox::Outbox;
use super::paths::Paths;
use super::processes::Processes;
use super::read_times::ReadTimes;
use super::reservation_list::Reservations;
use super::suspend_manager::SuspendManager;
use super::target_watches::Targets;
use super::timers::{Timer, Timers};
use super::user_limits::UserLimits;
use crate::attempt::Attempt;
use crate::config::Config;
use crate::error::DaemonError;
use crate::events::Log;
use crate::gates::Gates;
use crate::gpus::{Gpus, reserved_whole};
use crate::history::History;
use crate::launch_slots::LaunchSlots;
use crate::numbers::Numbers;
use crate::store::Store;
use crate::time::Now;
use crate::user_limits::UserLimitTable;
use crate::watch::Watch;

/// Time between two writes of figures that may be lost.
pub(super) const SAVE: Duration = Duration::from_secs(60);

/// Stores of the daemon on disk.
pub(crate) struct Disk {
    pub(crate) store: Store,
    pub(crate) history: History,
    pub(crate) numbers: Numbers,
}

/// Routes what happened to its owner, and what the owners answer to the next.
///
/// | owner | has |
/// |---|---|
/// | [`Core`] | the scheduler's state |
/// | [`JobTable`] | the jobs that have not ended |
/// | [`Outbox`] | what is written before it is done |
/// | [`NodeMonitor`] | the GPUs |
/// | [`SuspendManager`] | jobs between running and suspended |
/// | [`LaunchSlots`] | launch slots |
/// | [`Gates`] | launches that wait for requests |
/// | [`Companies`] | which jobs share GPUs, and their launch rates alone |
/// | [`CompanyLoads`] | what jobs that share GPUs do together |
/// | [`Loaders`] | which loaders of data are in use, and when a dead producer is started again |
/// | [`DryRuns`] | which jobs are dry-run in the background |
/// | [`Targets`] | what jobs with targets were observed to make of them |
/// | [`Health`] | issues and counters |
/// | [`Changes`] | requests that cancel, hold or release many jobs |
/// | [`Reservations`] | GPUs kept for people, from the file and from administrators |
/// | [`UserLimits`] | limits of users, from the file and from administrators |
/// | [`Effects`] | processes and files |
pub(crate) struct Engine {
    pub(super) config: Config,
    pub(super) core: Core,
    pub(super) jobs: JobTable,
    pub(super) outbox: Outbox,
    pub(super) node: NodeMonitor,
    pub(super) slots: LaunchSlots,
    pub(super) gates: Gates,
    pub(super) suspensions: SuspendManager,
    pub(super) companies: Companies,
    pub(super) company_loads: CompanyLoads,
    pub(super) loaders: Loaders,
    pub(super) targets: Targets,
    pub(super) dry_runs: DryRuns,
    pub(super) health: Health,
    pub(super) effects: Box<dyn Effects>,
    pub(super) timers: Timers,
    pub(super) paths: Paths,
    pub(super) numbers: Numbers,
    pub(super) resolver: NeedResolver,
    /// Calibration by its jobs: how their bounds held.
    pub(super) calibration: Calibration,
    /// The time of this batch.
    pub(super) now: Now,
    pub(super) boot: String,
    /// Attempts that are over, and of which it is not known yet what they left.
    pub(super) sweeping: BTreeMap<Attempt, Over>,
    /// Attempts that are over but for their epilogs.
    pub(super) epilogs: BTreeMap<Attempt, Over>,
    /// True while what an earlier daemon left is being recovered.
    pub(super) recovering: bool,
    /// Effects that are on disk are left for the next round, which begins at once.
    pub(super) has_more_effects: bool,
    /// Folders of old jobs are being removed.
    pub(super) cleaning: bool,
    /// Submissions whose jobs are being taken up.
    pub(super) arrivals: Arrivals,
    /// Requests that cancel, hold or release jobs, and that are not done.
    pub(super) changes: Changes,
    /// Processor time that users' segments take.
    pub(super) read_times: ReadTimes,
    /// State of MPS by the setting, in words.
    pub(super) mps: Option<String>,
    /// True if jobs with shares have SM partitions.
    pub(super) is_divided: bool,
    /// Users over their limit of the disk, and when their folders were last asked for.
    pub(super) disk_asked: HashMap<u32, Instant>,
    /// Limits of users.
    pub(super) limits: UserLimits,
    pub(super) reservations: Reservations,
    /// Energy of users that is not written yet, mJ.
    pub(super) user_energy: BTreeMap<u32, u64>,
    /// Waiting jobs with needs that they have not learned yet.
    pub(super) unlearned: VecDeque<(u64, Needs)>,
}

impl Engine {
    /// Brings back what an earlier daemon left, and makes everything ready.
    pub(crate) fn new(
        config: Config,
        disk: Disk,
        gpus: Gpus,
        watch: Watch,
        boot: String,
        ask: Sender<()>,
    ) -> Result<Self, DaemonError> {
        let paths = Paths::new(config.state.clone());
        let fence = gpus.has_fence().then(|| gpus.source.clone());
        // It decides nothing where nothing is known of the host.
        let memory = (config.memory_bandwidth > 0).then(|| MemoryMeter::open(&config.resctrl));
        let effects = Box::new(Processes::new(paths.clone(), watch, fence, memory)?);
        Self::with(config, disk, gpus, effects, boot, ask)
    }

    pub(super) fn with(
        config: Config,
        disk: Disk,
        gpus: Gpus,
        effects: Box<dyn Effects>,
        boot: String,
        ask: Sender<()>,
    ) -> Result<Self, DaemonError> {
        let Disk { store, history, numbers } = disk;
        let mut settings = config.scheduler.clone();
        // What the shim counts is by GPU: a job comes back to those that it was on.
        settings.eviction.migrate = false;
        settings.time_sliced.extend(config.mps.time_sliced(&gpus.list));
        let offered = config.mps.on.then(|| Protocol::offered().map_err(|silence| silence.to_string()));
        let sharing = config.mps.sharing(offered.as_ref().and_then(|offered| offered.as_ref().ok()).copied());
        // Emulated GPUs run the kernels of all processes at once, as MPS does.
        if gpus.emulated.is_none() || sharing == SharingMode::Partitions {
            settings.sharing.get_or_insert(sharing);
        }
        let mps = offered.map(|offered| config.mps.describe(offered));
        let is_divided = settings.sharing == Some(SharingMode::Partitions);
        let log = match config.events.as_os_str().is_empty() {
            true => None,
            false => Some(Log::open(&config.events)?),
        };
        let now = effects.now();
        let mut timers = Timers::default();
        timers.set(Timer::Poll, now.mono, Duration::from_millis(config.poll_ms));
        timers.set(Timer::Save, now.mono, SAVE);
        let model = config.estimator.trained()?;
        let calibration = history.calibration(&model);
        let mut engine = Self {
            resolver: config.estimator.resolver(&model)?,
            calibration,
            core: Core::new(settings, log),
            jobs: JobTable::default(),
            outbox: Outbox::new(store, history),
            node: NodeMonitor::new(gpus, config.gpu_reserve_mib << 20, ask),
            slots: LaunchSlots::default(),
            gates: Gates::default(),
            suspensions: SuspendManager::default(),
            companies: Companies::default(),
            company_loads: CompanyLoads::default(),
            mps,
            is_divided,
            loaders: Loaders::default(),
            targets: Targets::default(),
            dry_runs: DryRuns::default(),
            health: Health::default(),
            effects,
            timers,
            paths: Paths::new(config.state.clone()),
            numbers,
            now,
            boot,
            sweeping: BTreeMap::new(),
            epilogs: BTreeMap::new(),
            recovering: true,
            has_more_effects: false,
            cleaning: false,
            arrivals: Arrivals::default(),
            changes: Changes::default(),
            read_times: ReadTimes::default(),
            disk_asked: HashMap::new(),
            user_energy: BTreeMap::new(),
            unlearned: VecDeque::new(),
            limits: UserLimits::new(UserLimitTable::new(config.limits.clone())),
            reservations: Reservations::new(&config.reservations),
            config,
        };
        if let Some(sentence) = reserved_whole(&engine.node.gpus().list, engine.config.gpu_reserve_mib)? {
            engine.health.report("gpu_reserve", sentence);
        }
        engine.recall_sharing();
        engine.recover()?;
        engine.recovering = false;
        Ok(engine)
    }

    /// Gives an event to the scheduler, and records what it decided.
    pub(super) fn step(&mut self, event: Event) {
        for Decision { action, reason } in self.core.step(self.now.at, event) {
            self.decided(action, &reason);
        }
    }

    /// Changes of a job have to be written.
    pub(super) fn touch(&mut self, job: u64) {
        self.outbox.touch(job);
    }

    /// Adds a line to a job's history, and shows it as the reason for where it is.
    pub(super) fn say(&mut self, job: u64, text: String) {
        if let Some(entry) = self.jobs.entry_mut(job) {
            entry.why.clone_from(&text);
        }
        self.remark(job, text);
        self.touch(job);
    }

    /// Adds a line to a job's history that is no reason for where it is.
    pub(super) fn remark(&mut self, job: u64, text: String) {
        self.outbox.line(job, self.now.at.0, text);
    }

    /// The reply to those whose request was carried out and is not on disk.
    pub(super) fn unwritten(&self) -> String {
        let why = self.health.issue("disk").unwrap_or("the queue cannot be written");
        format!("done, but lost if radrmd ends before it can be written down: {why}")
    }
}
