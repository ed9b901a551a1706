//! The command line of `radrm replay`.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use radrm_base::written;
use radrm_limits::{LimitError, amount};
use radrm_scheduler_core::replay::{Knowledge, Mode, Source};
use radrm_scheduler_core::{Bytes, Permille, Policy, Preset};

use super::chosen::{Chosen, OwnPolicy, Policies, no_own};
use super::jobs_out::JobsOut;
use super::{ReplayError, input};
use crate::Failure;
use crate::error::UsageError;

#[derive(Args, Clone, Debug)]
pub(crate) struct Flags {
    /// A CSV file of the thesis's traces, of openb's pods, of PAI's tasks, of Helios's jobs or of run times, Philly's JSON, what
    /// sacct --parsable2 prints, a script of CARMA's, a file in the Standard Workload Format (any of them may be gzipped), or
    /// synthetic:N
    #[arg(value_name = "TRACE", required_unless_present = "events")]
    pub(super) traces: Vec<PathBuf>,
    /// Feed a daemon's own log of events (its setting `events`) to the scheduler again, without a model; exit code 1
    /// if it decides otherwise
    #[arg(long, value_name = "FILE", conflicts_with = "traces")]
    pub(super) events: Option<PathBuf>,
    /// Devices: 4xA100-40GB, 2xT4+1xH200, or a file with the nodes of openb
    #[arg(long, value_name = "SPEC", default_value = "4xA100-40GB")]
    pub(super) gpus: String,
    // Names of policies: the list has them.
    #[arg(
        long,
        help = format!(
            "{}, or all, or a file such as my_policy.py: a policy in Python, slower than these; all but aware and files as \
             published",
            Policy::ALL.map(Policy::name).join(", ")
        ),
        value_name = "LIST",
        default_value = "exclusive,magm,aware",
        default_value_if("preset", "rad-rm", "magm")
    )]
    pub(super) policy: Policies,
    /// Settings of another system in radrmd: rad-rm; its policy where --policy is not given
    #[arg(long, value_name = "NAME", conflicts_with = "settings")]
    pub(super) preset: Option<Preset>,
    /// Predict slowdowns by a function speeds(jobs) in a Python file, for aware
    #[arg(long, value_name = "FILE")]
    pub(super) predictor: Option<PathBuf>,
    /// Most seconds that one call of a function in Python takes
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(super) call_limit: f64,
    /// Show what was decided for a job, and why: its number in the trace, from 0, or its name
    #[arg(long, value_name = "JOB")]
    pub(super) why: Option<String>,
    /// Source of needs: measured or oracle (peaks of equal runs), none, history (runs that ended in the trace
    /// before), dry (recorded dry runs), learned (the learned model on recorded FakeTensor figures), combined (all that
    /// radrmd has: dry runs, history, estimates), or the name of an estimator in the trace, such as horus
    #[arg(long, value_name = "E", default_value = "measured", value_parser = source)]
    pub(super) estimator: Source,
    /// Recorded estimates and run times: CSV with rad (a job's name in the trace), dry_run_mib, est_NAME_mib, duration_min
    #[arg(long, value_name = "FILE", conflicts_with = "events")]
    pub(super) estimates: Option<PathBuf>,
    /// Known run times and activities: all, learned (of programs that ended before), predicted (likewise, and of others
    /// activities as dry runs predict them), none
    #[arg(long, value_name = "WHAT", default_value = "all", value_parser = knowledge)]
    pub(super) known: Knowledge,
    /// Sharing mode of a GPU: mps, streams, mig
    #[arg(long, value_name = "MODE", default_value = "mps", value_parser = mode)]
    pub(super) mode: Mode,
    /// Replays with chance, for intervals; 0: one without. There is no chance, and so one replay, for traces of which only
    /// run times are known
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(super) seeds: u64,
    /// Activity of programs that run alone: CSV with workload, smact_mean, smocc_mean, drama_mean
    #[arg(long, value_name = "FILE")]
    pub(super) profiles: Option<PathBuf>,
    /// Precondition on SM activity, or none
    #[arg(long, value_name = "PERCENT")]
    pub(super) smact: Option<Smact>,
    /// Free memory that a job of unknown need requires
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) min_free: Option<Bytes>,
    /// Memory that must stay free beside a known need
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) margin: Option<Bytes>,
    /// Factors on measured slowdowns; several give a table over them, against the best of the thesis's policies
    #[arg(long, value_name = "LIST", default_value = "1")]
    pub(super) interference: Factors,
    /// Each pair of programs slows down by a factor of its own between 1/X and X, so that predictions are wrong in
    /// their order
    #[arg(long, value_name = "X", value_parser = scatter)]
    pub(super) scatter: Option<f64>,
    /// Use of the devices by traces without arrivals
    #[arg(long, value_name = "X", default_value_t = 0.8, value_parser = positive)]
    pub(super) load: f64,
    /// Run time of jobs without a published one, minutes
    #[arg(long, value_name = "MIN", default_value_t = 5.0, value_parser = positive)]
    pub(super) unnamed: f64,
    /// Only the first N jobs
    #[arg(long, value_name = "N")]
    pub(super) jobs: Option<usize>,
    /// Constants of the model, TOML
    #[arg(long, value_name = "FILE")]
    pub(super) model: Option<PathBuf>,
    /// Settings of aware, TOML
    #[arg(long, value_name = "FILE")]
    pub(super) settings: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write one page with a picture of the GPUs, curves of memory, SM activity, power and energy over time, the distribution
    /// of completion times, and a row for each job
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write a row for each job and policy, of the first replay: a .csv or .json file
    #[arg(long, value_name = "FILE", conflicts_with = "events")]
    pub(super) jobs_out: Option<JobsOut>,
    /// Submit the jobs to radrmd at their times, wait until they have ended, and print what came out. TRACE may be a folder of
    /// .rad files, or a script of `sleep` and .rad files, too
    #[arg(long, requires = "traces", conflicts_with_all = ["events", "html", "jobs_out", "policy", "preset", "settings", "model", "mode",
        "interference", "scatter", "known", "gpus", "seeds", "profiles", "predictor", "why"])]
    pub(super) live: bool,
    /// Divide the time between two submissions, and {seconds} and {ms}, by X
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive, requires = "live")]
    pub(super) speed: f64,
    /// Folder of the jobs' .rad files [default: that of the trace]
    #[arg(long, value_name = "DIR")]
    pub(super) rad_files: Option<PathBuf>,
    /// The program of each job, in place of .rad files: {name}, {seconds}, {ms}, {gpus}, {mem_mib} and {batch} in its words are
    /// those of the job
    #[arg(last = true, value_name = "PROGRAM", requires = "live")]
    pub(super) program: Vec<String>,
}

