//! Engine mode: Slurm places the jobs of this node, and radrmd watches them. It starts and ends nothing.
//!
//! The SPANK plug-in keeps a file for each step, which only root can write, and holds a lock on it as long as
//! `slurmstepd` lives; at the end it adds what the recorder found. From these files and from the segments of the
//! recorders come the figures of `/metrics`, the table of ended steps, and the comments of jobs.

mod comment;
mod live;
mod monitor;
mod record;
pub(crate) mod settings;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use radrm_limits::scopes::user_name;
use radrm_protocol::wire::Response;
use radrm_scheduler_core::JobState;
use radrm_text::output::{self, Priority, say};

use crate::config::Config;
use crate::error::DaemonError;
use crate::gpu_numbers::number_of;
use crate::gpus::{self, Gpus};
use crate::long_read::Progress;
use crate::message::Message;
use crate::metrics::{Figures, JobMemory};
use crate::process::{NAME, Stopped};
use crate::{http, server, signals};

use comment::Commenter;
use monitor::Monitor;
use record::{Key, Record, Steps};
use table::Table;

/// Watches the node until a message ends that.
pub(crate) fn serve(
    config: &Config,
    gpus: Gpus,
    signals: libc::sigset_t,
    read: impl Fn() -> Result<Config, DaemonError>,
) -> Result<Stopped, DaemonError> {
    let steps = Steps::open(&config.slurm.state)?;
    let table = Table::open(&config.state.join("slurm.csv"))?;
    let (listener, _socket_lock) = server::listen(&config.socket)?;
    let (to, from) = channel();
    // From here on there are several threads.
    signals::take_signals(signals, to.clone())?;
    let commenter = config.slurm.comment.then(Commenter::start).transpose()?;
    let (_ask, asked) = channel();
    let audit = (config.audit_s > 0).then(|| Duration::from_secs(config.audit_s));
    let every = Duration::from_millis(config.poll_ms);
    gpus::watch(&gpus, every, audit, asked, to.clone());
    if let Some(address) = config.metrics()?
        && let Err(error) = http::serve(address, to.clone())
    {
        say(NAME, &format!("/metrics is not served: {}", radrm_base::reason(&error)));
    }
    // Limits of users in the queue are for the daemon that has one.
    server::serve(listener, config.socket.clone(), config.admin_group.clone(), Arc::default(), to)?;
    let text = format!("ready: Slurm places the jobs on {}, radrmd watches them", gpus.describe());
    output::log(Priority::Info, NAME, &text);
    super::tell_systemd();
    let watcher = Watcher {
        config: config.clone(),
        monitor: Monitor::new(gpus),
        steps,
        table,
        commenter,
        seen: BTreeMap::new(),
        counters: Counters::default(),
        issue: None,
    };
    let stopped = watcher.run(&from, every, read);
    let _ = fs::remove_file(&config.socket);
    Ok(stopped)
}

/// Answer to requests of clients.
const NO_QUEUE: &str = "Slurm places the jobs of this node: submit them by sbatch or `radrm sbatch`, and see them by \
                        squeue and `radrm top`";
/// Observed memory of a running step: bytes on each GPU by UUID, and the most on one GPU.
#[derive(Clone, Debug, Default)]
struct Seen {
    used: BTreeMap<String, u64>,
    peak: u64,
    /// The peak that the job's comment has, and since when.
    commented: Option<(u64, Instant)>,
}

/// A running job's comment is not changed more often, unless its peak has doubled.
const COMMENT: Duration = Duration::from_secs(60);

impl Seen {
    /// Returns true if the comment of the running job is to be set: at once, and later when the peak has grown by
    /// some per cent.
    fn comment_is_due(&mut self, now: Instant) -> bool {
        let is_due = self.peak > 0
            && self.commented.is_none_or(|(peak, since)| {
                self.peak > peak + peak / 50
                    && (now.duration_since(since) >= COMMENT || self.peak / 2 >= peak)
            });
        if is_due {
            self.commented = Some((self.peak, now));
        }
        is_due
    }
}

/// Since the daemon started.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    steps: u64,
    failed: u64,
    ooms: u64,
}

/// Answers a request of a client; gives back what is none.
fn refuse(message: Message) -> Option<Message> {
    let refusal = || Response::Refused(NO_QUEUE.to_owned());
    match message {
        Message::Asked(_, _, reply) | Message::AskedOf(_, _, _, reply) => _ = reply.send(refusal()),
        Message::Listed(_, _, reply) => _ = reply.send(Err(refusal())),
        Message::Rows(_, _, reply) => _ = reply.send(Vec::new()),
        Message::Read(_, _, reply) => _ = reply.send(Progress::Done(refusal())),
        other => return Some(other),
    }
    None
}

struct Watcher {
    config: Config,
    monitor: Monitor,
    steps: Steps,
    table: Table,
    commenter: Option<Commenter>,
    seen: BTreeMap<Key, Seen>,
    counters: Counters,
    /// Health issue: what cannot be written at the moment.
    issue: Option<String>,
}

