//! `radrm quota show`.

use std::collections::BTreeMap;
use std::path::Path;

use radrm_limits::amount::shown;
use radrm_limits::jobs::{self, Job};
use radrm_limits::ledgers::Ledgers;
use radrm_limits::machine::Node;
use radrm_limits::members::{LedgerFile, Members};
use radrm_limits::scopes::{user_name, whose};
use radrm_os::nvml::uuid_text;
use radrm_profile::Bytes;
use radrm_telemetry::ledger::{Access, Amount, GpuUse, MemberUse, ScopeMember};
use radrm_text::output;
use radrm_text::{Table, fit, left, right};
use serde::Serialize;

use super::QuotaError;
use super::awaited::{self, Awaited};
use super::shared::{self, Shared};
use crate::{Failure, NAME, print, print_json};

/// All that is shown.
#[derive(Debug, Serialize)]
struct Everything {
    jobs: Vec<JobView>,
    shared: Vec<SharedView>,
}

#[derive(Debug, Serialize)]
struct JobView {
    /// Process id of the launcher.
    job: u32,
    user: String,
    uid: u32,
    command: String,
    launcher_running: bool,
    /// True if its processes count against limits.
    limited: bool,
    /// The limit of GPUs that are not listed, as it was written; null for a job without limits.
    other_gpus: Option<String>,
    /// Its launch budget's share of the time on each GPU, percent.
    sm_limit_percent: Option<f64>,
    /// Time that its launches waited for their time slices, over all its processes, seconds.
    held_seconds: f64,
    gpus: Vec<GpuView>,
    processes: Vec<ProcessView>,
}

#[derive(Debug, Serialize)]
struct SharedView {
    /// `user alice`.
    scope: String,
    /// The directory of its ledgers; nothing for a limit that each of many users has.
    file: Option<String>,
    /// No job has counted against it yet.
    awaits_first_job: bool,
    /// The limit of GPUs that are not listed, as it was written.
    other_gpus: String,
    gpus: Vec<GpuView>,
    processes: Vec<ProcessView>,
}

#[derive(Debug, Serialize)]
struct GpuView {
    uuid: String,
    /// Name of the GPU in the table.
    label: String,
    total_bytes: u64,
    /// The limit as it was written.
    limit: String,
    limit_bytes: Option<u64>,
    used_bytes: u64,
    refused: u64,
    /// Memory that a process's context is taken to need until it is measured.
    context_bytes: u64,
    processes: usize,
}

#[derive(Debug, Serialize)]
struct ProcessView {
    /// Null for one of another pid namespace: its number there is another process's here.
    pid: Option<u32>,
    /// Bytes by GPU, in the order of the GPUs.
    bytes: Vec<u64>,
    /// Bytes of these that the driver itself takes.
    context_bytes: Vec<u64>,
}

/// Shows limits and use.
pub(super) fn run(only: Option<u32>, json: bool, machine: Option<&Path>) -> Result<(), Failure> {
    let mut node = Node::of(machine)?;
    let found = jobs::find();
    found.unread().for_each(|sentence| output::say(NAME, &sentence));
    let mut jobs = found.jobs;
    if let (Some(pid), None) = (only, machine)
        && let Some(file) = jobs.iter().find(|job| job.is(pid)).and_then(Job::machine)
    {
        node = Node::of(Some(&file))?;
    }
    let mut shared = shared::all(&node.ledgers);
    let mut awaited = Vec::new();
    if let Some(pid) = only {
        let job = jobs::of(jobs, pid).ok_or(QuotaError::NoJob(pid))?;
        let ledgers = job.shared_ledgers();
        shared.retain(|one| ledgers.iter().any(|ledger| ledger.starts_with(one.scope.path())));
        jobs = vec![job];
    } else {
        if let Ledgers::Emulated(file) = &node.ledgers {
            jobs.retain(|job| job.is_only_named() || job.is_on(Some(file)));
        }
        let known: Vec<_> = shared.iter().map(|one| one.scope.access()).collect();
        match awaited::all(&node, &known) {
            Ok(found) => awaited = found,
            Err(why) => {
                output::say(NAME, &format!("limits that no job counts against yet are not shown: {why}"))
            }
        }
    }
    for job in &jobs {
        if let Some(named) = job.false_launcher {
            let owner = user_name(job.uid).unwrap_or_else(|| job.uid.to_string());
            let said = format!("a segment of {owner} names process {named}, which is not its launcher");
            output::say(NAME, &said);
        }
    }
    for one in &shared {
        for uid in &one.report.damaged {
            let damaged = whose(Access::User(*uid));
            let said = format!(
                "the ledger of {damaged} in the limit of {} is shortened, written over or closed: `{}` makes it anew",
                one.whose(),
                node.ledgers.setup_command(&format!("user:{uid}"))
            );
            output::say(NAME, &said);
        }
    }
    let mut joined = Joined::default();
    let mut everything = Everything { jobs: Vec::new(), shared: Vec::new() };
    for job in jobs.iter().filter(|job| !job.is_only_named()) {
        everything.jobs.push(of_job(job, &node, &mut joined));
    }
    for one in &shared {
        everything.shared.push(of_shared(one, &node, &mut joined));
    }
    everything.shared.extend(awaited.iter().map(|one| of_awaited(one, &node)));
    joined.remarks().for_each(|sentence| output::say(NAME, &sentence));
    if json { print_json(&everything) } else { print(&table(&everything)) }
}

