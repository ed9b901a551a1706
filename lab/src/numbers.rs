//! Numbers that the learned baselines share: pseudo-random ones, and the scale of a column.

/// A generator of numbers from 0 to 1. Published figures depend on its constants and on the order of its numbers.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn shuffle(&mut self, all: &mut [usize]) {
        for at in (1..all.len()).rev() {
            all.swap(at, (self.next() * (at + 1) as f64) as usize);
        }
    }
}

/// Mean and standard deviation of a column; 1 where it does not vary.
pub(crate) fn spread(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, if variance > 0.0 { variance.sqrt() } else { 1.0 })
}
