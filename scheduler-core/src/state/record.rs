//! Record of a job that is not over.

use std::collections::VecDeque;
use std::sync::Arc;

use radrm_base::HostUse;
use serde::{Deserialize, Serialize};

use crate::action::{LaunchBudget, Signal};
use crate::allowance::DeviceQuota;
use crate::device::DeviceId;
use crate::early::EarlyBound;
use crate::event::ANY_ATTEMPT;
use crate::fill::Fill;
use crate::interference::Activity;
use crate::job::{Job, JobId};
use crate::ladder::Rung;
use crate::leaving::{After, Leaving};
use crate::place::Ask;
use crate::queue::{Place, key};
use crate::reason::{Basis, Reason, Wait};
use crate::settings::{Memory, Settings, Unknown};
use crate::sharing_mode::SharingMode;
use crate::target::TargetObservation;
use crate::units::{Bytes, Millis, Permille};
use radrm_need::Need;

/// Importance of a job among those that may be evicted: priority, then the earlier submission.
pub(crate) type Importance = (i32, std::cmp::Reverse<(Millis, JobId)>);

/// Phase of a job that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// In the queue.
    Waiting,
    /// Kept out of the queue: held, or waiting for other jobs.
    Held,
    /// `Start` was given; its process is not seen yet.
    Launching,
    /// It runs.
    Running,
    /// It was asked to stop.
    Stopping,
    /// `Suspend` was given.
    Suspending,
    /// Its memory is in the host's; it waits to come back.
    Suspended,
    /// `Resume` was given.
    Resuming,
}

impl Phase {
    /// Does it hold devices?
    pub(crate) fn on_devices(self) -> bool {
        matches!(self, Self::Launching | Self::Running | Self::Stopping | Self::Suspending | Self::Resuming)
    }

    /// Is it in the queue to be placed?
    pub(crate) fn queued(self) -> bool {
        matches!(self, Self::Waiting | Self::Suspended)
    }
}

/// Stop of a job that was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) then: After,
    pub(crate) step: Step,
    pub(crate) until: Millis,
    /// The signal of this step is not sent yet.
    pub(crate) held: bool,
    /// That of an earlier one was, or may have been.
    pub(crate) heard: bool,
}

impl Stop {
    /// The next step of a stop: its signal is sent at once unless the caller says otherwise.
    pub(crate) fn new(before: Option<Self>, then: After, step: Step, until: Millis) -> Self {
        let heard = before.is_some_and(|before| before.heard || !before.held);
        Self { then, step, until, held: false, heard }
    }

    /// Returns true if the job got no signal yet.
    pub(crate) fn is_unheard(&self) -> bool {
        self.held && !self.heard
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Checkpoint,
    Terminate,
    Kill,
}

impl Step {
    /// The step at which a signal is sent.
    pub(crate) fn of(signal: Signal) -> Self {
        match signal {
            Signal::Checkpoint(_) => Self::Checkpoint,
            Signal::Terminate => Self::Terminate,
            Signal::Kill => Self::Kill,
        }
    }

    /// The signal of a step. Without one of its own for a checkpoint a job gets SIGTERM at once.
    pub(crate) fn signal(self, checkpoint: Option<i32>) -> Signal {
        match (self, checkpoint) {
            (Self::Checkpoint, Some(number)) => Signal::Checkpoint(number),
            (Self::Checkpoint, None) | (Self::Terminate, _) => Signal::Terminate,
            (Self::Kill, _) => Signal::Kill,
        }
    }
}

/// A suspended job's image.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) bytes: Bytes,
    pub(crate) model: String,
    pub(crate) node: Option<usize>,
    /// Only devices on which it can come back; empty: any device of the GPU model.
    pub(crate) devices: Vec<DeviceId>,
    /// It had its devices to itself, because its need is unknown.
    pub(crate) whole: bool,
    /// Not tried again before.
    pub(crate) not_before: Millis,
}

/// A search for a place that found none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Number of changes of devices up to then.
    pub(crate) upto: u64,
    /// Version of the reservation then; 0: none.
    pub(crate) under: u64,
    /// The device whose reason it waits for; `None`: the reason is not of one.
    pub(crate) closest: Option<usize>,
    /// Of a job of several devices: all that would have done then, in order, and maybe some more.
    pub(crate) fits: Vec<usize>,
}

