//! `radrm queue`, `radrm show`, `radrm nodes`.

use std::fmt::Write;

use clap::Args;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::wire::{JobRow, NodeRow, Request, Response};

use super::text::{bytes, plain, table, time};
use super::{asked, print, print_json};

#[derive(Args, Debug)]
pub(super) struct Flags {
    #[arg(long)]
    why: bool,
    #[arg(long)]
    all: bool,
    #[arg(long, value_name = "N", default_value_t = 0)]
    ended: u32,
    #[arg(long)]
    json: bool,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), String> {
    let rows = jobs(flags.all, flags.ended, connection)?;
    if flags.json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        return print("no jobs\n");
    }
    print(&list(&rows, flags.all, flags.why))
}

/// The jobs.
pub(super) fn jobs(all: bool, ended: u32, connection: &mut Connection) -> Result<Vec<JobRow>, String> {
    let mut jobs = Vec::new();
    let mut answer = connection.ask(&Request::Queue { all, ended })?;
    loop {
        match answer {
            Response::Part(rows) => jobs.extend(rows),
            Response::Jobs(rows) => {
                jobs.extend(rows);
                return Ok(jobs);
            }
            other => return Err(odd(&other)),
        }
        answer = connection.more()?;
    }
}

/// What the daemon knows of GPUs.
pub(super) fn node(connection: &mut Connection) -> Result<NodeRow, String> {
    match connection.ask(&Request::Nodes)? {
        Response::Nodes(node) => Ok(*node),
        other => Err(odd(&other)),
    }
}

/// A table of jobs.
pub(super) fn list(rows: &[JobRow], all: bool, why: bool) -> String {
    let mut head = vec!["JOB", "NAME", "STATE", "GPUS", "MEMORY", "PEAK", "TIME", "TRIES"];
    if all {
        head.insert(1, "USER");
    }
    if why {
        head.push("WHY");
    }
    let right: &[usize] = if all { &[0, 4, 5, 6, 7, 8] } else { &[0, 3, 4, 5, 6, 7] };
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let waits = row.state == "waiting" || row.state == "held";
            let asked = row.asked.memory().filter(|_| waits);
            let memory = row.suspended.or(row.reserved).or(asked).map_or_else(|| bytes(row.used), bytes);
            let since = if waits { "-".to_owned() } else { time(row.ran_ms) };
            let mut line = vec![
                row.job.to_string(),
                plain(&row.name, 24),
                row.state.clone(),
                row.gpus.to_string(),
                memory,
                bytes(row.peak.unwrap_or(0)),
                since,
                row.attempts.to_string(),
            ];
            if all {
                line.insert(1, plain(&row.user, 12));
            }
            if why {
                line.push(plain(row.end.as_ref().unwrap_or(&row.why), 200));
            }
            line
        })
        .collect();
    table(&head, right, &lines)
}

pub(super) fn show(job: u64, json: bool, connection: &mut Connection) -> Result<(), String> {
    let (row, lines) = match connection.ask(&Request::Show { job })? {
        Response::Job(row, lines) => (row, lines),
        other => return Err(odd(&other)),
    };
    if json {
        return print_json(&serde_json::json!({ "job": row, "history": lines }));
    }
    let mut text = String::new();
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<12} {}", plain(&value, 2000));
        }
    };
    put("job", format!("{} ({})", row.job, row.name));
    put("user", row.user.clone());
    put("state", row.end.as_ref().map_or_else(|| row.state.clone(), |end| format!("{}: {end}", row.state)));
    put("command", row.command.join(" "));
    put("directory", row.cwd.clone());
    put("GPUs", if row.devices.is_empty() { row.gpus.to_string() } else { row.devices.join(", ") });
    put("asked for", asked::text(&row.asked));
    put("need", row.need_from.clone().unwrap_or_default());
    put("set aside", row.reserved.map(bytes).unwrap_or_default());
    put("suspended", suspended(&row));
    put("peak", row.peak.map(bytes).unwrap_or_default());
    put("activity", activity(&row));
    put("host", host(&row));
    put("priority", row.priority.to_string());
    put("attempts", format!("{}, {} of them out of GPU memory", row.attempts, row.ooms));
    put("time", time(row.ran_ms));
    put("time limit", row.time_limit_ms.map(time).unwrap_or_default());
    put("exit code", row.exit_code.map(|code| code.to_string()).unwrap_or_default());
    put("process", row.pid.map(|pid| pid.to_string()).unwrap_or_default());
    put("output", row.output.clone());
    put("error", row.error.clone().unwrap_or_default());
    put("profile", row.profile.clone().unwrap_or_default());
    text.push('\n');
    for line in &lines {
        let after = line.at_ms.saturating_sub(row.submitted_ms);
        let _ = writeln!(text, "{:>14}  {}", format!("+{}", time(after)), plain(&line.text, 2000));
    }
    print(&text)
}

