//! Needs of jobs: resolved when a job is submitted, stored with it, and changed by news of its program only.

use radrm_base::PastRun;
use radrm_collector::dataset::ProgramKey;
use radrm_need::Features;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::EstimateRow;
use radrm_scheduler_core::{Bytes, Event, Job, JobId, Millis, Needs, UserId};

use super::Engine;
use crate::store::{Entry, Stage};

/// What it runs, without the batch size: equal for runs that differ in that only.
pub(super) fn program(spec: &Spec) -> ProgramKey {
    ProgramKey::of(&spec.command, &spec.cwd, spec.gpus.into())
}

/// The scheduler's view of an entry, with the needs that were resolved for it.
pub(super) fn job(entry: &Entry) -> Job {
    let job = entry.spec.job(entry.id, entry.uid, Millis(entry.submitted_ms));
    let mut job = job.needing(entry.needs.as_ref().unwrap_or(&Needs::default()));
    if let Some(group) = &mut job.together {
        group.begun = entry.first_start_ms.is_some();
    }
    Job {
        program: Some(super::sharing::program_of(entry).1),
        activity: entry.activity.or(job.activity),
        held: entry.held,
        lined_up: entry.lined_up_ms.map(Millis),
        attempts: entry.attempt,
        ooms: entry.ooms,
        floor: Bytes(entry.floor),
        ..job
    }
}

impl Engine {
    /// Resolves the needs of an entry that has none yet: it is new, or of a version that did not store them.
    pub(super) fn resolve_needs(&self, entry: &mut Entry) {
        if entry.needs.is_none() {
            entry.needs = Some(self.needs_of(entry));
        }
    }

    /// The needs of a user's job, by what it states and by earlier runs of its program on the model that it asks for, or
    /// else on the only one there is.
    fn resolve(&self, uid: u32, spec: &Spec) -> Needs {
        self.resolver.resolve(&self.features(uid, spec, &self.past_runs(uid, spec)))
    }

    /// Those runs.
    fn past_runs(&self, uid: u32, spec: &Spec) -> Vec<PastRun> {
        let model = self.model_of(spec);
        model.map_or_else(Vec::new, |model| self.outbox.past_runs(uid, &program(spec), &model))
    }

    fn features<'a>(&'a self, uid: u32, spec: &'a Spec, runs: &'a [PastRun]) -> Features<'a> {
        let (user, calibration) = (Some(UserId(uid)), Some(&self.calibration));
        Features { user, calibration, ..spec.features(runs) }
    }

    /// What a submission of this job would be given now, and what each estimator says.
    pub(super) fn estimate_of(&self, uid: u32, spec: &Spec) -> EstimateRow {
        let runs = self.past_runs(uid, spec);
        let features = self.features(uid, spec, &runs);
        EstimateRow {
            needs: self.resolver.resolve(&features),
            answers: self.resolver.answers(&features),
            runs: u32::try_from(runs.len()).unwrap_or(u32::MAX),
            model: self.model_of(spec),
            emulated: self.node.gpus.emulated.clone(),
        }
    }

    pub(super) fn needs_of(&self, entry: &Entry) -> Needs {
        self.resolve(entry.uid, &entry.spec)
    }

    fn model_of(&self, spec: &Spec) -> Option<String> {
        if spec.model.is_some() {
            return spec.model.clone();
        }
        let mut usable = self.node.gpus.list.iter().filter(|gpu| !gpu.divided);
        let first = usable.next().map(|gpu| gpu.name.clone()).unwrap_or_default();
        usable.all(|gpu| gpu.name == first).then_some(first)
    }

    /// Waiting jobs that are the same program as one that just ended, and for the model of GPU on which it ran, learn
    /// from its run.
    pub(super) fn update_waiting(&mut self, ended: &Entry) {
        let (uid, gpus) = (ended.uid, ended.spec.gpus);
        let (key, model) = (program(&ended.spec), self.node.model(ended));
        let equal = self.jobs.entries.values().filter(|entry| {
            entry.stage == Stage::Waiting
                && entry.id != ended.id
                && entry.uid == uid
                && entry.spec.gpus == gpus
                && entry.spec.command.first() == ended.spec.command.first()
                && self.model_of(&entry.spec).as_ref() == Some(&model)
                && program(&entry.spec) == key
        });
        let news: Vec<(u64, Needs)> = equal.map(|entry| (entry.id, self.needs_of(entry))).collect();
        for (id, needs) in news {
            self.learn(id, needs);
        }
    }

    pub(super) fn learn(&mut self, id: u64, needs: Needs) {
        let Some(entry) = self.jobs.entries.get_mut(&id) else { return };
        let Some(before) = self.core.state.job(JobId(id)).map(|view| view.job) else { return };
        let news = Event::needs_known(&before, &needs);
        if news.is_empty() {
            return;
        }
        let need = needs.memory.as_ref();
        let need = need.filter(|need| before.need.as_ref().is_none_or(|before| !before.is_alike(need)));
        let need = need.map(ToString::to_string);
        entry.needs = Some(needs);
        need.into_iter().for_each(|need| self.say(id, need));
        self.touch(id);
        news.into_iter().for_each(|event| self.step(event));
    }
}
