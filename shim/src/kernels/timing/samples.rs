//! Single launches, to be seen over time: of those that were timed some go to the segment.

use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use crate::entries::Flavour;
use crate::telemetry::{LaunchSample, Writer};

/// In this time, ns, ...
const SPAN_NS: u64 = 100_000_000;
/// ... so many launches are put down: 160 a second. Threads that check at the same moment may add one each.
const PER_SPAN: u64 = 16;

/// Identifier of a launch's stream within the process: its handle, which is unique, or for default streams, of which
/// there is one for each context or for each thread in it, a word that no handle is: handles are addresses, whose
/// highest bit is not set. `thread` is an address too, of something that is the thread's own.
#[inline]
pub(super) fn stream_word(stream: CUstream, flavour: Flavour, context: u64, thread: u64) -> u64 {
    // Contexts often lie as far from each other as threads do.
    let default = |of: u64| 1 << 63 | context.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ of;
    match (stream, flavour) {
        (CU_STREAM_PER_THREAD, _) | (CUstream::NULL, Flavour::Ptsz | Flavour::Ptds) => default(thread),
        (CU_STREAM_LEGACY, _) | (CUstream::NULL, Flavour::Legacy) => default(0),
        _ => stream.addr(),
    }
}

/// Number of samples that were put down lately. All zeros is none.
pub(super) struct Samples {
    /// Number of the span that the count is of.
    span: AtomicU64,
    count: AtomicU64,
}

impl Samples {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { span: AtomicU64::new(0), count: AtomicU64::new(0) }
    }

    /// Returns true if one more fits into the span of a moment, and counts it.
    fn fits(&self, now: u64) -> bool {
        let span = now.checked_div(SPAN_NS).unwrap_or(0);
        if self.span.swap(span, Ordering::Relaxed) != span {
            self.count.store(0, Ordering::Relaxed);
        }
        let count = self.count.load(Ordering::Relaxed);
        if count >= PER_SPAN {
            return false;
        }
        self.count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// Puts a launch down that is over, unless there were many lately. `sample` gets the time at which it was seen.
    pub(super) fn put(&self, writer: &Writer, sample: impl FnOnce(u64) -> LaunchSample) {
        let now = writer.now();
        if self.fits(now) {
            // A ring that is full forgets its oldest.
            writer.launch_sample(&sample(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_words_of_their_own_whatever_they_are_called() {
        const CONTEXTS: [u64; 2] = [0x5555_0000_0000, 0x5555_0000_1000];
        const THREADS: [u64; 2] = [0x7fff_0000_0000, 0x7fff_0000_1000];
        let handle = |address| CUstream(core::ptr::without_provenance_mut(address));
        let mut words = std::collections::BTreeSet::new();
        for context in CONTEXTS {
            for thread in THREADS {
                let word = |stream, flavour| stream_word(stream, flavour, context, thread);
                let (legacy, own) =
                    (word(CU_STREAM_LEGACY, Flavour::Ptsz), word(CU_STREAM_PER_THREAD, Flavour::Legacy));
                assert_eq!(word(CUstream::NULL, Flavour::Legacy), legacy);
                assert_eq!(word(CUstream::NULL, Flavour::Ptsz), own);
                assert_eq!(word(CUstream::NULL, Flavour::Ptds), own);
                words.extend([legacy, own, word(handle(0x5555_0000_5000), Flavour::Ptsz)]);
            }
            words.insert(stream_word(handle(context as usize), Flavour::Legacy, context, THREADS[0]));
        }
        // Of each context the legacy stream and those of two threads, and three made ones, two at contexts' addresses.
        assert_eq!(words.len(), 2 * 3 + 3, "{words:x?}");
    }

    #[test]
    fn no_more_than_160_a_second_are_put_down_and_not_all_at_its_beginning() {
        let samples = Samples::new();
        let put: Vec<u64> = (0..1_000_000).map(|n| n * 1_000).filter(|now| samples.fits(*now)).collect();
        assert_eq!(put.len(), 160);
        for tenth in 0..10 {
            let within = |now: &&u64| **now / SPAN_NS == tenth;
            assert_eq!(put.iter().filter(within).count(), 16);
        }
        // After a rest there is room, whatever the span's number.
        assert!(samples.fits(u64::MAX));
    }
}
