//! `radrm queue`, `radrm show`, `radrm nodes`.

use std::fmt::Write;
use std::io::IsTerminal;

use clap::Args;
use radrm_base::{MemoryOrigin, calendar};
use radrm_protocol::connection::{Connection, JobList, odd};
use radrm_protocol::job_ref::JobRef;
use radrm_protocol::limits::DrainRow;
use radrm_protocol::wire::{GpuRow, HostLimits, JobRow, Line, NodeRow, Request, Response};
use radrm_protocol::words;
use radrm_text::{Table, clean, fit, left, right};

use super::text::{bytes, time};
use super::{arrays, asked, reservations};
use crate::{Failure, print, print_json};

/// Lines of waiting jobs that a terminal shows unless more are requested.
const ON_TERMINAL: u32 = 100;

#[derive(Args, Debug)]
pub struct Flags {
    /// With the reason for each job's place
    #[arg(long)]
    why: bool,
    /// With the column of users, also where all jobs are of one
    #[arg(long)]
    all: bool,
    /// Only your own jobs (administrators see those of all users)
    #[arg(long, conflicts_with = "all")]
    mine: bool,
    /// With the newest N ended jobs
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    ended: u32,
    /// At most N lines of waiting jobs, 0 for all (on a terminal: 100)
    #[arg(long, value_name = "N", conflicts_with = "json")]
    first: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), Failure> {
    // Of others only administrators get any.
    let all = !flags.mine;
    if flags.json {
        return print_json(&connection.jobs(all, flags.ended)?);
    }
    let first = flags.first.unwrap_or(if std::io::stdout().is_terminal() { ON_TERMINAL } else { 0 });
    let JobList { rows, left_out } = connection.merged_jobs(all, flags.ended, first)?;
    if rows.is_empty() {
        return print("no jobs\n");
    }
    let own = rustix::process::geteuid().as_raw();
    let of_others = rows.iter().any(|row| row.uid != own);
    let mut text = list(&rows, flags.all || of_others, flags.why);
    if left_out > 0 {
        let _ = writeln!(text, "{left_out} more jobs wait; `radrm queue --first 0` lists them");
    }
    print(&text)
}

/// State of the node and its GPUs, as the daemon knows it.
pub(super) fn node(connection: &mut Connection) -> Result<NodeRow, Failure> {
    match connection.ask(&Request::Nodes)? {
        Response::Nodes(node) => Ok(*node),
        other => Err(odd(&other).into()),
    }
}

/// A table of jobs.
pub(super) fn list(rows: &[JobRow], all: bool, why: bool) -> String {
    let mut columns = vec![right("JOB")];
    columns.extend(all.then(|| left("USER")));
    columns.extend([left("NAME"), left("STATE")]);
    columns.extend(["GPUS", "MEMORY", "PEAK", "TIME", "LEFT", "TRIES"].map(right));
    columns.extend(why.then(|| left("WHY")));
    let mut table = Table::new(columns);
    for (name, row) in arrays::lines(rows) {
        let waits = row.state.is_queued();
        let asked = row.asked.memory().filter(|_| waits);
        let memory = row.suspended.or(row.reserved).or(asked).map_or_else(|| bytes(row.used), bytes);
        let mut line = vec![name];
        line.extend(all.then(|| fit(&row.user, 12)));
        line.extend([
            row.name.fit(24),
            state(row),
            row.gpus.to_string(),
            memory,
            bytes(row.peak.unwrap_or(0)),
            if waits { "-".to_owned() } else { time(row.ran_ms) },
            time_left(row),
            row.attempts.to_string(),
        ]);
        line.extend(why.then(|| row.end.as_ref().unwrap_or(&row.why).fit(200)));
        table.row(line);
    }
    table.to_string()
}

/// Time until a running job's limit ends it, or until a waiting one is expected to start.
pub(super) fn time_left(row: &JobRow) -> String {
    let starts = row.starts_in_ms.map(|ms| format!("in {}", time(ms)));
    starts.or_else(|| row.left_ms.map(time)).unwrap_or_else(|| "-".to_owned())
}

