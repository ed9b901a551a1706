//! Memory holders by call stack: the stacks that a profile keeps, with names, sums and the line to look at first.

mod difference;
mod fold;
mod frames;
mod job;
mod lines;
mod memory;
mod moments;
mod table;

pub use difference::{FlameDifference, LineDifference, StackDifference};
pub use frames::{FrameLabel, Origin};
pub use job::{JobStacks, job_stacks};
pub(crate) use lines::bypassed;
pub use lines::{
    HeldSite, JobStacksSummary, Lines, OtherMemorySummary, RefusalSummary, RefusedSite, SiteSummary,
    StacksSummary,
};
pub use memory::Memory;
pub use table::{Refusal, StackRow, StackTable};

pub(crate) use frames::is_installed;
pub(crate) use lines::site_of;
pub(super) use lines::{job_summary, summaries};
#[cfg(test)]
pub(crate) use table::tests::profile as profile_with_moments;
pub(crate) use table::{tables, tables_of};

use radrm_profile::model::{GpuIndex, Profile};
use radrm_profile::{Bytes, Nanos};

/// Figure of a stack that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// At the peak of the GPU's device total in the process.
    AtPeak,
    /// At the process's end, or when it was last read.
    AtEnd,
    /// At the refusal of the request with this number; the first has number 1.
    AtRefusal(usize),
}

/// A stack with names and what was held from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameStack {
    /// Outermost first.
    pub frames: Vec<FrameLabel>,
    /// Bytes.
    pub bytes: Bytes,
}

/// The stacks of one process on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flame {
    /// The process; `None`: those of the job together.
    pub pid: Option<u32>,
    /// Its program, without directories.
    pub program: String,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Largest first; their sum is the process's figure of this memory at that time, to the byte.
    pub stacks: Vec<FlameStack>,
}

impl Flame {
    /// Sum over all stacks.
    pub fn total(&self) -> Bytes {
        Bytes(self.stacks.iter().map(|stack| stack.bytes.0).fold(0, u64::saturating_add))
    }
}

/// The stacks of a profile's device memory, of each process and GPU. `all_frames`: also frames of allocators, of the CUDA
/// runtime and of interpreters.
pub fn flames(profile: &Profile, held: Held, all_frames: bool) -> Vec<Flame> {
    flames_of(profile, Memory::Device, held, all_frames)
}

/// The same of another memory.
pub fn flames_of(profile: &Profile, memory: Memory, held: Held, all_frames: bool) -> Vec<Flame> {
    let flames = tables_of(profile, memory, all_frames).into_iter().filter_map(|table| {
        let of = |of: fn(&StackRow) -> Bytes| table.rows.iter().map(of).collect::<Vec<_>>();
        let bytes = match held {
            Held::AtPeak => of(|row| row.at_peak),
            Held::AtEnd => of(|row| row.at_end),
            Held::AtRefusal(number) => {
                table.refusals.iter().find(|refusal| refusal.number == number)?.held.clone()
            }
        };
        Some(flame(table, &bytes))
    });
    flames.filter(|flame| !flame.stacks.is_empty()).collect()
}

/// Refused requests that were written down with what was held then: number and time, and the line that asked.
pub fn refusals(profile: &Profile) -> Vec<(usize, Nanos, String)> {
    let tables = tables(profile, false);
    let of = |table: &StackTable<'_>| {
        let refusals = table.refusals.iter();
        let site = |refusal: &Refusal| site_of(&table.rows[refusal.row].frames);
        refusals.map(|refusal| (refusal.number, refusal.t, site(refusal))).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = tables.iter().flat_map(of).collect();
    all.sort();
    all
}

fn flame(table: StackTable<'_>, bytes: &[Bytes]) -> Flame {
    let (pid, program, gpu) = (table.pid(), table.program().to_owned(), table.account.gpu);
    let memory = table.memory;
    let root = (memory != Memory::Device).then(|| FrameLabel::note(format!("[{}]", memory.label())));
    let rows = table.rows.into_iter().zip(bytes).filter(|(_, bytes)| !bytes.is_zero());
    let stacks = rows.map(|(row, bytes)| FlameStack {
        bytes: *bytes,
        frames: root.iter().cloned().chain(row.frames).collect(),
    });
    let stacks = stacks.collect();
    Flame { pid: Some(pid), program, gpu, stacks: by_size(stacks) }
}

fn by_size(mut stacks: Vec<FlameStack>) -> Vec<FlameStack> {
    stacks.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.frames.cmp(&b.frames)));
    stacks
}
