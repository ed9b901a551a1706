//! `radrm sbatch`: a batch job that asks Slurm for the GPU memory that it needs.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, CommandFactory, Parser};
use radrm_collector::dataset::script_word;
use radrm_limits::amount;
use radrm_need::{DryRun, Need, UserEstimate};
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::NodeRow;
use radrm_protocol::words;
use radrm_scheduler_core::{Bytes, Impossible, Oversized, Recovery, Settings};
use radrm_text::output::say;

use super::cluster::{self, Cluster};
use super::line::Line;
use super::script::Script;
use super::{SlurmError, gres, programs};
use crate::client::own_runs::OwnRuns;
use crate::client::{dry_run, rad};
use crate::error::UsageError;
use crate::{Failure, NAME};

/// Our options.
#[derive(Args, Debug, Default)]
pub struct Asks {
    /// Memory on the GPU, for instance 10GiB, instead of what earlier runs and estimates say
    #[arg(long, value_name = "AMOUNT", value_parser = amount::bytes)]
    gpu_mem: Option<u64>,
    /// Estimated memory on the GPU, until a run was measured
    #[arg(long, value_name = "AMOUNT", value_parser = amount::bytes, conflicts_with = "gpu_mem")]
    gpu_mem_estimate: Option<u64>,
    /// Run the script here first, without a GPU, for STEPS optimizer steps (3), and estimate from what it would hold
    #[arg(long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "3",
          value_parser = clap::value_parser!(u64).range(1..))]
    dry_run: Option<u64>,
    /// Samples in a batch, if the script's arguments do not name it: earlier runs of the script are compared by it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// The model's summary as torchsummary, torchinfo or Keras print it, for an estimate before the first run
    #[arg(long, value_name = "FILE")]
    model_summary: Option<PathBuf>,
    /// Run it again with more memory when it ran out of it, at most N times in all [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: Option<u32>,
    /// GPU memory that one shard of the cluster stands for [default: 1MiB]
    #[arg(long, value_name = "AMOUNT", value_parser = amount::bytes)]
    shard: Option<u64>,
    /// Take earlier runs from this database
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
}

/// The flags as written.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    asks: Asks,
    /// Options of sbatch, the script and its arguments
    #[arg(value_name = "SBATCH-OPTIONS... SCRIPT", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Our options among those of `sbatch`.
#[derive(Parser, Debug)]
#[command(no_binary_name = true, disable_help_flag = true, args_override_self = true)]
struct Own {
    #[command(flatten)]
    asks: Asks,
}

/// Resources that a job asks for by itself, on the command line or in its script.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Wanted {
    /// `--gres`.
    gres: String,
    /// It names GPUs or shards.
    names_gpus: bool,
    /// It has a `--gpu-mem` for the plug-in, which holds in every attempt.
    has_limit: bool,
}

impl Wanted {
    fn of(line: &Line, script: &Line) -> Self {
        const GPUS: [&str; 4] = ["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"];
        let gres = line.value("gres").or_else(|| script.value("gres")).unwrap_or_default();
        let gres = gres.to_string_lossy().into_owned();
        let in_list = ["gpu", "shard", "mps"].iter().any(|name| gres::count(&gres, name).is_some());
        let names_gpus = in_list || GPUS.iter().any(|name| line.has(name) || script.has(name));
        Self { gres, names_gpus, has_limit: script.has("gpu-mem") }
    }

    /// `--gres` with one more item.
    fn with(&self, item: &str) -> String {
        let comma = if self.gres.is_empty() { "" } else { "," };
        format!("--gres={}{comma}{item}", self.gres)
    }
}

/// Job specification of a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Asked {
    words: Vec<String>,
    /// Sentence on what it asks for and why.
    said: String,
}

/// Properties of the place to which it goes, as far as known.
#[derive(Clone, Copy, Debug)]
struct Place {
    cluster: Cluster,
    has_plugin: bool,
    /// GPU memory that a shard stands for.
    unit: u64,
    attempts: u32,
}

impl Place {
    fn largest(&self) -> Option<Bytes> {
        self.cluster.largest.map(|shards| Bytes(shards.saturating_mul(self.unit)))
    }

    /// Words that only the plug-in knows.
    fn of_plugin(&self, words: impl IntoIterator<Item = String>) -> Vec<String> {
        words.into_iter().filter(|_| self.has_plugin).collect()
    }

