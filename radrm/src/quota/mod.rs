//! `radrm quota`: the limits that hold on this machine, shown and changed while jobs run.

mod awaited;
mod error;
mod init;
mod set;
mod shared;
mod show;

use std::path::PathBuf;
use std::str::FromStr;

use clap::Subcommand;
use radrm_limits::LimitError;
use radrm_limits::config::Percentage;
use radrm_limits::requested::RequestedLimits;

use crate::Failure;
pub(crate) use error::QuotaError;

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
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
        targets: Vec<Target>,
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
        target: Target,
        /// As for radrm-run --mem-limit: 8GiB, 50%, 0=8GiB,1=4GiB, none, or config
        #[arg(allow_hyphen_values = true, required_unless_present = "sm_limit")]
        limit: Option<Change<RequestedLimits>>,
        /// Share of the job's GPUs' time, or `none`: its launches wait for their slots. Under MPS the share of the
        /// multiprocessors stays what it was when a process started
        #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
        sm_limit: Option<Change<Percentage>>,
        /// Limits on the emulated machine in FILE
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
}

/// A new value, or none: back to what holds without one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change<T>(Option<T>);

impl FromStr for Change<RequestedLimits> {
    type Err = LimitError;
    fn from_str(text: &str) -> Result<Self, LimitError> {
        (text != "config").then(|| RequestedLimits::parse(text)).transpose().map(Self)
    }
}

impl FromStr for Change<Percentage> {
    type Err = LimitError;
    fn from_str(text: &str) -> Result<Self, LimitError> {
        (text != "none").then(|| Percentage::parse(text)).transpose().map(Self)
    }
}

/// Target of a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The job of this launcher, or of one of its processes.
    Job(u32),
    /// All jobs of a user.
    User(String),
    /// All jobs of a group's members.
    Group(String),
}

impl FromStr for Target {
    type Err = QuotaError;
    /// Reads `4711`, `user:alice` or `group:lab`.
    fn from_str(text: &str) -> Result<Self, QuotaError> {
        match text.split_once(':') {
            Some(("user", name)) if !name.is_empty() => Ok(Self::User(name.to_owned())),
            Some(("group", name)) if !name.is_empty() => Ok(Self::Group(name.to_owned())),
            None if text.parse::<u32>().is_ok_and(|pid| pid > 0) => Ok(Self::Job(text.parse().unwrap_or(0))),
            _ => Err(QuotaError::NoTarget(text.to_owned())),
        }
    }
}

/// Does what the command line asks for.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Show { job, json, machine } => show::run(*job, *json, machine.as_deref()),
        Command::Init { targets, machine } => init::run(targets, machine.as_deref()),
        Command::Set { target, limit, sm_limit, machine } => {
            if let Some(Change(share)) = sm_limit {
                set::share(target, *share)?;
            }
            match limit {
                Some(Change(limits)) => set::run(target, limits.as_ref(), machine.as_deref()),
                None => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_jobs_users_and_groups() {
        for (text, target) in [
            ("4711", Target::Job(4711)),
            ("user:alice", Target::User("alice".into())),
            ("group:lab", Target::Group("lab".into())),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), target);
        }
        for odd in ["", "0", "-1", "alice", "user:", "group:", "users:x", "job:1"] {
            assert!(odd.parse::<Target>().unwrap_err().to_string().contains("is neither a job"), "{odd}");
        }
    }
}
