//! Jobs, GPUs and figures as they are shown.

use std::path::{Path, PathBuf};

use radrm_base::signal;
use radrm_collector::MemoryMeter;
use radrm_protocol::wire::{Asked, GpuFence, GpuJobRow, GpuRow, JobRow, NodeRow};
use radrm_scheduler_core::{Evidence, JobId, JobState, JobView, Outcome, Permille, Phase, Reason, Verdict};
use radrm_text::Untrusted;

use super::Engine;
use crate::gpus::row;
use crate::metrics::{Figures, JobMemory, Spans};
use crate::peer::Peer;
use crate::store::{Entry, Stage};
use crate::suspend::Step;

/// Path of a job's output.
pub(super) fn output(entry: &Entry, folder: &Path) -> PathBuf {
    entry.spec.output.clone().unwrap_or_else(|| folder.join("output"))
}

fn text_of(path: &Path) -> Untrusted {
    path.display().to_string().into()
}

/// End of a job, in words.
pub(super) fn end_words(verdict: &Verdict, reason: &Reason) -> String {
    match verdict {
        // Why it is not tried again.
        Verdict::Ended(Outcome::OutOfMemory { .. })
            if matches!(reason, Reason::TooManyAttempts { .. } | Reason::Impossible { .. }) =>
        {
            reason.to_string()
        }
        Verdict::Ended(outcome) => outcome_words(outcome),
        Verdict::Cancelled if matches!(reason, Reason::DependencyFailed { .. }) => {
            format!("cancelled: {reason}")
        }
        Verdict::Cancelled => "cancelled".to_owned(),
        Verdict::TimedOut if matches!(reason, Reason::StartTimeout { .. }) => format!("ended: {reason}"),
        Verdict::TimedOut => "ended by its time limit".to_owned(),
        Verdict::Impossible | Verdict::Rejected => reason.to_string(),
    }
}

fn outcome_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Exited { code: 0 } => "succeeded".to_owned(),
        Outcome::Exited { code } => format!("exit code {code}"),
        Outcome::Signalled { signal } => format!("killed by {}", signal::name(*signal)),
        Outcome::OutOfMemory { evidence: Evidence::Limit, .. } => {
            "out of GPU memory by a limit of its user or group, which no other GPU raises".to_owned()
        }
        Outcome::OutOfMemory { seen, .. } => format!("out of GPU memory at {seen}"),
        Outcome::HostOutOfMemory { limit, .. } => {
            format!("out of host memory: its processes reached {limit} (--mem), and the kernel killed one")
        }
        Outcome::NotStarted => "could not be started".to_owned(),
        Outcome::Lost => "lost with its device or machine".to_owned(),
    }
}

fn exit_code(verdict: &Verdict) -> Option<i32> {
    match verdict {
        Verdict::Ended(
            Outcome::Exited { code }
            | Outcome::OutOfMemory { code, .. }
            | Outcome::HostOutOfMemory { code, .. },
        ) => Some(*code),
        Verdict::Ended(Outcome::Signalled { signal }) => Some(128 + signal),
        _ => None,
    }
}

/// Host memory in bytes.
pub(super) fn host_memory() -> u64 {
    radrm_os::host::memory().unwrap_or(u64::MAX)
}

/// The most bytes of a command that a list shows.
const SHOWN: usize = 200;

/// The words of a command, the last one cut if they are long.
fn beginning(command: &[String]) -> Vec<Untrusted> {
    let mut left = SHOWN;
    let mut words = Vec::new();
    for word in command {
        if word.len() < left {
            left -= word.len() + 1;
            words.push(Untrusted::from(word.as_str()));
            continue;
        }
        let at = word.floor_char_boundary(left);
        words.push(if at == word.len() {
            word.as_str().into()
        } else {
            format!("{}…", &word[..at]).into()
        });
        if words.len() < command.len() && at == word.len() {
            words.push("…".into());
        }
        break;
    }
    words
}

