//! Memory of a training from the layers of its network: GPUMemNet's features, and the estimators that are published.

use serde::{Deserialize, Serialize};

use crate::boost::Settings;
use crate::evaluate::{Outcome, Scores, group_folds};
use crate::model::{Model, Recipe};
use crate::{Error, Table};

/// A network, as a summary of it lists its layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// Layers.
    pub depth: u32,
    /// Linear layers.
    pub linear: u32,
    /// Convolutions.
    pub conv: u32,
    /// Normalizations of batches and layers.
    pub norm: u32,
    /// Dropout layers.
    pub dropout: u32,
    /// Values that the largest layer puts out for one sample.
    pub largest: u64,
    /// Values that convolutions put out for one sample.
    pub convolved: u64,
    /// Parameters of the largest layer.
    pub largest_parameters: u64,
}

impl Shape {
    /// Adds a layer: its kind by the name that its framework gives it.
    pub fn add(&mut self, kind: &str, activations: u64, parameters: u64) {
        let kind = kind.to_ascii_lowercase();
        self.depth = self.depth.saturating_add(1);
        let count = match kind.as_str() {
            _ if kind.starts_with("conv") => Some(&mut self.conv),
            _ if kind.starts_with("linear") || kind.starts_with("dense") => Some(&mut self.linear),
            _ if kind.contains("norm") => Some(&mut self.norm),
            _ if kind.contains("dropout") => Some(&mut self.dropout),
            _ => None,
        };
        if let Some(count) = count {
            *count = count.saturating_add(1);
        }
        if kind.starts_with("conv") {
            self.convolved = self.convolved.saturating_add(activations);
        }
        self.largest = self.largest.max(activations);
        self.largest_parameters = self.largest_parameters.max(parameters);
    }
}

/// A network and a batch size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// Networks of one design, which are held out together.
    pub family: String,
    /// Its activation function, by the name that its framework gives it.
    pub activation: String,
    /// Its layers.
    pub shape: Shape,
    /// Its parameters.
    pub parameters: f64,
    /// Values that all layers put out for one sample.
    pub activations: f64,
    /// Samples in a batch.
    pub batch: f64,
    /// Measured peak, bytes; 0 where none was measured.
    pub peak: f64,
}

const MIB: f64 = 1_048_576.0;

/// Memory that a process held before its first layer where the networks were measured, bytes.
const IDLE: f64 = 1400.0 * MIB;

const COLUMNS: [&str; 14] = [
    "physical",
    "parameters",
    "activations",
    "batch activations",
    "batch",
    "depth",
    "linear",
    "conv",
    "norm",
    "dropout",
    "largest",
    "convolved",
    "largest parameters",
    "idle share",
];

impl Network {
    /// Weights, gradients and both of Adam's states, the activations of a batch, and an idle process.
    fn physical(&self) -> f64 {
        IDLE + 16.0 * self.parameters + 4.0 * self.activations * self.batch
    }

    /// The row of a learned model.
    #[must_use]
    pub fn row(&self) -> Vec<f64> {
        let ln = |value: f64| value.max(1.0).ln();
        let Shape { depth, linear, conv, norm, dropout, largest, convolved, largest_parameters } = self.shape;
        vec![
            self.physical(),
            ln(self.parameters),
            ln(self.activations),
            ln(self.activations * self.batch),
            self.batch,
            f64::from(depth),
            f64::from(linear),
            f64::from(conv),
            f64::from(norm),
            f64::from(dropout),
            ln(largest as f64 * self.batch),
            convolved as f64 / self.activations.max(1.0),
            ln(largest_parameters as f64),
            IDLE / self.physical(),
        ]
    }

    /// The published estimates, bytes, by name: they count as their own bounds.
    #[must_use]
    pub fn published(&self) -> [(&'static str, f64); 4] {
        let (p, a, b) = (self.parameters, self.activations, self.batch);
        [
            ("Horus", 4.0 * (b * a + p) + 4.0 * b * a + 600.0 * MIB),
            ("accelerate: 4 x fp32 size", 16.0 * p),
            ("DeepSpeed ZeRO-2, one GPU", 20.0 * p),
            ("DeepSpeed ZeRO-3, one GPU", 4.0 * self.shape.largest_parameters as f64 + 18.0 * p),
        ]
    }
}

/// A learned model of networks, and the range of each column that it has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Networks {
    pub(super) model: Model,
    ranges: Vec<(f64, f64)>,
}

/// Recipe of a learned model of networks. One tree more or less changes little: see `docs/estimator-accuracy.md`.
fn recipe(level: f64, origin: &str) -> Recipe<'_> {
    let settings = Settings { trees: 250, rate: 0.06, leaves: 10, min_rows: 8, ..Settings::default() };
    Recipe { target: "GPU memory, bytes", origin, physical: Some("physical"), level, folds: 5, settings }
}

fn table(networks: &[Network]) -> Result<(Table, Vec<f64>, Vec<&str>), Error> {
    let mut table = Table::new(COLUMNS);
    for network in networks {
        table.push(&network.row())?;
    }
    let peaks = networks.iter().map(|network| network.peak).collect();
    Ok((table, peaks, networks.iter().map(|network| network.family.as_str()).collect()))
}

