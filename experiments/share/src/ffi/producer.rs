//! Functions of a producer.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;

use super::{AGAIN, Handle, UNWANTED, guarded, millis, slow, text};
use crate::message::{Info, UNKNOWN};
use crate::producer::{self, Counts, Producer, Reserved};
use crate::ring::Slow;

/// Configuration for [`radrm_share_producer`].
#[repr(C)]
pub struct ProducerConfig {
    name: *const c_char,
    folder: *const c_char,
    spill: *const c_char,
    slots: u64,
    spill_limit: u64,
    batches: u64,
    samples: u64,
    seed: u64,
    /// Number of the GPU that batches lie on; -1 for none.
    gpu: i64,
    slow: u8,
    resume: u8,
}

/// Makes a producer.
///
/// # Safety
/// The configuration's texts end with zeros or are null, and `to` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_producer(
    config: &ProducerConfig,
    to: &mut *mut Handle<Producer>,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (name, folder, spill) =
            unsafe { (text(config.name)?, text(config.folder)?, text(config.spill)?) };
        let own = producer::Config {
            name: name.unwrap_or_default(),
            folder: folder.map(PathBuf::from),
            slots: usize::try_from(config.slots).unwrap_or(usize::MAX).clamp(2, 4096),
            slow: slow(config.slow)?.unwrap_or(Slow::Wait),
            spill: spill.map_or_else(std::env::temp_dir, PathBuf::from),
            spill_limit: config.spill_limit,
            batches: config.batches,
            samples: config.samples,
            seed: config.seed,
            resume: config.resume != 0,
            gpu: if config.gpu < 0 { None } else { Some(c_int::try_from(config.gpu).unwrap_or(c_int::MAX)) },
        };
        *to = Handle::make(Producer::new(own)?);
        Ok(0)
    })
}

/// Frees a producer; consumers that have not got its end see its death.
///
/// # Safety
/// The handle is valid or null, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_producer_free(handle: *mut Handle<Producer>) {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        Handle::free(handle);
        Ok(0)
    });
}

/// The seed; returns 1 if this goes on where another producer was killed.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_seed(handle: *const Handle<Producer>, to: &mut u64) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let producer = unsafe { Handle::get(handle)? };
        *to = producer.seed();
        Ok(producer.is_resumed().into())
    })
}

/// Waits for consumers: with `former` for those of the killed producer, and writes how many are missing, else until
/// there are `count`, and writes how many there are.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_wait(
    handle: *const Handle<Producer>,
    former: c_int,
    count: u64,
    timeout: i64,
    to: &mut u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let producer = unsafe { Handle::get(handle)? };
        *to = if former != 0 {
            producer.wait_for_former(millis(timeout)) as u64
        } else {
            producer.wait_for_consumers(usize::try_from(count).unwrap_or(usize::MAX), millis(timeout)) as u64
        };
        Ok(0)
    })
}

/// Settles where to begin.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_begin(
    handle: *const Handle<Producer>,
    epoch: &mut u64,
    index: &mut u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let position = unsafe { Handle::get(handle)? }.begin();
        (*epoch, *index) = (position.epoch, position.index);
        Ok(0)
    })
}

/// Memory for a batch, and on the GPU; [`AGAIN`] or [`UNWANTED`].
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_reserve(
    handle: *const Handle<Producer>,
    bytes: u64,
    gpu_bytes: u64,
    timeout: i64,
    to: &mut *mut u8,
    on_gpu: &mut u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        Ok(match unsafe { Handle::get(handle)? }.reserve(bytes, gpu_bytes, millis(timeout))? {
            Reserved::Memory { host, gpu } => {
                (*to, *on_gpu) = (host, gpu);
                0
            }
            Reserved::Again => AGAIN,
            Reserved::Unwanted => UNWANTED,
        })
    })
}

/// Gives reserved memory back.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_abandon(handle: *const Handle<Producer>) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle)? }.abandon();
        Ok(0)
    })
}

/// Begins a copy to the reserved memory on the GPU: after what a stream does now, or, with the largest number, at once.
///
/// # Safety
/// The handle is valid; the source is valid until the batch is published or abandoned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_copy(
    handle: *const Handle<Producer>,
    to: u64,
    from: u64,
    bytes: u64,
    after: u64,
) -> c_int {
    guarded(|| {
        let after = (after != UNKNOWN).then(|| usize::try_from(after).unwrap_or(0));
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle)?.copy(to, from, bytes, after)? };
        Ok(0)
    })
}

/// Publishes a batch: `data` bytes in the reserved memory, then `description` bytes, and `gpu` bytes on the GPU.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_publish(
    handle: *const Handle<Producer>,
    samples: u64,
    before: u64,
    after: u64,
    data: u64,
    description: u64,
    gpu: u64,
) -> c_int {
    guarded(|| {
        let info = Info { samples, before, after, data, description, gpu };
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle)? }.publish(info)?;
        Ok(0)
    })
}

/// Ends an epoch.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_end_epoch(handle: *const Handle<Producer>) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle)? }.end_epoch()?;
        Ok(0)
    })
}

/// Ends once all is delivered; else [`AGAIN`].
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_finish(handle: *const Handle<Producer>, timeout: i64) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        Ok(if unsafe { Handle::get(handle)? }.finish(millis(timeout)) { 0 } else { AGAIN })
    })
}

/// Reports that the loader failed.
///
/// # Safety
/// The handle is valid, and the text ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_fail(handle: *const Handle<Producer>, words: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (producer, words) = unsafe { (Handle::get(handle)?, text(words)?) };
        producer.fail(&words.unwrap_or_default());
        Ok(0)
    })
}

/// Figures of a producer.
///
/// # Safety
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_counts(handle: *const Handle<Producer>, to: &mut Counts) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        *to = unsafe { Handle::get(handle)? }.counts();
        Ok(0)
    })
}
