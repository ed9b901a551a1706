//! Call stacks of allocations, and what is held from each.
//!
//! A *site* is a stack, a GPU and a kind of memory. Its cell carries the bytes that are held from it, and what
//! they were when the GPU's device total was at its peak. All of it has a fixed size: [`SITES`] sites, and what finds
//! no place is counted at the site "other stacks" of its GPU and kind, so that the sum over all sites is always
//! the kind's own figure.
//!
//! # Figures at the peak
//!
//! A new peak comes with almost every allocation of a program that grows, so it must not cost a walk over all sites.
//! Each GPU's account carries the number of its peak, which a new peak raises by one. A site that is about to change
//! looks whether the number in its cell is older: if so its bytes have not changed since that peak, and it first
//! keeps them as its bytes at the peak, with the peak's number. So for every site, at any time:
//!
//! * its number is the account's: the bytes at the peak are those that it kept;
//! * its number is older: it has not changed since the peak, and its bytes now are those at the peak.
//!
//! The site whose allocation makes the peak changes first and the number is raised after, so its new bytes are part
//! of it.
//!
//! # Threads
//!
//! The change of a site, of its account and of the peak's number belong together, so they are made in turns: one word
//! of the slot names the thread whose turn it is (`Writer::in_turn`). A turn is some dozens of instructions without a
//! call of the system. A thread that was ended or left its turn by `longjmp` loses it: the next thread that
//! waits sees that the owner is itself or is gone. A thread that waits too long all the same makes its change out of
//! turn, and that is counted ([`Word::Unordered`]): sums stay exact then, and only the figures at the peak may be off by
//! that change.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

mod account;
mod refusals;
mod texts;

pub(crate) use refusals::{HELD, SITE_AT};

use crate::gpu_index::GpuIndex;
use crate::layout::*;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::writer::Writer;
use radrm_base::{KIND_COUNT, Kind};

/// Cells that are looked at for a site before it counts as one that finds no place.
const PROBES: usize = 64;
/// Bytes by which the arenas of frames and texts grow.
const STEP: u64 = 16 * PAGE as u64;
/// Frames of the longest stack that is kept.
pub const MAX_FRAMES: usize = 260;

/// Number of a site within its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(u16);

impl SiteId {
    /// Not recorded.
    pub const NONE: Self = Self(0);

    /// The site of all stacks of a GPU and kind that have none of their own.
    pub const fn other(gpu: GpuIndex, kind: Kind) -> Self {
        Self((1 + gpu.number() as usize * KIND_COUNT + kind as usize) as u16)
    }

    /// The number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The site with this number; those beyond the table are [`SiteId::NONE`].
    pub const fn from_number(number: u64) -> Self {
        if number < SITES as u64 { Self(number as u16) } else { Self::NONE }
    }

    /// GPU and kind of a site of those that have no stack.
    pub(crate) fn of_other(self) -> Option<(GpuIndex, Kind)> {
        let at = usize::from(self.0).checked_sub(1)?;
        Some((GpuIndex::from_number(at / KIND_COUNT)?, Kind::from_raw((at % KIND_COUNT) as u8)?))
    }
}

/// A word of the recorder in the slot's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// 1: call stacks are recorded.
    Mode = 0,
    /// Thread whose turn it is.
    Turn = 1,
    /// Words of the frames' arena handed out.
    FramesUsed = 2,
    /// Pieces of it that are allocated.
    FramesReady = 3,
    /// Bytes of the texts handed out.
    TextsUsed = 4,
    /// Pieces of them that are allocated.
    TextsReady = 5,
    /// Modules handed out.
    Modules = 6,
    /// Stacks that found no place.
    Full = 7,
    /// Changes made out of turn.
    Unordered = 8,
    /// Stacks that could not be read at all.
    Unread = 9,
    /// 1: the tables of modules and functions are allocated.
    Names = 10,
    /// Sites whose first refused request was written down.
    Refusals = 11,
}

