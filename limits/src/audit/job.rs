//! A job's own audit: processes of the job that hold GPU memory beside its limit, for the job's report.
//!
//! NVML can hang, so it is asked on a thread of its own.

use std::collections::HashMap;
use std::iter::successors;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use radrm_os::Process;
use radrm_os::host::is_in_first_pid_namespace;
use radrm_os::nvml::{Gpu, Nvml, NvmlSource};
use radrm_telemetry::{Segment, monotonic_ns};

use super::devices;
use super::judge::{Entry, Expected, Finding, judge};
use super::known::{self, Known, MAX_ANCESTORS};
use super::why::{self, Reason};
use crate::start::QUOTA_VARIABLE;

/// Times in a row that a counted process must hold more than it may: the two figures are not of the same moment.
const TIMES: u32 = 2;

/// Shortest and longest time between two polls of the counted processes: a poll reads their figures.
const COUNTED_GAPS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Shortest and longest time between two polls of NVML.
const GAPS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// The job that is audited.
#[derive(Debug)]
pub struct Audited {
    /// Its segment.
    pub segment: Segment,
    /// Value of `RADRM_SEGMENT` in its processes.
    pub path: PathBuf,
    /// The process that all of its processes descend from, or that attends them.
    pub launcher: Process,
    /// Its NVML.
    pub source: NvmlSource,
    /// Its GPUs are emulated.
    pub is_emulated: bool,
}

/// A process of the job that holds memory which is not counted, or that cannot join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutsideProcess {
    /// Process id as NVML lists it.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// Reason that it is not counted.
    pub reason: Reason,
    /// It gets no memory: it has a limit that it cannot join.
    pub is_refused: bool,
    /// Time at which it was first seen, ns of segment time.
    pub first_ns: u64,
    /// Time at which it was last seen, ns of segment time.
    pub last_ns: u64,
    /// GPUs, each with the most that it held there beyond what is counted, bytes.
    pub gpus: Vec<(Gpu, u64)>,
}

/// The audit while its job runs.
#[derive(Debug)]
pub struct JobAudit {
    stop: Sender<()>,
    found: Receiver<Vec<OutsideProcess>>,
}

impl JobAudit {
    /// Begins; `None` where NVML's process ids are not those of this process.
    #[must_use]
    pub fn start(job: Audited) -> Option<Self> {
        if !job.is_emulated && !is_in_first_pid_namespace() {
            return None;
        }
        let ((stop, stopped), (to, found)) = (channel(), channel());
        let work = move || run(job, &stopped, &to);
        thread::Builder::new().name("radrm-audit".into()).spawn(work).ok()?;
        Some(Self { stop, found })
    }

    /// Processes found so far, if that is news.
    pub fn news(&mut self) -> Option<Vec<OutsideProcess>> {
        self.found.try_iter().last()
    }

    /// Ends it, for which a poll under way may take so long. Gives all that was found, if there is anything.
    #[must_use]
    pub fn finish(self, at_most: Duration) -> Option<Vec<OutsideProcess>> {
        let Self { stop, found } = self;
        drop(stop);
        let end = Instant::now() + at_most;
        let mut last = None;
        while let Ok(news) = found.recv_timeout(end.saturating_duration_since(Instant::now())) {
            last = Some(news);
        }
        last
    }
}

/// The thread. Ends when the other side is gone.
fn run(job: Audited, stopped: &Receiver<()>, found: &Sender<Vec<OutsideProcess>>) {
    let Ok(nvml) = Nvml::open(&job.source) else { return };
    let began = Instant::now();
    let mut watch = OwnProcesses::of(job);
    loop {
        if let Ok(listed) = devices::list_of(&nvml) {
            let entries = listed.devices.into_iter().flat_map(|device| {
                let (gpu, driver) = (device.gpu, listed.driver.clone());
                device.processes.into_iter().map(move |held| Entry {
                    process: Process(held.pid),
                    gpu: gpu.clone(),
                    driver: driver.clone(),
                    held: held.used,
                })
            });
            watch.poll(entries.collect(), began.elapsed());
        }
        let gap = (began.elapsed() / 20).clamp(GAPS.0, GAPS.1);
        let ended = !matches!(stopped.recv_timeout(gap), Err(RecvTimeoutError::Timeout));
        if watch.has_news(ended) && found.send(watch.found()).is_err() || ended {
            return;
        }
    }
}

/// Finding on what a counted process holds beyond its count, if its loaded files show how: a figure alone may be of
/// another moment.
fn beyond(entry: Entry, known: &Known, expected: &Expected) -> Option<Finding> {
    // It has a slot, and may be about to end.
    known.of(entry.process, &entry.gpu.bytes)?;
    let finding = judge(entry, known, expected);
    finding.reason.as_ref().is_some_and(|reason| *reason != Reason::More).then_some(finding)
}

/// Returns true if a process has not begun to end: then it has no memory any more, nor an environment.
fn is_whole(process: Process) -> bool {
    // What may not be read belongs to another user.
    process.maps().map_or_else(|| process.exists() && !is_ours(process), |maps| !maps.is_empty())
}

/// Returns true if the shim of a process refuses memory that it cannot count.
fn has_quota(process: Process) -> bool {
    process.variable(QUOTA_VARIABLE).is_some_and(|value| !value.is_empty())
}

