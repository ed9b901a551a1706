//! A program's speed at a part of a GPU's multiprocessors (under MPS), as it was measured.
//!
//! Without such a curve there is no share to choose: chosen blindly, shares gain about 1 % in sum and hurt the slower job
//! (KACE's data: its speed falls from .545 to .499).

/// Speeds by per cent of the multiprocessors.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareCurve {
    /// Per cent and speed against all of them, by per cent; the last is 100 and 1.
    points: Vec<(u8, f64)>,
}

impl ShareCurve {
    /// The speed that a program is to keep at the part that it is given.
    pub const KEPT: f64 = 0.95;

    /// From rates (launches or steps in a second) at per cents; `None` without a rate at 100 and at one part at least.
    #[must_use]
    pub fn of_rates(rates: &[(u8, f64)]) -> Option<Self> {
        let whole = rates.iter().find(|(percent, _)| *percent == 100)?.1;
        let valid =
            |(percent, rate): &&(u8, f64)| (1..=100).contains(percent) && rate.is_finite() && *rate >= 0.0;
        if !whole.is_finite() || whole <= 0.0 || rates.iter().filter(valid).count() != rates.len() {
            return None;
        }
        let mut points: Vec<(u8, f64)> = rates.iter().map(|(at, rate)| (*at, rate / whole)).collect();
        points.sort_by_key(|(percent, _)| *percent);
        points.dedup_by_key(|(percent, _)| *percent);
        (points.len() > 1).then_some(Self { points })
    }

    /// The speed at a part, between those that were measured; `None` below the smallest.
    #[must_use]
    pub fn speed(&self, percent: u8) -> Option<f64> {
        let above = self.points.iter().position(|(at, _)| *at >= percent)?;
        let (to, high) = self.points[above];
        if to == percent {
            return Some(high);
        }
        let (from, low) = *self.points.get(above.checked_sub(1)?)?;
        Some(low + (high - low) * f64::from(percent - from) / f64::from(to - from))
    }

    /// The smallest part that was measured and at which, and above which, the program keeps this speed; `None`: only all.
    #[must_use]
    pub fn enough(&self, keep: f64) -> Option<u8> {
        let enough = self.points.iter().rev().take_while(|(_, speed)| *speed >= keep);
        enough.last().map(|(percent, _)| *percent).filter(|percent| *percent < 100)
    }

    /// The parts and speeds that were measured.
    #[must_use]
    pub fn points(&self) -> &[(u8, f64)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_part_that_is_enough_was_measured_and_so_was_all_above() {
        let curve = ShareCurve::of_rates(&[(100, 200.0), (25, 120.0), (50, 196.0), (75, 201.0)]).unwrap();
        assert_eq!(curve.enough(0.95), Some(50));
        assert_eq!(curve.enough(0.5), Some(25));
        assert_eq!(curve.speed(50), Some(0.98));
        assert!((curve.speed(37).unwrap() - (0.6 + 0.38 * 12.0 / 25.0)).abs() < 1e-9);
        assert_eq!(curve.speed(10), None, "below what was measured");
        let dip = ShareCurve::of_rates(&[(100, 100.0), (50, 90.0), (25, 99.0)]).unwrap();
        assert_eq!(dip.enough(0.95), None, "a part is not enough where a larger one was not");
        let flat = ShareCurve::of_rates(&[(100, 100.0), (10, 100.0)]).unwrap();
        assert_eq!(flat.enough(0.95), Some(10));
    }

    #[test]
    fn without_a_rate_at_all_or_at_a_part_there_is_no_curve() {
        for rates in [
            &[][..],
            &[(50, 1.0)],
            &[(100, 1.0)],
            &[(100, 0.0), (50, 1.0)],
            &[(100, 1.0), (0, 1.0)],
            &[(100, f64::NAN), (50, 1.0)],
            &[(100, 1.0), (50, -1.0)],
        ] {
            assert_eq!(ShareCurve::of_rates(rates), None, "{rates:?}");
        }
    }
}