impl Flags {
    /// Checks what the parsers of single options do not: whether traces can be made, and whether there are such GPUs.
    pub(super) fn check(&self, own: Option<OwnPolicy<'_>>) -> Result<(), Failure> {
        self.traces.iter().try_for_each(|trace| countable(trace))?;
        if !Path::new(&self.gpus).is_file() {
            input::named(&self.gpus)?;
        }
        if self.policy.0.contains(&Chosen::Own)
            && own.is_none()
            && let Some(error) = no_own()
        {
            return Err(UsageError::Policy(error.to_string()).into());
        }
        if self.predictor.is_some() && !self.policy.0.contains(&Chosen::Named(Policy::Aware)) {
            return Err(UsageError::PredictorAlone.into());
        }
        if self.html.is_some() && self.interference.0.len() > 1 {
            return Err(UsageError::OnePicture.into());
        }
        Ok(())
    }
}

/// Factors on slowdowns, in the order asked for.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Factors(pub(super) Vec<f64>);

impl FromStr for Factors {
    type Err = ReplayError;
    fn from_str(text: &str) -> Result<Self, ReplayError> {
        text.split(',').map(|factor| positive(factor.trim())).collect::<Result<_, _>>().map(Self)
    }
}

/// The precondition on SM activity, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Smact(pub(super) Option<Permille>);

impl FromStr for Smact {
    type Err = ReplayError;
    fn from_str(text: &str) -> Result<Self, ReplayError> {
        if text == "none" {
            return Ok(Self(None));
        }
        let percent = written::percent(text).map_err(ReplayError::NoSmact)?;
        Ok(Self(Some(Permille::from_fraction(percent / 100.0))))
    }
}

fn size(text: &str) -> Result<Bytes, LimitError> {
    amount::bytes(text).map(Bytes)
}

fn positive(text: &str) -> Result<f64, ReplayError> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| ReplayError::NotPositive(text.to_owned()))
}

fn seconds(text: &str) -> Result<f64, ReplayError> {
    const MAX_LIMIT: f64 = 1e6;
    positive(text).map(|seconds| seconds.clamp(0.001, MAX_LIMIT))
}

fn scatter(text: &str) -> Result<f64, ReplayError> {
    let value = text.parse().ok().filter(|value: &f64| (1.0..=1000.0).contains(value));
    value.ok_or_else(|| ReplayError::NoScatter(text.to_owned()))
}

/// Sources of needs that every trace has, by name; any other name is that of an estimator in the trace. Papers write them with
/// capitals.
pub(super) const SOURCES: [(&str, Source); 7] = [
    ("measured", Source::Measured),
    ("oracle", Source::Measured),
    ("none", Source::Unknown),
    ("history", Source::History),
    ("dry", Source::DryRun),
    ("learned", Source::Learned),
    ("combined", Source::Combined),
];

