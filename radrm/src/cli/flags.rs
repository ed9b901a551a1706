//! The flags of `radrm` as written. Their comments are the help texts.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::show::compare;
use crate::{client, replay};

/// Columns of help texts, as of a narrow terminal.
pub(super) const WIDTH: usize = 80;

/// Show what was recorded of GPU programs, change limits, and submit jobs
///
/// Profiles and the dataset are written by radrm-run, jobs are run by radrmd.
#[derive(Parser, Debug)]
#[command(
    name = "radrm",
    version,
    term_width = WIDTH,
    subcommand_required = true,
    arg_required_else_help = false,
    after_help = "\
Exit code: 0, 1 if something went wrong, 2 if the command line is wrong, 3 if an
audit found something; that of the job with submit --wait.",
    after_long_help = "\
Exit code: 0, 1 if something went wrong, 2 if the command line is wrong, 3 if an
audit found something; that of the job with submit --wait.

Examples:
  radrm report train.4711.radrm --html
  radrm compare train.4711.radrm train.4802.radrm
  radrm estimate -- python3 train.py --batch-size 64
  radrm submit --gpu-mem 12GiB --time 4h -- python3 train.py
  radrm queue --why
  radrm dataset list --program python3"
)]
pub(super) struct Flags {
    /// Socket of the daemon [default: $RADRM_SOCKET, the user's own daemon, /run/radrmd/socket]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Daemon")]
    pub(super) socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(super) command: FlagsOfCommand,
}

#[derive(Subcommand, Debug)]
pub(super) enum FlagsOfCommand {
    /// Show a profile: memory per GPU and process, kernels, failed requests
    ///
    /// A profile can be read while its program still runs, and after radrm-run or the node died. An existing file is
    /// replaced by OUT, but never a profile.
    #[command(after_long_help = "\
Examples:
  radrm report train.4711.radrm --timeline
  radrm report train.4711.radrm --oom
  radrm report train.4711.radrm --json | jq .
  radrm report train.4711.radrm --html=memory.html
  radrm report --perfetto train.4711.radrm train.json")]
    Report {
        /// The profile
        #[arg(value_name = "PROFILE")]
        file: PathBuf,
        /// Print JSON
        #[arg(long, conflicts_with = "html")]
        json: bool,
        /// Write one self-contained page with a picture of the memory over time, to OUT or beside PROFILE; `-` is
        /// standard output
        #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true)]
        html: Option<Option<PathBuf>>,
        /// Show memory and activity over time
        #[arg(long, conflicts_with_all = ["json", "html"])]
        timeline: bool,
        /// Show what each process takes of SMs, memory, copies, launches and the host, and how each figure was obtained
        #[arg(long, conflicts_with_all = ["json", "html"])]
        features: bool,
        /// Show only refused memory requests: memory holders at that moment, and whether a quota, the device or
        /// fragmentation was the cause; also with --json
        #[arg(long, conflicts_with_all = ["html", "timeline", "features"])]
        oom: bool,
        /// Write a trace for ui.perfetto.dev: memory by kind, activity, timed launches, copies, refused requests, the
        /// host; to OUT, which may also stand after PROFILE, or beside PROFILE
        #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true,
              conflicts_with_all = ["json", "html", "timeline", "features", "oom"])]
        perfetto: Option<Option<PathBuf>>,
        #[arg(hide = true)]
        more: Vec<PathBuf>,
    },
    /// Show what changed between runs, and whether it is more than noise
    ///
    /// Compares peak memory by GPU and kind, time, launches, kernels, activity, energy and the host's counters. With
    /// several profiles on a side it reports which changes are significant (Welch's t-test at 99 %). A directory stands
    /// for all profiles in it.
    #[command(after_long_help = "\