/// State of a job in a list, with the time for which its GPUs have done nothing.
fn state(row: &JobRow) -> String {
    let idle = row.idle_ms.map(|ms| format!(", idle {}", time(ms))).unwrap_or_default();
    format!("{}{idle}", row.state)
}

pub(super) fn show(job: JobRef, json: bool, connection: &mut Connection) -> Result<(), Failure> {
    let (row, lines) = match connection.ask(&Request::Show { job })? {
        Response::Job(row, lines) => (row, lines),
        other => return Err(odd(&other).into()),
    };
    if json {
        return print_json(&serde_json::json!({ "job": row, "history": lines }));
    }
    print(&show_text(&row, &lines))
}

/// Everything about a job, and its history.
pub(super) fn show_text(row: &JobRow, lines: &[Line]) -> String {
    let mut text = String::new();
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<12} {}", fit(&value, 2000));
        }
    };
    put("job", format!("{} ({})", row.job, row.name));
    let task = row.task.map(|task| format!("{}, index {}", task.array, task.index));
    put("array", task.unwrap_or_default());
    put("user", row.user.clone());
    put(
        "state",
        row.end
            .as_ref()
            .map_or_else(|| row.state.to_string(), |end| ended(&row.state.to_string(), &end.to_string())),
    );
    put("command", words::shown(&row.command).to_string());
    put("directory", row.cwd.to_string());
    put("GPUs", if row.devices.is_empty() { row.gpus.to_string() } else { row.devices.join(", ") });
    let emulated = row.emulated.as_ref().map(|spec| format!("{spec}: the figures are not of a real GPU"));
    put("emulated", emulated.unwrap_or_default());
    put("asked for", asked::text(&row.asked));
    put("target", row.standing.clone().unwrap_or_default());
    put("need", row.need_from.clone().unwrap_or_default());
    put("reserved", row.reserved.map(bytes).unwrap_or_default());
    put("suspended", suspended(row));
    put("peak", row.peak.map(bytes).unwrap_or_default());
    put("activity", activity(row));
    let idle = row.idle_ms.map(|ms| format!("its GPUs have done nothing for {}", time(ms)));
    put("idle", idle.unwrap_or_default());
    put("host", host(row));
    put("priority", row.priority.to_string());
    put("attempts", format!("{}, {} of them out of GPU memory", row.attempts, row.ooms));
    let refused =
        (row.refused > 0).then(|| format!("{} for GPU memory in the last attempt", requests(row.refused)));
    put("refused", refused.unwrap_or_default());
    put("time", time(row.ran_ms));
    put("time limit", row.time_limit_ms.map(time).unwrap_or_default());
    put("time left", row.left_ms.map(time).unwrap_or_default());
    put("starts", row.starts_in_ms.map(|ms| format!("in about {}", time(ms))).unwrap_or_default());
    put("exit code", row.exit_code.map(|code| code.to_string()).unwrap_or_default());
    put("process", row.pid.map(|pid| pid.to_string()).unwrap_or_default());
    put("output", row.output.to_string());
    put("error", row.error.as_ref().map(ToString::to_string).unwrap_or_default());
    put("profile", row.profile.as_ref().map(ToString::to_string).unwrap_or_default());
    text.push('\n');
    for line in lines {
        let after = line.at_ms.saturating_sub(row.submitted_ms);
        let _ = writeln!(text, "{:>14}  {}", format!("+{}", time(after)), line.text.fit(2000));
    }
    text
}

/// Activity of a job on a GPU that it has to itself.
fn activity(row: &JobRow) -> String {
    row.activity.map_or_else(String::new, |seen| {
        format!("SM activity {}, SM occupancy {}, alone on a GPU", seen.smact, seen.smocc)
    })
}

