//! Estimate of a kernel's total from the times of a sample.
//!
//! Within a stratum, sample `i` has duration `d_i` and stands for `w_i` launches, one of which was timed.
//! With `W = sum w_i` and `N` launches in all:
//!
//! ```text
//! mean      m  = sum(w d) / W                       total  T = N m
//! samples   n  = W^2 / sum(w^2), as many of equal weight would say as much
//! variance  s2 = (sum(w d^2) / W - m^2) n / (n - 1)
//! var(T)       = s2 (N^2 / W^2 sum w^2 - N) + q2 N^2 / W^2 sum w^2
//! ```
//!
//! The total counts a timed launch `N w / W` times in place of once, and each of the `N - k` others not at all, with
//! `k` timed ones: `sum (N w / W - 1)^2 + N - k = N^2 / W^2 sum w^2 - N`. Launches that no sample stands for yet are part of it:
//! where few of many were timed, their mean is what is in doubt. Where every launch was timed nothing is left but the
//! resolution of the marks, `q2 = (500 ns)^2 / 12`. The half-width is Student's t for 95 % with `n - 1` degrees of freedom times
//! the root; those of a kernel's strata add as squares. What is in doubt of shares of graphs' times is added as it is.

use radrm_base::student::P95;

/// Sums of a stratum, as read from a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Launches in all.
    pub launches: u64,
    /// Times known.
    pub samples: u64,
    /// Launches that they stand for.
    pub weight: u64,
    /// Sum of the squares of those.
    pub weight_squares: u64,
    /// Sum of weight times duration, ns.
    pub ns: f64,
    /// Sum of weight times duration squared.
    pub ns_squares: f64,
    /// Part of `ns` that is in doubt.
    pub doubt_ns: f64,
    /// Part of `ns` of which the next two are known.
    pub placed_ns: f64,
    /// Sum of weight times duration times share of active multiprocessors.
    pub active_ns: f64,
    /// Sum of weight times duration times share of resident warps.
    pub resident_ns: f64,
}

/// A kernel's time on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTime {
    /// Estimate of the total over all launches, ns.
    pub total_ns: u64,
    /// Half the width of the 95 % confidence interval, ns.
    pub half_width_ns: u64,
    /// Part of the total that is a guess: launches of a size of which none was timed, or none yet.
    pub untimed_ns: u64,
    /// Launches that were timed.
    pub samples: u64,
    /// Of the launches of its stratum that was timed most, the share up to the latest that was timed, in thousandths.
    pub behind_permille: u16,
    /// Share of the multiprocessors that were active while it ran, in millionths.
    pub active_ppm: Option<u32>,
    /// Share of the warps that were resident, in millionths: four of an H200 are 473.
    pub resident_ppm: Option<u32>,
}

/// Resolution of the marks between which a launch is timed, ns.
const RESOLUTION_NS: f64 = 500.0;

/// Mean of a stratum's known times, ns.
fn mean(sums: &Sums) -> Option<f64> {
    let mean = sums.ns / sums.weight as f64;
    (sums.samples > 0 && sums.weight > 0 && mean.is_finite() && mean >= 0.0).then_some(mean)
}

/// Total and half-width of one stratum.
fn stratum(sums: &Sums, mean: f64) -> (f64, f64) {
    let (all, weight) = (sums.launches.max(sums.weight) as f64, sums.weight as f64);
    let total = all * mean;
    let quantum = RESOLUTION_NS * RESOLUTION_NS / 12.0;
    let squares = sums.weight_squares as f64;
    let counted = all * all / (weight * weight) * squares;
    let resolution = counted * quantum;
    let doubt = if sums.ns > 0.0 { total * (sums.doubt_ns / sums.ns).clamp(0.0, 1.0) } else { 0.0 };
    if sums.samples < 2 {
        // Nothing is known of the spread: as much again may be missing, or none of it be there.
        let unknown = if all > weight || weight > 1.0 { total } else { 0.0 };
        return (total, (unknown * unknown + 4.0 * resolution).sqrt() + doubt);
    }
    let n = (weight * weight / squares.max(1.0)).clamp(1.5, sums.samples as f64);
    let spread = (sums.ns_squares / weight - mean * mean).max(0.0) * n / (n - 1.0);
    let variance = spread * (counted - all).max(0.0) + resolution;
    (total, P95.t((n - 1.0).floor()) * variance.sqrt() + doubt)
}

