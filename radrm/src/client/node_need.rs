//! Needs by this node's radrmd: what a submission of a job would be given.

use std::path::Path;

use radrm_launcher::dry_run::need::DryRunJob;
use radrm_need::{DryRun, Need};
use radrm_protocol::ProtocolError;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{EstimateRow, Request, Response};

use super::submit;

/// Estimate of radrmd for a job as it is.
pub(super) fn of(spec: &Spec, daemon: &mut Connection) -> Result<EstimateRow, ProtocolError> {
    match daemon.ask(&Request::Estimate(Box::new(spec.clone())))? {
        Response::Estimate(row) => Ok(*row),
        other => Err(odd(&other)),
    }
}

/// Estimate of radrmd for a job with what its user's dataset holds of it; `None` where no radrmd answers.
pub(super) fn with_own_runs(
    spec: &Spec,
    socket: Option<&Path>,
) -> Option<Result<EstimateRow, ProtocolError>> {
    let mut daemon = Connection::open(socket).ok()?;
    let mut spec = spec.clone();
    submit::add_own_runs(&mut spec);
    Some(of(&spec, &mut daemon))
}

/// The need of a program that was just dry-run, for the report of `radrm-run --dry-run`: as `radrm estimate` gives it.
#[must_use]
pub fn need_by_node(job: &DryRunJob) -> Option<Need> {
    let DryRunJob { command, cwd, gpus, batch, dry_run } = job.clone();
    let gpus = u16::try_from(gpus).ok()?;
    let dry_run: Option<DryRun> = Some(dry_run);
    let spec = Spec { command, cwd, gpus, batch, dry_run, ..Spec::default() };
    with_own_runs(&spec, None)?.ok()?.needs.memory
}