/// Host use of its processes, and what it booked.
fn host(row: &JobRow) -> String {
    let booked = |amount: String| format!(" (booked {amount})");
    let cores = |milli: u64| format!("{:.2} cores", milli as f64 / 1000.0);
    let mut parts = Vec::new();
    if row.host_memory > 0 || row.booked_host_memory > 0 {
        let more = (row.booked_host_memory > 0).then(|| booked(bytes(row.booked_host_memory)));
        parts.push(format!("{} resident{}", bytes(row.host_memory), more.unwrap_or_default()));
    }
    if row.cpu_milli.is_some() || row.booked_cpu_milli > 0 {
        let more = (row.booked_cpu_milli > 0).then(|| booked(cores(row.booked_cpu_milli)));
        let taken = row.cpu_milli.map_or_else(|| "-".to_owned(), cores);
        parts.push(format!("{taken}{}", more.unwrap_or_default()));
    }
    let by = match row.memory_origin {
        Some(MemoryOrigin::Uncore) => " (the node's by CPU time: uncore counters)",
        _ => "",
    };
    parts.extend(row.memory_traffic.map(|traffic| format!("{}/s memory traffic{by}", bytes(traffic))));
    parts.extend(row.memory_stalled.map(|part| format!("{part} of CPU cycles stalled")));
    parts.join(", ")
}

/// Memory of a suspended job in the host, and the processes that NVML does not show.
fn suspended(row: &JobRow) -> String {
    let Some(held) = row.suspended else { return String::new() };
    let pids: Vec<String> = row.suspended_pids.iter().map(u32::to_string).collect();
    format!("{} in host memory; processes {}", bytes(held), pids.join(" "))
}

pub(super) fn nodes(json: bool, connection: &mut Connection) -> Result<(), Failure> {
    let node = node(connection)?;
    if json {
        return print_json(&node);
    }
    print(&node_text(&node))
}

/// Jobs on a GPU with their users, as far as they may be seen, and with the time until their limits end them.
pub(super) fn who(gpu: &GpuRow, with_time: bool) -> String {
    let one = |job: &u64| {
        let row = gpu.who.iter().find(|row| row.job == *job);
        let left = row.and_then(|row| row.left_ms).filter(|_| with_time);
        let left = left.map(|ms| format!(", {} left", time(ms))).unwrap_or_default();
        row.map_or_else(|| job.to_string(), |row| format!("{job} ({}{left})", fit(&row.user, 24)))
    };
    let shown: Vec<String> = gpu.jobs.iter().map(one).collect();
    let others = (gpu.job_count as usize).saturating_sub(shown.len());
    let others = (others > 0).then(|| format!("+{others} of others"));
    shown.into_iter().chain(others).collect::<Vec<_>>().join(" ")
}

/// Suspended jobs, if there are any.
pub(super) fn off_gpu(node: &NodeRow) -> String {
    match node.suspended {
        0 => String::new(),
        count => format!("{count} suspended ({} in host memory), ", bytes(node.suspended_bytes)),
    }
}