    /// Turns a need into options.
    ///
    /// # Errors
    /// No GPU can hold it.
    fn ask(&self, wanted: &Wanted, need: Option<&Need>) -> Result<Asked, SlurmError> {
        let whole = |said: String, limit: Option<&Need>| {
            let limit = limit.filter(|need| need.enforce && !wanted.has_limit);
            let limit = limit.map(|need| format!("--gpu-mem={}b", need.upper.0));
            let gres = (!wanted.names_gpus).then(|| wanted.with("gpu:1"));
            let plugin = self.of_plugin([limit.unwrap_or_else(|| "--radrm=profile".to_owned())]);
            Asked { words: gres.into_iter().chain(plugin).collect(), said }
        };
        let Some(need) = need else {
            let gets = if wanted.names_gpus { "the GPUs that it asks for" } else { "a GPU of its own" };
            return Ok(whole(format!("what the job needs is not known: it gets {gets}"), None));
        };
        if wanted.names_gpus {
            return Ok(whole(format!("the job {need}; it gets the GPUs that it asks for"), Some(need)));
        }
        let Some(largest) = self.largest() else {
            let said =
                format!("the job {need}; it gets a GPU of its own, because the cluster counts no shards");
            return Ok(whole(said, Some(need)));
        };
        if need.upper > largest {
            if need.source.is_confirmed() {
                return Err(SlurmError::Impossible(Impossible::Memory { need: need.upper, largest }));
            }
            let oversized = Oversized { need: need.upper, largest, gpus: 1 };
            return Ok(whole(format!("the job {need}; {oversized}"), None));
        }
        let reserved = need.reserved(Settings::default().slack, largest);
        let shards = reserved.0.div_ceil(self.unit).max(1);
        let gres = wanted.with(&format!("shard:{shards}"));
        // A limit in the script holds in every attempt, so that more shards would not help.
        let attempts = if wanted.has_limit { 1 } else { self.attempts };
        let plugin = self.of_plugin([format!("--gpu-attempts={attempts}")]);
        let times = match attempts {
            1 => String::new(),
            _ if self.has_plugin => format!(", at most {attempts} attempts"),
            _ => String::new(),
        };
        let said = format!("the job {need}; it asks for {shards} shards ({reserved} of one GPU){times}");
        Ok(Asked { words: [gres].into_iter().chain(plugin).collect(), said })
    }
}

/// Resolves the need and becomes `sbatch`.
///
/// # Errors
/// [`Failure`]: nothing was submitted.
pub(crate) fn run(flags: Flags) -> Result<u8, Failure> {
    let Flags { asks, words } = flags;
    let own = own_options();
    let mut line = Line::parse(words, &own);
    let is_own = |name: &str| own.iter().any(|(own, _)| own == name);
    let (ours, theirs) = line.options.into_iter().partition(|given| is_own(&given.name));
    line.options = theirs;
    let asks = together(asks, ours)?;
    if ["help", "usage", "version"].iter().any(|name| line.has(name)) {
        return Err(submit(&line, &[], None)?.into());
    }
    // Before anything is read or run.
    programs::find("sbatch")?;
    let script = Script::read(line.script.as_deref(), line.value("wrap"))?;
    let of_script = Line::of_script(&script.content, &own);
    let wanted = Wanted::of(&line, &of_script);
    let mut remarks = Vec::new();
    let need = need(&asks, &line, &of_script, &script, &mut remarks)?;
    let partition = line.value("partition").or_else(|| of_script.value("partition"));
    let place = Place {
        cluster: Cluster::ask(partition)?,
        has_plugin: cluster::has_plugin()?,
        unit: asks.shard.unwrap_or(1 << 20),
        attempts: asks.attempts.unwrap_or(Recovery::default().attempts),
    };
    let asked = place.ask(&wanted, need.as_ref())?;
    if !line.has("quiet") {
        if !place.has_plugin {
            remarks.push(
                "Slurm's plug-in of RADRM is not loaded here: nothing keeps the job to its memory, and it is not recorded"
                    .to_owned(),
            );
        }
        remarks.iter().chain([&asked.said]).for_each(|sentence| say(NAME, sentence));
    }
    Err(submit(&line, &asked.words, Some(&script))?.into())
}

/// The names of our options, and whether they take the next word.
fn own_options() -> Vec<(String, bool)> {
    let command = Own::command();
    let named = command
        .get_arguments()
        .filter_map(|argument| Some((argument.get_long()?.to_owned(), !argument.is_require_equals_set())));
    named.collect()
}

