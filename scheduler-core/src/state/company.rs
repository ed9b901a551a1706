//! Activity of jobs that were not measured by themselves: by the sum of all jobs of a device, and by running jobs of their program.

use super::State;
use super::devices::MIN_SPEED;
use super::programs::Key;
use super::record::Record;
use crate::device::DeviceId;
use crate::interference::{Activity, Resident as Neighbour};
use crate::job::JobId;
use crate::reason::Basis;
use crate::units::Permille;

/// Speeds follow from activities, and what is left of a sum from speeds: so often one after the other.
const ROUNDS: usize = 8;

/// SM activity, SM occupancy and DRAM activity.
type Parts = [f64; 3];

/// Knowledge of a resident on its device: what a job was seen to do on one of its GPUs says nothing of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It was measured by itself.
    Measured,
    /// An earlier sum showed its part.
    Estimated,
    /// Nothing, or only what others of its program do or what is predicted.
    Nothing,
}

impl Known {
    fn on(basis: Basis) -> Self {
        match basis {
            Basis::Measured => Self::Measured,
            Basis::Together => Self::Estimated,
            Basis::Program | Basis::Predicted | Basis::Assumed => Self::Nothing,
        }
    }

    /// Returns true if a sum shows the job's part, by the launches of each or beside jobs of which nothing is known.
    fn learns(self, by_launches: bool, is_one_new: bool) -> bool {
        match self {
            Self::Measured => false,
            Self::Estimated => by_launches || !is_one_new,
            Self::Nothing => true,
        }
    }
}

impl State {
    /// Learns from what all jobs of a device do together. An earlier list of jobs says nothing.
    ///
    /// Jobs that were not measured have the rest in proportion to their own launches. Where these are not known, jobs of which nothing
    /// is known have it in proportion to what their programs do or is assumed; where each has an estimate already, these change in
    /// proportion, so that a job that came later is not taken for what those before it do.
    ///
    /// Jobs write their launches themselves, and the rest is what others leave. So programs are learned only where all these jobs
    /// are of one user.
    pub(super) fn observe_company(
        &mut self,
        device: DeviceId,
        jobs: &[JobId],
        together: Activity,
        each: &[Permille],
    ) {
        let Some(&at) = self.numbers.get(&device) else { return };
        let residents = &self.devices[at].residents;
        let are_they = residents.iter().all(|resident| jobs.contains(&resident.job) && !resident.launching);
        if residents.len() != jobs.len() || !are_they {
            return;
        }
        let known: Vec<Known> = residents.iter().map(|resident| Known::on(resident.basis)).collect();
        if known.iter().all(|known| *known == Known::Measured) {
            return;
        }
        // No job does more than a whole device can.
        let of_job = |job: JobId| Some(each.get(jobs.iter().position(|of| *of == job)?)?.fraction().min(1.0));
        let launched: Option<Vec<f64>> = residents.iter().map(|resident| of_job(resident.job)).collect();
        let mut all: Vec<Neighbour> = residents.iter().map(|resident| resident.neighbour()).collect();
        let before: Vec<Parts> = all.iter().map(|neighbour| parts(neighbour.activity)).collect();
        for _ in 0..ROUNDS {
            let speeds: Vec<f64> =
                self.speeds_on(at, &all).iter().map(|speed| speed.max(MIN_SPEED)).collect();
            let now = alone(&parts(together), &before, &known, launched.as_deref(), &speeds);
            for (neighbour, now) in all.iter_mut().zip(&now) {
                let [smact, smocc, drama] = now.map(|part| Permille::from_fraction(part.clamp(0.0, 1.0)));
                neighbour.activity = Activity { smact, smocc, drama };
            }
        }
        let residents = &self.devices[at].residents;
        let unmeasured: Vec<usize> =
            (0..known.len()).filter(|index| known[*index] != Known::Measured).collect();
        let program = |index: &usize| residents[*index].program;
        let user = |index: &usize| self.jobs.get(&residents[*index].job).map(|record| record.job.user);
        let is_one = |is_as: &dyn Fn(&usize) -> bool| unmeasured.iter().all(is_as);
        let is_one_program = is_one(&|index| program(index) == program(&unmeasured[0]));
        let is_one_user = is_one(&|index| user(index) == user(&unmeasured[0]));
        // Parts of different programs by assumption are no figures of theirs.
        let shows_programs = is_one_user && (launched.is_some() || is_one_program);
        let is_one_new = known.contains(&Known::Nothing);
        for index in unmeasured {
            if !known[index].learns(launched.is_some(), is_one_new) {
                continue;
            }
            let (job, now) = (self.devices[at].residents[index].job, all[index].activity);
            if let Some(record) = self.jobs.get_mut(&job) {
                record.beside = Some(now);
            }
            self.is_as_active(at, index, now, Basis::Together);
            if shows_programs {
                self.learn_of_program(job, at, now);
            }
        }
    }