/// The machine in a few lines.
pub(super) fn node_text(node: &NodeRow) -> String {
    let mut text = format!(
        "{}: {} CPUs, {}, policy {}, {} running, {}{} waiting{}\n",
        fit(&node.host, 64),
        node.cpus,
        bytes(node.memory),
        node.policy,
        node.running,
        off_gpu(node),
        node.waiting,
        node.emulated
            .as_ref()
            .map(|spec| format!(", GPUs are emulated ({})", clean(spec)))
            .unwrap_or_default()
    );
    let HostLimits { cpu, memory, why } = &node.host_limits;
    let held = [("--cpus", *cpu), ("--mem", *memory)].map(|(option, is_limit)| match is_limit {
        true => format!("{option} is a limit"),
        false => format!("{option} is only reserved"),
    });
    let why = why.as_ref().map(|why| format!(" ({})", clean(why))).unwrap_or_default();
    let _ = writeln!(text, "{}{why}", held.join(", "));
    if let Some(bandwidth) = node.memory_bandwidth {
        let why = fit(node.memory_problem.as_deref().unwrap_or_default(), 400);
        let most = bytes(bandwidth);
        let _ = match node.memory_origin {
            Some(MemoryOrigin::Resctrl) => {
                writeln!(text, "memory traffic of jobs is counted by resctrl, of {most}/s")
            }
            Some(MemoryOrigin::Uncore) => writeln!(
                text,
                "memory traffic of the node is counted by uncore counters, of {most}/s, and divided by CPU time ({why})"
            ),
            Some(MemoryOrigin::StalledCycles) => {
                writeln!(text, "memory traffic of jobs is n/a, their stalled cycles are counted ({why})")
            }
            None => writeln!(text, "memory traffic of jobs is n/a: {why}"),
        };
    }
    let fences = [(node.gpu_fence.driver, "the driver"), (node.gpu_fence.files, "the kernel (device files)")];
    let fences = fences.into_iter().filter_map(|(holds, name)| holds.then_some(name));
    let fences: Vec<&str> = ["the shim"].into_iter().chain(fences).collect();
    let _ = writeln!(text, "jobs are kept to their own GPUs by {}", fences.join(", "));
    if let Some(mps) = &node.mps {
        let _ = writeln!(text, "{}", clean(mps));
    }
    let mut table = Table::new([
        left("GPU"),
        left("MODEL"),
        right("MEMORY"),
        right("USED"),
        right("RESERVED"),
        right("UNMANAGED"),
        right("SMACT"),
        right("UTIL"),
        left("STATE"),
        left("JOBS"),
    ]);
    for gpu in &node.gpus {
        let percent = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{part}%"));
        let smact = percent(gpu.smact.map(|parts| f64::from(parts) / 10.0));
        let state = match gpu {
            gpu if gpu.lost => "gone".to_owned(),
            gpu if gpu.drained => "drained".to_owned(),
            gpu if reservations::of_gpu(&node.reservations, gpu.index).is_some() => {
                let row = reservations::of_gpu(&node.reservations, gpu.index);
                row.map(|row| format!("reserved for {}", fit(&row.whose, 24))).unwrap_or_default()
            }
            gpu if gpu.kept_for.is_some() => format!("kept for {}", gpu.kept_for.unwrap_or(0)),
            gpu if gpu.whole => "given as a whole".to_owned(),
            _ => String::new(),
        };
        let idle = gpu.idle_ms.filter(|_| gpu.job_count > 0).map(|ms| format!("idle {}", time(ms)));
        let state: Vec<String> =
            [Some(state), idle].into_iter().flatten().filter(|part| !part.is_empty()).collect();
        table.row([
            gpu.index.to_string(),
            fit(&gpu.model, 28),
            bytes(gpu.total),
            bytes(gpu.used),
            bytes(gpu.reserved),
            bytes(gpu.foreign),
            smact,
            percent(gpu.utilization.map(f64::from)),
            state.join(", "),
            who(gpu, true),
        ]);
    }
    text.push_str(&table.to_string());
    if let Some(why) = &node.unmetered {
        let _ = writeln!(
            text,
            "GPUs without GPM are measured by timed launches of jobs only, as DCGM does not: {}",
            fit(why, 200)
        );
    }
    for gpu in &node.gpus {
        if let Some(drain) = &gpu.drain {
            let DrainRow { reason, by, at_ms } = drain;
            let reason = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            // A daemon that knew no reasons did not keep who drained it either.
            let by = match by.is_empty() {
                true => String::new(),
                false => format!(" ({by}, {})", calendar::utc(at_ms.saturating_mul(1_000_000))),
            };
            let sentence = format!("GPU {} is drained{reason}{by}", gpu.index);
            let _ = writeln!(text, "{}", fit(&sentence, 300));
        }
        for process in &gpu.outside {
            let _ =
                writeln!(text, "outside of jobs, on GPU {}: {}", gpu.index, fit(&process.to_string(), 200));
        }
    }
    node.reservations.iter().for_each(|row| text.push_str(&reservations::line(row)));
    for sentence in node.issues.iter().chain(&node.audit) {
        text.push_str(&format!("! {}\n", sentence.fit(400)));
    }
    text
}

/// State and end of a job that has ended, in words.
fn ended(state: &str, end: &str) -> String {
    if end.starts_with(state) { end.to_owned() } else { format!("{state}: {end}") }
}

/// `1 request`, `2 requests`.
fn requests(count: u64) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}

#[cfg(test)]
mod tests {
    use radrm_protocol::wire::GpuJobRow;
    use radrm_scheduler_core::JobState;

    use super::*;

