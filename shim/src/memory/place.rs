//! GPU and context that a call of this thread works on.

use crate::telemetry::GpuIndex;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use super::gpu;
use crate::context::arrival;
use crate::cx::Cx;

/// Place of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The GPU.
    pub(crate) gpu: GpuIndex,
    /// Ordinal of the device in this process.
    pub(crate) device: CUdevice,
    /// Bits of the context that owns the allocation; 0 where none does.
    pub(crate) context: u64,
}

// Words of the thread's state.
const CONTEXT: usize = 0;
const DEATHS_KNOWN: usize = 1;
const ANSWER: usize = 2;
const OWNER: usize = 3;

/// Contexts of this process that were destroyed.
static DEATHS: AtomicU64 = AtomicU64::new(0);

/// Number of contexts destroyed so far: what was remembered about a context holds until it changes.
#[inline(always)]
pub(crate) fn deaths() -> u64 {
    // Acquire pairs with the Release in `context_ended`: a thread that makes a new context current, with
    // the handle of the one destroyed, does so after that call has returned.
    DEATHS.load(Ordering::Acquire)
}

/// A context was destroyed: what threads remember about it does not hold any more.
pub(crate) fn context_ended() {
    // Release pairs with the Acquire in `deaths`.
    DEATHS.fetch_add(1, Ordering::Release);
}

const GPU_BITS: u32 = 8;

/// The place that the thread's current context stands for; `None` on a thread without one.
///
/// The driver is asked for the current context every time (nanoseconds: it reads a thread-local); what
/// lies behind a context is remembered until any context of the process is destroyed.
#[inline]
pub(crate) fn current(cx: &Cx<'_>) -> Option<Place> {
    let context = cx.driver().current_context()?.addr();
    let deaths = deaths();
    let [known, known_deaths, answer, owner, ..] = &cx.tls().memory;
    let is_known = known.get() == context && known_deaths.get() == deaths;
    if is_known || look_up(cx, context, deaths) { unpack(owner.get(), answer.get()) } else { None }
}

/// Finds out the place of a context and remembers it. False: there is none.
#[cold]
#[inline(never)]
fn look_up(cx: &Cx<'_>, context: u64, deaths: u64) -> bool {
    let Some(device) = cx.relaxed_capture(|| cx.driver().current_device()) else { return false };
    let owner = cx.relaxed_capture(|| arrival::owner(cx, CUcontext(context as *mut c_void)));
    let Some(gpu) = gpu::of_device(cx, device) else { return false };
    remember(cx, deaths, context, &Place { gpu, device, context: owner.addr() });
    // The runtime takes its context through private tables: this may be the first that is seen of it.
    cx.relaxed_capture(|| arrival::seen(cx, owner, device));
    true
}

fn remember(cx: &Cx<'_>, deaths: u64, context: u64, place: &Place) {
    let words = &cx.tls().memory;
    let answer = u64::from(place.gpu.number()) | (u64::from(place.device.cast_unsigned()) << GPU_BITS);
    for (at, word) in [(CONTEXT, context), (DEATHS_KNOWN, deaths), (ANSWER, answer), (OWNER, place.context)] {
        if let Some(cell) = words.get(at) {
            cell.set(word);
        }
    }
}

#[inline(always)]
fn unpack(context: u64, answer: u64) -> Option<Place> {
    Some(Place {
        gpu: GpuIndex::from_number((answer & ((1 << GPU_BITS) - 1)) as usize)?,
        device: ((answer >> GPU_BITS) as u32).cast_signed(),
        context,
    })
}

/// The place of a device, whatever context the thread has; no context owns what is put there.
pub(crate) fn of_device(cx: &Cx<'_>, device: CUdevice) -> Option<Place> {
    Some(Place { gpu: gpu::of_device(cx, device)?, device, context: 0 })
}

/// The place of an address that the driver has just handed out.
#[cold]
#[inline(never)]
pub(crate) fn of_pointer(cx: &Cx<'_>, address: u64) -> Option<Place> {
    let device = cx.relaxed_capture(|| cx.driver().device_of_pointer(address))?;
    of_device(cx, device)
}

/// The place that host memory is shown beside: the current context's GPU, else the first device's.
pub(crate) fn beside_host(cx: &Cx<'_>) -> Option<Place> {
    current(cx).or_else(|| of_device(cx, 0))
}
