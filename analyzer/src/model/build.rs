//! From a profile to its summary.

use super::profiled::Profiled;
use super::signals::{signal_name, signal_text};
use super::{
    DryRunSummary, LimitSummary, ThrottlingSummary, gpu, kernels, kind_key, limits, load, oom, process,
    ranges, stacks, tensors, uncounted,
};
use super::{FailureSummary, JobSummary, OutcomeSummary, ProcessSummary, SCHEMA, Summary};
use radrm_profile::model::{End, Exit, Job, Profile, Reason};
use radrm_text::Untrusted;
use std::collections::BTreeMap;

impl Summary {
    /// Summarises a profile.
    pub fn from_profile(profile: &Profile) -> Summary {
        Self::build(profile, "unfinished")
    }

    /// Summarises the profile of a job that still runs.
    pub fn of_running(profile: &Profile) -> Summary {
        Self::build(profile, "running")
    }

    /// `without_end` is the status of a profile without an end.
    fn build(profile: &Profile, without_end: &'static str) -> Summary {
        let host = load::host(profile);
        let profiled = Profiled::of(profile);
        let processes: Vec<_> = profile
            .processes
            .iter()
            .map(|process| process::summary(profile, process, host.as_ref(), profiled.as_ref()))
            .collect();
        let sum =
            |count: fn(&ProcessSummary) -> u64| processes.iter().map(count).fold(0, u64::saturating_add);
        let (launches, graph_launches) = (sum(|p| p.launches), sum(|p| p.graph_launches));
        let gpus: Vec<_> = gpu::indices(profile).into_iter().map(|gpu| gpu::summary(profile, gpu)).collect();
        let (uncounted, init_failures) = (uncounted::processes(profile), uncounted::init_failures(profile));
        let causes = uncounted::sentences(&uncounted, &init_failures);
        let (unseen, causes) = match profile.processes.is_empty() {
            true => (unseen(profile, causes), Vec::new()),
            false => (unseen(profile, Vec::new()), causes),
        };
        let mut summary = Summary {
            schema: SCHEMA,
            emulated: profile.job.emulated.clone(),
            gpu_clock: profile.gpu_clock,
            job: job(&profile.job),
            outcome: outcome(profile, without_end),
            own: None,
            failed_requests_total: gpus.iter().map(|gpu| gpu.failed_requests).fold(0, u64::saturating_add),
            gpus,
            processes,
            processes_not_kept: profile.processes_not_kept,
            processes_without_kernels: profile
                .processes
                .iter()
                .filter(|process| process.has_unrecorded_kernels())
                .count() as u64,
            kernels: kernels::merged(profile),
            gpu_idle_share: kernels::idle_share(profile),
            copies: kernels::copies(profile),
            launches,
            graph_launches,
            failed_requests: failures(profile),
            postmortems: oom::postmortems(profile),
            stacks: stacks::summaries(profile),
            job_stacks: stacks::job_summary(profile),
            tensors: tensors::summaries(profile),
            ranges: ranges::summary(profile),
            events: profile.events.len() as u64,
            notes: unseen.iter().cloned().chain(causes).chain(notes(profile, without_end)).collect(),
            unseen,
            uncounted,
            init_failures,
            host,
            limits: LimitSummary::default(),
            dry_run: DryRunSummary::of(profile),
            throttling: ThrottlingSummary::of(profile),
            unmeasured: profile.unmeasured.clone(),
        };
        summary.limits = limits::limit(&summary);
        summary
    }

    /// True if no process was seen that used a GPU.
    pub fn nothing_seen(&self) -> bool {
        self.processes.is_empty()
    }

    /// The notes that are still to be said where a report begins with what is
    /// unseen, as it does if nothing else was seen.
    pub fn other_notes(&self) -> &[String] {
        let said = if self.nothing_seen() { self.unseen.len() } else { 0 };
        self.notes.get(said..).unwrap_or_default()
    }

    /// The command as one line.
    pub fn command_line(&self) -> Untrusted {
        self.job.command.iter().map(|word| quoted(word.raw())).collect::<Vec<_>>().join(" ").into()
    }
}

/// A word as it would be typed into a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn job(job: &Job) -> JobSummary {
    JobSummary {
        radrm_version: job.radrm_version.clone(),
        command: job.command.iter().map(|word| word.as_str().into()).collect(),
        program: job.program.as_deref().map(Untrusted::from),
        program_sha256: job.program_sha256.map(|digest| digest.iter().map(|b| format!("{b:02x}")).collect()),
        cwd: job.cwd.as_str().into(),
        user: job.user.clone(),
        uid: job.uid,
        host: job.host.as_str().into(),
        pid: job.pid,
        start_unix_ns: job.start_unix_ns,
        environment: job.environment.iter().cloned().collect(),
    }
}