/// A kernel's time from its strata; `None` if none of its launches was timed.
///
/// Strata without a known time are given the mean of the others, and count as unknown.
pub fn kernel(strata: &[Sums]) -> Option<KernelTime> {
    let known = || strata.iter().filter_map(|s| Some((s, mean(s)?)));
    let (ns, weight) = known()
        .fold((0.0, 0.0), |(ns, weight), (s, mean)| (ns + mean * s.weight as f64, weight + s.weight as f64));
    if weight == 0.0 {
        return None;
    }
    let parts = known().map(|(s, mean)| stratum(s, mean));
    let (timed, squares) = parts.fold((0.0, 0.0), |(sum, squares), (t, h)| (sum + t, squares + h * h));
    let guesses = strata.iter().filter(|s| mean(s).is_none()).map(|s| s.launches as f64 * ns / weight);
    let (untimed, squares) =
        guesses.fold((0.0, squares), |(sum, squares), guess| (sum + guess, squares + guess * guess));
    let sum = |part: fn(&Sums) -> f64| strata.iter().map(part).sum::<f64>();
    let placed = sum(|s| s.placed_ns);
    let ppm = |part: f64| {
        let share = part / placed;
        (placed > 0.0 && share.is_finite()).then(|| (share * 1e6).round().clamp(0.0, 1e6) as u32)
    };
    let most = strata.iter().max_by_key(|s| s.samples)?;
    let behind = most.weight as f64 / most.launches.max(most.weight) as f64;
    Some(KernelTime {
        behind_permille: (behind * 1000.0).round() as u16,
        active_ppm: ppm(sum(|s| s.active_ns)),
        resident_ppm: ppm(sum(|s| s.resident_ns)),
        total_ns: (timed + untimed) as u64,
        untimed_ns: untimed as u64,
        half_width_ns: squares.sqrt().ceil() as u64,
        samples: strata.iter().fold(0, |sum, s| sum.saturating_add(s.samples)),
    })
}

#[cfg(test)]
mod tests {
    use radrm_base::random::Rng;

    use super::*;

    fn add(sums: &mut Sums, weight: u64, ns: f64) {
        sums.samples += 1;
        sums.weight += weight;
        sums.weight_squares += weight * weight;
        sums.ns += weight as f64 * ns;
        sums.ns_squares += weight as f64 * ns * ns;
    }

    #[test]
    fn a_census_is_exact_up_to_the_resolution() {
        let mut sums = Sums::default();
        for n in 1..=100 {
            add(&mut sums, 1, f64::from(n) * 1000.0);
        }
        sums.launches = 100;
        let time = kernel(&[sums]).unwrap();
        assert_eq!((time.total_ns, time.samples, time.behind_permille), (5_050_000, 100, 1000));
        assert!(time.half_width_ns < 3_500, "{time:?}");
    }

    #[test]
    fn without_times_there_is_no_estimate() {
        assert_eq!(kernel(&[Sums { launches: 5, ..Sums::default() }]), None);
        assert_eq!(kernel(&[]), None);
    }

    #[test]
    fn one_time_of_many_launches_has_a_wide_interval() {
        let mut sums = Sums { launches: 50, ..Sums::default() };
        add(&mut sums, 1, 4_000.0);
        let time = kernel(&[sums]).unwrap();
        assert_eq!((time.total_ns, time.behind_permille), (200_000, 20));
        assert!(time.half_width_ns >= 200_000, "{time:?}");
    }

    #[test]
    fn untimed_strata_widen_the_interval() {
        let mut timed = Sums { launches: 10, ..Sums::default() };
        for _ in 0..10 {
            add(&mut timed, 1, 1_000.0);
        }
        let time = kernel(&[timed, Sums { launches: 10, ..Sums::default() }]).unwrap();
        assert_eq!((time.total_ns, time.untimed_ns), (20_000, 10_000));
        assert!(time.half_width_ns >= 10_000, "{time:?}");
    }

    #[test]
    fn damaged_sums_do_no_harm() {
        let odd = [f64::NAN, f64::INFINITY, -1.0, 0.0];
        for ns in odd {
            for ns_squares in odd {
                let sums = Sums {
                    launches: u64::MAX,
                    samples: 3,
                    weight: u64::MAX,
                    weight_squares: 1,
                    ns,
                    ns_squares,
                    doubt_ns: ns,
                    ..Sums::default()
                };
                let _ = kernel(&[sums, Sums { samples: u64::MAX, ..Sums::default() }]);
            }
        }
    }

    /// Launches drawn at random gaps, the first four always, and often no others: how often the interval holds the truth.
    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let mut rng = Rng::seeded(7);
        let mut below = |n: u64| rng.bits() % n;
        let (mut held, mut cases) = (0, 0);
        for case in 0..2000 {
            let launches = 20 + below(5000);
            let gap = if case % 8 < 4 { 1 + below(120) } else { 10_000 };
            let mut sums = Sums { launches, ..Sums::default() };
            let (mut truth, mut since, mut next) = (0.0, 0, 1);
            for n in 0..launches {
                let steps = below(1000) as f64;
                let ns = match case % 4 {
                    0 => 10_000.0,
                    1 => 5_000.0 + steps * 5.0,
                    2 => 2_000.0 * (1.0 + steps * steps / 4e5),
                    _ => {
                        if n % 7 == 0 {
                            8_000.0
                        } else {
                            5_000.0
                        }
                    }
                };
                truth += ns;
                since += 1;
                next -= 1;
                if next == 0 {
                    add(&mut sums, since, ns);
                    since = 0;
                    next = if sums.samples < 4 { 1 } else { 1 + below(2 * gap - 1) };
                }
            }
            let time = kernel(&[sums]).unwrap();
            cases += 1;
            held += u32::from((time.total_ns as f64 - truth).abs() <= time.half_width_ns as f64);
        }
        assert!(f64::from(held) >= 0.95 * f64::from(cases), "{held} of {cases}");
    }
}
