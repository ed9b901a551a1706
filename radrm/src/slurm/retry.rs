//! `radrm slurm-retry`: a batch job that ran out of GPU memory is requeued with more.
//!
//! The plug-in runs it as the job's user when the script has failed, while Slurm still takes the job for running. It
//! answers as soon as the job is requeued; it changes and releases the job when Slurm has taken it off its nodes.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use radrm_analyzer::{Summary, footprint};
use radrm_profile::Profile;
use radrm_scheduler_core::{Bytes, Evidence, Reason, Recovery};

use super::cluster::Cluster;
use super::{SlurmError, gres, programs};
use crate::Failure;

/// Interval at which the controller is asked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time of a job to leave its nodes: their epilogs run then.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(600);
/// Largest accepted clock skew between nodes and controller.
const CLOCK_MARGIN: Duration = Duration::from_millis(300);
/// Bytes that the plug-in waits for.
const REQUEUED: &[u8] = b"\0ok\0\0";
/// Longest comment that is kept.
const MAX_COMMENT: usize = 1000;

/// Facts about the attempt that the plug-in passes.
#[derive(Args, Debug)]
pub struct Flags {
    /// The job's number
    #[arg(long)]
    job: u32,
    /// Attempts in all
    #[arg(long)]
    attempts: u32,
    /// Shards that it had
    #[arg(long)]
    shards: u64,
    /// GPU memory that one stands for, bytes
    #[arg(long)]
    shard: u64,
    /// Folder of its profiles
    #[arg(long)]
    directory: PathBuf,
}

/// Requeues the job, if it ran out of memory.
///
/// # Errors
/// It ran out of memory, and is not tried again.
pub(crate) fn run(flags: &Flags) -> Result<u8, Failure> {
    let recorded = flags.recorded();
    if recorded.is_empty() {
        return Ok(0);
    }
    let job = Job::ask(flags.job)?;
    // Those of this attempt: a name is the user's to change.
    let own = recorded.into_iter().filter(|step| step.began_s >= job.started_s);
    let Some(seen) = own.map(|step| step.seen).max() else { return Ok(0) };
    let ended = job.restarts.saturating_add(1);
    if job.state != "RUNNING" {
        // Cancelled, out of time, preempted: it is not to go on.
        return Err(SlurmError::NotRunning { job: flags.job, state: job.state }.into());
    }
    let largest = Cluster::ask(job.partition.as_deref().map(AsRef::as_ref))?.largest;
    let shards = flags.next(ended, seen, largest)?;
    let number = flags.job.to_string();
    programs::output("scontrol", &["requeuehold", &number])?;
    // The step ends now; its end is not delayed by what follows.
    let _ = io::stdout().write_all(REQUEUED).and_then(|()| io::stdout().flush());
    until_gone(flags.job)?;
    let gone = SystemTime::now();
    let gres = gres::with_shards(&job.resources, shards);
    let comment = job.with_comment(&flags.comment(ended, seen, shards));
    let words = [format!("jobid={number}"), format!("gres={gres}"), format!("comment={comment}")];
    let words: Vec<&str> = ["update"].into_iter().chain(words.iter().map(String::as_str)).collect();
    programs::output("scontrol", &words)?;
    thread::sleep(until_credentials(gone, SystemTime::now()));
    programs::output("scontrol", &["release", &number])?;
    // Slurm would hold a requeued job back for two minutes.
    programs::output("scontrol", &["update", &format!("jobid={number}"), "starttime=now"])?;
    Ok(0)
}

impl Flags {
    fn had(&self) -> Bytes {
        Bytes(self.shards.saturating_mul(self.shard))
    }

    /// Steps of the job, of whichever attempt, that failed for want of memory.
    fn recorded(&self) -> Vec<Lacking> {
        let begins = [format!("slurm-{}.", self.job), format!("slurm-{}-r", self.job)];
        let Ok(files) = fs::read_dir(&self.directory) else { return Vec::new() };
        let is_ours =
            |name: &str| begins.iter().any(|begin| name.starts_with(begin)) && name.ends_with(".radrm");
        let files = files.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
        files.filter_map(|entry| Lacking::of(&entry.path())).collect()
    }

    /// The shards of the next attempt, after so many.
    fn next(&self, ended: u32, seen: Bytes, largest: Option<u64>) -> Result<u64, SlurmError> {
        let recovery = Recovery { attempts: self.attempts, ..Recovery::default() };
        // In a cluster that names no size a job may only have what it had.
        let largest = Bytes(largest.unwrap_or(self.shards).saturating_mul(self.shard));
        let next = recovery.next(ended, seen, self.had(), largest).map_err(SlurmError::NotAgain)?;
        Ok(next.0.div_ceil(self.shard.max(1)))
    }

    fn comment(&self, ended: u32, seen: Bytes, shards: u64) -> String {
        let why = Reason::RanOutOfMemory { seen: Some(seen), evidence: Evidence::Shim, outside: None };
        let gets = Bytes(shards.saturating_mul(self.shard));
        let (attempt, attempts) = (ended + 1, self.attempts);
        format!("radrm: attempt {attempt} of {attempts} with {gets} after {}: {why}", self.had())
    }
}

/// A step that failed for want of memory that it could get elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lacking {
    /// Memory that it held and asked for.
    seen: Bytes,
    /// Start time of the step, seconds since 1970.
    began_s: u64,
}

impl Lacking {
    fn of(path: &Path) -> Option<Self> {
        let profile = Profile::open(path).ok()?;
        let found = footprint(&Summary::from_profile(&profile));
        let seen = found.oom.filter(|_| found.limited.is_none()).map(Bytes)?;
        Some(Self { seen, began_s: profile.job.start_unix_ns / 1_000_000_000 })
    }
}

