//! Who holds the memory, by call stack: the stacks that a profile keeps, with names, sums and the line to look at first.

mod difference;
mod fold;
mod frames;
mod lines;
mod table;

pub use difference::{FlameDifference, LineDifference, StackDifference};
pub use frames::{FrameLabel, Origin};
pub use lines::{Lines, RefusedSite, SiteSummary, StacksSummary};
pub use table::{StackRow, StackTable};

pub(crate) use frames::is_installed;
pub(crate) use lines::site_of;
pub(super) use lines::summaries;
pub(crate) use table::tables;
#[cfg(test)]
pub(crate) use table::tests::profile as profile_with_moments;

use radrm_profile::Bytes;
use radrm_profile::model::{GpuIndex, Profile};

/// Which figure of a stack is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// At the peak of the GPU's device total in the process.
    AtPeak,
    /// At the process's end, or when it was last read.
    AtEnd,
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
    /// The process.
    pub pid: u32,
    /// Its program, without directories.
    pub program: String,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Largest first; their sum is the process's device total at that time, to the byte.
    pub stacks: Vec<FlameStack>,
}

impl Flame {
    /// Sum over all stacks.
    pub fn total(&self) -> Bytes {
        Bytes(self.stacks.iter().map(|stack| stack.bytes.0).fold(0, u64::saturating_add))
    }
}

/// The stacks of a profile, of each process and GPU those of its device memory. `all_frames`: also frames of allocators, of
/// the CUDA runtime and of interpreters.
pub fn flames(profile: &Profile, held: Held, all_frames: bool) -> Vec<Flame> {
    let flames = tables(profile, all_frames).into_iter().map(|table| flame(table, held));
    flames.filter(|flame| !flame.stacks.is_empty()).collect()
}

fn flame(table: StackTable<'_>, held: Held) -> Flame {
    let bytes = |row: &StackRow| if held == Held::AtPeak { row.at_peak } else { row.at_end };
    let (pid, program, gpu) = (table.pid(), table.program().to_owned(), table.account.gpu);
    let rows = table.rows.into_iter().filter(|row| !bytes(row).is_zero());
    let mut stacks: Vec<FlameStack> =
        rows.map(|row| FlameStack { bytes: bytes(&row), frames: row.frames }).collect();
    stacks.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.frames.cmp(&b.frames)));
    Flame { pid, program, gpu, stacks }
}
