//! `AdminComment` of Slurm's jobs, set by Slurm's own programs on a thread of its own: a controller that is slow or gone
//! holds nothing up.

use std::env;
use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use radrm_limits::program::target;

use crate::error::DaemonError;

/// Prefix of the sentence, by which it is found again.
const MARK: &str = "radrm: peak ";
/// Slurm's programs answer in milliseconds, or wait for a controller.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The jobs whose peaks are remembered.
const MAX_JOBS: usize = 1000;
/// Most retries for a comment that could not be set: over about a minute.
const MAX_RETRIES: u32 = 5;
/// Half the wait before the first further attempt; each one after it waits twice as long.
const RETRY: Duration = Duration::from_secs(1);
/// The programs, and where they are besides `PATH`.
const FURTHER: &str = "/usr/bin:/usr/local/bin:/opt/slurm/bin:/usr/local/slurm/bin";

/// A job's step that ended: the job, its peak, and a sentence about it.
type Ended = (u32, u64, String);

/// The thread.
#[derive(Debug)]
pub(super) struct Commenter {
    to: Sender<Ended>,
}

impl Commenter {
    pub(super) fn start() -> Result<Self, DaemonError> {
        let (to, from) = channel();
        thread::Builder::new()
            .name("comments".into())
            .stack_size(256 << 10)
            .spawn(move || follow(&from, RETRY, comment))
            .map_err(DaemonError::NoThread)?;
        Ok(Self { to })
    }

    /// A step has ended. The job's comment is that of its step with the highest peak on this node.
    pub(super) fn add(&self, job: u32, peak: u64, text: String) {
        // Without a thread there are no comments.
        let _ = self.to.send((job, peak, text));
    }
}

/// A comment that is to be set.
#[derive(Debug)]
struct Pending {
    job: u32,
    text: String,
    /// Attempts that failed.
    failed: u32,
    due: Instant,
}