/// Members of ledgers that are the processes that they are said to be, and those that are not.
#[derive(Debug, Default)]
struct Joined {
    members: Members,
    /// A process that a user's ledgers wrongly name, by the user.
    named: BTreeMap<u32, u32>,
}

impl Joined {
    fn has(&mut self, file: LedgerFile, pid: Option<u32>) -> bool {
        let has_joined = self.members.have(file, pid);
        if let (false, Some(pid)) = (has_joined, pid) {
            self.named.entry(file.owner).or_insert(pid);
        }
        has_joined
    }

    fn remarks(&self) -> impl Iterator<Item = String> {
        let user = |uid: &u32| user_name(*uid).unwrap_or_else(|| uid.to_string());
        let unread = self.members.beyond();
        let unread_texts = unread.iter().map(move |uid| {
            format!("processes of {} cannot be read: what they have mapped takes too long", user(uid))
        });
        let named = self.named.iter().filter(|(uid, _)| !unread.contains(uid));
        let named_texts = named.map(move |(uid, pid)| {
            format!("a ledger of {} names process {pid}, which has not joined it", user(uid))
        });
        unread_texts.chain(named_texts)
    }
}

fn of_job(job: &Job, node: &Node, joined: &mut Joined) -> JobView {
    let ledger = job.ledger();
    let file = LedgerFile { owner: job.uid, id: job.file };
    let (gpus, processes) = match &ledger {
        Some(view) => {
            let mut members = view.members();
            members.retain(|member| joined.has(file, shown_pid(member)));
            of_ledger(view.gpus(), &members, node)
        }
        None => of_segment(job, node, |pid| joined.has(file, pid)),
    };
    JobView {
        job: job.launcher,
        user: user_name(job.uid).unwrap_or_else(|| job.uid.to_string()),
        uid: job.uid,
        command: job.command.clone(),
        launcher_running: job.launched,
        limited: ledger.is_some(),
        other_gpus: ledger.map(|view| shown(view.general())),
        sm_limit_percent: job.segment.budget().map(|budget| f64::from(budget.share) / 10.0),
        held_seconds: held_ns(job) as f64 / 1e9,
        gpus,
        processes,
    }
}

fn held_ns(job: &Job) -> u64 {
    let slots = job.segment.slots().unwrap_or_default();
    slots.iter().filter_map(|slot| Some(job.segment.throttled(slot).ok()?.held_ns)).sum()
}

fn of_shared(shared: &Shared, node: &Node, joined: &mut Joined) -> SharedView {
    let is_process = |one: &&ScopeMember| {
        joined.has(LedgerFile { owner: one.owner, id: one.file }, shown_pid(&one.member))
    };
    let members = shared.report.members.iter().filter(is_process).map(|one| one.member.clone());
    let (gpus, processes) = of_ledger(shared.report.gpus.clone(), &members.collect::<Vec<_>>(), node);
    SharedView {
        scope: shared.whose(),
        file: Some(shared.scope.path().display().to_string()),
        awaits_first_job: false,
        other_gpus: shown(shared.report.general),
        gpus,
        processes,
    }
}

