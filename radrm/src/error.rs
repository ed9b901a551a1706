//! Errors of commands: the one place where an error becomes a sentence and an exit code.

use std::io;
use std::path::{Path, PathBuf};

use radrm_base::reason;
use radrm_collector::dataset::DatasetError;
use radrm_collector::ncu::NcuError;
use radrm_emulator_machine::MachineError;
use radrm_export::WebError;
use radrm_export::table::TableError;
use radrm_lab::data::DataError;
use radrm_launcher::prices::PriceError;
use radrm_launcher::report_file::ReportFileError;
use radrm_launcher::training::TrainingError;
use radrm_limits::LimitError;
use radrm_limits::cgroup::FenceError;
use radrm_need::SummaryError;
use radrm_profile::{ReadError, WriteError};
use radrm_protocol::ProtocolError;
use radrm_protocol::job_ref::JobRef;
use radrm_scheduler_core::Bytes;
use radrm_scheduler_core::rad_file::RadError;
use radrm_scheduler_core::replay::read;
use radrm_sweep::SweepError;
use radrm_text::usage::{self, Instead};
use radrm_text::{Untrusted, did_you_mean};
use thiserror::Error;

/// Error of one command, which is a [`Failure`] by its sentence and its exit code.
pub(crate) trait CommandError: std::error::Error {
    /// Exit code of the program.
    const EXIT_CODE: u8 = 1;
}

impl<E: CommandError> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Command { sentence: error.to_string(), exit_code: E::EXIT_CODE }
    }
}

