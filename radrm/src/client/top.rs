//! `radrm top`: GPUs and jobs in the terminal, again and again.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use clap::Args;
use radrm_protocol::ProtocolError;
use radrm_protocol::connection::Connection;
use radrm_protocol::socket::SOCKET_VARIABLE;
use radrm_protocol::wire::{ActivitySource, GpuRow, JobRow, NodeRow};
use radrm_text::output::width;
use radrm_text::output::{self, Delivery};
use radrm_text::{Table, fit, left, right};

use super::text::{ValueError, bytes};
use super::{past, queue};
use crate::{Failure, live, print};

#[derive(Args, Debug)]
pub struct Flags {
    /// Show one run: a process id, a profile that is being written, or a job of the daemon
    #[arg(value_name = "PID|FILE|JOB")]
    run: Option<String>,
    /// Show runs where there is a daemon too
    #[arg(long)]
    runs: bool,
    /// Print once and end
    #[arg(long)]
    once: bool,
    /// Print the runs once, as JSON
    #[arg(long)]
    json: bool,
    /// Show GPUs and jobs at an earlier time, from what radrmd kept: 2h, '90m ago'
    #[arg(long, value_name = "TIME", value_parser = past::ago, conflicts_with_all = ["run", "runs", "json"])]
    at: Option<u64>,
    /// Time between two updates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = every)]
    every: f64,
}

/// Shows the daemon's node; without a daemon, or where they were asked for, this user's runs.
pub(super) fn run(
    flags: &Flags,
    is_socket_named: bool,
    connect: &dyn Fn() -> Result<Connection, ProtocolError>,
) -> Result<(), Failure> {
    let asked = live::Asked {
        only: flags.run.as_deref(),
        once: flags.once,
        json: flags.json,
        every: Duration::from_secs_f64(flags.every),
    };
    if flags.runs || flags.json || flags.run.is_some() {
        return live::run(&asked);
    }
    if let Some(ago_ms) = flags.at {
        return past::show(&mut connect()?, ago_ms);
    }
    match connect() {
        Ok(mut connection) => node(flags, &mut connection),
        Err(error) if is_socket_named || std::env::var_os(SOCKET_VARIABLE).is_some() => Err(error.into()),
        Err(_) => live::run(&asked),
    }
}

/// Shows the daemon's node.
fn node(flags: &Flags, connection: &mut Connection) -> Result<(), Failure> {
    let out = std::io::stdout();
    let once = flags.once || !out.is_terminal();
    let mut past = Past::default();
    loop {
        let node = queue::node(connection)?;
        let tall = rustix::termios::tcgetwinsize(&out).map_or(24, |size| usize::from(size.ws_row).max(4));
        // A picture has room for no more.
        let first = if once { 0 } else { u32::try_from(tall).unwrap_or(0) };
        let jobs = connection.merged_jobs(true, 0, first)?.rows;
        let wide = width(out.as_fd());
        past.add(&node);
        let picture = picture(&node, &jobs, &past, wide);
        if once {
            return print(&picture);
        }
        match output::redraw(&picture, tall - 1) {
            Ok(Delivery::Complete) => {}
            Ok(Delivery::Closed) => return Ok(()),
            Err(error) => return Err(Failure::Output(error)),
        }
        thread::sleep(Duration::from_secs_f64(flags.every));
    }
}

/// Seconds between two pictures.
fn every(text: &str) -> Result<f64, ValueError> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| ValueError::Interval(text.to_owned()))
}

/// Everything at one moment.
fn picture(node: &NodeRow, jobs: &[JobRow], past: &Past, wide: usize) -> String {
    let mut text = format!(
        "{}  {} running, {}{} waiting, policy {}{}\n\n",
        fit(&node.host, 40),
        node.running,
        queue::off_gpu(node),
        node.waiting,
        node.policy,
        node.emulated.as_ref().map(|spec| format!("  (emulated: {spec})")).unwrap_or_default()
    );
    let bar = wide.saturating_sub(72).clamp(10, 60) * 2 / 3;
    let columns = [right("GPU"), left("MEMORY"), right("USED"), right("OF"), left("SM"), right("")];
    let mut table = Table::new(columns.into_iter().chain([left("BEFORE"), left("JOBS")]));
    for gpu in &node.gpus {
        let index = gpu.index.to_string();
        if gpu.lost {
            table.row([index.as_str(), "gone"]);
            continue;
        }
        let busy = busy(gpu);
        let about = if gpu.activity_source == Some(ActivitySource::Launches) { "~" } else { "" };
        table.row([
            index,
            memory_bar(gpu, bar),
            gpu.used.map_or("-".to_owned(), bytes),
            bytes(gpu.total),
            plain_bar(busy.unwrap_or(0.0), bar / 2),
            busy.map_or("-".to_owned(), |part| format!("{about}{:.0}%", part * 100.0)),
            past.line(&gpu.uuid, 8),
            who(gpu),
        ]);
    }
    let _ = writeln!(text, "{table}     █ in use  ▒ reserved for jobs");
    for sentence in node.issues.iter().chain(&node.audit) {
        let _ = writeln!(text, "! {}", fit(sentence, wide.saturating_sub(2)));
    }
    text.push('\n');
    let table = queue::list(jobs, true, true);
    text.push_str(&table);
    text.lines().map(|line| format!("{}\n", fit(line, wide))).collect()
}

