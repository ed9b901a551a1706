//! Jobs with targets: observed once a window, reported to the scheduler, whose budgets are applied at once.
//!
//! So a job beside one with a target gives way at the latest a window, a period of launch slots and its launches in
//! flight after the first step that took too long.

use std::time::Duration;

use radrm_scheduler_core::{
    Event, JobId, LatencyTarget, Objective, Permille, Phase, TargetObservation, Unseen,
};

use super::Engine;
use super::programs::program_of;
use super::target_watches::Targets;
use super::timers::Timer;
use crate::pace::Company;
use crate::store::Entry;

/// Observation to make of a job.
struct Due {
    job: u64,
    uid: u32,
    latency: Option<LatencyTarget>,
    /// Its launches in a second alone, where its speed counts.
    speed: Option<Option<f64>>,
}

impl Engine {
    /// Returns true if any job is to be observed.
    pub(super) fn has_targets(&self) -> bool {
        self.jobs.lives().keys().any(|job| self.jobs.entry(*job).is_some_and(|entry| self.is_observed(entry)))
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
            if !self.targets.is_empty() {
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
        self.targets.keep_only(|job| due.iter().any(|due| due.job == job));
        for Due { job, uid, latency, speed } in due {
            let Some(live) = self.jobs.live_mut(job) else { continue };
            live.observed.find_segment(live.program, &*self.effects);
            let watch = self.targets.watch(job);
            let mut seen = TargetObservation::default();
            if let Some(target) = &latency {
                let segment = live.observed.segment();
                let read = |time| watch.latency(segment, target, window, time);
                // One whose user's segments take too long has no steps that are seen: others are not held back for it.
                match self.read_times.read(uid, self.now.mono, read).unwrap_or(Err(Unseen::NoSteps)) {
                    Ok(steps) => {
                        (seen.latency_ns, seen.under_way) = (Some(steps.latency_ns), steps.under_way);
                    }
                    Err(unseen) => seen.unseen = Some(unseen),
                }
            }
            let mut read = || self.read_times.read(uid, self.now.mono, |time| live.observed.launches(time));
            let launches = speed.and_then(|_| read());
            // It is read later: no sign that it has no shim.
            if speed.is_some() && launches.is_none() {
                continue;
            }
            let launches = launches.flatten();
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
                    let pace = self.jobs.live(entry.id).and_then(|live| live.observed.pace.alone());
                    pace.or_else(|| self.companies.alone_rate(program_of(entry).1))
                };
                let speed = (fair || target.speed.is_some()).then(alone);
                Due {
                    job: entry.id,
                    uid: entry.uid,
                    latency: target.latency.clone().filter(|_| !fair),
                    speed,
                }
            })
            .collect()
    }
}
