//! Jobs with targets: observed once a window, reported to the scheduler, whose budgets are applied at once.
//!
//! So a job beside one with a target gives way at the latest a window, a period of launch slots and its launches in
//! flight after the first step that took too long.

use std::collections::BTreeMap;
use std::time::Duration;

use radrm_scheduler_core::{
    Event, JobId, LatencyTarget, Objective, Permille, Phase, TargetObservation, Unseen,
};

use super::Engine;
use super::sharing::program_of;
use super::timers::Timer;
use crate::latency::{Kind, StepWatch};
use crate::pace::Company;
use crate::store::Entry;

/// Readings of jobs with targets so far.
#[derive(Debug, Default)]
pub(super) struct Targets {
    watches: BTreeMap<u64, StepWatch>,
    /// The share that was last written into the history of a job that is held back.
    told: BTreeMap<u64, Permille>,
}

impl Targets {
    /// The kind of times that count for a job.
    pub(super) fn kind(&self, job: u64) -> Option<Kind> {
        self.watches.get(&job)?.kind()
    }

    /// Returns true if a job's new share belongs into its history: of one that follows windows only the first, the
    /// end, and what is half or twice as much as what was last written.
    pub(super) fn is_news(&mut self, job: u64, follows_windows: bool, share: Permille) -> bool {
        if !follows_windows {
            self.told.remove(&job);
            return true;
        }
        let is_news = self.told.get(&job).is_none_or(|told| share.0 >= 2 * told.0 || 2 * share.0 <= told.0);
        if is_news {
            self.told.insert(job, share);
        }
        is_news
    }
}

/// Observation to make of a job.
struct Due {
    job: u64,
    latency: Option<LatencyTarget>,
    /// Its launches in a second alone, where its speed counts.
    speed: Option<Option<f64>>,
}

impl Engine {
    /// Returns true if any job is to be observed.
    pub(super) fn has_targets(&self) -> bool {
        self.jobs
            .live
            .keys()
            .any(|job| self.jobs.entries.get(job).is_some_and(|entry| self.is_observed(entry)))
    }

    fn is_observed(&self, entry: &Entry) -> bool {
        let settings = &self.core.state.settings().throttle;
        settings.on
            && match settings.objective {
                Objective::Targets => !entry.spec.target.is_none(),
                Objective::MaxMin => entry.spec.gpus > 0,
            }
    }

    /// Observes the jobs with targets, where a window is over.
    pub(super) fn observe_targets(&mut self) {
        if !self.has_targets() {
            if !self.targets.watches.is_empty() {
                self.targets = Targets::default();
            }
            return;
        }
        if !self.timers.is_due(Timer::Targets, self.now.mono) {
            return;
        }
        let window = Duration::from_millis(self.core.state.settings().throttle.window.0.max(10));
        self.timers.set(Timer::Targets, self.now.mono, window);
        let due = self.due_targets();
        self.targets.watches.retain(|job, _| due.iter().any(|due| due.job == *job));
        for Due { job, latency, speed } in due {
            let Some(live) = self.jobs.live.get_mut(&job) else { continue };
            live.observed.find_segment(live.program, &*self.effects);
            let watch = self.targets.watches.entry(job).or_default();
            let mut seen = TargetObservation::default();
            if let Some(target) = &latency {
                match watch.latency(live.observed.segment(), target, window) {
                    Ok(steps) => {
                        (seen.latency_ns, seen.under_way) = (Some(steps.latency_ns), steps.under_way);
                    }
                    Err(unseen) => seen.unseen = Some(unseen),
                }
            }
            let launches = speed.and_then(|_| live.observed.launches());
            match (speed, launches) {
                (Some(Some(alone)), Some(launches)) => {
                    let speed = watch.speed(self.now.mono, launches, alone);
                    seen.speed = speed.map(Permille::from_fraction);
                }
                (Some(None), _) => seen.unseen = seen.unseen.or(Some(Unseen::NeverAlone)),
                (Some(_), None) => seen.unseen = seen.unseen.or(Some(Unseen::NoShim)),
                (None, _) => {}
            }
            self.step(Event::TargetObserved { job: JobId(job), seen });
        }
        self.assign_slots();
    }

    fn due_targets(&self) -> Vec<Due> {
        let running = self.jobs.on_gpus();
        let fair = self.core.state.settings().throttle.objective == Objective::MaxMin;
        let observed = running.iter().filter(|entry| {
            let phase = self.core.state.job(JobId(entry.id)).map(|view| view.phase);
            self.is_observed(entry) && phase == Some(Phase::Running)
        });
        // Without company there is no job to hold back, and its speed is what it is.
        let with_company = observed.filter(|entry| !fair || self.company(entry, &running) != Company::Alone);
        with_company
            .map(|entry| {
                let target = &entry.spec.target;
                let alone = || {
                    let pace = self.jobs.live.get(&entry.id).and_then(|live| live.observed.pace.alone());
                    pace.or_else(|| self.companies.alone_rate(program_of(entry).1))
                };
                let speed = (fair || target.speed.is_some()).then(alone);
                Due { job: entry.id, latency: target.latency.clone().filter(|_| !fair), speed }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_moves_with_every_window_is_told_when_it_is_half_or_twice() {
        let mut targets = Targets::default();
        let told: Vec<u32> = [200, 250, 300, 390, 400, 350, 210, 200, 1000]
            .into_iter()
            .filter(|share| targets.is_news(1, true, Permille(*share)))
            .collect();
        assert_eq!(told, [200, 400, 200, 1000]);
        assert!(targets.is_news(1, false, Permille(1000)), "the end");
        assert!(targets.is_news(1, true, Permille(1000)), "begins anew");
    }
}
