//! Launch budgets: decided by the scheduler, laid out as launch slots, written into the segments.

use std::collections::{BTreeMap, BTreeSet};

use radrm_scheduler_core::{Bytes, Event, JobId, JobObservation, LaunchBudget, Permille, Reason};

use super::Engine;
use super::jobs::Live;
use crate::gates::Requests;
use crate::pace::Company;
use crate::store::{Entry, Stage};

/// Time in which a job launches under a budget, in words.
pub(super) fn budget_words(budget: Option<LaunchBudget>) -> String {
    let percent = |share: Permille| format!("{} % of the time", f64::from(share.0) / 10.0);
    match budget {
        Some(LaunchBudget { share, in_flight, between: Some(target), .. }) => {
            let share = match share {
                Permille::WHOLE => String::new(),
                share => format!(", in {}", percent(share)),
            };
            format!("launches between the requests of job {target}, at most {in_flight} at a time{share}")
        }
        Some(budget) => format!("launches in {}", percent(budget.share)),
        None => "launches at any time".to_owned(),
    }
}

impl Engine {
    /// A job's budget was decided.
    pub(super) fn budget(&mut self, job: u64, budget: Option<LaunchBudget>, reason: &Reason) {
        let devices = self.jobs.entry(job).map(|entry| entry.devices.clone()).unwrap_or_default();
        self.slots.set(job, &devices, budget);
        let follows_windows = matches!(reason, Reason::KeepsTarget { .. } | Reason::Fair { .. });
        let share = budget.map_or(Permille::WHOLE, |budget| budget.share);
        if !self.targets.is_news(job, follows_windows, share) {
            return;
        }
        self.remark(job, format!("{}: {reason}", budget_words(budget)));
    }

    /// Reports how fast jobs are that others may be slowed for.
    pub(super) fn measure_paces(&mut self) {
        let running = self.jobs.on_gpus();
        // No job is slowed for one of the usual priority that has none below it: its rates are read until they are known.
        let least = running.iter().map(|entry| entry.spec.priority).min().unwrap_or_default().min(0);
        let with_company = running.iter().map(|entry| (entry, self.company(entry, &running)));
        let is_read = |(entry, company): &(&&Entry, Company)| {
            let lacks = |live: &Live| live.observed.pace.lacks(*company);
            entry.spec.priority > least || self.jobs.live(entry.id).is_some_and(lacks)
        };
        let due: Vec<(u64, u32, Company, Vec<String>)> = with_company
            .filter(is_read)
            .map(|(entry, company)| (entry.id, entry.uid, company, entry.devices.clone()))
            .collect();
        let mut seen = Vec::new();
        for (job, uid, company, devices) in due {
            let Some(live) = self.jobs.live_mut(job) else { continue };
            let observed = &mut live.observed;
            // What it holds was forgotten and not found again yet: it is not nothing.
            let is_known = !observed.used.is_empty() || observed.peak == 0;
            let read = self.read_times.read(uid, self.now.mono, |time| observed.launches(time));
            let Some(launches) = read.flatten().filter(|_| is_known) else { continue };
            let Some(speed) = observed.pace.observe(self.now.mono, launches, company) else { continue };
            seen.extend(devices.into_iter().map(|uuid| {
                let used = Bytes(observed.used.get(&uuid).copied().unwrap_or_default());
                let (peak, speed) = (Bytes(observed.peak), Some(speed));
                (job, uuid, JobObservation { used, peak, speed, ..JobObservation::default() })
            }));
        }
        for (job, uuid, seen) in seen {
            if let Some(device) = self.node.device(&uuid) {
                self.step(Event::JobObserved { job: JobId(job), device, seen });
            }
        }
    }

    /// Gives every job with a budget its launch slot, and notes which job does not use its own.
    pub(super) fn assign_slots(&mut self) {
        let runs: BTreeSet<u64> = self
            .jobs
            .lives()
            .iter()
            .filter(|(_, live)| live.program.is_some())
            .map(|(job, _)| *job)
            .collect();
        let stays = |entry: &Entry| matches!(entry.stage, Stage::Starting | Stage::Running);
        self.slots.running(&runs, |job| self.jobs.entry(job).is_some_and(stays));
        if self.slots.is_idle() {
            self.gates.set(&BTreeMap::new(), |_| None);
            return;
        }
        for (job, live) in self.jobs.lives_mut() {
            if self.slots.concerns(*job) {
                live.observed.find_segment(live.program, &*self.effects);
            }
        }
        let wanted = self.gates_wanted();
        let live = self.jobs.lives();
        let said = self.slots.apply(|job| live.get(&job)?.observed.segment());
        self.gates.set(&wanted, |job| live.get(&job)?.observed.segment());
        for (job, sentence) in said {
            self.remark(job, sentence);
        }
    }

    /// The jobs whose requests others wait for, and these others.
    fn gates_wanted(&self) -> BTreeMap<u64, (Requests, Vec<u64>)> {
        let mut wanted: BTreeMap<u64, (Requests, Vec<u64>)> = BTreeMap::new();
        for (filler, target) in self.slots.between() {
            let latency = self.jobs.entry(target).and_then(|entry| entry.spec.target.latency.clone());
            let Some((latency, kind)) = latency.zip(self.targets.kind(target)) else { continue };
            let floor = self.core.state.settings().throttle.least;
            let requests = || (Requests { target: latency, kind, floor }, Vec::new());
            wanted.entry(target).or_insert_with(requests).1.push(filler);
        }
        wanted
    }
}