impl Networks {
    /// Trains on measured networks.
    ///
    /// # Errors
    /// Too few, or figures that are not above 0.
    pub fn train(networks: &[Network], level: f64, origin: &str) -> Result<Self, Error> {
        let (table, peaks, families) = table(networks)?;
        let model = Model::train(&table, &peaks, &families, &recipe(level, origin))?;
        let range = |column: usize| {
            let values = || (0..table.len()).map(|row| table.row(row)[column]);
            (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max))
        };
        Ok(Self { model, ranges: (0..COLUMNS.len()).map(range).collect() })
    }

    /// The estimate and its bound for a network like those that were measured; `None` for any other.
    #[must_use]
    pub fn estimate(&self, network: &Network) -> Option<(f64, f64)> {
        let row = network.row();
        let known =
            row.iter().zip(&self.ranges).all(|(value, (least, most))| (*least..=*most).contains(value));
        let found = self.model.estimate(&row).filter(|_| known && row.len() == self.ranges.len())?;
        Some((found.value, found.bound))
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.model.features() != COLUMNS || self.ranges.len() != COLUMNS.len() {
            return Err(Error::Malformed("its model of networks has other columns than this program".into()));
        }
        self.model.check()
    }
}

/// GPUMemNet's width of a bucket, in bytes: 1,000 MiB of perceptrons, 8,000 MiB of networks with convolutions.
#[must_use]
pub fn bucket(networks: &[Network]) -> f64 {
    let convolve = networks.iter().any(|network| network.shape.conv > 0);
    if convolve { 8000.0 * MIB } else { 1000.0 * MIB }
}

/// An estimator's scores on networks that it did not learn from.
#[derive(Clone, Copy, Debug)]
pub struct HeldOut {
    /// Name of the estimator and of what it learned from.
    pub name: &'static str,
    /// Accuracy of the estimates.
    pub scores: Scores,
    /// Part of the rows whose bucket is that of the estimate, 0 to 1; of estimators that learn.
    pub right: Option<f64>,
}

/// Networks that an estimator learns from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Networks of other designs.
    Design,
    /// Networks of other designs, and of the same design with another activation function.
    Activation,
    /// Other networks, among them those of the same design: so accuracies of classifiers are published.
    Chance,
}

impl Split {
    /// Groups that are held out together: of a network its design, and its activation function where that counts.
    fn groups(self, networks: &[Network]) -> Vec<(&str, &str)> {
        let activation = |network: &'_ Network| match self {
            Self::Activation => network.activation.len(),
            Self::Design | Self::Chance => 0,
        };
        networks
            .iter()
            .map(|network| (network.family.as_str(), &network.activation[..activation(network)]))
            .collect()
    }

    /// The rows of each of five folds, with all others.
    #[must_use]
    pub fn folds(self, networks: &[Network]) -> Vec<(Vec<usize>, Vec<usize>)> {
        const FOLDS: usize = 5;
        let fold_of = match self {
            Self::Design | Self::Activation => group_folds(&self.groups(networks), FOLDS),
            // The files list networks as they were drawn.
            Self::Chance => (0..networks.len()).map(|row| row % FOLDS).collect(),
        };
        (0..FOLDS).map(|fold| (0..networks.len()).partition(|row| fold_of[*row] == fold)).collect()
    }
}

/// Scores of [`Networks`].
///
/// # Errors
/// Too few networks.
pub fn boosted(networks: &[Network], split: Split, level: f64, bucket: f64) -> Result<HeldOut, Error> {
    let (table, peaks, _) = table(networks)?;
    let all = split.groups(networks);
    let (mut outcomes, mut right) = (Vec::new(), 0usize);
    for (inside, outside) in split.folds(networks) {
        let of = |rows: &[usize]| -> (Vec<f64>, Vec<(&str, &str)>) {
            rows.iter().map(|row| (peaks[*row], all[*row])).unzip()
        };
        let (learn, groups) = of(&outside);
        let model = Model::train(&table.select(&outside), &learn, &groups, &recipe(level, ""))?;
        for row in inside {
            let Some(found) = model.estimate(table.row(row)) else { continue };
            let measured = peaks[row];
            right += usize::from((found.value / bucket).floor() == (measured / bucket).floor());
            outcomes.push(Outcome { measured, estimate: found.value, bound: found.bound });
        }
    }
    let name = match split {
        Split::Design => "boosting",
        Split::Activation => "boosting, design with activation",
        Split::Chance => "boosting, split by chance",
    };
    let right = Some(right as f64 / outcomes.len().max(1) as f64);
    Ok(HeldOut { name, scores: Scores::of(outcomes), right })
}

/// Scores of the published formulas.
#[must_use]
pub fn formulas(networks: &[Network]) -> Vec<HeldOut> {
    let names = networks.first().map(|network| network.published().map(|(name, _)| name));
    let of = |(at, name): (usize, &'static str)| {
        let outcome = |network: &Network| {
            let estimate = network.published()[at].1;
            Outcome { measured: network.peak, estimate, bound: estimate }
        };
        HeldOut { name, scores: Scores::of(networks.iter().map(outcome)), right: None }
    };
    names.into_iter().flatten().enumerate().map(of).collect()
}
