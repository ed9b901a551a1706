//! `radrm quota set`.

use std::path::Path;

use radrm_console::output::{self, reason};
use radrm_limits::amount::{rounded, shown};
use radrm_limits::config::Percentage;
use radrm_limits::jobs::{self, Job};
use radrm_limits::ledgers::Ledgers;
use radrm_limits::machine::Node;
use radrm_limits::mps::fence;
use radrm_limits::requested::RequestedLimits;
use radrm_limits::resolve::{amount_for, resolve};
use radrm_limits::scopes::{self, Person};
use radrm_limits::start::Machine;
use radrm_limits::{files, share as shares};
use radrm_telemetry::ledger::{
    Access, Amount, GpuUse, LedgerError, LedgerView, Limit, ScopeDirectory, ScopeReport,
};

use super::{Target, init};

/// Changes a limit.
///
/// # Errors
/// One sentence.
pub fn run(target: &Target, limits: Option<&RequestedLimits>, machine: Option<&Path>) -> Result<(), String> {
    let said = match target {
        Target::Job(pid) => of_job(*pid, limits)?,
        Target::User(name) => of_shared(Access::User(init::uid(name)?), limits, &Node::of(machine)?)?,
        Target::Group(name) => of_shared(Access::Group(init::gid(name)?), limits, &Node::of(machine)?)?,
    };
    tell(&said)
}

fn tell(said: &[String]) -> Result<(), String> {
    output::to_stdout(&said.iter().map(|line| format!("{line}\n")).collect::<String>())
        .map(|_| ())
        .map_err(|error| format!("standard output cannot be written: {}", reason(&error)))
}

/// Changes a job's share of its GPUs' time, or lifts it.
///
/// # Errors
/// One sentence.
pub fn share(target: &Target, share: Option<Percentage>) -> Result<(), String> {
    let Target::Job(pid) = target else {
        return Err("--sm-limit is a job's, not a user's or a group's".to_owned());
    };
    let all = jobs::all();
    let job = all.iter().find(|job| job.launcher == *pid).or_else(|| all.iter().find(|job| job.is(*pid)));
    let job = job.ok_or_else(|| format!("there is no job {pid}, as far as you can see"))?;
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
    tell(&said)
}

fn of_job(pid: u32, requested: Option<&RequestedLimits>) -> Result<Vec<String>, String> {
    let job =
        jobs::of(jobs::all(), pid).ok_or_else(|| format!("there is no job {pid}, as far as you can see"))?;
    let name = format!("job {}", job.launcher);
    let requested =
        requested.ok_or_else(|| format!("{name} has no configured limit to go back to: give one"))?;
    let Some(view) = &job.ledger() else {
        return Err(format!(
            "{name} was started without a limit, so its processes do not count against one: start it with --mem-limit 100%, and its limit can be changed while it runs"
        ));
    };
    let node = Node::of_job(&job)?;
    let limits = resolve(requested, &|| node.machine.inventory())?;
    within_cap(&limits, &node.machine)?;
    change(view, &limits)?;
    let mut said = report(&name, &view.gpus(), &limits, &node);
    said.extend(fence_remark(&job));
    Ok(said)
}

/// A job's owner may change its limit, up to what the node allows a job.
fn within_cap(limits: &[Limit], machine: &Machine) -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let gpus = || machine.inventory();
    let scopes =
        scopes::gather(Some(&RequestedLimits::parse("none")?), &files::all()?, &Person::own(), &gpus)?;
    let Some(cap) = scopes.job.filter(|cap| cap.iter().any(|limit| limit.amount != Amount::Unlimited)) else {
        return Ok(());
    };
    if let Some(more) = first_beyond(limits, &cap, machine)? {
        return Err(format!("this node allows a job at most {}", shown(more)));
    }
    Ok(())
}