fn of_awaited(one: &Awaited, node: &Node) -> SharedView {
    let inventory = node.machine.inventory().ok();
    let named = one.limits.iter().filter_map(|limit| Some((limit.gpu?, limit.amount)));
    let gpus = named.map(|(uuid, amount)| {
        let gpu = inventory.as_ref().and_then(|known| known.of_bytes(&uuid));
        GpuView {
            uuid: uuid_text(&uuid),
            label: node.label(&uuid),
            total_bytes: gpu.map_or(0, |gpu| gpu.total),
            limit: shown(amount),
            limit_bytes: gpu.map(|gpu| amount.bytes(gpu.total)).filter(|bytes| *bytes < u64::MAX),
            used_bytes: 0,
            refused: 0,
            context_bytes: 0,
            processes: 0,
        }
    });
    let general = one.limits.iter().find(|limit| limit.gpu.is_none());
    SharedView {
        scope: one.scope.clone(),
        file: one.ledger.as_ref().map(|path| path.display().to_string()),
        awaits_first_job: true,
        other_gpus: shown(general.map_or(Amount::Unlimited, |limit| limit.amount)),
        gpus: gpus.collect(),
        processes: Vec::new(),
    }
}

/// Number of a member's process here.
fn shown_pid(member: &MemberUse) -> Option<u32> {
    member.is_here.then_some(member.pid)
}

fn of_ledger(gpus: Vec<GpuUse>, members: &[MemberUse], node: &Node) -> (Vec<GpuView>, Vec<ProcessView>) {
    let gpu = |(number, gpu): (usize, GpuUse)| GpuView {
        uuid: uuid_text(&gpu.uuid),
        label: node.label(&gpu.uuid),
        total_bytes: gpu.total_bytes,
        limit: shown(gpu.amount),
        limit_bytes: gpu.limit,
        used_bytes: gpu.used,
        refused: gpu.refused,
        context_bytes: gpu.context,
        processes: members
            .iter()
            .filter(|member| member.bytes.get(number).is_some_and(|bytes| *bytes > 0))
            .count(),
    };
    let gpus = gpus.into_iter().enumerate().map(gpu).collect();
    let process = |member: &MemberUse| ProcessView {
        pid: shown_pid(member),
        bytes: member.bytes.clone(),
        context_bytes: member.overhead.clone(),
    };
    (gpus, members.iter().map(process).collect())
}

/// A job without limits: what its processes hold, as they count it.
fn of_segment(
    job: &Job,
    node: &Node,
    mut has_joined: impl FnMut(Option<u32>) -> bool,
) -> (Vec<GpuView>, Vec<ProcessView>) {
    let known = job.segment.gpus().unwrap_or_default();
    let totals: Vec<_> = job
        .running()
        .iter()
        .filter(|slot| has_joined(slot.pid))
        .map(|slot| (slot.pid, job.segment.totals(slot).unwrap_or_default()))
        .collect();
    let of = |totals: &[(radrm_telemetry::GpuIndex, u64)], gpu| {
        totals.iter().find(|(index, _)| *index == gpu).map_or(0, |(_, bytes)| *bytes)
    };
    let gpus = known
        .iter()
        .map(|gpu| GpuView {
            uuid: uuid_text(&gpu.uuid),
            label: node.label(&gpu.uuid),
            total_bytes: gpu.total_bytes,
            limit: "none".to_owned(),
            limit_bytes: None,
            used_bytes: totals.iter().map(|(_, totals)| of(totals, gpu.index)).sum(),
            refused: 0,
            context_bytes: 0,
            processes: totals.iter().filter(|(_, totals)| of(totals, gpu.index) > 0).count(),
        })
        .collect();
    let processes = totals
        .iter()
        .map(|(pid, totals)| ProcessView {
            pid: *pid,
            bytes: known.iter().map(|gpu| of(totals, gpu.index)).collect(),
            context_bytes: vec![0; known.len()],
        })
        .collect();
    (gpus, processes)
}

const HEADS: [&str; 8] = ["JOB", "USER", "SCOPE", "GPU", "LIMIT", "IN USE", "REFUSED", "PROCESSES"];
/// From here on columns of figures, which end alike.
const FIGURES: usize = 4;

