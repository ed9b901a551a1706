//! Activity of jobs that were not measured by themselves: by the sum of all jobs of a device, and by running jobs of their program.

use super::State;
use super::devices::MIN_SPEED;
use super::record::Record;
use crate::device::DeviceId;
use crate::interference::{Activity, Resident as Neighbour};
use crate::job::JobId;
use crate::units::Permille;

/// Speeds follow from activities, and what is left of a sum from speeds: so often one after the other.
const ROUNDS: usize = 8;

/// SM activity, SM occupancy and DRAM activity.
type Parts = [f64; 3];

/// Knowledge of a resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It was measured by itself.
    Measured,
    /// An earlier sum showed its part.
    Estimated,
    /// Nothing.
    Nothing,
}

impl State {
    /// Learns from what all jobs of a device do together. An earlier list of jobs says nothing.
    ///
    /// Jobs that were not measured have the rest in proportion to their own launches. Where these are not known, a job of which nothing
    /// is known has an equal part of the rest; where each has an estimate already, these change in proportion, so that a job that
    /// came later is not taken for what those before it do.
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
        let known = |job: JobId| match self.jobs.get(&job) {
            Some(record) if record.measured().is_none() && record.beside.is_none() => Known::Nothing,
            Some(record) if record.measured().is_none() => Known::Estimated,
            _ => Known::Measured,
        };
        let known: Vec<Known> = residents.iter().map(|resident| known(resident.job)).collect();
        if known.iter().all(|known| *known == Known::Measured) {
            return;
        }
        let of_job = |job: JobId| Some(each.get(jobs.iter().position(|of| *of == job)?)?.fraction());
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
        let learning: Vec<usize> =
            (0..known.len()).filter(|index| known[*index] != Known::Measured).collect();
        let program = |index: &usize| self.devices[at].residents[*index].program;
        let is_one_program = learning.iter().all(|index| program(index) == program(&learning[0]));
        for index in learning {
            let (job, now) = (self.devices[at].residents[index].job, all[index].activity);
            if let Some(record) = self.jobs.get_mut(&job) {
                record.beside = Some(now);
            }
            self.is_as_active(at, index, now);
            // Equal parts of different programs are no figures of theirs.
            if launched.is_some() || is_one_program {
                self.learn_of_program(job, now);
            }
        }
    }

    /// Activity of a job, and true if that is assumed.
    pub(super) fn activity_of(&self, record: &Record) -> (Activity, bool) {
        let is_assumed = record.is_assumed();
        let alike = record.job.program.filter(|_| is_assumed).and_then(|program| self.programs.of(program));
        match alike {
            Some(seen) => (record.within_share(&self.settings, seen), false),
            None => (record.activity(&self.settings), is_assumed),
        }
    }

    /// A running job was seen to do this: others of its program may find another place now.
    pub(super) fn learn_of_program(&mut self, job: JobId, seen: Activity) {
        let Some(program) = self.jobs.get(&job).and_then(|record| record.job.program) else { return };
        if self.settings.policy.predicts() && self.programs.observe(program, seen) && self.queue.len() > 0 {
            (0..self.devices.len()).for_each(|at| self.changed(at));
        }
    }
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
    let is_new = known.contains(&Known::Nothing);
    // Those whose activity changes.
    let learns = |known: Known| match launched {
        Some(_) => known != Known::Measured,
        None if is_new => known == Known::Nothing,
        None => known == Known::Estimated,
    };
    let learning: Vec<usize> = (0..known.len()).filter(|job| learns(known[*job])).collect();
    let mut now = before.to_vec();
    for (part, all) in together.iter().enumerate() {
        let does = |job: usize| before[job][part] * speeds[job];
        let others = (0..known.len()).filter(|job| !learns(known[*job]));
        let rest = (all - others.map(does).sum::<f64>()).max(0.0);
        let weight = |job: usize| match launched {
            Some(launched) => launched[job],
            None if is_new => 1.0,
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
