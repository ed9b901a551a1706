//! The command line of `radrm replay`.

use std::path::{Path, PathBuf};

use clap::Args;
use radrm_limits::amount;
use radrm_scheduler_core::replay::{Knowledge, Mode, Source};
use radrm_scheduler_core::{Bytes, Permille, Policy};
use radrm_telemetry::ledger::Amount;

use super::input;

/// Flags as written.
#[derive(Args, Debug)]
pub struct Flags {
    /// A CSV file of the thesis's traces, of openb's pods or of run times, a file in the Standard Workload Format
    /// (any of them may be gzipped), or synthetic:N
    #[arg(required_unless_present = "events")]
    trace: Vec<PathBuf>,
    /// Feed a daemon's own log of events (its setting `events`) to the scheduler again, without a model; exit code 1
    /// if it decides otherwise
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    events: Option<PathBuf>,
    /// Devices: 4xA100-40GB, 2xT4+1xH200, or a file with the nodes of openb
    #[arg(long, value_name = "SPEC", default_value = "4xA100-40GB")]
    gpus: String,
    /// exclusive, round-robin, magm, lug, mug, first-fit, best-fit, worst-fit, aware, or all; all but aware as
    /// published
    #[arg(long, value_name = "LIST", default_value = "exclusive,magm,aware")]
    policy: String,
    /// Where needs come from: measured or oracle (peaks of equal runs), none, history (runs that ended in the trace
    /// before), or the name of an estimator in the trace, such as horus
    #[arg(long, value_name = "E", default_value = "measured")]
    estimator: String,
    /// Which run times and activities are known: all, learned (of programs that ended before), none
    #[arg(long, value_name = "WHAT", default_value = "all")]
    known: String,
    /// How jobs share a GPU: mps, streams, mig
    #[arg(long, value_name = "MODE", default_value = "mps")]
    mode: String,
    /// Replays with chance, for intervals; 0: one without
    #[arg(long, value_name = "N", default_value_t = 5)]
    seeds: u64,
    /// What programs do to a GPU alone: CSV with workload, smact_mean, smocc_mean, drama_mean
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Precondition on SM activity, or none
    #[arg(long, value_name = "PERCENT")]
    smact: Option<String>,
    /// Free memory that a job of unknown need requires
    #[arg(long, value_name = "SIZE")]
    min_free: Option<String>,
    /// Memory that must stay free beside a known need
    #[arg(long, value_name = "SIZE")]
    margin: Option<String>,
    /// Factor on measured slowdowns
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    interference: f64,
    /// Use of the devices by traces without arrivals
    #[arg(long, value_name = "X", default_value_t = 0.8)]
    load: f64,
    /// Run time of jobs without a published one, minutes
    #[arg(long, value_name = "MIN", default_value_t = 5.0)]
    unnamed: f64,
    /// Only the first N jobs
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Constants of the model, TOML
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Settings of aware, TOML
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write one page with a picture of the GPUs over time
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What is to be replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Traces, or `synthetic:N`.
    pub traces: Vec<PathBuf>,
    /// A daemon's log of events in place of traces.
    pub events: Option<PathBuf>,
    /// Devices as written.
    pub gpus: String,
    /// Policies, in the order asked for.
    pub policies: Vec<Policy>,
    /// Where needs come from.
    pub source: Source,
    /// What else is known.
    pub knowledge: Knowledge,
    /// How jobs share.
    pub mode: Mode,
    /// Replays with chance; 0: one without.
    pub seeds: u64,
    /// Workloads.
    pub profiles: Option<PathBuf>,
    /// Precondition on SM activity: outer `None` leaves the policy's own.
    pub smact: Option<Option<Permille>>,
    /// Memory for unknown needs.
    pub min_free: Option<Bytes>,
    /// Memory beside known needs.
    pub margin: Option<Bytes>,
    /// Factor on slow-downs.
    pub interference: f64,
    /// Use of the devices.
    pub load: f64,
    /// Run time of unnamed jobs, in minutes.
    pub unnamed: f64,
    /// At most so many jobs.
    pub jobs: usize,
    /// The model's constants.
    pub model: Option<PathBuf>,
    /// Settings of `aware`.
    pub settings: Option<PathBuf>,
    /// As JSON.
    pub json: bool,
    /// A page.
    pub html: Option<PathBuf>,
}

impl Flags {
    /// What the flags mean.
    ///
    /// # Errors
    /// One sentence.
    pub fn order(self) -> Result<Order, String> {
        let size = |flag: &str, text: &Option<String>| -> Result<Option<Bytes>, String> {
            let Some(text) = text else { return Ok(None) };
            match amount::parse(text) {
                Ok(Amount::Bytes(bytes)) => Ok(Some(Bytes(bytes))),
                Ok(_) => Err(format!("{flag}: `{text}` is no amount of memory such as 2GiB")),
                Err(why) => Err(format!("{flag}: {why}")),
            }
        };
        let positive = |flag: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(value)
            } else {
                Err(format!("{flag}: {value} is not a number above 0"))
            }
        };
        self.trace.iter().try_for_each(|trace| countable(trace))?;
        if !Path::new(&self.gpus).is_file() {
            input::named(&self.gpus)?;
        }
        Ok(Order {
            policies: policies(&self.policy)?,
            source: source(&self.estimator),
            knowledge: knowledge(&self.known)?,
            mode: mode(&self.mode)?,
            smact: self.smact.as_deref().map(smact).transpose()?,
            min_free: size("--min-free", &self.min_free)?,
            margin: size("--margin", &self.margin)?,
            interference: positive("--interference", self.interference)?,
            load: positive("--load", self.load)?,
            unnamed: positive("--unnamed", self.unnamed)?,
            traces: self.trace,
            events: self.events,
            gpus: self.gpus,
            seeds: self.seeds,
            profiles: self.profiles,
            jobs: self.jobs.unwrap_or(usize::MAX),
            model: self.model,
            settings: self.settings,
            json: self.json,
            html: self.html,
        })
    }
}

