//! Processes that hold a device's memory, and processes that keep it busy.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::{LazyLock, Mutex, PoisonError};

use radrm_emulator_machine::{CheckpointState, Machine};

use crate::api::*;
use crate::state::{Device, now_ns};

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InfoV1 {
    /// Process.
    pub pid: u32,
    /// Bytes that it is charged for, contexts included.
    pub used: u64,
}
const _: () = assert!(size_of::<InfoV1>() == 16);

/// `nvmlProcessInfo_v2_t`; the functions with `_v3` use it too.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// Process.
    pub pid: u32,
    /// Bytes that it is charged for, contexts included.
    pub used: u64,
    /// GPU instance: none.
    pub gpu_instance: u32,
    /// Compute instance: none.
    pub compute_instance: u32,
}
const _: () = assert!(size_of::<Info>() == 24);

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Process.
    pub pid: u32,
    /// Time (us).
    pub time_us: u64,
    /// Percent of the time with a kernel of the process.
    pub sm: u32,
    /// Percent of the time with a copy of the process.
    pub memory: u32,
    /// Encoder: not used.
    pub encoder: u32,
    /// Decoder: not used.
    pub decoder: u32,
}
const _: () = assert!(size_of::<Sample>() == 32);

const NO_INSTANCE: u32 = u32::MAX;

/// Living processes with a context or memory on a GPU: process and charged bytes. One that is checkpointed has
/// neither.
fn running(machine: &Machine, gpu: usize) -> Vec<(u32, u64)> {
    machine
        .users(gpu)
        .iter()
        .filter(|user| user.checkpoint != CheckpointState::Checkpointed)
        .filter(|user| user.ledger.contexts > 0 || user.ledger.held_now > 0)
        .map(|user| (user.pid, user.ledger.held_now))
        .collect()
}

fn list(machine: &Machine, device: Device, count: Out<c_uint>, out: Out<Info>) -> Answer {
    let info = |(pid, used)| Info { pid, used, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE };
    let values: Vec<Info> = running(machine, device.gpu(machine)?).into_iter().map(info).collect();
    fill(count, out, &values)
}

fn list_v1(machine: &Machine, device: Device, count: Out<c_uint>, out: Out<InfoV1>) -> Answer {
    let values: Vec<InfoV1> =
        running(machine, device.gpu(machine)?).into_iter().map(|(pid, used)| InfoV1 { pid, used }).collect();
    fill(count, out, &values)
}

/// No process draws, and none is served by MPS.
fn none(machine: &Machine, device: Device, count: Out<c_uint>) -> Answer {
    device.gpu(machine)?;
    count.get()?;
    count.set(0)
}

/// Last reading by this program of a process on a GPU: time, kernel time, copy time (ns).
static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);

/// By GPU and process.
type Seen = HashMap<(usize, u32), (u64, u64, u64)>;

/// Utilization of a GPU by each living process, since this program's last query or since the process began.
fn samples(machine: &Machine, gpu: usize) -> Vec<Sample> {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = now_ns();
    let mut samples = Vec::new();
    for process in machine.users(gpu) {
        let ledger = &process.ledger;
        let before = seen.insert((gpu, process.pid), (now, ledger.busy_ns, ledger.copy_ns));
        let (then, kernels, copies) = before.unwrap_or((process.joined_ns, 0, 0));
        let wall = now.saturating_sub(then).max(1);
        let percent = |now: u64, then: u64| {
            u32::try_from(u128::from(now.saturating_sub(then)) * 100 / u128::from(wall))
                .unwrap_or(100)
                .min(100)
        };
        samples.push(Sample {
            pid: process.pid,
            time_us: now / 1000,
            sm: percent(ledger.busy_ns, kernels),
            memory: percent(ledger.copy_ns, copies),
            encoder: 0,
            decoder: 0,
        });
    }
    samples
}

/// `nvmlProcessDetailList_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Details {
    /// [`version_of`] this structure, 1.
    pub version: u32,
    /// Kind of process: 0 computing, 1 drawing, 2 under MPS.
    pub mode: u32,
    /// Room in the list, and then processes in it.
    pub count: u32,
    /// The list.
    pub list: Out<Detail>,
}

/// `nvmlProcessDetail_v1_t`: a process, and no memory that confidential computing protects.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Detail {
    /// The process.
    pub info: Info,
    /// Zero.
    pub protected: u64,
}

entry_points! {
    /// Processes of a kind; only computing ones exist.
    fn nvmlDeviceGetRunningProcessDetailList(device: Device, out: Out<Details>) |machine| {
        let gpu = device.gpu(machine)?;
        let mut details = out.get()?;
        if details.version != version_of::<Details>(1) {
            return Err(ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        if details.mode > 2 {
            return Err(ERROR_INVALID_ARGUMENT);
        }
        let found = if details.mode == 0 { running(machine, gpu) } else { Vec::new() };
        let info = |(pid, used)| Info { pid, used, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE };
        let found: Vec<Detail> = found.into_iter().map(|one| Detail { info: info(one), protected: 0 }).collect();
        let filled = fill(Out::of(&mut details.count), details.list, &found);
        out.set(details)?;
        filled
    }

    /// Processes with a context.
    also nvmlDeviceGetComputeRunningProcesses_v2;
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: Out<c_uint>, out: Out<Info>) |machine| {
        list(machine, device, count, out)
    }

    /// Processes with a context.
    fn nvmlDeviceGetComputeRunningProcesses(device: Device, count: Out<c_uint>, out: Out<InfoV1>) |machine| {
        list_v1(machine, device, count, out)
    }

    /// Processes that draw, and those under MPS: none.
    also nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetMPSComputeRunningProcesses_v2;
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Device, count: Out<c_uint>, _out: Out<Info>) |machine| {
        none(machine, device, count)
    }

    /// Processes that draw, and those under MPS: none.
    also nvmlDeviceGetMPSComputeRunningProcesses;
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Device, count: Out<c_uint>, _out: Out<InfoV1>) |machine| {
        none(machine, device, count)
    }

    /// Utilization of the device by each process. Without a list, reports their number.
    fn nvmlDeviceGetProcessUtilization(
        device: Device, out: Out<Sample>, count: Out<c_uint>, _last_seen_us: u64,
    ) |machine| {
        let gpu = device.gpu(machine)?;
        if out.is_null() {
            let living = machine.users(gpu).len();
            count.set(living as c_uint)?;
            return if living > 0 { Err(ERROR_INSUFFICIENT_SIZE) } else { Err(ERROR_NOT_FOUND) };
        }
        let samples = samples(machine, gpu);
        if samples.is_empty() {
            count.set(0)?;
            return Err(ERROR_NOT_FOUND);
        }
        fill(count, out, &samples)
    }
}