/// Relation of a running job to targets, its own or that of one beside it, in words.
fn held_or_standing(view: &JobView) -> Option<String> {
    if let Some(standing) = &view.standing {
        return Some(standing.to_string());
    }
    let target = view.held_for.filter(|_| view.phase == Phase::Running)?;
    let share = view.budget.map_or(Permille::WHOLE, |budget| budget.share);
    Some(format!("launches in {share} of the time: job {target} is to keep its target"))
}

/// Time until a running job's limit ends it, ms.
fn time_left(view: &JobView) -> Option<u64> {
    let runs = matches!(view.phase, Phase::Running | Phase::Stopping | Phase::Suspending);
    view.job.time_limit.filter(|_| runs).map(|limit| limit.minus(view.ran).0)
}

impl Engine {
    /// Time until the expected start of a job that waits, ms, if that is known.
    fn starts_in(&self, entry: &Entry) -> Option<u64> {
        let at = self.core.state.expected_start(JobId(entry.id)).filter(|_| entry.stage == Stage::Waiting)?;
        Some(at.minus(self.now.at).0)
    }

    /// A job with its whole command.
    pub(super) fn row(&self, entry: &Entry) -> JobRow {
        JobRow {
            command: entry.spec.command.iter().map(|word| word.as_str().into()).collect(),
            need_from: Self::need_from(entry),
            ..self.row_of_list(entry)
        }
    }

    /// Source of the need of a job that is not over.
    fn need_from(entry: &Entry) -> Option<String> {
        if entry.spec.gpus == 0 || entry.stage == Stage::Ended {
            return None;
        }
        let need = entry.needs.as_ref().and_then(|needs| needs.memory.as_ref());
        let unknown = || "unknown: it gets GPUs of its own until its use was measured".to_owned();
        Some(need.map_or_else(unknown, ToString::to_string))
    }

    /// A job as lists show it.
    pub(super) fn row_of_list(&self, entry: &Entry) -> JobRow {
        let view = self.core.state.job(JobId(entry.id));
        let live = self.jobs.live(entry.id);
        let suspended = entry.stage == Stage::Running && entry.suspension.step == Step::Suspended;
        let wait = view.as_ref().and_then(|view| view.wait.as_ref());
        let why = match wait {
            Some(wait) if entry.stage == Stage::Waiting || suspended => self.why_it_waits(entry.id, wait),
            _ => view.as_ref().and_then(held_or_standing).unwrap_or_else(|| entry.why.clone()),
        };
        let used = live.map_or(0, |live| live.observed.used.values().sum());
        let peak = entry.peak.max(live.map(|live| live.observed.peak).filter(|peak| *peak > 0));
        let running = entry.started_ms.filter(|_| entry.stage == Stage::Running);
        let folder = self.paths.folder(entry.id);
        let name = match &entry.spec.name {
            name if name.is_empty() => {
                let word = entry.spec.command.first().map(Path::new);
                word.and_then(Path::file_name).map(|word| word.to_string_lossy().into_owned().into())
            }
            name => Some(name.clone()),
        };
        JobRow {
            job: entry.id,
            name: name.unwrap_or_default(),
            user: entry.user.clone(),
            uid: entry.uid,
            state: self.state_of(entry),
            priority: entry.spec.priority,
            gpus: entry.spec.gpus,
            devices: entry.devices.clone(),
            emulated: match entry.attempt {
                0 => self.node.gpus().emulated.clone().filter(|_| entry.spec.gpus > 0),
                // What it ran on stays what it was when the node has other GPUs.
                _ => entry.emulated.clone(),
            },
            reserved: view.as_ref().and_then(|view| view.reserved).map(|bytes| bytes.0),
            used,
            peak,
            attempts: entry.attempt,
            ooms: entry.ooms,
            refused: entry.refused,
            submitted_ms: entry.submitted_ms,
            started_ms: entry.first_start_ms,
            ended_ms: entry.ended_ms,
            ran_ms: entry.ran_ms + running.map_or(0, |since| self.now.at.0.saturating_sub(since)),
            time_limit_ms: entry.spec.time_limit_ms,
            left_ms: view.as_ref().and_then(time_left),
            starts_in_ms: self.starts_in(entry),
            exit_code: entry.verdict.as_ref().and_then(exit_code),
            verdict: entry.verdict,
            end: (entry.stage == Stage::Ended).then(|| entry.why.as_str().into()),
            why: why.into(),
            command: beginning(&entry.spec.command),
            cwd: text_of(&entry.spec.cwd),
            output: text_of(&output(entry, &folder)),
            error: entry.spec.error.as_deref().map(text_of),
            profile: (entry.attempt > 0).then(|| text_of(&folder.join(format!("{}.radrm", entry.attempt)))),
            pid: live.and_then(|live| live.program).map(|who| who.pid),
            activity: entry.activity,
            task: super::arrays::row(entry),
            tasks: String::new(),
            host_memory: live.map_or(0, |live| live.host.resident),
            cpu_milli: live.and_then(|live| live.host.cpu_milli),
            memory_traffic: live.and_then(|live| live.host.memory_traffic),
            memory_stalled: live.and_then(|live| live.host.memory_stalled),
            memory_origin: live.and(self.effects.memory_meter()).and_then(MemoryMeter::origin),
            idle_ms: self.idle_ms(entry),
            booked_host_memory: entry.spec.host_memory,
            booked_cpu_milli: entry.spec.cpu_milli,
            standing: view.as_ref().and_then(|view| view.standing.as_ref()).map(ToString::to_string),
            asked: Asked::of(&entry.spec, entry.needs.as_ref()),
            need_from: None,
            suspended: suspended.then(|| entry.suspension.host_bytes()),
            suspended_pids: match suspended {
                true => entry.suspension.processes.iter().map(|saved| saved.who.pid).collect(),
                false => Vec::new(),
            },
        }
    }

