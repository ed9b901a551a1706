//! Power of a busy card, and the price in time of a power limit.

use serde::{Deserialize, Serialize};

use radrm_estimator::Error;

use crate::Card;

/// Power of busy cards: `busy` of the default limit, and speeds that fall with the power above idle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Power of GPU-bound programs as a part of the default limit: the lowest, the median, the highest that was measured.
    pub busy: [f64; 3],
    /// Power above idle grows with this power of the speed.
    pub exponent: f64,
}

/// Runs of one program on one card at several power limits.
#[derive(Clone, Debug)]
pub struct PowerCurve {
    /// The card.
    pub card: Card,
    /// Limit (W), time (s) and mean power (W) of each run.
    pub points: Vec<[f64; 3]>,
}

impl PowerCurve {
    /// The run at the highest limit.
    fn free(&self) -> Option<[f64; 3]> {
        self.points.iter().copied().max_by(|a, b| a[0].total_cmp(&b[0]))
    }

    /// Returns true if the lowest limit costs a tenth of the time: the GPU, and not the host, sets the pace.
    #[must_use]
    pub fn is_gpu_bound(&self) -> bool {
        let lowest = self.points.iter().min_by(|a, b| a[0].total_cmp(&b[0]));
        matches!((lowest, self.free()), (Some(low), Some(free)) if low[1] > 1.1 * free[1] && free[2] > low[0])
    }
}

impl Power {
    /// Power of a busy card, W: lowest, expected, highest. A limit caps each.
    #[must_use]
    pub fn watts(&self, card: &Card) -> [f64; 3] {
        let limit = card.power_limit_w.unwrap_or(card.power_w);
        self.busy.map(|part| (part * card.power_w).min(limit))
    }

    /// Factor by which the card's power limit lengthens work that keeps it busy, 1 or more.
    #[must_use]
    pub fn slowdown(&self, card: &Card) -> f64 {
        let Some(limit) = card.power_limit_w else { return 1.0 };
        slowdown(limit, self.busy[1] * card.power_w, card.idle_power_w, self.exponent)
    }

    /// Learns from runs at several limits.
    ///
    /// # Errors
    /// Fewer than five programs are GPU-bound.
    pub fn learn(curves: &[PowerCurve]) -> Result<Self, Error> {
        let curves: Vec<&PowerCurve> = curves.iter().filter(|curve| curve.is_gpu_bound()).collect();
        let mut parts: Vec<f64> =
            curves.iter().filter_map(|curve| Some(curve.free()?[2] / curve.card.power_w)).collect();
        if parts.len() < 5 {
            return Err(Error::TooFew { what: "GPU-bound programs", needed: 5, found: parts.len() });
        }
        parts.sort_unstable_by(f64::total_cmp);
        let busy = [parts[0], parts[parts.len() / 2], parts[parts.len() - 1]]
            .map(|part| (part * 1000.0).round() / 1000.0);
        let error = |exponent: f64| {
            let mut errors: Vec<f64> = curves.iter().flat_map(|curve| errors(curve, exponent)).collect();
            errors.sort_unstable_by(f64::total_cmp);
            errors.get(errors.len() / 2).copied().unwrap_or(f64::INFINITY)
        };
        let exponents = (10..=60).map(|tenth| f64::from(tenth) / 10.0);
        let exponent = exponents.min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap_or(2.0);
        Ok(Self { busy, exponent })
    }

    /// Errors of the slowdown at each limit of a program: `|predicted / measured - 1|`, its free power known.
    #[must_use]
    pub fn errors(&self, curve: &PowerCurve) -> Vec<f64> {
        errors(curve, self.exponent)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let [low, middle, high] = self.busy;
        let rising = low > 0.0 && low <= middle && middle <= high && high <= 1.5;
        if rising && (1.0..=10.0).contains(&self.exponent) {
            Ok(())
        } else {
            Err(Error::Malformed("its power is not one that a card can have".into()))
        }
    }
}

/// Slowdown of work that would take `free` watts, under a limit: power above idle falls with the speed's power.
fn slowdown(limit: f64, free: f64, idle: f64, exponent: f64) -> f64 {
    // Clocks do not fall below about a quarter of the highest.
    const MAX_SLOWDOWN: f64 = 4.0;
    if limit >= free || free <= idle {
        return 1.0;
    }
    ((free - idle) / (limit - idle).max(1e-9)).powf(1.0 / exponent).clamp(1.0, MAX_SLOWDOWN)
}

fn errors(curve: &PowerCurve, exponent: f64) -> Vec<f64> {
    let Some([highest, time, free]) = curve.free() else { return Vec::new() };
    let below = curve.points.iter().filter(|point| point[0] < highest);
    let error = |point: &[f64; 3]| {
        let predicted = slowdown(point[0], free, curve.card.idle_power_w, exponent);
        (predicted * time / point[1] - 1.0).abs()
    };
    below.map(error).collect()
}