fn policies(text: &str) -> Result<Vec<Policy>, String> {
    if text == "all" {
        return Ok(Policy::ALL.to_vec());
    }
    let read = |name: &str| match name.trim() {
        "all" => Err("--policy: all stands alone".to_owned()),
        name => name.parse().map_err(|error| format!("--policy: {error}, or all")),
    };
    text.split(',').map(read).collect()
}

/// Sources of needs that every trace has, by name; any other name is that of an estimator in the trace.
pub(super) const SOURCES: [(&str, Source); 4] = [
    ("measured", Source::Measured),
    ("oracle", Source::Measured),
    ("none", Source::Unknown),
    ("history", Source::History),
];

fn source(text: &str) -> Source {
    let found = SOURCES.into_iter().find(|(name, _)| *name == text);
    found.map_or_else(|| Source::Column(text.to_owned()), |(_, source)| source)
}

fn knowledge(text: &str) -> Result<Knowledge, String> {
    match text {
        "all" => Ok(Knowledge::All),
        "learned" => Ok(Knowledge::Learned),
        "none" => Ok(Knowledge::Nothing),
        other => Err(format!("--known: {other} is none of all, learned and none")),
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "mps" => Ok(Mode::Mps),
        "streams" => Ok(Mode::Streams),
        "mig" => Ok(Mode::Mig),
        other => Err(format!("--mode: {other} is none of mps, streams and mig")),
    }
}

fn smact(text: &str) -> Result<Option<Permille>, String> {
    if text == "none" {
        return Ok(None);
    }
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Some(Permille::from_fraction(percent / 100.0))),
        _ => Err(format!("--smact: {text} is neither a percentage nor none")),
    }
}

/// The most jobs that are made: they are all in memory, and a slip of the pen is no order.
const MOST_JOBS: usize = 5_000_000;

/// Whether a trace is a file's, or of a number of jobs that can be made.
fn countable(trace: &Path) -> Result<(), String> {
    let Some(count) = trace.to_str().and_then(|name| name.strip_prefix(SYNTHETIC)) else { return Ok(()) };
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{}: the number of jobs is to stand after the colon", trace.display()));
    }
    match synthetic(trace).filter(|count| *count <= MOST_JOBS) {
        Some(_) => Ok(()),
        None => Err(format!("{}: no more than {MOST_JOBS} jobs are made", trace.display())),
    }
}

/// What a trace's name begins with that is made here.
const SYNTHETIC: &str = "synthetic:";

/// The number of jobs of `synthetic:N`.
#[must_use]
pub fn synthetic(trace: &Path) -> Option<usize> {
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
        let order = |words: &[&str]| {
            let line = <Line as clap::Parser>::try_parse_from([&["replay"], words].concat());
            line.unwrap().flags.order()
        };
        order(&["synthetic:5000000", "none.csv"]).unwrap();
        for (words, part) in [
            (&["synthetic:"][..], "after the colon"),
            (&["synthetic:x"], "after the colon"),
            (&["synthetic:-1"], "after the colon"),
            (&["x.csv", "synthetic:5000001"], "no more than 5000000"),
            (&["synthetic:99999999999999"], "no more than 5000000"),
            (&["synthetic:99999999999999999999999999"], "no more than 5000000"),
            (&["synthetic:3", "--gpus", "4xB9000"], "--gpus: there is no model"),
            (&["synthetic:3", "--gpus", "0xT4"], "--gpus: "),
            (&["synthetic:3", "--gpus", "600000xT4+600000xT4"], "--gpus: "),
        ] {
            let why = order(words).unwrap_err();
            assert!(why.contains(part) && why.lines().count() == 1, "{words:?}: {why}");
        }
    }

    #[test]
    fn names_and_amounts_are_read() {
        assert_eq!(policies("all").map(|all| all.len()), Ok(Policy::ALL.len()));
        assert_eq!(policies("rr, aware"), Ok(vec![Policy::RoundRobin, Policy::Aware]));
        assert!(
            policies("fastest")
                .is_err_and(|why| why.contains("no policy fastest") && why.ends_with(", or all"))
        );
        assert_eq!(policies("aware,all"), Err("--policy: all stands alone".to_owned()));
        assert_eq!(source("horus"), Source::Column("horus".into()));
        assert_eq!(smact("80%"), Ok(Some(Permille(800))));
        assert_eq!(smact("none"), Ok(None));
        assert!(smact("140").is_err());
        assert_eq!(synthetic(Path::new("synthetic:25")), Some(25));
        assert_eq!(synthetic(Path::new("synthetic:x")), None);
        assert_eq!(synthetic(Path::new("synthetic:")), None);
        assert!(mode("mps").is_ok() && mode("mp").is_err() && knowledge("some").is_err());
    }
}
