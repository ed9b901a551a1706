//! Throughput on a GPU model from a run on another one.
//!
//! Without any run there the ratio of the memory bandwidths is the best of the specifications; as soon as the program ran
//! on both with another batch size, its own ratio is (`docs/interference-accuracy.md` has the errors on Gavel's data).

use serde::{Deserialize, Serialize};

use crate::calibrate::margin;

/// A run alone on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Samples in a batch, if that is known.
    pub batch: Option<u32>,
    /// Steps in a second, or whatever else counts the work.
    pub rate: f64,
}

/// An estimated rate with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The rate to expect.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Largest error `|ln(measured / estimated)|` in 95 % of the cases, by what the estimate rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Margins {
    /// The ratio of the bandwidths.
    pub bandwidth: f64,
    /// The program's own ratio at another batch size.
    pub own: f64,
}

impl Default for Margins {
    /// Gavel's 26 programs on K80, P100 and V100, all six directions. Margins of other families hold 90 and 92 % of a
    /// family's cases: there are seven.
    fn default() -> Self {
        Self { bandwidth: 1.63, own: 0.62 }
    }
}

impl Margins {
    /// Margins from `ln(measured / estimated)` of cases by each rule; `None` if they are too few.
    #[must_use]
    pub fn of(bandwidth: &[f64], own: &[f64]) -> Option<Self> {
        let of = |errors: &[f64]| {
            let sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
            margin(&sizes, 0.95)
        };
        Some(Self { bandwidth: of(bandwidth)?, own: of(own)? })
    }
}

/// The rate of a run at `batch` on another GPU: `here` are the program's runs on this one, `there` those on the other,
/// `bandwidth` the other's memory bandwidth over this one's. `None` if no run here has that batch size, or a rate is no
/// positive number.
#[must_use]
pub fn rate(
    batch: Option<u32>,
    here: &[Throughput],
    there: &[Throughput],
    bandwidth: f64,
    margins: &Margins,
) -> Option<Rate> {
    let is_rate = |run: &&Throughput| run.rate.is_finite() && run.rate > 0.0;
    let run = here.iter().filter(is_rate).find(|run| run.batch == batch)?;
    // Of several batch sizes that ran on both the nearest: the ratio changes slowly with it.
    let far = |of: Option<u32>| Some((f64::from(of?.max(1)) / f64::from(batch?.max(1))).ln().abs());
    let both = there.iter().filter(is_rate).filter_map(|other| {
        let same = here.iter().filter(is_rate).find(|run| run.batch == other.batch)?;
        Some((far(other.batch)?, other.rate / same.rate))
    });
    let (ratio, margin) = match both.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, ratio)) => (ratio, margins.own),
        None => (bandwidth, margins.bandwidth),
    };
    let value = run.rate * ratio;
    (value.is_finite() && value > 0.0).then(|| Rate {
        value,
        low: value * (-margin).exp(),
        high: value * margin.exp(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(batch: u32, rate: f64) -> Throughput {
        Throughput { batch: Some(batch), rate }
    }

    #[test]
    fn the_own_ratio_of_the_nearest_batch_size_replaces_the_bandwidths() {
        let here = [run(16, 10.0), run(32, 8.0), run(64, 5.0), run(32, f64::NAN)];
        let of = |there: &[Throughput]| rate(Some(32), &here, there, 1.5, &Margins::default()).unwrap();
        assert_eq!(of(&[]).value, 12.0);
        let own = of(&[run(16, 30.0), run(64, 10.0), run(8, 99.0)]);
        assert!(own.value == 24.0 || own.value == 16.0, "{own:?}");
        assert_eq!(of(&[run(8, 99.0), run(64, 10.0)]).value, 16.0);
        assert!(own.high / own.low < of(&[]).high / of(&[]).low);
        // What ran there at this batch size is the answer itself.
        assert_eq!(of(&[run(32, 9.0), run(16, 30.0)]).value, 9.0);
    }

    #[test]
    fn without_a_run_here_nothing_is_estimated() {
        let margins = Margins::default();
        assert_eq!(rate(Some(8), &[run(16, 1.0)], &[], 2.0, &margins), None);
        assert_eq!(rate(Some(8), &[run(8, 0.0)], &[], 2.0, &margins), None);
        assert_eq!(rate(Some(8), &[run(8, 1.0)], &[], f64::INFINITY, &margins), None);
        let unknown = Throughput { batch: None, rate: 3.0 };
        assert_eq!(rate(None, &[unknown], &[run(8, 5.0)], 2.0, &margins).unwrap().value, 6.0);
    }
}
