//! Past runs, wherever they are kept, and what they say of a job.

use std::borrow::Cow;

use radrm_base::{Bytes, Millis, PastRun, UserId};

use super::{Calibration, DryRun, Features, Need, StepPrediction, StepTimes, Trained};

/// Predictions that a calibration reads, the newest.
const MAX_PREDICTIONS: u32 = 500;

/// Filter of the runs of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunFilter<'a> {
    /// User whose runs count.
    pub user: UserId,
    /// Model of the GPUs; `None`: any.
    pub gpu_model: Option<&'a str>,
    /// Only runs on emulated GPUs, or only those on real ones: the two are never mixed.
    pub emulated: bool,
    /// Only runs that began at that time, since 1970, or later; `None`: all.
    pub since: Option<Millis>,
}

/// A need that was predicted before a run, and what the run took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// User of the run.
    pub user: UserId,
    /// As it was resolved before the run.
    pub need: Need,
    /// Peak of the run.
    pub peak: Bytes,
    /// The run ended well; otherwise it ran out of memory at `peak`.
    pub complete: bool,
}

/// A dry run and a later real run of the same program at the same batch size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunPair {
    /// The newest dry run before the real run.
    pub dry_run: DryRun,
    /// Peak of the real run.
    pub peak: Bytes,
    /// Mean time of its optimizer steps, ns, where they were marked.
    pub step_ns: Option<u64>,
}

/// Programs that were dry-run and then ran on a real GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRunPairs {
    /// Model of the real GPUs.
    pub gpu_model: Option<String>,
    /// The oldest first. A program at one batch size may be in it several times.
    pub pairs: Vec<DryRunPair>,
}

impl DryRunPairs {
    /// Predicted step of a dry run like these, as the step times of the real runs correct it.
    fn step_of(&self, like: &DryRun) -> Option<Box<StepPrediction>> {
        // A step on another GPU takes another time.
        let is_its_gpu = self.gpu_model.as_ref() == Some(&like.gpu);
        let mut times = StepTimes::default();
        for DryRunPair { dry_run, step_ns, .. } in self.pairs.iter().filter(|_| is_its_gpu) {
            if let Some((step, ns)) = dry_run.step.as_deref().zip(*step_ns) {
                times.observe(step, ns);
            }
        }
        like.step.as_deref().map(|step| Box::new(times.corrected(step)))
    }
}

/// A history of runs: a dataset, or what a replay has seen. One that keeps no dry runs or predictions has none.
pub trait RunHistory {
    /// Program whose runs differ in batch size only.
    type Program: ?Sized;
    /// Error of a history that cannot be read.
    type Error;

    /// Runs of a program that bound its need, the newest first; [`super::MAX_RUNS`] are enough.
    ///
    /// # Errors
    /// The history cannot be read.
    fn runs(&self, program: &Self::Program, of: &RunFilter<'_>) -> Result<Cow<'_, [PastRun]>, Self::Error>;

    /// The newest dry run of a program at this batch size, on an emulated GPU of the filter's model.
    ///
    /// # Errors
    /// The history cannot be read.
    fn newest_dry_run(
        &self,
        _: &Self::Program,
        _: &RunFilter<'_>,
        _batch: Option<u32>,
    ) -> Result<Option<DryRun>, Self::Error> {
        Ok(None)
    }

    /// Real runs of programs whose dry runs were like this one, on GPUs of the named model, else of the emulated one,
    /// else of the one on which most ran.
    ///
    /// # Errors
    /// The history cannot be read.
    fn dry_run_pairs(&self, _like: &DryRun, _gpu_model: Option<&str>) -> Result<DryRunPairs, Self::Error> {
        Ok(DryRunPairs::default())
    }

    /// Predictions of the newest runs, so many, the oldest first.
    ///
    /// # Errors
    /// The history cannot be read.
    fn predictions(&self, _newest: u32) -> Result<Vec<Prediction>, Self::Error> {
        Ok(Vec::new())
    }
}

impl Calibration {
    /// Calibration of a model by the newest runs of a history.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn of_history<H: RunHistory + ?Sized>(model: &Trained, history: &H) -> Result<Self, H::Error> {
        let mut calibration = Self::of(model);
        for Prediction { user, need, peak, complete } in history.predictions(MAX_PREDICTIONS)? {
            calibration.observe(user, &need, peak, complete);
        }
        Ok(calibration)
    }
}

