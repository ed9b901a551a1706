//! Decoding a timeline.

use super::raw::Words;
use super::segment::{Segment, SegmentError};
use crate::gpu_index::GpuIndex;
use crate::kind::TIMELINE_KINDS;
use crate::layout::*;
use crate::timeline::bucket_span;
use radrm_base::Kind;
use std::mem::offset_of;

/// A stretch of time in which something changed.
///
/// Between points nothing changed: the last values of a point hold until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelinePoint {
    /// Start, ns of segment time.
    pub t_ns: u64,
    /// Width, ns.
    pub width_ns: u64,
    /// Largest device total in the stretch, its beginning included.
    pub max_total: u64,
    /// Bytes by kind at that moment, in the order of [`Kind`]; exact for one thread, close for several.
    pub kinds_at_max: [u64; TIMELINE_KINDS],
    /// Bytes by kind at the end of the stretch.
    pub last_kinds: [u64; TIMELINE_KINDS],
}

/// Device total of bytes by kind.
fn total(kinds: &[u64; TIMELINE_KINDS]) -> u64 {
    let counted = Kind::ALL.iter().zip(kinds).filter(|(kind, _)| kind.in_total());
    counted.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

/// Times that the open bucket is read until no other one is open.
const TRIES: usize = 8;
/// Bytes of a bucket.
const BUCKET: usize = size_of::<TimelineBucket>();

/// A bucket that is not empty.
#[derive(Clone, Copy)]
struct Bucket {
    index: usize,
    change: [u64; TIMELINE_KINDS],
    max: u64,
    /// Kinds 1 to 7.
    at_max: [u64; 7],
}

impl Bucket {
    fn at(words: &Words, offset: usize, index: usize) -> Self {
        let (change, at_max) = (words.array(offset), words.array(offset + 72));
        Self { index, change, max: words.at(offset + 64), at_max }
    }

    fn is_empty(&self) -> bool {
        self.max == 0 && self.change == [0; TIMELINE_KINDS]
    }
}

impl Segment {
    /// The timeline of one process on one GPU, in order. Empty if nothing happened there.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn timeline(&self, slot: usize, gpu: GpuIndex) -> Result<Vec<TimelinePoint>, SegmentError> {
        if slot >= SLOTS {
            return Ok(Vec::new());
        }
        let gpu = usize::from(gpu.number());
        let account =
            slot_at(slot) + (offset_of!(SlotBase, accounts) + gpu * size_of::<AccountCell>()) as u64;
        let word = |field: usize| self.word(account + field as u64).unwrap_or(0);
        let open = || (word(offset_of!(AccountCell, open)) as usize).min(TIMELINE_BUCKETS - 1);
        if word(offset_of!(AccountCell, until)) == 0 {
            return Ok(Vec::new());
        }
        let at = slot_at(slot) + TIMELINES_AT + gpu as u64 * TIMELINE_BYTES;
        // Buckets before the open one are settled.
        let first = open();
        let chunks = word(offset_of!(AccountCell, chunks));
        let mut buckets = Vec::new();
        for chunk in (0..=first / TIMELINE_CHUNK).filter(|chunk| chunks & (1u64 << chunk) != 0) {
            let bytes = TIMELINE_CHUNK * BUCKET;
            let words = self.words(at + (chunk * bytes) as u64, bytes as u64)?;
            let indices = chunk * TIMELINE_CHUNK..((chunk + 1) * TIMELINE_CHUNK).min(first);
            buckets.extend(indices.map(|index| Bucket::at(&words, index % TIMELINE_CHUNK * BUCKET, index)));
        }
        let before = buckets.len();
        // Those from it on, and the account's bytes, are of one moment if the open one is the same before and after. Else the
        // last of the reads counts: changes of the last milliseconds may be in a bucket too late until they are read again.
        for _ in 0..TRIES {
            let last = open().max(first);
            let words = self.words(at + (first * BUCKET) as u64, ((last + 1 - first) * BUCKET) as u64)?;
            buckets.truncate(before);
            buckets.extend((first..=last).map(|index| Bucket::at(&words, (index - first) * BUCKET, index)));
            let now = self.words(account + offset_of!(AccountCell, now) as u64, 8 * TIMELINE_KINDS as u64)?;
            settle(&mut buckets, now.array(0));
            if open() == last {
                break;
            }
        }
        let mut now = [0i64; TIMELINE_KINDS];
        Ok(buckets
            .iter()
            .filter(|bucket| !bucket.is_empty())
            .map(|bucket| decode(bucket, &mut now))
            .collect())
    }
}

/// Puts into the last bucket, which is open, what the bytes now are ahead of all.
fn settle(buckets: &mut [Bucket], now: [u64; TIMELINE_KINDS]) {
    let mut rest = now;
    for bucket in &*buckets {
        for (rest, change) in rest.iter_mut().zip(bucket.change) {
            *rest = rest.wrapping_sub(change);
        }
    }
    if let Some(open) = buckets.last_mut() {
        for (change, rest) in open.change.iter_mut().zip(rest) {
            *change = change.wrapping_add(rest);
        }
    }
}

/// Decodes a bucket; `now` is carried from bucket to bucket.
fn decode(bucket: &Bucket, now: &mut [i64; TIMELINE_KINDS]) -> TimelinePoint {
    let Bucket { index, change, max, at_max } = *bucket;
    // A sum may be below zero where the segment is damaged. It is shown as 0 and carried as it is.
    let shown = |now: &[i64; TIMELINE_KINDS]| now.map(|bytes| bytes.max(0) as u64);
    let before = shown(now);
    for (value, change) in now.iter_mut().zip(change) {
        *value = value.wrapping_add(change as i64);
    }
    let after = shown(now);
    let (t_ns, width_ns) = bucket_span(index);
    // Of two threads at the end of a bucket one may have settled what the other notes as reached in the next one.
    let edge = if total(&after) > total(&before) { after } else { before };
    let (max_total, kinds_at_max) = if max > 0 && max >= total(&edge) {
        let mut kinds = [0; TIMELINE_KINDS];
        kinds[1..].copy_from_slice(&at_max);
        // Device memory is what is left of the total; in a race the parts may be newer than the total.
        kinds[0] = max.saturating_sub(total(&kinds));
        (max, kinds)
    } else {
        (total(&edge), edge)
    };
    TimelinePoint { t_ns, width_ns, max_total, kinds_at_max, last_kinds: after }
}
