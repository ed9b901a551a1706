//! Report of a replay: the thesis's metrics.

use radrm_base::student::P95;
use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::events::Entry;
use super::trace::TraceJob;
use crate::action::Action;
use crate::device::DeviceId;
use crate::reason::Reason;
use crate::units::Millis;

/// Result of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// Submission time.
    pub arrival: Millis,
    /// Start of its first attempt.
    pub start: Option<Millis>,
    /// End of the job.
    pub end: Option<Millis>,
    /// Time of all attempts.
    pub ran: Millis,
    /// Number of attempts.
    pub attempts: u32,
    /// Attempts among them that ran out of memory.
    pub ooms: u32,
    /// Attempts among these that other jobs harmed.
    /// Such an attempt requested no more than what was reserved for the job: other jobs held it.
    #[serde(default)]
    pub harmed: u32,
    /// It ended well.
    pub success: bool,
}

impl JobResult {
    pub(crate) fn new(job: &TraceJob) -> Self {
        Self {
            arrival: job.arrival,
            start: None,
            end: None,
            ran: Millis::ZERO,
            attempts: 0,
            ooms: 0,
            harmed: 0,
            success: false,
        }
    }

    /// Returns true if it got devices, or ran on the host.
    #[must_use]
    pub fn has_run(&self) -> bool {
        self.start.is_some()
    }

    /// From submission to end.
    #[must_use]
    pub fn completion(&self) -> Millis {
        self.end.map_or(Millis::ZERO, |end| end.minus(self.arrival))
    }

    /// The part of it in which nothing of the job ran.
    #[must_use]
    pub fn waited(&self) -> Millis {
        self.completion().minus(self.ran)
    }
}

/// A job on a device for some time: a bar of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// The job's index in the trace.
    pub job: u32,
    /// The device's index.
    pub device: u32,
    /// Since when.
    pub from: Millis,
    /// Until when.
    pub to: Millis,
    /// The attempt failed.
    pub failed: bool,
}

/// A decision on the job that is followed, or a new reason that it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// Time of the decision.
    pub at: Millis,
    /// The decision; `None`: it waits.
    pub action: Option<Action>,
    /// Reason for that.
    pub reason: Reason,
}

/// A whole replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// From the first arrival to the last end.
    pub makespan: Millis,
    /// Each job, in the trace's order.
    pub jobs: Vec<JobResult>,
    /// Mean SM activity of a GPU, 0 to 1.
    pub smact: f64,
    /// Mean memory in use on a GPU, in bytes.
    pub memory: f64,
    /// Energy of all GPUs, in J.
    pub energy: f64,
    /// Mean power of a GPU, in W.
    pub watts: f64,
    /// Time spans of jobs on devices, if they were requested.
    pub bars: Vec<Bar>,
    /// Figures of all devices over time, if bars were requested.
    #[serde(default)]
    pub curve: Curve,
    /// The devices that bars count.
    pub devices: Vec<DeviceId>,
    /// All events and decisions, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Entry>,
    /// Decisions on the job that was followed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed: Vec<Followed>,
}

/// The figures that are compared. Times in s; means and percentile are of the jobs that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// From the first arrival to the last end.
    pub makespan_s: f64,
    /// Mean time from submission to end.
    pub jct_mean_s: f64,
    /// Its 95th percentile.
    pub jct_p95_s: f64,
    /// Mean time in which nothing of a job ran.
    pub wait_mean_s: f64,
    /// Mean time of all attempts of a job.
    pub exec_mean_s: f64,
    /// Attempts that ran out of memory.
    pub ooms: f64,
    /// Attempts among these that other jobs harmed.
    /// Such an attempt requested no more than what was reserved for its job: other jobs held it.
    pub harmed: f64,
    /// Jobs that did not end well.
    pub failed: f64,
    /// Jobs among these that never ran.
    #[serde(default)]
    pub never_ran: f64,
    /// Mean SM activity.
    pub smact: f64,
    /// Mean memory in use on a GPU, in GiB.
    pub memory_gib: f64,
    /// Mean power of a GPU.
    pub watts: f64,
    /// Energy of all GPUs.
    pub energy_mj: f64,
}

impl Report {
    /// The figures that are compared.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        // A job that no device could hold has no times: as 0 s it would make every mean look better.
        let ran = || self.jobs.iter().filter(|job| job.has_run());
        let n = ran().count().max(1) as f64;
        let mean = |of: fn(&JobResult) -> Millis| ran().map(|job| of(job).as_secs_f64()).sum::<f64>() / n;
        let mut all: Vec<Millis> = ran().map(JobResult::completion).collect();
        all.sort_unstable();
        // The nearest rank.
        let p95 = (all.len() * 95).div_ceil(100).checked_sub(1).and_then(|at| all.get(at)).copied();
        Metrics {
            makespan_s: self.makespan.as_secs_f64(),
            jct_mean_s: mean(JobResult::completion),
            jct_p95_s: p95.unwrap_or_default().as_secs_f64(),
            wait_mean_s: mean(JobResult::waited),
            exec_mean_s: mean(|job| job.ran),
            ooms: self.jobs.iter().map(|job| f64::from(job.ooms)).sum(),
            harmed: self.jobs.iter().map(|job| f64::from(job.harmed)).sum(),
            failed: self.jobs.iter().filter(|job| !job.success).count() as f64,
            never_ran: self.jobs.iter().filter(|job| !job.has_run()).count() as f64,
            smact: self.smact,
            memory_gib: self.memory / f64::from(1 << 30),
            watts: self.watts,
            energy_mj: self.energy / 1e6,
        }
    }
}

/// Mean and half the width of its 95 % interval (Student's t).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width; 0 for one value.
    pub half: f64,
}

impl Interval {
    /// Of values of independent replays.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        if n == 0 {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        if n == 1 {
            return Self { mean, half: 0.0 };
        }
        let variance =
            values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (n - 1) as f64;
        Self { mean, half: P95.t((n - 1) as f64) * (variance / n as f64).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_the_jobs_that_ran() {
        let hour = Millis::from_mins(60);
        let job = |start: Option<Millis>, success| JobResult {
            arrival: Millis::ZERO,
            start,
            end: Some(start.map_or(Millis::ZERO, |start| start.plus(hour))),
            ran: start.map_or(Millis::ZERO, |_| hour),
            attempts: u32::from(start.is_some()),
            ooms: 0,
            harmed: 0,
            success,
        };
        let jobs = vec![job(None, false), job(Some(Millis::ZERO), true), job(Some(Millis::ZERO), true)];
        let report = Report {
            makespan: hour,
            jobs,
            smact: 0.0,
            memory: 0.0,
            energy: 0.0,
            watts: 0.0,
            bars: Vec::new(),
            curve: Curve::default(),
            devices: Vec::new(),
            steps: Vec::new(),
            followed: Vec::new(),
        };
        let of = report.metrics();
        assert_eq!(
            (of.jct_mean_s, of.exec_mean_s, of.wait_mean_s, of.jct_p95_s),
            (3600.0, 3600.0, 0.0, 3600.0)
        );
        assert_eq!((of.failed, of.never_ran), (1.0, 1.0));
    }

    #[test]
    fn an_interval_is_students() {
        let interval = Interval::of(&[1.0, 2.0, 3.0]);
        assert_eq!(interval.mean, 2.0);
        assert!((interval.half - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(Interval::of(&[5.0]), Interval { mean: 5.0, half: 0.0 });
    }
}