/// A job that is not over.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) job: Job,
    pub(crate) phase: Phase,
    /// Attempts started.
    pub(crate) attempt: u32,
    pub(crate) ooms: u32,
    pub(crate) losses: u32,
    pub(crate) floor: Bytes,
    /// Its place in the queue, when it is there.
    pub(crate) class: u8,
    pub(crate) key: i64,
    /// Since when it is queued: its submission, or the end of its last slot.
    pub(crate) lined_up: Millis,
    /// Indices of its devices.
    pub(crate) devices: Vec<usize>,
    /// Memory set aside on each; `None`: the devices as a whole.
    pub(crate) reserved: Option<Bytes>,
    /// That is what was free, as its need is unknown and it has not shown yet what it holds.
    pub(crate) open: bool,
    /// Time of its last start, adoption or resume.
    pub(crate) since: Millis,
    /// Running time of this attempt before `since`.
    pub(crate) ran: Millis,
    /// GPU time of the attempts before this one.
    pub(crate) served: Millis,
    pub(crate) peak: Bytes,
    /// By its first steps, where these bounded it.
    pub(crate) early: Option<EarlyBound>,
    /// This attempt took more than that: it is not bounded again.
    pub(crate) early_broken: bool,
    pub(crate) stop: Option<Stop>,
    pub(crate) image: Option<Image>,
    pub(crate) budget: Option<LaunchBudget>,
    pub(crate) budget_changed: Millis,
    pub(crate) speed: Option<Permille>,
    /// Last observation for its target.
    pub(crate) target_seen: TargetObservation,
    /// Launch share of the jobs beside it, for its target; `None`: they are not throttled.
    pub(crate) fill: Option<Fill>,
    /// The job with a target that it is held back for.
    pub(crate) held_for: Option<JobId>,
    /// Observed activity, where nothing was known of it before.
    pub(crate) shown: Option<Activity>,
    /// Its part of what the jobs of its device were seen to do together, as activity alone, where nothing else is known of it.
    pub(crate) beside: Option<Activity>,
    /// Observed host use, where nothing was known of it before.
    pub(crate) host_shown: Option<HostUse>,
    /// Its last search for a place, which found none.
    pub(crate) failed: Option<Failed>,
    pub(crate) wait: Option<Wait>,
    pub(crate) timer: Option<Millis>,
    /// It was admitted before this state began, and no device here could hold it: one may be missing since.
    pub(crate) lacks_device: bool,
    /// Its slot is over: it gives way as soon as a job waits.
    pub(crate) slot_over: bool,
    /// Only devices that its user may use; `None`: any.
    pub(crate) allowed: Option<Vec<DeviceId>>,
    /// Memory on each device that its user's jobs may have.
    pub(crate) memory_most: Option<Bytes>,
    /// Memory that its user's jobs may have together, on the devices where it is limited.
    pub(crate) quotas: Arc<[DeviceQuota]>,
    /// GPUs that it counts with towards its user's limits, while it is on devices.
    pub(crate) holds: Option<u64>,
    pub(crate) history: VecDeque<(Millis, Reason)>,
}

/// Since when a job waits whose slot ends now: later than a job that is submitted now.
pub(crate) fn after_slot(now: Millis) -> Millis {
    now.plus(Millis(1))
}

/// Reasons kept of each job.
const HISTORY: usize = 32;

impl Record {
    pub(crate) fn new(job: Job) -> Self {
        Self {
            phase: Phase::Waiting,
            attempt: job.attempts,
            ooms: job.ooms,
            losses: 0,
            floor: job.floor,
            class: 1,
            key: 0,
            lined_up: job.lined_up.unwrap_or(job.submitted),
            devices: Vec::new(),
            reserved: None,
            open: false,
            since: Millis::ZERO,
            ran: Millis::ZERO,
            served: Millis::ZERO,
            peak: Bytes::ZERO,
            early: None,
            early_broken: false,
            stop: None,
            image: None,
            budget: None,
            budget_changed: Millis::ZERO,
            speed: None,
            target_seen: TargetObservation::default(),
            fill: None,
            held_for: None,
            shown: None,
            beside: None,
            host_shown: None,
            failed: None,
            wait: None,
            timer: None,
            lacks_device: false,
            slot_over: false,
            allowed: None,
            memory_most: None,
            quotas: Arc::default(),
            holds: None,
            history: VecDeque::new(),
            job,
        }
    }