Examples:
  radrm compare train.4711.radrm train.4802.radrm
  radrm compare --before old/*.radrm --after new/*.radrm")]
    Compare(compare::Flags),
    /// Estimate GPU memory, activity and run time of a job from earlier runs
    ///
    /// Takes the options of `radrm submit`. The daemon resolves the job's needs as it would for a submission, from its
    /// history of the user's jobs. Without a daemon, or with --dataset, they are resolved likewise from the user's
    /// dataset: what radrm-run and dry runs measured. An equal run has the same command, directory and number of GPUs;
    /// runs at other batch sizes are extrapolated.
    #[command(after_long_help = "\
Examples:
  radrm estimate -- python3 train.py --batch-size 64
  radrm estimate --gpus 2 --json -- python3 train.py | jq .memory.upper_bytes
  radrm estimate --dry-run -- python3 train.py")]
    Estimate(Box<client::estimate::Flags>),
    /// Show, check and copy the runs that were recorded
    ///
    /// Every run under radrm-run adds a row: the command, the user, the GPUs, the peaks, the duration and the outcome.
    /// The dataset is $XDG_DATA_HOME/radrm/dataset.db, an SQLite database, or ~/.local/share/radrm/dataset.db.
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Dataset {
        #[command(subcommand)]
        command: FlagsOfDataset,
    },
    /// Check what works on this machine, and what to do about the rest
    ///
    /// Looks at the libraries, the driver, the GPUs and their device files, meters, limits, MPS, the daemon and the
    /// container. Exit code 1 means that radrm-run cannot record programs here.
    #[command(after_long_help = "\
Example:
  radrm-run --emulate 2xH200 -- radrm doctor")]
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the GPU models that can be emulated
    ///
    /// The names are those of `radrm-run --emulate`, with an optional count before them: 2xH200, or 1xT4+2xA100-80GB.
    /// Other models can be described in a TOML file, whose path is given instead.
    #[command(after_long_help = "\
Example:
  radrm-run --emulate 2xA100-40GB -- python3 train.py")]
    Machines {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show and change limits on GPU memory and GPU time while jobs run
    #[command(
        subcommand_required = true,
        arg_required_else_help = false,
        after_long_help = "\
Examples:
  radrm quota show
  radrm quota set 4711 8GiB
  radrm quota set 4711 --sm-limit 30%
  radrm quota set user:alice 0=20GiB,1=none"
    )]
    Quota {
        #[command(subcommand)]
        command: FlagsOfQuota,
    },
    /// Simulate scheduling policies on the jobs of a trace
    ///
    /// The decisions are those of the node daemon; the node is a model. Times are hours; an interval is 95 % over the
    /// seeds. The bound is what no policy can beat under the model.
    #[command(after_long_help = "\
Examples:
  radrm replay thesis_60.csv --policy all --profiles workloads.csv
  radrm replay thesis_90.csv --policy magm --estimator none --min-free 2GiB
  radrm replay pods.csv --gpus nodes.csv --policy aware --seeds 0
  radrm replay --events /var/lib/radrm/events.jsonl
  radrm replay synthetic:1000000 --gpus 64xA100-40GB --seeds 0")]
    Replay(Box<replay::Flags>),
    /// Find processes that take GPU memory past their limits
    ///
    /// Compares what the driver reports for each process (NVML) with what its shim has counted, on every GPU, for all
    /// jobs that the user can see; root sees all. Reported are processes without a shim (started without radrm-run,
    /// statically linked, setuid, RADRM_DISABLE set, preload lost), and those that hold more than was counted, for
    /// instance through a library opened with RTLD_DEEPBIND.
    ///
    /// Contexts take memory too: as much as earlier jobs on such a GPU with such a driver showed, or else 640 MiB.
    #[command(after_long_help = "\
Exit code: 0 if everything is explained, 3 if a process is reported, 1 if NVML
does not work, 2 if the command line is wrong.")]
    Audit {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// What may remain unexplained [default: 64MiB]
        #[arg(long, value_name = "AMOUNT")]
        tolerance: Option<String>,
        /// Audit the emulated machine in FILE
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
    #[command(flatten)]
    Daemon(client::Command),
}

#[derive(Subcommand, Debug)]
pub(super) enum FlagsOfQuota {
    /// Show limits, use, refused requests and processes by GPU
    ///
    /// Lists the jobs that the user can see, and the limits of users and groups, also those that no job counts against
    /// yet.
    Show {
        /// Only the job of this process id: of a radrm-run, or of one of its processes
        job: Option<u32>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Limits on the emulated machine in FILE
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
    /// Set up the limits of users and groups (root)
    ///
    /// Makes what limits of users and groups need before a job can count against them, in /run/radrm: for these users,
    /// for the members of these groups, for users as members of groups if both are given, or for all that
    /// /etc/radrm/radrm.toml limits. It also repairs a ledger that a user changed. Run it again when the configuration
    /// changes.
    Init {
        /// user:NAME or group:NAME
        #[arg(value_name = "TARGET")]
        targets: Vec<String>,
        /// Limits on the emulated machine in FILE
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
    /// Change the limit of a job, user or group while jobs run
    ///
    /// A new limit holds for every request from now on. Memory in use stays: above the limit, requests fail until
    /// enough is free. A job that was started without a limit does not count its memory against one and cannot be
    /// limited later: start it with --mem-limit 100%.
    ///
    /// A user's or group's limit stays changed until `config` restores what /etc/radrm/radrm.toml states, or until the
    /// node restarts. Only root may give more than that.
    Set {
        /// Process id of a job's radrm-run or of one of its processes, user:NAME or group:NAME
        target: String,
        /// As for radrm-run --mem-limit: 8GiB, 50%, 0=8GiB,1=4GiB, none, or config
        #[arg(allow_hyphen_values = true, required_unless_present = "sm_limit")]
        limit: Option<String>,
        /// Share of the job's GPUs' time, or `none`: its launches wait for their slots. Under MPS the share of the
        /// multiprocessors stays what it was when a process started
        #[arg(long, value_name = "PERCENT")]
        sm_limit: Option<String>,
        /// Limits on the emulated machine in FILE
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
}

#[derive(Subcommand, Debug)]
pub(super) enum FlagsOfDataset {
    /// List runs, the newest first
    #[command(after_long_help = "\
Example:
  radrm dataset list --program python3 -n 5")]
    List {
        /// Print JSON, with features of processes
        #[arg(long)]
        json: bool,
        /// Only runs of this program
        #[arg(long, value_name = "NAME")]
        program: Option<String>,
        /// Number of rows; 0 for all
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        limit: u32,
        /// Read this database
        #[arg(long, value_name = "FILE")]
        dataset: Option<PathBuf>,
    },
    /// Copy the dataset to a new file while runs may be added
    Backup {
        /// The copy; must not exist
        file: PathBuf,
        /// Copy this database
        #[arg(long, value_name = "FILE")]
        dataset: Option<PathBuf>,
    },
    /// Check that the dataset is not damaged
    Check {
        /// Check this database
        #[arg(long, value_name = "FILE")]
        dataset: Option<PathBuf>,
    },
}
