//! Call stacks of allocations, as a plain copy.

use super::raw::Words;
use super::segment::{Segment, SegmentError, SlotInfo};
use crate::failures::FailedRequest;
use crate::gpu_index::GpuIndex;
use crate::layout::*;
use crate::stacks::{Frame, HELD, MAX_FRAMES, SITE_AT, SiteId, Word};
use radrm_base::{KIND_COUNT, Kind};
use std::mem::offset_of;

/// An executable or library in which frames lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackModule {
    /// Path, as `/proc/PID/maps` has it.
    pub path: String,
    /// Build id; empty if it has none.
    pub build_id: Vec<u8>,
}

/// A function of an interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackCode {
    /// File.
    pub file: String,
    /// Name.
    pub name: String,
}

/// Memory that is held from one call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSnapshot {
    /// Its number.
    pub id: SiteId,
    /// GPU.
    pub gpu: GpuIndex,
    /// Kind of memory.
    pub kind: Kind,
    /// Innermost frame first; empty: stacks that found no place, or could not be read.
    pub frames: Vec<Frame>,
    /// Bytes now.
    pub live: u64,
    /// Bytes at the peak of the GPU's device total.
    pub at_peak: u64,
    /// Allocations.
    pub allocs: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// The largest of those, bytes.
    pub refused_bytes: u64,
}

/// The call stacks of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackSnapshot {
    /// Modules, by number.
    pub modules: Vec<StackModule>,
    /// Functions by number; unused numbers are empty.
    pub codes: Vec<StackCode>,
    /// Sites from which anything was asked for.
    pub sites: Vec<SiteSnapshot>,
    /// Stacks that found no place in the tables; their bytes are at sites without frames.
    pub full: u64,
    /// Stacks that could not be read; likewise.
    pub unread: u64,
    /// Changes that were made out of turn: figures at the peak may be off by these.
    pub unordered: u64,
    /// Refused requests that were written down.
    pub refusals: Vec<RefusalSnapshot>,
}

/// A refused request: who asked, and what was held at that moment on its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalSnapshot {
    /// The request.
    pub request: FailedRequest,
    /// The site that asked.
    pub site: SiteId,
    /// True for the latest one of the GPU that has a post-mortem, else it is the first one of its site.
    pub is_latest: bool,
    /// Device total.
    pub total: u64,
    /// Bytes by kind.
    pub kinds: [u64; KIND_COUNT],
    /// Bytes that each site held; sites that held nothing are left out.
    pub held: Vec<(SiteId, u64)>,
}