/// Reason that a command failed, as one sentence.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("standard output cannot be written: {}", reason(.0))]
    Output(#[source] io::Error),
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: FileProblem },
    #[error("neither XDG_DATA_HOME nor HOME says where the dataset is")]
    NoDataset,
    #[error("the current directory is gone: {}", reason(.0))]
    NoDirectory(#[source] io::Error),
    #[error(transparent)]
    ReportFile(#[from] ReportFileError),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("--model-summary: {0}")]
    ModelSummary(Box<Self>),
    #[error("{0} is not a regular file: what the job writes there is not kept")]
    OutputNotKept(Untrusted),
    #[error("job {job} has {}", if *.has_started { "written nothing" } else { "not started" })]
    NoOutput { job: JobRef, has_started: bool },
    #[error("the dataset has no run {0}; `radrm dataset list` shows those that there are")]
    NoRun(i64),
    #[error("run {0} has no profile; `radrm-run` writes one unless `--no-profile` is given")]
    NoProfileOf(i64),
    #[error("the profile of run {0} was replaced by that of a later run")]
    ProfileReplaced(i64),
    #[error("the dataset has no run with a profile: name one with --run")]
    NoRecordedRun,
    #[error(transparent)]
    Sweep(#[from] SweepError),
    #[error(transparent)]
    Web(#[from] WebError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("{}", match .0 { Instead::Wrong(text) | Instead::Print(text) => text })]
    Line(Instead),
    #[error("{sentence}")]
    Command { sentence: String, exit_code: u8 },
    #[error("no JSON can be made: {0}")]
    Json(#[from] serde_json::Error),
}

/// Options that each are right contradict each other.
#[derive(Debug, Error)]
pub(crate) enum UsageError {
    #[error(
        "report shows one profile at a time: `radrm compare {}` shows what changed between several, and what a report \
         writes is named by --html=OUT or --perfetto=OUT",
        of.as_ref().map_or("--before PROFILE... --after PROFILE...".into(), |[a, b]| format!("{} {}", a.display(), b.display()))
    )]
    OneProfile { of: Option<[PathBuf; 2]> },
    #[error("a comparison needs two profiles, or several after --before and --after")]
    OneSide,
    #[error(transparent)]
    Overwrites(ReportFileError),
    #[error("--from is after --to")]
    Backwards,
    #[error("--html shows one factor: give --interference one number")]
    OnePicture,
    #[error("{0}")]
    Policy(String),
    #[error(
        "--predictor: aware alone decides by predictions that can be exchanged, and --policy does not name it"
    )]
    PredictorAlone,
    #[error("--live plays one trace at a time")]
    OneTrace,
    #[error("`{0}` cannot be a device: name one amount for every GPU")]
    NoDevice(String),
    #[error("submit takes one file, and {} is a second one; write a program behind --: `radrm submit -- PROGRAM`", .0.display())]
    OneFile(PathBuf),
    #[error("give a file or a program behind --, not {} and a program", .0.display())]
    FileAndProgram(PathBuf),
    #[error("an array has no terminal: --interactive is for one job")]
    ArrayOnTerminal,
    #[error("no program given: write each one behind a --")]
    NoProgram,
    #[error("no job given: name a .rad file, or a program behind --")]
    NoJob,
    #[error(transparent)]
    Job(ProtocolError),
    #[error("{}: the number of jobs is to stand after the colon", .0.display())]
    NoNumber(PathBuf),
    #[error("{}: no more than {most} jobs are made", trace.display())]
    TooManyJobs { trace: PathBuf, most: usize },
    #[error("--gpus: there is no model {name} and no file of that name (there are {models}){}", did_you_mean(name, models.split(", ")))]
    NoModel { name: String, models: String },
    #[error(transparent)]
    Price(PriceError),
    #[error(transparent)]
    Training(TrainingError),
    #[error("--gpus: {part} is not between 1 and {most} GPUs")]
    TooManyGpus { part: String, most: usize },
    #[error("--level: {0} is not between 50 and 100")]
    Level(f64),
    #[error("tensors have one moment only: print them with --stacks=folded or pprof")]
    NoTensorTrace,
    #[error("write --at=peak, --at=end, --at=refusal or --at=refusal:N with a number from 1")]
    StacksWhen,
    #[error("a heap profile has every moment and memory: leave --at, --at-end and --job out")]
    WholeTrace,
    #[error("no server given: name it by --server, or by {0}")]
    NoServer(&'static str),
    #[error("{0} is not a list of headers: write NAME=VALUE,...")]
    Headers(&'static str),
    #[error("radrmd decides how many runs go at once: leave out --jobs, or add --through self")]
    JobsOfRadrmd,
    #[error("no sweep given: name its file")]
    NoSweep,
    #[error("`{0}` is not a figure: write run-time, peak-memory, sm-activity, steps or energy, or NAME:min or NAME:max of a figure that the program logs{hint}", hint = did_you_mean(.0, ["run-time", "peak-memory", "sm-activity", "steps", "energy"]))]
    NoFigure(String),
}

/// Problem of a file that was named.
#[derive(Debug, Error)]
pub(crate) enum FileProblem {
    #[error("{}", reason(.0))]
    Io(#[from] io::Error),
    #[error("not a regular file")]
    Irregular,
    #[error("not there: install a package")]
    NotInstalled,
    #[error("more than {0}")]
    TooLarge(Bytes),
    #[error(
        "more than {bytes} or {lines} lines, the most that is read of another user's table: copy the file, or read it as \
         its owner"
    )]
    OthersTooLarge { bytes: Bytes, lines: usize },
    #[error("not text")]
    NotText,
    #[error("no run with a batch size ended well on a GPU, and runs on emulated GPUs do not count")]
    NoMeasuredRuns,
    #[error("no whole gzip file: {0}")]
    Gzip(io::Error),
    #[error("{}", profile(.0))]
    Profile(#[from] ReadError),
    #[error("its program is running: a run is sent when it is over")]
    Running,
    #[error("its program is running: import when it is over")]
    StillWritten,
    #[error("it is cut off, so nothing can be added to it")]
    CutOff,
    #[error("the run launched no kernels")]
    NoLaunches,
    #[error("no kernel of the run is in the file: was another program profiled?")]
    OtherKernels,
    #[error(transparent)]
    Ncu(#[from] NcuError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("there is no profile (*.radrm) in it")]
    NoProfile,
    #[error("call stacks are not recorded in it: run the program with `radrm-run --stacks`")]
    NoStacks,
    #[error("it has no refused request {number} with its call stack, only {known}")]
    NoRefusal { number: usize, known: usize },
    #[error("it has no moment at which all of its processes were read")]
    NoSharedMoment,
    #[error("tensors are not recorded in it: run the program with `radrm-run --stacks=tensors`")]
    NoTensors,
    #[error(transparent)]
    Trace(#[from] read::ReadError),
    #[error("there are no {0} in it")]
    Nothing(&'static str),
    #[error("a batch has at least one sample")]
    NoBatch,
    #[error("{0}")]
    Dataset(DatasetError),
    #[error(transparent)]
    Job(ProtocolError),
    #[error(transparent)]
    Rad(#[from] RadError),
    #[error(transparent)]
    Summary(#[from] SummaryError),
    #[error(transparent)]
    Measurements(#[from] DataError),
    #[error(transparent)]
    Model(#[from] radrm_estimator::Error),
}

/// The file is named already.
fn profile(error: &ReadError) -> String {
    match error {
        ReadError::Io(error) => reason(error),
        other => other.to_string(),
    }
}

impl FileProblem {
    pub(crate) fn of(self, path: &Path) -> Failure {
        Failure::File { path: path.to_owned(), problem: self }
    }
}

impl Failure {
    /// The program's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Line(_) => usage::WRONG,
            Self::Command { exit_code, .. } => *exit_code,
            _ => 1,
        }
    }
}