/// The cap that some limit is beyond.
fn first_beyond(limits: &[Limit], cap: &[Limit], machine: &Machine) -> Result<Option<Amount>, String> {
    let comparable = |one: Amount, other: Amount| match (one, other) {
        (_, Amount::Unlimited) => Some(false),
        (Amount::Unlimited, _) => Some(true),
        (Amount::Bytes(a), Amount::Bytes(b)) => Some(a > b),
        (Amount::PerMyriad(a), Amount::PerMyriad(b)) => Some(a > b),
        _ => None,
    };
    if cap.is_empty() {
        return Ok(None);
    }
    if let ([Limit { gpu: None, amount }], [Limit { gpu: None, amount: most }]) = (limits, cap)
        && let Some(beyond) = comparable(*amount, *most)
    {
        return Ok(beyond.then_some(*most));
    }
    let inventory = machine.inventory().map_err(|why| format!("limits cannot be compared: {why}"))?;
    for gpu in inventory.usable() {
        let (Some(amount), Some(most)) = (amount_for(limits, &gpu.bytes), amount_for(cap, &gpu.bytes)) else {
            continue;
        };
        if amount.bytes(gpu.total) > most.bytes(gpu.total) {
            return Ok(Some(most));
        }
    }
    Ok(None)
}

fn of_shared(
    access: Access,
    requested: Option<&RequestedLimits>,
    node: &Node,
) -> Result<Vec<String>, String> {
    let name = scopes::whose(access);
    let root = rustix::process::geteuid().is_root();
    let own = rustix::process::getuid().as_raw();
    if let Access::User(uid) = access
        && !root
        && uid != own
    {
        return Err(format!("only root may change the limit of {name}"));
    }
    if matches!(access, Access::Group(_)) && !node.ledgers.is_administered_here() {
        return Err(format!("only root may change the limit of {name}, which others share"));
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
    if !root && let Some(most) = first_beyond(&limits, &configured, &node.machine)? {
        return Err(format!(
            "only root may give {name} more than the configuration does, which is {}",
            shown(most)
        ));
    }
    let kept = |error| format!("the change of {name} cannot be kept: {error}");
    let (scope, before) = match keep(access, requested.is_some(), &limits, node) {
        Err(LedgerError::NotSetUp(path)) => {
            let command = node.ledgers.setup_command(&format!("user:{}", person.name()));
            return Err(format!("{}; root sets it up by `{command}`", kept(LedgerError::NotSetUp(path))));
        }
        other => other.map_err(kept)?,
    };
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
        .filter(|job| job.machine().as_deref() == machine_file(node))
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

/// Who has emulated GPUs only most likely meant these.
fn elsewhere(node: &Node) -> Option<String> {
    let none = node.machine.inventory().map_or(true, |inventory| inventory.gpus.is_empty());
    (none && matches!(node.ledgers, Ledgers::System)).then(|| {
        "NVML tells of no GPU here: emulated ones have limits of their own, which --machine FILE changes"
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
fn change(view: &LedgerView, limits: &[Limit]) -> Result<(), String> {
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
    if done { Ok(()) } else { Err("the ledger knows as many GPUs as it can".to_owned()) }
}

/// What holds now, and where it is less than what is in use.
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
    let fixed = job.processes().into_iter().find_map(|process| process.variable(fence::VARIABLE))?;
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

    #[test]
    fn a_limit_beyond_the_cap_is_found() {
        let machine = Machine::new(NvmlSource::Off);
        let beyond = |one, other| first_beyond(&general(one), &general(other), &machine);
        let (five, nine) = (Amount::Bytes(5 << 30), Amount::Bytes(9 << 30));
        assert_eq!(beyond(nine, five), Ok(Some(five)));
        assert_eq!(beyond(five, nine), Ok(None));
        assert_eq!(beyond(Amount::Unlimited, nine), Ok(Some(nine)));
        assert_eq!(beyond(five, Amount::Unlimited), Ok(None));
        assert!(beyond(five, Amount::PerMyriad(100)).is_err(), "without NVML they cannot be compared");
    }
}
