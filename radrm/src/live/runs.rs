//! The runs of this user, polled regularly. Segments are copied from, never written and never mapped.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use radrm_limits::jobs::{self, Job};
use radrm_limits::scopes::user_name;
use radrm_os::Process;
use radrm_os::nvml::{Inventory, Nvml, NvmlSource};
use radrm_telemetry::{GpuInfo, KIND_COUNT, ProcessSnapshot, monotonic_ns};

use super::LiveError;
use super::activity::{Activity, profile_of};
use super::history::{History, Poll};
use super::is_file;
use super::reading::{GpuReading, ProcessReading, Reading, by_kind};
use super::steps::Steps;

/// The daemon's name for the job of a process.
const JOB_VARIABLE: &str = "RADRM_JOB";

/// The GPUs of a job, as radrmd names them.
const VISIBLE_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// A run, by its launcher and the time at which that made its segment.
type Key = (u32, u64);

/// All runs that were seen at the last poll.
#[derive(Default)]
pub(super) struct Runs {
    known: HashMap<Key, Known>,
    now: Vec<(Key, Reading)>,
    /// The node's GPUs, once NVML was asked.
    inventory: Option<Inventory>,
}

/// State of a run that is kept from poll to poll.
#[derive(Default)]
struct Known {
    history: History,
    activity: Activity,
    steps: Steps,
    /// Launches and refusals of processes by slot and generation: a slot is given to another process later.
    counts: BTreeMap<(usize, u32), Counts>,
    /// The sum of those whose slot has another process now.
    gone: Counts,
    /// Highest device memory by GPU, over all polls.
    peaks: BTreeMap<u8, u64>,
    job: Option<Option<u32>>,
    /// The GPUs that radrmd gave it.
    visible: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    launches: u64,
    refused: u64,
}

impl Counts {
    fn and(self, other: Counts) -> Counts {
        Counts {
            launches: self.launches.saturating_add(other.launches),
            refused: self.refused.saturating_add(other.refused),
        }
    }
}

impl Runs {
    /// Polls every run; `now` counts from an origin that all polls share.
    pub(super) fn poll(&mut self, now: Duration) {
        let own = rustix::process::getuid();
        let jobs = jobs::all().into_iter().filter(|job| own.is_root() || job.uid == own.as_raw());
        let mut known = HashMap::new();
        self.now.clear();
        let inventory = self.inventory.get_or_insert_with(|| {
            let nvml = Nvml::open(&NvmlSource::System);
            nvml.and_then(|nvml| nvml.inventory()).unwrap_or_default()
        });
        for job in jobs {
            let Ok(info) = job.segment.job() else { continue };
            let key = (job.launcher, info.created_mono_ns);
            let mut run = self.known.remove(&key).unwrap_or_default();
            if let Some(reading) = run.read(&job, info.created_mono_ns, now, inventory) {
                self.now.push((key, reading));
            }
            known.insert(key, run);
        }
        self.known = known;
        self.now.sort_by_key(|(key, _)| *key);
    }

    /// The runs as they were at the last poll, or the one that was asked for.
    pub(super) fn readings(&self, only: Option<&str>) -> Result<Vec<Reading>, LiveError> {
        let all = || self.now.iter().map(|(_, reading)| reading.clone());
        match only {
            None => Ok(all().collect()),
            Some(file) if is_file(file) => {
                let written = std::fs::metadata(Path::new(file)).ok().map(|meta| (meta.dev(), meta.ino()));
                let writes = |reading: &Reading| {
                    let recorder = reading.recorder.map(Process);
                    written.is_some() && recorder.and_then(profile_of).map(|profile| profile.id) == written
                };
                let found: Vec<_> = all().filter(writes).collect();
                if found.is_empty() { Err(LiveError::Ended(file.to_owned())) } else { Ok(found) }
            }
            Some(number) => {
                let number: u32 = number.parse().unwrap_or(0);
                let by = |is: fn(&Reading, u32) -> bool| all().find(|reading| is(reading, number));
                let found = by(|reading, number| {
                    reading.run == number || reading.processes.iter().any(|process| process.pid == number)
                });
                let found = found.or_else(|| by(|reading, number| reading.job == Some(number)));
                found.map(|reading| vec![reading]).ok_or(LiveError::NoRun(number))
            }
        }
    }
}