impl Segment {
    /// The call stacks of a process; `None` if none are recorded.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn stacks(&self, slot: &SlotInfo) -> Result<Option<StackSnapshot>, SegmentError> {
        if slot.slot >= SLOTS {
            return Ok(None);
        }
        let at = slot_at(slot.slot);
        let head = self.words(at + offset_of!(SlotHead, stacks) as u64, (STACK_WORDS * 8) as u64)?;
        let word = |word: Word| head.at(word as usize * 8);
        if word(Word::Mode) != 1 {
            return Ok(None);
        }
        let accounts =
            self.words(at + offset_of!(SlotBase, accounts) as u64, (GPUS * size_of::<AccountCell>()) as u64)?;
        let epoch = |gpu: GpuIndex| {
            let account = usize::from(gpu.number()) * size_of::<AccountCell>();
            accounts.at(account + offset_of!(AccountCell, peak_epoch))
        };
        let cells = self.words(at + SITES_AT, SITES_BYTES)?;
        let used = word(Word::FramesUsed).min(FRAMES_BYTES / 8);
        let frames = self.words(at + FRAMES_AT, used * 8)?;
        let sites = (1..SITES).filter_map(|number| site(&cells, &frames, number, epoch)).collect();
        Ok(Some(StackSnapshot {
            modules: self.stack_modules(at, word(Word::Modules))?,
            codes: self.stack_codes(at)?,
            sites,
            full: word(Word::Full),
            unread: word(Word::Unread),
            unordered: word(Word::Unordered),
            refusals: self.refusals(at)?,
        }))
    }

    fn refusals(&self, at: u64) -> Result<Vec<RefusalSnapshot>, SegmentError> {
        let cells = self.words(at + REFUSALS_AT, (REFUSALS_KEPT * size_of::<RefusalCell>()) as u64)?;
        let mut found = Vec::new();
        for number in 0..REFUSALS_KEPT {
            let cell = number * size_of::<RefusalCell>();
            let seq = cells.at(cell + offset_of!(RefusalCell, seq));
            if seq == 0 || seq & 1 == 1 {
                continue;
            }
            let count = cells.at(cell + offset_of!(RefusalCell, count)).min(SITES as u64);
            let held = self.words(at + REFUSALS_HELD_AT + number as u64 * REFUSAL_HELD_BYTES, count * 8)?;
            // The file is read piece by piece: a request that was replaced meanwhile is left for the next time.
            if self.words(at + REFUSALS_AT + cell as u64, 8)?.at(0) != seq {
                continue;
            }
            let Some(request) = FailedRequest::unpack(cells.array(cell + offset_of!(RefusalCell, request)))
            else {
                continue;
            };
            let held = (0..count as usize).map(|at| held.at(at * 8));
            found.push(RefusalSnapshot {
                request,
                site: SiteId::from_number(cells.at(cell + offset_of!(RefusalCell, site))),
                is_latest: number >= REFUSALS_FIRST,
                total: cells.at(cell + offset_of!(RefusalCell, total)),
                kinds: cells.array(cell + offset_of!(RefusalCell, kinds)),
                held: held.map(|word| (SiteId::from_number(word >> SITE_AT), word & HELD)).collect(),
            });
        }
        Ok(found)
    }

    fn stack_modules(&self, at: u64, count: u64) -> Result<Vec<StackModule>, SegmentError> {
        let count = count.min(STACK_MODULES as u64);
        let cells = self.words(at + STACK_MODULES_AT, count * 64)?;
        let mut modules = Vec::new();
        for number in 0..count as usize {
            let word = |offset: usize| cells.at(number * 64 + offset);
            if word(offset_of!(ModuleCell, ready)) != 1 {
                modules.push(StackModule::default());
                continue;
            }
            let length = word(offset_of!(ModuleCell, path_len)) as usize;
            let id_at = number * 64 + offset_of!(ModuleCell, id);
            modules.push(StackModule {
                path: self.stack_text(at, word(offset_of!(ModuleCell, path_at)), length)?,
                build_id: cells.bytes(id_at, (word(offset_of!(ModuleCell, id_len)) as usize).min(24)),
            });
        }
        Ok(modules)
    }

    fn stack_codes(&self, at: u64) -> Result<Vec<StackCode>, SegmentError> {
        let cells = self.words(at + STACK_CODES_AT, STACK_CODES_BYTES)?;
        let mut codes = Vec::new();
        for number in 0..STACK_CODES {
            let word = |offset: usize| cells.at(number * 32 + offset);
            if word(offset_of!(CodeCell, ready)) != 1 {
                continue;
            }
            let (text, lens) = (word(offset_of!(CodeCell, text_at)), word(offset_of!(CodeCell, lens)));
            let (file, name) = (lens as u32 as usize, (lens >> 32) as usize);
            let both = self.stack_text(at, text, file.saturating_add(name))?;
            let (file, name) = both.split_at_checked(file).unwrap_or((&both, ""));
            codes.resize(number, StackCode::default());
            codes.push(StackCode { file: file.to_owned(), name: name.to_owned() });
        }
        Ok(codes)
    }

    fn stack_text(&self, slot: u64, at: u64, bytes: usize) -> Result<String, SegmentError> {
        let bytes = bytes.min(4096) as u64;
        if at.saturating_add(bytes) > STACK_TEXTS_BYTES || !at.is_multiple_of(8) {
            return Ok(String::new());
        }
        let words = self.words(slot + STACK_TEXTS_AT + at, bytes.next_multiple_of(8))?;
        Ok(String::from_utf8_lossy(&words.bytes(0, bytes as usize)).into_owned())
    }
}

/// One site; `None` if nothing was asked for from it.
fn site(
    cells: &Words,
    frames: &Words,
    number: usize,
    epoch: impl Fn(GpuIndex) -> u64,
) -> Option<SiteSnapshot> {
    let word = |offset: usize| cells.at(number * 64 + offset);
    let (allocs, refused) = (word(offset_of!(SiteCell, allocs)), word(offset_of!(SiteCell, refused)));
    if allocs == 0 && refused == 0 {
        return None;
    }
    let id = SiteId::from_number(number as u64);
    let (gpu, kind, frames) = match id.of_other().filter(|_| number < SITES_RESERVED) {
        Some((gpu, kind)) => (gpu, kind, Vec::new()),
        None => {
            let (at, count, gpu, kind) = SiteCell::read(word(offset_of!(SiteCell, what)))?;
            let frame = |i: usize| Frame::unpack(frames.at((at as usize).saturating_add(i) * 8));
            (gpu, kind, (0..count.min(MAX_FRAMES)).filter_map(frame).collect())
        }
    };
    let live = word(offset_of!(SiteCell, live));
    let is_settled = word(offset_of!(SiteCell, epoch)) == epoch(gpu);
    let at_peak = if is_settled { word(offset_of!(SiteCell, at_peak)) } else { live };
    let refused_bytes = word(offset_of!(SiteCell, refused_bytes));
    Some(SiteSnapshot { id, gpu, kind, frames, live, at_peak, allocs, refused, refused_bytes })
}
