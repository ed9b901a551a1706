//! Limits and recording of a step: from its options, the job's environment and the job's shards.

use crate::grant::Grant;
use crate::options::{Mode, Options, Words};
use crate::settings::Settings;
use radrm_limits::amount;
use radrm_limits::requested::RequestedLimits;

/// Input from `slurmstepd` about a step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// Options of the step itself.
    pub step: Words,
    /// Options of the job, which the plug-in handed on in the environment.
    pub job: Words,
    /// `SLURM_SHARDS_ON_NODE`, which Slurm sets.
    pub shards: Option<String>,
    /// The GPUs' numbers on the node, which Slurm sets.
    pub gpus: Option<String>,
    /// `SLURM_RADRM_SHARDS`, which `job_submit.lua` sets: the shards are what `--gpu-mem` asked for.
    pub of_option: bool,
}

/// Actions for a step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Limits of the job, unless its first step found others.
    pub job: Grant,
    /// The step's own limits; the strictest holds.
    pub memory: Vec<String>,
    /// The step's share of the GPUs' time, percent.
    pub share: Option<u8>,
    /// A profile is written.
    pub profile: bool,
    /// There is something to do.
    pub wanted: bool,
    /// A batch job that runs out of its GPU's memory is tried again with more.
    pub retry: Option<Retry>,
    /// Memory limit of the job on each of its GPUs, bytes, if that is one amount.
    pub granted: Option<u64>,
}

/// Basis of a job's next attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: u32,
    /// Shards that the job has now.
    pub shards: u64,
    /// GPU memory that one stands for, bytes.
    pub unit: u64,
}

impl Request {
    /// Puts together what holds. An option that cannot be read is an error even where a limit holds without it: the
    /// user asked for something else.
    ///
    /// # Errors
    /// One sentence.
    pub fn of(known: &Known, settings: &Settings) -> Result<Self, crate::options::OptionError> {
        let mut step = known.step.parse()?;
        let mut job = known.job.parse()?;
        let shards = settings.shard.and_then(|unit| {
            of_shards(known.shards.as_deref()?, known.gpus.as_deref().unwrap_or_default(), unit)
        });
        if known.of_option && has_grown(known, job.memory.as_ref(), settings) {
            // More than the option asked for: a later attempt. Slurm sets the shards, so that nothing is lifted by this.
            // Slurm hands the job's option to its steps as if it were theirs.
            step.memory = step.memory.filter(|own| job.memory.as_ref() != Some(own));
            job.memory = None;
        }
        let text = |options: &Options| options.memory.as_ref().map(ToString::to_string);
        let (of_step, of_job) = (text(&step), text(&job));
        let grant = Grant { memory: of_job.iter().chain(&shards).cloned().collect(), share: job.share };
        let mode = step.mode.or(job.mode);
        let memory: Vec<String> = of_step.or(of_job).into_iter().chain(shards).collect();
        let share = step.share.or(job.share);
        let is_limited = !memory.is_empty() || share.is_some();
        let mode = mode.unwrap_or(if is_limited { Mode::Profile } else { settings.default });
        let attempts = job.attempts.unwrap_or(settings.attempts);
        let retry = retry(known, settings).map(|retry| Retry { attempts, ..retry });
        let granted = settings.shard.and_then(|unit| {
            let gpus = numbers(known.gpus.as_deref().unwrap_or_default()).len().max(1);
            let shards: u64 = known.shards.as_deref()?.trim().parse().ok()?;
            Some(shards.checked_mul(unit)? / u64::try_from(gpus).ok()?)
        });
        let asked = memory.first().and_then(|limits| amount::bytes(limits).ok());
        Ok(Self {
            retry: retry.filter(|_| attempts > 1),
            granted: granted.into_iter().chain(asked).min(),
            job: grant,
            memory,
            share,
            profile: mode == Mode::Profile,
            wanted: is_limited || mode != Mode::Off,
        })
    }

    /// Returns true if a step may run only under limits.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        !self.memory.is_empty() || self.share.is_some() || self.job.any()
    }

    /// The same under the limits that the job's first step found.
    #[must_use]
    pub fn under(mut self, grant: &Grant) -> Self {
        self.share = match (self.share, grant.share) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.job = grant.clone();
        // A limited job is recorded unless the step says otherwise; a step that says nothing is part of it.
        self.wanted |= grant.any();
        self
    }
}

/// The attempt, for jobs whose memory can grow: those with shards of one GPU.
fn retry(known: &Known, settings: &Settings) -> Option<Retry> {
    let unit = settings.shard?;
    let shards = known.shards.as_deref()?.trim().parse().ok()?;
    let is_one = numbers(known.gpus.as_deref().unwrap_or_default()).len() <= 1;
    is_one.then_some(Retry { attempts: 1, shards, unit })
}

/// Returns true if the job has more shards than `job_submit.lua` makes of its option.
fn has_grown(known: &Known, memory: Option<&RequestedLimits>, settings: &Settings) -> bool {
    let asked = memory.and_then(|limits| amount::bytes(&limits.to_string()).ok());
    let shards = || known.shards.as_deref()?.trim().parse::<u64>().ok();
    match (asked, settings.shard, shards()) {
        (Some(bytes), Some(unit), Some(shards)) => shards > bytes.div_ceil(unit).max(1),
        _ => false,
    }
}

/// The limits that shards stand for: an equal part on each of the job's GPUs, and nothing on any other one.
fn of_shards(shards: &str, gpus: &str, unit: u64) -> Option<String> {
    let shards: u64 = shards.trim().parse().ok()?;
    let gpus = numbers(gpus);
    let total = shards.checked_mul(unit)?;
    if gpus.is_empty() {
        return Some(format!("{total}b"));
    }
    let each = total / u64::try_from(gpus.len()).ok()?;
    let named: Vec<String> = gpus.iter().map(|gpu| format!("{gpu}={each}b")).collect();
    Some(format!("{},0", named.join(",")))
}

