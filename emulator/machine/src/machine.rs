//! The machine: made once, opened by everybody.

use std::ffi::{CStr, OsStr};
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use rustix::time::{ClockId, DynamicClockId};

use crate::checkpoint;
use crate::error::MachineError;
use crate::layout::{
    ENDED, LIVE, Layout, MAX_PROCESSES, REAPING, Slot, TEXT_BYTES, VERSION, generation_of, state_of, tag,
};
use crate::liveness::{ProcessIdentity, is_alive, pid_namespace};
use crate::mapping::{Mapping, load_bytes, store_bytes};
use crate::model::GpuSpec;
use crate::process::Process;
use crate::spec::MachineSpec;
use radrm_base::machine_file::MAGIC;

pub use radrm_base::machine_file::VARIABLE as ENV_MACHINE;
/// Environment variable that describes the machine to make where no file is named.
pub const ENV_EMULATE: &str = "RADRM_EMULATE";
/// Environment variable that says how a program's GPUs get on with time: `real` for with the wall clock, else waiting
/// takes none.
pub const ENV_TIME: &str = "RADRM_EMULATOR_TIME";
/// Environment variable that numbers the machine's GPUs for a program: number `i` is the GPU that the list has at place `i`.
pub const ENV_ORDER: &str = "RADRM_EMULATED_ORDER";
/// Environment variable that holds this process's [`crate::FaultPlan`].
pub const ENV_FAULTS: &str = "RADRM_EMULATOR_FAULTS";

/// The folder from which the library that this code is part of was loaded, by the name that the loader found.
fn own_folder() -> Option<PathBuf> {
    // SAFETY: zeros are valid for all fields.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = own_folder as *const libc::c_void;
    // SAFETY: an address of this library's code, and a place for the result.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of the library, which lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let folder = Path::new(OsStr::from_bytes(name.to_bytes())).parent()?;
    Some(folder.to_owned()).filter(|folder| folder.is_absolute())
}

/// Returns true if the environment lets GPUs get on with the wall clock.
pub fn time_is_real() -> bool {
    std::env::var(ENV_TIME).as_deref() == Ok("real")
}

/// Name of a machine's file, or of a link to it, in a folder of emulated libraries.
pub const MACHINE_FILE: &str = "machine";

/// Name of a private machine's memory file; how a second library in the same process finds it.
const PRIVATE_NAME: &str = "radrm-emulated-machine";

/// Up to so many other processes are looked at whenever a GPU's memory is asked for.
const FEW: usize = 8;
/// More of them are looked at no more often than this (ns): each look reads a file of `/proc`.
const LOOK_NS: u64 = 10_000_000;

/// Memory of one GPU in bytes. `free + used == total`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    /// All memory.
    pub total: u64,
    /// Charged by living processes.
    pub used: u64,
    /// The rest.
    pub free: u64,
}

/// Load of a GPU at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Processes with work under way.
    pub processes: u32,
    /// Their streams with work under way.
    pub streams: u32,
    /// Sum of the shares of the SMs that they ask for, in permille; may be above 1000.
    pub demand_permille: u32,
}

/// An emulated machine. Cheap to clone: clones share the mapping.
#[derive(Clone)]
pub struct Machine {
    mapping: Arc<Mapping>,
    spec: Arc<MachineSpec>,
    path: PathBuf,
    /// Time at which this process last checked for dead ones, ns.
    looked_ns: Arc<AtomicU64>,
    /// This process's slot: it needs no look.
    pub(crate) own: Arc<AtomicUsize>,
}

impl Machine {
    /// Makes a machine's file with mode 0600. The file appears under its name complete or not at all.
    ///
    /// # Errors
    /// [`MachineError::Io`], also when the file exists.
    pub fn create(spec: &MachineSpec, path: &Path) -> Result<Self, MachineError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let draft = path.with_file_name(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .map_err(|e| MachineError::io(path, e))?;
        let made = Self::fill(file, spec, path).and_then(|machine| {
            std::fs::hard_link(&draft, path).map(|()| machine).map_err(|e| MachineError::io(path, e))
        });
        let _ = std::fs::remove_file(&draft);
        made
    }

    /// Makes a machine in memory that has no name in the file system.
    ///
    /// # Errors
    /// [`MachineError::Io`].
    pub fn private(spec: &MachineSpec) -> Result<Self, MachineError> {
        let path = Path::new(PRIVATE_NAME);
        let fd: OwnedFd = rustix::fs::memfd_create(PRIVATE_NAME, rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|e| MachineError::io(path, e))?;
        Self::fill(File::from(fd), spec, path)
    }