/// SM activity. A utilisation is none.
fn busy(gpu: &GpuRow) -> Option<f64> {
    gpu.smact.map(|parts| f64::from(parts) / 1000.0)
}

/// Jobs on a GPU, by number where they may be seen.
fn who(gpu: &GpuRow) -> String {
    let numbers: Vec<String> = gpu.jobs.iter().map(u64::to_string).collect();
    let others = (gpu.job_count as usize).saturating_sub(numbers.len());
    match (numbers.is_empty(), others) {
        (true, 0) => String::new(),
        (true, others) => format!("{others} of others"),
        (false, 0) => format!("job {}", numbers.join(" ")),
        (false, others) => format!("job {} +{others} of others", numbers.join(" ")),
    }
}

/// SM activity of the pictures before.
#[derive(Default)]
struct Past(BTreeMap<String, VecDeque<Option<f64>>>);

impl Past {
    const KEPT: usize = 64;

    fn add(&mut self, node: &NodeRow) {
        for gpu in &node.gpus {
            let values = self.0.entry(gpu.uuid.clone()).or_default();
            if values.len() == Self::KEPT {
                values.pop_front();
            }
            values.push_back(busy(gpu));
        }
    }

    /// The newest values as one character each, the newest on the right.
    fn line(&self, uuid: &str, wide: usize) -> String {
        const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let values = self.0.get(uuid).into_iter().flatten();
        let skipped = self.0.get(uuid).map_or(0, VecDeque::len).saturating_sub(wide);
        values
            .skip(skipped)
            .map(|value| match value {
                Some(value) => STEPS[((value.clamp(0.0, 1.0) * 7.0).round() as usize).min(7)],
                // Not measured then.
                None => '·',
            })
            .collect()
    }
}

fn memory_bar(gpu: &GpuRow, wide: usize) -> String {
    let cells = |bytes: u64| {
        if gpu.total == 0 {
            return 0;
        }
        (u128::from(bytes) * wide as u128).div_ceil(u128::from(gpu.total)).min(wide as u128) as usize
    };
    let used = cells(gpu.used.unwrap_or(0));
    let reserved = cells(gpu.reserved).max(used);
    format!("[{}{}{}]", "█".repeat(used), "▒".repeat(reserved - used), " ".repeat(wide - reserved))
}

fn plain_bar(part: f64, wide: usize) -> String {
    let full = ((part.clamp(0.0, 1.0) * wide as f64).round() as usize).min(wide);
    format!("[{}{}]", "█".repeat(full), " ".repeat(wide - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_never_wider_than_the_terminal_and_bars_tell_the_truth() {
        let gpu = GpuRow { total: 100, used: Some(50), reserved: 75, job_count: 2, ..GpuRow::default() };
        assert_eq!(memory_bar(&gpu, 4), "[██▒ ]");
        assert_eq!(memory_bar(&GpuRow::default(), 4), "[    ]");
        assert_eq!(plain_bar(0.5, 4), "[██  ]");
        let mut seen = Past::default();
        for permille in [0, 1000, 500] {
            let gpu = GpuRow { smact: Some(permille), ..GpuRow::default() };
            seen.add(&NodeRow { gpus: vec![gpu], ..NodeRow::default() });
        }
        assert_eq!((seen.line("", 8), seen.line("", 2)), ("▁█▅".into(), "█▅".into()));
        seen.add(&NodeRow { gpus: vec![GpuRow::default()], ..NodeRow::default() });
        assert_eq!(seen.line("", 2), "▅·", "what is not measured is not idle");
        let shared = GpuRow { jobs: vec![3], job_count: 2, ..GpuRow::default() };
        assert_eq!((who(&shared), who(&GpuRow::default())), ("job 3 +1 of others".into(), String::new()));
        let node = NodeRow { gpus: vec![gpu], issues: vec!["x".repeat(500)], ..NodeRow::default() };
        let job = JobRow { job: 1, name: "n".repeat(300), why: "w".repeat(300), ..JobRow::default() };
        let mut past = Past::default();
        (0..100).for_each(|_| past.add(&node));
        for wide in [60, 80, 200] {
            let text = picture(&node, std::slice::from_ref(&job), &past, wide);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= wide, "{widest} at {wide}");
        }
        for wide in [80, 100, 200] {
            let gpu = GpuRow { jobs: vec![12_345], job_count: 1, total: 40 << 30, ..GpuRow::default() };
            let node = NodeRow { gpus: vec![gpu], ..NodeRow::default() };
            let text = picture(&node, &[], &past, wide);
            assert!(text.contains("job 12345\n"), "who is on a GPU is cut off: {text}");
        }
    }
}