    /// Activity of a job on this GPU model, and the basis of it. `None`: on any of several, where programs say nothing.
    pub(super) fn activity_of(&self, record: &Record, model: Option<&str>) -> (Activity, Basis) {
        let basis = record.basis();
        let alike = || self.programs.of(&program_on(record, model?)?);
        // What other jobs of its program were seen to do comes before a prediction.
        match Some(basis).filter(|basis| *basis >= Basis::Predicted).and_then(|_| alike()) {
            Some(seen) => (record.within_share(&self.settings, seen), Basis::Program),
            None => (record.activity(&self.settings), basis),
        }
    }

    /// Model of all GPUs, if that is one.
    pub(super) fn only_model(&self) -> Option<&str> {
        let mut models = self.sizes.keys().map(|(model, _)| model);
        let first = models.next()?;
        models.all(|model| model == first).then_some(first)
    }

    /// Program of a job on one of its devices.
    fn program_at(&self, job: JobId, at: usize) -> Option<Key> {
        let record = self.jobs.get(&job).filter(|_| self.settings.policy.predicts())?;
        program_on(record, &self.devices[at].spec.model)
    }

    /// A job of a program has a device. What was measured of it, or stated, holds for others of its program.
    pub(super) fn program_begins(&mut self, job: JobId, at: usize) {
        let Some(key) = self.program_at(job, at) else { return };
        self.programs.begin(key, job);
        if let Some(seen) = self.jobs.get(&job).and_then(Record::measured) {
            self.learn_of_program(job, at, seen);
        }
    }

    /// A job of a program leaves a device: others of it may run in its place.
    pub(super) fn program_ends(&mut self, job: JobId, at: usize) {
        if let Some(key) = self.program_at(job, at)
            && self.programs.end(&key, job)
        {
            self.program_changed(&key);
        }
    }

    /// A running job was seen to do this: others of its program may find another place now.
    pub(super) fn learn_of_program(&mut self, job: JobId, at: usize, seen: Activity) {
        if let Some(key) = self.program_at(job, at)
            && self.programs.observe(&key, job, seen)
        {
            self.program_changed(&key);
        }
    }

    /// Waiting jobs of this program, of which nothing else is known, are searched places again.
    fn program_changed(&mut self, key: &Key) {
        let is_like = |record: &Record| {
            !record.phase.on_devices()
                && (record.job.user, record.job.program) == (key.user, Some(key.program))
                && record.basis() >= Basis::Predicted
        };
        if self.queue.len() > 0 && self.jobs.values().any(is_like) {
            (0..self.devices.len()).for_each(|at| self.changed(at));
        }
    }
}

/// Program of a job, as what was seen of it is kept.
fn program_on(record: &Record, model: &str) -> Option<Key> {
    Some(Key { user: record.job.user, program: record.job.program?, model: model.to_owned() })
}

fn parts(activity: Activity) -> Parts {
    [activity.smact, activity.smocc, activity.drama].map(Permille::fraction)
}

