//! KACE's neural network: three hidden layers of 128, 64 and 32 units with ReLU, one linear output.
//!
//! As its program has it: Adam (0.001) on the squared error in batches of 32, 250 passes at most, and a stop when the last fifth
//! of the rows, which are not learned, were predicted no better for 40 passes. Columns and target are z-scored.
//! Weights and batches come from a generator with a fixed seed.

use crate::numbers::{Numbers, spread};

const HIDDEN: [usize; 3] = [128, 64, 32];
const BATCH: usize = 32;
const PASSES: usize = 250;
const MAX_PASSES_WITHOUT_GAIN: usize = 40;
const RATE: f64 = 0.001;
const BETAS: (f64, f64) = (0.9, 0.999);

/// A trained network.
#[derive(Clone, Debug)]
pub struct Network {
    layers: Vec<Layer>,
    /// Mean and deviation of each column, and of the target.
    columns: Vec<(f64, f64)>,
    target: (f64, f64),
}

/// A layer: each output's weights, and its bias behind them.
#[derive(Clone, Debug)]
struct Layer {
    inputs: usize,
    weights: Vec<f64>,
    gradient: Vec<f64>,
    moments: Vec<(f64, f64)>,
}

impl Layer {
    /// Glorot's uniform weights.
    fn new(inputs: usize, outputs: usize, numbers: &mut Numbers) -> Self {
        let limit = (6.0 / (inputs + outputs) as f64).sqrt();
        let weights: Vec<f64> = (0..outputs)
            .flat_map(|_| {
                let row: Vec<f64> = (0..inputs).map(|_| limit * (2.0 * numbers.next() - 1.0)).collect();
                row.into_iter().chain([0.0])
            })
            .collect();
        let count = weights.len();
        Self { inputs, weights, gradient: vec![0.0; count], moments: vec![(0.0, 0.0); count] }
    }

    fn apply(&self, inputs: &[f64]) -> Vec<f64> {
        let output = |row: &[f64]| {
            let (weights, bias) = row.split_at(self.inputs);
            weights.iter().zip(inputs).map(|(weight, input)| weight * input).sum::<f64>() + bias[0]
        };
        self.weights.chunks_exact(self.inputs + 1).map(output).collect()
    }

    /// Adds to the gradient; gives that by the inputs.
    fn back(&mut self, inputs: &[f64], from: &[f64]) -> Vec<f64> {
        let mut to = vec![0.0; self.inputs];
        let width = self.inputs + 1;
        let rows = self.weights.chunks_exact(width).zip(self.gradient.chunks_exact_mut(width));
        for ((weights, gradient), from) in rows.zip(from).filter(|(_, from)| **from != 0.0) {
            for (at, input) in inputs.iter().enumerate() {
                gradient[at] += from * input;
                to[at] += from * weights[at];
            }
            gradient[self.inputs] += from;
        }
        to
    }

    fn step(&mut self, step: i32) {
        let seen = (1.0 - BETAS.0.powi(step), 1.0 - BETAS.1.powi(step));
        for ((weight, gradient), moments) in
            self.weights.iter_mut().zip(&mut self.gradient).zip(&mut self.moments)
        {
            moments.0 += (1.0 - BETAS.0) * (*gradient - moments.0);
            moments.1 += (1.0 - BETAS.1) * (*gradient * *gradient - moments.1);
            *weight -= RATE * (moments.0 / seen.0) / ((moments.1 / seen.1).sqrt() + 1e-7);
            *gradient = 0.0;
        }
    }
}