/// Frame of a stack, in one word of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// Native code: number of its module, address within it as the module's file has it.
    Native {
        /// Number of the module.
        module: u16,
        /// Address as in the module's file.
        offset: u64,
    },
    /// Native code that lies in no file: made at run time.
    Unmapped(u64),
    /// A function of an interpreter.
    Code {
        /// Number of the function.
        code: u32,
        /// Line in its file; 0: not known.
        line: u32,
        /// The native frame that interprets it begins with it.
        is_entry: bool,
    },
    /// Frames further out are not recorded: native ones, or behind a function of an interpreter such functions.
    Cut,
}

const TAG: u32 = 62;
const MODULE: u32 = 48;
const ENTRY: u64 = 1 << 60;
const LOW48: u64 = (1 << 48) - 1;
/// Modules are numbered below this.
const NO_MODULE: u16 = 0x3fff;

impl Frame {
    /// As one word.
    pub const fn pack(self) -> u64 {
        match self {
            Self::Native { module, offset } => (module as u64 & 0x3fff) << MODULE | offset & LOW48,
            Self::Unmapped(address) => (NO_MODULE as u64) << MODULE | address & LOW48,
            Self::Code { code, line, is_entry } => {
                1 << TAG | if is_entry { ENTRY } else { 0 } | (code as u64 & 0xff_ffff) << 32 | line as u64
            }
            Self::Cut => 2 << TAG,
        }
    }

    /// Unpacks the frame of a word.
    pub const fn unpack(word: u64) -> Option<Self> {
        match word >> TAG {
            0 => {
                let module = (word >> MODULE) as u16;
                let offset = word & LOW48;
                Some(if module == NO_MODULE {
                    Self::Unmapped(offset)
                } else {
                    Self::Native { module, offset }
                })
            }
            1 => {
                let code = (word >> 32) as u32 & 0xff_ffff;
                Some(Self::Code { code, line: word as u32, is_entry: word & ENTRY != 0 })
            }
            2 => Some(Self::Cut),
            _ => None,
        }
    }
}

const COUNT_AT: u32 = 32;
const GPU_AT: u32 = 48;
const KIND_AT: u32 = 56;

impl SiteCell {
    /// Publishes where the frames of a site are; none: it has none yet, or no room for them.
    fn publish(&self, frames_at: u64, count: usize, gpu: GpuIndex, kind: Kind) {
        let what = (frames_at & 0xffff_ffff)
            | (count as u64 & 0xffff) << COUNT_AT
            | u64::from(gpu.number()) << GPU_AT
            | (kind as u64 + 1) << KIND_AT;
        self.what.store(what, Release); // the reader copies the frames after it has seen this
    }

    /// Beginning and number of the frames, GPU and kind.
    pub(crate) fn read(what: u64) -> Option<(u64, usize, GpuIndex, Kind)> {
        let kind = Kind::from_raw(((what >> KIND_AT) as u8).checked_sub(1)?)?;
        let gpu = GpuIndex::from_number((what >> GPU_AT) as usize & 0xff)?;
        Some((what & 0xffff_ffff, (what >> COUNT_AT) as usize & 0xffff, gpu, kind))
    }
}

impl Writer {
    #[inline]
    pub(crate) fn stack_word(&self, word: Word) -> &AtomicU64 {
        let head = &self.base().head;
        head.stacks.get(word as usize).unwrap_or(&head.spare0)
    }

    /// Records call stacks from now on. False: there is no memory for it. Cold.
    pub fn record_stacks(&mut self) -> bool {
        let names = STACK_MODULES_BYTES + STACK_CODES_BYTES;
        let ready = self.grow_upto(self.stack_word(Word::Mode), SITES_AT, SITES_BYTES, 1)
            && self.grow_upto(self.stack_word(Word::Names), STACK_MODULES_AT, names, 1)
            && self.make_present(SITES_USED_AT, REFUSALS_BYTES);
        self.records_stacks = ready;
        ready
    }

    /// Returns true if call stacks are recorded.
    #[inline(always)]
    pub fn records_stacks(&self) -> bool {
        self.records_stacks
    }

    pub(crate) fn site_cell(&self, site: SiteId) -> Option<&SiteCell> {
        let is_there = self.records_stacks && site != SiteId::NONE && usize::from(site.0) < SITES;
        // SAFETY: the table is allocated while stacks are recorded, the number below SITES; atomics only.
        is_there.then(|| unsafe { self.at::<SiteCell>(SITES_AT + u64::from(site.0) * 64).as_ref() })
    }

