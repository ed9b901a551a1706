//! Figures of a dry run: the GPU memory that a program needs, found without a GPU.

use std::collections::BTreeMap;

use radrm_base::ProgramKind;
use serde::{Deserialize, Serialize};

/// The figures of a dry run. Its verdicts on cards are [`Fit`]s, in a record of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DryRunFigures {
    /// Machine, as it was described.
    pub machine: String,
    /// Version of PyTorch, if the program used it.
    pub torch: Option<String>,
    /// Frameworks with an allocator of their own, as "NAME VERSION".
    pub frameworks: Vec<String>,
    /// Its allocator.
    pub allocator: Option<String>,
    /// Optimizer steps.
    pub steps: u64,
    /// Duration of the dry run: the run's own.
    pub seconds: f64,
    /// Most of the host's memory that its processes took together, bytes; where that was not read what one process took.
    /// Of some ranks of a large job: the sum of theirs.
    pub host_memory: u64,
    /// GPUs that were used; none if the figures cannot be trusted.
    pub gpus: Vec<GpuFigures>,
    /// Requests for memory that did not fit.
    pub out_of_memory: u64,
    /// Times that the allocator gave its cache back to go on.
    pub retries: u64,
    /// Calls without semantics.
    pub missing: Vec<MissingCall>,
    /// Sizes that come from models.
    pub modelled: Vec<ModelledSize>,
    /// Operations whose result depends on data, and how often.
    pub filled: Vec<(String, u64)>,
    /// Percentage of elements that these kept.
    pub fill: u32,
    /// Calls for which a library would launch kernels of its own: by library, how often at least. Which kernels is unknown.
    pub library_calls: Vec<(String, u64)>,
    /// Remarks of the Python side.
    pub remarks: Vec<String>,
    /// Reason that there is no figure.
    pub withheld: Option<String>,
}

/// Beginning of a remark that names why the need has no upper bound.
pub const NO_BOUND: &str = "no bound: ";

impl DryRunFigures {
    /// Why the need has no upper bound, by the remarks; `None`: it has one.
    #[must_use]
    pub fn no_bound(&self) -> Option<&str> {
        self.remarks.iter().find_map(|remark| remark.strip_prefix(NO_BOUND))
    }

    /// Kind of the program, by the library that does most of its work; `None`: it called none.
    #[must_use]
    pub fn kind(&self) -> Option<ProgramKind> {
        ProgramKind::of_calls(self.library_calls.iter().map(|(library, calls)| (library.as_str(), *calls)))
    }
}

/// One GPU of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuFigures {
    /// Number on the machine.
    pub gpu: usize,
    /// Model.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Processes that used it.
    pub processes: usize,
    /// Number of these whose framework reported what it took here.
    pub reporting_processes: usize,
    /// Peaks of the framework's allocator in each phase; none if no framework reported any.
    pub phases: BTreeMap<Phase, Peak>,
    /// Most that the program's and the libraries' calls took from the driver at a time, bytes.
    pub requested_peak: u64,
    /// The part of it that processes took whose framework reported: `phases`, and what their libraries took besides.
    pub reporting_requested_peak: u64,
    /// Most that the driver would hold for these processes, bytes: with contexts and code.
    pub held_peak: u64,
    /// Part of it that is the constant for contexts, and code beyond it.
    pub context: u64,
    /// The constant alone, for all of these processes.
    pub context_constant: u64,
    /// Origin of that constant.
    pub context_origin: String,
}

/// Need of a program that was dry-run, on the real GPU where it holds most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The figure to expect, bytes.
    pub bytes: u64,
    /// Its upper bound, bytes; `None` where a remark of the dry run says why there is none.
    pub upper: Option<u64>,
    /// Share of such bounds that hold, 0 to 1; `None` where that was not measured.
    pub confidence: Option<f64>,
    /// Number of programs and batch sizes that were dry-run and then ran on a real GPU, which corrected the figure.
    pub runs: u64,
    /// Model of the GPUs on which these ran; `None` if there are none.
    pub gpu_model: Option<String>,
    /// Source of the need as JSON, in the form that needs have everywhere.
    pub source: String,
    /// That source in words, where it is more than this dry run.
    pub basis: Option<String>,
}

