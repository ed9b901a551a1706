//! The producer's end: slots that the loader fills, and a thread that serves the consumers.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod state;

pub use state::Counts;
pub(crate) use state::{Attached, Inner, Link, OTHER_ORDER, Shared};

use crate::gpu::{Gpu, GpuSlot};
use crate::memory::Slot;
use crate::message::{Info, Reply, UNKNOWN};
use crate::place::{Folder, Name, RecordFile, start_time};
use crate::ring::{Position, Ring, Room, Slow};
use crate::sys::Descriptor;
use crate::{Error, description, server, sys};

/// Configuration of a producer.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// Folder of its socket; none for the usual ones.
    pub folder: Option<PathBuf>,
    /// Slots of the ring.
    pub slots: usize,
    /// Policy for slow consumers that do not state one themselves.
    pub slow: Slow,
    /// Folder for batches of slow consumers.
    pub spill: PathBuf,
    /// Most bytes there.
    pub spill_limit: u64,
    /// Batches of an epoch, or [`UNKNOWN`].
    pub batches: u64,
    /// Samples of an epoch, or [`UNKNOWN`].
    pub samples: u64,
    /// Seed of the order of samples, unless a producer is resumed.
    pub seed: u64,
    /// True to continue where a producer of this name was killed.
    pub resume: bool,
    /// The GPU that batches lie on, as the program counts them.
    pub gpu: Option<c_int>,
}

/// Result of [`Producer::reserve`].
pub enum Reserved {
    /// Memory of at least the sizes that were asked for: where it begins, and on the GPU, if batches lie there.
    Memory {
        /// In this process's memory.
        host: *mut u8,
        /// On the GPU.
        gpu: u64,
    },
    /// Nothing in time.
    Again,
    /// No consumer wants the rest of the epoch.
    Unwanted,
}

/// A producer.
pub struct Producer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    spill: PathBuf,
    gpu: Option<Arc<Gpu>>,
    _name: Name,
}

