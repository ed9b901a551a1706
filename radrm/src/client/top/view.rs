//! Layout of the node's view in a terminal: GPUs and jobs, one job in detail, all GPUs.

use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::{JobRow, NodeRow};
use radrm_text::{fit, left, right};

use super::keys::{Interface, Page, memory};
use super::{Past, gpus};
use crate::client::text::{bytes, time};
use crate::client::{arrays, queue, reservations};
use crate::live::columns::{Listed, list, screen as whole, scrolled, with_choice, wrapped};

const HELP: &str = "\
up, down, j, k   choose, scroll        Home, End   first and last
Enter            all about the job     Esc         back
s, >             sort by the next      M, T, U, N  by memory, time, user, job
/, \\             search                p, Space    pause
g                all GPUs and notes    C, K        cancel, after a question
h, ?             this help             q           quit

GPU     numbers of its GPUs; 2x: it waits for two
MEMORY  reserved on each GPU; of a job that waits: requested
LEFT    until its time limit; `in` a time: it is expected to start then
WHY     reason for its place; Enter shows all of it";

/// A job in the list.
struct Shown<'r> {
    name: String,
    gpus: String,
    row: &'r JobRow,
}

/// Columns of the list of jobs.
fn columns_of_jobs<'r>() -> [Listed<Shown<'r>>; 9] {
    [
        Listed { title: "JOB", column: right, cell: |job| job.name.clone() },
        Listed { title: "USER", column: left, cell: |job| fit(&job.row.user, 12) },
        Listed { title: "NAME", column: left, cell: |job| job.row.name.fit(20) },
        Listed { title: "STATE", column: left, cell: |job| job.row.state.to_string() },
        Listed { title: "GPU", column: left, cell: |job| fit(&job.gpus, 8) },
        Listed { title: "MEMORY", column: right, cell: |job| bytes(memory(job.row)) },
        Listed { title: "TIME", column: right, cell: |job| ran(job.row) },
        Listed { title: "LEFT", column: right, cell: |job| queue::time_left(job.row) },
        Listed {
            title: "WHY",
            column: left,
            cell: |job| job.row.end.as_ref().unwrap_or(&job.row.why).to_string(),
        },
    ]
}

/// Columns that a narrow terminal does without, the first of these first. All is in the details of a job.
const SPARED: [&str; 4] = ["NAME", "MEMORY", "TIME", "GPU"];

fn ran(row: &JobRow) -> String {
    if row.state.is_queued() { "-".to_owned() } else { time(row.ran_ms) }
}

/// Everything that is shown.
pub(super) struct Seen {
    pub(super) node: NodeRow,
    pub(super) jobs: Vec<JobRow>,
    /// Waiting jobs that the list leaves out.
    pub(super) left_out: u64,
    /// The job in detail, or why it is not shown.
    pub(super) details: String,
}

/// A whole screen.
pub(super) fn screen(
    seen: &Seen,
    past: &Past,
    interface: &mut Interface,
    columns: usize,
    lines: usize,
) -> String {
    let Seen { node, jobs, left_out, details } = seen;
    let paused = if interface.paused { ", paused" } else { "" };
    let head = format!("radrm top  {}{paused}", super::summary(node));
    let mut out = vec![format!("\x1b[1m{}\x1b[0m", fit(&head, columns)), String::new()];
    let room = lines.saturating_sub(out.len() + 2).max(1);
    let wide = |text: &str| text.lines().flat_map(|line| wrapped(line, columns)).collect();
    let page: Option<Vec<String>> = match interface.page {
        Page::Help => Some(wide(HELP)),
        Page::Job => Some(wide(details)),
        Page::Gpus => {
            let notes = notes(node).into_iter().flat_map(|line| wrapped(&line, columns));
            Some(gpus(node, past, columns).into_iter().chain(notes).collect())
        }
        Page::Jobs => None,
    };
    match page {
        Some(page) => {
            let (first, part) = scrolled(&page, interface.scroll, room);
            interface.scroll = first;
            out.extend_from_slice(part);
        }
        None => out.extend(both(node, jobs, past, interface, (columns, room))),
    }
    let foot = match (interface.asks, interface.typing) {
        (Some(job), _) => question(jobs, job),
        (None, true) => format!("search: {}_", interface.filter),
        _ if !interface.said.is_empty() => interface.said.clone(),
        _ if !interface.filter.is_empty() => {
            format!("search: {}   Esc clears it   h help   q quit", interface.filter)
        }
        _ if *left_out > 0 => format!("{left_out} more wait   Enter details   / search   h help   q quit"),
        _ => "Enter details   s sort   / search   g GPUs   C cancel   h help   q quit".to_owned(),
    };
    whole(out, &foot, columns, lines)
}