/// The ranks of a large job that a dry run ran. The others were modelled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks {
    /// Number of all ranks.
    pub world: u32,
    /// Number of ranks of a node: the GPUs of the emulated machine.
    pub per_node: u32,
    /// Ranks that ran, ascending.
    pub ran: Vec<RanRank>,
    /// Requests that they made of modelled ranks, and how often at least.
    pub answered: Vec<(String, u64)>,
}

/// A rank that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanRank {
    /// Rank in the job.
    pub rank: u32,
    /// GPU of the emulated machine that was its own.
    pub gpu: usize,
    /// Its peak of host memory, bytes; `None` if it reported none.
    pub host_memory: Option<u64>,
}

impl Ranks {
    /// The ranks that ran: `0-7, 63`.
    #[must_use]
    pub fn list(&self) -> String {
        number_list(self.ran.iter().map(|ran| ran.rank))
    }

    /// The ranks whose own GPUs these are.
    #[must_use]
    pub fn on(&self, gpus: &[usize]) -> Vec<u32> {
        self.ran.iter().filter(|ran| gpus.contains(&ran.gpu)).map(|ran| ran.rank).collect()
    }
}

/// Ascending numbers as text: `0-3,63`.
#[must_use]
pub fn number_list<N: Copy + Into<u64>>(numbers: impl IntoIterator<Item = N>) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers.into_iter().map(Into::into) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |(first, last): (u64, u64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    runs.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// A phase of the run, in the order in which they come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Until the first forward pass.
    Load,
    /// From there until the first step of an optimizer.
    FirstStep,
    /// All later ones.
    Steady,
    /// Everything.
    Whole,
}

impl Phase {
    /// All, in their order.
    pub const ALL: [Self; 4] = [Self::Load, Self::FirstStep, Self::Steady, Self::Whole];

    /// As reports show it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::FirstStep => "first step",
            Self::Steady => "steady",
            Self::Whole => "whole run",
        }
    }
}

/// The allocator's peaks in a phase, bytes; sums over the processes on the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Peak {
    /// Tensors.
    pub allocated: u64,
    /// Memory that the allocator held.
    pub reserved: u64,
}

/// A call without semantics.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MissingCall {
    /// Function.
    pub name: String,
    /// Number of calls, at least.
    pub calls: u64,
    /// Effect that it can have on the figures.
    pub effect: String,
    /// True if it can change them at all.
    pub matters: bool,
}

/// A size that comes from a model.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ModelledSize {
    /// Of what.
    pub what: String,
    /// The largest, bytes.
    pub bytes: u64,
}

/// Verdict on whether a program fits on a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All that it took fits.
    Yes,
    /// The memory in use fits, the allocator's reserve does not: the allocator gives its reserve back when memory runs
    /// short, and mostly that suffices.
    Tight,
    /// The memory in use does not fit.
    No,
    /// The card is of another architecture than the emulated one, so kernels, workspaces and supported types differ:
    /// only a run on it shows whether the program fits.
    Unknown,
    /// The steps that were run fit. The program was stopped after them, so later parts were not seen.
    Partly,
}

impl Verdict {
    /// All.
    pub const ALL: [Self; 5] = [Self::Yes, Self::Tight, Self::No, Self::Unknown, Self::Partly];

    /// As reports show it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Tight => "tight",
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Partly => "partly",
        }
    }
}

/// A card, and whether the program fits on it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fit {
    /// Model.
    pub card: String,
    /// Verdict on whether the program fits.
    pub verdict: Verdict,
    /// Reason that there is no better verdict, as a clause.
    pub why: Option<String>,
    /// Need, bytes: the most that the driver would hold on one GPU, with the context constant of this card; where the
    /// program ran on the card and did not fit, up to the refused request.
    pub need: u64,
    /// Memory of the card, bytes.
    pub memory: u64,
    /// Duration of the run on this card; `None`: the verdict follows from a run on another.
    pub seconds: Option<f64>,
}

impl Fit {
    /// Need of the memory, percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        self.need as f64 / self.memory.max(1) as f64 * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_shown_as_a_range() {
        for (numbers, text) in [
            (&[0_u32, 1, 2, 3, 63][..], "0-3,63"),
            (&[4, 5], "4,5"),
            (&[7], "7"),
            (&[], ""),
            (&[1, 3, 5], "1,3,5"),
        ] {
            assert_eq!(number_list(numbers.iter().copied()), text);
        }
    }
}