    pub(super) fn node(&self, peer: &Peer) -> NodeRow {
        let gpus = self.core.state.devices().filter_map(|view| {
            let gpu = self.node.gpus().list.get(view.device.id.0 as usize)?;
            let sample = self.node.samples().iter().find(|sample| sample.uuid == gpu.uuid);
            let may = |uid: u32| peer.may(uid) || !self.config.privacy;
            let shown = |job: &u64| self.jobs.entry(*job).is_some_and(|entry| may(entry.uid));
            let who = |job: &JobId| {
                let entry = self.jobs.entry(job.0).filter(|entry| may(entry.uid))?;
                let view = self.core.state.job(*job);
                let (job, user, started_ms) = (job.0, entry.user.clone(), entry.started_ms);
                Some(GpuJobRow { job, user, started_ms, left_ms: view.as_ref().and_then(time_left) })
            };
            Some(GpuRow {
                reserved: view.reserved.0,
                foreign: view.foreign.0,
                drained: view.drained,
                drain: self.node.drained().get(&gpu.uuid).cloned(),
                whole: view.whole,
                jobs: view.jobs.iter().map(|job| job.0).filter(shown).collect(),
                who: view.jobs.iter().filter_map(who).collect(),
                job_count: u32::try_from(view.jobs.len()).unwrap_or(u32::MAX),
                idle_ms: self.gpu_idle_ms(&gpu.uuid),
                kept_for: view.kept_for.map(|job| job.0).filter(shown),
                outside: self.node.outside().get(&gpu.uuid).cloned().unwrap_or_default(),
                ..row(gpu, view.device.id.0 as usize, sample)
            })
        });
        let listed = self.node.gpus().list.iter().enumerate();
        let gone = listed.filter(|(_, gpu)| self.node.is_lost(&gpu.uuid)).map(|(at, gpu)| GpuRow {
            lost: true,
            drained: self.node.drained().contains_key(&gpu.uuid),
            drain: self.node.drained().get(&gpu.uuid).cloned(),
            ..row(gpu, at, None)
        });
        let mut gpus: Vec<GpuRow> = gpus.chain(gone).collect();
        gpus.sort_by_key(|row| self.node.device(&row.uuid));
        let states = self.count_states();
        let count = |is: fn(JobState) -> bool| -> u32 {
            let jobs: u64 = states.iter().filter(|(state, _)| is(**state)).map(|(_, jobs)| jobs).sum();
            u32::try_from(jobs).unwrap_or(u32::MAX)
        };
        let audit = self.node.unmanaged().iter().filter(|found| peer.admin || found.uid == Some(peer.uid));
        NodeRow {
            host: radrm_os::host::node_name(),
            emulated: self.node.gpus().emulated.clone(),
            policy: self.config.scheduler.policy.name().to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            memory: host_memory(),
            waiting: count(|state| state == JobState::Waiting),
            running: count(JobState::is_on_gpus),
            suspended: count(|state| state == JobState::Suspended),
            suspended_bytes: self.jobs.suspended_bytes(),
            gpus,
            gpu_fence: {
                let has_groups = self.effects.has_groups();
                let gpus = self.node.gpus();
                let missing = self.jobs.lacking().map(|(_, missing)| missing).unwrap_or_default();
                GpuFence {
                    driver: has_groups && gpus.has_fence() && missing.driver.is_none(),
                    files: has_groups && !gpus.files.is_empty() && missing.files.is_none(),
                }
            },
            mps: self.mps.clone(),
            unmetered: self.node.unmetered().cloned(),
            host_limits: self.effects.host_limits(),
            memory_bandwidth: Some(self.config.memory_bandwidth).filter(|bytes| *bytes > 0),
            memory_origin: self.effects.memory_meter().and_then(MemoryMeter::origin),
            memory_problem: self.effects.memory_meter().and_then(MemoryMeter::problem),
            reservations: self.reservation_rows(peer),
            audit: audit.map(|found| found.words.as_str().into()).collect(),
            issues: {
                let issues = self.health.issues().chain(&self.node.gpus().trouble);
                issues.map(|issue| issue.as_str().into()).collect()
            },
        }
    }

