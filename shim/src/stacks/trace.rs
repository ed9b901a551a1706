//! Frames of the last walk, kept so that the next one need not walk the same frames again.
//!
//! A walk depends on where it begins and on the words that it reads, each frame on where the frame before it led to and on its own words.
//! So where the next walk comes to a frame at which the last one was in the same state, and that frame's words and those of all frames
//! further out are as they were, the rest is the same, whatever happened in between. Outer frames are mostly those of calls that have
//! not returned. Comparing is far cheaper than finding and applying rules.

use super::memory::{Memory, READS, Read};

/// A frame of a walk.
pub(super) trait Found: Copy {
    /// Takes over what the frame further out says of this one.
    fn join(&mut self, _outer: Option<&Self>) {}

    /// A hash of the frames further out together with this one.
    fn mix(&self, outer: u64) -> u64;
}

/// Spreads a word over a hash.
pub(super) fn mixed(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// A walk of up to `N` frames, outermost first.
pub(super) struct Trace<F, const N: usize> {
    frames: [F; N],
    /// Behind the last word that each frame was read from.
    ends: [u16; N],
    /// Of each frame with all further out.
    hashes: [u64; N],
    len: usize,
    reads: [Read; READS],
    /// Set of pieces that the words belong to; 0: the walk cannot be continued from.
    generation: u32,
    /// Frames, from the outermost on, whose words are as they were.
    unchanged: usize,
    /// Frames of the walk under way, innermost first, and where their words begin in the log.
    fresh: [F; N],
    begins: [u16; N],
    fresh_len: usize,
}

impl<F: Found, const N: usize> Trace<F, N> {
    /// Forgets the last walk.
    pub(super) fn clear(&mut self) {
        self.generation = 0;
    }

    /// Begins a walk. Before anything else of the stack is read.
    pub(super) fn compare(&mut self, memory: &Memory) {
        self.unchanged = 0;
        if self.generation != 0 && self.generation == memory.generation() {
            let frames = self.ends.get(..self.len).unwrap_or_default();
            let reads = frames.last().and_then(|end| self.reads.get(..usize::from(*end)));
            let same = memory.unchanged(reads.unwrap_or_default());
            self.unchanged = frames.partition_point(|end| usize::from(*end) <= same);
        }
        self.fresh_len = 0;
    }

    /// Gives up the walk under way: it has no frames.
    pub(super) fn give_up(&mut self) {
        (self.unchanged, self.fresh_len) = (0, 0);
    }

    /// The innermost frame from which on the last walk holds.
    #[inline]
    pub(super) fn innermost(&self) -> Option<&F> {
        self.frames.get(self.unchanged.checked_sub(1)?)
    }

    /// Says that the walk does not come to that frame.
    pub(super) fn drop_innermost(&mut self) {
        self.unchanged = self.unchanged.saturating_sub(1);
    }

    /// Drops frames up to one that `is_met` among the `look` innermost; false, and drops none, if it is not there.
    pub(super) fn drop_to(&mut self, look: usize, is_met: impl Fn(&F) -> bool) -> bool {
        let known = self.frames.get(..self.unchanged).unwrap_or_default();
        let found = known.iter().rev().take(look).position(is_met);
        self.unchanged -= found.unwrap_or(0);
        found.is_some()
    }

    /// Returns true if there is room for the frames found up to now and the known ones.
    #[inline]
    pub(super) fn fits(&self) -> bool {
        self.fresh_len + self.unchanged <= N
    }

    /// Number of frames found in this walk.
    pub(super) fn fresh(&self) -> usize {
        self.fresh_len
    }

    /// Enters a frame further out than those before. False: there is no room.
    #[inline]
    pub(super) fn push(&mut self, memory: &Memory, frame: F) -> bool {
        let (Some(place), Some(begin)) =
            (self.fresh.get_mut(self.fresh_len), self.begins.get_mut(self.fresh_len))
        else {
            return false;
        };
        *place = frame;
        *begin = memory.logged() as u16;
        self.fresh_len += 1;
        true
    }

    /// The frame that was entered last.
    #[inline]
    pub(super) fn latest(&mut self) -> Option<&mut F> {
        self.fresh.get_mut(self.fresh_len.checked_sub(1)?)
    }

    /// Ends a walk that came to the known frames (`is_met`) or to its end, of which `seed` says what it was. `is_whole`: the next walk may
    /// continue from it.
    pub(super) fn finish(&mut self, memory: &Memory, is_met: bool, is_whole: bool, seed: u64) {
        let log = memory.log().filter(|_| is_whole);
        let mut len = if is_met { self.unchanged } else { 0 };
        let before = |len: usize| len.checked_sub(1);
        let mut filled = before(len).and_then(|at| self.ends.get(at)).copied().map_or(0, usize::from);
        let mut hash = before(len).and_then(|at| self.hashes.get(at)).copied().unwrap_or(seed);
        // Known words lie in the pieces that they were compared in.
        let mut is_kept = log.is_some() && (!is_met || self.generation == memory.generation());
        let mut log_end = memory.logged();
        for number in (0..self.fresh_len).rev() {
            let (Some(frame), Some(begin)) = (self.fresh.get(number), self.begins.get(number)) else { break };
            let begin = usize::from(*begin);
            let words = log.and_then(|log| log.get(begin..log_end)).unwrap_or_default();
            log_end = begin;
            match self.reads.get_mut(filled..filled + words.len()) {
                Some(room) => room.copy_from_slice(words),
                None => is_kept = false,
            }
            filled += words.len();
            let mut frame = *frame;
            frame.join(before(len).and_then(|at| self.frames.get(at)));
            hash = frame.mix(hash);
            let (Some(place), Some(end), Some(sum)) =
                (self.frames.get_mut(len), self.ends.get_mut(len), self.hashes.get_mut(len))
            else {
                break;
            };
            (*place, *end, *sum) = (frame, filled as u16, hash);
            len += 1;
        }
        self.len = len;
        self.generation = if is_kept { memory.generation() } else { 0 };
    }

    /// Frames of the walk, outermost first.
    pub(super) fn frames(&self) -> &[F] {
        self.frames.get(..self.len).unwrap_or_default()
    }

    /// Hash of the walk but for its `left` innermost frames.
    pub(super) fn hash(&self, left: usize, seed: u64) -> u64 {
        let at = self.len.checked_sub(left + 1);
        at.and_then(|at| self.hashes.get(at)).copied().unwrap_or(seed)
    }
}