/// Record of a job at the controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Job {
    state: String,
    /// Number of requeues.
    restarts: u32,
    /// Start time of this attempt, seconds since 1970.
    started_s: u64,
    partition: Option<String>,
    /// The resources of a node, as it asked for them.
    resources: String,
    comment: String,
}

impl Job {
    fn ask(job: u32) -> Result<Self, SlurmError> {
        Ok(Self::parse(&programs::output("scontrol", &["show", "job", &job.to_string()])?))
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let words = text.split_whitespace();
            let value = words.filter_map(|word| word.strip_prefix(name)).next();
            value.filter(|value| *value != "(null)").map(str::to_owned)
        };
        // It may have blanks, and stands in a line of its own.
        let comment = text.lines().find_map(|line| line.trim_start().strip_prefix("Comment="));
        Self {
            state: field("JobState=").unwrap_or_default(),
            restarts: field("Restarts=").and_then(|count| count.parse().ok()).unwrap_or(0),
            started_s: field("StartTime=").and_then(|time| time.parse().ok()).unwrap_or(0),
            partition: field("Partition="),
            resources: field("TresPerNode=").unwrap_or_default(),
            comment: comment.filter(|comment| *comment != "(null)").unwrap_or_default().to_owned(),
        }
    }

    /// Its comment with one of ours, which replaces that of the attempt before.
    fn with_comment(&self, ours: &str) -> String {
        let own = self.comment.split("radrm: ").next().unwrap_or_default().trim_end_matches([' ', ';']);
        let text = if own.is_empty() { ours.to_owned() } else { format!("{own}; {ours}") };
        text.chars().take(MAX_COMMENT).collect()
    }
}

/// Time to wait before a job that is gone may start. A node has revoked all credentials of the job that are from
/// the same second or earlier, and ends a job with such a credential at once. The clocks of nodes and controller
/// may be apart by the margin.
fn until_credentials(gone: SystemTime, now: SystemTime) -> Duration {
    let fraction = gone.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let valid = Duration::from_secs(1).saturating_sub(Duration::from_nanos(fraction.into())) + CLOCK_MARGIN;
    valid.saturating_sub(now.duration_since(gone).unwrap_or_default())
}

/// Waits until a requeued job has left its nodes: before that Slurm changes nothing of it.
fn until_gone(job: u32) -> Result<(), SlurmError> {
    let since = Instant::now();
    loop {
        // `squeue` shows COMPLETING as long as a node has not reported the end.
        let state = programs::output("squeue", &["-h", "-j", &job.to_string(), "-o", "%T"])?;
        let state = state.trim();
        if ["PENDING", "SPECIAL_EXIT", "REQUEUE_HOLD"].contains(&state) {
            return Ok(());
        }
        if since.elapsed() > LEAVE_TIMEOUT || state.is_empty() {
            return Err(SlurmError::NotRunning { job, state: state.to_owned() });
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> Flags {
        Flags { job: 7, attempts: 4, shards: 4096, shard: 1 << 20, directory: "/".into() }
    }

    #[test]
    fn the_next_attempt_has_more_by_the_rules_of_the_daemon() {
        let seen = Bytes::from_gib(8);
        assert_eq!(flags().next(1, seen, Some(81_920)).unwrap(), 13 << 10);
        assert_eq!(flags().next(1, seen, Some(10_240)).unwrap(), 10_240, "no more than a GPU has");
        let last = flags().next(4, seen, Some(81_920)).unwrap_err();
        assert_eq!(last.to_string(), "out of GPU memory in all 4 attempts");
        let full = flags().next(1, seen, Some(4096)).unwrap_err().to_string();
        assert!(full.contains("8.00 GiB") && full.contains("4.00 GiB"), "{full}");
        assert!(flags().next(1, seen, None).is_err());
    }

    #[test]
    fn a_users_comment_stays_in_front_of_ours() {
        let text = "JobId=7 JobName=x\n   JobState=RUNNING Reason=None Dependency=(null)\n   Partition=main \
                    AllocNode:Sid=a:1\n   Requeue=1 Restarts=2 BatchFlag=1\n   StartTime=1795381952 EndTime=1795381953\n   Comment=my own\n   TresPerNode=gres:shard:4096\n";
        let job = Job::parse(text);
        assert_eq!((job.state.as_str(), job.partition.as_deref()), ("RUNNING", Some("main")));
        assert_eq!((job.restarts, job.started_s), (2, 1_795_381_952));
        assert_eq!((job.resources.as_str(), job.comment.as_str()), ("gres:shard:4096", "my own"));
        let once = Job { comment: job.with_comment("radrm: a"), ..job };
        assert_eq!(once.comment, "my own; radrm: a");
        assert_eq!(once.with_comment("radrm: b"), "my own; radrm: b");
        assert_eq!(Job::default().with_comment("radrm: a"), "radrm: a");
        assert_eq!(Job::parse("   Comment=(null)\n").comment, "");
    }

    #[test]
    fn a_job_starts_in_a_later_second_than_it_was_requeued() {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        let waits = |gone, now| until_credentials(at(gone), at(now)).as_millis();
        assert_eq!((waits(7_000, 7_000), waits(7_900, 7_900), waits(7_900, 8_100)), (1300, 400, 200));
        assert_eq!(waits(7_900, 60_000), 0);
    }

    #[test]
    fn what_is_not_recorded_is_not_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("slurm-7.batch.n.radrm"), "no profile").unwrap();
        assert!(Flags { directory: directory.path().into(), ..flags() }.recorded().is_empty());
        let flags = Flags { directory: "/nowhere".into(), ..flags() };
        assert_eq!(run(&flags).unwrap(), 0);
    }
}
