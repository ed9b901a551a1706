//! `AdminComment` of Slurm's jobs, set by Slurm's own programs on a thread of its own: a controller that is slow or gone
//! holds nothing up.

use std::env;
use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use radrm_limits::program::target;

use crate::error::DaemonError;

/// What stands before the sentence, and how it is found again.
const MARK: &str = "radrm: peak ";
/// Slurm's programs answer in milliseconds, or wait for a controller.
const PATIENCE: Duration = Duration::from_secs(20);
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
            .spawn(move || follow(&from))
            .map_err(DaemonError::NoThread)?;
        Ok(Self { to })
    }

    /// A step has ended. The job's comment is that of its step with the highest peak on this node.
    pub(super) fn add(&self, job: u32, peak: u64, text: String) {
        // Without a thread there are no comments.
        let _ = self.to.send((job, peak, text));
    }
}

fn follow(from: &Receiver<Ended>) {
    // The peaks of the last jobs.
    let mut peaks: Vec<(u32, u64)> = Vec::new();
    while let Ok((job, peak, text)) = from.recv() {
        if peaks.iter().any(|(known, higher)| *known == job && *higher > peak) {
            continue;
        }
        peaks.retain(|(known, _)| *known != job);
        peaks.push((job, peak));
        let over = peaks.len().saturating_sub(1000);
        peaks.drain(..over);
        comment(job, &text);
    }
}

/// Sets the comment; what the administrator wrote before it stays.
fn comment(job: u32, text: &str) {
    let before = said("scontrol", &["show", "job", &job.to_string(), "--oneliner"]).unwrap_or_default();
    let value = format!("AdminComment={}", with(&before, text));
    let id = format!("JobId={job}");
    // The controller forgets a job that is over; its record in the database stays.
    if said("scontrol", &["update", &id, &value]).is_none() {
        let _ = said("sacctmgr", &["-i", "-Q", "modify", "job", "where", &id, "set", &value]);
    }
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

/// What a program prints; `None` if it failed.
fn said(name: &str, words: &[&str]) -> Option<String> {
    let path = env::var("PATH").unwrap_or_default();
    let program = target::find(OsStr::new(name), Some(OsStr::new(&format!("{path}:{FURTHER}"))))?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().ok()?;
    within(child, PATIENCE)
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
    fn a_program_that_hangs_is_ended() {
        let child = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        };
        assert_eq!(within(child("exec sleep 1000"), Duration::from_millis(50)), None);
        assert_eq!(within(child("echo x"), PATIENCE).as_deref(), Some("x\n"));
        assert_eq!(within(child("echo x; exit 1"), PATIENCE), None);
    }
}
