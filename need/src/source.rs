//! Sources of needs.

use std::fmt;

use radrm_base::{Bytes, Permille};
use serde::{Deserialize, Serialize};

use super::DryRun;

/// Answer of one of several sources.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Said {
    /// The source.
    pub source: Source,
    /// The figure to expect by it alone.
    pub bytes: Bytes,
    /// Its weight in the combined figure.
    pub weight: Permille,
}

/// Real runs of dry-run programs that correct no dry run, as no other lets expect such a peak.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeftOut {
    /// Number of them.
    pub runs: u32,
    /// Memory that the newest of them took.
    pub peak: Bytes,
    /// Memory that the other runs let expect of it.
    pub expected: Bytes,
}

impl LeftOut {
    pub(super) fn of(runs: &[radrm_estimator::memory::LeftOut]) -> Option<Self> {
        let newest = runs.last()?;
        // A conversion from a float saturates.
        let [peak, expected] = [newest.peak, newest.expected].map(|bytes| Bytes(bytes as u64));
        Some(Self { runs: u32::try_from(runs.len()).unwrap_or(u32::MAX), peak, expected })
    }
}

/// Source of a need, as data; its text is the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The user declared it.
    Declared,
    /// Equal runs were measured.
    EqualRuns {
        /// Number of runs that ended ok.
        runs: u32,
    },
    /// Equal runs were measured, of which some ran out of memory with more than the others needed.
    EqualRunsAndOutOfMemory {
        /// Number of runs that ended ok.
        runs: u32,
    },
    /// Equal runs ran out of memory: more than they had.
    OutOfMemory,
    /// Runs at other batch sizes.
    OtherBatchSizes {
        /// At how many.
        sizes: u32,
    },
    /// A dry run on an emulated GPU.
    DryRun {
        /// Its figures.
        #[serde(flatten)]
        run: DryRun,
        /// Number of runs of dry-run programs that corrected the figure.
        #[serde(default, skip_serializing_if = "is_none")]
        runs: u32,
        /// Runs that did not count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_out: Option<LeftOut>,
    },
    /// One or more of these, by a memory model.
    Combined {
        /// Answer of each source.
        said: Vec<Said>,
        /// The factor for the model's margin that this node's jobs taught.
        stretch: Permille,
    },
    /// The user estimates it.
    UserEstimate,
    /// Statement of the user, read by what the user's earlier jobs took of what was stated for them.
    EarlierStatements {
        /// Memory that the user states.
        stated: Bytes,
        /// Number of those jobs.
        jobs: u32,
    },
    /// The predicted step of a dry run: no GPU ran it.
    PredictedStep {
        /// Model of the emulated GPU.
        gpu: String,
        /// Steps of the training; 0: the figure is that of one step.
        steps: u64,
        /// Number of real runs of dry-run programs that corrected the step's time.
        #[serde(default, skip_serializing_if = "is_none")]
        runs: u32,
    },
    /// Runs under `radrm-run` that the user's own dataset holds: the user's word for a daemon that has not seen them.
    OwnDataset(Box<Self>),
    /// An estimate in the job's file.
    File {
        /// Of which estimator.
        estimator: String,
    },
    /// Measured networks with such layers.
    Networks {
        /// Parameters of the network.
        parameters: u64,
        /// Activations of one sample.
        activations: u64,
        /// Samples in a batch.
        batch: u32,
    },
    /// Horus's formula over the model's summary.
    Formula {
        /// Parameters of the model.
        parameters: u64,
        /// Activations of one sample.
        activations: u64,
        /// Samples in a batch.
        batch: u32,
        /// Memory that a process holds before the first layer.
        startup: Bytes,
    },
}

impl Source {
    /// The one serialized form, as text: what datasets and profiles keep.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Strings and numbers: nothing that JSON cannot hold.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// A source in its serialized form; `None` for the text of another version or another program.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The dry run that it is concluded from, alone or beside others, and the number of runs that corrected it.
    #[must_use]
    pub fn dry_run(&self) -> Option<(&DryRun, u32)> {
        match self {
            Self::DryRun { run, runs, .. } => Some((run, *runs)),
            Self::Combined { said, .. } => said.iter().find_map(|said| said.source.dry_run()),
            Self::OwnDataset(source) => source.dry_run(),
            _ => None,
        }
    }

    /// Returns true if it is concluded from a dry run alone, with the memory model's own margin.
    #[must_use]
    pub fn is_dry_run_alone(&self) -> bool {
        match self {
            // What was left out is worth a word.
            Self::DryRun { left_out, .. } => left_out.is_none(),
            Self::Combined { said, stretch } => {
                *stretch == Permille::WHOLE && matches!(&said[..], [only] if only.source.is_dry_run_alone())
            }
            _ => false,
        }
    }

    /// Returns true if it is a prediction that no run on a GPU has shown.
    #[must_use]
    pub fn is_predicted(&self) -> bool {
        match self {
            Self::PredictedStep { .. } => true,
            Self::OwnDataset(source) => source.is_predicted(),
            _ => false,
        }
    }

    /// Returns true if a run, or the user's own word, confirms it: such a bound is enforced.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        match self {
            Self::Declared
            | Self::EqualRuns { .. }
            | Self::EqualRunsAndOutOfMemory { .. }
            | Self::OutOfMemory
            | Self::OtherBatchSizes { .. } => true,
            Self::Combined { said, .. } => said.iter().any(|said| said.source.is_confirmed()),
            Self::DryRun { .. }
            | Self::PredictedStep { .. }
            | Self::UserEstimate
            | Self::EarlierStatements { .. }
            | Self::OwnDataset(_)
            | Self::File { .. }
            | Self::Networks { .. }
            | Self::Formula { .. } => false,
        }
    }
}