impl Known {
    fn read(
        &mut self,
        job: &Job,
        created_mono_ns: u64,
        now: Duration,
        inventory: &Inventory,
    ) -> Option<Reading> {
        let number = self.number(job);
        let processes = job.segment.processes().ok()?;
        let gpus = job.segment.gpus().ok()?;
        let quotas = job.segment.quotas().unwrap_or_default();
        let total = self.count(&processes);
        let running: Vec<&ProcessSnapshot> =
            processes.iter().filter(|process| process.is_running()).collect();
        let gpus: Vec<GpuReading> = gpus
            .iter()
            .map(|gpu| {
                let index = gpu.index.number();
                let quota = quotas.iter().find(|quota| quota.uuid == gpu.uuid);
                let reading = on_gpu(index, &processes, &running);
                let peak = self.peaks.entry(index).or_default();
                *peak = (*peak).max(reading.peak_bytes).max(reading.held_bytes);
                GpuReading {
                    index: on_node(gpu, inventory, self.visible.as_deref()),
                    name: gpu.name.clone(),
                    total_bytes: gpu.total_bytes,
                    peak_bytes: *peak,
                    quota_bytes: quota.and_then(|quota| quota.limit),
                    ..reading
                }
            })
            .filter(|gpu| gpu.peak_bytes > 0 || gpu.refused > 0 || !gpu.kinds.is_empty())
            .collect();
        let held = gpus.iter().fold(0, |sum: u64, gpu| sum.saturating_add(gpu.held_bytes));
        self.steps.poll(&job.segment, &running, now);
        let segment_ns = monotonic_ns().saturating_sub(created_mono_ns);
        self.history.add(Poll { at: now, held, launches: total.launches });
        let shares = self.activity.shares(job.recorder.unwrap_or(Process(job.launcher)), now);
        Some(Reading {
            run: job.launcher,
            job: number,
            user: user_name(job.uid).unwrap_or_else(|| job.uid.to_string()),
            uid: job.uid,
            command: job.command.clone(),
            launcher_running: job.launched,
            recorder: job.recorder.map(|recorder| recorder.0),
            seconds: segment_ns as f64 / 1e9,
            gpus,
            processes: running.iter().map(|process| of_process(process)).collect(),
            launches: total.launches,
            launches_per_second: self.history.launch_rate(),
            growth_bytes_per_second: self.history.growth(),
            steps: self.steps.count(),
            steps_source: self.steps.source(),
            steps_per_second: self.steps.per_second(segment_ns),
            refused: total.refused,
            sm_active_share: shares.sm_active,
            utilization_share: shares.utilization,
            held_before: self.history.held(usize::MAX),
            launched_before: self.history.launch_rates(usize::MAX),
        })
    }

    /// Number of the job that radrmd started, if it is one; also keeps which GPUs radrmd gave it.
    fn number(&mut self, job: &Job) -> Option<u32> {
        if self.job.is_none() {
            // A program may have overwritten its own with a title; radrmd started the launcher with it too.
            let variable = |name| {
                let found = job.variable(name).or_else(|| Process(job.launcher).variable(name))?;
                found.into_string().ok()
            };
            let number = variable(JOB_VARIABLE).and_then(|text| text.parse().ok());
            // A program may narrow its own.
            let visible = || Process(job.launcher).variable(VISIBLE_VARIABLE)?.into_string().ok();
            self.visible = number.and_then(|_: u32| visible());
            self.job = Some(number);
        }
        self.job.flatten()
    }

    /// Launches and refusals of all processes so far, also of those that are gone.
    fn count(&mut self, processes: &[ProcessSnapshot]) -> Counts {
        let mut now = BTreeMap::new();
        for process in processes {
            let counts = Counts {
                launches: process.launches().saturating_add(process.graph_launches),
                refused: process.failures,
            };
            now.insert((process.slot.slot, process.slot.generation), counts);
        }
        for (key, counts) in std::mem::replace(&mut self.counts, now) {
            if !self.counts.contains_key(&key) {
                self.gone = self.gone.and(counts);
            }
        }
        self.counts.values().fold(self.gone, |sum, counts| sum.and(*counts))
    }
}

/// Number of a GPU on the node: that of NVML, or the one by which radrmd gave it to the job (`visible`); where neither is
/// known, that within the job.
fn on_node(gpu: &GpuInfo, inventory: &Inventory, visible: Option<&str>) -> u8 {
    let within = gpu.index.number();
    let listed = inventory.of_bytes(&gpu.uuid).and_then(|gpu| u8::try_from(gpu.index?).ok());
    let given = || visible?.split(',').nth(usize::from(within))?.trim().parse().ok();
    listed.or_else(given).unwrap_or(within)
}

