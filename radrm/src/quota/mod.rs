//! `radrm quota`: the limits that hold on this machine, shown and changed while jobs run.

pub mod awaited;
pub mod init;
pub mod set;
pub mod shared;
pub mod show;

use std::path::PathBuf;

use radrm_limits::config::Percentage;
use radrm_limits::requested::RequestedLimits;

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Shows limits and use.
    Show {
        /// Only the job of this launcher or process.
        job: Option<u32>,
        /// As JSON.
        json: bool,
        /// The emulated machine whose users' and groups' limits are meant.
        machine: Option<PathBuf>,
    },
    /// Sets up the limits of users and groups.
    Init {
        /// Whose; none: all that the configuration limits.
        targets: Vec<Target>,
        /// The emulated machine that is meant.
        machine: Option<PathBuf>,
    },
    /// Changes a limit.
    Set {
        /// Whose.
        target: Target,
        /// The limits, if they are to be changed; `Some(None)` takes back what was changed before.
        limits: Option<Option<RequestedLimits>>,
        /// The share of the GPUs' time, if it is to be changed; `Some(None)` lifts it.
        share: Option<Option<Percentage>>,
        /// The emulated machine that is meant.
        machine: Option<PathBuf>,
    },
}

/// Whose limit is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// The job of this launcher, or of one of its processes.
    Job(u32),
    /// All jobs of a user.
    User(String),
    /// All jobs of a group's members.
    Group(String),
}

impl Target {
    /// Reads `4711`, `user:alice` or `group:lab`.
    ///
    /// # Errors
    /// One sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("user", name)) if !name.is_empty() => Ok(Self::User(name.to_owned())),
            Some(("group", name)) if !name.is_empty() => Ok(Self::Group(name.to_owned())),
            None if text.parse::<u32>().is_ok_and(|pid| pid > 0) => Ok(Self::Job(text.parse().unwrap_or(0))),
            _ => Err(format!(
                "`{text}` is neither a job (the process id that `radrm quota show` lists) nor user:NAME nor group:NAME"
            )),
        }
    }
}

/// Does it.
///
/// # Errors
/// One sentence.
pub fn run(order: &Order) -> Result<(), String> {
    match order {
        Order::Show { job, json, machine } => show::run(*job, *json, machine.as_deref()),
        Order::Init { targets, machine } => init::run(targets, machine.as_deref()),
        Order::Set { target, limits, share, machine } => {
            if let Some(share) = share {
                set::share(target, *share)?;
            }
            match limits {
                Some(limits) => set::run(target, limits.as_ref(), machine.as_deref()),
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
        assert_eq!(Target::parse("4711"), Ok(Target::Job(4711)));
        assert_eq!(Target::parse("user:alice"), Ok(Target::User("alice".into())));
        assert_eq!(Target::parse("group:lab"), Ok(Target::Group("lab".into())));
        for odd in ["", "0", "-1", "alice", "user:", "group:", "users:x", "job:1"] {
            assert!(Target::parse(odd).unwrap_err().contains("is neither a job"), "{odd}");
        }
    }
}
