//! An ensemble of small perceptrons that classify, as GPUMemNet has them: a published baseline.
//!
//! The first hidden layer of each has 8 units, and each next one half of those before it, at least 4; all with batch
//! normalization and ReLU. The mean of the members' outputs are the logits, and all members learn together by Adam from
//! their cross entropy. Weights and batches come from a generator with a fixed seed: the same rows give the same ensemble.

use crate::numbers::{Numbers, spread};

/// Units of the first hidden layer, and the fewest of any.
const UNITS: (usize, usize) = (8, 4);
/// Rows of a step.
const BATCH: usize = 128;
/// Adam's step.
const RATE: f32 = 0.001;
/// Adam's memory of gradients, and of their squares.
const BETAS: (f32, f32) = (0.9, 0.999);
/// Rate at which a normalization's mean and variance follow those of the batches.
const MOMENTUM: f32 = 0.1;
const EPSILON: f32 = 1e-5;

/// A trained ensemble.
#[derive(Clone, Debug)]
pub struct Ensemble {
    members: Vec<Member>,
    classes: usize,
    /// Mean and standard deviation of each column.
    scale: Vec<(f64, f64)>,
}

/// One perceptron.
#[derive(Clone, Debug)]
struct Member {
    layers: Vec<Layer>,
}

/// A layer. Values of a batch stand unit by unit: those of one unit for all rows, then those of the next one.
#[derive(Clone, Debug)]
struct Layer {
    inputs: usize,
    outputs: usize,
    /// Weights by output, biases, and of a hidden layer the factors and offsets of its normalization.
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    /// Adam's means.
    means: Vec<(f32, f32)>,
    /// Mean and variance of each unit over the batches; empty for the last layer.
    running: Vec<(f32, f32)>,
    last: Batch,
}

/// Values that a layer keeps of the batch that it saw last.
#[derive(Clone, Debug, Default)]
struct Batch {
    inputs: Vec<f32>,
    /// Units after the normalization, and the inverse deviation of each before it.
    normal: Vec<f32>,
    inverse: Vec<f32>,
    outputs: Vec<f32>,
}

/// Sum of products. Eight sums at a time: one alone would wait for each addition.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let mut sums = [0.0f32; LANES];
    let (ours, theirs) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = ours.remainder().iter().zip(theirs.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in ours.zip(theirs) {
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum += a[at] * b[at];
        }
    }
    sums.iter().sum::<f32>() + rest
}

impl Layer {
    /// A layer with Xavier's uniform weights.
    fn new(inputs: usize, outputs: usize, is_hidden: bool, numbers: &mut Numbers) -> Self {
        let limit = (6.0 / (inputs + outputs) as f64).sqrt();
        let weight = |_| (limit * (2.0 * numbers.next() - 1.0)) as f32;
        let mut parameters: Vec<f32> = (0..inputs * outputs).map(weight).collect();
        parameters.extend(std::iter::repeat_n(0.0, outputs));
        if is_hidden {
            parameters.extend(std::iter::repeat_n(1.0, outputs).chain(std::iter::repeat_n(0.0, outputs)));
        }
        let count = parameters.len();
        let running = if is_hidden { vec![(0.0, 1.0); outputs] } else { Vec::new() };
        Self {
            inputs,
            outputs,
            parameters,
            gradient: vec![0.0; count],
            means: vec![(0.0, 0.0); count],
            running,
            last: Batch::default(),
        }
    }

    fn is_hidden(&self) -> bool {
        !self.running.is_empty()
    }

    /// Index of the first bias.
    fn biases(&self) -> usize {
        self.inputs * self.outputs
    }

    /// Factor and offset of a unit's normalization.
    fn affine(&self, unit: usize) -> (f32, f32) {
        let base = self.biases() + self.outputs + unit;
        (self.parameters[base], self.parameters[base + self.outputs])
    }

