//! Messages to the engine, from all that watch something for it.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;

use radrm_protocol::wire::{self, JobRow, Request, Response};

use super::attempt::Attempt;
use super::dry_run;
use super::error::DaemonError;
use super::gpus::{Poll, Unmanaged};
use super::host::Snapshot;
use super::limited_groups::Groups;
use super::long_read::{LongRead, Progress};
use super::metrics::Figures;
use super::peer::Peer;
use super::suspend::Answer;
use super::user_limits::Named;

/// Selection of the jobs of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing {
    /// Those of all users, for an administrator.
    pub(crate) all: bool,
    /// So many that are over.
    pub(crate) ended: u32,
    /// One row for all jobs of an array that wait.
    pub(crate) merge: bool,
    /// At most so many rows of waiting jobs; 0: all.
    pub(crate) first: u32,
}

/// Jobs of a list that are answered at a time: a client that reads slowly holds no more.
pub(crate) const PAGE: usize = 2 * wire::ROWS;

/// Jobs of a list, in its order.
#[derive(Debug, Default)]
pub(crate) struct JobList {
    /// Rows of the first page.
    pub(crate) first: Vec<JobRow>,
    /// The jobs behind it.
    pub(crate) jobs: Vec<Listed>,
    /// Number of waiting jobs beyond these.
    pub(crate) left_out: u64,
}

/// A job in a list, and the indices of the jobs of its array for which it stands.
pub(crate) type Listed = (u64, String);

/// Message to the engine thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client asks.
    Asked(Peer, Request, Sender<Response>),
    /// An administrator asks for a user or group, which was looked up.
    AskedOf(Peer, Request, Named, Sender<Response>),
    /// A client lists jobs: their numbers in the order of the list, or why there is no list.
    Listed(Peer, Listing, Sender<Result<JobList, Response>>),
    /// The next rows of such a list; jobs that are gone have none.
    Rows(Peer, Vec<Listed>, Sender<Vec<JobRow>>),
    /// The next part of an answer that is read in parts.
    Read(Peer, LongRead, Sender<Progress>),
    /// A supervisor is gone.
    SupervisorEnded(Attempt),
    /// A helper that suspends a job or brings it back is gone, with its answer if it gave one.
    Suspension(Attempt, Option<Answer>),
    /// GPUs were polled.
    Polled(Poll),
    /// All processes of the node were read.
    Processes(Snapshot),
    /// An epilog has ended, and how it failed.
    EpilogEnded(Attempt, Result<(), DaemonError>),
    /// A search for what an attempt left took long: the processes that were found and killed.
    Swept(Attempt, BTreeSet<u32>),
    /// Processes without the shim.
    Audited(Vec<Unmanaged>),
    /// The files of these jobs, which ended long ago, are gone.
    Removed(Vec<u64>),
    /// Groups of users were looked up.
    Groups(Vec<(u32, Groups)>),
    /// Bytes that the folder of a job of a user takes on the disk.
    Measured(u64, u32, u64),
    /// The helper of a job's dry run is gone, with its answer.
    DryRunEnded(u64, dry_run::Answer),
    /// The text of `/metrics`.
    Metrics(Sender<Figures>),
    /// The configuration is to be read again.
    Reload,
    /// GPUs are there now. There were none when the daemon started.
    GpusAppeared,
    /// The daemon is to end. Jobs run on.
    Stop,
}
