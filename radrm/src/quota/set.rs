//! `radrm quota set`.

use std::path::Path;

use radrm_limits::amount::{rounded, shown};
use radrm_limits::config::Percentage;
use radrm_limits::given::Given;
use radrm_limits::jobs::{self, Job};
use radrm_limits::ledgers::Ledgers;
use radrm_limits::machine::Node;
use radrm_limits::mps::fence;
use radrm_limits::requested::RequestedLimits;
use radrm_limits::resolve::{beyond, resolve};
use radrm_limits::scopes::{self, Person};
use radrm_limits::start::Machine;
use radrm_limits::{files, share as shares};
use radrm_telemetry::budget::WHOLE;
use radrm_telemetry::ledger::{
    Access, Amount, GpuUse, LedgerError, LedgerView, Limit, ScopeDirectory, ScopeReport,
};

use super::{QuotaError, Target, init};
use crate::{Failure, print};

/// Changes a limit.
pub(super) fn run(
    target: &Target,
    limits: Option<&RequestedLimits>,
    machine: Option<&Path>,
) -> Result<(), Failure> {
    let said = match target {
        Target::Job(pid) => of_job(*pid, limits)?,
        Target::User(name) => of_shared(Access::User(init::uid(name)?), limits, &Node::of(machine)?)?,
        Target::Group(name) => of_shared(Access::Group(init::gid(name)?), limits, &Node::of(machine)?)?,
    };
    print(&(said.join("\n") + "\n"))
}

/// Changes a job's share of its GPUs' time, or lifts it.
pub(super) fn share(target: &Target, share: Option<Percentage>) -> Result<(), Failure> {
    let Target::Job(pid) = target else { return Err(QuotaError::ShareOfMany.into()) };
    let all = jobs::all();
    let job = all.iter().find(|job| job.launcher == *pid).or_else(|| all.iter().find(|job| job.is(*pid)));
    let job = job.ok_or(QuotaError::NoJob(*pid))?;
    within_given_share(job, share)?;
    shares::set(&job.segment, share, &all, job.machine().as_deref())?;
    let name = format!("job {}", job.launcher);
    let mut said = vec![match share.filter(|share| share.0 < 100) {
        Some(share) => format!("{name}: launches in {} % of the time on each GPU", share.0),
        None => format!("{name}: launches at any time"),
    }];
    if share.is_some() {
        let unheld = shares::unheld(job);
        said.extend(unheld.iter().map(|pid| format!("process {pid} of it cannot be held to that")));
    }
    print(&(said.join("\n") + "\n"))
}

fn of_job(pid: u32, requested: Option<&RequestedLimits>) -> Result<Vec<String>, QuotaError> {
    let job = jobs::of(jobs::all(), pid).ok_or(QuotaError::NoJob(pid))?;
    let name = format!("job {}", job.launcher);
    let requested = requested.ok_or(QuotaError::NotConfigured(job.launcher))?;
    let view = &job.ledger().ok_or(QuotaError::Unlimited(job.launcher))?;
    let node = Node::of_job(&job)?;
    let gpus = || node.machine.inventory();
    let mut limits = resolve(requested, &gpus)?;
    if let Some(given) = Given::of(&job) {
        limits = given.on_own(&limits, &gpus)?;
        if limits.is_empty() {
            return Err(QuotaError::NoOwnGpu { job: job.launcher, by: given.by });
        }
        within_given(&job, &given, &limits, &node.machine)?;
    }
    within_cap(&limits, &node.machine)?;
    change(view, &limits)?;
    let mut said = report(&name, &view.gpus(), &limits, &node);
    said.extend(fence_remark(&job));
    Ok(said)
}

/// Limits that another gave a job: its owner may only lower them.
fn within_given(job: &Job, given: &Given, limits: &[Limit], machine: &Machine) -> Result<(), QuotaError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let gpus = || machine.inventory();
    beyond(limits, &given.most(&gpus)?, &gpus)?
        .map_or(Ok(()), |most| Err(QuotaError::AboveGiven { job: job.launcher, by: given.by, most }))
}

/// A share of its GPUs' time that another gave a job: its owner may only lower it.
fn within_given_share(job: &Job, share: Option<Percentage>) -> Result<(), QuotaError> {
    let (Some(given), Some(budget)) = (Given::of(job), job.segment.budget()) else { return Ok(()) };
    let asked = share.map_or(WHOLE, |share| u16::from(share.0) * (WHOLE / 100));
    if rustix::process::geteuid().is_root() || asked <= budget.share {
        return Ok(());
    }
    Err(QuotaError::AboveGivenShare { job: job.launcher, by: given.by, most: budget.share / (WHOLE / 100) })
}

