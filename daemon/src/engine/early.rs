//! First optimizer steps of running jobs: what a job holds after them bounds what it will need.
//!
//! Steps are read from the segment, where the program or the hooks of PyTorch's optimizers mark them. The scheduler lowers what
//! it reserves only if the user states fixed shapes, or if earlier runs of the program took no more later. A job's word
//! counts for its own reservation alone: its neighbours' stay what they are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use radrm_collector::dataset::{FirstSteps as Kept, PastCourse};
use radrm_scheduler_core::early::{self, Course, FirstSteps};
use radrm_scheduler_core::{Bytes, Event, JobId};
use radrm_telemetry::Liveness;

use super::Engine;
use super::job_poller::Observed;
use super::needs::program;

/// Longest wait for contexts where GPUs are not polled.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Observed steps of a job.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Number of steps that it has made.
    made: u32,
    /// Time at which enough of them were seen. Contexts are known from a poll of the GPUs that began later.
    since: Option<Instant>,
    /// Courses of earlier runs of its program, once they were read.
    earlier: Option<Vec<Course>>,
    reported: Reported,
    /// Memory that the job held after the first of them.
    pub(super) first: Option<Kept>,
}

/// Report on a job's steps that the scheduler has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reported {
    #[default]
    Nothing,
    /// Only that they were made: nothing says what follows.
    Made,
    /// Also why no more memory is to follow.
    Fixed,
}

impl Steps {
    /// Returns true if the step that bounds it is near: the job is polled often until then.
    pub(super) fn is_near(&self) -> bool {
        self.made > 0 && self.reported == Reported::Nothing
    }

    /// Returns true if what the job holds is read with its contexts: by a poll of the GPUs that began after its
    /// steps, or without one where none comes.
    fn is_settled(&mut self, polled: Option<Instant>, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        polled.is_some_and(|begun| begun >= since) || now - since > MAX_WAIT
    }

    /// Forgets what was reported: it does not hold any more.
    pub(super) fn forget(&mut self) {
        self.reported = Reported::Nothing;
    }
}

impl Observed {
    /// Steps that each process has made that holds memory of a GPU: the fewest, as one that has not begun may take more.
    fn steps(&self) -> u32 {
        let Some(segment) = self.segment() else { return 0 };
        let slots = segment.slots().unwrap_or_default().into_iter().filter(|slot| {
            slot.liveness == Liveness::Running && segment.totals(slot).is_ok_and(|totals| !totals.is_empty())
        });
        let made = slots.map(|slot| {
            let ranges = segment.ranges(&slot).ok().flatten();
            ranges.as_ref().and_then(radrm_collector::steps).map_or(0, |(_, count)| count)
        });
        u32::try_from(made.min().unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// The most that the job has held on one GPU, contexts included, bytes. Of several processes there the sum of their peaks.
    fn highest(&self) -> u64 {
        let Some(segment) = self.segment() else { return self.peak };
        let gpus = segment.gpus().unwrap_or_default();
        let mut sums: BTreeMap<[u8; 16], u64> = BTreeMap::new();
        let processes = segment.processes().unwrap_or_default();
        for process in processes.iter().filter(|process| process.slot.liveness == Liveness::Running) {
            for account in &process.accounts {
                if let Some(gpu) = gpus.iter().find(|gpu| gpu.index == account.gpu) {
                    *sums.entry(gpu.uuid).or_default() += account.peak.total;
                }
            }
            let contexts = segment.overheads().unwrap_or_default();
            for context in contexts.iter().filter(|context| context.pid == process.slot.own_pid) {
                *sums.entry(context.uuid).or_default() += context.bytes;
            }
        }
        sums.into_values().max().unwrap_or(0).max(self.peak)
    }
}

impl Engine {
    /// Reads a job's steps until all that follows from them is reported.
    pub(super) fn observe_steps(&mut self, job: u64) {
        let Some(live) = self.jobs.live.get_mut(&job) else { return };
        if live.observed.steps.reported == Reported::Fixed {
            return;
        }
        let made = live.observed.steps();
        live.observed.steps.made = made;
        if made < early::STEP {
            return;
        }
        if !live.observed.steps.is_settled(self.node.polled, self.now.mono) {
            return;
        }
        let held = live.observed.highest();
        live.observed.steps.first.get_or_insert(Kept { steps: made, held_bytes: held });
        let (reported, asked) = (live.observed.steps.reported, live.observed.steps.earlier.is_some());
        let Some(entry) = self.jobs.entries.get(&job) else { return };
        let earlier = (!asked).then(|| {
            let model = self.node.model(entry);
            let past = self.outbox.past_courses(entry.uid, &program(&entry.spec), &model);
            let of = |past: &PastCourse| Course {
                steps: past.first.steps,
                early: past.first.held_bytes,
                last: past.peak.0,
            };
            past.iter().map(of).collect::<Vec<_>>()
        });
        let (attempt, stated) = (entry.attempt, entry.spec.fixed_shapes);
        let Some(live) = self.jobs.live.get_mut(&job) else { return };
        let earlier = live.observed.steps.earlier.get_or_insert_with(|| earlier.unwrap_or_default());
        let fixed = early::fixed_by(made, stated, earlier);
        let grew = earlier.iter().filter(|course| course.grew()).count();
        let news = if fixed.is_some() { Reported::Fixed } else { Reported::Made };
        if news == reported {
            return;
        }
        live.observed.steps.reported = news;
        let first = FirstSteps { steps: made, held: Bytes(held), fixed };
        self.step(Event::StepsObserved { job: JobId(job), attempt, first });
        if fixed.is_none() {
            self.remark(job, kept(made, Bytes(held), grew));
        }
    }
}

/// Reason that the reservation stays as it is.
fn kept(steps: u32, held: Bytes, grew: usize) -> String {
    let why = match grew {
        0 => "no earlier run of its program shows what follows, and no fixed shapes are stated (--fixed-shapes)".to_owned(),
        1 => "an earlier run of its program took more later".to_owned(),
        runs => format!("{runs} earlier runs of its program took more later"),
    };
    format!("held {held} on a GPU after {steps} optimizer steps; its reservation stays: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_that_stays_has_a_reason() {
        let text = |grew| kept(3, Bytes(5 << 30), grew);
        assert!(text(0).contains("after 3 optimizer steps") && text(0).contains("--fixed-shapes"));
        assert!(
            text(1).contains("an earlier run of its program took more") && text(2).contains("2 earlier runs")
        );
    }

    #[test]
    fn a_job_is_polled_often_until_its_steps_are_reported() {
        let near = |made, reported| Steps { made, reported, ..Steps::default() }.is_near();
        assert_eq!([0, 1, 3].map(|made| near(made, Reported::Nothing)), [false, true, true]);
        assert!(!near(3, Reported::Made) && !near(3, Reported::Fixed));
    }

    /// Without its contexts a job seems to grow, and its bound is too low at once.
    #[test]
    fn what_a_job_holds_is_read_after_a_poll_that_began_later() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut steps = Steps::default();
        assert!(!steps.is_settled(Some(at(0)), at(100)), "that poll began before");
        assert!(!steps.is_settled(Some(at(99)), at(200)));
        assert!(steps.is_settled(Some(at(100)), at(200)));
        let mut without = Steps::default();
        assert!(!without.is_settled(None, at(0)) && !without.is_settled(None, at(10_000)));
        assert!(without.is_settled(None, at(10_001)));
    }
}
