//! `radrm report --stacks`: call stacks for other tools.

use std::path::Path;
use std::str::FromStr;

use radrm_analyzer::{Flame, Held, Memory, TensorsBy};
use radrm_profile::model::Profile;
use radrm_text::output::bytes_to_stdout;

use super::report::read;
use crate::error::{FileProblem, UsageError};
use crate::{Failure, print};

#[derive(clap::Args, Debug)]
pub(super) struct StacksFlags {
    /// Print the call stacks of the GPU memory at its peak, recorded with `radrm-run --stacks`: folded (for
    /// flamegraph.pl, inferno and speedscope), pprof, or perfetto (a heap profile over time for ui.perfetto.dev)
    #[arg(long, value_name = "FORMAT", value_enum, require_equals = true, hide_possible_values = true,
          conflicts_with_all = ["json", "html", "timeline", "features", "oom", "perfetto", "follow"])]
    stacks: Option<StacksFormat>,
    /// With --stacks: what was held at the peak, at the end, or when a request was refused: peak, end, refusal or
    /// refusal:N for the Nth refused request of the text report; perfetto has all of them
    #[arg(long, value_name = "WHEN", requires = "stacks")]
    at: Option<When>,
    /// With --stacks: the same as --at=end
    #[arg(long, requires = "stacks", conflicts_with = "at")]
    at_end: bool,
    /// With --stacks: the memory that is shown: device, managed, or pinned (host memory). Figures at the peak are those of
    /// the moment at which most device memory was held; perfetto has all of it
    #[arg(long, value_name = "MEMORY", value_enum, requires = "stacks", hide_possible_values = true)]
    memory: Option<MemoryName>,
    /// With --stacks: all processes of the job together, at the moment at which most was held of those at which all of
    /// them were read
    #[arg(long, requires = "stacks", conflicts_with_all = ["at", "at_end", "memory", "tensors"])]
    job: bool,
    /// With --stacks: what held PyTorch's memory at its peak, recorded with `radrm-run --stacks=tensors`: by its
    /// lines, or by modules
    #[arg(long, value_name = "BY", value_enum, num_args = 0..=1, require_equals = true, requires = "stacks",
          default_missing_value = "lines", conflicts_with_all = ["at", "at_end", "memory"])]
    tensors: Option<Tensors>,
    /// With --stacks: leave no frame out, such as those of allocators
    #[arg(long, requires = "stacks")]
    all_frames: bool,
}

/// Kind of the frames of tensors.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Tensors {
    /// The Python stacks that asked for them
    Lines,
    /// The modules that they belong to
    Modules,
}

/// In which form call stacks are printed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StacksFormat {
    /// `frame;frame;... BYTES`, outermost first
    Folded,
    /// profile.proto for `go tool pprof`, speedscope and others: at the peak, at the end and at refused requests
    Pprof,
    /// Trace for ui.perfetto.dev: at the peak, at the end and at moments in between
    Perfetto,
}

/// Memory that is shown.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum MemoryName {
    /// Device memory
    Device,
    /// Managed memory
    Managed,
    /// Pinned and registered memory of the host
    Pinned,
}

/// Moment at which something was held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    Peak,
    End,
    Refusal(usize),
}

impl FromStr for When {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0).map(Self::Refusal);
        match text {
            "peak" => Ok(Self::Peak),
            "end" => Ok(Self::End),
            "refusal" => Ok(Self::Refusal(1)),
            _ => text.strip_prefix("refusal:").and_then(number).ok_or(UsageError::StacksWhen),
        }
    }
}

impl When {
    fn held(self) -> Held {
        match self {
            Self::Peak => Held::AtPeak,
            Self::End => Held::AtEnd,
            Self::Refusal(number) => Held::AtRefusal(number),
        }
    }

    /// Name of its value in pprof's form.
    fn name(self) -> String {
        match self {
            Self::Peak => "peak_space".into(),
            Self::End => "held_space".into(),
            Self::Refusal(number) => format!("refusal_{number}_space"),
        }
    }
}

impl StacksFlags {
    /// The form in which call stacks are printed, if they are asked for.
    pub(super) fn format(&self) -> Option<StacksFormat> {
        self.stacks
    }

