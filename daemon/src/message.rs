//! Messages to the engine, from all that watch something for it.

use std::sync::mpsc::Sender;

use radrm_protocol::wire::{Request, Response};

use super::dry_run;
use super::error::DaemonError;
use super::gpus::{Poll, Unmanaged};
use super::metrics::Figures;
use super::peer::Peer;
use super::suspend::Answer;
use super::watch::Attempt;

/// Message to the engine thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client asks.
    Asked(Peer, Request, Sender<Response>),
    /// A supervisor is gone.
    SupervisorEnded(Attempt),
    /// A helper that suspends a job or brings it back is gone, with its answer if it gave one.
    Suspension(Attempt, Option<Answer>),
    /// GPUs were polled.
    Polled(Poll),
    /// An epilog has ended, and how it failed.
    EpilogEnded(Attempt, Result<(), DaemonError>),
    /// Processes without the shim.
    Audited(Vec<Unmanaged>),
    /// The files of these jobs, which ended long ago, are gone.
    Removed(Vec<u64>),
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
