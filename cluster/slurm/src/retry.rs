//! A batch job that ran out of the memory of its shards: `radrm slurm-retry` requeues it with more.
//!
//! The hook at the end of the batch step waits until Slurm has taken the request: the job then never counts as failed,
//! and nothing that depends on it starts or is given up. What follows needs the job to be gone from its nodes, so the
//! program goes on by itself after its answer, as the job's user.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use crate::abi::{self, Item, Spank};
use crate::container;
use crate::recorder::{Identity, Recorder, RecorderError};
use crate::request::{Request, Retry};
use crate::settings::Settings;
use crate::step::{BATCH, environment};

/// Command that runs once the batch script has failed.
struct Prepared {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    identity: Identity,
}

static PREPARED: OnceLock<Prepared> = OnceLock::new();
/// Wait status of the batch script.
static STATUS: AtomicI32 = AtomicI32::new(0);

/// With the user's rights, in the job's directory: puts together what a failure of the script would need.
pub fn prepare(spank: Spank, request: &Request, settings: &Settings, identity: &Identity) {
    let Some(retry) = request.retry.as_ref().filter(|_| request.profile) else { return };
    if spank.number(Item::JOB_STEP) != Some(BATCH) {
        return;
    }
    let (Some(job), Some(directory)) = (spank.number(Item::JOB_ID), container::directory(spank)) else {
        return;
    };
    let path = settings.run.with_file_name("radrm");
    let Ok(program) = CString::new(path.as_os_str().as_bytes()) else { return };
    let mut environment = environment(spank, settings);
    // That of slurmd: the user's own would name another cluster.
    if let Some(file) = std::env::var_os("SLURM_CONF") {
        environment.extend(CString::new([b"SLURM_CONF=", file.as_bytes()].concat()));
    }
    let words = arguments(&path, job, retry, &directory);
    let Ok(arguments) = words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>() else { return };
    let _ = PREPARED.set(Prepared { program, arguments, environment, identity: identity.clone() });
}

fn arguments(program: &Path, job: u32, retry: &Retry, directory: &Path) -> Vec<Vec<u8>> {
    let Retry { attempts, shards, unit } = retry;
    let numbers =
        [("job", u64::from(job)), ("attempts", u64::from(*attempts)), ("shards", *shards), ("shard", *unit)];
    let mut words = vec![program.as_os_str().as_bytes().to_vec(), b"slurm-retry".to_vec()];
    words.extend(numbers.into_iter().map(|(name, number)| format!("--{name}={number}").into_bytes()));
    words.push([b"--directory=".as_slice(), directory.as_os_str().as_bytes()].concat());
    words
}

/// A task of the step has ended.
pub fn ended(status: i32) {
    if status != 0 {
        STATUS.store(status, Relaxed);
    }
}

/// The step is recorded: if its script failed, it may be for want of GPU memory.
pub fn finish() {
    let Some(Prepared { program, arguments, environment, identity }) = PREPARED.get() else { return };
    if STATUS.load(Relaxed) == 0 {
        return;
    }
    match Recorder::start(program, arguments, environment, identity) {
        Ok(retry) => {
            // It goes on without a reader.
            drop(retry);
            abi::info("the job ran out of GPU memory and is requeued with more");
        }
        // It answers nothing where the job failed for another reason.
        Err(RecorderError::Silent { .. }) if exists(program) => {}
        Err(error) => abi::info(&format!("the job is not tried again: {error}")),
    }
}

fn exists(program: &CStr) -> bool {
    Path::new(OsStr::from_bytes(program.to_bytes())).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_attempt_is_asked_for_with_what_this_one_had() {
        let retry = Retry { attempts: 4, shards: 100, unit: 1 << 20 };
        let words = arguments(Path::new("/bin/radrm"), 7, &retry, Path::new("/a b"));
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let line =
            "/bin/radrm slurm-retry --job=7 --attempts=4 --shards=100 --shard=1048576 --directory=/a b";
        assert_eq!(words.join(" "), line);
    }

    #[test]
    fn a_step_without_shards_ends_without_a_retry() {
        ended(256);
        finish();
        assert!(PREPARED.get().is_none());
    }
}
