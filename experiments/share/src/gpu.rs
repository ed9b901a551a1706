//! A GPU that batches lie on: its memory, shared by file descriptors of the driver's virtual memory management.
//!
//! The producer makes physical memory, which the driver charges to it, and exports it. A consumer imports the descriptor and
//! maps the same memory: no byte is copied, and nothing is charged to the consumer. Both use the device's primary context,
//! which is that of all frameworks.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

mod driver;

use crate::message::{NO_GPU, Uuid};
use crate::sys::Descriptor;
use crate::{Error, sys};
use driver::{Access, Functions, Location, Properties};

/// Each array on a GPU begins at a multiple of this many bytes, as DLPack asks.
pub const ALIGNMENT: u64 = 256;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIME: u32 = 2;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_FD: u32 = 1;

/// A GPU whose primary context this process holds.
#[derive(Debug)]
pub struct Gpu {
    cuda: &'static Functions,
    ordinal: c_int,
    uuid: Uuid,
    context: usize,
    /// Copies of the producer.
    stream: usize,
}

impl Gpu {
    /// The GPU of a number, as the program counts them.
    ///
    /// # Errors
    /// There is no driver, no such GPU, or it cannot export memory.
    pub fn of_ordinal(ordinal: c_int) -> Result<Arc<Self>, Error> {
        let (cuda, count) = driver::ready()?;
        if !(0..count).contains(&ordinal) {
            return Err(Error::Gpu(format!("there is no GPU cuda:{ordinal}: the program sees {count}")));
        }
        let gpu = Self::open(cuda, ordinal)?;
        let can = |attribute| {
            let mut found = 0;
            // SAFETY: the out-parameter lives for the call.
            let code = unsafe { (cuda.attribute)(&raw mut found, attribute, ordinal) };
            code == 0 && found != 0
        };
        // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED and HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED.
        if can(102) && can(103) {
            Ok(Arc::new(gpu))
        } else {
            Err(Error::Gpu(format!("cuda:{ordinal} cannot share memory by file descriptors")))
        }
    }

    /// The GPU of an identity.
    ///
    /// # Errors
    /// There is no driver, or this process does not see the GPU.
    pub fn of_uuid(uuid: Uuid) -> Result<Arc<Self>, Error> {
        let (cuda, count) = driver::ready()?;
        match (0..count).find(|ordinal| identity(cuda, *ordinal) == Some(uuid)) {
            Some(ordinal) => Self::open(cuda, ordinal).map(Arc::new),
            None => Err(Error::Gpu(format!(
                "the batches lie on {}, which this program does not see",
                named(uuid)
            ))),
        }
    }

    fn open(cuda: &'static Functions, ordinal: c_int) -> Result<Self, Error> {
        let uuid =
            identity(cuda, ordinal).ok_or_else(|| Error::Gpu(format!("cuda:{ordinal} has no UUID")))?;
        let (mut context, mut stream) = (0, 0);
        // SAFETY: the out-parameter lives for the call.
        cuda.done("a context on the GPU", unsafe { (cuda.retain)(&raw mut context, ordinal) })?;
        // Made before the stream, so that the context is given back if that fails.
        let mut gpu = Self { cuda, ordinal, uuid, context, stream: 0 };
        // SAFETY: as above.
        let made = gpu.within(|| unsafe { (cuda.stream_create)(&raw mut stream, NON_BLOCKING) });
        cuda.done("a stream on the GPU", made)?;
        gpu.stream = stream;
        Ok(gpu)
    }

    /// Its number, as the program counts them.
    pub fn ordinal(&self) -> c_int {
        self.ordinal
    }

    /// Its identity.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Calls the driver with this GPU's context; the thread's own is current again afterwards.
    fn within(&self, call: impl FnOnce() -> c_int) -> c_int {
        let mut popped = 0;
        // SAFETY: the context is held as long as this object lives.
        let pushed = unsafe { (self.cuda.push)(self.context) };
        if pushed != 0 {
            return pushed;
        }
        let code = call();
        // SAFETY: the out-parameter lives for the call.
        unsafe { (self.cuda.pop)(&raw mut popped) };
        code
    }

    /// Begins a copy to memory of this GPU, from anywhere; after what a stream of the program does now, if one is given.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// Both ranges are valid until [`Gpu::finish`] has returned.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: u64, after: Option<usize>) -> Result<(), Error> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::Misuse("a batch is too large"))?;
        if let Some(after) = after {
            let event = Event::record(self, after)?;
            // SAFETY: stream and event live.
            let code = self.within(|| unsafe { (self.cuda.stream_wait)(self.stream, event.event, 0) });
            self.cuda.done("waiting for a stream", code)?;
        }
        // SAFETY: the caller's promise.
        let code = self.within(|| unsafe { (self.cuda.copy)(to, from, bytes, self.stream) });
        self.cuda.done("copying a batch to the GPU", code)
    }

    /// Waits until all copies are done.
    ///
    /// # Errors
    /// One of them failed.
    pub fn finish(&self) -> Result<(), Error> {
        // SAFETY: the stream lives as long as this object.
        let code = self.within(|| unsafe { (self.cuda.stream_finish)(self.stream) });
        self.cuda.done("copying a batch to the GPU", code)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // After the driver's end these are errors that change nothing.
        if self.stream != 0 {
            // SAFETY: made by `open`, not used any more.
            self.within(|| unsafe { (self.cuda.stream_destroy)(self.stream) });
        }
        // SAFETY: retained by `open`.
        unsafe { (self.cuda.give_back)(self.ordinal) };
    }
}

