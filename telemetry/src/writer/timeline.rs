//! Open bucket of a timeline.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::Writer;
use crate::gpu_index::GpuIndex;
use crate::kind::Bypass;
use crate::layout::*;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::timeline::{bucket_end, bucket_index, chunk_of};

const _: () = assert!(TIMELINE_BUCKETS.is_power_of_two());

impl Writer {
    /// Makes the bucket of a time the open one, unless a later one is. Stands before a change that is made at this time.
    /// False: there is no memory for it.
    #[inline(always)]
    pub(super) fn opens(&self, gpu: GpuIndex, account: &AccountCell, ns: u64) -> bool {
        // Acquire: pairs with the Release in `open_bucket`.
        ns < account.until.load(Acquire) || self.open_bucket(gpu, account, ns)
    }

    #[cold]
    #[inline(never)]
    fn open_bucket(&self, gpu: GpuIndex, account: &AccountCell, ns: u64) -> bool {
        let is_first = account.until.load(Relaxed) == 0;
        if is_first {
            self.gpu_of_ranges(gpu);
        }
        let index = bucket_index(ns);
        let chunk = chunk_of(index);
        if !has_chunk(account, chunk) && !self.grow_timeline(gpu, account, chunk) {
            return false;
        }
        if is_first {
            account.open.fetch_max(index as u64, Relaxed);
        }
        account.settle(|open| {
            let is_there = has_chunk(account, chunk_of(open as usize % TIMELINE_BUCKETS));
            is_there.then(|| self.bucket(gpu, open))
        });
        account.open.fetch_max(index as u64, Relaxed);
        // Release: a thread that sees this end finds this bucket open, or a later one.
        account.until.fetch_max(bucket_end(index), Release);
        true
    }

    /// Notes a total that an allocation has reached, after [`Writer::opens`].
    #[inline(always)]
    pub(super) fn reached_in_timeline(&self, gpu: GpuIndex, account: &AccountCell, total: u64) {
        let bucket = self.bucket(gpu, account.open.load(Relaxed));
        bucket.reached(total, |kind| account.now.get(kind).map_or(0, |now| now.load(Relaxed)));
    }

    #[inline(always)]
    fn bucket(&self, gpu: GpuIndex, number: u64) -> &TimelineBucket {
        // A number beyond the timeline is damage.
        let at = number % TIMELINE_BUCKETS as u64 * size_of::<TimelineBucket>() as u64;
        let at = TIMELINES_AT + u64::from(gpu.number()) * TIMELINE_BYTES + at;
        // SAFETY: inside the slot's mapping, at a multiple of 128; of chunks that are allocated; atomics only.
        unsafe { self.at::<TimelineBucket>(at).as_ref() }
    }

    #[cold]
    #[inline(never)]
    fn grow_timeline(&self, gpu: GpuIndex, account: &AccountCell, chunk: u32) -> bool {
        const BYTES: u64 = TIMELINE_CHUNK as u64 * 128;
        let at = TIMELINES_AT + u64::from(gpu.number()) * TIMELINE_BYTES + u64::from(chunk) * BYTES;
        let grown = self.make_present(at, BYTES);
        if grown {
            account.chunks.fetch_or(1 << chunk, Release);
        } else {
            self.bypass(Bypass::TimelineFull);
        }
        grown
    }
}

/// Returns true if a part of the timeline is allocated.
fn has_chunk(account: &AccountCell, chunk: u32) -> bool {
    // Acquire: pairs with the Release in `grow_timeline`.
    account.chunks.load(Acquire) & (1u64 << chunk) != 0
}
