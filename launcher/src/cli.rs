//! The command line of `radrm-run`: flags as written, and what they mean together.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};
use radrm_limits::LimitError;
use radrm_limits::config::{Mode, Percentage};
use radrm_limits::mps::protocol::Protocol;
use radrm_limits::program::kernels::Kernels;
use radrm_limits::requested::RequestedLimits;
use radrm_limits::steps::StepsRequest;
use radrm_text::usage::{Instead, explain};
use thiserror::Error;

use crate::NAME;
use crate::dry_run::flags::FlagsError;
use crate::dry_run::need::AskNode;
use crate::stacks::Stacks;
use crate::step_flags::StepFlags;

/// Columns of the help text, as of a narrow terminal.
const WIDTH: usize = 80;
const KERNELS: &str = "Kernels";
const EMULATION: &str = "Without a GPU";
const LIMITS: &str = "Limits";

/// Run a program and record what it does with the GPUs
///
/// Runs PROGRAM unchanged and records the GPU memory that it and its children hold, by GPU and by kind of memory, and
/// the kernels that they launch. The program keeps its output, its terminal, its signals and its exit code. At the end
/// radrm-run prints a report to standard error, writes a profile to PROGRAM.PID.radrm (the script's name or the program's, and its own process id) in
/// the current directory, and adds a row to the user's dataset.
#[derive(Parser, Debug)]
#[command(
    name = NAME,
    version,
    term_width = WIDTH,
    override_usage = "radrm-run [OPTIONS] [--] PROGRAM [ARGUMENTS...]",
    next_help_heading = "Report and profile",
    after_long_help = "\
Exit code:
  That of PROGRAM. If a signal killed it, radrm-run ends by the same signal.
  125  radrm-run itself failed, for instance by a wrong option
  126  PROGRAM cannot be executed
  127  PROGRAM was not found

Environment:
  RADRM_DISABLE=1      The program runs unrecorded
  RADRM_CONFIG=FILE    Limits, beside those in /etc/radrm/radrm.toml and
                       $XDG_CONFIG_HOME/radrm/radrm.toml; the strictest hold
  RADRM_LIB_DIR=DIR    Take libradrm.so and its companions from DIR
  XDG_DATA_HOME        The dataset is radrm/dataset.db in this directory, and
                       profiles go to radrm/profiles in it if the current
                       directory cannot be written

