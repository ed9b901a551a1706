//! `radrm top`: GPUs and jobs in the terminal, again and again.

mod keys;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use clap::Args;
use radrm_protocol::ProtocolError;
use radrm_protocol::connection::{Connection, JobList, odd};
use radrm_protocol::socket::SOCKET_VARIABLE;
use radrm_protocol::wire::{ActivitySource, GpuRow, JobRow, NodeRow, Request, Response};
use radrm_text::output::{self, Delivery, width};
use radrm_text::{Table, fit, left, right};

use super::text::{ValueError, bytes};
use super::{past, queue};
use crate::live::Screen;
use crate::{Failure, live, print};
use keys::{Interface, Page, Pressed};
use view::Seen;

/// Waiting jobs that a view has; it says how many more there are.
const MAX_WAITING: u32 = 1000;

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
    if flags.once || !out.is_terminal() || !std::io::stdin().is_terminal() {
        let node = queue::node(connection)?;
        let jobs = connection.merged_jobs(true, 0, 0)?.rows;
        let mut past = Past::default();
        past.add(&node);
        return print(&picture(&node, &jobs, &past, width(out.as_fd())));
    }
    let every = Duration::from_secs_f64(flags.every);
    let (mut interface, mut past) = (Interface::default(), Past::default());
    let mut seen = look(connection, &interface)?;
    past.add(&seen.node);
    let screen = Screen::enter().map_err(Failure::Output)?;
    let mut next = Instant::now() + every;
    loop {
        let (columns, lines) = screen.size();
        let picture = view::screen(&seen, &past, &mut interface, columns, lines);
        if matches!(output::screen_to_stdout(&picture), Ok(Delivery::Closed) | Err(_)) {
            return Ok(());
        }
        let mut is_due = false;
        for key in screen.keys(next.saturating_duration_since(Instant::now())).map_err(Failure::Output)? {
            match interface.press(key, &seen.jobs) {
                Pressed::Nothing => {}
                Pressed::Quit => return Ok(()),
                Pressed::Look => is_due = true,
                Pressed::Cancel(job) => {
                    let jobs = vec![job];
                    interface.said = match connection.done(&Request::Cancel { jobs }) {
                        Ok(()) => format!("job {job} is asked to end"),
                        Err(why) => why.to_string(),
                    };
                    is_due = true;
                }
            }
        }
        if is_due || (Instant::now() >= next && !interface.paused) {
            seen = look(connection, &interface)?;
            past.add(&seen.node);
        }
        if Instant::now() >= next {
            next = Instant::now() + every;
        }
    }
}

/// Node and jobs at this moment, and the job that is shown in detail.
fn look(connection: &mut Connection, interface: &Interface) -> Result<Seen, Failure> {
    let node = queue::node(connection)?;
    let JobList { rows: jobs, left_out } = connection.merged_jobs(true, 0, MAX_WAITING)?;
    let job = interface.chosen.filter(|_| interface.page == Page::Job);
    let details = match job.map(|job| connection.ask(&Request::Show { job: job.into() })) {
        None => "no job is chosen".to_owned(),
        Some(Ok(Response::Job(row, lines))) => queue::show_text(&row, &lines),
        Some(Ok(other)) => odd(&other).to_string(),
        Some(Err(why)) => why.to_string(),
    };
    Ok(Seen { node, jobs, left_out, details })
}

/// Seconds between two pictures.
fn every(text: &str) -> Result<f64, ValueError> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| ValueError::Interval(text.to_owned()))
}

/// The node in a line.
fn summary(node: &NodeRow) -> String {
    format!(
        "{}  {} running, {}{} waiting, policy {}{}",
        fit(&node.host, 40),
        node.running,
        queue::off_gpu(node),
        node.waiting,
        node.policy,
        node.emulated.as_ref().map(|spec| format!("  (emulated: {spec})")).unwrap_or_default()
    )
}

/// The GPUs, titles first.
fn gpus(node: &NodeRow, past: &Past, wide: usize) -> Vec<String> {
    let bar = wide.saturating_sub(72).clamp(10, 60) * 2 / 3;
    let columns = [right("GPU"), left("MEMORY"), right("USED"), right("OF"), left("SM"), right("")];
    let columns = columns.into_iter().chain([left("BEFORE"), left("JOBS")]);
    let mut table = Table::new(columns).within(wide, 12);
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
            queue::who(gpu, false),
        ]);
    }
    table.lines().iter().map(|line| fit(line, wide)).collect()
}

/// Everything at one moment.
fn picture(node: &NodeRow, jobs: &[JobRow], past: &Past, wide: usize) -> String {
    let mut text = format!("{}\n\n", summary(node));
    for line in gpus(node, past, wide) {
        let _ = writeln!(text, "{line}");
    }
    text.push_str("     █ in use  ▒ reserved for jobs\n");
    for sentence in node.issues.iter().chain(&node.audit) {
        let _ = writeln!(text, "! {}", sentence.fit(wide.saturating_sub(2)));
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
        let node = NodeRow { gpus: vec![gpu], issues: vec!["x".repeat(500).into()], ..NodeRow::default() };
        let job =
            JobRow { job: 1, name: "n".repeat(300).into(), why: "w".repeat(300).into(), ..JobRow::default() };
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
            assert!(text.contains(" 12345\n"), "who is on a GPU is cut off: {text}");
        }
    }
}