/// Sets the comments by `comment`, which returns whether it succeeded, and tries again where it did not.
fn follow(from: &Receiver<Ended>, retry: Duration, comment: impl Fn(u32, &str) -> bool) {
    // The peaks of the last jobs.
    let mut peaks: Vec<(u32, u64)> = Vec::new();
    let mut pending: Vec<Pending> = Vec::new();
    loop {
        let next = pending.iter().map(|one| one.due).min();
        let message = match next {
            Some(due) => from.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => from.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok((job, peak, text)) => {
                if peaks.iter().any(|(known, higher)| *known == job && *higher > peak) {
                    continue;
                }
                peaks.retain(|(known, _)| *known != job);
                peaks.push((job, peak));
                let over = peaks.len().saturating_sub(MAX_JOBS);
                peaks.drain(..over);
                pending.retain(|one| one.job != job);
                pending.push(Pending { job, text, failed: 0, due: Instant::now() });
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                let Some(at) = pending.iter().position(|one| one.due <= now) else { continue };
                let mut one = pending.swap_remove(at);
                if !comment(one.job, &one.text) && one.failed < MAX_RETRIES {
                    one.failed += 1;
                    one.due = Instant::now() + retry * (1 << one.failed);
                    pending.push(one);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Sets the comment; what the administrator wrote before it stays. Returns whether it is set.
fn comment(job: u32, text: &str) -> bool {
    let shown = said("scontrol", &["show", "job", &job.to_string(), "--oneliner"]);
    let before = shown.as_deref().unwrap_or_default();
    let value = format!("AdminComment={}", with(before, text));
    let id = format!("JobId={job}");
    if said("scontrol", &["update", &id, &value]).is_some() {
        return true;
    }
    // The controller takes no comment of a job that is over; its record in the database stays. A running job whose row
    // the database has not made yet is refused as well, for a moment.
    let runs = ["RUNNING", "SUSPENDED"].iter().any(|state| before.contains(&format!("JobState={state} ")));
    !runs && said("sacctmgr", &["-i", "-Q", "modify", "job", "where", &id, "set", &value]).is_some()
}

/// The comment in what `scontrol show job` prints, with this sentence in place of an earlier one.
fn with(shown: &str, text: &str) -> String {
    let own = format!("{MARK}{}", text.strip_prefix("peak ").unwrap_or(text));
    let Some((_, rest)) = shown.split_once("AdminComment=") else { return own };
    // The next field ends it.
    let words: Vec<&str> = rest.split(' ').collect();
    let is_field = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            name.starts_with(|first: char| first.is_ascii_uppercase())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    };
    let until = words.iter().position(|word| is_field(word)).unwrap_or(words.len());
    let old = words[..until].join(" ");
    let old = old.split(MARK).next().unwrap_or_default().trim_end_matches([';', ' ', '\n']);
    if old.is_empty() || old == "(null)" { own } else { format!("{old}; {own}") }
}

/// Output of a program; `None` if it failed.
fn said(name: &str, words: &[&str]) -> Option<String> {
    let path = env::var("PATH").unwrap_or_default();
    let program = target::find(OsStr::new(name), Some(OsStr::new(&format!("{path}:{FURTHER}"))))?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().ok()?;
    within(child, TIMEOUT)
}

fn within(mut child: Child, patience: Duration) -> Option<String> {
    let mut output = child.stdout.take()?;
    let reader = thread::Builder::new().stack_size(128 << 10).spawn(move || {
        let mut text = Vec::new();
        let _ = std::io::Read::read_to_end(&mut output, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let since = Instant::now();
    let status = loop {
        match child.try_wait().ok()? {
            Some(status) => break status,
            None if since.elapsed() > patience => {
                let _ = child.kill();
                break child.wait().ok()?;
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = reader.ok()?.join().ok()?;
    status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrators_own_words_stay() {
        let text = "peak 1.00 GiB of 4.00 GiB: --gpu-mem=1045MiB is enough";
        let own = "radrm: peak 1.00 GiB of 4.00 GiB: --gpu-mem=1045MiB is enough";
        assert_eq!(with("JobId=7 JobName=x", text), own);
        assert_eq!(with("JobId=7 AdminComment=seen by me Power= x", text), format!("seen by me; {own}"));
        let again = format!("JobId=7 AdminComment=seen; {MARK}9.00 GiB Comment=x");
        assert_eq!(with(&again, text), format!("seen; {own}"));
        assert_eq!(with(&format!("AdminComment={MARK}9.00 GiB Comment=x"), text), own);
    }

    #[test]
    fn a_comment_that_could_not_be_set_is_tried_again_and_the_newest_wins() {
        let (to, from) = channel();
        let tried = std::sync::Mutex::new(Vec::new());
        thread::scope(|scope| {
            let tried = &tried;
            scope.spawn(move || {
                follow(&from, Duration::from_micros(50), |job, text| {
                    let mut tried = tried.lock().unwrap();
                    tried.push((job, text.to_owned()));
                    // The last comment of the first job fails twice, all others always.
                    job == 1 && tried.iter().filter(|(_, other)| *other == "late").count() > 2
                });
            });
            to.send((1, 100, "early".to_owned())).unwrap();
            to.send((1, 200, "late".to_owned())).unwrap();
            to.send((1, 50, "of another step".to_owned())).unwrap();
            to.send((2, 1, "never".to_owned())).unwrap();
            let done = |tried: &[(u32, String)]| {
                let of = |text| tried.iter().filter(|(_, other)| *other == text).count();
                of("late") >= 3 && of("never") > MAX_RETRIES as usize
            };
            while !done(&tried.lock().unwrap()) {
                thread::sleep(Duration::from_millis(1));
            }
            drop(to);
        });
        let tried = tried.into_inner().unwrap();
        let of = |text| tried.iter().filter(|(_, other)| *other == text).count();
        assert_eq!((of("late"), of("never")), (3, 1 + MAX_RETRIES as usize), "{tried:?}");
        assert_eq!(of("of another step"), 0);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let child = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        };
        assert_eq!(within(child("exec sleep 1000"), Duration::from_millis(50)), None);
        assert_eq!(within(child("echo x"), TIMEOUT).as_deref(), Some("x\n"));
        assert_eq!(within(child("echo x; exit 1"), TIMEOUT), None);
    }
}
