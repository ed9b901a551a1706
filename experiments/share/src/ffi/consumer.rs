//! Functions of a consumer.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::{AGAIN, END, EPOCH_END, Handle, guarded, millis, slow, text};
use crate::Error;
use crate::consumer::{self, Consumer, Event};
use crate::gpu::GpuCopy;
use crate::memory::Access;
use crate::message::Start;
use crate::ring::Position;

/// Configuration for [`radrm_share_consumer`].
#[repr(C)]
pub struct ConsumerConfig {
    name: *const c_char,
    folder: *const c_char,
    epoch: u64,
    index: u64,
    order: u64,
    /// 0 epoch, 1 now, 2 at the position above.
    start: u8,
    slow: u8,
    window: u8,
    /// 0 shared, 1 private, 2 pinned.
    access: u8,
}

/// Result of [`radrm_share_next`].
#[repr(C)]
pub struct NextBatch {
    lease: u64,
    address: *mut u8,
    region: u64,
    bytes: u64,
    epoch: u64,
    index: u64,
    samples: u64,
    before: u64,
    after: u64,
    data: u64,
    /// Valid until the next call of `radrm_share_next` on this handle.
    description: *const u8,
    description_bytes: u64,
    /// Data on the GPU: their bytes, where they begin, and the GPU's number, -1 if none lies there.
    gpu_data: u64,
    gpu: u64,
    gpu_device: i64,
}

/// Result of [`radrm_share_welcome`].
#[repr(C)]
pub struct WelcomeFigures {
    batches: u64,
    samples: u64,
    dropped: u64,
    leases: u64,
    session: [u8; 16],
    slow: u8,
    /// True if batches lie on a GPU.
    on_gpu: u8,
}

/// A consumer, and the description that it gave last.
pub struct Attached {
    consumer: Consumer,
    description: Mutex<Arc<Vec<u8>>>,
}

/// Makes a consumer.
///
/// # Safety
/// The configuration's texts end with zeros or are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_consumer(
    config: &ConsumerConfig,
    timeout: i64,
    to: &mut *mut Handle<Attached>,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (name, folder) = unsafe { (text(config.name)?, text(config.folder)?) };
        let position = Position { epoch: config.epoch, index: config.index };
        let start = match config.start {
            0 => Start::Epoch,
            1 => Start::Now,
            _ => Start::At { position, order: config.order },
        };
        let own = consumer::Config {
            name: name.unwrap_or_default(),
            folder: folder.map(PathBuf::from),
            start,
            slow: slow(config.slow)?,
            window: config.window.clamp(2, 64),
            access: match config.access {
                0 => Access::Shared,
                1 => Access::Private,
                _ => Access::Pinned,
            },
        };
        let consumer = Consumer::new(own, millis(timeout))?;
        *to = Handle::make(Attached { consumer, description: Mutex::default() });
        Ok(0)
    })
}

/// Frees a consumer and unmaps its batches.
///
/// # Safety
/// The handle is valid or null, neither it nor memory of its batches is used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_consumer_free(handle: *mut Handle<Attached>) {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        Handle::free(handle);
        Ok(0)
    });
}

/// Ends the connection of a consumer; its batches stay mapped.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_close(handle: *const Handle<Attached>) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle)? }.consumer.close();
        Ok(0)
    })
}

/// Attaches again.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_attach(handle: *const Handle<Attached>, timeout: i64) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle)? }.consumer.attach(millis(timeout))?;
        Ok(0)
    })
}

/// Properties that the producer announced, and figures of the consumer.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_welcome(
    handle: *const Handle<Attached>,
    to: &mut WelcomeFigures,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let consumer = &unsafe { Handle::get(handle)? }.consumer;
        let welcome = consumer.welcome().ok_or(Error::Misuse("it is not attached"))?;
        *to = WelcomeFigures {
            batches: welcome.batches,
            samples: welcome.samples,
            dropped: consumer.dropped(),
            leases: consumer.leases() as u64,
            session: welcome.session,
            slow: welcome.slow as u8,
            on_gpu: welcome.on_gpu.into(),
        };
        Ok(0)
    })
}

/// The next batch, or [`AGAIN`], [`EPOCH_END`] or [`END`].
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_next(
    handle: *const Handle<Attached>,
    timeout: i64,
    to: &mut NextBatch,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let attached = unsafe { Handle::get(handle)? };
        let received = match attached.consumer.next(millis(timeout))? {
            Event::Again => return Ok(AGAIN),
            Event::End => return Ok(END),
            Event::EpochEnd(Position { epoch, index }) => {
                (to.epoch, to.index) = (epoch, index);
                return Ok(EPOCH_END);
            }
            Event::Batch(received) => received,
        };
        let batch = received.batch;
        *to = NextBatch {
            lease: received.lease,
            address: received.start,
            region: received.region,
            bytes: received.bytes,
            epoch: batch.position.epoch,
            index: batch.position.index,
            samples: batch.info.samples,
            before: batch.info.before,
            after: batch.info.after,
            data: batch.info.data,
            description: received.description.as_ptr(),
            description_bytes: received.description.len() as u64,
            gpu_data: batch.info.gpu,
            gpu: received.gpu.map_or(0, |(address, _)| address),
            gpu_device: received.gpu.map_or(-1, |(_, device)| device.into()),
        };
        *attached.description.lock().unwrap_or_else(PoisonError::into_inner) = received.description;
        Ok(0)
    })
}

/// Gives a batch back.
///
/// # Safety
/// The handle is valid, and the batch's memory is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_release(handle: *const Handle<Attached>, lease: u64) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle)? }.consumer.release(lease);
        Ok(0)
    })
}

/// Gives a batch back once the GPU has come to what these streams do now.
///
/// # Safety
/// The handle is valid, no work that is submitted later uses the batch's memory, and `streams` has so many handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_release_after(
    handle: *const Handle<Attached>,
    lease: u64,
    streams: *const usize,
    count: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let streams = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(streams, count) } };
        // SAFETY: as above.
        unsafe { Handle::get(handle)? }.consumer.release_after(lease, streams);
        Ok(0)
    })
}

/// A copy of a leased batch's first `bytes` on the GPU, and where it begins.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_gpu_copy(
    handle: *const Handle<Attached>,
    lease: u64,
    bytes: u64,
    address: &mut u64,
    to: &mut *mut Handle<GpuCopy>,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let copy = unsafe { Handle::get(handle)? }.consumer.copy(lease, bytes)?;
        *address = copy.address();
        *to = Handle::make(copy);
        Ok(0)
    })
}

/// Frees a copy; the driver waits for work that uses it.
///
/// # Safety
/// The handle is valid or null, neither it nor the memory is used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_gpu_copy_free(handle: *mut Handle<GpuCopy>) {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        Handle::free(handle);
        Ok(0)
    });
}

/// Nothing more of this epoch is wanted.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_skip(handle: *const Handle<Attached>, epoch: u64) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle)? }.consumer.skip(epoch);
        Ok(0)
    })
}