/// `0,2-3` as numbers; empty if it is anything else.
fn numbers(list: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { return Vec::new() };
        if last < first || last - first > 255 {
            return Vec::new();
        }
        found.extend(first..=last);
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Name;

    fn sharded() -> Settings {
        Settings { shard: Some(1 << 20), ..Settings::default() }
    }

    fn memory(text: &str) -> Words {
        Words::default().with(Name::Memory, text)
    }

    #[test]
    fn a_job_without_options_is_left_alone() {
        let request = Request::of(&Known::default(), &Settings::default()).unwrap();
        assert_eq!(request, Request::default());
        let stale = Known { shards: Some("99".into()), ..Known::default() };
        assert_eq!(Request::of(&stale, &Settings::default()).unwrap(), Request::default());
    }

    #[test]
    fn shards_limit_the_jobs_gpus_and_no_other_one_gives_memory() {
        let known = Known { shards: Some("10000".into()), gpus: Some("2".into()), ..Known::default() };
        let request = Request::of(&known, &sharded()).unwrap();
        assert_eq!(request.memory, ["2=10485760000b,0"]);
        assert_eq!(request.job.memory, request.memory);
        assert!(request.wanted && request.profile && request.is_limited());
        assert_eq!(of_shards("10", "0-1", 1 << 20).unwrap(), "0=5242880b,1=5242880b,0");
        assert_eq!(of_shards("10", "", 1).unwrap(), "10b");
        assert_eq!(of_shards("x", "0", 1), None);
        let wide = memory("90GiB");
        let request = Request::of(&Known { job: wide, ..known }, &sharded()).unwrap();
        assert_eq!(
            request.job.memory,
            ["90GiB", "2=10485760000b,0"],
            "both hold, so the option widens nothing"
        );
    }

    #[test]
    fn a_job_with_shards_of_one_gpu_is_tried_again_as_often_as_it_may_be() {
        let job = Words::default().with(Name::Attempts, "2");
        let known = Known { job, shards: Some("10".into()), gpus: Some("2".into()), ..Known::default() };
        let retry = |known: &Known, settings: &Settings| Request::of(known, settings).unwrap().retry;
        let expected = Retry { attempts: 2, shards: 10, unit: 1 << 20 };
        assert_eq!(retry(&known, &sharded()), Some(expected));
        assert_eq!(retry(&Known { gpus: Some("0,2".into()), ..known.clone() }, &sharded()), None);
        assert_eq!(retry(&Known { shards: None, ..known.clone() }, &sharded()), None);
        assert_eq!(retry(&known, &Settings::default()), None);
        let unasked = Known { job: Words::default(), ..known };
        assert_eq!(retry(&unasked, &sharded()), None, "once, unless the administrator says otherwise");
        assert!(retry(&unasked, &Settings { attempts: 4, ..sharded() }).is_some());
    }

    #[test]
    fn shards_that_stand_for_the_option_replace_it_in_a_later_attempt() {
        let first = Known {
            job: memory("1GiB"),
            shards: Some("1024".into()),
            gpus: Some("0".into()),
            of_option: true,
            ..Known::default()
        };
        let first = Known { step: first.job.clone(), ..first };
        let limits = |known: &Known| Request::of(known, &sharded()).unwrap().job.memory;
        assert_eq!(limits(&first), ["1GiB", "0=1073741824b,0"]);
        let second = Known { shards: Some("4096".into()), ..first.clone() };
        assert_eq!(limits(&second), ["0=4294967296b,0"]);
        assert_eq!(Request::of(&second, &sharded()).unwrap().memory, ["0=4294967296b,0"]);
        let tighter = Known { step: memory("2GiB"), ..second.clone() };
        assert_eq!(Request::of(&tighter, &sharded()).unwrap().memory[0], "2GiB", "a step's own option holds");
        assert_eq!(limits(&Known { of_option: false, ..second.clone() })[0], "1GiB", "the user set both");
        assert_eq!(limits(&Known { shards: None, ..second }), ["1GiB"], "without shards the option holds");
    }

    #[test]
    fn a_steps_own_option_holds_for_the_step_only() {
        let known = Known { step: memory("1GiB"), job: memory("4GiB"), ..Known::default() };
        let request = Request::of(&known, &Settings::default()).unwrap();
        assert_eq!(
            (&request.memory[..], &request.job.memory[..]),
            (&["1GiB".to_owned()][..], &["4GiB".to_owned()][..])
        );
        let alone =
            Request::of(&Known { step: memory("1GiB"), ..Known::default() }, &Settings::default()).unwrap();
        assert!(!alone.job.any() && alone.is_limited());
    }

    #[test]
    fn a_step_that_dropped_the_options_is_under_the_jobs_limits() {
        let grant = Grant { memory: vec!["1GiB".into()], share: Some(30) };
        let request = Request::of(&Known::default(), &Settings::default()).unwrap().under(&grant);
        assert!(request.wanted && request.is_limited());
        assert_eq!((request.share, &request.job), (Some(30), &grant));
    }

    #[test]
    fn numbers_of_gpus_are_lists_and_ranges() {
        assert_eq!(numbers("0,2-3,2"), [0, 2, 3]);
        for odd in ["", "x", "GPU-1", "3-1", "0-999999", "-"] {
            assert!(numbers(odd).is_empty(), "{odd}");
        }
    }
}