    /// Figures that Prometheus reads.
    pub(super) fn figures(&self) -> Figures {
        let counters = self.health.counters;
        Figures {
            jobs: self.count_states().into_iter().filter(|(state, _)| !state.is_ended()).collect(),
            suspended_bytes: self.jobs.suspended_bytes(),
            unaccounted_processes: self.node.unmanaged().len() as u64,
            health_issues: self.health.issues().len() as u64,
            counters: vec![
                ("radrm_jobs_submitted", "Jobs submitted since the daemon started.", counters.submitted),
                ("radrm_jobs_started", "Attempts started.", counters.started),
                ("radrm_jobs_succeeded", "Jobs that ended with exit code 0.", counters.succeeded),
                ("radrm_jobs_failed", "Jobs that ended otherwise.", counters.failed),
                ("radrm_jobs_cancelled", "Jobs that were cancelled.", counters.cancelled),
                ("radrm_out_of_memory", "Attempts that ran out of GPU memory.", counters.ooms),
            ],
            waiting: Spans { sum_ms: counters.waited_ms, count: counters.ended },
            execution: Spans { sum_ms: counters.ran_ms, count: counters.ended },
            gpus: self.node(&Peer::everybody()).gpus,
            is_private: self.config.privacy,
            job_memory: self.config.metrics_per_job.then(|| self.job_memory()),
            host: radrm_os::host::node_name(),
            emulated: self.node.gpus().emulated.clone(),
            names: self.config.metrics_names.clone(),
        }
    }

    /// GPU memory of each job on each GPU.
    fn job_memory(&self) -> Vec<JobMemory> {
        let mut found = Vec::new();
        for (job, live) in self.jobs.lives() {
            let Some(entry) = self.jobs.entry(*job) else { continue };
            for (uuid, bytes) in &live.observed.used {
                let gpu =
                    self.node.gpus().list.iter().find(|gpu| gpu.uuid == *uuid).and_then(|gpu| gpu.index);
                let (uuid, user) = (uuid.clone(), entry.user.clone());
                found.push(JobMemory { gpu, uuid, job: *job, user, bytes: *bytes });
            }
        }
        found
    }
}