Examples:
  How much memory does this training need?
    radrm-run python3 train.py --epochs 3
  The same, over time, kept in train.radrm:
    radrm-run --timeline -o train.radrm -- ./train
  Try it without a GPU:
    radrm-run --emulate 2xH200 python3 train.py
  Two programs on the same emulated GPU:
    radrm-run --emulate H200 --machine /tmp/gpu -- ./first &
    radrm-run --emulate H200 --machine /tmp/gpu -- ./second
  Leave the rest of the GPU to others:
    radrm-run --mem-limit 20GiB python3 train.py
  Figures for another program:
    radrm-run --json=report.json --quiet ./job && jq .gpus report.json"
)]
struct Flags {
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, help_heading = "Arguments")]
    command: Vec<OsString>,
    /// Show memory over time in the report
    #[arg(long)]
    timeline: bool,
    /// While PROGRAM runs, show its memory, launches and refused requests in the last line of the terminal
    #[arg(long)]
    live: bool,
    /// Report as JSON, on standard error or in FILE; `-` is standard output, after the program's own
    ///
    /// FILE must be writable before the start. A profile is not overwritten.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    json: Option<Option<PathBuf>>,
    /// Print no report and no remarks, only failures
    #[arg(short, long)]
    quiet: bool,
    /// Write the profile to FILE; replaces an older profile, but no other file
    #[arg(short = 'o', long = "output", value_name = "FILE", conflicts_with = "no_profile")]
    output: Option<PathBuf>,
    /// Mode of the profile, such as 0644 [default: 0600]
    #[arg(long, value_name = "MODE", conflicts_with = "no_profile", value_parser = mode)]
    profile_mode: Option<u32>,
    /// Write no profile
    #[arg(long)]
    no_profile: bool,
    /// Add the row to this database
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// Add no row to a dataset
    #[arg(long, conflicts_with = "dataset")]
    no_dataset: bool,
    /// Recording of kernel launches: off, count, sample[:PERCENT] or all
    ///
    /// `sample` also times some launches on the GPU, in at most PERCENT of the running time (0.5); `all` times each.
    #[arg(long, value_name = "MODE", help_heading = KERNELS)]
    kernels: Option<Kernels>,
    /// Record the call stack of each request for GPU memory, so that the report says which lines hold it
    ///
    /// With BYTES, only of blocks of at least that size (64KiB); smaller ones are added up as "other stacks". With
    /// `tensors` also what held PyTorch's memory at its peak, by line, module and category, or JAX's when most was seen.
    /// `radrm report --stacks=folded|pprof|perfetto PROFILE` writes them for other tools.
    #[arg(long, value_name = "BYTES|tensors", num_args = 0..=1, require_equals = true, value_parser = Stacks::parse)]
    stacks: Option<Option<Stacks>>,
    /// Mark the steps of PyTorch's optimizers, by hooks that PyTorch has for that: `radrm top` shows steps a second
    #[arg(long)]
    mark_steps: bool,
    /// Run on emulated GPUs: 2xH200, A100-40GB, or the path of a TOML file
    ///
    /// `radrm machines` lists the models. Kernels are not computed; memory is counted exactly. Waiting takes no time
    /// unless RADRM_EMULATOR_TIME=real.
    #[arg(long, value_name = "SPEC", help_heading = EMULATION)]
    emulate: Option<String>,
    /// Keep the emulated machine in FILE, so that several programs share its GPUs
    ///
    /// With --emulate the file is created, or must hold the same machine; without --emulate it must exist.
    #[arg(long, value_name = "FILE", help_heading = EMULATION)]
    machine: Option<PathBuf>,
    /// Let the emulated driver fail on purpose
    ///
    /// oom@N, oom-after=BYTES, fragment=BYTES, launch-fail@N, sticky@N, slow=NS, missing=NAME,..., driver=VERSION
    #[arg(long, value_name = "SPEC", help_heading = EMULATION)]
    faults: Option<String>,
    /// Limit the GPU memory of PROGRAM and all that it starts together: 10GiB, 50%, or by GPU 0=10GiB,1=4GiB
    ///
    /// GPUs are numbers of nvidia-smi, or beginnings of GPU-... and MIG-... UUIDs. A request beyond the limit gets
    /// CUDA_ERROR_OUT_OF_MEMORY. `radrm quota` shows and changes limits while the job runs.
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true, help_heading = LIMITS, value_parser = RequestedLimits::parse)]
    mem_limit: Option<RequestedLimits>,
    /// The job's GPUs, by UUID and with commas between them, or `none`: it gets no memory of any other
    #[arg(long, value_name = "GPUS", hide = true, value_parser = RequestedLimits::only_on)]
    only_gpus: Option<RequestedLimits>,
    /// Limit the share of each GPU: of its multiprocessors under MPS, else of its time
    ///
    /// Without MPS the launches of the job wait for their time slices.
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, help_heading = LIMITS, value_parser = Percentage::parse)]
    sm_limit: Option<Percentage>,
    /// Run under NVIDIA's Multi-Process Service, started if necessary; each process gets at most PERCENT of a GPU's
    /// multiprocessors
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, require_equals = true, help_heading = LIMITS, value_parser = Percentage::parse)]
    mps: Option<Option<Percentage>>,
    /// The share under MPS where none is stated: this part of the multiprocessors was measured to be enough
    #[arg(long, value_name = "PERCENT", hide = true, value_parser = Percentage::parse)]
    measured_share: Option<Percentage>,
    /// The newest protocol of MPS to use: 2 or 3
    #[arg(long, value_name = "NUMBER", hide = true, value_parser = Protocol::parse)]
    mps_protocol: Option<Protocol>,
    /// GPUs may be divided into SM partitions under protocol 3 of MPS: the job gets one of this share, or of what is left
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, require_equals = true, hide = true, value_parser = Percentage::parse)]
    mps_partition: Option<Option<Percentage>>,
    #[command(flatten)]
    dry_run: crate::dry_run::flags::Flags,
    /// Start nothing: write the environment for PROGRAM to standard output, record until standard input ends
    ///
    /// For workload managers that start the processes themselves.
    #[arg(long, hide = true, conflicts_with_all = ["wait_all", "json"])]
    attend: bool,
    /// PROGRAM is a workload manager's copy of a batch script: the run is recorded under the script's content
    #[arg(long, hide = true, requires = "attend")]
    batch_script: bool,
    #[command(flatten)]
    steps: StepFlags,
    /// Wait for all descendants, not only for PROGRAM
    ///
    /// Otherwise radrm-run ends with PROGRAM, as a shell does that has jobs in the background. Processes that PROGRAM left
    /// running stay under the job's limits, and a recorder stays with them until the last of them has ended.
    #[arg(long, help_heading = "Waiting")]
    wait_all: bool,
    /// The caller ends what PROGRAM leaves running: no recorder stays with it
    #[arg(long, hide = true)]
    supervised: bool,
}

