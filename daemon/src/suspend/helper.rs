//! The process that suspends a job or brings it back.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{self, ExitCode};
use std::time::Duration;

use radrm_limits::mps::control::has_living_daemon;
use radrm_limits::program::libraries;
use radrm_os::nvml::{Nvml, NvmlSource};
use radrm_os::{Process, ProcessIdentity};
use radrm_scheduler_core::{Bytes, SuspendRefusal};
use radrm_telemetry::{Liveness, Segment};

use super::driver::{Driver, Loaded};
use super::work::{Job, resume, suspend};
use super::{Answer, ByGpu, Order, Saved, Task, answer, eligible};
use crate::engine::segment_of;
use crate::error::DaemonError;
use crate::supervisor;

/// Does a helper's work. Standard input is the order, standard output the file for the answer.
pub(crate) fn help() -> ExitCode {
    let mut text = String::new();
    let order = io::stdin().read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
    let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let (Some(order), Ok(file)) = (order, file) else { return ExitCode::FAILURE };
    let order: Order = order;
    // SAFETY: plain system calls on this process: not to be ended with the daemon's terminal, and ended by
    // the kernel when a call of the driver does not come back.
    unsafe {
        libc::setsid();
        libc::alarm(order.limit_s.max(1));
    }
    if let Some(who) = ProcessIdentity::of(process::id()) {
        let _ = answer::put_helper(&file, who);
    }
    let answer = supervisor::become_user(order.user.as_ref()).and_then(|()| work(&order));
    let answer = answer.unwrap_or_else(|why| Answer::not_begun(order.task, &why));
    match answer::put_answer(&file, &answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn work(order: &Order) -> Result<Answer, DaemonError> {
    let library = order.emulated.as_ref().map_or(Path::new("libcuda.so.1"), |(_, library)| library);
    let driver = Loaded::open(library)?;
    let source = match order.emulated {
        Some(_) => NvmlSource::Library(libraries::find(libraries::EMULATED_NVML)?),
        None => NvmlSource::System,
    };
    let nvml = Nvml::open(&source).map_err(DaemonError::Nvml)?;
    let segment = segment_of(Process(order.launcher)).ok_or(DaemonError::NoSegment)?;
    let mut job = Here { order, driver: &driver, nvml, segment };
    Ok(match order.task {
        Task::Suspend => {
            let patience = Duration::from_millis(u64::from(order.lock_ms));
            suspend(&driver, &mut job, &order.bytes, patience)
        }
        Task::Resume => {
            let known = if order.processes.is_empty() { job.living() } else { order.processes.clone() };
            resume(&driver, &job, &known, &order.bytes)
        }
    })
}

/// The job as this machine shows it.
struct Here<'a> {
    order: &'a Order,
    driver: &'a Loaded,
    nvml: Nvml,
    segment: Segment,
}

impl Here<'_> {
    /// Processes that a helper that was killed may have stopped.
    fn living(&self) -> Vec<Saved> {
        let slots = self.segment.slots().unwrap_or_default();
        let living = slots.into_iter().filter(|slot| slot.liveness == Liveness::Running);
        living
            .filter_map(|slot| Some(Saved { who: ProcessIdentity::of(slot.pid?)?, bytes: ByGpu::new() }))
            .collect()
    }

    /// Returns true if a process of the job uses the driver past the shim.
    fn has_unknown(&self, known: &[ProcessIdentity]) -> bool {
        let uses = |pid: &u32| Process(*pid).has_mapped(&["libcuda.so", libraries::EMULATED_CUDA]);
        radrm_attempt::below(self.order.supervisor)
            .iter()
            .map(|who| who.pid)
            .filter(|pid| known.iter().all(|who| who.pid != *pid))
            .any(|pid| uses(&pid) && self.driver.state(pid).is_ok())
    }
}

impl Job for Here<'_> {
    fn processes(&mut self) -> Result<Vec<ProcessIdentity>, SuspendRefusal> {
        let slots = eligible::processes(&self.segment, has_living_daemon)?;
        let found: Vec<ProcessIdentity> =
            slots.iter().filter_map(|slot| ProcessIdentity::of(slot.pid?)).collect();
        if self.has_unknown(&found) { Err(SuspendRefusal::NoShim) } else { Ok(found) }
    }

    fn lives(&self, who: ProcessIdentity) -> bool {
        who.lives()
    }

    fn lingering(&self, suspended: &[Saved]) -> Option<u32> {
        let slots = self.segment.slots().unwrap_or_default();
        // A number that another process has by now is none of the job's.
        let is_ours = |pid: u32| {
            let mut of = slots.iter().filter(|slot| slot.pid == Some(pid));
            of.any(|slot| Process(pid).start().is_none_or(|start| start == slot.start))
        };
        let is_suspended = |pid: u32| suspended.iter().any(|saved| saved.who.pid == pid);
        let devices = self.order.bytes.keys().filter_map(|uuid| self.nvml.device(uuid).ok());
        let listed = devices.filter_map(|device| device.processes().ok()).flatten();
        listed.map(|held| held.pid).find(|pid| is_ours(*pid) && !is_suspended(*pid))
    }

    fn held(&self, who: ProcessIdentity) -> ByGpu {
        let gpus = self.order.bytes.keys();
        let held = |uuid: &String| -> Option<u64> {
            let listed = self.nvml.device(uuid).and_then(|device| device.processes()).ok()?;
            listed.into_iter().find(|held| held.pid == who.pid)?.used
        };
        gpus.filter_map(|uuid| Some((uuid.clone(), held(uuid)?))).collect()
    }

    fn room(&self, bytes: &ByGpu) -> Result<(), DaemonError> {
        for (gpu, needed) in bytes {
            let memory = self.nvml.device(gpu).and_then(|device| device.memory());
            let failed = |why| DaemonError::NoMemoryFigure { gpu: gpu.clone(), why };
            let (free, needed) = (Bytes(memory.map_err(failed)?.free), Bytes(*needed));
            if free < needed {
                return Err(DaemonError::NoGpuMemory { gpu: gpu.clone(), free, needed });
            }
        }
        Ok(())
    }
}
