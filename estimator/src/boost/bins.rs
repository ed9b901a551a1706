//! Features in bins: at most 255 of each, cut at quantiles.

use crate::Table;

/// Bins of one feature, apart from the one of unknown values.
const MAX_CUTS: usize = 127;

/// A table whose values are numbers of bins. Bin 0 holds what is unknown; a value above `n` cuts is in bin `n + 1`.
pub(super) struct Binned {
    /// Rows.
    pub rows: usize,
    /// Bins of each row, feature after feature: a histogram reads one feature of many rows.
    codes: Vec<u8>,
    /// Upper ends of bins of each feature, rising.
    pub cuts: Vec<Vec<f64>>,
}

impl Binned {
    pub fn of(table: &Table) -> Self {
        let rows = table.len();
        let mut codes = Vec::with_capacity(rows * table.names().len());
        let mut all = Vec::with_capacity(table.names().len());
        for feature in 0..table.names().len() {
            let cuts = cuts((0..rows).map(|row| table.row(row)[feature]));
            codes.extend((0..rows).map(|row| code(&cuts, table.row(row)[feature])));
            all.push(cuts);
        }
        Self { rows, codes, cuts: all }
    }

    /// Bins of all rows of a feature.
    pub fn feature(&self, feature: usize) -> &[u8] {
        &self.codes[feature * self.rows..(feature + 1) * self.rows]
    }
}

fn code(cuts: &[f64], value: f64) -> u8 {
    if value.is_nan() {
        return 0;
    }
    u8::try_from(cuts.partition_point(|cut| value > *cut) + 1).unwrap_or(u8::MAX)
}

/// Cuts halfway between neighbouring values, all of them or those next to quantiles.
fn cuts(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let halfway = |low: f64, high: f64| {
        let middle = low / 2.0 + high / 2.0;
        // Between two neighbouring numbers there is none: the lower one separates them.
        if middle >= high || middle < low { low } else { middle }
    };
    let mut distinct = sorted.clone();
    distinct.dedup();
    if distinct.len() <= MAX_CUTS + 1 {
        return distinct.windows(2).map(|pair| halfway(pair[0], pair[1])).collect();
    }
    let mut cuts: Vec<f64> = (1..=MAX_CUTS)
        .filter_map(|n| {
            let low = sorted[n * sorted.len() / (MAX_CUTS + 1)];
            let high = sorted[sorted.partition_point(|value| *value <= low)..].first()?;
            Some(halfway(low, *high))
        })
        .collect();
    cuts.dedup();
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_separate_values_and_keep_the_unknown_apart() {
        let cuts = cuts([3.0, 1.0, f64::NAN, 2.0, 1.0].into_iter());
        assert_eq!(cuts, [1.5, 2.5]);
        assert_eq!([f64::NAN, 0.0, 1.5, 2.0, 9.0].map(|value| code(&cuts, value)), [0, 1, 1, 2, 3]);
        let many = super::cuts((0..10_000).map(f64::from));
        assert_eq!(many.len(), MAX_CUTS);
        assert!(many.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(super::cuts([f64::NAN].into_iter()), [0.0; 0]);
    }
}