/// The whole command line as data, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Flags::command()
}

/// Destination of the report, and its form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReportTo {
    /// Text on standard error.
    Text {
        /// With memory over time.
        timeline: bool,
    },
    /// JSON on standard error.
    JsonOnStderr,
    /// JSON on standard output, behind the program's own.
    JsonOnStdout,
    /// JSON in a file, nothing on standard error.
    JsonFile(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// Destination of the profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProfileTo {
    /// `PROGRAM.PID.radrm` in the current directory, see [`radrm_profile::name`].
    Default,
    /// This file, replaced if it is there.
    File(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// Destination of the dataset's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowTo {
    /// The user's dataset.
    Default,
    /// This database.
    File(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// The emulated machine that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Emulate {
    /// Specification of the machine; without it the machine at `machine` must exist.
    pub spec: Option<String>,
    /// The machine file that is shared with other programs, made if there is a `spec`.
    pub machine: Option<PathBuf>,
    /// Faults for this program.
    pub faults: Option<String>,
}

/// Options of one launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Program and arguments; at least one.
    pub command: Vec<OsString>,
    /// The report.
    pub report: ReportTo,
    /// Show the figures of the moment in the last line of the terminal.
    pub live: bool,
    /// The profile.
    pub profile: ProfileTo,
    /// Its mode, if not its owner's alone.
    pub profile_mode: Option<u32>,
    /// The dataset.
    pub row: RowTo,
    /// The emulated machine, if any.
    pub emulate: Option<Emulate>,
    /// Limits on GPU memory for the whole job.
    pub mem_limit: Option<RequestedLimits>,
    /// The job gets no memory of other GPUs.
    pub only_gpus: Option<RequestedLimits>,
    /// Use the Multi-Process Service, perhaps with a share of the SMs for each process.
    pub mps: Option<Option<Percentage>>,
    /// The share of the GPUs that the job may use, by MPS where that runs, else by a launch budget.
    pub sm_limit: Option<Percentage>,
    /// The share under MPS where none is stated: it was measured to be enough.
    pub measured_share: Option<Percentage>,
    /// Newest protocol of MPS to use.
    pub mps_protocol: Option<Protocol>,
    /// SM partition under protocol 3 of MPS, of this share or of what is left.
    pub mps_partition: Option<Option<Percentage>>,
    /// Recording of kernel launches, if the shim's own choice is not wanted.
    pub kernels: Option<Kernels>,
    /// Record the call stacks of requests for memory of at least so many bytes.
    pub stacks: Option<u64>,
    /// Record what held the memory of the framework's allocator.
    pub tensors: bool,
    /// Mark the steps of PyTorch's optimizers.
    pub mark_steps: bool,
    /// The dry run, if one is wanted.
    pub dry_run: Option<crate::dry_run::flags::DryRun>,
    /// Client of this node's radrmd, for the need of a dry-run program; `None`: it is not asked.
    pub node: Option<AskNode>,
    /// Another program starts the processes.
    pub attend: bool,
    /// The control group of the processes that another program starts.
    pub control_group: Option<PathBuf>,
    /// The program is a copy of a batch script.
    pub batch_script: bool,
    /// Another program starts the processes in a container.
    pub in_container: bool,
    /// Limits on what all steps of the job may take together.
    pub steps: Option<StepsRequest>,
    /// Say nothing but failures.
    pub quiet: bool,
    /// Wait for every descendant, not only for the program.
    pub wait_all: bool,
    /// The caller ends what the program leaves running.
    pub supervised: bool,
}

/// Fault of a command line, as one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum CommandLineError {
    #[error("no program given")]
    NoProgram,
    #[error("the program's name is empty")]
    EmptyName,
    #[error(transparent)]
    DryRun(#[from] FlagsError),
    #[error("--faults works only with --emulate or --machine")]
    FaultsWithoutEmulation,
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("--sm-limit and --mps=PERCENT both state a share: give one of them")]
    TwoShares,
}