/// What it does to a GPU that it has to itself.
fn activity(row: &JobRow) -> String {
    row.activity.map_or_else(String::new, |seen| {
        format!("SM activity {}, SM occupancy {}, alone on a GPU", seen.smact, seen.smocc)
    })
}

/// What its processes take of the host, and what it booked.
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
    parts.join(", ")
}

/// Where a suspended job's memory is, and which processes NVML does not show.
fn suspended(row: &JobRow) -> String {
    let Some(held) = row.suspended else { return String::new() };
    let pids: Vec<String> = row.suspended_pids.iter().map(u32::to_string).collect();
    format!("{} in host memory; processes {}", bytes(held), pids.join(" "))
}

pub(super) fn nodes(json: bool, connection: &mut Connection) -> Result<(), String> {
    let node = node(connection)?;
    if json {
        return print_json(&node);
    }
    print(&node_text(&node))
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
        plain(&node.host, 64),
        node.cpus,
        bytes(node.memory),
        node.policy,
        node.running,
        off_gpu(node),
        node.waiting,
        node.emulated.as_ref().map(|spec| format!(", GPUs are emulated ({spec})")).unwrap_or_default()
    );
    let lines: Vec<Vec<String>> = node
        .gpus
        .iter()
        .map(|gpu| {
            let busy = match (gpu.smact, gpu.utilization) {
                (Some(parts), _) => format!("{}%", parts / 10),
                (None, Some(percent)) => format!("{percent}%*"),
                _ => "-".to_owned(),
            };
            let state = match gpu {
                gpu if gpu.lost => "gone".to_owned(),
                gpu if gpu.drained => "drained".to_owned(),
                gpu if gpu.kept_for.is_some() => format!("kept for {}", gpu.kept_for.unwrap_or(0)),
                gpu if gpu.whole => "given as a whole".to_owned(),
                _ => String::new(),
            };
            let jobs: Vec<String> = gpu.jobs.iter().map(u64::to_string).collect();
            let others = gpu.job_count as usize - gpu.jobs.len().min(gpu.job_count as usize);
            let others = if others > 0 { format!(" +{others} of others") } else { String::new() };
            vec![
                gpu.index.to_string(),
                plain(&gpu.model, 28),
                bytes(gpu.total),
                bytes(gpu.used),
                bytes(gpu.reserved),
                bytes(gpu.foreign),
                busy,
                state,
                format!("{}{others}", jobs.join(" ")),
            ]
        })
        .collect();
    let head = ["GPU", "MODEL", "MEMORY", "USED", "SET ASIDE", "STRANGERS", "SMACT", "STATE", "JOBS"];
    text.push_str(&table(&head, &[2, 3, 4, 5, 6], &lines));
    if node.gpus.iter().any(|gpu| gpu.smact.is_none() && gpu.utilization.is_some()) {
        text.push_str("* no SM activity is told: the part of the time in which any kernel ran\n");
    }
    for sentence in node.issues.iter().chain(&node.audit) {
        text.push_str(&format!("! {}\n", plain(sentence, 400)));
    }
    text
}