    /// Its request, without what differs from one job to the next of an array: a search for a place that fails for one of
    /// them fails for all. `None`: what it went through makes it like no other.
    pub(crate) fn request(&self) -> Option<Job> {
        let is_new = self.attempt == 0 && self.ooms == 0 && self.losses == 0 && self.image.is_none();
        let is_alone = self.job.together.is_none() && self.shown.is_none() && self.host_shown.is_none();
        (is_new && is_alone && self.floor == self.job.floor).then(|| Job {
            id: JobId(0),
            submitted: Millis::ZERO,
            lined_up: None,
            held: false,
            awaits_dry_run: false,
            after: Vec::new(),
            array: None,
            ..self.job.clone()
        })
    }

    pub(crate) fn note(&mut self, now: Millis, reason: Reason) {
        if self.history.len() == HISTORY {
            // The first says how it began; what is in between matters least.
            self.history.remove(1);
        }
        self.history.push_back((now, reason));
    }

    /// Returns true if an answer is about the present attempt, and the job is in this phase.
    pub(crate) fn is_asked(&self, attempt: u32, phase: Phase) -> bool {
        self.phase == phase && (attempt == ANY_ATTEMPT || attempt == self.attempt)
    }

    /// Running time of this attempt.
    pub(crate) fn runtime(&self, now: Millis) -> Millis {
        match self.phase {
            Phase::Running | Phase::Stopping | Phase::Suspending => self.ran.plus(now.minus(self.since)),
            _ => self.ran,
        }
    }

    /// The GPU time that it got so far.
    pub(crate) fn attained(&self, now: Millis) -> Millis {
        self.served.plus(Millis(self.runtime(now).0.saturating_mul(self.job.gpus.into())))
    }

    /// Place among the waiting jobs of its user, if it is queued since then.
    pub(crate) fn place(&self, lined_up: Millis, settings: &Settings, now: Millis) -> Place {
        // Retries that get a device of their own, as published, go before all others; otherwise a
        // retry keeps the place that its time of submission gives it.
        let first = self.ooms > 0 && !settings.order.backfill;
        let class = match first || self.job.first {
            true => 0,
            false => 1 + u8::from(self.is_demoted(settings, now)),
        };
        let key = match self.job.first {
            true => i64::MIN,
            false => key(&self.job, lined_up, &settings.order),
        };
        (class, key, self.job.id)
    }

    /// Returns true if it belongs to the second queue.
    pub(crate) fn is_demoted(&self, settings: &Settings, now: Millis) -> bool {
        settings.order.demote_after.is_some_and(|most| self.attained(now) >= most)
    }

    /// Time at which it moves to the second queue, if it goes on as it does.
    pub(crate) fn demoted_at(&self, settings: &Settings, now: Millis) -> Option<Millis> {
        let left = settings.order.demote_after?.minus(self.attained(now));
        let takes = left.0.div_ceil(self.job.gpus.max(1).into());
        (takes > 0).then(|| now.plus(Millis(takes)))
    }

    /// Stop of the job, if it was asked to stop.
    pub(crate) fn leaving(&self) -> Option<Leaving> {
        let stop = self.stop?;
        Some(Leaving {
            after: stop.then,
            signal: stop.step.signal(self.job.preemption.checkpoint_signal),
            reason: self.history.back().map_or(Reason::Exited, |(_, reason)| reason.clone()),
            slot_over: self.slot_over,
        })
    }

    /// Latest end by its time limit, if it has one.
    pub(crate) fn enforced_end(&self) -> Option<Millis> {
        let limit = self.job.time_limit?;
        Some(self.since.plus(limit.minus(self.ran)))
    }

    /// Expected end, by its limit or by its known run time.
    pub(crate) fn likely_end(&self) -> Millis {
        let expected = self.job.expected.map(|time| self.since.plus(time.minus(self.ran)));
        expected.into_iter().chain(self.enforced_end()).min().unwrap_or(Millis::MAX)
    }

    /// Time from which on its devices may be free: a prediction with a bound has its lower end, else it is the likely end.
    pub(crate) fn earliest_end(&self) -> Millis {
        let low = self.job.at_least.map(|time| self.since.plus(time.minus(self.ran)));
        low.map_or_else(|| self.likely_end(), |low| low.min(self.likely_end()))
    }

    /// The rung of the ladder it is on.
    pub(crate) fn rung(&self, settings: &Settings) -> Option<Rung> {
        let retry = usize::try_from(self.ooms).unwrap_or(usize::MAX).checked_sub(1)?;
        let ladder = &settings.recovery.ladder;
        ladder.get(retry).or(ladder.last()).copied()
    }

