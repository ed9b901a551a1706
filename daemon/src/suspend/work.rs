//! Operations on a job's processes: their order, and what is undone.

use std::time::{Duration, Instant};

use radrm_cuda_abi::*;
use radrm_os::ProcessIdentity;
use radrm_scheduler_core::SuspendRefusal;

use super::driver::{Act, Driver, name};
use super::{Answer, ByGpu, Saved};
use crate::error::DaemonError;

/// The world around the processes.
pub(super) trait Job {
    /// Its living processes that use the driver, if all of them can be suspended.
    fn processes(&mut self) -> Result<Vec<ProcessIdentity>, SuspendRefusal>;
    /// Returns true if a process lives.
    fn lives(&self, who: ProcessIdentity) -> bool;
    /// A process of the job beside these that a GPU still lists: the driver has not given its memory back yet.
    fn lingering(&self, suspended: &[Saved]) -> Option<u32>;
    /// Memory that a process holds on each GPU, as far as it is known.
    fn held(&self, who: ProcessIdentity) -> ByGpu;
    /// Checks that there is so much free on each GPU.
    fn room(&self, bytes: &ByGpu) -> Result<(), DaemonError>;
}

/// Takes a job off its GPUs, or leaves it as it was. `bytes` is what it is known to hold on each GPU.
pub(super) fn suspend(driver: &dyn Driver, job: &mut dyn Job, bytes: &ByGpu, patience: Duration) -> Answer {
    let mut locked: Vec<Saved> = Vec::new();
    match freeze(driver, job, patience, &mut locked) {
        Ok(()) => {}
        Err((refusal, sentence)) => return undo(driver, job, &locked, refusal, sentence),
    }
    locked.retain(|saved| job.lives(saved.who));
    if let Some(pid) = wait_until_off(job, &locked, patience) {
        let sentence = format!("process {pid} ended and holds its GPU memory still");
        return undo(driver, job, &locked, SuspendRefusal::Failed, sentence);
    }
    if locked.is_empty() {
        let sentence = "its processes ended".to_owned();
        return Answer::Refused { refusal: SuspendRefusal::NoShim, sentence };
    }
    let mut sum = ByGpu::new();
    for (gpu, held) in locked.iter().flat_map(|saved| &saved.bytes) {
        *sum.entry(gpu.clone()).or_default() += held;
    }
    for (gpu, held) in bytes {
        let known = sum.entry(gpu.clone()).or_default();
        *known = (*known).max(*held);
    }
    Answer::Suspended { processes: locked, bytes: sum }
}

/// Interval at which the GPUs' lists are read while a process that ended is on one.
const LIST_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until no process that ended meanwhile holds GPU memory: another job gets it next. The one that still does.
fn wait_until_off(job: &dyn Job, suspended: &[Saved], patience: Duration) -> Option<u32> {
    let begun = Instant::now();
    loop {
        let lingering = job.lingering(suspended);
        if lingering.is_none() || begun.elapsed() >= patience {
            return lingering;
        }
        std::thread::sleep(LIST_INTERVAL);
    }
}

type Refused = (SuspendRefusal, String);

/// Locks everything, checks once more what can be suspended, and checkpoints everything.
fn freeze(
    driver: &dyn Driver,
    job: &mut dyn Job,
    patience: Duration,
    locked: &mut Vec<Saved>,
) -> Result<(), Refused> {
    let begun = Instant::now();
    // A process may have come, or used something new, before the last of the others was locked: after a
    // check that finds nothing new no process of the job can.
    loop {
        let found = job.processes().map_err(|refusal| (refusal, refusal.to_string()))?;
        let new: Vec<ProcessIdentity> =
            found.into_iter().filter(|who| locked.iter().all(|saved| saved.who != *who)).collect();
        if new.is_empty() {
            break;
        }
        for who in new {
            let bytes = job.held(who);
            let left = patience.saturating_sub(begun.elapsed());
            lock(driver, job, who, left)?;
            locked.push(Saved { who, bytes });
        }
    }
    for Saved { who, .. } in locked {
        let state = driver.state(who.pid);
        if state == Ok(CU_PROCESS_STATE_CHECKPOINTED) {
            continue;
        }
        if let Err(code) = driver.act(Act::Checkpoint, who.pid)
            && job.lives(*who)
        {
            return Err(refused("cuCheckpointProcessCheckpoint", *who, code));
        }
    }
    Ok(())
}