/// A job's owner may change its limit, up to what the node allows a job.
fn within_cap(limits: &[Limit], machine: &Machine) -> Result<(), QuotaError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let gpus = || machine.inventory();
    let scopes =
        scopes::gather(Some(&RequestedLimits::parse("none")?), &files::all()?, &Person::own(), &gpus)?;
    let Some(cap) = scopes.job.filter(|cap| cap.iter().any(|limit| limit.amount != Amount::Unlimited)) else {
        return Ok(());
    };
    beyond(limits, &cap, &gpus)?.map_or(Ok(()), |most| Err(QuotaError::AboveCap(most)))
}

fn of_shared(
    access: Access,
    requested: Option<&RequestedLimits>,
    node: &Node,
) -> Result<Vec<String>, QuotaError> {
    let name = scopes::whose(access);
    let root = rustix::process::geteuid().is_root();
    let own = rustix::process::getuid().as_raw();
    if let Access::User(uid) = access
        && !root
        && uid != own
    {
        return Err(QuotaError::NotOwn { whose: name, shared: false });
    }
    if matches!(access, Access::Group(_)) && !node.ledgers.is_administered_here() {
        return Err(QuotaError::NotOwn { whose: name, shared: true });
    }
    let gpus = || node.machine.inventory();
    // What the configuration alone says: to go back to, and for the user's own change the most.
    let person = match access {
        Access::User(uid) => Person::of(uid),
        Access::Group(gid) => Person { groups: vec![(gid, scopes::group_name(gid))], ..Person::own() },
    };
    let scopes = scopes::gather(None, &files::all()?, &person, &gpus)?;
    let configured = match access {
        Access::User(_) => scopes.user,
        Access::Group(gid) => scopes
            .groups
            .into_iter()
            .find(|group| group.gid == gid)
            .map(|group| group.limits)
            .unwrap_or_default(),
    };
    let limits = match requested {
        Some(requested) => resolve(requested, &gpus)?,
        None => configured.clone(),
    };
    if !root && let Some(most) = beyond(&limits, &configured, &gpus)? {
        return Err(QuotaError::AboveConfiguration { whose: name, most });
    }
    let kept = |error| {
        let needs_setup = matches!(error, LedgerError::NotSetUp(_));
        let setup = needs_setup.then(|| node.ledgers.setup_command(&format!("user:{}", person.name())));
        QuotaError::NotKept { whose: name.clone(), error, setup }
    };
    let (scope, before) = keep(access, requested.is_some(), &limits, node).map_err(kept)?;
    let found = ScopeReport::read(&scope).map_err(kept)?;
    let mut said = match before.used {
        false => {
            let mut said = vec![format!("{name}: {} from the next job on", text_of(&limits))];
            said.extend(elsewhere(node));
            said
        }
        true => report(&name, &found.gpus, &limits, node),
    };
    let path = scope.path();
    let outside = jobs::all()
        .iter()
        .filter(|job| matches!(access, Access::User(uid) if uid == job.uid))
        .filter(|job| {
            !job.processes().is_empty() && !job.shared_ledgers().iter().any(|ledger| ledger.starts_with(path))
        })
        .filter(|job| job.is_on(machine_file(node)))
        .count();
    match outside {
        0 => {}
        1 => said
            .push("1 job that runs was started without this limit and does not count against it".to_owned()),
        count => {
            said.push(format!(
                "{count} jobs that run were started without this limit and do not count against it"
            ));
        }
    }
    Ok(said)
}

/// Hint for a user who has emulated GPUs only and most likely meant these; `None` if a GPU is there or the emulated
/// ones were named.
fn elsewhere(node: &Node) -> Option<String> {
    let none = node.machine.inventory().map_or(true, |inventory| inventory.gpus.is_empty());
    (none && matches!(node.ledgers, Ledgers::System)).then(|| {
        "NVML reports no GPU here: emulated ones have limits of their own, which --machine FILE changes"
            .to_owned()
    })
}

fn machine_file(node: &Node) -> Option<&Path> {
    match &node.ledgers {
        Ledgers::System => None,
        Ledgers::Emulated(file) => Some(file),
    }
}

/// Writes limits into a scope: the administrator's, or those that a user sets below them. Gives what was there before.
fn keep(
    access: Access,
    by_hand: bool,
    limits: &[Limit],
    node: &Node,
) -> Result<(ScopeDirectory, ScopeReport), LedgerError> {
    let own = rustix::process::getuid().as_raw();
    let is_administrator = node.ledgers.is_administered_here();
    let scope = match node.ledgers.open(access) {
        Err(LedgerError::NotSetUp(_)) if is_administrator => node.ledgers.make(access)?,
        other => other?,
    };
    if let Access::User(uid) = access
        && is_administrator
    {
        scope.add(uid)?;
    }
    let before = ScopeReport::read(&scope)?;
    let known = if is_administrator { &before.limits[..] } else { before.own.as_deref().unwrap_or_default() };
    let all = if by_hand { merged(known, limits) } else { limits.to_vec() };
    if is_administrator {
        scope.set_limits(&all, by_hand)?;
    } else {
        scope.set_own_limits(own, &all, by_hand)?;
    }
    Ok((scope, before))
}