    fn linear(&self, inputs: &[f32], rows: usize) -> Vec<f32> {
        let (weights, rest) = self.parameters.split_at(self.biases());
        let mut outputs = Vec::with_capacity(rows * self.outputs);
        for (weights, bias) in weights.chunks_exact(self.inputs).zip(rest) {
            let begin = outputs.len();
            outputs.resize(begin + rows, *bias);
            for (weight, input) in weights.iter().zip(inputs.chunks_exact(rows)) {
                outputs[begin..].iter_mut().zip(input).for_each(|(output, value)| *output += weight * value);
            }
        }
        outputs
    }

    /// Forward pass of a batch while the ensemble learns.
    fn learn(&mut self, inputs: Vec<f32>, rows: usize) -> Vec<f32> {
        let mut outputs = self.linear(&inputs, rows);
        self.last.inputs = inputs;
        if !self.is_hidden() {
            return outputs;
        }
        let (ones, count) = (vec![1.0; rows], rows as f32);
        self.last.inverse.clear();
        for (unit, values) in outputs.chunks_exact_mut(rows).enumerate() {
            let mean = dot(values, &ones) / count;
            values.iter_mut().for_each(|value| *value -= mean);
            let variance = dot(values, values) / count;
            let inverse = 1.0 / (variance + EPSILON).sqrt();
            values.iter_mut().for_each(|value| *value *= inverse);
            self.last.inverse.push(inverse);
            let running = &mut self.running[unit];
            let unbiased = variance * count / (count - 1.0).max(1.0);
            running.0 += MOMENTUM * (mean - running.0);
            running.1 += MOMENTUM * (unbiased - running.1);
        }
        self.last.normal.clone_from(&outputs);
        for (unit, values) in outputs.chunks_exact_mut(rows).enumerate() {
            let (factor, offset) = self.affine(unit);
            values.iter_mut().for_each(|value| *value = (factor * *value + offset).max(0.0));
        }
        self.last.outputs.clone_from(&outputs);
        outputs
    }

    /// Forward pass of a row when the ensemble has learned.
    fn apply(&self, row: &[f32]) -> Vec<f32> {
        let mut outputs = self.linear(row, 1);
        for (unit, (mean, variance)) in self.running.iter().enumerate() {
            let (factor, offset) = self.affine(unit);
            let normal = (outputs[unit] - mean) / (variance + EPSILON).sqrt();
            outputs[unit] = (factor * normal + offset).max(0.0);
        }
        outputs
    }

    /// The gradient by the inputs of the last batch, from that by its outputs; that by the parameters is kept.
    fn back(&mut self, mut from: Vec<f32>, rows: usize) -> Vec<f32> {
        let (ones, count, biases) = (vec![1.0; rows], rows as f32, self.biases());
        if self.is_hidden() {
            let normal = self.last.normal.chunks_exact(rows).zip(self.last.outputs.chunks_exact(rows));
            for (unit, (from, (normal, outputs))) in from.chunks_exact_mut(rows).zip(normal).enumerate() {
                for (value, output) in from.iter_mut().zip(outputs) {
                    *value = if *output > 0.0 { *value } else { 0.0 };
                }
                let (sum, moment) = (dot(from, &ones), dot(from, normal));
                let base = biases + self.outputs + unit;
                (self.gradient[base], self.gradient[base + self.outputs]) = (moment, sum);
                let scale = self.parameters[base] * self.last.inverse[unit];
                for (value, normal) in from.iter_mut().zip(normal) {
                    *value = scale * (*value - sum / count - normal * moment / count);
                }
            }
        }
        let mut to = vec![0.0; rows * self.inputs];
        for (unit, from) in from.chunks_exact(rows).enumerate() {
            self.gradient[biases + unit] = dot(from, &ones);
            let inputs = self.last.inputs.chunks_exact(rows).zip(to.chunks_exact_mut(rows));
            for (at, (input, to)) in inputs.enumerate() {
                let at = unit * self.inputs + at;
                self.gradient[at] = dot(from, input);
                let weight = self.parameters[at];
                to.iter_mut().zip(from).for_each(|(to, value)| *to += weight * value);
            }
        }
        to
    }

