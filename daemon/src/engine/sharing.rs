//! Slowdown of jobs on one GPU by each other: launch rates alone and beside others, for the scheduler and the
//! dataset.
//!
//! Each company of jobs on a GPU is reported once, when the rates of all of them are known. A job that was never alone
//! here has the rate of the last run of its program that was.

use std::collections::BTreeSet;

use radrm_collector::dataset::{SharedJob, Sharing};
use radrm_scheduler_core::{Activity, Event, JobId, Permille, Program, Sharer};

use super::Engine;
use super::companies::Acquaintance;
use super::outbox::Note;
use super::programs::program_of;
use crate::store::Entry;

fn event(of: &Sharing) -> Event {
    let sharer = |job: &SharedJob| {
        let part = |value: u32| Permille(value).min(Permille::WHOLE);
        let activity = Activity {
            smact: part(job.smact_permille),
            smocc: part(job.smocc_permille),
            drama: part(job.drama_permille),
        };
        let speed = Permille::from_fraction(job.speed()?);
        Some(Sharer { program: Program::named(&job.program), activity, speed })
    };
    let jobs = of.jobs.iter().map(sharer).collect::<Option<Vec<_>>>().unwrap_or_default();
    Event::SharingObserved { model: of.gpu_model.clone(), jobs }
}

impl Engine {
    /// Gives the scheduler what was observed before the daemon was started.
    pub(super) fn recall_sharing(&mut self) {
        for row in self.outbox.sharing() {
            self.companies.keep(row.jobs.iter().map(|job| (Program::named(&job.program), job.alone_per_s)));
            self.step(event(&row));
        }
    }

    /// Reports companies of jobs whose rates have become known.
    pub(super) fn observe_sharing(&mut self) {
        let running = self.jobs.on_gpus();
        let mut known = Vec::new();
        let mut changed = BTreeSet::new();
        for gpu in &self.node.gpus().list {
            let there = || running.iter().copied().filter(|entry| entry.devices.contains(&gpu.uuid));
            let jobs: BTreeSet<u64> = there().map(|entry| entry.id).collect();
            let company = self.companies.meet(&gpu.uuid, jobs.clone());
            if company == Acquaintance::New {
                changed.extend(jobs);
            } else if company == Acquaintance::Unreported
                // What jobs on SMs of their own do to each other says nothing of plain MPS.
                && !(self.is_divided && there().any(|entry| entry.spec.share.is_some()))
                && self.node.unmanaged().iter().all(|found| found.gpu != gpu.uuid)
                && let Some(jobs) = there().map(|entry| self.shared_job(entry)).collect::<Option<Vec<_>>>()
            {
                known.push((gpu.uuid.clone(), gpu.name.clone(), jobs));
            }
        }
        // What they launched in another company says nothing of this one.
        for job in changed {
            if let Some(live) = self.jobs.live_mut(job) {
                live.observed.pace.company_changed();
            }
        }
        for (uuid, gpu_model, jobs) in known {
            self.companies.was_reported(&uuid);
            self.companies.keep(jobs.iter().map(|job| (Program::named(&job.program), job.alone_per_s)));
            let unix_ns = self.now.at.0.saturating_mul(1_000_000);
            let row = Sharing { unix_ns, gpu_model, jobs, ..Sharing::default() };
            self.step(event(&row));
            self.outbox.note(Note::Sharing(Box::new(row)));
        }
    }

    /// A job in its present company; `None` until its rates and its activity alone are known.
    fn shared_job(&self, entry: &Entry) -> Option<SharedJob> {
        let pace = &self.jobs.live(entry.id)?.observed.pace;
        let view = self.core.state.job(JobId(entry.id))?;
        let usual = self.config.scheduler.assumed;
        let activity = entry.activity.map(|seen| seen.with_usual(usual)).or(view.job.activity)?;
        let (name, program) = program_of(entry);
        let alone = pace.alone().or_else(|| self.companies.alone_rate(program))?;
        Some(SharedJob {
            program: name,
            job: entry.id,
            smact_permille: activity.smact.0,
            smocc_permille: activity.smocc.0,
            drama_permille: activity.drama.0,
            alone_per_s: alone,
            beside_per_s: pace.beside()?,
        })
        .filter(|job| job.speed().is_some())
    }
}