/// Reads a command line, the program's own name first.
///
/// # Errors
/// [`Instead`]: help was asked for, or the line is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Plan, Instead> {
    let flags = Flags::try_parse_from(arguments).map_err(|error| explain(&error))?;
    resolve(flags).map_err(|error| Instead::Wrong(error.to_string()))
}

fn resolve(flags: Flags) -> Result<Plan, CommandLineError> {
    if flags.command.is_empty() {
        return Err(CommandLineError::NoProgram);
    }
    if flags.command[0].is_empty() {
        return Err(CommandLineError::EmptyName);
    }
    let dry_run = flags.dry_run.resolve()?;
    if let Some(ranks) = dry_run.as_ref().and_then(|dry_run| dry_run.ranks.as_ref()) {
        ranks.check_command(&flags.command).map_err(FlagsError::from)?;
    }
    let usual = || dry_run.as_ref().map(|dry_run| dry_run.usual_machine().to_owned());
    let spec = flags.emulate.or_else(|| if flags.machine.is_none() { usual() } else { None });
    let emulated = spec.is_some() || flags.machine.is_some();
    if flags.faults.is_some() && !emulated {
        return Err(CommandLineError::FaultsWithoutEmulation);
    }
    if flags.sm_limit.is_some() && matches!(flags.mps, Some(Some(_))) {
        return Err(CommandLineError::TwoShares);
    }
    let report = match flags.json {
        Some(Some(file)) if file.as_os_str() == "-" => ReportTo::JsonOnStdout,
        Some(Some(file)) => ReportTo::JsonFile(file),
        Some(None) => ReportTo::JsonOnStderr,
        None if flags.quiet => ReportTo::Nowhere,
        None => ReportTo::Text { timeline: flags.timeline },
    };
    Ok(Plan {
        report,
        live: flags.live,
        profile: match flags.output {
            Some(file) => ProfileTo::File(file),
            None if flags.no_profile => ProfileTo::Nowhere,
            None => ProfileTo::Default,
        },
        profile_mode: flags.profile_mode,
        row: match flags.dataset {
            Some(file) => RowTo::File(file),
            None if flags.no_dataset => RowTo::Nowhere,
            None => RowTo::Default,
        },
        emulate: emulated.then_some(Emulate { spec, machine: flags.machine, faults: flags.faults }),
        mem_limit: flags.mem_limit,
        only_gpus: flags.only_gpus,
        mps: flags.mps,
        sm_limit: flags.sm_limit,
        measured_share: flags.measured_share,
        mps_protocol: flags.mps_protocol,
        mps_partition: flags.mps_partition,
        kernels: flags.kernels,
        stacks: flags.stacks.map(|stacks| stacks.map_or(0, Stacks::smallest)),
        tensors: flags.stacks.flatten() == Some(Stacks::Tensors),
        mark_steps: flags.mark_steps,
        dry_run,
        node: None,
        attend: flags.attend,
        control_group: flags.steps.control_group.clone(),
        batch_script: flags.batch_script,
        in_container: flags.steps.is_in_container(),
        command: flags.steps.command(flags.command),
        steps: flags.steps.request()?,
        quiet: flags.quiet,
        wait_all: flags.wait_all,
        supervised: flags.supervised,
    })
}

impl Plan {
    /// The option `--stacks` as it was given, for a run like this one.
    pub(crate) fn stacks_option(&self) -> Option<String> {
        let smallest = self.stacks?;
        Some(if self.tensors { "--stacks=tensors".to_owned() } else { format!("--stacks={smallest}B") })
    }
}

