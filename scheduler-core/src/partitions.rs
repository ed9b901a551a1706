//! Speeds of jobs with SM partitions: each has SMs of its own, and DRAM is shared.

use crate::interference::{Activity, Constants, speeds_into};

/// Each job's SM activity is bounded by its own part, and not by a capacity of all together.
const NO_CAPACITY: f64 = 1000.0;

/// Constants of the contention formula there. SMs do not overlap, so no kernel waits for those of others; the competition for DRAM is
/// taken to be that under plain MPS. Not measured.
pub(crate) const CONSTANTS: Constants = Constants {
    latency: 0.0,
    compute: 0.0,
    memory: Constants::A100_40GB.memory,
    capacity: NO_CAPACITY,
    exponent: 6,
};

/// Part of a device that a job without a share has beside others with shares in thousandths: what these leave.
pub(crate) fn rest(shares: impl Iterator<Item = u32>) -> u32 {
    1000u32.saturating_sub(shares.sum())
}

/// Returns true if jobs with these shares can be on one device that has been divided for them: all of them have partitions, and one
/// at most has the rest. Jobs without shares alone need no partitions.
pub(crate) fn fit(shares: impl Iterator<Item = u32> + Clone) -> bool {
    let (jobs, without) = (shares.clone().count(), shares.clone().filter(|share| *share == 0).count());
    without == jobs || without == 0 || (without == 1 && rest(shares) > 0)
}

/// Speeds of jobs in partitions, each against running alone on the whole device: the part of the time in which a job uses the SMs
/// stretches as they get fewer. `shares`: in thousandths, 0 is the rest.
pub(crate) fn speeds(jobs: &[Activity], shares: &[u32], constants: &Constants, out: &mut Vec<f64>) {
    speeds_into(jobs, constants, out);
    let rest = rest(shares.iter().copied());
    for ((speed, job), share) in out.iter_mut().zip(jobs).zip(shares) {
        let part = f64::from(if *share == 0 { rest } else { *share }.clamp(1, 1000)) / 1000.0;
        let used = job.smact.fraction();
        *speed /= 1.0 - used + used / part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Permille;

    fn job(smact: u32, drama: u32) -> Activity {
        Activity { smact: Permille(smact), drama: Permille(drama), ..Activity::default() }
    }

    fn of(jobs: &[Activity], shares: &[u32]) -> Vec<f64> {
        let mut out = Vec::new();
        speeds(jobs, shares, &CONSTANTS, &mut out);
        out
    }

    #[test]
    fn a_neighbour_takes_no_sms_of_a_partition_and_some_of_its_dram() {
        let quiet = of(&[job(400, 0), job(10, 0)], &[500, 500]);
        let busy = of(&[job(400, 0), job(1000, 0)], &[500, 500]);
        assert_eq!(quiet[0], busy[0], "SMs are the job's own");
        // 0.6 of the time as before, 0.4 on half of the SMs.
        assert!((quiet[0] - 1.0 / 1.4).abs() < 1e-9, "{quiet:?}");
        let streaming = of(&[job(400, 300), job(1000, 600)], &[500, 500]);
        assert!(streaming[0] < busy[0] - 0.05, "{streaming:?}");
    }

    #[test]
    fn one_job_at_most_has_what_shares_leave() {
        let fits = |shares: &[u32]| fit(shares.iter().copied());
        for shares in [&[][..], &[0], &[0, 0, 0], &[500], &[500, 500], &[500, 0], &[250, 250, 0]] {
            assert!(fits(shares), "{shares:?}");
        }
        for shares in [&[500, 0, 0][..], &[1000, 0], &[500, 500, 0]] {
            assert!(!fits(shares), "{shares:?}");
        }
        assert_eq!(
            of(&[job(500, 0), job(500, 0)], &[750, 0])[1],
            of(&[job(500, 0), job(500, 0)], &[750, 250])[1]
        );
    }
}