impl Network {
    /// Learns a target of each row; `None` with fewer than ten rows, or other than as many targets.
    #[must_use]
    pub fn fit(rows: &[Vec<f64>], target: &[f64]) -> Option<Self> {
        let columns = rows.first().map_or(0, Vec::len);
        if rows.len() < 10 || rows.len() != target.len() || columns == 0 {
            return None;
        }
        let mut numbers = Numbers(50);
        let sizes = [&[columns][..], &HIDDEN, &[1]].concat();
        let mut network = Self {
            layers: sizes.windows(2).map(|pair| Layer::new(pair[0], pair[1], &mut numbers)).collect(),
            columns: (0..columns).map(|at| spread(rows.iter().map(move |row| row[at]))).collect(),
            target: spread(target.iter().copied()),
        };
        let scored: Vec<Vec<f64>> = rows.iter().map(|row| network.scored(row)).collect();
        let goal: Vec<f64> = target.iter().map(|y| (y - network.target.0) / network.target.1).collect();
        let learned = rows.len() - rows.len() / 5;
        let mut order: Vec<usize> = (0..learned).collect();
        let (mut best, mut since, mut step) = (f64::INFINITY, 0, 0);
        for _ in 0..PASSES {
            numbers.shuffle(&mut order);
            for batch in order.chunks(BATCH) {
                step += 1;
                let share = 2.0 / batch.len() as f64;
                batch.iter().for_each(|row| network.learn(&scored[*row], goal[*row], share));
                network.layers.iter_mut().for_each(|layer| layer.step(step));
            }
            let loss = (learned..rows.len())
                .map(|row| (network.output(&scored[row]) - goal[row]).powi(2))
                .sum::<f64>();
            since = if loss < best { 0 } else { since + 1 };
            best = best.min(loss);
            if since >= MAX_PASSES_WITHOUT_GAIN {
                break;
            }
        }
        Some(network)
    }

    fn scored(&self, row: &[f64]) -> Vec<f64> {
        row.iter().zip(&self.columns).map(|(value, (mean, deviation))| (value - mean) / deviation).collect()
    }

    /// Returns the outputs of each layer for a row, its inputs first.
    fn course(&self, row: &[f64]) -> Vec<Vec<f64>> {
        let mut course = vec![row.to_vec()];
        for (at, layer) in self.layers.iter().enumerate() {
            let mut values = layer.apply(&course[at]);
            if at + 1 < self.layers.len() {
                values.iter_mut().for_each(|value| *value = value.max(0.0));
            }
            course.push(values);
        }
        course
    }

    fn output(&self, row: &[f64]) -> f64 {
        self.course(row).last().map_or(0.0, |last| last[0])
    }

    fn learn(&mut self, row: &[f64], goal: f64, share: f64) {
        let course = self.course(row);
        let mut from = vec![share * (course[self.layers.len()][0] - goal)];
        for at in (0..self.layers.len()).rev() {
            if at + 1 < self.layers.len() {
                for (value, output) in from.iter_mut().zip(&course[at + 1]) {
                    *value = if *output > 0.0 { *value } else { 0.0 };
                }
            }
            from = self.layers[at].back(&course[at], &from);
        }
    }

    /// The prediction for a row.
    #[must_use]
    pub fn predict(&self, row: &[f64]) -> f64 {
        self.output(&self.scored(row)) * self.target.1 + self.target.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bent_surface_is_learned() {
        let mut numbers = Numbers(3);
        let rows: Vec<Vec<f64>> =
            (0..300).map(|_| vec![100.0 * numbers.next(), numbers.next(), 5.0]).collect();
        let truth = |row: &[f64]| 40.0 + (row[0] - 50.0).abs() * row[1];
        let target: Vec<f64> = rows.iter().map(|row| truth(row)).collect();
        let network = Network::fit(&rows[..250], &target[..250]).unwrap();
        let error = |row: &Vec<f64>| (network.predict(row) - truth(row)).abs();
        let mean = rows[250..].iter().map(error).sum::<f64>() / 50.0;
        let (center, _) = spread(target.iter().copied());
        let naive = rows[250..].iter().map(|row| (center - truth(row)).abs()).sum::<f64>() / 50.0;
        assert!(mean < 0.25 * naive, "{mean} {naive}");
        assert!(Network::fit(&rows[..5], &target[..5]).is_none());
    }

    #[test]
    fn gradients_are_those_of_the_squared_error() {
        let mut numbers = Numbers(4);
        let rows: Vec<Vec<f64>> = (0..12).map(|_| vec![numbers.next(), numbers.next()]).collect();
        let target: Vec<f64> = rows.iter().map(|row| row[0] - row[1]).collect();
        let mut network = Network::fit(&rows, &target).unwrap();
        let (row, goal) = (vec![0.3, -0.8], 0.7);
        network.learn(&row, goal, 2.0);
        for layer in 0..network.layers.len() {
            for at in (0..network.layers[layer].weights.len()).step_by(97) {
                let moved = |by: f64| {
                    let mut other = network.clone();
                    other.layers[layer].weights[at] += by;
                    (other.output(&row) - goal).powi(2)
                };
                let expected = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                let found = network.layers[layer].gradient[at];
                assert!(
                    (found - expected).abs() < 1e-4 * (1.0 + expected.abs()),
                    "{layer} {at}: {found} {expected}"
                );
            }
        }
    }
}
