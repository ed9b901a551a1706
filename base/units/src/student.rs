//! Student's t: how many standard errors an interval of a mean reaches to each side.

/// Rows for 95 %: degrees of freedom, and t.
pub const P95: Table = Table(&[
    (1.0, 12.706),
    (2.0, 4.303),
    (3.0, 3.182),
    (4.0, 2.776),
    (5.0, 2.571),
    (6.0, 2.447),
    (7.0, 2.365),
    (8.0, 2.306),
    (9.0, 2.262),
    (10.0, 2.228),
    (11.0, 2.201),
    (12.0, 2.179),
    (13.0, 2.160),
    (14.0, 2.145),
    (15.0, 2.131),
    (16.0, 2.120),
    (17.0, 2.110),
    (18.0, 2.101),
    (19.0, 2.093),
    (20.0, 2.086),
    (21.0, 2.080),
    (22.0, 2.074),
    (23.0, 2.069),
    (24.0, 2.064),
    (25.0, 2.060),
    (26.0, 2.056),
    (27.0, 2.052),
    (28.0, 2.048),
    (29.0, 2.045),
    (30.0, 2.042),
    (60.0, 2.000),
    (f64::INFINITY, 1.960),
]);

/// Rows for 99 %.
pub const P99: Table = Table(&[
    (1.0, 63.657),
    (2.0, 9.925),
    (3.0, 5.841),
    (4.0, 4.604),
    (5.0, 4.032),
    (6.0, 3.707),
    (8.0, 3.355),
    (10.0, 3.169),
    (15.0, 2.947),
    (20.0, 2.845),
    (30.0, 2.750),
    (60.0, 2.660),
    (f64::INFINITY, 2.576),
]);

/// Values of t for two-sided intervals of one confidence.
#[derive(Clone, Copy, Debug)]
pub struct Table(&'static [(f64, f64)]);

impl Table {
    /// t for so many degrees of freedom, at least 1; between the rows by 1/freedom, in which it is almost a line.
    #[must_use]
    pub fn t(self, freedom: f64) -> f64 {
        let freedom = freedom.max(1.0);
        let mut last = 0.0;
        for pair in self.0.windows(2) {
            let ((low, at_low), (high, at_high)) = (pair[0], pair[1]);
            if freedom <= high {
                let part = (1.0 / low - 1.0 / freedom) / (1.0 / low - 1.0 / high);
                return at_low + (at_high - at_low) * part.clamp(0.0, 1.0);
            }
            last = at_high;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_students() {
        let near = |found: f64, t: f64, by: f64| assert!((found - t).abs() < by, "{found} for {t}");
        for (freedom, t) in
            [(1.0, 63.657), (2.0, 9.925), (7.0, 3.499), (12.0, 3.055), (40.0, 2.704), (1e9, 2.576)]
        {
            near(P99.t(freedom), t, 0.03);
        }
        for (freedom, t) in [
            (1.0, 12.706),
            (4.0, 2.776),
            (7.0, 2.365),
            (12.0, 2.179),
            (25.0, 2.060),
            (40.0, 2.021),
            (1e9, 1.960),
        ] {
            near(P95.t(freedom), t, 0.01);
        }
        assert_eq!((P99.t(0.2), P95.t(f64::INFINITY)), (63.657, 1.960));
    }
}