fn lock(driver: &dyn Driver, job: &dyn Job, who: ProcessIdentity, left: Duration) -> Result<(), Refused> {
    let done = match driver.state(who.pid) {
        Ok(CU_PROCESS_STATE_RUNNING) => {
            let ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
            driver.act(Act::Lock(ms), who.pid).map_err(|code| ("cuCheckpointProcessLock", code))
        }
        // What an earlier attempt left.
        Ok(CU_PROCESS_STATE_LOCKED | CU_PROCESS_STATE_CHECKPOINTED) => Ok(()),
        Ok(_) => Err(("cuCheckpointProcessGetState", CUDA_ERROR_ILLEGAL_STATE)),
        Err(code) => Err(("cuCheckpointProcessGetState", code)),
    };
    match done {
        Err((call, code)) if job.lives(who) => Err(refused(call, who, code)),
        _ => Ok(()),
    }
}

fn refused(call: &str, who: ProcessIdentity, code: CUresult) -> Refused {
    (SuspendRefusal::Failed, format!("{call} of process {}: {}", who.pid, name(code)))
}

/// Lets everything go on that was stopped. Its memory is still reserved: no other job was given it.
fn undo(
    driver: &dyn Driver,
    job: &dyn Job,
    stopped: &[Saved],
    refusal: SuspendRefusal,
    sentence: String,
) -> Answer {
    match bring_back(driver, job, stopped) {
        Ok(()) => Answer::Refused { refusal, sentence },
        Err(lost) => Answer::Lost { sentence: format!("{lost}, after {sentence}") },
    }
}

/// Brings a job back to its GPUs, or leaves it as it was: a restore is begun only where there is room for all
/// of it, because one that runs out of memory never works again.
pub(super) fn resume(driver: &dyn Driver, job: &dyn Job, processes: &[Saved], bytes: &ByGpu) -> Answer {
    let is_off = |saved: &&Saved| driver.state(saved.who.pid) == Ok(CU_PROCESS_STATE_CHECKPOINTED);
    let off: Vec<&Saved> = processes.iter().filter(is_off).collect();
    let living = processes.iter().filter(|saved| job.lives(saved.who)).count();
    let needed = if off.len() == living {
        bytes.clone()
    } else {
        // Some of it is back already.
        let mut sum = ByGpu::new();
        for (gpu, held) in off.iter().flat_map(|saved| &saved.bytes) {
            *sum.entry(gpu.clone()).or_default() += held;
        }
        sum
    };
    if !off.is_empty()
        && let Err(why) = job.room(&needed)
    {
        return Answer::NoRoom { sentence: why.to_string() };
    }
    match bring_back(driver, job, processes) {
        Ok(()) => Answer::Resumed,
        Err(why) => Answer::Lost { sentence: why.to_string() },
    }
}

/// Restores what is checkpointed, and when all of it is there unlocks it.
fn bring_back(driver: &dyn Driver, job: &dyn Job, processes: &[Saved]) -> Result<(), DaemonError> {
    let lost = |call, code, who: ProcessIdentity| DaemonError::NotRestored {
        pid: who.pid,
        call,
        result: name(code),
    };
    for Saved { who, .. } in processes {
        let restored = match driver.state(who.pid) {
            Ok(CU_PROCESS_STATE_CHECKPOINTED) => driver.act(Act::Restore, who.pid),
            Ok(CU_PROCESS_STATE_RUNNING | CU_PROCESS_STATE_LOCKED) => Ok(()),
            Ok(_) => Err(CUDA_ERROR_ILLEGAL_STATE),
            Err(code) => Err(code),
        };
        if let Err(code) = restored
            && job.lives(*who)
        {
            return Err(lost("cuCheckpointProcessRestore", code, *who));
        }
    }
    for Saved { who, .. } in processes {
        if driver.state(who.pid) == Ok(CU_PROCESS_STATE_LOCKED)
            && let Err(code) = driver.act(Act::Unlock, who.pid)
            && job.lives(*who)
        {
            return Err(lost("cuCheckpointProcessUnlock", code, *who));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