impl Watcher {
    fn run(
        mut self,
        from: &Receiver<Message>,
        every: Duration,
        read: impl Fn() -> Result<Config, DaemonError>,
    ) -> Stopped {
        let mut next = Instant::now();
        loop {
            match from.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return Stopped::ToEnd,
                Ok(Message::GpusAppeared) => return Stopped::ToRestart,
                Ok(Message::Reload) => self.reload(read()),
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {
                    self.look();
                    next = Instant::now() + every;
                }
            }
        }
    }

    fn take(&mut self, message: Message) {
        let Some(message) = refuse(message) else { return };
        match message {
            Message::Polled(poll) => self.monitor.polled(poll),
            Message::Audited(found) => self.monitor.audited(found).iter().for_each(|words| say(NAME, words)),
            Message::Metrics(reply) => {
                let _ = reply.send(self.figures());
            }
            _ => {}
        }
    }

    /// Polls the steps that run, and takes in those that are over.
    fn look(&mut self) {
        let running = live::running(&self.steps, self.monitor.samples(), self.monitor.gpus());
        for (key, used) in running {
            let seen = self.seen.entry(key.clone()).or_default();
            seen.peak = seen.peak.max(used.values().copied().max().unwrap_or(0));
            seen.used = used;
            // Slurm's controller takes no comment for a job that is over; only its database does.
            if let (Some(commenter), Some(record)) = (&self.commenter, self.steps.record(&key))
                && seen.comment_is_due(Instant::now())
            {
                let record = Record { peak: Some(seen.peak), ..record.clone() };
                if let Some(text) = record.sentence() {
                    commenter.add(key.job, seen.peak, text.replacen("peak ", "peak so far ", 1));
                }
            }
        }
        let mut issue = None;
        for (key, mut record) in self.steps.ended() {
            let seen = self.seen.get(&key).map(|seen| seen.peak).filter(|peak| *peak > 0);
            record.peak = record.peak.max(seen);
            let user = user_name(record.uid).unwrap_or_else(|| record.uid.to_string());
            match self.table.add(&key, &record, &user) {
                Ok(true) => {}
                // Its file could not be removed, or its comment was not made before.
                Ok(false) => {
                    if let (Some(commenter), Some(text)) = (&self.commenter, record.sentence()) {
                        commenter.add(key.job, record.peak.unwrap_or(0), text);
                    }
                    self.steps.forget(&key);
                    continue;
                }
                Err(error) => {
                    // It is tried again at the next poll; the file of the step stays.
                    issue = Some(error.to_string());
                    continue;
                }
            }
            self.counters.steps += 1;
            self.counters.failed += u64::from(record.has_failed());
            self.counters.ooms += u64::from(record.oom.is_some());
            if let (Some(commenter), Some(text)) = (&self.commenter, record.sentence()) {
                commenter.add(key.job, record.peak.unwrap_or(0), text);
            }
            self.steps.forget(&key);
            self.seen.remove(&key);
        }
        if issue.is_some() && self.issue != issue {
            issue.iter().for_each(|sentence| say(NAME, sentence));
        }
        self.issue = issue;
        let steps = &self.steps;
        self.seen.retain(|key, _| steps.has(key));
    }

    /// Figures that Prometheus reads.
    fn figures(&self) -> Figures {
        let mut sums: BTreeMap<(u64, String), (u32, u64)> = BTreeMap::new();
        for (key, seen) in &self.seen {
            let Some(uid) = self.steps.record(key).map(|record| record.uid) else { continue };
            for (uuid, bytes) in &seen.used {
                let sum = sums.entry((u64::from(key.job), uuid.clone())).or_insert((uid, 0));
                sum.1 = sum.1.saturating_add(*bytes);
            }
        }
        let gpu = |uuid: &str| number_of(&self.monitor.gpus().list, uuid);
        let memory = sums.into_iter().map(|((job, uuid), (uid, bytes))| JobMemory {
            gpu: gpu(&uuid),
            user: user_name(uid).unwrap_or_else(|| uid.to_string()),
            uuid,
            job,
            bytes,
        });
        let memory: Vec<JobMemory> = memory.collect();
        let counters = self.counters;
        Figures {
            jobs: vec![(JobState::Running, self.steps.jobs())],
            unaccounted_processes: (self.config.audit_s > 0).then(|| self.monitor.unaccounted()),
            health_issues: u64::from(self.issue.is_some()),
            counters: vec![
                ("radrm_slurm_steps", "Steps of Slurm that ended since the daemon started.", counters.steps),
                ("radrm_slurm_steps_failed", "Those of them that failed.", counters.failed),
                ("radrm_out_of_memory", "Those of them that ran out of GPU memory.", counters.ooms),
            ],
            gpus: self.monitor.rows(&memory),
            is_private: self.config.privacy,
            job_memory: self.config.metrics_per_job.then_some(memory),
            host: radrm_os::host::node_name(),
            names: self.config.metrics_names.clone(),
            ..Figures::default()
        }
    }

    fn reload(&mut self, read: Result<Config, DaemonError>) {
        match read {
            Ok(new) => {
                let fixed = self.config.reload(new);
                let left = if fixed.is_empty() {
                    String::new()
                } else {
                    format!("; restart radrmd for: {}", fixed.join(", "))
                };
                say(NAME, &format!("the configuration was read again{left}"));
            }
            Err(why) => say(NAME, &format!("the configuration was not read again: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use radrm_protocol::wire::Request;

    use super::*;
    use crate::long_read::LongRead;
    use crate::peer::Peer;

    #[test]
    fn questions_that_are_answered_in_parts_are_refused_too() {
        let (reply, answer) = channel();
        let read = LongRead::of(Request::Stats { all: false, since_ms: 0 }).unwrap();
        assert!(refuse(Message::Read(Peer::everybody(), read, reply)).is_none());
        let Ok(Progress::Done(Response::Refused(why))) = answer.try_recv() else { panic!("no answer") };
        assert_eq!(why, NO_QUEUE);
        assert!(matches!(refuse(Message::Reload), Some(Message::Reload)));
    }
}
