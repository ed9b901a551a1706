//! Admission of a job to the jobs on a device, and the rank of devices.

use std::sync::Arc;

use radrm_base::{HostUse, UserId};

use crate::allowance::DeviceQuota;
use crate::device::{Device, DeviceId, Observation};
use crate::host::HostEffect;
use crate::interference::{Activity, Companies, Predictor, Program, Resident as Neighbour};
use crate::job::{HostNeed, JobId};
use crate::outside::Outside;
use crate::partitions;
use crate::policy::{Candidate, Company, DeviceUse, Fit, Progress};
use crate::reason::{Basis, MemoryRule, Samples, Wait};
use crate::settings::{Hot, Memory, Preconditions, Settings};
use crate::sharing_mode::SharingMode;
use crate::units::{Bytes, Millis, Permille};

/// A job on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) job: JobId,
    pub(crate) user: UserId,
    /// Memory set aside; the device's capacity if it has the device as a whole.
    pub(crate) claim: Bytes,
    /// Seen to be in use.
    pub(crate) used: Bytes,
    pub(crate) whole: bool,
    pub(crate) share: u32,
    pub(crate) priority: i32,
    pub(crate) program: Option<Program>,
    pub(crate) activity: Activity,
    /// Knowledge of that activity on this device.
    pub(crate) basis: Basis,
    pub(crate) launching: bool,
}

impl Resident {
    /// As far as its neighbours' speeds depend on it.
    pub(crate) fn neighbour(&self) -> Neighbour {
        Neighbour { program: self.program, activity: self.activity }
    }
}

/// A device and who is on it.
#[derive(Clone, Debug)]
pub(crate) struct Dev {
    pub(crate) spec: Device,
    pub(crate) node: usize,
    pub(crate) drained: bool,
    pub(crate) lost: bool,
    /// MIG instances it is divided into.
    pub(crate) instances: u32,
    pub(crate) residents: Vec<Resident>,
    pub(crate) seen: Observation,
    /// Memory that unmanaged processes use.
    pub(crate) foreign: Bytes,
    /// It takes no other job before this.
    pub(crate) settled: Millis,
    /// Interference predictor of its GPU model.
    pub(crate) predictor: Arc<Predictor>,
    /// Predictor of the caller's, in place of that.
    pub(crate) outside: Option<Outside>,
}

impl Dev {
    pub(crate) fn usable(&self) -> bool {
        !self.lost && !self.drained && self.instances == 0
    }

    /// Memory that jobs reserved or unmanaged processes use.
    pub(crate) fn occupied(&self) -> Bytes {
        self.residents.iter().map(|r| r.claim.max(r.used)).sum::<Bytes>().plus(self.foreign)
    }
}

/// Request of a job for each device.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) job: JobId,
    pub(crate) user: UserId,
    /// Memory that jobs of its user, or of groups of that user, may have together, where it is limited.
    pub(crate) quotas: Arc<[DeviceQuota]>,
    pub(crate) gpus: usize,
    /// Memory to find; `None`: unknown.
    pub(crate) claim: Option<Bytes>,
    /// A device of its own.
    pub(crate) whole: bool,
    /// A device that is at least half empty.
    pub(crate) half_empty: bool,
    /// Its need is unknown: it takes what is free, until it has shown what it holds.
    pub(crate) open: bool,
    pub(crate) share: u32,
    pub(crate) model: Option<String>,
    pub(crate) priority: i32,
    pub(crate) program: Option<Program>,
    pub(crate) activity: Activity,
    pub(crate) basis: Basis,
    pub(crate) host: HostNeed,
    pub(crate) host_use: Option<HostUse>,
    /// Only this node: a suspended job's memory is in that host.
    pub(crate) node: Option<usize>,
    /// Only these devices; `None`: any.
    pub(crate) only: Option<Vec<DeviceId>>,
    /// Jobs that share each device from the start: those of a group.
    pub(crate) sharers: usize,
}