    /// Moves the parameters: Adam's `step`-th time.
    fn step(&mut self, step: i32) {
        let seen = (1.0 - BETAS.0.powi(step), 1.0 - BETAS.1.powi(step));
        let moved = self.parameters.iter_mut().zip(&self.gradient).zip(&mut self.means);
        for ((parameter, gradient), means) in moved {
            means.0 += (1.0 - BETAS.0) * (gradient - means.0);
            means.1 += (1.0 - BETAS.1) * (gradient * gradient - means.1);
            *parameter -= RATE * (means.0 / seen.0) / ((means.1 / seen.1).sqrt() + 1e-8);
        }
    }
}

impl Member {
    fn new(inputs: usize, depth: usize, classes: usize, numbers: &mut Numbers) -> Self {
        let mut layers = Vec::with_capacity(depth + 1);
        let mut before = inputs;
        for at in 0..depth {
            let units = UNITS.0.checked_shr(at as u32).unwrap_or(0).max(UNITS.1);
            layers.push(Layer::new(before, units, true, numbers));
            before = units;
        }
        layers.push(Layer::new(before, classes, false, numbers));
        Self { layers }
    }

    fn learn(&mut self, inputs: &[f32], rows: usize) -> Vec<f32> {
        self.layers.iter_mut().fold(inputs.to_vec(), |values, layer| layer.learn(values, rows))
    }

    fn back(&mut self, gradient: &[f32], rows: usize) {
        self.layers.iter_mut().rev().fold(gradient.to_vec(), |from, layer| layer.back(from, rows));
    }
}

impl Ensemble {
    /// Learns the class of each row, 0 to `classes` - 1, with members of so many hidden layers, in so many passes over the
    /// rows. Columns are brought to mean 0 and deviation 1. Rows and labels are as many.
    #[must_use]
    pub fn fit(rows: &[Vec<f64>], labels: &[usize], classes: usize, depths: &[usize], passes: usize) -> Self {
        let columns = rows.first().map_or(0, Vec::len);
        let scale: Vec<(f64, f64)> =
            (0..columns).map(|at| spread(rows.iter().map(move |row| row[at]))).collect();
        let mut numbers = Numbers(13);
        let member = |depth: &usize| Member::new(columns, *depth, classes, &mut numbers);
        let members = depths.iter().map(member).collect();
        let mut ensemble = Self { members, classes, scale };
        let scaled: Vec<Vec<f32>> = rows.iter().map(|row| ensemble.scaled(row)).collect();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        let mut step = 0;
        for _ in 0..passes {
            numbers.shuffle(&mut order);
            // A batch of one row has no deviation.
            for batch in order.chunks(BATCH).filter(|batch| batch.len() > 1) {
                step += 1;
                let column = |at: usize| batch.iter().map(move |row| (row, at));
                let inputs: Vec<f32> =
                    (0..columns).flat_map(column).map(|(row, at)| scaled[*row][at]).collect();
                let labels: Vec<usize> = batch.iter().map(|row| labels[*row]).collect();
                ensemble.step(&inputs, &labels, step);
            }
        }
        ensemble
    }

    fn step(&mut self, inputs: &[f32], labels: &[usize], step: i32) {
        let rows = labels.len();
        let mut logits = vec![0.0; rows * self.classes];
        for member in &mut self.members {
            let outputs = member.learn(inputs, rows);
            logits.iter_mut().zip(outputs).for_each(|(sum, value)| *sum += value);
        }
        let share = 1.0 / self.members.len() as f32;
        logits.iter_mut().for_each(|value| *value *= share);
        cross_entropy(&mut logits, labels);
        logits.iter_mut().for_each(|value| *value *= share);
        for member in &mut self.members {
            member.back(&logits, rows);
            member.layers.iter_mut().for_each(|layer| layer.step(step));
        }
    }