    /// Opens a machine's file.
    ///
    /// # Errors
    /// [`MachineError::Io`], or [`MachineError::Foreign`] if it is not a machine of this version.
    pub fn open(path: &Path) -> Result<Self, MachineError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)
            .map_err(|e| MachineError::io(path, e))?;
        let foreign =
            |reason: &str| MachineError::Foreign { path: path.to_owned(), reason: reason.to_owned() };
        let size = file.metadata().map_err(|e| MachineError::io(path, e))?.len();
        if size != Mapping::SIZE as u64 {
            return Err(foreign("not an emulated machine of this version (wrong size)"));
        }
        let mapping = Mapping::new(file, path)?;
        let header = &mapping.get().header;
        // Partner: the Release store in `fill`. The file has its name only after that.
        if header.magic.load(Acquire) != MAGIC {
            return Err(foreign("not an emulated machine"));
        }
        if header.version.load(Relaxed) != VERSION || header.size.load(Relaxed) != Mapping::SIZE as u64 {
            return Err(foreign("an emulated machine of another version"));
        }
        let text = load_bytes(&mapping.get().text, header.text_len.load(Relaxed));
        let spec = std::str::from_utf8(&text)
            .map_err(|e| e.to_string())
            .and_then(|t| toml::from_str(t).map_err(|e| e.to_string()))
            .map_err(|e| foreign(&format!("its description cannot be read: {e}")))?;
        Ok(Self {
            mapping: Arc::new(mapping),
            spec: Arc::new(spec),
            path: path.to_owned(),
            looked_ns: Arc::default(),
            own: no_slot(),
        })
    }

    /// The machine that the environment names: the file of [`ENV_MACHINE`], else [`MACHINE_FILE`] in the folder from
    /// which this library was loaded, else the private machine that another library of this process made, else a new
    /// private one after [`ENV_EMULATE`] (default `1xH200`).
    ///
    /// # Errors
    /// As [`Self::open`] and [`MachineSpec::parse`]; the folder of this library has gone.
    pub fn from_environment() -> Result<Self, MachineError> {
        if let Some(path) = std::env::var_os(ENV_MACHINE).filter(|p| !p.is_empty()) {
            return Self::open(Path::new(&path));
        }
        // A process that has lost the variable is not to find another machine than its job.
        if let Some(folder) = own_folder() {
            let file = folder.join(MACHINE_FILE);
            if file.is_symlink() || file.exists() || !folder.exists() {
                return Self::open(&file);
            }
        }
        if let Some(machine) = Self::find_private() {
            return Ok(machine);
        }
        let text = std::env::var(ENV_EMULATE).ok().filter(|t| !t.is_empty());
        Self::private(&MachineSpec::parse(text.as_deref().unwrap_or("1xH200"))?)
    }

    fn find_private() -> Option<Self> {
        let target = format!("/memfd:{PRIVATE_NAME} (deleted)");
        std::fs::read_dir("/proc/self/fd").ok()?.flatten().find_map(|entry| {
            (std::fs::read_link(entry.path()).ok()?.to_str()? == target)
                .then(|| Self::open(&entry.path()).ok())
                .flatten()
        })
    }

    fn fill(file: File, spec: &MachineSpec, path: &Path) -> Result<Self, MachineError> {
        let text = toml::to_string(spec).map_err(|e| MachineError::spec("machine", e.to_string()))?;
        if text.len() > TEXT_BYTES {
            return Err(MachineError::spec("machine", "its description is too long"));
        }
        file.set_len(Mapping::SIZE as u64).map_err(|e| MachineError::io(path, e))?;
        let mapping = Mapping::new(file, path)?;
        let layout = mapping.get();
        let io = |e| MachineError::io(path, e);
        mapping.reserve(&layout.header).map_err(io)?;
        mapping.reserve(&layout.text).map_err(io)?;
        mapping.reserve(&layout.held).map_err(io)?;
        mapping.reserve(&layout.busy_until).map_err(io)?;
        mapping.reserve(&layout.busy_demand).map_err(io)?;
        mapping.reserve(&layout.work_until).map_err(io)?;
        mapping.reserve(&layout.work_weight).map_err(io)?;
        mapping.reserve(&layout.timelines).map_err(io)?;
        mapping.reserve(&layout.objects).map_err(io)?;
        mapping.reserve(&layout.groups).map_err(io)?;
        let header = &layout.header;
        header.text_len.store(store_bytes(&layout.text, text.as_bytes()), Relaxed);
        header.version.store(VERSION, Relaxed);
        header.size.store(Mapping::SIZE as u64, Relaxed);
        header.seed.store(spec.seed, Relaxed);
        header.created_mono_ns.store(monotonic_ns(), Relaxed);
        header.created_real_ns.store(clock_ns(ClockId::Realtime), Relaxed);
        header.next_unique.store(1, Relaxed);
        // Partner: the Acquire load in `open`.
        header.magic.store(MAGIC, Release);
        let looked_ns = Arc::default();
        Ok(Self {
            mapping: Arc::new(mapping),
            spec: Arc::new(spec.clone()),
            path: path.to_owned(),
            looked_ns,
            own: no_slot(),
        })
    }

    /// Description of the emulated machine.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// One GPU's figures; `None` beyond the last.
    pub fn gpu(&self, gpu: usize) -> Option<&GpuSpec> {
        self.spec.gpu.get(gpu)
    }

    /// Number of GPUs.
    pub fn gpu_count(&self) -> usize {
        self.spec.gpu.len()
    }

    /// The file, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Time of creation (CLOCK_MONOTONIC, ns).
    pub fn created_ns(&self) -> u64 {
        self.layout().header.created_mono_ns.load(Relaxed)
    }

    /// A number that no other call on this machine gets, in any process.
    pub fn unique(&self) -> u64 {
        self.layout().header.next_unique.fetch_add(1, Relaxed)
    }

    /// Makes a GPU fall off the bus, or brings it back: meanwhile NVML answers GPU_IS_LOST for it, and
    /// contexts on it break at their next launch.
    pub fn set_lost(&self, gpu: usize, lost: bool) {
        let bit = 1_u64.checked_shl(gpu as u32).unwrap_or(0);
        let word = &self.layout().header.lost;
        if lost {
            word.fetch_or(bit, Relaxed)
        } else {
            word.fetch_and(!bit, Relaxed)
        };
    }

    /// Returns true if a GPU is off the bus.
    pub fn is_lost(&self, gpu: usize) -> bool {
        self.layout().header.lost.load(Relaxed) & 1_u64.checked_shl(gpu as u32).unwrap_or(0) != 0
    }

    /// Takes a slot for the calling process.
    ///
    /// # Errors
    /// [`MachineError::Full`] if as many processes live as there are slots; [`MachineError::Io`] if
    /// the file system is full.
    pub fn join(&self) -> Result<Process, MachineError> {
        Process::join(self.clone())
    }

    /// Memory of one GPU, exact across processes. Memory of dead processes comes back first; where
    /// many processes live, they are looked at every [`LOOK_NS`] at most.
    pub fn memory(&self, gpu: usize) -> MemoryUse {
        self.reap_now_and_then();
        self.memory_now(gpu)
    }

    /// As [`Self::memory`], as this process sees it: no more than the limit of its control group.
    pub fn memory_seen(&self, gpu: usize) -> MemoryUse {
        let memory = self.memory(gpu);
        let Some(group) = self.own_group_memory(gpu).filter(|group| group.hard < memory.total) else {
            return memory;
        };
        let free = memory.free.min(group.hard.saturating_sub(group.used));
        MemoryUse { total: group.hard, used: group.hard - free, free }
    }

    /// As [`Self::memory`] without looking for dead processes.
    pub fn memory_now(&self, gpu: usize) -> MemoryUse {
        let total = self.gpu(gpu).map_or(0, GpuSpec::memory_bytes);
        let used = self.held(gpu).min(total);
        MemoryUse { total, used, free: total - used }
    }

    /// Load of one GPU at `now_ns` (CLOCK_MONOTONIC) by processes other than `except`.
    pub fn load(&self, gpu: usize, now_ns: u64, except: Option<&Process>) -> Load {
        let layout = self.layout();
        let mut load = Load::default();
        let (Some(until), Some(demand)) = (layout.busy_until.get(gpu), layout.busy_demand.get(gpu)) else {
            return load;
        };
        for slot in 0..self.slots_used() {
            if until[slot].load(Relaxed) > now_ns && except.is_none_or(|p| p.slot_index() != slot) {
                let word = demand[slot].load(Relaxed);
                load.processes += 1;
                load.streams = load.streams.saturating_add((word >> 32) as u32);
                load.demand_permille = load.demand_permille.saturating_add(word as u32);
            }
        }
        load
    }

    fn reap_now_and_then(&self) {
        let own = self.own.load(Relaxed);
        let slots = self.layout().slots.iter().take(self.slots_used()).enumerate();
        let lives = |slot: &Slot| matches!(state_of(slot.state.load(Acquire)), LIVE | REAPING);
        let others = slots.filter(|(index, slot)| *index != own && lives(slot)).count();
        if others == 0 {
            return;
        }
        if others > FEW {
            let now = monotonic_ns();
            if now.saturating_sub(self.looked_ns.load(Relaxed)) < LOOK_NS {
                return;
            }
            self.looked_ns.store(now, Relaxed);
        }
        self.reap();
    }

    /// As [`Self::reap`], every [`LOOK_NS`] at most.
    pub(crate) fn reap_rarely(&self, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns.load(Relaxed)) >= LOOK_NS {
            self.looked_ns.store(now_ns, Relaxed);
            self.reap();
        }
    }

    /// Ends the slots of dead processes, so that their memory is free again. Any process may do this
    /// at any time, and be killed while it does: the next one goes on.
    pub fn reap(&self) {
        let own = self.own.load(Relaxed);
        for (index, slot) in self.layout().slots.iter().enumerate().take(self.slots_used()) {
            let word = slot.state.load(Acquire);
            match state_of(word) {
                LIVE if index != own && !self.lives(slot) => {
                    self.end(index, word);
                }
                REAPING => self.clear(index, word),
                _ => {}
            }
        }
    }

    /// Returns true if the process of a slot lives: by its pid where that means something, else by its lock.
    /// One of another pid namespace that has no lock is taken to live.
    pub(crate) fn lives(&self, slot: &Slot) -> bool {
        let namespace = pid_namespace();
        if namespace != 0 && slot.namespace.load(Relaxed) == namespace {
            return is_alive(&identity(slot));
        }
        slot.locked.load(Relaxed) == 0 || self.mapping.is_locked(slot)
    }

    /// Ends a slot whose state was `seen`; nothing happens if it changed meanwhile.
    pub(crate) fn end(&self, index: usize, seen: u64) {
        let reaping = tag(generation_of(seen), REAPING);
        let Some(slot) = self.layout().slots.get(index) else { return };
        if slot.state.compare_exchange(seen, reaping, SeqCst, Relaxed).is_ok() {
            self.clear(index, reaping);
        }
    }

    /// Takes what a slot holds out of the sums. Storing 0 twice does no harm, so several processes
    /// may do it for the same slot. The slot cannot be claimed before it says ENDED; a process that
    /// is still here after another process's ENDED could zero the words of the slot's next owner, so
    /// every store is a compare-exchange against the value seen while the slot was REAPING.
    fn clear(&self, index: usize, reaping: u64) {
        let layout = self.layout();
        let Some(slot) = layout.slots.get(index) else { return };
        // Partner: a caller that checkpoints looks at the slot's state after it said what it does.
        if checkpoint::is_being_written(slot) {
            return;
        }
        let busy = layout.busy_until.iter().chain(&layout.busy_demand);
        let work = layout.work_until.iter().chain(&layout.work_weight);
        for words in layout.held.iter().chain(busy).chain(work) {
            let value = words[index].load(SeqCst);
            if slot.state.load(SeqCst) != reaping {
                return;
            }
            let _ = words[index].compare_exchange(value, 0, SeqCst, Relaxed);
        }
        for (gpu, ledger) in slot.ledgers.iter().enumerate().take(self.gpu_count()) {
            let passed = layout.timelines[gpu].passed_ns.load(Relaxed);
            if slot.state.load(SeqCst) != reaping {
                return;
            }
            ledger.curve.cut(passed);
        }
        self.drop_objects_of(index, generation_of(reaping));
        let _ = slot.state.compare_exchange(reaping, tag(generation_of(reaping), ENDED), SeqCst, Relaxed);
    }

    pub(crate) fn held(&self, gpu: usize) -> u64 {
        self.layout().held.get(gpu).map_or(0, |words| {
            // Partner: the SeqCst additions in `Process::reserve`: of two processes that add at the
            // same time at least one sees the other's bytes in its sum.
            words[..self.slots_used()].iter().fold(0, |sum, word| sum + word.load(SeqCst))
        })
    }

    pub(crate) fn slots_used(&self) -> usize {
        (self.layout().header.slots_used.load(SeqCst) as usize).min(MAX_PROCESSES)
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.mapping.get()
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

fn no_slot() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(usize::MAX))
}

pub(crate) fn identity(slot: &Slot) -> ProcessIdentity {
    ProcessIdentity {
        pid: slot.pid.load(Relaxed),
        start_time: slot.start_time.load(Relaxed),
        image: slot.image.load(Relaxed),
        stack: slot.stack.load(Relaxed),
    }
}

/// `CLOCK_MONOTONIC` in ns: the time of the machine's GPUs, which all its processes share.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// Asks the kernel's vDSO itself: libc's function may be that of a library that fakes the time of one process.
fn clock_ns(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime_dynamic(DynamicClockId::Known(clock));
    time.map_or(0, |time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