fn table(everything: &Everything) -> String {
    let (texts, figures) = HEADS.split_at(FIGURES);
    let columns = texts.iter().map(|title| left(*title)).chain(figures.iter().map(|title| right(*title)));
    let mut table = Table::new(columns);
    for job in &everything.jobs {
        let scope = if job.limited { "job" } else { "not limited" };
        let head = [job.job.to_string(), job.user.clone(), scope.to_owned()];
        let none = if job.limited { "any" } else { "-" };
        let rows = rows_of(&head, &job.gpus, none, job.other_gpus.as_deref());
        rows.iter().for_each(|row| table.row(row));
    }
    for shared in &everything.shared {
        let head = ["-".to_owned(), "-".to_owned(), shared.scope.clone()];
        let rows = rows_of(&head, &shared.gpus, "any", Some(&shared.other_gpus));
        rows.iter().for_each(|row| table.row(row));
        // No GPU is in use under it, so that each that is not named counts.
        if shared.awaits_first_job && !shared.gpus.is_empty() && shared.other_gpus != "none" {
            let rows = rows_of(&head, &[], "others", Some(&shared.other_gpus));
            rows.iter().for_each(|row| table.row(row));
        }
    }
    if table.is_empty() {
        return "no job is running and no user or group is limited, as far as you can see\n".to_owned();
    }
    let mut text = table.to_string();
    for JobView { job, command, sm_limit_percent, held_seconds, .. } in &everything.jobs {
        text.push_str(&format!("job {job}: {}\n", fit(command, 100)));
        if let Some(percent) = sm_limit_percent {
            text.push_str(&format!(
                "job {job}: launches in {percent} % of the time, has waited {held_seconds:.1} s for its time slices\n"
            ));
        }
    }
    text
}

fn rows_of(head: &[String; 3], gpus: &[GpuView], none: &str, other: Option<&str>) -> Vec<Vec<String>> {
    let row = |gpu: &str, limit: String, used: u64, refused: u64, processes: usize| {
        let figures = [limit, Bytes(used).to_string(), refused.to_string(), processes.to_string()];
        head.iter().cloned().chain([gpu.to_owned()]).chain(figures).collect::<Vec<String>>()
    };
    if gpus.is_empty() {
        return vec![row(none, other.unwrap_or("-").to_owned(), 0, 0, 0)];
    }
    gpus.iter()
        .map(|gpu| {
            let limit = match gpu.limit_bytes {
                Some(bytes) => Bytes(bytes).to_string(),
                None => gpu.limit.clone(),
            };
            row(&gpu.label, limit, gpu.used_bytes, gpu.refused, gpu.processes)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(limit: Option<u64>, used: u64) -> GpuView {
        GpuView {
            uuid: "GPU-1".into(),
            label: "0".into(),
            total_bytes: 80 << 30,
            limit: "none".into(),
            limit_bytes: limit,
            used_bytes: used,
            refused: 3,
            context_bytes: 0,
            processes: 2,
        }
    }

    #[test]
    fn limits_and_use_stand_in_columns() {
        let job = JobView {
            job: 4711,
            user: "alice".into(),
            uid: 1000,
            command: "python3 train.py".into(),
            launcher_running: true,
            limited: true,
            other_gpus: Some("none".into()),
            sm_limit_percent: Some(30.0),
            held_seconds: 1.25,
            gpus: vec![gpu(Some(10 << 30), 3 << 30), gpu(None, 0)],
            processes: Vec::new(),
        };
        let shared = SharedView {
            scope: "user alice".into(),
            file: None,
            awaits_first_job: false,
            other_gpus: "50%".into(),
            gpus: Vec::new(),
            processes: Vec::new(),
        };
        let text = table(&Everything { jobs: vec![job], shared: vec![shared] });
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.trim().is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(lines[0], HEADS);
        assert_eq!(lines[1], ["4711", "alice", "job", "0", "10.0 GiB", "3.00 GiB", "3", "2"]);
        assert_eq!(lines[2], ["4711", "alice", "job", "0", "none", "0 B", "3", "2"]);
        assert_eq!(lines[3], ["-", "-", "user alice", "any", "50%", "0 B", "0", "0"]);
        assert_eq!(lines[4], ["job 4711: python3 train.py"]);
        assert_eq!(
            lines[5],
            ["job 4711: launches in 30 % of the time, has waited 1.2 s for its time slices"]
        );
    }

    #[test]
    fn an_idle_machine_says_so() {
        let text = table(&Everything { jobs: Vec::new(), shared: Vec::new() });
        assert!(text.starts_with("no job is running"));
    }
}