    fn scaled(&self, row: &[f64]) -> Vec<f32> {
        let of = |(value, (mean, deviation)): (&f64, &(f64, f64))| ((value - mean) / deviation) as f32;
        row.iter().zip(&self.scale).map(of).collect()
    }

    /// The class of a row.
    #[must_use]
    pub fn classify(&self, row: &[f64]) -> usize {
        let row = self.scaled(row);
        let mut sums = vec![0.0; self.classes];
        for member in &self.members {
            let outputs = member.layers.iter().fold(row.clone(), |values, layer| layer.apply(&values));
            sums.iter_mut().zip(outputs).for_each(|(sum, value)| *sum += value);
        }
        let best = sums.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map_or(0, |(class, _)| class)
    }
}

/// The mean cross entropy of logits, class by class, and in their place its gradient.
fn cross_entropy(logits: &mut [f32], labels: &[usize]) -> f32 {
    let rows = labels.len();
    let mut loss = 0.0;
    for (row, label) in labels.iter().enumerate() {
        let of_row = || (row..logits.len()).step_by(rows);
        let most = of_row().map(|at| logits[at]).fold(f32::MIN, f32::max);
        let sum: f32 = of_row().map(|at| (logits[at] - most).exp()).sum();
        for (class, at) in of_row().enumerate() {
            let part = (logits[at] - most).exp() / sum;
            let is_it = class == *label;
            loss -= if is_it { part.max(f32::MIN_POSITIVE).ln() } else { 0.0 };
            logits[at] = (part - f32::from(u8::from(is_it))) / rows as f32;
        }
    }
    loss / rows as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_no_line_divides_are_learned() {
        let mut numbers = Numbers(1);
        let rows: Vec<Vec<f64>> = (0..700).map(|_| vec![1e6 * numbers.next(), numbers.next(), 7.0]).collect();
        let class = |row: &Vec<f64>| {
            let ring = (row[0] / 1e6 - 0.5).hypot(row[1] - 0.5);
            if ring < 0.2 { 0 } else { 1 + usize::from(ring > 0.4) }
        };
        let labels: Vec<usize> = rows.iter().map(class).collect();
        let ensemble = Ensemble::fit(&rows[..500], &labels[..500], 3, &[1, 2, 3], 400);
        let right = (500..700).filter(|row| ensemble.classify(&rows[*row]) == labels[*row]).count();
        let largest = (0..3).map(|class| labels[500..].iter().filter(|label| **label == class).count()).max();
        assert!(
            right >= 180 && largest < Some(130),
            "{right} of 200, of which the largest class is {largest:?}"
        );
    }

    #[test]
    fn gradients_are_those_of_the_loss() {
        const ROWS: usize = 11;
        let mut numbers = Numbers(2);
        let mut member = Member::new(3, 2, 2, &mut numbers);
        let inputs: Vec<f32> = (0..3 * ROWS).map(|_| (numbers.next() - 0.5) as f32).collect();
        let labels: Vec<usize> = (0..ROWS).map(|row| usize::from(row % 3 == 0)).collect();
        let loss = |member: &mut Member| {
            let mut logits = member.learn(&inputs, ROWS);
            let loss = cross_entropy(&mut logits, &labels);
            (loss, logits)
        };
        let (_, gradient) = loss(&mut member);
        member.back(&gradient, ROWS);
        let mut largest = 0.0f32;
        for layer in 0..member.layers.len() {
            for at in 0..member.layers[layer].parameters.len() {
                let found = member.layers[layer].gradient[at];
                let moved = |by: f32| {
                    let mut other = member.clone();
                    other.layers[layer].parameters[at] += by;
                    loss(&mut other).0
                };
                // Small, as no unit may become 0 on the way.
                let expected = (moved(1e-4) - moved(-1e-4)) / 2e-4;
                assert!((found - expected).abs() < 5e-3, "{layer} {at}: {found} {expected}");
                largest = largest.max(found.abs());
            }
        }
        assert!(largest > 0.1, "{largest}");
    }
}