/// Our options before and among those of `sbatch`.
fn together(asks: Asks, ours: Vec<super::line::Given>) -> Result<Asks, Failure> {
    let mut own = Own { asks };
    let words = ours.into_iter().flat_map(|given| given.words);
    own.try_update_from(words).map_err(|error| Failure::Line(radrm_text::usage::explain(&error)))?;
    Ok(own.asks)
}

/// Need of the job, by what its user states, by its earlier runs, and by a dry run.
fn need(
    asks: &Asks,
    line: &Line,
    of_script: &Line,
    script: &Script,
    remarks: &mut Vec<String>,
) -> Result<Option<Need>, Failure> {
    let here = env::current_dir().map_err(Failure::NoDirectory)?;
    let directory = line.value("chdir").or_else(|| of_script.value("chdir"));
    let first = script_word(&script.content);
    let arguments = line.arguments.iter().map(|word| words::encode(word));
    let of_script = of_script.value("gpu-mem").and_then(|text| amount::bytes(&text.to_string_lossy()).ok());
    let mut spec = Spec {
        command: [first].into_iter().chain(arguments).collect(),
        cwd: directory.map_or_else(|| here.clone(), |directory| here.join(directory)),
        gpus: 1,
        mem: asks.gpu_mem.or(of_script),
        batch: asks.batch_size,
        ..Spec::default()
    };
    if let Some(bytes) = asks.gpu_mem_estimate.map(Bytes) {
        spec.estimate = Some(UserEstimate { bytes, upper: bytes, ..UserEstimate::default() });
    }
    if let Some(path) = &asks.model_summary {
        spec.summary = Some(rad::summary(path).map_err(|why| Failure::ModelSummary(why.into()))?);
    }
    spec.check().map_err(UsageError::Job)?;
    if let Some(steps) = asks.dry_run.filter(|_| spec.mem.is_none()) {
        match try_dry(&spec, script, steps, line.has("quiet")) {
            Ok(held) => spec.dry_run = Some(held),
            Err(why) => remarks.push(format!("nothing is estimated by a dry run: {why}")),
        }
    }
    Ok(OwnRuns::of(&spec, asks.dataset.as_deref())?.needs(&spec).memory)
}

/// Runs the script here on an emulated GPU.
fn try_dry(spec: &Spec, script: &Script, steps: u64, quiet: bool) -> Result<DryRun, Failure> {
    if script.starts_steps() {
        return Err(SlurmError::StartsSteps.into());
    }
    let (path, _copy) = script
        .as_file()
        .map_err(|source| SlurmError::Script { path: "a copy of the script".into(), source })?;
    let program = script.interpreter().into_iter().chain([path.into_os_string()]);
    let program = program.map(|word| words::encode(&word));
    let command = program.chain(spec.command.iter().skip(1).cloned()).collect();
    let spec = Spec { command, ..spec.clone() };
    // What GPUs the cluster has is not known by model; the usual one is emulated.
    Ok(dry_run::estimate(&spec, steps, &NodeRow::default(), quiet)?)
}