impl Producer {
    /// Takes the name, and begins to listen.
    ///
    /// # Errors
    /// The name is taken, no folder can be used, or the GPU cannot.
    pub fn new(config: Config) -> Result<Self, Error> {
        crate::place::check_name(&config.name)?;
        if config.gpu.is_some() && config.slow == Slow::Spill {
            return Err(Error::Misuse(NO_SPILL));
        }
        // Before the name: a producer without its GPU leaves nothing.
        let gpu = config.gpu.map(Gpu::of_ordinal).transpose()?;
        let folder = Folder::for_producer(config.folder.as_deref())?;
        let name = Name::take(&folder, &config.name)?;
        let (mut record, former) = RecordFile::open(&folder, &config.name)?;
        let former = former.filter(|_| config.resume);
        let mut session = [0; 16];
        sys::random(&mut session).map_err(Error::io("random bytes"))?;
        let mut resumed = None;
        let (mut seed, mut expected) = (config.seed, Vec::new());
        if let Some(former) = former {
            (session, seed, resumed) = (former.session, former.seed, Some(former.needed));
            expected = former.consumers;
        } else {
            record.clear()?;
        }
        let path = folder.file(&config.name, "sock");
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(Error::System { what: "an old socket", error });
        }
        let listener = Descriptor::new(sys::listen(&path).map_err(Error::io("listening"))?);
        let wake = sys::event().map_err(Error::io("an event counter"))?;
        let spill = config.spill.clone();
        let mut inner = Inner {
            ring: Ring::new(config.slots, resumed.unwrap_or_default()),
            links: BTreeMap::new(),
            made: 0,
            config,
            session,
            expected,
            closing: false,
            ended: false,
            slots: Vec::new(),
            files: BTreeMap::new(),
            regions: 0,
            largest: 0,
            largest_gpu: 0,
            gpu: gpu.clone(),
            filling: None,
            record,
            record_due: false,
            seed,
            resumed,
            counts: Counts::default(),
        };
        inner.write_record();
        let shared = Arc::new(Shared { inner: Mutex::new(inner), changed: Condvar::new(), wake });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("radrm-share".into())
            .spawn(move || server::run(&for_thread, listener, &folder))
            .map_err(Error::io("a thread"))?;
        Ok(Self { shared, thread: Some(thread), spill, gpu, _name: name })
    }

    /// Seed of the order of samples: that of the killed producer if this one resumes it.
    pub fn seed(&self) -> u64 {
        self.shared.lock().seed
    }

    /// Returns true if this producer continues where another was killed.
    pub fn is_resumed(&self) -> bool {
        self.shared.lock().resumed.is_some()
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>, until: Instant) -> (MutexGuard<'a, Inner>, bool) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (inner, false);
        }
        let (inner, _) =
            self.shared.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner);
        (inner, true)
    }

    /// Waits until so many consumers are attached, and returns how many are.
    pub fn wait_for_consumers(&self, count: usize, timeout: Duration) -> usize {
        let until = Instant::now() + timeout;
        let mut inner = self.shared.lock();
        while inner.ring.members() < count {
            let (next, in_time) = self.wait(inner, until);
            inner = next;
            if !in_time {
                break;
            }
        }
        inner.ring.members()
    }

    /// Waits until the consumers of the killed producer are back that still live, and returns how many are missing.
    pub fn wait_for_former(&self, timeout: Duration) -> usize {
        /// Interval between two checks that they live.
        const LOOK: Duration = Duration::from_millis(50);
        let until = Instant::now() + timeout;
        let mut inner = self.shared.lock();
        loop {
            // A process without a known start cannot be looked up, as in another pid namespace.
            inner.expected.retain(|(pid, start)| *start == 0 || start_time(*pid) == Some(*start));
            if inner.expected.is_empty() || Instant::now() >= until {
                return inner.expected.len();
            }
            (inner, _) = self.wait(inner, until.min(Instant::now() + LOOK));
        }
    }

    /// Position to begin at: the earliest that a returned consumer needs, else that of the killed producer.
    /// It does not wait for consumers that have not returned by now.
    pub fn begin(&self) -> Position {
        let mut inner = self.shared.lock();
        inner.expected.clear();
        let needed = inner.ring.earliest().or(inner.resumed).unwrap_or_default();
        inner.ring.begin(needed);
        inner.write_record();
        inner.ring.head()
    }

    /// Memory for the next batch, and on the GPU if batches lie there. It must be published or abandoned before the next call.
    ///
    /// # Errors
    /// There is no memory, or a batch is not published yet.
    pub fn reserve(&self, bytes: u64, gpu_bytes: u64, timeout: Duration) -> Result<Reserved, Error> {
        let until = Instant::now() + timeout;
        if gpu_bytes > 0 && self.gpu.is_none() {
            return Err(Error::Misuse("the producer has no GPU"));
        }
        let mut inner = self.shared.lock();
        if inner.filling.is_some() || inner.ended {
            return Err(Error::Misuse("a batch is not published yet, or the producer has ended"));
        }
        loop {
            let (slot, is_new) = match inner.ring.room() {
                Room::Slot(slot) => (slot, false),
                Room::New(slot) => (slot, true),
                Room::Unwanted => return Ok(Reserved::Unwanted),
                Room::Spill { sequence, slot, bytes } => {
                    let room = inner.config.spill_limit.saturating_sub(inner.counts.spilled_bytes);
                    let source = inner.slots.get(slot).map(|stored| stored.slot.clone());
                    if bytes <= room
                        && let Some(source) = source
                    {
                        drop(inner);
                        let file = source.spill(bytes, &self.spill);
                        inner = self.shared.lock();
                        if let Ok(file) = file {
                            inner.spilled(sequence, file, bytes);
                            continue;
                        }
                    }
                    // Full: the others wait after all.
                    let (next, in_time) =
                        self.wait(inner, until.min(Instant::now() + Duration::from_millis(50)));
                    inner = next;
                    if !in_time || Instant::now() >= until {
                        return Ok(Reserved::Again);
                    }
                    continue;
                }
                Room::Wait => {
                    let (next, in_time) = self.wait(inner, until);
                    inner = next;
                    if !in_time {
                        return Ok(Reserved::Again);
                    }
                    continue;
                }
            };
            inner.filling = Some(slot);
            inner.largest = inner.largest.max(bytes);
            inner.largest_gpu = inner.largest_gpu.max(gpu_bytes);
            let fits = inner.slots.get(slot).filter(|stored| stored.fits(bytes, gpu_bytes));
            if let Some(stored) = fits
                && !is_new
            {
                return Ok(stored.memory());
            }
            let (largest, largest_gpu) = (inner.largest, inner.largest_gpu);
            drop(inner);
            // Without the lock: its pages are made now.
            let made = Slot::new(largest).and_then(|made| {
                let on_gpu = self.gpu.as_ref().filter(|_| largest_gpu > 0);
                Ok((made, on_gpu.map(|gpu| GpuSlot::new(gpu, largest_gpu)).transpose()?))
            });
            let mut inner = self.shared.lock();
            return match made {
                Ok((made, on_gpu)) => Ok(inner.store(slot, made, on_gpu)),
                Err(error) => {
                    inner.abandon();
                    Err(error)
                }
            };
        }
    }

    /// Begins a copy to the reserved memory on the GPU, as [`Gpu::copy`].
    ///
    /// # Errors
    /// The driver's, or it does not go to that memory.
    ///
    /// # Safety
    /// The source is valid until the batch is published or abandoned.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: u64, after: Option<usize>) -> Result<(), Error> {
        let inner = self.shared.lock();
        let slot = inner.filling.and_then(|slot| inner.slots.get(slot)).and_then(|stored| stored.gpu.clone());
        drop(inner);
        let (Some(gpu), Some(slot)) = (&self.gpu, slot) else {
            return Err(Error::Misuse("no memory on a GPU is reserved"));
        };
        let inside = to.checked_sub(slot.address()).and_then(|from| from.checked_add(bytes));
        if inside.is_none_or(|end| end > slot.bytes()) {
            return Err(Error::Misuse("a copy goes beyond the memory reserved"));
        }
        // SAFETY: the target is inside of the slot; the source is the caller's promise.
        unsafe { gpu.copy(to, from, bytes, after) }
    }

    /// Gives the reserved memory back.
    pub fn abandon(&self) {
        self.shared.lock().abandon();
    }

    /// Publishes the batch in the reserved memory.
    ///
    /// # Errors
    /// Its description is not valid, or no memory is reserved; then nothing is published.
    pub fn publish(&self, info: Info) -> Result<(), Error> {
        // A consumer may read it from now on, so its copies are waited for; without the lock.
        let copied = self.gpu.as_ref().filter(|_| info.gpu > 0).map_or(Ok(()), |gpu| gpu.finish());
        let mut inner = self.shared.lock();
        let slot = inner.filling.and_then(|slot| inner.slots.get(slot));
        let Some(slot) = slot.map(|stored| (stored.slot.clone(), stored.gpu.clone())) else {
            return Err(Error::Misuse("no memory is reserved"));
        };
        if let Err(error) = copied.and_then(|()| check(&slot.0, slot.1.as_deref(), info)) {
            inner.abandon();
            return Err(error);
        }
        let Some(slot) = inner.filling.take() else { return Err(Error::Misuse("no memory is reserved")) };
        inner.counts.published += 1;
        let broken = inner.ring.publish(slot, info);
        inner.broken(broken);
        // The serving thread writes the record, at the latest with the batch's release: a write here would delay consumers
        // that the system runs on this processor. An older record makes a restart begin earlier, which no consumer sees.
        inner.record_due = true;
        self.after(inner);
        Ok(())
    }

    /// All batches of the epoch are published.
    ///
    /// # Errors
    /// A batch is not published yet.
    pub fn end_epoch(&self) -> Result<Position, Error> {
        let mut inner = self.shared.lock();
        if inner.filling.is_some() || inner.ended {
            return Err(Error::Misuse("a batch is not published yet, or the producer has ended"));
        }
        let broken = inner.ring.end_epoch();
        inner.broken(broken);
        let head = inner.ring.head();
        inner.write_record();
        self.after(inner);
        Ok(head)
    }

    fn after(&self, mut inner: MutexGuard<'_, Inner>) {
        let attached = |(id, link): (&u64, &Link)| (link.attached && !link.dead).then_some(*id);
        let members: Vec<u64> = inner.links.iter().filter_map(attached).collect();
        let mut woken = false;
        for id in members {
            woken |= inner.pump(id);
        }
        inner.sweep();
        // What a socket did not take is sent by the serving thread.
        let waits = inner.links.values().any(|link| !link.outbox.is_empty());
        drop(inner);
        if waits {
            sys::wake(self.shared.wake.as_raw_fd());
        }
        // The system keeps a consumer on this processor rather than wake an idle one of a virtual machine, and lets this
        // thread run on until it sleeps.
        if woken {
            std::thread::yield_now();
        }
    }

    /// Waits until all consumers have got everything, then ends as it should. False if that is not so in time.
    pub fn finish(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut inner = self.shared.lock();
        while !inner.ring.is_delivered() || inner.links.values().any(|link| !link.outbox.is_empty()) {
            let (next, in_time) = self.wait(inner, until);
            inner = next;
            if !in_time {
                return false;
            }
        }
        inner.end(&Reply::End);
        true
    }

    /// Reports that the loader failed, and ends.
    pub fn fail(&self, text: &str) {
        self.shared.lock().end(&Reply::Failed { text: text.to_owned() });
    }

    /// Figures.
    pub fn counts(&self) -> Counts {
        let inner = self.shared.lock();
        Counts {
            consumers: inner.ring.members() as u64,
            slots: inner.slots.len() as u64,
            bytes: inner.slots.iter().map(|stored| stored.slot.bytes()).sum(),
            gpu_bytes: inner
                .slots
                .iter()
                .filter_map(|stored| stored.gpu.as_ref())
                .map(|slot| slot.bytes())
                .sum(),
            ..inner.counts
        }
    }
}