fn on_gpu(index: u8, all: &[ProcessSnapshot], running: &[&ProcessSnapshot]) -> GpuReading {
    let on = |process: &ProcessSnapshot| {
        process.accounts.iter().find(|account| account.gpu.number() == index).cloned()
    };
    let mut kinds = [0u64; KIND_COUNT];
    let mut held = 0u64;
    for account in running.iter().filter_map(|process| on(process)) {
        held = held.saturating_add(account.total_now);
        for (sum, figures) in kinds.iter_mut().zip(&account.kinds) {
            *sum = sum.saturating_add(figures.now);
        }
    }
    let accounts: Vec<_> = all.iter().filter_map(on).collect();
    let used = accounts.iter().filter(|account| account.peak.total > 0).count();
    GpuReading {
        index,
        held_bytes: held,
        peak_bytes: accounts.iter().map(|account| account.peak.total).max().unwrap_or(0),
        peak_exact: used <= 1,
        kinds: by_kind(kinds),
        refused: accounts.iter().fold(0, |sum, account| sum.saturating_add(account.failed)),
        ..GpuReading::default()
    }
}

fn of_process(process: &ProcessSnapshot) -> ProcessReading {
    let sum = |of: fn(&radrm_telemetry::Account) -> u64| {
        process.accounts.iter().map(of).fold(0, u64::saturating_add)
    };
    ProcessReading {
        pid: process.slot.shown_pid(),
        command: if process.cmdline.is_empty() { process.exe.clone() } else { process.cmdline.join(" ") },
        held_bytes: sum(|account| account.total_now),
        peak_bytes: process.accounts.iter().map(|account| account.peak.total).max().unwrap_or(0),
        launches: process.launches().saturating_add(process.graph_launches),
        refused: process.failures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_os::nvml::Gpu;
    use radrm_telemetry::{GpuIndex, Kind, KindFigures, Peak, SlotInfo};

    #[test]
    fn a_gpu_has_its_number_on_the_node_and_not_that_within_its_job() {
        let uuid = [7; 16];
        let gpu = GpuInfo {
            index: GpuIndex::from_number(0).expect("the first"),
            uuid,
            name: String::new(),
            total_bytes: 0,
            pci: String::new(),
        };
        let listed = Gpu { index: Some(3), bytes: uuid, ..Gpu::default() };
        let nvml = Inventory { gpus: vec![listed], ..Inventory::default() };
        assert_eq!(on_node(&gpu, &nvml, Some("2")), 3);
        let none = Inventory::default();
        assert_eq!(on_node(&gpu, &none, Some("2,5")), 2);
        assert_eq!(on_node(&gpu, &none, Some("GPU-07070707")), 0);
        assert_eq!(on_node(&gpu, &none, None), 0);
    }

    fn process(slot: usize, generation: u32, launches: u64, held: u64, peak: u64) -> ProcessSnapshot {
        let mut kinds = [KindFigures::default(); KIND_COUNT];
        kinds[Kind::Device.index()].now = held;
        let account = radrm_telemetry::Account {
            gpu: GpuIndex::from_number(0).expect("the first"),
            total_now: held,
            peak: Peak { total: peak, ..Peak::default() },
            kinds,
            failed: 1,
            granted_since_refusal: None,
            contexts: 1,
            timed_span_ns: 0,
        };
        ProcessSnapshot {
            slot: SlotInfo { slot, generation, pid: Some(7), ..SlotInfo::default() },
            exe: "/bin/x".into(),
            accounts: vec![account],
            graph_launches: launches,
            failures: 2,
            ..ProcessSnapshot::default()
        }
    }

    #[test]
    fn what_a_gone_process_did_still_counts() {
        let mut known = Known::default();
        assert_eq!(known.count(&[process(0, 1, 100, 0, 0)]), Counts { launches: 100, refused: 2 });
        // The slot has the next process.
        assert_eq!(known.count(&[process(0, 2, 5, 0, 0)]), Counts { launches: 105, refused: 4 });
        assert_eq!(known.count(&[process(0, 2, 9, 0, 0)]), Counts { launches: 109, refused: 4 });
    }

    #[test]
    fn processes_add_up_and_their_peak_is_a_bound() {
        let both = [process(0, 1, 0, 10, 50), process(1, 1, 0, 20, 30)];
        let running: Vec<_> = both.iter().collect();
        let gpu = on_gpu(0, &both, &running);
        assert_eq!((gpu.held_bytes, gpu.peak_bytes, gpu.peak_exact, gpu.refused), (30, 50, false, 2));
        assert_eq!(gpu.kinds, BTreeMap::from([("device", 30)]));
        let one = on_gpu(0, &both[..1], &running[..1]);
        assert!(one.peak_exact && one.peak_bytes == 50);
        assert_eq!(
            on_gpu(1, &both, &running),
            GpuReading { index: 1, peak_exact: true, ..GpuReading::default() }
        );
    }
}
