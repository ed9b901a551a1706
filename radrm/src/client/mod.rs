//! The commands of `radrm` that talk to `radrmd`.

mod arrays;
mod asked;
pub(crate) mod asks;
pub(crate) mod dry_run;
pub mod estimate;
mod features;
mod interactive;
mod limits;
mod logs;
pub mod node_need;
pub(crate) mod own_runs;
mod past;
mod queue;
pub(crate) mod rad;
mod reservations;
mod stats;
mod stats_page;
mod stats_users;
pub(crate) mod submit;
pub(crate) mod text;
mod top;
mod usage;
mod user_limit;

use std::path::Path;

use clap::Subcommand;
use radrm_protocol::connection::Connection;
use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::Request;

use crate::Failure;

/// Commands that ask the daemon.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Submit a job to the daemon
    ///
    /// Without --gpu-mem the need is taken from earlier runs of the same program, or else from an estimate, a dry run,
    /// or the model's summary (also one that a .rad file names); a job of unknown need gets GPUs of its own, or joins
    /// others where much memory is free, as the daemon is set. Every option down to --array may stand in a file:
    /// `#RADRM --gpus=2 --time=4h`.
    #[command(after_long_help = "\
Exit code: 0, 1 if something went wrong, 2 if the command line is wrong; with
--wait that of the job.

Examples:
  radrm submit --gpu-mem 12GiB --time 4h -- python3 train.py
  radrm submit resnet50.rad")]
    Submit(Box<submit::Flags>),
    /// List jobs
    Queue(queue::Flags),
    /// Show everything about a job, and the reason for its state
    Show {
        /// Number of the job, or of one of an array (12_3)
        job: JobRef,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a job's output
    Logs(logs::Flags),
    /// Connect this terminal to an interactive job
    ///
    /// Of a job that was submitted with --interactive, by its own user. Keys at the start of a line: ~d leaves it running,
    /// ~. hangs up, which ends it, ~? lists them.
    Attach {
        /// Number of the job
        job: JobRef,
    },
    /// Cancel jobs
    Cancel {
        /// Numbers of the jobs, of arrays for all their jobs, or of one job of an array (12_3)
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<JobRef>,
    },
    /// Keep waiting jobs from starting
    Hold {
        /// Numbers of the jobs, of arrays for all their jobs, or of one job of an array (12_3)
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<JobRef>,
        /// Let them start again
        #[arg(long)]
        release: bool,
    },
    /// Show GPUs, and the jobs on them
    Nodes {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep new jobs off a GPU (administrators)
    Drain {
        /// Index or UUID of the GPU
        gpu: String,
        /// Let new jobs on it again
        #[arg(long)]
        resume: bool,
        /// Show this text with it, such as "fan broken"
        #[arg(long, value_name = "TEXT", conflicts_with = "resume")]
        reason: Option<String>,
    },
    /// Show your limits in the queue, where they come from, and what is in use
    ///
    /// These are the limits of radrmd.toml and of `radrm admin set`. Those of GPU memory of all programs are shown by
    /// `radrm quota show`.
    Limits(limits::Flags),
    /// Change limits of users and reserve GPUs while jobs run (administrators)
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Admin {
        #[command(subcommand)]
        command: limits::Admin,
    },
    /// Show GPUs and jobs, or programs under radrm-run, again and again
    ///
    /// With a daemon: its GPUs and jobs. Without one, and with --runs: the programs that this user runs under radrm-run
    /// (those of all users for root), with memory, growth, quota, launches, SM activity and refused requests. Reading
    /// them costs the programs nothing. Keys are those of htop, and h lists them: sort, search, details, cancel.
    #[command(after_long_help = "\
Examples:
  radrm top
  radrm top train.4711.radrm
  radrm top --json | jq '.[] | {run, launches_per_second}'")]
    Top(top::Flags),
    /// Show waiting, execution and completion times
    ///
    /// Below them GPU-hours by user: administrators see all users, others themselves. IDLE are hours in which GPUs did
    /// nothing for the jobs that held them. `radrm usage` prints GPU-hours of any days, and as CSV.
    Stats(stats::Flags),
    /// Show GPU-hours by user
    ///
    /// Administrators see all users, others themselves. GPU-HOURS is running time by the number of GPUs allocated;
    /// WEIGHTED counts of each GPU the share of its memory that was reserved for the job, and all of it where the job
    /// had the GPU to itself. Running attempts count up to now, suspensions do not count; two years are kept.
    #[command(after_long_help = "\
Example:
  radrm usage --from 2026-10-01 --to 2026-10-31 --csv > october.csv")]
    Usage(usage::Flags),
}

/// Does what the command line asks for, and gives the exit code.
pub(crate) fn run(socket: Option<&Path>, command: Command) -> Result<u8, Failure> {
    let connect = || Connection::open(socket);
    let done = match command {
        Command::Submit(flags) => return submit::run(*flags, &connect),
        Command::Queue(flags) => queue::run(&flags, &mut connect()?),
        Command::Show { job, json } => queue::show(job, json, &mut connect()?),
        Command::Logs(flags) => logs::run(&flags, &mut connect()?),
        Command::Attach { job } => return interactive::attach_to(job, &mut connect()?),
        Command::Cancel { jobs } => Ok(connect()?.done(&Request::Cancel { jobs })?),
        Command::Hold { jobs, release } => Ok(connect()?.done(&Request::Hold { jobs, held: !release })?),
        Command::Nodes { json } => queue::nodes(json, &mut connect()?),
        Command::Drain { gpu, resume, reason } => {
            Ok(connect()?.done(&Request::Drain { gpu, drained: !resume, reason })?)
        }
        Command::Limits(flags) => limits::run(&flags, &mut connect()?),
        Command::Admin { command } => limits::admin(command, &mut connect()?),
        Command::Top(flags) => top::run(&flags, socket.is_some(), &connect),
        Command::Stats(flags) => stats::run(&flags, &mut connect()?),
        Command::Usage(flags) => usage::run(&flags, &mut connect()?),
    };
    done.map(|()| 0)
}