fn is_ours(process: Process) -> bool {
    process.uid() == Some(rustix::process::geteuid().as_raw())
}

/// Process id and start time.
type Name = (u32, u64);

/// The processes on GPUs that belong to one job.
struct OwnProcesses {
    job: Audited,
    origin: u64,
    expected: Expected,
    /// True for a process that belongs to the job.
    own: HashMap<Name, bool>,
    /// In how many polls in a row a counted process held more than it may.
    beyond: HashMap<Name, u32>,
    /// Time of the next poll of counted processes, since the audit's start.
    next_counted: Duration,
    found: Vec<(Name, OutsideProcess)>,
    /// Number of them that were sent.
    sent: usize,
}

impl OwnProcesses {
    fn of(job: Audited) -> Self {
        let origin = job.segment.job().map_or_else(|_| monotonic_ns(), |info| info.created_mono_ns);
        let expected = Expected::configured(job.is_emulated, None);
        let (own, beyond) = Default::default();
        let next_counted = Duration::ZERO;
        Self { job, origin, expected, own, beyond, next_counted, found: Vec::new(), sent: 0 }
    }

    /// Judges what NVML lists now. `since`: how long the job runs.
    fn poll(&mut self, entries: Vec<Entry>, since: Duration) {
        // After the list: a process joins before it holds anything.
        let slots = self.job.segment.slots().unwrap_or_default();
        let is_due = since >= self.next_counted;
        let known = if is_due {
            self.next_counted = since + (since / 10).clamp(COUNTED_GAPS.0, COUNTED_GAPS.1);
            known::of_segment(&self.job.segment, self.job.launcher.0)
        } else {
            Known::below(self.job.launcher.0)
        };
        let now = monotonic_ns().saturating_sub(self.origin);
        let mut suspects = HashMap::new();
        for entry in entries {
            let process = entry.process;
            let Some(name) = process.start().map(|start| (process.0, start)) else { continue };
            if why::is_service(process) || !self.is_own(name) {
                continue;
            }
            if known::has_slot(&slots, process) {
                if is_due && let Some(finding) = beyond(entry, &known, &self.expected) {
                    let times = self.beyond.get(&name).copied().unwrap_or(0) + 1;
                    suspects.insert(name, times);
                    if times >= TIMES {
                        self.note(name, finding, has_quota(process), now);
                    }
                }
            } else if self.is_found(name) {
                let held = entry.held.unwrap_or(0);
                self.update(name, &entry.gpu, held, now);
            } else {
                let is_limited = has_quota(process);
                let finding = judge(entry, &known, &self.expected);
                // Of one that ended meanwhile nothing that was missing counts. What its shim said does.
                if matches!(finding.reason, Some(Reason::Unjoined(_)))
                    || finding.reason.is_some() && is_whole(process)
                {
                    self.note(name, finding, is_limited, now);
                }
            }
        }
        if is_due {
            self.beyond = suspects;
        }
    }

    /// Returns true if a process belongs to the job: by its ancestors, or by its environment. Once it does, it does
    /// for good: its parents may end.
    fn is_own(&mut self, name: Name) -> bool {
        if let Some(own) = self.own.get(&name) {
            return *own;
        }
        let process = Process(name.0);
        let mut ancestors = successors(process.parent(), |process| process.parent()).take(MAX_ANCESTORS);
        let own = ancestors.any(|ancestor| ancestor == self.job.launcher)
            || process.variable("RADRM_SEGMENT").is_some_and(|path| self.job.path.as_os_str() == path);
        self.own.insert(name, own);
        own
    }

    fn is_found(&self, name: Name) -> bool {
        self.found.iter().any(|(other, _)| *other == name)
    }

    fn note(&mut self, name: Name, finding: Finding, is_limited: bool, now: u64) {
        let Finding { command, gpu, unexplained, reason: Some(reason), .. } = finding else { return };
        if !self.is_found(name) {
            let is_refused = matches!(reason, Reason::Unjoined(_)) && is_limited;
            let (pid, first_ns, last_ns, gpus) = (name.0, now, now, Vec::new());
            let process = OutsideProcess { pid, command, reason, is_refused, first_ns, last_ns, gpus };
            self.found.push((name, process));
        }
        self.update(name, &gpu, unexplained, now);
    }

    fn update(&mut self, name: Name, gpu: &Gpu, held: u64, now: u64) {
        let Some((_, process)) = self.found.iter_mut().find(|(other, _)| *other == name) else { return };
        process.last_ns = now;
        match process.gpus.iter_mut().find(|(known, _)| known.uuid == gpu.uuid) {
            Some((_, peak)) => *peak = held.max(*peak),
            None => process.gpus.push((gpu.clone(), held)),
        }
    }

    /// Returns true if there is a process that was not sent yet, or at the end any.
    fn has_news(&mut self, ended: bool) -> bool {
        let news = self.found.len() > self.sent || ended && !self.found.is_empty();
        self.sent = self.found.len();
        news
    }

    fn found(&self) -> Vec<OutsideProcess> {
        self.found.iter().map(|(_, process)| process.clone()).collect()
    }
}