/// A job whose need is asked for, as a history knows it.
#[derive(Debug)]
pub struct Asked<'a, P: ?Sized> {
    /// Its program.
    pub program: &'a P,
    /// Its user.
    pub user: UserId,
    /// Samples in a batch, on each GPU.
    pub batch: Option<u32>,
    /// Model of GPU that it asks for.
    pub gpu_model: Option<&'a str>,
    /// A dry run that was just made; `None`: the newest one in the history counts.
    pub dry_run: Option<&'a DryRun>,
    /// Time of the last change of its script, since 1970: runs before it are of another program.
    pub changed: Option<Millis>,
}

/// Evidence about a job from a user's history.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Runs that computed, the newest first: on real GPUs, or where there are none, on emulated ones.
    pub runs: Vec<PastRun>,
    /// These ran on emulated GPUs.
    pub emulated: bool,
    /// Its dry run.
    pub dry_run: Option<DryRun>,
    /// Model of the real GPUs whose runs correct the dry run; `None` without such runs.
    pub corrected_on: Option<String>,
    user: UserId,
    calibration: Calibration,
}

impl Evidence {
    /// Reads what a history says of a job, for needs by this memory model.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn of<H: RunHistory + ?Sized>(
        history: &H,
        asked: &Asked<'_, H::Program>,
        model: &Trained,
    ) -> Result<Self, H::Error> {
        let &Asked { program, user, batch, gpu_model, dry_run, changed } = asked;
        let mut of = RunFilter { user, gpu_model, emulated: false, since: changed };
        let mut runs = history.runs(program, &of)?.into_owned();
        if runs.is_empty() {
            of.emulated = true;
            runs = history.runs(program, &of)?.into_owned();
        }
        let dry_run = match dry_run {
            Some(made) => Some(made.clone()),
            None => history.newest_dry_run(program, &of, batch)?,
        }
        .map(|dry_run| dry_run.on(gpu_model));
        let mut calibration = Calibration::of_history(model, history)?;
        let pairs = match &dry_run {
            Some(like) => history.dry_run_pairs(like, gpu_model)?,
            None => DryRunPairs::default(),
        };
        for DryRunPair { dry_run, peak, .. } in &pairs.pairs {
            calibration.observe_dry_run(user, dry_run, *peak);
        }
        let dry_run = dry_run.map(|like| DryRun { step: pairs.step_of(&like), ..like });
        let emulated = of.emulated && !runs.is_empty();
        let corrected_on = pairs.gpu_model.filter(|_| !pairs.pairs.is_empty());
        Ok(Self { runs, emulated, dry_run, corrected_on, user, calibration })
    }

    /// Without a history: a dry run that was just made, by a memory model alone.
    #[must_use]
    pub fn of_dry_run(dry_run: DryRun, user: UserId, model: &Trained) -> Self {
        Self { dry_run: Some(dry_run), user, calibration: Calibration::of(model), ..Self::default() }
    }

    /// Features of the job: this evidence, beside what the job states. A dry run that was asked about is that of the evidence, as runs
    /// correct its step.
    #[must_use]
    pub fn features<'a>(&'a self, stated: Features<'a>) -> Features<'a> {
        Features {
            runs: &self.runs,
            dry_run: self.dry_run.as_ref().or(stated.dry_run),
            user: Some(self.user),
            calibration: Some(&self.calibration),
            ..stated
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::{NeedResolver, Source, StepPrediction};

    const GIB: u64 = 1 << 30;

    /// Peaks of real and of emulated runs at batch size 8, and a dry run.
    #[derive(Default)]
    struct Kept {
        real: Vec<u64>,
        emulated: Vec<u64>,
        dry_run: Option<DryRun>,
        pairs: u64,
    }

    impl RunHistory for Kept {
        type Program = str;
        type Error = Infallible;

        fn runs(&self, _: &str, of: &RunFilter<'_>) -> Result<Cow<'_, [PastRun]>, Infallible> {
            let peaks = if of.emulated { &self.emulated } else { &self.real };
            let run = |gib: &u64| PastRun {
                batch: Some(8),
                peak: Bytes(gib * GIB),
                ran: Millis(7),
                complete: true,
                ..PastRun::default()
            };
            Ok(peaks.iter().map(run).collect())
        }

        fn newest_dry_run(
            &self,
            _: &str,
            _: &RunFilter<'_>,
            _: Option<u32>,
        ) -> Result<Option<DryRun>, Infallible> {
            Ok(self.dry_run.clone())
        }

        fn dry_run_pairs(&self, like: &DryRun, _: Option<&str>) -> Result<DryRunPairs, Infallible> {
            let pair = |gib: u64| DryRunPair {
                dry_run: DryRun { held: Bytes(gib * GIB), ..like.clone() },
                peak: Bytes(gib * GIB + GIB),
                step_ns: Some(120_000_000),
            };
            Ok(DryRunPairs { gpu_model: Some("L4".into()), pairs: (1..=self.pairs).map(pair).collect() })
        }
    }

    fn dry_run(gib: u64) -> DryRun {
        DryRun { held: Bytes(gib * GIB), steps: 3, gpu: "L4".into(), ..DryRun::default() }
    }

    fn resolve(kept: &Kept, made: Option<&DryRun>) -> (Evidence, Need) {
        let asked = Asked {
            program: "p",
            user: UserId(1),
            batch: Some(8),
            gpu_model: None,
            dry_run: made,
            changed: None,
        };
        let Ok(evidence) = Evidence::of(kept, &asked, &Trained::default());
        let job = Features { batch: Some(8), ..Features::default() };
        let need = NeedResolver::default().resolve(&evidence.features(job)).memory.unwrap();
        (evidence, need)
    }

    #[test]
    fn emulated_runs_count_only_without_real_ones() {
        let mut kept = Kept { emulated: vec![2], ..Kept::default() };
        let (evidence, need) = resolve(&kept, None);
        assert_eq!((evidence.emulated, need.bytes), (true, Bytes(2 * GIB)));
        kept.real = vec![3, 4];
        let (evidence, need) = resolve(&kept, None);
        assert_eq!((evidence.emulated, need.bytes), (false, Bytes(4 * GIB)));
        assert_eq!(need.source, Source::EqualRuns { runs: 2 });
    }

    #[test]
    fn step_times_of_real_runs_correct_a_predicted_step_on_their_gpu() {
        let step = StepPrediction {
            gpu: [80_000_000, 100_000_000, 125_000_000],
            host: None,
            low: 80_000_000,
            time: Some([80_000_000, 100_000_000, 125_000_000]),
            confidence: Some(radrm_base::Permille(900)),
            smact: radrm_base::Permille(600),
            drama: radrm_base::Permille(300),
            runs: 0,
        };
        let minutes = |gpu: &str| {
            let made = DryRun { gpu: gpu.into(), step: Some(Box::new(step)), ..dry_run(4) };
            let kept = Kept { dry_run: Some(made), pairs: 12, ..Kept::default() };
            // The newest in the history, and one that was just made and that the job states too.
            let of = |made: Option<&DryRun>| {
                let asked = Asked {
                    program: "p",
                    user: UserId(1),
                    batch: Some(8),
                    gpu_model: None,
                    dry_run: made,
                    changed: None,
                };
                let Ok(evidence) = Evidence::of(&kept, &asked, &Trained::default());
                let job = Features { total_steps: Some(36_000), dry_run: made, ..Features::default() };
                let time = NeedResolver::default().resolve(&evidence.features(job)).run_time.unwrap();
                (time.value.0.div_ceil(60_000), time.source)
            };
            let found = of(None);
            assert_eq!(of(kept.dry_run.as_ref()), found);
            found
        };
        let (corrected, source) = minutes("L4");
        assert_eq!(corrected, 72);
        assert!(source.to_string().contains("corrected by 12 runs here"), "{source}");
        // The pairs' real GPUs are L4.
        assert_eq!(minutes("H200").0, 60);
    }

    #[test]
    fn a_dry_run_that_was_just_made_counts_in_place_of_older_ones() {
        let kept = Kept { dry_run: Some(dry_run(4)), pairs: 12, ..Kept::default() };
        let of = |made| {
            let (evidence, need) = resolve(&kept, made);
            let (run, runs) = need.source.dry_run().unwrap();
            let is_corrected = need.bytes.0.abs_diff(run.held.0 + GIB) < GIB / 8;
            (evidence.corrected_on, run.held.0 / GIB, runs, is_corrected)
        };
        assert_eq!(of(None), (Some("L4".to_owned()), 4, 12, true));
        assert_eq!(of(Some(&dry_run(7))), (Some("L4".to_owned()), 7, 12, true));
    }
}