    /// The site of a stack whose hash (never 0) is `hash`, for memory of a GPU and kind. `frames` is asked for the
    /// stack, innermost frame first, only if the site is new.
    pub fn site<'f>(
        &self,
        gpu: GpuIndex,
        kind: Kind,
        hash: u64,
        frames: impl FnOnce() -> &'f [u64],
    ) -> SiteId {
        let other = SiteId::other(gpu, kind);
        let key = mixed(hash, gpu, kind);
        let start = key as usize % (SITES - SITES_RESERVED);
        let (mut frames, mut words) = (Some(frames), &[][..]);
        for probe in 0..PROBES {
            let number = SITES_RESERVED + (start + probe) % (SITES - SITES_RESERVED);
            let site = SiteId(number as u16);
            let Some(cell) = self.site_cell(site) else { return other };
            let seen = match cell.key.load(Acquire) {
                0 => {
                    // Before the site is claimed: finding names can be left by a jump, and a site without a kind would be lost.
                    if let Some(frames) = frames.take() {
                        words = frames();
                    }
                    match cell.key.compare_exchange(0, key, Acquire, Acquire) {
                        Ok(_) => {
                            cell.publish(0, 0, gpu, kind);
                            self.mark_used(number);
                            self.store_frames(cell, gpu, kind, words);
                            return site;
                        }
                        Err(seen) => seen,
                    }
                }
                seen => seen,
            };
            if seen == key {
                return site;
            }
        }
        self.stack_word(Word::Full).fetch_add(1, Relaxed);
        other
    }

    /// Counts a stack that could not be read.
    pub fn stack_unread(&self) {
        self.stack_word(Word::Unread).fetch_add(1, Relaxed);
    }

    /// Keeps the frames of a site that was claimed, if there is room for them.
    fn store_frames(&self, cell: &SiteCell, gpu: GpuIndex, kind: Kind, frames: &[u64]) {
        let count = frames.len().min(MAX_FRAMES);
        let at = self.stack_word(Word::FramesUsed).fetch_add(count as u64, Relaxed);
        let end = at.saturating_add(count as u64).saturating_mul(8);
        let has_room = end <= FRAMES_BYTES
            && self.grow_upto(self.stack_word(Word::FramesReady), FRAMES_AT, STEP, end.div_ceil(STEP));
        if !has_room {
            self.stack_word(Word::Full).fetch_add(1, Relaxed);
            return;
        }
        for (number, frame) in frames.iter().take(count).enumerate() {
            // SAFETY: inside the arena (`end`), allocated; atomics only.
            let place = unsafe { self.at::<AtomicU64>(FRAMES_AT + (at + number as u64) * 8).as_ref() };
            place.store(*frame, Relaxed);
        }
        cell.publish(at, count, gpu, kind);
    }
}

/// A site's key; never 0.
fn mixed(hash: u64, gpu: GpuIndex, kind: Kind) -> u64 {
    let mut h = hash ^ (u64::from(gpu.number()) << 8 | kind as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The finalizer of MurmurHash3.
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (h ^ (h >> 33)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_words_and_back() {
        for frame in [
            Frame::Native { module: 0, offset: 0 },
            Frame::Native { module: 2047, offset: LOW48 },
            Frame::Unmapped(0x7fff_ffff_f000),
            Frame::Code { code: 16_383, line: u32::MAX, is_entry: true },
            Frame::Code { code: 0, line: 0, is_entry: false },
            Frame::Cut,
        ] {
            assert_eq!(Frame::unpack(frame.pack()), Some(frame));
        }
        assert_eq!(Frame::unpack(u64::MAX), None);
    }

    #[test]
    fn each_gpu_and_kind_has_a_site_for_other_stacks() {
        let mut seen = std::collections::HashSet::new();
        for gpu in 0..GPUS {
            for kind in Kind::ALL {
                let gpu = GpuIndex::from_number(gpu).unwrap();
                let site = SiteId::other(gpu, kind);
                assert!(seen.insert(site) && usize::from(site.number()) < SITES_RESERVED);
                assert_eq!(site.of_other(), Some((gpu, kind)));
            }
        }
        assert_eq!(SiteId::NONE.of_other(), None);
    }
}