    /// Activity: what was known, else what was seen of it or of it and its neighbours, else what is predicted or assumed.
    pub(crate) fn activity(&self, settings: &Settings) -> Activity {
        let predicted = || self.job.predicted.map(|predicted| self.within_share(settings, predicted));
        let seen = self.measured().or(self.beside).or_else(predicted);
        seen.unwrap_or_else(|| self.within_share(settings, settings.assumed))
    }

    /// This activity as far as its share of the GPU lets it have that.
    pub(crate) fn within_share(&self, settings: &Settings, activity: Activity) -> Activity {
        match self.job.share {
            // On SMs of its own it takes longer, and is as active alone.
            _ if settings.sharing == Some(SharingMode::Partitions) => activity,
            Some(share) if share < activity.smact => {
                activity.scaled(share.fraction() / activity.smact.fraction())
            }
            _ => activity,
        }
    }

    /// Activity, where it was known or seen of the job by itself.
    pub(crate) fn measured(&self) -> Option<Activity> {
        self.job.activity.or(self.shown)
    }

    /// Knowledge of its activity.
    pub(crate) fn basis(&self) -> Basis {
        match (self.measured(), self.beside) {
            (Some(_), _) => Basis::Measured,
            (None, Some(_)) => Basis::Together,
            (None, None) if self.job.predicted.is_some() => Basis::Predicted,
            (None, None) => Basis::Assumed,
        }
    }

    /// Host use: what was known, else what was seen.
    pub(crate) fn host_use(&self) -> Option<HostUse> {
        self.job.host_use.or(self.host_shown)
    }

    /// Order in which jobs give way: lower priority, then later submission.
    pub(crate) fn importance(&self) -> Importance {
        (self.job.priority, std::cmp::Reverse((self.job.submitted, self.job.id)))
    }

    /// Request for each device.
    pub(crate) fn ask(&self, settings: &Settings, largest: Bytes) -> Ask {
        let job = &self.job;
        let rung = self.rung(settings);
        let mut ask = Ask {
            job: job.id,
            user: job.user,
            quotas: Arc::clone(&self.quotas),
            gpus: usize::from(job.gpus),
            claim: None,
            whole: job.exclusive || rung == Some(Rung::Exclusive),
            half_empty: rung == Some(Rung::Emptier),
            open: false,
            share: job.share.map_or(0, |share| share.0),
            model: job.model.clone(),
            priority: job.priority,
            program: job.program,
            activity: self.activity(settings),
            basis: self.basis(),
            host: job.host,
            host_use: self.host_use(),
            node: None,
            only: self.allowed.clone(),
            sharers: 1,
        };
        if let Some(image) = &self.image {
            // Not to where memory would be so short again that a job has to leave. No margin may keep it
            // from coming back to a device that it was on.
            let margin = settings.eviction.resume_margin.max(settings.eviction.min_free);
            let claim = image.bytes.plus(margin);
            ask.claim = Some(claim.min(largest.max(image.bytes)));
            ask.whole |= image.whole;
            if !image.devices.is_empty() {
                let may = |device: &&DeviceId| ask.only.as_ref().is_none_or(|only| only.contains(device));
                ask.only = Some(image.devices.iter().filter(may).copied().collect());
            }
            // Devices that are named need no model, and may be of several.
            ask.model = image.devices.is_empty().then(|| image.model.clone());
            ask.node = image.node;
            ask.half_empty = false;
            return ask;
        }
        let reserve = settings.memory == Memory::Reserved;
        let slack = if reserve { settings.slack } else { Permille::ZERO };
        let measured = job.need.as_ref().is_some_and(Need::is_measured);
        ask.claim = job.need.as_ref().map(|need| need.reserved(slack, largest));
        if let Some(claim) = ask.claim {
            // An estimate beyond the largest device is only an estimate.
            if !measured && claim > largest {
                ask.claim = Some(largest);
                ask.whole = true;
            }
        } else if reserve && self.floor == Bytes::ZERO {
            match settings.unknown {
                Unknown::Exclusive => ask.whole = true,
                Unknown::MinFree => {
                    ask.claim = Some(settings.preconditions.min_free.min(largest));
                    ask.open = true;
                }
            }
        }
        if self.floor > Bytes::ZERO {
            let raised = settings.recovery.raised(self.floor, largest);
            ask.claim = Some(ask.claim.unwrap_or(Bytes::ZERO).max(raised));
        }
        if let Some(most) = self.memory_most {
            // It gets no more, whatever it is taken to need.
            ask.claim = ask.claim.map(|claim| claim.min(most));
        }
        ask
    }
}