// Serde passes references.
fn is_none(count: &u32) -> bool {
    *count == 0
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared => f.write_str("declared by its user"),
            Self::EqualRuns { runs: 1 } => f.write_str("measured in an equal run"),
            Self::EqualRuns { runs } => write!(f, "measured in {runs} equal runs"),
            Self::EqualRunsAndOutOfMemory { runs } => {
                write!(f, "{runs} equal run{} ended well, others ran out of memory", plural(u64::from(*runs)))
            }
            Self::OutOfMemory => f.write_str("equal runs ran out of memory with less"),
            // One other size shows no slope.
            Self::OtherBatchSizes { sizes: 1 } => f.write_str("taken from runs at another batch size"),
            Self::OtherBatchSizes { sizes } => {
                write!(f, "extrapolated from {sizes} other batch size{}", plural(u64::from(*sizes)))
            }
            Self::DryRun { run: DryRun { steps, gpu, background, .. }, runs, left_out } => {
                f.write_str("dry run")?;
                if *steps > 0 {
                    write!(f, " of {steps} step{}", plural(*steps))?;
                }
                if *background {
                    f.write_str(" in the background")?;
                }
                write!(f, " on an emulated {gpu}")?;
                if *runs > 0 {
                    write!(f, ", corrected by {runs} run{} here", plural(u64::from(*runs)))?;
                }
                let Some(LeftOut { runs, peak, expected }) = left_out else { return Ok(()) };
                let others =
                    if *runs == 1 { String::new() } else { format!("{runs} runs left out, the newest: ") };
                write!(f, " ({others}a run that took {peak} where {expected} was expected does not count)")
            }
            Self::Combined { said, stretch } => {
                for (at, Said { source, bytes, .. }) in said.iter().enumerate() {
                    match said.len() {
                        1 => write!(f, "{source}")?,
                        _ => write!(f, "{}{source} ({bytes})", if at == 0 { "" } else { ", " })?,
                    }
                }
                if *stretch == Permille::WHOLE {
                    return Ok(());
                }
                write!(f, "; margin x {:.2} after this node's jobs", f64::from(stretch.0) / 1000.0)
            }
            Self::PredictedStep { gpu, steps, runs } => {
                write!(f, "predicted from a dry run's step on an emulated {gpu}")?;
                if *runs > 0 {
                    write!(f, ", corrected by {runs} run{} here", plural(u64::from(*runs)))?;
                }
                match steps {
                    0 => Ok(()),
                    steps => write!(
                        f,
                        ", {steps} times; evaluation, saving and the time before the first step are left out"
                    ),
                }
            }
            Self::UserEstimate => f.write_str("estimated by its user"),
            Self::EarlierStatements { stated, jobs } => {
                write!(f, "{stated} stated, by what {jobs} earlier jobs of its user took")
            }
            Self::OwnDataset(source) => write!(f, "{source} under radrm-run"),
            Self::File { estimator } => write!(f, "{estimator}'s figure in the job's file"),
            Self::Networks { parameters, activations, batch } => write!(
                f,
                "learned from measured networks ({parameters} parameters, {activations} activations a sample, batch \
                 size {batch})"
            ),
            Self::Formula { parameters, activations, batch, startup } => write!(
                f,
                "Horus's formula over the model summary ({parameters} parameters, {activations} activations a \
                 sample, batch size {batch}, {startup} to start with)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_survives_its_text() {
        let run = DryRun { held: Bytes(5), steps: 3, gpu: "H200".into(), ..DryRun::default() };
        let dry_run = Source::DryRun { run: run.clone(), runs: 12, left_out: None };
        assert_eq!(dry_run.to_text(), r#"{"dry_run":{"held":5,"steps":3,"gpu":"H200","runs":12}}"#);
        let said = |source| vec![Said { source, bytes: Bytes(7), weight: Permille::WHOLE }];
        let combined = |stretch| Source::Combined { said: said(dry_run.clone()), stretch };
        let own = Source::OwnDataset(Box::new(combined(Permille(1200))));
        for source in [dry_run.clone(), Source::Declared, Source::EqualRuns { runs: 2 }, own.clone()] {
            assert_eq!(Source::parse(&source.to_text()), Some(source));
        }
        assert_eq!(Source::parse("of another program"), None);
        assert_eq!(own.dry_run(), Some((&run, 12)));
        let alone = [dry_run.clone(), combined(Permille::WHOLE), combined(Permille(900)), own.clone()];
        assert_eq!(alone.map(|source| source.is_dry_run_alone()), [true, true, false, false]);
        let left_out = Some(LeftOut { runs: 1, peak: Bytes::from_mib(450), expected: Bytes::from_gib(20) });
        let odd = Source::DryRun { run, runs: 70, left_out };
        assert_eq!(Source::parse(&odd.to_text()), Some(odd.clone()));
        let text = odd.to_string();
        assert!(
            text.ends_with(
                "by 70 runs here (a run that took 450.0 MiB where 20.0 GiB was expected does not count)"
            ),
            "{text}"
        );
        // What only the user's dataset shows confirms no limit.
        let measured = Source::OwnDataset(Box::new(Source::EqualRuns { runs: 2 }));
        assert!(!measured.is_confirmed() && Source::EqualRuns { runs: 2 }.is_confirmed());
        assert_eq!(measured.to_string(), "measured in 2 equal runs under radrm-run");
    }
}
