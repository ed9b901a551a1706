//! `radrm estimate --features FILE`: what is known of a job, without a program to run.

use std::collections::BTreeMap;
use std::path::Path;

use radrm_base::PastRun;
use radrm_estimator::memory::Shape;
use radrm_need::{DryRun, Features, ModelSummary, Need, NeedResolver, Needs};
use radrm_scheduler_core::{Bytes, Millis};
use serde::Deserialize;

use crate::Failure;
use crate::error::FileProblem;
use crate::replay::input;

/// A file of features. Names are those of the columns that `radrm train --csv` reads.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stated {
    /// Samples in a batch, on each GPU.
    pub(super) batch: Option<u32>,
    dry_run_mib: Option<Mib>,
    network: Option<Network>,
    /// By the estimator's name.
    estimates_mib: BTreeMap<String, Mib>,
    runs: Vec<Run>,
}

/// A network, as its summary counts it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Network {
    parameters: u64,
    /// Values that all layers put out for one sample.
    activations: u64,
    depth: u32,
    linear: u32,
    conv: u32,
    norm: u32,
    dropout: u32,
    /// Values that the largest layer puts out for one sample.
    largest: u64,
    /// Values that convolutions put out for one sample.
    convolved: u64,
    largest_parameters: u64,
}

/// A run of the program that ended well.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    batch: Option<u32>,
    peak_mib: Mib,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
struct Mib(Bytes);

#[derive(Debug, thiserror::Error)]
#[error("{0} MiB is not an amount above 0")]
struct NoAmount(f64);

impl TryFrom<f64> for Mib {
    type Error = NoAmount;
    fn try_from(value: f64) -> Result<Self, NoAmount> {
        match value.is_finite() && value > 0.0 {
            true => Ok(Self(Bytes((value * f64::from(1 << 20)) as u64))),
            false => Err(NoAmount(value)),
        }
    }
}

impl Stated {
    /// Reads a file of features.
    pub(super) fn of_file(path: &Path) -> Result<Self, Failure> {
        let found: Self = input::toml(path)?;
        let network = found.network.filter(|network| network.parameters > 0 || network.activations > 0);
        let is_empty = found.dry_run_mib.is_none()
            && network.is_none()
            && found.estimates_mib.is_empty()
            && found.runs.is_empty();
        if is_empty {
            return Err(
                FileProblem::Nothing("features (dry_run_mib, network, estimates_mib or runs)").of(path)
            );
        }
        let batches = found.runs.iter().map(|run| run.batch).chain([found.batch]);
        if batches.flatten().any(|batch| batch == 0) {
            return Err(FileProblem::NoBatch.of(path));
        }
        Ok(found)
    }

    /// Number of runs that it states.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The needs that follow, and what each estimator says of the memory, in order of trust.
    pub(super) fn resolve(&self) -> (Needs, Vec<(String, Need)>) {
        let run = |run: &Run| PastRun {
            batch: run.batch,
            peak: run.peak_mib.0,
            ran: Millis::ZERO,
            activity: None,
            host: None,
            complete: true,
        };
        let runs: Vec<PastRun> = self.runs.iter().map(run).collect();
        let dry_run = self.dry_run_mib.map(|held| DryRun {
            held: held.0,
            steps: 0,
            gpu: "GPU".to_owned(),
            ..DryRun::default()
        });
        let estimates = self.estimates_mib.iter().map(|(name, bytes)| (name.clone(), bytes.0)).collect();
        let summary = self.network.map(Network::summary);
        let features = Features {
            runs: &runs,
            dry_run: dry_run.as_ref(),
            file: Some(&estimates),
            summary: summary.as_ref(),
            batch: self.batch,
            ..Features::default()
        };
        let resolver = NeedResolver::default();
        // A run time is not stated.
        let needs = Needs { run_time: None, ..resolver.resolve(&features) };
        (needs, resolver.answers(&features))
    }
}

impl Network {
    fn summary(self) -> ModelSummary {
        let Self { depth, linear, conv, norm, dropout, largest, convolved, largest_parameters, .. } = self;
        ModelSummary {
            parameters: self.parameters,
            activations: self.activations,
            shape: Shape { depth, linear, conv, norm, dropout, largest, convolved, largest_parameters },
            ..ModelSummary::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Stated, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.toml");
        std::fs::write(&path, text).unwrap();
        Stated::of_file(&path).map_err(|why| why.to_string())
    }

    #[test]
    fn features_of_a_file_reach_every_estimator() {
        let text = "batch = 64\ndry_run_mib = 6200\n[estimates_mib]\ngpumemnet = 24000\n\
                    [network]\nparameters = 25000000\nactivations = 11000000\n\
                    [[runs]]\nbatch = 32\npeak_mib = 4000.5\n";
        let stated = read(text).unwrap();
        let (needs, answers) = stated.resolve();
        let names: Vec<&str> = answers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["combined", "job's file", "Horus's formula"]);
        let need = needs.memory.unwrap();
        assert!(need.bytes > Bytes::from_mib(4000) && need.upper < Bytes::from_mib(9000), "{need}");
        let equal = read("batch = 32\n[[runs]]\nbatch = 32\npeak_mib = 4000\n").unwrap().resolve().0;
        assert_eq!((equal.memory.unwrap().bytes, equal.run_time), (Bytes::from_mib(4000), None));
    }

    #[test]
    fn a_wrong_file_of_features_is_refused_in_one_sentence() {
        for (text, part) in [
            ("", "there are no features (dry_run_mib, network, estimates_mib or runs) in it"),
            ("batch = 8\n[network]\n", "there are no features"),
            ("dry_run_mib = -1\n", "line 1: -1 MiB is not an amount above 0"),
            ("dry_run_mib = \"much\"\n", "line 1: invalid type"),
            ("dry_run_mib = 5\nlayers = 3\n", "line 2: unknown field `layers`"),
            ("[network]\nlineer = 3\n", "line 2: unknown field `lineer`"),
            ("[[runs]]\nbatch = 8\n", "missing field `peak_mib`"),
            ("batch = 0\ndry_run_mib = 5\n", "a batch has at least one sample"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(part) && why.lines().count() == 1, "{text}: {why}");
        }
    }
}
