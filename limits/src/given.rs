//! Limits that radrmd or Slurm's plug-in gave a job when they started it.
//!
//! They are in the command line of the job's launcher; the segment, which the job's user can write, is no proof of them.

use radrm_os::Process;
use radrm_telemetry::ledger::Limit;

use crate::LimitError;
use crate::jobs::Job;
use crate::requested::RequestedLimits;
use crate::resolve::{Gpus, fenced, resolve, stricter};

/// Limits that a job was given by another than its user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// `radrmd` or `Slurm's plug-in`.
    pub by: &'static str,
    /// Its GPUs, with nothing of any other.
    own: Option<RequestedLimits>,
    /// Its limits; the strictest holds.
    limits: Vec<RequestedLimits>,
}

impl Given {
    /// Limits that a job was given; `None` where its user started it.
    #[must_use]
    pub fn of(job: &Job) -> Option<Self> {
        let launcher = job.launched.then_some(Process(job.launcher))?;
        Self::read(&launcher.arguments())
    }

    fn read(arguments: &[String]) -> Option<Self> {
        // Behind this are the program's own words.
        let words: Vec<&str> =
            arguments.iter().map(String::as_str).take_while(|word| *word != "--").collect();
        let own = values(&words, "--only-gpus").first().and_then(|list| RequestedLimits::only_on(list).ok());
        let by = if words.contains(&"--supervised") {
            "radrmd"
        } else if !values(&words, "--step-of").is_empty() {
            "Slurm's plug-in"
        } else {
            return None;
        };
        let options = ["--mem-limit", "--job-limit", "--step-limit"];
        let limits = options.iter().flat_map(|option| values(&words, option));
        Some(Self { by, own, limits: limits.filter_map(|text| RequestedLimits::parse(text).ok()).collect() })
    }

    /// The most that each GPU may give the job.
    ///
    /// # Errors
    /// A GPU cannot be found, or two limits cannot be compared.
    pub fn most(&self, gpus: &Gpus<'_>) -> Result<Vec<Limit>, LimitError> {
        let mut most = Vec::new();
        for limits in &self.limits {
            most = stricter(&most, &resolve(limits, gpus)?, gpus)?;
        }
        match self.fence(gpus)? {
            Some(fence) => fenced(&most, &fence, gpus),
            None => Ok(most),
        }
    }

    /// A change of its limits, in which an amount without a GPU is for the GPUs that it was given.
    ///
    /// # Errors
    /// A GPU cannot be found.
    pub fn on_own(&self, change: &[Limit], gpus: &Gpus<'_>) -> Result<Vec<Limit>, LimitError> {
        Ok(self.fence(gpus)?.map_or_else(|| change.to_vec(), |fence| on_own(change, &fence)))
    }

    fn fence(&self, gpus: &Gpus<'_>) -> Result<Option<Vec<Limit>>, LimitError> {
        let Some(own) = &self.own else { return Ok(None) };
        // Whole identifiers need no NVML.
        own.without_lookup().map_or_else(|| resolve(own, gpus), Ok).map(Some)
    }
}

/// Values of an option, as `OPTION VALUE` or `OPTION=VALUE`.
fn values<'w>(words: &[&'w str], option: &str) -> Vec<&'w str> {
    let follows = |(at, word): (usize, &'w str)| match word.strip_prefix(option)? {
        "" => words.get(at + 1).copied(),
        rest => rest.strip_prefix('='),
    };
    words.iter().copied().enumerate().filter_map(follows).collect()
}

fn on_own(change: &[Limit], fence: &[Limit]) -> Vec<Limit> {
    let named: Vec<Limit> = change.iter().filter(|limit| limit.gpu.is_some()).copied().collect();
    let Some(general) = change.iter().find(|limit| limit.gpu.is_none()) else { return named };
    let own = fence.iter().filter(|limit| limit.gpu.is_some());
    let rest = own.filter(|limit| named.iter().all(|other| other.gpu != limit.gpu));
    let rest: Vec<Limit> = rest.map(|limit| Limit { amount: general.amount, ..*limit }).collect();
    [named, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::ledger::Amount;

    const UUID: &str = "GPU-aaaa0000-0000-0000-0000-000000000000";

    fn given(line: &str) -> Option<Given> {
        Given::read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn no_gpus() -> Result<radrm_os::nvml::Inventory, LimitError> {
        Err(LimitError::NoLimit)
    }

    #[test]
    fn an_amount_without_a_gpu_is_for_the_gpus_of_the_job_alone() {
        let change = [Limit { gpu: None, amount: Amount::Bytes(30) }];
        let one = given(&format!("radrm-run --supervised --only-gpus {UUID} -- p")).unwrap();
        let changed = one.on_own(&change, &no_gpus).unwrap();
        assert_eq!(changed.len(), 1);
        assert!(changed[0].gpu.is_some() && changed[0].amount == Amount::Bytes(30), "{changed:?}");
        let none = given("radrm-run --supervised --only-gpus none -- p").unwrap();
        assert_eq!(none.on_own(&change, &no_gpus).unwrap(), []);
    }

    #[test]
    fn a_job_may_have_what_its_launcher_was_told_and_nothing_of_other_gpus() {
        let line =
            format!("radrm-run --supervised --only-gpus {UUID} --mem-limit 1024B -- p --mem-limit 9GiB");
        let most = given(&line).unwrap().most(&no_gpus).unwrap();
        let amounts: Vec<_> = most.iter().map(|limit| (limit.gpu.is_some(), limit.amount)).collect();
        assert_eq!(amounts, [(true, Amount::Bytes(1024)), (false, Amount::Bytes(0))]);
        let step = given("radrm-run --attend --step-of=7 --step-limit 2GiB --job-limit=3GiB -- p").unwrap();
        assert_eq!(step.by, "Slurm's plug-in");
        let most = step.most(&no_gpus).unwrap();
        assert_eq!(most, [Limit { gpu: None, amount: Amount::Bytes(2 << 30) }]);
    }

    #[test]
    fn a_job_that_its_user_started_was_given_nothing() {
        assert_eq!(given("radrm-run --mem-limit 1GiB -- p --supervised"), None);
    }
}
