//! Needs of jobs: resolved when a job is submitted, stored with it, and changed by news of its program only.

use radrm_base::{PastRun, SeenActivity};
use radrm_need::Features;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::EstimateRow;
use radrm_scheduler_core::{Activity, Bytes, Event, Job, JobId, Millis, Needs, UserId};

use super::Engine;
use super::programs::{program, program_of};
use crate::store::{Entry, Stage};

/// As many waiting jobs learn from a run before clients are answered again.
const AT_ONCE: usize = 64;

/// The scheduler's view of an entry, with the needs that were resolved for it. `assumed`: that of the settings.
pub(super) fn job(entry: &Entry, assumed: Activity) -> Job {
    let job = entry.spec.job(entry.id, entry.uid, Millis(entry.submitted_ms));
    let mut job = job.needing(entry.needs.as_ref().unwrap_or(&Needs::default()), assumed);
    if let Some(group) = &mut job.together {
        group.begun = entry.first_start_ms.is_some();
    }
    Job {
        program: Some(program_of(entry).1),
        activity: entry.activity.map(|seen| seen.with_usual(assumed)).or(job.activity),
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
        self.needs_by(&self.features(uid, spec, &self.past_runs(uid, spec)))
    }

    /// Needs by these features.
    ///
    /// An activity that a submission states is no way past the protection of other jobs: it counts where it is at least what is
    /// assumed of a job of which nothing is known. A dry run that radrmd made counts as it is.
    fn needs_by(&self, features: &Features<'_>) -> Needs {
        let mut needs = self.resolver.resolve(features);
        let is_stated = features.dry_run.is_some_and(|run| !run.background);
        let assumed = self.config.scheduler.assumed;
        let is_less = |seen: SeenActivity| {
            let activity = seen.with_usual(assumed);
            activity.smact < assumed.smact || activity.drama < assumed.drama
        };
        needs.activity = needs
            .activity
            .filter(|known| !is_stated || !known.source.is_predicted() || !is_less(known.value));
        needs
    }

    /// Earlier runs of the job's program by its user, on its GPU model.
    fn past_runs(&self, uid: u32, spec: &Spec) -> Vec<PastRun> {
        let model = self.model_of(spec);
        model.map_or_else(Vec::new, |model| self.outbox.past_runs(uid, &program(spec), &model))
    }

    fn features<'a>(&'a self, uid: u32, spec: &'a Spec, runs: &'a [PastRun]) -> Features<'a> {
        let (user, calibration) = (Some(UserId(uid)), Some(&self.calibration));
        let emulated = spec.dry_run.as_ref().map(|run| &run.gpu);
        let on_other_gpu = emulated.is_some_and(|gpu| self.model_of(spec).as_ref() != Some(gpu));
        Features { user, calibration, on_other_gpu, ..spec.features(runs) }
    }

    /// Needs that a submission of this job would be given now, and the answer of each estimator.
    pub(super) fn estimate_of(&self, uid: u32, spec: &Spec) -> EstimateRow {
        let runs = self.past_runs(uid, spec);
        let features = self.features(uid, spec, &runs);
        EstimateRow {
            needs: self.needs_by(&features),
            answers: self.resolver.answers(&features),
            runs: u32::try_from(runs.len()).unwrap_or(u32::MAX),
            model: self.model_of(spec),
            emulated: self.node.gpus().emulated.clone(),
        }
    }

    pub(super) fn needs_of(&self, entry: &Entry) -> Needs {
        self.resolve(entry.uid, &entry.spec)
    }

    fn model_of(&self, spec: &Spec) -> Option<String> {
        if spec.model.is_some() {
            return spec.model.clone();
        }
        let mut usable = self.node.gpus().list.iter().filter(|gpu| !gpu.divided);
        let first = usable.next().map(|gpu| gpu.name.clone()).unwrap_or_default();
        usable.all(|gpu| gpu.name == first).then_some(first)
    }

    /// Waiting jobs that are the same program as one that just ended, and for the model of GPU on which it ran, learn
    /// from its run. Of jobs that are resolved alike one is looked at: as long as it learns nothing, nor do the others.
    pub(super) fn update_waiting(&mut self, ended: &Entry) {
        let (key, model) = (program(&ended.spec), self.node.model(ended));
        let runs = self.outbox.past_runs(ended.uid, &key, &model);
        let is_one = |entry: &&Entry| {
            entry.stage == Stage::Waiting
                && entry.id != ended.id
                && self.model_of(&entry.spec).as_ref() == Some(&model)
        };
        let assumed = self.config.scheduler.assumed;
        let mut news = Vec::new();
        for alike in self.jobs.entries().alike(ended.uid, &key) {
            let mut entries = alike.iter().filter_map(|id| self.jobs.entry(*id));
            let Some(first) = entries.find(is_one) else { continue };
            let needs = self.needs_by(&self.features(ended.uid, &first.spec, &runs));
            let before = self.core.state.job(JobId(first.id)).map(|view| view.job);
            if before.is_some_and(|before| !Event::needs_known(&before, &needs, assumed).is_empty()) {
                let learns = [first].into_iter().chain(entries.filter(is_one));
                news.extend(learns.map(|entry| (entry.id, needs.clone())));
            }
        }
        // In the order of their numbers, as a replay of the record has it.
        news.sort_unstable_by_key(|(id, _)| *id);
        self.unlearned.extend(news);
        self.learn_some();
    }

    /// The next of those learn that have to. Clients are answered in between.
    pub(super) fn learn_some(&mut self) {
        for _ in 0..AT_ONCE {
            let Some((id, needs)) = self.unlearned.pop_front() else { return };
            if self.jobs.entry(id).is_some_and(|entry| entry.stage == Stage::Waiting) {
                self.learn(id, needs);
            }
        }
    }

    pub(super) fn learn(&mut self, id: u64, needs: Needs) {
        let Some(entry) = self.jobs.entry_mut(id) else { return };
        let Some(before) = self.core.state.job(JobId(id)).map(|view| view.job) else { return };
        let news = Event::needs_known(&before, &needs, self.config.scheduler.assumed);
        if news.is_empty() {
            return;
        }
        let need = news.iter().find_map(|event| match event {
            Event::NeedKnown { need, .. } => Some(need.to_string()),
            _ => None,
        });
        entry.needs = Some(needs);
        self.jobs.sort_in(id);
        need.into_iter().for_each(|need| self.say(id, need));
        self.touch(id);
        news.into_iter().for_each(|event| self.step(event));
    }
}