/// Becomes `sbatch`; returns why it could not.
fn submit(line: &Line, more: &[String], script: Option<&Script>) -> Result<SlurmError, SlurmError> {
    let mut command = Command::new(programs::find("sbatch")?);
    command.args(line.options.iter().flat_map(|given| &given.words)).args(more);
    if let Some(path) = &line.script {
        command.arg(path).args(&line.arguments);
    } else if let Some(script) = script.filter(|_| !line.has("wrap")) {
        let input = script.as_input();
        let input = input.map_err(|source| SlurmError::Script { path: "standard input".into(), source })?;
        command.stdin(input);
    }
    Ok(programs::become_program("sbatch", command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_need::Source;

    fn place() -> Place {
        let cluster = Cluster { has_gpus: true, largest: Some(81_920) };
        Place { cluster, has_plugin: true, unit: 1 << 20, attempts: 4 }
    }

    fn estimated(gib: u64) -> Need {
        Need::new(Bytes::from_gib(gib), Bytes::from_gib(gib), None, Source::UserEstimate)
    }

    #[test]
    fn a_need_becomes_shards_and_the_reason_is_stated() {
        let asked = place().ask(&Wanted::default(), Some(&Need::declared(Bytes::from_gib(10)))).unwrap();
        assert_eq!(asked.words, ["--gres=shard:10240", "--gpu-attempts=4"]);
        assert!(
            asked.said.contains("requested 10.0 GiB") && asked.said.contains("10240 shards"),
            "{}",
            asked.said
        );
        // Two runs are never alike to the byte.
        let asked = place().ask(&Wanted::default(), Some(&Need::measured(Bytes::from_gib(10)))).unwrap();
        assert_eq!(asked.words[0], "--gres=shard:10445");
        let coarse = Place { unit: 1 << 30, ..place() };
        let asked = coarse.ask(&Wanted::default(), Some(&Need::declared(Bytes((10 << 30) + 1)))).unwrap();
        assert_eq!(asked.words[0], "--gres=shard:11", "never less than it needs");
    }

    #[test]
    fn other_resources_and_limits_of_the_script_stay() {
        let need = Need::declared(Bytes::from_gib(1));
        let wanted = Wanted { gres: "tmp:1".into(), has_limit: true, ..Wanted::default() };
        let asked = place().ask(&wanted, Some(&need)).unwrap();
        assert_eq!(asked.words, ["--gres=tmp:1,shard:1024", "--gpu-attempts=1"]);
        let whole = Wanted { gres: "gpu:2".into(), names_gpus: true, has_limit: false };
        assert_eq!(place().ask(&whole, Some(&need)).unwrap().words, ["--gpu-mem=1073741824b"]);
        // A limit at a figure that no run confirmed would break a program that fits.
        assert_eq!(place().ask(&whole, Some(&estimated(1))).unwrap().words, ["--radrm=profile"]);
    }

    #[test]
    fn a_job_of_unknown_need_gets_a_gpu_and_is_recorded() {
        let asked = place().ask(&Wanted::default(), None).unwrap();
        assert_eq!(asked.words, ["--gres=gpu:1", "--radrm=profile"]);
        let bare = Place { has_plugin: false, ..place() };
        assert_eq!(bare.ask(&Wanted::default(), None).unwrap().words, ["--gres=gpu:1"]);
        let uncounted = Place { cluster: Cluster { has_gpus: true, largest: None }, ..place() };
        let asked = uncounted.ask(&Wanted::default(), Some(&Need::declared(Bytes::from_gib(1)))).unwrap();
        assert_eq!(asked.words, ["--gres=gpu:1", "--gpu-mem=1073741824b"]);
    }

    #[test]
    fn what_no_gpu_can_hold_is_rejected_and_an_estimate_is_only_one() {
        let error = place().ask(&Wanted::default(), Some(&Need::declared(Bytes::from_gib(81)))).unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.contains("81.0 GiB") && sentence.contains("80.0 GiB"), "{sentence}");
        let asked = place().ask(&Wanted::default(), Some(&estimated(81))).unwrap();
        assert_eq!(asked.words, ["--gres=gpu:1", "--radrm=profile"]);
    }

    #[test]
    fn our_options_stand_among_those_of_sbatch() {
        let own = own_options();
        let words = "-p main --gpu-mem 3GiB --dry-run --attempts=2 t.sh --gpu-mem 1GiB";
        let line = Line::parse(words.split(' ').map(OsString::from), &own);
        let (ours, theirs): (Vec<_>, Vec<_>) =
            line.options.into_iter().partition(|given| own.iter().any(|(name, _)| *name == given.name));
        assert_eq!(theirs.len(), 1);
        let asks = together(Asks { gpu_mem: Some(1), ..Asks::default() }, ours).unwrap();
        assert_eq!((asks.gpu_mem, asks.attempts, asks.dry_run), (Some(3 << 30), Some(2), Some(3)));
        let wrong = Line::parse(["--gpu-mem=3G".into()], &own).options;
        let error = together(Asks::default(), wrong).unwrap_err();
        assert!(error.to_string().contains("--gpu-mem") && error.exit_code() == 2, "{error}");
    }

    #[test]
    fn gpus_that_a_job_names_are_found_wherever_it_names_them() {
        for (words, script, expected) in [
            ("--gres=gpu:2 s", "", true),
            ("-G2 s", "", true),
            ("s", "#SBATCH --gpus-per-node=1\n", true),
            ("s", "#SBATCH --gres=shard:7\n", true),
            ("--gres=tmp:1 s", "#SBATCH --gres=gpu:1\n", false),
            ("s", "", false),
        ] {
            let line = Line::parse(words.split(' ').map(OsString::from), &[]);
            let of_script = Line::of_script(script.as_bytes(), &[]);
            assert_eq!(Wanted::of(&line, &of_script).names_gpus, expected, "{words} {script}");
        }
    }
}
