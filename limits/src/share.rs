//! A job's share of its GPUs' time: by the Multi-Process Service where that runs, else by a launch budget.
//!
//! MPS gives each process some of the multiprocessors, fixed when it starts. A launch budget gives the whole job
//! a time slice in each period, in which it has all multiprocessors; it can be changed while the job runs.

use std::path::Path;

use radrm_telemetry::Segment;
use radrm_telemetry::budget::{self, Budget};

use super::config::Percentage;
use crate::LimitError;
use crate::jobs::Job;
use crate::mps::control::{DEFAULT_PIPE, PIPE_VARIABLE};
use crate::mps::warnings::{answers, text};
use crate::program::environment::Environment;

/// Launches in flight under a budget: enough to keep a GPU busy, few enough that little goes on when the time slice is over.
const IN_FLIGHT: u16 = 64;

/// Returns true if a program with this environment would be a client of MPS.
#[must_use]
pub fn by_mps(environment: &Environment) -> bool {
    answers(Path::new(text(environment, PIPE_VARIABLE).unwrap_or(DEFAULT_PIPE)))
}

/// Sets a job's budget, or lifts it. Its time slice is put where it meets those of the other jobs on the same machine least:
/// `machine` is the file of the emulated one, `None` this computer.
pub fn set(
    segment: &Segment,
    share: Option<Percentage>,
    others: &[Job],
    machine: Option<&Path>,
) -> Result<(), LimitError> {
    let own = segment.job().map(|job| (job.launcher_pid, job.created_mono_ns)).ok();
    let others = others
        .iter()
        .filter(|job| own != job.segment.job().map(|job| (job.launcher_pid, job.created_mono_ns)).ok());
    let there = others.filter_map(|job| Some((job, job.segment.budget()?)));
    let there = there.filter(|(job, _)| job.is_on(machine));
    let taken: Vec<(u16, u16)> = there.map(|(_, budget)| (budget.phase, budget.share)).collect();
    let budget = share.filter(|share| share.0 < 100).map(|share| {
        let budget = Budget::new(permille(share), IN_FLIGHT);
        Budget { phase: budget::place(&taken, budget.share), ..budget }
    });
    segment.set_budget(budget).map_err(|error| LimitError::Share(error.to_string()))
}

fn permille(share: Percentage) -> u16 {
    u16::from(share.0) * (budget::WHOLE / 100)
}

/// Processes of a job that do not follow budgets.
#[must_use]
pub fn unheld(job: &Job) -> Vec<u32> {
    let follows = |slot| job.segment.throttled(slot).is_ok_and(|throttled| throttled.obeys);
    job.running().iter().filter(|slot| !follows(slot)).map(|slot| slot.shown_pid()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::SegmentFile;

    #[test]
    fn a_share_is_set_changed_and_lifted() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
        let segment = file.segment().unwrap();
        assert_eq!(segment.budget(), None);
        set(&segment, Some(Percentage(30)), &[], None).unwrap();
        assert_eq!(segment.budget(), Some(Budget::new(300, IN_FLIGHT)));
        set(&segment, Some(Percentage(100)), &[], None).unwrap();
        assert_eq!(segment.budget(), None, "the whole is no limit");
        set(&segment, Some(Percentage(1)), &[], None).unwrap();
        set(&segment, None, &[], None).unwrap();
        assert_eq!(segment.budget(), None);
    }
}