/// Reason that batches on a GPU cannot be written to disk for slow consumers.
pub(crate) const NO_SPILL: &str = "batches on a GPU are not written to disk: slow is wait or drop";

fn check(slot: &Slot, gpu: Option<&GpuSlot>, info: Info) -> Result<(), Error> {
    if info.gpu > gpu.map_or(0, GpuSlot::bytes) {
        return Err(Error::Misuse("the batch is longer than the memory reserved on the GPU"));
    }
    let short = Error::Misuse("the batch is longer than the memory reserved");
    let end = info.data.checked_add(info.description).filter(|end| *end <= slot.bytes());
    let Some(_) = end else { return Err(short) };
    let (from, length) = (info.data as usize, info.description as usize);
    // SAFETY: the range is inside of the slot, and only this process writes there, which has finished.
    let bytes = unsafe { std::slice::from_raw_parts(slot.start().add(from), length) };
    Ok(description::check(bytes, (info.data, info.gpu), |_| {})?)
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        sys::wake(self.shared.wake.as_raw_fd());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: String::new(),
            folder: None,
            slots: 8,
            slow: Slow::Wait,
            spill: std::env::temp_dir(),
            spill_limit: 16 << 30,
            batches: UNKNOWN,
            samples: UNKNOWN,
            seed: 0,
            resume: true,
            gpu: None,
        }
    }
}