fn source(text: &str) -> Result<Source, Infallible> {
    let text = text.to_ascii_lowercase();
    let found = SOURCES.into_iter().find(|(name, _)| *name == text);
    Ok(found.map_or(Source::Column(text), |(_, source)| source))
}

fn knowledge(text: &str) -> Result<Knowledge, ReplayError> {
    match text {
        "all" => Ok(Knowledge::All),
        "learned" => Ok(Knowledge::Learned),
        "predicted" => Ok(Knowledge::Predicted),
        "none" => Ok(Knowledge::Nothing),
        other => Err(ReplayError::NoneOf(other.to_owned(), "all, learned, predicted and none")),
    }
}

fn mode(text: &str) -> Result<Mode, ReplayError> {
    match text {
        "mps" => Ok(Mode::Mps),
        "streams" => Ok(Mode::Streams),
        "mig" => Ok(Mode::Mig),
        other => Err(ReplayError::NoneOf(other.to_owned(), "mps, streams and mig")),
    }
}

/// The most jobs that are made: they are all in memory, and a slip of the pen is no order.
const MAX_JOBS: usize = 5_000_000;

/// Checks that a trace is a file's, or of a number of jobs that can be made.
fn countable(trace: &Path) -> Result<(), UsageError> {
    let Some(count) = trace.to_str().and_then(|name| name.strip_prefix(SYNTHETIC)) else { return Ok(()) };
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UsageError::NoNumber(trace.to_owned()));
    }
    match synthetic(trace).filter(|count| *count <= MAX_JOBS) {
        Some(_) => Ok(()),
        None => Err(UsageError::TooManyJobs { trace: trace.to_owned(), most: MAX_JOBS }),
    }
}

/// Prefix of the name of a trace that is made here.
const SYNTHETIC: &str = "synthetic:";

/// The number of jobs of `synthetic:N`.
pub(super) fn synthetic(trace: &Path) -> Option<usize> {
    trace.to_str()?.strip_prefix(SYNTHETIC)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_cannot_be_made_and_gpus_that_there_are_not_are_wrong_command_lines() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            flags: Flags,
        }
        let check = |words: &[&str]| {
            let line = <Line as clap::Parser>::try_parse_from([&["replay"], words].concat());
            line.unwrap().flags.check(None)
        };
        check(&["synthetic:5000000", "none.csv"]).unwrap();
        for (words, part) in [
            (&["synthetic:"][..], "after the colon"),
            (&["synthetic:x"], "after the colon"),
            (&["synthetic:-1"], "after the colon"),
            (&["x.csv", "synthetic:5000001"], "no more than 5000000"),
            (&["synthetic:99999999999999"], "no more than 5000000"),
            (&["synthetic:99999999999999999999999999"], "no more than 5000000"),
            (&["synthetic:3", "--gpus", "4xB9000"], "--gpus: there is no model"),
            (&["synthetic:3", "--gpus", "0xT4"], "--gpus: "),
            (&["synthetic:3", "--policy", "own"], "there is no policy own"),
            (&["synthetic:3", "--policy", "magm", "--predictor", "p.py"], "aware alone"),
            (&["synthetic:3", "--gpus", "600000xT4+600000xT4"], "--gpus: "),
        ] {
            let why = check(words).unwrap_err().to_string();
            assert!(why.contains(part) && why.lines().count() == 1, "{words:?}: {why}");
        }
    }

    #[test]
    fn names_and_amounts_are_read() {
        for name in ["horus", "Horus"] {
            assert_eq!(source(name), Ok(Source::Column("horus".into())));
        }
        assert_eq!(
            (source("Oracle"), source("GPUMemNet")),
            (Ok(Source::Measured), Ok(Source::Column("gpumemnet".into())))
        );
        let smact = |text: &str| text.parse().map(|Smact(value)| value);
        assert!(matches!((smact("80%"), smact("none")), (Ok(Some(Permille(800))), Ok(None))));
        assert_eq!("0.25, 1,4".parse::<Factors>().unwrap(), Factors(vec![0.25, 1.0, 4.0]));
        assert!("1,0".parse::<Factors>().is_err() && "".parse::<Factors>().is_err());
        assert!(scatter("4").is_ok() && scatter("0.5").is_err() && scatter("inf").is_err());
        assert!(smact("0.8").is_err_and(|why| why.to_string().contains("0.8 may be 0.8 % or 80 %")));
        assert!(smact("140").is_err() && positive("0").is_err() && positive("nan").is_err());
        assert_eq!(synthetic(Path::new("synthetic:25")), Some(25));
        assert_eq!(synthetic(Path::new("synthetic:x")), None);
        assert_eq!(synthetic(Path::new("synthetic:")), None);
        assert!(mode("mps").is_ok() && mode("mp").is_err() && knowledge("some").is_err());
        assert_eq!(knowledge("predicted").unwrap(), Knowledge::Predicted);
    }
}