fn outcome(profile: &Profile, without_end: &'static str) -> OutcomeSummary {
    let mut summary =
        OutcomeSummary { status: without_end, duration_ns: profile.duration(), ..OutcomeSummary::default() };
    let Some(outcome) = &profile.outcome else { return summary };
    summary.program_duration_ns = profile.program_ended.filter(|ended| *ended < outcome.duration);
    summary.success = outcome.exit.success();
    match outcome.exit {
        Exit::Code(code) => {
            summary.status = "exited";
            summary.exit_code = Some(code);
        }
        Exit::Signal(signal) => {
            summary.status = "signaled";
            summary.signal = Some(signal);
            summary.signal_name = signal_name(signal);
        }
        Exit::NotStarted => summary.status = "not_started",
        Exit::Unknown => summary.status = "unknown",
    }
    match &outcome.reason {
        Some(Reason::OutOfGpuMemory) => summary.out_of_memory = true,
        Some(Reason::Other(text)) => summary.reason = Some(text.clone()),
        None => {}
    }
    summary
}

fn failures(profile: &Profile) -> Vec<FailureSummary> {
    let standing: Vec<_> = profile.standing_refusals().map(|(_, failure)| failure).collect();
    let mut failures: Vec<_> = profile
        .processes
        .iter()
        .flat_map(|process| process.state.failures.iter().map(move |failure| (process, failure)))
        .map(|(process, failure)| {
            let quota = oom::quota_of(profile, process.key, failure);
            let was_enough = failure.free.is_some_and(|free| free >= failure.size);
            FailureSummary {
                t_ns: failure.t,
                pid: process.identity.pid,
                gpu: failure.gpu.0,
                call: failure.call.clone(),
                kind: kind_key(failure.kind),
                size_bytes: failure.size,
                injected: quota.is_none() && was_enough && profile.job.has_injected_oom(),
                quota,
                free_bytes: failure.free,
                device_total_bytes: failure.total,
                result: failure.result,
                out_of_memory: failure.out_of_memory(),
                stands: standing.iter().any(|other| std::ptr::eq(*other, failure)),
            }
        })
        .collect();
    failures.sort_by_key(|failure| failure.t_ns);
    failures
}

/// Reasons that calls or processes were not recorded, a sentence each.
/// A process is recorded from its first successful driver call (`cuInit`) on. `causes`: known reasons of the other
/// processes; used only if no process was recorded.
fn unseen(profile: &Profile, causes: Vec<String>) -> Vec<String> {
    if !profile.processes.is_empty() {
        return profile.unseen.iter().map(|why| format!("not all was counted: {why}")).collect();
    }
    if causes.is_empty() && profile.unseen.is_empty() {
        let seen = "no GPU program was seen: no process that RADRM was loaded into reported a call of cuInit";
        let next = match profile.job.emulated {
            Some(_) => "",
            None => "; `radrm doctor` checks the driver, `--emulate` and `--dry-run` need no GPU",
        };
        return vec![format!("{seen}{next}")];
    }
    causes.into_iter().chain(profile.unseen.iter().map(|why| format!("nothing was counted: {why}"))).collect()
}

/// Processes other than the program itself that did not leave in order: one
/// sentence for each way.
fn abrupt_ends(profile: &Profile) -> Vec<String> {
    let mut by_end: BTreeMap<Option<i32>, Vec<u32>> = BTreeMap::new();
    for process in profile.processes.iter().filter(|process| process.identity.pid != profile.job.pid) {
        match process.state.end {
            End::Signal(signal) => by_end.entry(Some(signal)).or_default().push(process.identity.pid),
            End::Vanished => by_end.entry(None).or_default().push(process.identity.pid),
            _ => {}
        }
    }
    let sentence = |(end, pids): (Option<i32>, Vec<u32>)| {
        let (who, were) = match pids[..] {
            [pid] => (format!("process {pid}"), "was"),
            _ => (format!("{} processes ({})", pids.len(), uncounted::listed(&pids)), "were"),
        };
        match end {
            Some(signal) => format!("{who} {were} killed by {}", signal_text(signal)),
            None => format!("{who} vanished (by a signal or by _exit); the counts up to then are complete"),
        }
    };
    by_end.into_iter().map(sentence).collect()
}

fn notes(profile: &Profile, without_end: &str) -> Vec<String> {
    let mut notes = Vec::new();
    if profile.outcome.is_none() && without_end != "running" {
        notes.push(format!(
            "the profile has no end: radrm-run was killed, or runs on another machine; figures up to {}",
            profile.last_state
        ));
    }
    notes.extend(abrupt_ends(profile));
    for process in &profile.processes {
        let pid = process.identity.pid;
        for bypass in process.state.bypasses.iter().filter(|bypass| bypass.matters && bypass.count > 0) {
            notes.push(format!(
                "process {pid}: figures may be incomplete: {} ({} times)",
                bypass.reason.replace('_', " "),
                bypass.count
            ));
        }
    }
    let dropped =
        profile.processes.iter().map(|process| process.state.events_dropped).fold(0, u64::saturating_add);
    if dropped > 0 {
        notes.push(format!("{dropped} event(s) were lost; counters and peaks are exact nevertheless"));
    }
    if profile.processes_not_kept > 0 {
        notes.push(format!(
            "{} further processes are not listed, and their memory is in no figure",
            profile.processes_not_kept
        ));
    }
    notes.extend(profile.notes.iter().map(ToString::to_string));
    notes
}