/// The mode of a profile, octal.
fn mode(text: &str) -> Result<u32, LimitError> {
    Mode::parse(text).map(|mode| mode.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, Instead> {
        parse(
            ["radrm-run"]
                .into_iter()
                .chain(line.split(' ').filter(|word| !word.is_empty()))
                .map(OsString::from),
        )
    }

    #[test]
    fn a_profiles_mode_is_octal_and_lets_its_owner_write() {
        assert_eq!(plan("--profile-mode 0644 p").unwrap().profile_mode, Some(0o644));
        assert_eq!(plan("p").unwrap().profile_mode, None);
        for wrong in ["0888", "07777", "0444", "-1", "u+r"] {
            assert!(matches!(plan(&format!("--profile-mode={wrong} p")), Err(Instead::Wrong(_))), "{wrong}");
        }
    }

    #[test]
    fn options_behind_the_program_are_its_own() {
        let got = plan("--quiet python3 -o x --json train.py -- -q").unwrap();
        assert!(got.quiet);
        assert_eq!(got.profile, ProfileTo::Default);
        assert_eq!(got.command, ["python3", "-o", "x", "--json", "train.py", "--", "-q"].map(OsString::from));
    }

    #[test]
    fn two_dashes_end_our_options_and_are_not_passed_on() {
        let got = plan("--json -- -odd --json").unwrap();
        assert_eq!(got.command, ["-odd", "--json"].map(OsString::from));
        assert_eq!(got.report, ReportTo::JsonOnStderr);
    }

    #[test]
    fn json_takes_a_file_only_behind_an_equals_sign() {
        assert_eq!(plan("--json=f -- p").unwrap().report, ReportTo::JsonFile("f".into()));
        assert_eq!(plan("--json=- -- p").unwrap().report, ReportTo::JsonOnStdout);
        let got = plan("--json p q").unwrap();
        assert_eq!((got.report, got.command.len()), (ReportTo::JsonOnStderr, 2));
    }

    #[test]
    fn stacks_take_a_size_only_behind_an_equals_sign() {
        assert_eq!(plan("p").unwrap().stacks, None);
        assert_eq!(plan("--stacks=64KiB p").unwrap().stacks, Some(65_536));
        let tensors = plan("--stacks=tensors p").unwrap();
        assert_eq!((tensors.stacks, tensors.tensors), (Some(0), true));
        let got = plan("--stacks p").unwrap();
        assert_eq!((got.stacks, got.command.len()), (Some(0), 1));
        assert_eq!(plan("p").unwrap().stacks_option(), None);
        for line in ["--stacks", "--stacks=7B", "--stacks=64KiB", "--stacks=tensors"] {
            let first = plan(&format!("{line} p")).unwrap();
            let again = plan(&format!("{} p", first.stacks_option().unwrap())).unwrap();
            assert_eq!((again.stacks, again.tensors), (first.stacks, first.tensors), "{line}");
        }
    }

    #[test]
    fn wrong_lines_are_explained_in_one_sentence() {
        for (line, part) in [
            ("", "no program given"),
            ("--bogus -- p", "there is no option --bogus"),
            ("-o", "-o"),
            ("--faults x p", "--faults works only with --emulate"),
            ("-o f --no-profile p", "cannot be used together"),
            ("--no-dataset --dataset d p", "cannot be used together"),
            ("--mem-limit 10G p", "--mem-limit: `10G` can mean two things"),
            ("--mem-limit -1 p", "--mem-limit: `-1` is not an amount"),
            ("--stacks=10% p", "--stacks: "),
            ("--stacks=tensor p", "`tensor` is neither tensors nor an amount of memory"),
            ("--mps=0 p", "--mps: `0` is not a percentage"),
            ("--sm-limit=0% p", "--sm-limit: `0%` is not a percentage"),
            ("--sm-limit 30% --mps=40 p", "both state a share"),
            ("--attend --step-of a/b p", "`a/b` names no job"),
            ("--step-of slurm-7 p", "--attend"),
            ("--batch-script p", "--attend"),
        ] {
            match plan(line) {
                Err(Instead::Wrong(text)) => {
                    assert!(text.contains(part), "{line}: {text}");
                    assert_eq!(text.lines().count(), 1, "{text}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn help_and_version_go_to_standard_output() {
        for (flag, part) in [("-h", "Usage: "), ("--help", "Examples:"), ("--version", "radrm-run ")] {
            assert!(matches!(plan(flag), Err(Instead::Print(text)) if text.contains(part)), "{flag}");
        }
    }
}