    #[test]
    fn one_is_singular_and_an_end_says_ended_once() {
        assert_eq!(ended("ended", "ended by its time limit"), "ended by its time limit");
        assert_eq!(ended("ended", "exit code 3"), "ended: exit code 3");
        assert_eq!([1, 2].map(requests), ["1 request", "2 requests"]);
    }

    #[test]
    fn each_state_is_listed_by_its_text_form() {
        for state in JobState::ALL {
            let mut sent = serde_json::to_value(JobRow::default()).unwrap();
            sent["state"] = state.as_str().into();
            let row: JobRow = serde_json::from_value(sent).unwrap();
            assert!(list(&[row], false, false).contains(&format!("  {state} ")), "{state}");
        }
    }

    #[test]
    fn jobs_are_shown_with_their_users_and_the_time_that_is_left() {
        let of =
            |job, user: &str, left_ms| GpuJobRow { job, user: user.into(), left_ms, ..GpuJobRow::default() };
        let who_is = vec![of(7, "alice", Some(7_200_000)), of(9, "bob", None)];
        let gpu = GpuRow { jobs: vec![7, 9], who: who_is, job_count: 3, ..GpuRow::default() };
        assert_eq!(who(&gpu, true), "7 (alice, 2 h 00 min left) 9 (bob) +1 of others");
        assert_eq!(who(&GpuRow { job_count: 1, ..GpuRow::default() }, true), "+1 of others");
        let running = JobRow { left_ms: Some(7_200_000), state: JobState::Running, ..JobRow::default() };
        assert!(list(&[running], false, false).contains("  2 h 00 min  "));
        let waiting = JobRow { starts_in_ms: Some(60_000), ..JobRow::default() };
        assert_eq!(time_left(&waiting), "in 1 min 00 s");
    }

    #[test]
    fn a_job_that_holds_idle_gpus_is_shown_with_the_time() {
        let row = JobRow { state: JobState::Running, idle_ms: Some(720_000), ..JobRow::default() };
        let text = list(&[row], false, false);
        assert!(text.contains("  running, idle 12 min"), "{text}");
        let held = GpuRow { job_count: 1, idle_ms: Some(720_000), ..GpuRow::default() };
        let whole = GpuRow { whole: true, ..held.clone() };
        let free = GpuRow { job_count: 0, ..held.clone() };
        for (gpu, shown) in [(held, "  idle 12 min"), (whole, "  given as a whole, idle 12 min")] {
            let text = node_text(&NodeRow { gpus: vec![gpu], ..NodeRow::default() });
            assert!(text.contains(shown), "{text}");
        }
        assert!(!node_text(&NodeRow { gpus: vec![free], ..NodeRow::default() }).contains("idle"));
    }

    #[test]
    fn a_drain_is_shown_with_no_more_than_is_known_of_it() {
        let text = |drain: DrainRow| {
            let gpu = GpuRow { drained: true, drain: Some(drain), ..GpuRow::default() };
            node_text(&NodeRow { gpus: vec![gpu], ..NodeRow::default() })
        };
        let unknown = text(DrainRow::default());
        assert!(unknown.contains("GPU 0 is drained\n"), "by a version that kept no reasons: {unknown}");
        let (reason, by) = (Some("fan broken".to_owned()), "root".to_owned());
        let known = text(DrainRow { reason, by, at_ms: 951_782_400_000 });
        assert!(known.contains("GPU 0 is drained: fan broken (root, 2000-02-29"), "{known}");
    }

    #[test]
    fn names_of_jobs_cannot_mislead_an_administrator() {
        let row = JobRow {
            job: 7,
            user: "eve\u{200b}".into(),
            name: "gpj.\u{202e}nur\u{1b}[2J\n".into(),
            state: JobState::Ended,
            end: Some("failed\u{2066} well".into()),
            ..JobRow::default()
        };
        let text = list(&[row], true, true);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("eve\\u{200b}  ") && text.contains("gpj.\\u{202e}nur\\u{1b}["), "{text}");
        assert!(text.ends_with("failed\\u{2066} well\n"), "{text}");
        let hidden = |c: char| c.is_control() && c != '\n' || "\u{200b}\u{202e}\u{2066}".contains(c);
        assert!(!text.contains(hidden), "{text:?}");
    }
}