/// A job as it comes to a device.
pub(crate) fn newcomer(ask: &Ask, whole: bool) -> Resident {
    Resident {
        job: ask.job,
        user: ask.user,
        claim: ask.claim.unwrap_or(Bytes::ZERO),
        used: Bytes::ZERO,
        whole,
        share: ask.share,
        priority: ask.priority,
        program: ask.program,
        activity: ask.activity,
        basis: ask.basis,
        launching: true,
    }
}

/// Vectors used again and again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    jobs: Vec<Neighbour>,
    shares: Vec<u32>,
    protected: Vec<bool>,
    claims: Vec<Bytes>,
    after: Vec<f64>,
    companies: Companies,
}

/// Returns true if the device is not lost and could hold the job.
/// The result changes only as devices go and come back.
pub(crate) fn eligible(dev: &Dev, ask: &Ask) -> bool {
    !dev.lost && could_hold(dev, ask)
}

/// Returns true if the device could ever hold the job. The result never changes while the job waits.
pub(crate) fn could_hold(dev: &Dev, ask: &Ask) -> bool {
    // All of a device may be reserved for others than jobs.
    dev.instances == 0
        && dev.spec.capacity > Bytes::ZERO
        && (ask.sharers <= 1 || dev.spec.shared)
        && ask.model.as_ref().is_none_or(|model| *model == dev.spec.model)
        && ask.node.is_none_or(|node| node == dev.node)
        && ask.only.as_ref().is_none_or(|only| only.contains(&dev.spec.id))
        && ask.claim.unwrap_or(Bytes::ZERO) <= dev.spec.capacity
        && quota(dev, ask).is_none_or(|most| most > Bytes::ZERO)
}

/// The strictest limit of the memory that jobs of the asking user, or of a group of that user, may have together on the device.
fn quota(dev: &Dev, ask: &Ask) -> Option<Bytes> {
    let there = ask.quotas.iter().filter(|quota| quota.device == dev.spec.id);
    there.map(|quota| quota.bytes).min()
}

/// Returns true if the job could never have what it is to find there: its user may have less on the device.
pub(crate) fn is_short(dev: &Dev, ask: &Ask) -> bool {
    quota(dev, ask).is_some_and(|most| ask.claim.is_some_and(|claim| most < claim))
}

/// Limits that the job would exceed on the device beside these residents: the index of each in its request, and the memory that
/// is held there already.
pub(crate) fn exceeded<'a>(
    settings: &Settings,
    dev: &Dev,
    residents: impl Iterator<Item = &'a Resident> + Clone,
    ask: &Ask,
) -> impl Iterator<Item = (usize, Bytes)> {
    let (need, device) = (ask.claim.unwrap_or(settings.preconditions.min_free), dev.spec.id);
    let there = ask.quotas.iter().enumerate().filter(move |(_, quota)| quota.device == device);
    there.filter_map(move |(index, quota)| {
        let group = quota.group.as_ref();
        let is_member = |user: UserId| group.is_some_and(|group| group.users.contains(&user));
        let counts = |resident: &&Resident| resident.user == ask.user || is_member(resident.user);
        let held: Bytes =
            residents.clone().filter(counts).map(|resident| resident.claim.max(resident.used)).sum();
        // Alone it gets what the quota leaves it: an estimate may be too high.
        let is_over = held > Bytes::ZERO && held.plus(need) > quota.bytes;
        is_over.then_some((index, held))
    })
}

/// Reason that keeps the job from the device because its user, or a group of that user, has too much memory there beside it.
fn own_memory<'a>(
    settings: &Settings,
    dev: &Dev,
    residents: impl Iterator<Item = &'a Resident> + Clone,
    ask: &Ask,
) -> Option<Wait> {
    let (index, held) = exceeded(settings, dev, residents, ask).next()?;
    let quota = &ask.quotas[index];
    let (need, most) = (ask.claim.unwrap_or(settings.preconditions.min_free), quota.bytes);
    let group = quota.group.as_ref().map(|group| group.name.clone());
    Some(Wait::UserMemory { need, left: most.minus(held), most, group })
}