    /// Prints what was asked for of a profile.
    pub(super) fn print(&self, file: &Path, format: StacksFormat) -> Result<(), Failure> {
        let (profile, _) = read(file)?;
        if let Some(by) = self.tensors {
            return self.tensors(file, &profile, format, by);
        }
        if profile.processes.iter().all(|process| process.stacks.is_none()) {
            return Err(FileProblem::NoStacks.of(file));
        }
        if format == StacksFormat::Perfetto {
            if self.job || self.wanted().is_some() {
                return Err(UsageError::WholeTrace.into());
            }
            return bytes(&radrm_analyzer::heap_profile(&profile, self.all_frames));
        }
        if self.job {
            let job = radrm_analyzer::job_stacks(&profile, self.all_frames);
            let job = job.ok_or_else(|| FileProblem::NoSharedMoment.of(file))?;
            return write(format, &[("job_space".into(), job.flames)]);
        }
        self.check_refusal(file, &profile)?;
        let of = |when: When| {
            let flames = radrm_analyzer::flames_of(&profile, self.memory(), when.held(), self.all_frames);
            (when.name(), flames)
        };
        let whens = match (self.wanted(), format) {
            (Some(when), _) => vec![when],
            (None, StacksFormat::Folded) => vec![When::Peak],
            (None, _) => {
                let refusals = radrm_analyzer::refusals(&profile).into_iter();
                let refusals = refusals.map(|(number, ..)| When::Refusal(number));
                [When::Peak, When::End].into_iter().chain(refusals).collect()
            }
        };
        write(format, &whens.into_iter().map(of).collect::<Vec<_>>())
    }

    fn wanted(&self) -> Option<When> {
        self.at.or(self.at_end.then_some(When::End))
    }

    fn memory(&self) -> Memory {
        match self.memory {
            None | Some(MemoryName::Device) => Memory::Device,
            Some(MemoryName::Managed) => Memory::Managed,
            Some(MemoryName::Pinned) => Memory::PinnedHost,
        }
    }

    /// Checks that the refused request that was asked for is there.
    fn check_refusal(&self, file: &Path, profile: &Profile) -> Result<(), Failure> {
        let Some(When::Refusal(number)) = self.at else { return Ok(()) };
        let known = radrm_analyzer::refusals(profile);
        match known.iter().any(|(known, ..)| *known == number) {
            true => Ok(()),
            false => Err(FileProblem::NoRefusal { number, known: known.len() }.of(file)),
        }
    }

    /// Prints what held tensors.
    fn tensors(
        &self,
        file: &Path,
        profile: &Profile,
        format: StacksFormat,
        by: Tensors,
    ) -> Result<(), Failure> {
        let by = match by {
            Tensors::Lines => TensorsBy::Lines,
            Tensors::Modules => TensorsBy::Modules,
        };
        let flames = radrm_analyzer::tensor_flames(profile, by, self.all_frames);
        if flames.is_empty() {
            return Err(FileProblem::NoTensors.of(file));
        }
        if format == StacksFormat::Perfetto {
            return Err(UsageError::NoTensorTrace.into());
        }
        write(format, &[(When::Peak.name(), flames)])
    }
}

/// Prints lists of flames, each with the name of its values.
fn write(format: StacksFormat, lists: &[(String, Vec<Flame>)]) -> Result<(), Failure> {
    match format {
        StacksFormat::Folded => {
            let texts: Vec<String> = lists.iter().map(|(_, flames)| radrm_analyzer::folded(flames)).collect();
            print(&texts.concat())
        }
        StacksFormat::Pprof | StacksFormat::Perfetto => bytes(&radrm_analyzer::pprof(lists)),
    }
}

fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    bytes_to_stdout(bytes).map(|_| ()).map_err(Failure::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_named_as_the_text_report_numbers_them() {
        for (text, expected) in [
            ("peak", Some(When::Peak)),
            ("end", Some(When::End)),
            ("refusal", Some(When::Refusal(1))),
            ("refusal:3", Some(When::Refusal(3))),
            ("refusal:0", None),
            ("refusal:", None),
            ("exit", None),
        ] {
            assert_eq!(text.parse::<When>().ok(), expected, "{text}");
        }
    }
}
