//! First optimizer steps of running jobs: what a job holds after them bounds what it will need.
//!
//! Steps are read from the segment, where the program or the hooks of PyTorch's optimizers mark them. The scheduler lowers what
//! it reserves only if the user states fixed shapes, or if earlier runs of the program took no more later. A job's word
//! counts for its own reservation alone: its neighbours' stay what they are.

use radrm_collector::dataset::{FirstSteps as Kept, PastCourse};
use radrm_scheduler_core::early::{self, Course, FirstSteps};
use radrm_scheduler_core::{Bytes, Event, JobId};

use super::Engine;
use super::programs::program;
use super::steps::Reported;

impl Engine {
    /// Reads a job's steps until all that follows from them is reported.
    pub(super) fn observe_steps(&mut self, job: u64) {
        let Some(uid) = self.jobs.entry(job).map(|entry| entry.uid) else { return };
        let Some(live) = self.jobs.live_mut(job) else { return };
        if live.observed.steps.reported == Reported::Fixed {
            return;
        }
        let made = self.read_times.read(uid, self.now.mono, |_| live.observed.steps());
        let Some(made) = made else { return };
        live.observed.steps.made = made;
        if made < early::STEP {
            return;
        }
        if !live.observed.steps.is_settled(self.node.polled(), self.now.mono) {
            return;
        }
        let held = self.read_times.read(uid, self.now.mono, |time| live.observed.highest(time));
        let Some(held) = held else { return };
        live.observed.steps.first.get_or_insert(Kept { steps: made, held_bytes: held });
        let (reported, asked) = (live.observed.steps.reported, live.observed.steps.earlier.is_some());
        let Some(entry) = self.jobs.entry(job) else { return };
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
        let Some(live) = self.jobs.live_mut(job) else { return };
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
}
