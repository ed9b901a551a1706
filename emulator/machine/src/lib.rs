//! The emulated machine: GPUs, memory, processes and clocks shared by all programs that use it.
//!
//! One machine is one file, mapped by every program that talks to its GPUs (through the emulated
//! driver), asks about them (through the emulated NVML) or reads its ledgers. There is no server and
//! no lock: every process has a slot of its own, writes only there, and a figure of the machine is a
//! sum over the slots of living processes. A process may therefore be killed at any instruction
//! without blocking another, and what it held comes back by itself.
//!
//! * [`MachineSpec`] and [`GpuSpec`] say what is emulated: a short text such as `2xH200`, or a TOML
//!   file.
//! * [`Machine`] creates or opens the file, and answers questions about the GPUs.
//! * [`Process`] is a program's own slot: it charges and discharges memory, does the accounting, and
//!   says how busy the program keeps a GPU.
//! * [`Machine::gpu_time`] says how far a GPU has got on with the work of all of them (module `timeline`).
//! * [`Machine::sm_work`] says what was at work on its multiprocessors (module `activity`).
//! * [`Machine::ledgers`] gives the ledgers of all processes, dead ones included.
//! * [`Machine::lock_process`] and its neighbours take a process off its GPUs and bring it back.
//! * [`Machine::set_group_memory`] limits the memory of control groups (module `groups`).
//! * [`FaultPlan`] says what shall go wrong in one process.
//!
//! # Accounting
//!
//! Each process and GPU has a ledger with one page per [`Charge`]. A page has two columns, *requested*
//! (the bytes that the program named) and *held* (the bytes that the GPU gave up for it, after the
//! rounding of [`HOLD_GRANULE`]). Only held bytes of the charges for which [`Charge::is_held`] holds
//! count against the GPU's memory.
#![warn(missing_docs)]

mod activity;
mod charge;
mod checkpoint;
mod error;
mod faults;
mod groups;
mod layout;
mod ledger;
mod liveness;
mod lock;
mod looks;
mod machine;
mod mapping;
mod model;
mod objects;
mod process;
mod spec;
mod timeline;

pub use activity::{SmLoad, SmPlan, SmWork};
pub use charge::{CHARGES, Charge};
pub use checkpoint::{CheckpointError, CheckpointState, Inside, Mark};
pub use error::MachineError;
pub use faults::{FaultError, FaultPlan};
pub use groups::{GroupError, GroupMemory, NO_LIMIT};
pub use layout::{MAX_GPUS, MAX_OBJECTS, MAX_PROCESSES};
pub use ledger::{GpuLedger, KindLedger, ProcessLedger, ledgers_to_json};
pub use liveness::{ProcessIdentity, is_alive};
pub use looks::{GpuTotals, GpuUser};
pub use machine::{
    ENV_EMULATE, ENV_FAULTS, ENV_MACHINE, ENV_ORDER, ENV_TIME, Load, MACHINE_FILE, Machine, MemoryUse,
    monotonic_ns, time_is_real,
};
pub use model::{GpuSpec, MODELS_TOML, Models, USUAL_MODEL};
pub use objects::{ObjectId, SharedKind, SharedObject};
pub use process::{NoMemory, Process};
pub use radrm_base::Kind;
pub use spec::MachineSpec;
pub use timeline::WHOLE;

/// Bytes in which a GPU hands out physical memory: everything charged is a multiple of it.
pub const HOLD_GRANULE: u64 = 2 << 20;