/// Limits after a change: those of GPUs that are named become these, and one for all others that of all others.
fn merged(known: &[Limit], changed: &[Limit]) -> Vec<Limit> {
    // What was set for one GPU before gives way to "all others", as it reads.
    let is_for_all = changed.iter().any(|limit| limit.gpu.is_none());
    let is_kept = |limit: &&Limit| !is_for_all && !changed.iter().any(|other| other.gpu == limit.gpu);
    known.iter().filter(is_kept).chain(changed).copied().collect()
}

/// Applies limits: those of GPUs that are named to these, and one for all others to all others.
fn change(view: &LedgerView, limits: &[Limit]) -> Result<(), QuotaError> {
    let named = |uuid: &[u8; 16]| limits.iter().any(|limit| limit.gpu == Some(*uuid));
    let mut done = true;
    for limit in limits {
        done &= view.set_limit(limit);
        if limit.gpu.is_none() {
            // What was set for one GPU before gives way too: "all others" is meant as it reads.
            for gpu in view.gpus().iter().filter(|gpu| !named(&gpu.uuid)) {
                done &= view.set_limit(&Limit { gpu: Some(gpu.uuid), amount: limit.amount });
            }
        }
    }
    if done { Ok(()) } else { Err(QuotaError::FullLedger) }
}

/// Limits that hold now, and where they are less than what is in use.
fn report(name: &str, gpus: &[GpuUse], limits: &[Limit], node: &Node) -> Vec<String> {
    let touched =
        |uuid: &[u8; 16]| limits.iter().any(|limit| limit.gpu.is_none() || limit.gpu == Some(*uuid));
    let gpus: Vec<_> = gpus.iter().filter(|gpu| touched(&gpu.uuid)).collect();
    if gpus.is_empty() {
        return vec![format!("{name}: {}; no GPU is in use yet", text_of(limits))];
    }
    gpus.iter()
        .map(|gpu| {
            let label = node.label(&gpu.uuid);
            let used = rounded(gpu.used);
            match gpu.limit {
                None => format!("{name}, GPU {label}: no limit, {used} in use"),
                Some(limit) if gpu.used > limit => format!(
                    "{name}, GPU {label}: limit {}, {used} in use: nothing is taken away, and nothing more is given until {} are free",
                    rounded(limit),
                    rounded(gpu.used - limit)
                ),
                Some(limit) => format!("{name}, GPU {label}: limit {}, {used} in use", rounded(limit)),
            }
        })
        .collect()
}

fn text_of(limits: &[Limit]) -> String {
    match limits {
        [] => "no limit".to_owned(),
        [Limit { gpu: None, amount }] => format!("limit {}", shown(*amount)),
        _ => format!("{} limits", limits.len()),
    }
}

/// MPS's own limit was fixed when each process started.
fn fence_remark(job: &Job) -> Option<String> {
    let fixed = job.variable(fence::VARIABLE)?;
    Some(format!(
        "MPS's own limit stays what it was when the processes started: {}={}",
        fence::VARIABLE,
        fixed.to_string_lossy()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_collector::NvmlSource;

    fn general(amount: Amount) -> Vec<Limit> {
        vec![Limit { gpu: None, amount }]
    }

    #[test]
    fn without_a_gpu_it_is_said_where_the_limits_of_emulated_ones_are() {
        let node =
            |ledgers| Node { machine: Machine::new(NvmlSource::Off), ledgers, source: NvmlSource::Off };
        assert!(elsewhere(&node(Ledgers::System)).is_some_and(|said| said.contains("--machine FILE")));
        assert_eq!(elsewhere(&node(Ledgers::Emulated("/m".into()))), None);
    }

    #[test]
    fn a_change_for_one_gpu_leaves_the_others_as_they_are() {
        let of = |gpu: u8, n| Limit { gpu: Some([gpu; 16]), amount: Amount::Bytes(n) };
        let known = [general(Amount::Bytes(9)), vec![of(0, 1), of(1, 2)]].concat();
        let expected = [general(Amount::Bytes(9)), vec![of(0, 1), of(1, 5)]].concat();
        assert_eq!(merged(&known, &[of(1, 5)]), expected);
        let all = [vec![of(1, 5)], general(Amount::Unlimited)].concat();
        assert_eq!(merged(&known, &all), all);
    }
}