/// Returns true if the job waits for memory that jobs of its own user have there: nothing that others give back helps.
pub(crate) fn waits_for_own(settings: &Settings, dev: &Dev, ask: &Ask) -> bool {
    // A job that waits for a device of its own waits for all that are there.
    let is_alone = ask.whole || !dev.spec.shared || !settings.policy.shares();
    !is_alone
        && !dev.residents.iter().any(|resident| resident.whole)
        && own_memory(settings, dev, dev.residents.iter(), ask).is_some()
}

/// Checks that the job fits beside these residents, by what was requested and reserved alone.
/// No monitor data goes in. The cheapest checks come first.
pub(crate) fn joins<'a>(
    settings: &Settings,
    dev: &Dev,
    residents: impl Iterator<Item = &'a Resident> + Clone,
    ask: &Ask,
    host: &HostEffect,
    scratch: &mut Scratch,
) -> Result<Progress, Wait> {
    let mut jobs = 0u32;
    let (mut claimed, mut share, mut whole) = (dev.foreign, 0u32, false);
    for resident in residents.clone() {
        jobs += 1;
        claimed = claimed.plus(resident.claim.max(resident.used));
        share += resident.share;
        whole |= resident.whole;
    }
    if jobs == 0 {
        return Ok(settings.policy.rules().idle(host));
    }
    let alone = ask.whole || whole || !dev.spec.shared || !settings.policy.shares();
    if alone {
        return Err(Wait::Idle);
    }
    if let Some(wait) = own_memory(settings, dev, residents.clone(), ask) {
        return Err(wait);
    }
    let most = settings.most_jobs();
    if jobs >= u32::from(most) {
        return Err(Wait::Full { most });
    }
    if share + ask.share > 1000 {
        return Err(Wait::Share { need: Permille(ask.share), left: Permille(1000u32.saturating_sub(share)) });
    }
    if settings.sharing_of(dev.spec.id.0) == SharingMode::Partitions {
        let shares = residents.clone().map(|resident| resident.share);
        // A device is divided only while no client without a partition is on it.
        let is_undivided = ask.share > 0 && shares.clone().any(|share| share == 0);
        if is_undivided || !partitions::fit(shares.chain([ask.share])) {
            return Err(Wait::Partition);
        }
    }
    if settings.memory == Memory::Reserved {
        let need = ask.claim.unwrap_or(settings.preconditions.min_free).plus(settings.preconditions.margin);
        let free = dev.spec.capacity.minus(claimed);
        let half = Bytes(dev.spec.capacity.0 / 2);
        if need > free || (ask.half_empty && free < half) {
            return Err(match ask.half_empty && half > need {
                true => lacks(settings, dev, half, MemoryRule::HalfEmpty, free),
                false => lacks(settings, dev, need, MemoryRule::of(ask), free),
            });
        }
    }
    if !settings.policy.predicts() {
        return Ok(Progress::UNKNOWN);
    }
    let Scratch { jobs, shares, protected, claims, after, companies } = scratch;
    shares.clear();
    shares.extend(residents.clone().map(|resident| resident.share));
    shares.push(ask.share);
    jobs.clear();
    jobs.extend(residents.clone().map(Resident::neighbour));
    jobs.push(Neighbour { program: ask.program, activity: ask.activity });
    protected.clear();
    claims.clear();
    if settings.policy.rules().device_use() == DeviceUse::Sliced {
        claims.extend(residents.clone().map(|resident| resident.claim));
        claims.push(ask.claim.unwrap_or(dev.spec.capacity));
    }
    let basis = residents.clone().map(|resident| resident.basis).fold(ask.basis, Basis::max);
    protected.extend(residents.map(|resident| resident.priority > ask.priority));
    let predictor = &dev.predictor;
    settings.policy.rules().judge(&mut Company {
        settings,
        predictor,
        outside: dev.outside.as_ref(),
        jobs,
        shares,
        protected,
        host,
        claims,
        capacity: dev.spec.capacity,
        device: dev.spec.id.0,
        basis,
        after,
        companies,
    })
}

impl MemoryRule {
    fn of(ask: &Ask) -> Self {
        if ask.open || ask.claim.is_none() { Self::MinFree } else { Self::Need }
    }
}