fn identity(cuda: &Functions, ordinal: c_int) -> Option<Uuid> {
    let mut uuid = NO_GPU;
    // SAFETY: the out-parameter lives for the call and has the size of a CUuuid.
    let code = unsafe { (cuda.uuid)(&raw mut uuid, ordinal) };
    (code == 0 && uuid != NO_GPU).then_some(uuid)
}

/// An identity as nvidia-smi prints it.
fn named(uuid: Uuid) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("GPU-{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// Addresses at which physical memory is mapped.
#[derive(Debug)]
struct Mapped {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
}

impl Mapped {
    /// Maps memory; with the first of these rights that the driver gives.
    fn new(gpu: &Arc<Gpu>, handle: u64, bytes: usize, rights: &[u32]) -> Result<Self, Error> {
        let (cuda, mut address) = (gpu.cuda, 0);
        // SAFETY: the out-parameter lives for the call.
        let code = gpu.within(|| unsafe { (cuda.reserve)(&raw mut address, bytes, 0, 0, 0) });
        cuda.done("addresses on the GPU", code)?;
        // SAFETY: the range was reserved just now, and nothing is mapped there.
        let code = gpu.within(|| unsafe { (cuda.map)(address, bytes, 0, handle, 0) });
        if code != 0 {
            // SAFETY: reserved above with this size.
            gpu.within(|| unsafe { (cuda.unreserve)(address, bytes) });
            return Err(cuda.error("mapping memory of the GPU", code));
        }
        let mapped = Self { gpu: gpu.clone(), address, bytes };
        let mut code = 0;
        for flags in rights {
            let access = Access { location: Location::device(gpu.ordinal), flags: *flags };
            // SAFETY: the range is one whole mapping; the description lives for the call.
            code = gpu.within(|| unsafe { (cuda.set_access)(address, bytes, &raw const access, 1) });
            if code == 0 {
                return Ok(mapped);
            }
        }
        Err(cuda.error("rights to memory of the GPU", code))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let cuda = self.gpu.cuda;
        // SAFETY: mapped by `new`; the owner promises that no work of the GPU uses it any more. Addresses are given back only if
        // nothing is mapped there.
        self.gpu.within(|| unsafe {
            match (cuda.unmap)(self.address, self.bytes) {
                0 => (cuda.unreserve)(self.address, self.bytes),
                code => code,
            }
        });
    }
}

/// The producer's side of a batch's memory on a GPU.
#[derive(Debug)]
pub struct GpuSlot {
    mapped: Mapped,
    /// Descriptor for the consumers. A forked child closes its copy, which would keep the memory.
    file: Descriptor,
}

impl GpuSlot {
    /// Memory for at least so many bytes.
    ///
    /// # Errors
    /// The GPU, or the job's quota, has too little.
    pub fn new(gpu: &Arc<Gpu>, bytes: u64) -> Result<Self, Error> {
        let (cuda, large) = (gpu.cuda, Error::Misuse("a batch is too large"));
        let properties = Properties::exportable(gpu.ordinal);
        let mut unit = 0;
        // SAFETY: out-parameter and properties live for the call.
        let code = gpu.within(|| unsafe { (cuda.granularity)(&raw mut unit, &raw const properties, 0) });
        cuda.done("the unit of memory on the GPU", code)?;
        let bytes =
            usize::try_from(bytes).ok().and_then(|bytes| bytes.max(1).checked_next_multiple_of(unit.max(1)));
        let bytes = bytes.ok_or(large)?;
        let mut handle = 0;
        // SAFETY: as above.
        let code = gpu.within(|| unsafe { (cuda.create)(&raw mut handle, bytes, &raw const properties, 0) });
        cuda.done("memory on the GPU for batches", code)?;
        // The mapping keeps the memory; the handle is given back in any case.
        let mapped = Mapped::new(gpu, handle, bytes, &[READ_WRITE]);
        let mut fd: c_int = -1;
        // SAFETY: the out-parameter lives for the call.
        let code = gpu.within(|| unsafe { (cuda.export)((&raw mut fd).cast(), handle, POSIX_FD, 0) });
        // SAFETY: the handle was made above and is not used again.
        gpu.within(|| unsafe { (cuda.release)(handle) });
        cuda.done("exporting memory of the GPU", code)?;
        // SAFETY: the driver has just made it, for this process to close.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        sys::close_on_exec(&file).map_err(Error::io("a descriptor"))?;
        Ok(Self { mapped: mapped?, file: Descriptor::new(file) })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.mapped.bytes as u64
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.mapped.address
    }

    /// Descriptor for the consumers.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.fd()
    }
}

