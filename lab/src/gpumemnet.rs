//! GPUMemNet's classifier of a network's memory, as a published baseline.
//!
//! It answers with a bucket, whose upper end is its estimate and its bound. Columns and members are those of its program
//! (github.com/itu-rad/GPUMemNet, `Ensemble/`).

use std::collections::BTreeSet;
use std::f64::consts::PI;

use radrm_estimator::Error;
use radrm_estimator::evaluate::{Outcome, Scores};
use radrm_estimator::memory::Network;
use radrm_estimator::memory::network::{HeldOut, Split, boosted, formulas};

use crate::perceptron::Ensemble;

/// Hidden layers of each member.
const DEPTHS: [usize; 13] = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6];
/// Passes over the rows: more make it no better.
const PASSES: usize = 100;

/// The columns of a network; `place` is that of its activation function among all of them, 0 to 1.
fn columns(network: &Network, place: f64) -> Vec<f64> {
    let Network { shape, parameters, activations, batch, .. } = network;
    let counts = [shape.linear, shape.conv, shape.norm, shape.dropout].map(f64::from);
    let figures = [*parameters, *activations, activations * batch, *batch];
    let angle = [(PI * place).sin(), (PI * place).cos()];
    counts.into_iter().chain(figures).chain(angle).collect()
}

/// Scores of the classifier; buckets are of so many bytes.
#[must_use]
pub fn classified(networks: &[Network], split: Split, bucket: f64) -> HeldOut {
    let functions: BTreeSet<&str> = networks.iter().map(|network| network.activation.as_str()).collect();
    let row = |network: &Network| {
        let at = functions.iter().position(|name| *name == network.activation).unwrap_or(0);
        columns(network, at as f64 / functions.len() as f64)
    };
    let rows: Vec<Vec<f64>> = networks.iter().map(row).collect();
    let labels: Vec<usize> = networks.iter().map(|network| (network.peak / bucket) as usize).collect();
    let classes = labels.iter().max().map_or(0, |most| most + 1);
    let (mut outcomes, mut right) = (Vec::new(), 0usize);
    for (inside, outside) in split.folds(networks) {
        if outside.is_empty() {
            continue;
        }
        let learn: Vec<Vec<f64>> = outside.iter().map(|at| rows[*at].clone()).collect();
        let classes_of: Vec<usize> = outside.iter().map(|at| labels[*at]).collect();
        let ensemble = Ensemble::fit(&learn, &classes_of, classes, &DEPTHS, PASSES);
        for at in inside {
            let found = ensemble.classify(&rows[at]);
            right += usize::from(found == labels[at]);
            let estimate = (found + 1) as f64 * bucket;
            outcomes.push(Outcome { measured: networks[at].peak, estimate, bound: estimate });
        }
    }
    let name = match split {
        Split::Design => "GPUMemNet's classifier",
        Split::Activation => "GPUMemNet's classifier, design with activation",
        Split::Chance => "GPUMemNet's classifier, split by chance",
    };
    let right = Some(right as f64 / outcomes.len().max(1) as f64);
    HeldOut { name, scores: Scores::of(outcomes), right }
}

/// Scores of [`Networks`](radrm_estimator::memory::Networks), of GPUMemNet's classifier, and of the published formulas, on networks that none of them learned
/// from; buckets are of so many bytes.
///
/// # Errors
/// Too few networks.
pub fn held_out(networks: &[Network], level: f64, bucket: f64) -> Result<Vec<HeldOut>, Error> {
    let mut all = Vec::new();
    for split in [Split::Design, Split::Activation, Split::Chance] {
        // The families of perceptrons have their activation functions in them.
        if split == Split::Activation && !networks.iter().any(|network| network.shape.conv > 0) {
            continue;
        }
        all.push(boosted(networks, split, level, bucket)?);
        all.push(classified(networks, split, bucket));
    }
    all.extend(formulas(networks));
    Ok(all)
}