/// A device that lacks memory.
fn lacks(settings: &Settings, dev: &Dev, need: Bytes, rule: MemoryRule, free: Bytes) -> Wait {
    Wait::Memory { need, rule, free, accounting: settings.memory, device: dev.spec.id }
}

/// Checks that the job may be started on the device now.
pub(crate) fn admits(
    settings: &Settings,
    dev: &Dev,
    ask: &Ask,
    host: &HostEffect,
    now: Millis,
    scratch: &mut Scratch,
) -> Result<Progress, Wait> {
    if !dev.usable() || !eligible(dev, ask) {
        return Err(Wait::NoDevice);
    }
    let progress = joins(settings, dev, dev.residents.iter(), ask, host, scratch)?;
    if dev.residents.is_empty() {
        // What unmanaged processes hold counts also on a device without jobs.
        let free = dev.spec.capacity.minus(dev.foreign);
        return match ask.claim {
            Some(need) if settings.memory != Memory::Blind && need > free => {
                Err(lacks(settings, dev, need, MemoryRule::of(ask), free))
            }
            _ => Ok(progress),
        };
    }
    let conditions = &settings.preconditions;
    if settings.memory == Memory::Observed {
        if now < dev.settled || dev.residents.iter().any(|resident| resident.launching) {
            return Err(Wait::Settling);
        }
        let free = dev.spec.capacity.minus(dev.seen.used);
        let need = ask.claim.map_or(conditions.min_free, |claim| claim.plus(conditions.margin));
        if need > free {
            return Err(lacks(settings, dev, need, MemoryRule::of(ask), free));
        }
    }
    match conditions.smact {
        // What was seen is of the time before.
        Some(_) if dev.residents.iter().any(|resident| resident.launching) => Err(Wait::Settling),
        Some(limit) => is_calm(conditions, &dev.seen, limit).map(|()| progress),
        None => Ok(progress),
    }
}

/// The part of a window without which nothing is known of a device.
const MIN_PART: u64 = 9;

/// Checks that a device with jobs is calm enough for another one: by the mean of its window, and before that is over by its
/// highest sample.
fn is_calm(conditions: &Preconditions, seen: &Observation, limit: Permille) -> Result<(), Wait> {
    let Some(mean) = seen.smact else { return Err(Wait::Unmeasured) };
    let least = Millis(conditions.window.0 / MIN_PART);
    if seen.window < least {
        return Err(Wait::Window { least });
    }
    let (decisive, samples) = match seen.window < conditions.window {
        true => (seen.peak.unwrap_or(mean).max(mean), Samples::Highest),
        false => (mean, Samples::Mean),
    };
    // What is not measured does not make a busy device a cool one.
    let reaches = |part: Option<Permille>, hot: Permille| part.is_none_or(|part| part >= hot);
    let is_hot = |hot: Hot| reaches(seen.smocc, hot.smocc) || reaches(seen.drama, hot.drama);
    match decisive > limit && conditions.hot.is_none_or(is_hot) {
        true => Err(Wait::Busy { smact: decisive, samples, limit }),
        false => Ok(()),
    }
}

/// Ranks a device that would do. `turn` is the device's distance from the one whose turn it is.
pub(crate) fn rank(
    settings: &Settings,
    dev: &Dev,
    ask: &Ask,
    progress: Progress,
    turn: usize,
    idle_beside: usize,
) -> Fit {
    let free = match settings.memory {
        Memory::Reserved => dev.spec.capacity.minus(dev.occupied()),
        Memory::Observed | Memory::Blind => dev.spec.capacity.minus(dev.seen.used),
    };
    let candidate = Candidate {
        id: i64::from(dev.spec.id.0),
        jobs: dev.residents.len(),
        smact: dev.seen.smact,
        free,
        outside: dev.foreign,
        left: free.minus(ask.claim.unwrap_or(Bytes::ZERO)),
        progress,
        turn,
        idle_beside,
    };
    settings.policy.rules().rank(&candidate)
}