/// GPUs in a third of the room, and the jobs.
fn both(
    node: &NodeRow,
    jobs: &[JobRow],
    past: &Past,
    interface: &Interface,
    (columns, room): (usize, usize),
) -> Vec<String> {
    let table = gpus(node, past, columns);
    let most = (room / 3).max(2);
    let mut out: Vec<String> = table.iter().take(most).cloned().collect();
    if table.len() > most {
        out.push(fit(&format!("… {} more GPUs: g", table.len() - most), columns));
    }
    let notes = notes(node);
    match &notes[..] {
        [] => {}
        [one] if one.chars().count() <= columns => out.push(fit(one, columns)),
        _ => out.push(fit(&format!("{} notes: g", notes.len()), columns)),
    }
    out.push(String::new());
    let listed = interface.listed(jobs);
    if listed.is_empty() {
        let why = if jobs.is_empty() { "no jobs" } else { "no job matches the search" };
        out.push(fit(why, columns));
        return out;
    }
    let shown: Vec<Shown<'_>> = listed.iter().map(|row| shown(node, row)).collect();
    let shown: Vec<&Shown<'_>> = shown.iter().collect();
    let table = list(&columns_of_jobs(), &SPARED, &shown, interface.sort.title(), columns);
    let at = listed.iter().position(|row| Some(row.job) == interface.chosen).unwrap_or(0);
    out.extend(with_choice(&table, at, columns, room.saturating_sub(out.len())));
    out
}

fn shown<'r>(node: &NodeRow, row: &'r JobRow) -> Shown<'r> {
    let index =
        |uuid: &String| node.gpus.iter().find(|gpu| gpu.uuid == *uuid).map(|gpu| gpu.index.to_string());
    let gpus = match row.state.is_queued() {
        true if row.gpus == 0 => String::new(),
        true => format!("{}x", row.gpus),
        false => row.devices.iter().filter_map(index).collect::<Vec<_>>().join(","),
    };
    let line = arrays::lines(std::slice::from_ref(row)).into_iter().next();
    Shown { name: line.map(|(name, _)| name).unwrap_or_default(), gpus, row }
}

/// Reservations, issues and what the audit found.
fn notes(node: &NodeRow) -> Vec<String> {
    let kept = node
        .reservations
        .iter()
        .flat_map(|row| reservations::line(row).lines().map(str::to_owned).collect::<Vec<_>>());
    kept.chain(node.issues.iter().chain(&node.audit).map(|sentence| format!("! {sentence}"))).collect()
}

