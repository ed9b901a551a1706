//! `radrm fence`: the driver's own limits for control groups (driver 615 and newer), for prologs, plug-ins and runtimes.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use radrm_limits::amount;
use radrm_limits::cgroup::{self, FenceError, GroupLimit};
use radrm_limits::machine::Node;
use radrm_limits::requested::RequestedLimits;
use radrm_limits::resolve::{amount_for, resolve, stricter};
use radrm_os::nvml::{Gpu, GroupMemory, Inventory, NO_LIMIT};
use radrm_telemetry::ledger::Limit;
use radrm_text::output::say;
use serde::Serialize;

use crate::{Failure, NAME, print, print_json};

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Limit a control group, whatever its processes have loaded
    ///
    /// Root only. The driver refuses what is more than 512 MiB above the limit: contexts are not part of a quota before
    /// they are measured. What is below the request is guaranteed: MPS ends no process for it.
    #[command(after_long_help = "\
Examples:
  radrm fence set --limit 10GiB /sys/fs/cgroup/jobs/7
  radrm fence set --limit 0=10GiB,1=4GiB --request 0=8GiB,1=4GiB /sys/fs/cgroup/jobs/7")]
    Set(SetFlags),
    /// Take the limits of a control group back; to be done before the group is removed
    Clear(GroupFlags),
    /// Show the limits that hold in a control group, and what it holds
    Show(ShowFlags),
}

#[derive(Args, Debug)]
pub(crate) struct GroupFlags {
    /// The control group's directory below /sys/fs/cgroup
    #[arg(value_name = "GROUP")]
    group: PathBuf,
    /// The GPUs of the emulated machine in FILE
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct SetFlags {
    /// Limit for each GPU, as for radrm-run --mem-limit; of several the strictest holds
    #[arg(long, value_name = "LIST", required = true, value_parser = RequestedLimits::parse)]
    limit: Vec<RequestedLimits>,
    /// Memory that is guaranteed on each GPU [default: the limit]
    #[arg(long, value_name = "LIST", value_parser = RequestedLimits::parse)]
    request: Option<RequestedLimits>,
    #[command(flatten)]
    group: GroupFlags,
}

#[derive(Args, Debug)]
pub(crate) struct ShowFlags {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    group: GroupFlags,
}

/// Does what was asked for.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Set(flags) => set(flags),
        Command::Clear(flags) => {
            let node = Node::of(flags.machine.as_deref())?;
            Ok(cgroup::clear(&node.source, &flags.group)?)
        }
        Command::Show(flags) => show(flags),
    }
}

fn set(flags: &SetFlags) -> Result<(), Failure> {
    let node = Node::of(flags.group.machine.as_deref())?;
    let inventory = node.machine.inventory()?;
    let gpus = || node.machine.inventory();
    let mut limits = Vec::new();
    for requested in &flags.limit {
        limits = stricter(&limits, &resolve(requested, &gpus)?, &gpus)?;
    }
    let requests = flags.request.as_ref().map(|requested| resolve(requested, &gpus)).transpose()?;
    let limits = group_limits(&inventory, &limits, requests.as_deref());
    match cgroup::set(&node.source, &flags.group.group, &limits) {
        Err(error @ FenceError::Nothing) => say(NAME, &error.to_string()),
        other => other?,
    }
    Ok(())
}

/// The limits of a group on each GPU; without requests all of each limit is guaranteed.
fn group_limits(inventory: &Inventory, limits: &[Limit], requests: Option<&[Limit]>) -> Vec<GroupLimit> {
    let of = |gpu: &Gpu| {
        let bytes = |limits: &[Limit]| amount_for(limits, &gpu.bytes).map(|amount| amount.bytes(gpu.total));
        let limit = bytes(limits)?;
        GroupLimit::behind(gpu, requests.map_or(Some(limit), bytes).unwrap_or(0), limit)
    };
    cgroup::limited(inventory).filter_map(of).collect()
}

#[derive(Serialize)]
struct Row {
    gpu: String,
    soft_bytes: u64,
    /// `null`: none.
    hard_bytes: Option<u64>,
    used_bytes: u64,
}

fn show(flags: &ShowFlags) -> Result<(), Failure> {
    let node = Node::of(flags.group.machine.as_deref())?;
    let rows = rows(&node, &flags.group.group)?;
    if flags.json {
        return print_json(&rows);
    }
    let mut text = String::new();
    for row in &rows {
        let hard = row.hard_bytes.map_or_else(|| "none".to_owned(), amount::rounded);
        text.push_str(&format!(
            "{}: {} held, {hard} at most, {} guaranteed\n",
            row.gpu,
            amount::rounded(row.used_bytes),
            amount::rounded(row.soft_bytes)
        ));
    }
    if rows.is_empty() {
        text = "no limits\n".to_owned();
    }
    print(&text)
}

fn rows(node: &Node, group: &Path) -> Result<Vec<Row>, FenceError> {
    let found = cgroup::memory(&node.source, group)?;
    let row = |(gpu, memory): (String, GroupMemory)| Row {
        gpu,
        soft_bytes: memory.soft,
        hard_bytes: Some(memory.hard).filter(|hard| *hard != NO_LIMIT),
        used_bytes: memory.used,
    };
    Ok(found.into_iter().map(row).collect())
}
