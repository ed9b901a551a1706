//! A helper's file, and the thread that starts the helper and waits for it.
//!
//! The file is locked while a helper lives, also one of an earlier daemon: the next waits for it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use radrm_attempt::HeldProcess;
use radrm_os::ProcessIdentity;
use rustix::fs::{FlockOperation, flock};

use super::{Answer, Order, WORD};
use crate::attempt::Attempt;
use crate::error::DaemonError;
use crate::message::Message;
use crate::status::put;
use crate::supervisor;

/// Room for an answer, taken before anything is done: a full disk must not lose it.
const SIZE: usize = 64 << 10;
/// Offset of the answer in the file, bytes, behind the identity of its helper.
const ANSWER_AT: u64 = 256;
/// Interval at which a lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
/// Beyond its limit a helper gets this much before it is killed from outside.
const BEYOND: Duration = Duration::from_secs(2);

/// The helper is there.
pub(super) fn put_helper(file: &File, who: ProcessIdentity) -> io::Result<()> {
    put(file, 0, &who)
}

/// It is done.
pub(super) fn put_answer(file: &File, answer: &Answer) -> io::Result<()> {
    put(file, ANSWER_AT, answer)
}

fn get<T: serde::de::DeserializeOwned>(file: &File, at: u64) -> Option<T> {
    let mut bytes = vec![0; SIZE];
    let have = file.read_at(&mut bytes, at).ok()?;
    let line = bytes.get(..have)?.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice(line).ok()
}

/// Runs a helper on a thread of its own, after any that is still at it, and reports to the engine what came of
/// it: nothing, if the helper ended without an answer.
pub(crate) fn run(
    path: &Path,
    attempt: Attempt,
    order: Order,
    to: Sender<Message>,
) -> Result<(), DaemonError> {
    let path = path.to_owned();
    thread::Builder::new()
        .name("suspend".into())
        .stack_size(256 << 10)
        .spawn(move || {
            let answer = help(&path, &order).unwrap_or_else(|error| {
                Some(Answer::not_begun(order.task, &DaemonError::file(&path, &error)))
            });
            let _ = to.send(Message::Suspension(attempt, answer));
        })
        .map(|_| ())
        .map_err(DaemonError::NoThread)
}

/// An error says that nothing was begun.
fn help(path: &Path, order: &Order) -> io::Result<Option<Answer>> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let limit = Duration::from_secs(u64::from(order.limit_s)) + BEYOND;
    wait(&file, limit);
    file.write_all_at(&[0; SIZE], 0)?;
    let mut child = supervisor::helper(WORD, order)?
        .envs(order.emulated.as_ref().map(|(machine, _)| (radrm_emulator_machine::ENV_MACHINE, machine)))
        .stdout(file.try_clone()?)
        .stderr(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if begun.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
        }
        thread::sleep(LOCK_INTERVAL);
    }
    Ok(get(&file, ANSWER_AT))
}

/// Waits until no helper has the file locked, and locks it. One that does not end is killed.
fn wait(file: &File, limit: Duration) {
    let begun = Instant::now();
    while flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_err() {
        if begun.elapsed() > limit
            && let Some(who) = get::<ProcessIdentity>(file, 0).and_then(HeldProcess::of)
        {
            who.signal(libc::SIGKILL);
        }
        thread::sleep(LOCK_INTERVAL);
    }
}