/// Activities alone of jobs that do so much together at these speeds. `before`: by what was known or assumed. `launched`: parts by
/// their own launches.
fn alone(
    together: &Parts,
    before: &[Parts],
    known: &[Known],
    launched: Option<&[f64]>,
    speeds: &[f64],
) -> Vec<Parts> {
    let is_one_new = known.contains(&Known::Nothing);
    let learns = |job: usize| known[job].learns(launched.is_some(), is_one_new);
    let learning: Vec<usize> = (0..known.len()).filter(|job| learns(*job)).collect();
    let mut now = before.to_vec();
    for (part, all) in together.iter().enumerate() {
        let does = |job: usize| before[job][part] * speeds[job];
        let others = (0..known.len()).filter(|job| !learns(*job));
        let rest = (all - others.map(does).sum::<f64>()).max(0.0);
        let weight = |job: usize| match launched {
            Some(launched) => launched[job],
            None => does(job),
        };
        let sum: f64 = learning.iter().map(|job| weight(*job)).sum();
        for job in learning.iter().copied() {
            let of_rest = if sum > 0.0 { weight(job) / sum } else { 1.0 / learning.len() as f64 };
            now[job][part] = rest * of_rest / speeds[job];
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;
    use crate::device::Device;
    use crate::event::Event;
    use crate::job::Job;
    use crate::settings::Settings;
    use crate::units::{Bytes, Millis};

    /// Two devices: the first job has both, the second and the third one each.
    fn on_two_devices() -> State {
        let mut state = State::new(Settings::default());
        for id in [0, 1].map(DeviceId) {
            let (node, capacity) = (NodeId(0), Bytes::from_gib(40));
            let device = Device { id, node, model: "A".into(), capacity, parent: None, shared: true };
            state.step(Millis(0), Event::DeviceAdded { device });
        }
        for (id, devices) in [(1, vec![0, 1]), (2, vec![0]), (3, vec![1])] {
            let job = Box::new(Job { gpus: devices.len() as u16, ..Job::new(JobId(id)) });
            let devices = devices.into_iter().map(DeviceId).collect();
            let reserved = Some(Bytes::from_gib(2));
            state.step(Millis(0), Event::Adopted { job, devices, since: Millis(0), reserved, leaving: None });
        }
        state
    }

    /// SM activity of the jobs of a device after they were seen to do so much together.
    fn after(state: &mut State, device: u32, jobs: [u64; 2], smact: u32, each: Vec<Permille>) -> Vec<u32> {
        let (jobs, device) = (jobs.map(JobId).to_vec(), DeviceId(device));
        let together = Activity { smact: Permille(smact), ..Activity::default() };
        state.step(Millis(0), Event::CompanyObserved { device, jobs, together, each });
        let residents = &state.devices[state.numbers[&device]].residents;
        residents.iter().map(|resident| resident.activity.smact.0).collect()
    }

    #[test]
    fn what_a_job_does_on_one_of_its_gpus_says_nothing_of_the_other() {
        let mut state = on_two_devices();
        after(&mut state, 0, [1, 2], 900, Vec::new());
        let bases = |state: &State, at: usize| -> Vec<Basis> {
            state.devices[at].residents.iter().map(|resident| resident.basis).collect()
        };
        assert_eq!((bases(&state, 0), bases(&state, 1)), (vec![Basis::Together; 2], vec![Basis::Assumed; 2]));
        let parts = after(&mut state, 1, [1, 3], 100, Vec::new());
        assert!(parts[0] == parts[1] && (50..60).contains(&parts[0]), "{parts:?}");
        assert_eq!(bases(&state, 1), [Basis::Together; 2]);
    }

    #[test]
    fn no_job_claims_more_than_a_whole_device() {
        let parts =
            |claim| after(&mut on_two_devices(), 0, [1, 2], 300, vec![Permille(500), Permille(claim)]);
        assert_eq!(parts(1000), parts(u32::MAX));
        assert!(parts(u32::MAX)[0] >= 100, "{:?}", parts(u32::MAX));
    }

    fn smact(
        together: f64,
        before: &[f64],
        known: &[Known],
        launched: Option<&[f64]>,
        speeds: &[f64],
    ) -> Vec<f64> {
        let before: Vec<Parts> = before.iter().map(|smact| [*smact, 0.0, 0.0]).collect();
        let now = alone(&[together, 0.0, 0.0], &before, known, launched, speeds);
        now.into_iter().map(|now| (now[0] * 1000.0).round() / 1000.0).collect()
    }

    #[test]
    fn what_is_known_is_taken_off_and_the_rest_is_shared() {
        use Known::{Estimated, Measured, Nothing};
        let of = |together, before: &[f64], known: &[Known], speed| {
            smact(together, before, known, None, &vec![speed; known.len()])
        };
        assert_eq!(of(0.5, &[0.6, 0.65, 0.65], &[Measured, Nothing, Nothing], 0.5), [0.6, 0.2, 0.2]);
        assert_eq!(of(0.2, &[0.6, 0.65], &[Measured, Nothing], 0.5), [0.6, 0.0], "less than is known");
        // Others of its program do a tenth of what is assumed.
        assert_eq!(of(0.55, &[0.05, 0.5], &[Nothing, Nothing], 1.0), [0.05, 0.5]);
        // One that came later is what was added.
        assert_eq!(of(0.7, &[0.3, 0.3, 0.65], &[Estimated, Estimated, Nothing], 1.0), [0.3, 0.3, 0.1]);
        assert_eq!(of(0.8, &[0.1, 0.3], &[Estimated, Estimated], 1.0), [0.2, 0.6]);
        assert_eq!(of(0.8, &[0.0, 0.0], &[Estimated, Estimated], 1.0), [0.4, 0.4], "they did nothing before");
    }

    #[test]
    fn launches_of_each_divide_the_rest() {
        use Known::{Estimated, Measured, Nothing};
        let known = [Measured, Estimated, Nothing];
        let now = smact(0.8, &[0.2, 0.3, 0.65], &known, Some(&[0.4, 0.6, 0.2]), &[1.0; 3]);
        assert_eq!(now, [0.2, 0.45, 0.15]);
        let now = smact(0.5, &[0.65, 0.65], &[Nothing; 2], Some(&[0.0, 0.0]), &[0.5; 2]);
        assert_eq!(now, [0.5, 0.5], "none was seen to launch");
    }
}
