//! Speed of a job beside others: what it launches in a second, against what it did alone.
//!
//! Programs have phases, so neither figure is one second's: both are medians of several polls. What a job did
//! alone is known once it has been alone on its GPUs for a while; until then nothing is said of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use radrm_scheduler_core::Permille;

/// A shorter time between two polls shows little.
const MIN_INTERVAL: Duration = Duration::from_millis(900);
/// Polls before anything is reported.
const MIN_POLLS: usize = 5;
/// Polls that count, the latest.
const MAX_POLLS: usize = 31;
/// A change that is smaller is not worth telling.
const MIN_CHANGE: u32 = 50;

/// The company that a job has on its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// None.
    Alone,
    /// Others run there.
    Others,
    /// Its own launches are held back: its rate says nothing of others.
    HeldBack,
}

/// Observed launch rates of one job.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    last: Option<(Instant, u64, Company)>,
    alone: VecDeque<f64>,
    beside: VecDeque<f64>,
    reported: Option<Permille>,
}

impl Pace {
    /// Launches in a second while it was alone, once they are known.
    pub(crate) fn alone(&self) -> Option<f64> {
        median(&self.alone)
    }

    /// Launches in a second in its present company, once they are known.
    pub(crate) fn beside(&self) -> Option<f64> {
        median(&self.beside)
    }

    /// Others are on its GPUs than before: what it launched beside those says nothing of these.
    pub(crate) fn company_changed(&mut self) {
        self.beside.clear();
    }

    /// Returns true if its rate in this company is not known yet.
    pub(crate) fn lacks(&self, company: Company) -> bool {
        match company {
            Company::Alone => self.alone.len() < MAX_POLLS,
            Company::Others => self.beside.len() < MIN_POLLS,
            Company::HeldBack => false,
        }
    }

    /// Takes note of the launches so far. Gives the job's speed against running alone where it is known and has
    /// changed since it was last reported.
    pub(crate) fn observe(&mut self, now: Instant, launches: u64, company: Company) -> Option<Permille> {
        let Some((then, before, was)) = self.last else {
            self.last = Some((now, launches, company));
            return None;
        };
        let passed = now.saturating_duration_since(then);
        if company == was && passed < MIN_INTERVAL {
            return None;
        }
        self.last = Some((now, launches, company));
        if company != was {
            self.beside.clear();
        } else if let Some(rates) = match company {
            Company::Alone => Some((&mut self.alone, MAX_POLLS)),
            Company::Others => Some((&mut self.beside, MIN_POLLS)),
            Company::HeldBack => None,
        } {
            let (rates, most) = rates;
            // A process that is gone takes its launches with it.
            rates.push_back(launches.saturating_sub(before) as f64 / passed.as_secs_f64());
            if rates.len() > most {
                rates.pop_front();
            }
        }
        let speed = match company {
            Company::Alone => Permille::WHOLE,
            Company::Others => {
                let alone = median(&self.alone).filter(|alone| *alone > 0.0)?;
                Permille::from_fraction((median(&self.beside)? / alone).min(1.0))
            }
            Company::HeldBack => return None,
        };
        let news = match self.reported {
            None => speed != Permille::WHOLE,
            Some(before) => before.0.abs_diff(speed.0) >= MIN_CHANGE,
        };
        news.then(|| *self.reported.insert(speed))
    }
}

/// The median, if there are enough for one.
fn median(rates: &VecDeque<f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = rates.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().filter(|_| sorted.len() >= MIN_POLLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that is polled once a second.
    struct Job {
        pace: Pace,
        now: Instant,
        launches: u64,
    }

    impl Job {
        fn new() -> Self {
            Self { pace: Pace::default(), now: Instant::now(), launches: 0 }
        }

        /// So many launches in each of so many seconds; what was reported.
        fn run(&mut self, seconds: u32, launches: u64, company: Company) -> Vec<u32> {
            let mut reported = Vec::new();
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                self.launches += launches;
                reported.extend(self.pace.observe(self.now, self.launches, company).map(|speed| speed.0));
            }
            reported
        }
    }

    #[test]
    fn a_job_that_launches_half_as_often_beside_others_has_half_its_speed() {
        let mut job = Job::new();
        assert_eq!(job.run(10, 1000, Company::Alone), [0u32; 0]);
        assert_eq!(job.run(10, 500, Company::Others), [500]);
        assert_eq!(job.run(10, 990, Company::Others), [990]);
        job.run(10, 300, Company::Others);
        assert_eq!(job.run(1, 1000, Company::Alone), [1000], "what was, is over");
    }

    #[test]
    fn a_job_that_was_never_alone_has_no_speed() {
        let mut job = Job::new();
        assert_eq!(job.run(50, 10, Company::Others), [0u32; 0]);
        let mut job = Job::new();
        job.run(4, 1000, Company::Alone);
        assert_eq!(job.run(50, 10, Company::Others), [0u32; 0], "four seconds are not enough");
    }

    #[test]
    fn a_second_without_launches_is_no_loss_of_speed() {
        let mut job = Job::new();
        job.run(10, 1000, Company::Alone);
        for _ in 0..20 {
            assert_eq!(job.run(3, 1000, Company::Others), [0u32; 0]);
            assert_eq!(job.run(1, 0, Company::Others), [0u32; 0]);
        }
    }

    #[test]
    fn what_a_budget_holds_back_is_no_neighbours_doing() {
        let mut job = Job::new();
        job.run(10, 1000, Company::Alone);
        assert_eq!(job.run(20, 300, Company::HeldBack), [0u32; 0]);
        assert_eq!(job.run(20, 1000, Company::Others), [0u32; 0]);
    }

    #[test]
    fn a_job_that_launches_nothing_alone_is_not_slowed() {
        let mut job = Job::new();
        job.run(10, 0, Company::Alone);
        assert_eq!(job.run(10, 0, Company::Others), [0u32; 0]);
    }
}
