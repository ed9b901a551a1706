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
        let account = offset_of!(SlotBase, accounts) + gpu * size_of::<AccountCell>();
        let chunks = self.word(slot_at(slot) + (account + offset_of!(AccountCell, chunks)) as u64);
        let at = slot_at(slot) + TIMELINES_AT + gpu as u64 * TIMELINE_BYTES;
        let mut points = Vec::new();
        let mut now = [0i64; TIMELINE_KINDS];
        for chunk in (0..64).filter(|chunk| chunks.unwrap_or(0) & (1u64 << chunk) != 0) {
            let bytes = (TIMELINE_CHUNK * 128) as u64;
            let words = self.words(at + chunk * bytes, bytes)?;
            for within in 0..TIMELINE_CHUNK {
                let index = chunk as usize * TIMELINE_CHUNK + within;
                points.extend(decode(&words, within * 128, index, &mut now));
            }
        }
        Ok(points)
    }
}

/// Decodes a bucket; `now` is carried from bucket to bucket.
fn decode(
    words: &Words,
    offset: usize,
    index: usize,
    now: &mut [i64; TIMELINE_KINDS],
) -> Option<TimelinePoint> {
    let change: [u64; TIMELINE_KINDS] = words.array(offset);
    let max = words.at(offset + 64);
    if max == 0 && change == [0; TIMELINE_KINDS] {
        return None;
    }
    let at_max: [u64; 7] = words.array(offset + 72);
    // A sum may be below zero for a while: of two threads the one that released can have read its clock
    // a little earlier than the one that allocated. It is shown as 0 and carried as it is.
    let shown = |now: &[i64; TIMELINE_KINDS]| now.map(|bytes| bytes.max(0) as u64);
    let before = shown(now);
    for (value, change) in now.iter_mut().zip(change) {
        *value = value.wrapping_add(change as i64);
    }
    let (t_ns, width_ns) = bucket_span(index);
    let (max_total, kinds_at_max) = if max > 0 && max >= total(&before) {
        let mut kinds = [0; TIMELINE_KINDS];
        kinds[1..].copy_from_slice(&at_max);
        // Device memory is what is left of the total; in a race the parts may be newer than the total.
        kinds[0] = max.saturating_sub(total(&kinds));
        (max, kinds)
    } else {
        (total(&before), before)
    };
    Some(TimelinePoint { t_ns, width_ns, max_total, kinds_at_max, last_kinds: shown(now) })
}