/// `CU_MEM_ACCESS_FLAGS_PROT_READ`.
const READ: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

/// A consumer's side of a batch's memory on a GPU.
#[derive(Debug)]
pub struct GpuView {
    mapped: Mapped,
}

impl GpuView {
    /// Maps what the producer has sent: for reading only where the driver has that for memory of a GPU.
    ///
    /// # Errors
    /// The descriptor is none of memory with so many bytes, or the driver does not map it.
    pub fn new(gpu: &Arc<Gpu>, fd: &OwnedFd, bytes: u64) -> Result<Self, Error> {
        let cuda = gpu.cuda;
        let size = usize::try_from(bytes).map_err(|_| Error::Misuse("a batch is too large"))?;
        let mut handle = 0;
        let file = fd.as_fd().as_raw_fd() as usize;
        // SAFETY: the out-parameter lives for the call; the descriptor stays this process's.
        let code = gpu.within(|| unsafe { (cuda.import)(&raw mut handle, file, POSIX_FD) });
        cuda.done("importing memory of the GPU", code)?;
        let mapped = Mapped::new(gpu, handle, size, &[READ, READ_WRITE]);
        // SAFETY: imported above, not used again; the mapping keeps the memory.
        gpu.within(|| unsafe { (cuda.release)(handle) });
        Ok(Self { mapped: mapped? })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.mapped.bytes as u64
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.mapped.address
    }

    /// Its GPU, as the program counts them.
    pub fn ordinal(&self) -> c_int {
        self.mapped.gpu.ordinal
    }
}

/// Memory of a consumer's own for a batch that it keeps.
#[derive(Debug)]
pub struct GpuCopy {
    gpu: Arc<Gpu>,
    address: u64,
}

impl GpuCopy {
    /// Copies the beginning of a batch's memory.
    ///
    /// # Errors
    /// The GPU, or the job's quota, has too little memory.
    pub fn new(view: &GpuView, bytes: u64) -> Result<Self, Error> {
        let (gpu, mut address) = (view.mapped.gpu.clone(), 0);
        let cuda = gpu.cuda;
        let bytes = bytes.clamp(1, view.bytes());
        // SAFETY: the out-parameter lives for the call.
        let code = gpu.within(|| unsafe { (cuda.allocate)(&raw mut address, bytes as usize) });
        cuda.done("memory on the GPU for a batch that is kept", code)?;
        let copy = Self { gpu, address };
        // SAFETY: both ranges have these bytes, and live until the copy is finished below.
        unsafe { copy.gpu.copy(address, view.address(), bytes, None)? };
        copy.gpu.finish()?;
        Ok(copy)
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for GpuCopy {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the driver waits for work that uses it.
        self.gpu.within(|| unsafe { (self.gpu.cuda.free)(self.address) });
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    gpu: &'static Functions,
    event: usize,
}

impl Event {
    /// Records the present position of a stream.
    ///
    /// # Errors
    /// The driver's, as for a stream that is being captured.
    pub fn record(gpu: &Gpu, stream: usize) -> Result<Self, Error> {
        let (cuda, mut event) = (gpu.cuda, 0);
        // SAFETY: the out-parameter lives for the call.
        let code = gpu.within(|| unsafe { (cuda.event_create)(&raw mut event, WITHOUT_TIME) });
        cuda.done("an event", code)?;
        let made = Self { gpu: cuda, event };
        // SAFETY: the event lives; the stream is the program's.
        let code = gpu.within(|| unsafe { (cuda.event_record)(event, stream) });
        cuda.done("an event", code)?;
        Ok(made)
    }

    /// Returns true if the stream has reached the event, or cannot reach it any more.
    pub fn is_reached(&self) -> bool {
        /// `CUDA_ERROR_NOT_READY`.
        const NOT_READY: c_int = 600;
        // SAFETY: the event lives.
        unsafe { (self.gpu.event_query)(self.event) != NOT_READY }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `record`.
        unsafe { (self.gpu.event_destroy)(self.event) };
    }
}

/// Events of batches that are released once the GPU has read them.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Vec<(u64, Vec<Event>)>>);

impl Pending {
    /// Keeps a lease until its events are reached.
    pub fn keep(&self, lease: u64, events: Vec<Event>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((lease, events));
    }

    /// Leases whose events are reached, and whether others are left.
    pub fn reached(&self) -> (Vec<u64>, bool) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_reached = |of: &mut (u64, Vec<Event>)| of.1.iter().all(Event::is_reached);
        let reached = kept.extract_if(.., is_reached).map(|(lease, _)| lease).collect();
        (reached, !kept.is_empty())
    }
}