/// `cancel job 12 (train) of alice? y/n`.
fn question(jobs: &[JobRow], job: JobRef) -> String {
    let is_it = |row: &&JobRow| match &row.task {
        Some(task) => (task.array, Some(task.index)) == (job.job, job.index),
        None => row.job == job.job,
    };
    let row = jobs.iter().find(is_it);
    let of = row.map(|row| format!(" ({}) of {}", row.name.fit(24), fit(&row.user, 24)));
    format!("cancel job {job}{}? y/n", of.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use radrm_protocol::limits::ReservationRow;
    use radrm_protocol::wire::GpuRow;
    use radrm_scheduler_core::JobState;

    use super::*;
    use crate::live::Key;

    fn seen() -> Seen {
        let gpu = |index: u32| GpuRow {
            index,
            uuid: format!("GPU-{index}"),
            total: 140 << 30,
            used: Some(3 << 30),
            jobs: vec![7],
            job_count: 1,
            ..GpuRow::default()
        };
        let reservation =
            ReservationRow { whose: "alice".into(), gpus: vec![0], ..ReservationRow::default() };
        let node = NodeRow {
            host: "node".into(),
            gpus: (0..8).map(gpu).collect(),
            issues: vec!["x".repeat(300).into()],
            reservations: vec![reservation],
            ..NodeRow::default()
        };
        let job = |job: u64| JobRow {
            job,
            user: "alice".into(),
            name: format!("train-{}", "n".repeat(100)).into(),
            state: if job == 7 { JobState::Running } else { JobState::Waiting },
            gpus: 2,
            devices: vec!["GPU-3".into()],
            left_ms: (job == 7).then_some(7_200_000),
            starts_in_ms: (job != 7).then_some(60_000),
            why: format!("needs 30.0 GiB {}", "w".repeat(300)).into(),
            ..JobRow::default()
        };
        let details = format!("job {}\nwhy {}\n", 7, "w".repeat(500));
        Seen { node, jobs: (7..60).map(job).collect(), left_out: 0, details }
    }

    fn bare(text: &str) -> String {
        ["\x1b[1m", "\x1b[2m", "\x1b[7m", "\x1b[0m", "\x1b[K", "\x1b[H", "\x1b[J"]
            .iter()
            .fold(text.to_owned(), |text, code| text.replace(code, ""))
    }

    fn after(keys: &[u8], columns: usize, lines: usize) -> String {
        let (seen, mut interface) = (seen(), Interface::default());
        for key in Key::of(keys) {
            interface.press(key, &seen.jobs);
        }
        bare(&screen(&seen, &Past::default(), &mut interface, columns, lines))
    }

    #[test]
    fn no_screen_is_larger_than_its_terminal() {
        for (columns, lines) in [(200, 50), (80, 24), (60, 10), (20, 4)] {
            for keys in [&b""[..], b"\x1b[F", b"\r", b"\rjjj", b"h", b"g", b"/zzz\r", b"/t", b"C"] {
                let text = after(keys, columns, lines);
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
                assert!(!text.contains('\x1b') && widest <= columns, "{widest} at {columns}: {text}");
                assert!(text.lines().count() <= lines, "{} at {lines}", text.lines().count());
            }
        }
    }

    #[test]
    fn at_80_columns_the_list_has_who_and_until_when_and_the_rest_is_a_key_away() {
        let text = after(b"", 80, 24);
        for part in [
            "JOB",
            "USER",
            "STATE",
            "LEFT",
            "WHY",
            "alice",
            "2 h 00 min",
            "in 1 min 00 s",
            "more GPUs: g",
            "notes: g",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        // All of a long reason, over the lines of the page.
        let letters = |text: &str| text.matches('w').count();
        assert!(letters(&after(b"\r", 80, 24)) >= 500);
        let (above, below) = (after(b"\r", 40, 8), after(b"\r\x1b[F", 40, 8));
        assert!(above.contains("job 7") && !below.contains("job 7"), "{above}{below}");
        let gpus = after(b"g\x1b[F", 80, 24);
        assert!(gpus.matches('x').count() >= 300, "{gpus}");
        assert!(after(b"g", 80, 24).contains("kept for alice"));
        assert!(after(b"C", 80, 24).contains("cancel job 7 (train-"), "{}", after(b"C", 80, 24));
    }

    #[test]
    fn the_chosen_job_is_on_the_screen() {
        let (seen, mut interface) = (seen(), Interface::default());
        interface.press(Key::Last, &seen.jobs);
        let text = screen(&seen, &Past::default(), &mut interface, 100, 24);
        assert!(text.lines().any(|line| line.starts_with("\x1b[7m") && line.contains(" 59 ")), "{text}");
    }
}
