//! Layout of runs in a terminal: a list, and one run in detail.

use radrm_profile::model::Kind;
use radrm_profile::{Bytes, Nanos};
use radrm_text::number::grouped;

use radrm_text::{Table, fit, left, right};

use super::columns::{self, Listed, scrolled, with_choice, wrapped};
use super::interface::Interface;
use super::reading::{GpuReading, Reading};

/// Characters of a line that shows the past.
const PAST: usize = 12;

/// Lines above and below the list.
const AROUND: usize = 5;

const HELP: &str = "\
up, down, j, k   choose, scroll        Home, End   first and last
Enter            details of the run    Esc         back
s, >             sort by the next      M, T, N     sort by memory, time, number
/, \\             search                p, Space    pause
K                end the run, after a question (SIGTERM)
h, ?             this help             q           quit

GROWTH      change of the device memory held, per second, over ten seconds
LAUNCHES/S  launches of kernels and of graphs, over two seconds
STEPS/S     steps that the program names, over ten seconds, longer for slow ones;
            with --stacks=tensors also those of PyTorch's optimizers
SM          SM activity over the last ten seconds that were recorded; else the
            share of time in which a kernel ran; - where neither is measured
PEAK        >= where several processes share a GPU: the highest that was seen";

/// The list as text, without a terminal.
pub(super) fn plain(readings: &[Reading], columns: usize) -> String {
    if readings.is_empty() {
        return format!("{NONE}\n");
    }
    let interface = Interface::default();
    list(&interface.listed(readings), "", columns).iter().map(|line| format!("{line}\n")).collect()
}

const NONE: &str = "no program is running under radrm-run; start one with `radrm-run -- PROGRAM`";

/// A whole screen, drawn over the one before: nothing flickers.
pub(super) fn screen(
    readings: &[Reading],
    interface: &mut Interface,
    host: &str,
    columns: usize,
    lines: usize,
) -> String {
    let state = match (interface.over, interface.is_paused()) {
        (true, _) => ", ended",
        (false, true) => ", paused",
        _ => "",
    };
    let runs = if readings.len() == 1 { "1 run".to_owned() } else { format!("{} runs", readings.len()) };
    let mut out = vec![
        format!("\x1b[1m{}\x1b[0m", fit(&format!("radrm top  {host}  {runs}{state}"), columns)),
        String::new(),
    ];
    let room = lines.saturating_sub(AROUND).max(1);
    let page: Option<Vec<String>> = match interface.current(readings) {
        _ if interface.help => Some(HELP.lines().flat_map(|line| wrapped(line, columns)).collect()),
        Some(run) if interface.details => Some(details(run, columns)),
        _ => None,
    };
    match (page, interface.current(readings)) {
        (Some(page), _) => {
            let (first, part) = scrolled(&page, interface.scroll, room);
            interface.scroll = first;
            out.extend_from_slice(part);
        }
        (None, None) if readings.is_empty() => out.push(fit(NONE, columns)),
        (None, None) => out.push(fit("no run matches the search", columns)),
        (None, Some(run)) => {
            let listed = interface.listed(readings);
            let table = list(&listed, interface.sort.title(), columns);
            let at = listed.iter().position(|reading| reading.run == run.run).unwrap_or(0);
            out.extend(with_choice(&table, at, columns, room));
        }
    }
    let foot = match (interface.asks, interface.typing, interface.filter.is_empty()) {
        (Some(run), ..) => {
            let command = readings.iter().find(|reading| reading.run == run).map(|reading| &reading.command);
            let command = command.map(|command| format!(" ({})", fit(command, 40))).unwrap_or_default();
            format!("end run {run}{command}? y/n")
        }
        (None, true, _) => format!("search: {}_", interface.filter),
        _ if !interface.said.is_empty() => interface.said.clone(),
        (None, false, false) => format!("search: {}   Esc clears it   h help   q quit", interface.filter),
        (None, false, true) => {
            "Enter details   s sort   / search   p pause   K end   h help   q quit".to_owned()
        }
    };
    columns::screen(out, &foot, columns, lines)
}

/// Columns of the list of runs.
const LISTED: [Listed<Reading>; 15] = [
    Listed { title: "RUN", column: right, cell: |run| run.run.to_string() },
    Listed { title: "USER", column: left, cell: |run| fit(&run.user, 10) },
    Listed { title: "GPU", column: left, cell: |run| fit(&gpus(run), 8) },
    Listed { title: "HELD", column: right, cell: |run| Bytes(run.held()).to_string() },
    Listed { title: "PAST", column: left, cell: |run| past(&run.held_before, PAST) },
    Listed { title: "PEAK", column: right, cell: peak },
    Listed { title: "QUOTA", column: right, cell: quota },
    Listed { title: "GROWTH", column: right, cell: |run| growth(run.growth_bytes_per_second) },
    Listed { title: "LAUNCHES/S", column: right, cell: |run| rate(run.launches_per_second) },
    Listed { title: "STEPS/S", column: right, cell: |run| steps_rate(run.steps_per_second) },
    Listed { title: "SM", column: right, cell: |run| share(run.sm_active_share) },
    Listed { title: "UTIL", column: right, cell: |run| share(run.utilization_share) },
    Listed { title: "REFUSED", column: right, cell: |run| grouped(run.refused) },
    Listed { title: "TIME", column: right, cell: |run| time(run).to_string() },
    Listed { title: "COMMAND", column: left, cell: |run| run.command.clone() },
];

/// Columns that a narrow terminal does without, the first of these first. All is in the details of a run.
const SPARED: [&str; 10] =
    ["UTIL", "PAST", "USER", "GROWTH", "QUOTA", "GPU", "LAUNCHES/S", "STEPS/S", "TIME", "SM"];

fn list(readings: &[&Reading], sorted: &str, columns: usize) -> Vec<String> {
    columns::list(&LISTED, &SPARED, readings, sorted, columns)
}

fn gpus(reading: &Reading) -> String {
    let gpus: Vec<String> = reading.gpus.iter().map(|gpu| gpu.index.to_string()).collect();
    gpus.join(",")
}

fn peak(reading: &Reading) -> String {
    let (peak, exact) = reading.peak();
    format!("{}{}", if exact { "" } else { ">= " }, Bytes(peak))
}

fn quota(reading: &Reading) -> String {
    reading.tightest().map_or("-".into(), |(_, quota)| Bytes(quota).to_string())
}

fn time(reading: &Reading) -> Nanos {
    Nanos((reading.seconds.max(0.0).floor() * 1e9) as u64)
}

/// Everything about one run.
fn details(reading: &Reading, columns: usize) -> Vec<String> {
    let mut out = wrapped(&format!("run {}  {}  {}", reading.run, reading.user, reading.command), columns);
    let job = reading.job.map_or(String::new(), |job| format!("job {job}  "));
    let left_over = if reading.launcher_running { "" } else { "  (radrm-run has ended; processes are left)" };
    let time = time(reading);
    out.extend(wrapped(
        &format!(
            "{job}running for {time}  growth {}  {} launches, {}/s  {}SM {}  utilization {}  {} refused{left_over}",
            growth(reading.growth_bytes_per_second),
            grouped(reading.launches),
            rate(reading.launches_per_second),
            steps(reading),
            share(reading.sm_active_share),
            share(reading.utilization_share),
            grouped(reading.refused)
        ),
        columns,
    ));
    for gpu in &reading.gpus {
        out.push(String::new());
        out.extend(of_gpu(gpu, columns));
    }
    let wide = columns.saturating_sub(24).clamp(10, 100);
    out.push(String::new());
    out.push(fit(&format!("{:<22}{}", "memory held", past(&reading.held_before, wide)), columns));
    out.push(fit(&format!("{:<22}{}", "launches per second", past(&reading.launched_before, wide)), columns));
    out.push(String::new());
    let titles = [right("PID"), right("HELD"), right("PEAK"), right("LAUNCHES"), right("REFUSED")];
    let mut table = Table::new(titles);
    let mut processes: Vec<_> = reading.processes.iter().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.held_bytes));
    for process in &processes {
        table.row([
            process.pid.to_string(),
            Bytes(process.held_bytes).to_string(),
            Bytes(process.peak_bytes).to_string(),
            grouped(process.launches),
            grouped(process.refused),
        ]);
    }
    out.extend(table.lines().iter().map(|line| fit(line, columns)));
    out.push(String::new());
    let commands = processes.iter().map(|process| format!("{}  {}", process.pid, process.command));
    out.extend(commands.flat_map(|line| wrapped(&line, columns)));
    out
}

fn of_gpu(gpu: &GpuReading, columns: usize) -> Vec<String> {
    let (of, what) = match gpu.quota_bytes {
        Some(quota) => (quota, "quota"),
        None => (gpu.total_bytes, "card"),
    };
    let bar = bar(gpu.held_bytes, of, columns.saturating_sub(64).clamp(10, 50));
    let bound = if gpu.peak_exact { "" } else { ">= " };
    let mut out = vec![fit(&format!("GPU {}  {}", gpu.index, gpu.name), columns)];
    out.push(fit(
        &format!(
            "  {bar} {} of {} ({what}), peak {bound}{}",
            Bytes(gpu.held_bytes),
            Bytes(of),
            Bytes(gpu.peak_bytes)
        ),
        columns,
    ));
    for kind in Kind::ALL {
        if let Some(bytes) = gpu.kinds.get(kind.key()) {
            let beside = if kind.in_total() { "" } else { "  (not in the total)" };
            out.push(fit(
                &format!("  {:<20}{:>12}{beside}", kind.label(), Bytes(*bytes).to_string()),
                columns,
            ));
        }
    }
    out
}

fn growth(rate: Option<f64>) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate.abs() < 1.0 => "0".into(),
        Some(rate) => {
            let sign = if rate < 0.0 { "-" } else { "+" };
            format!("{sign}{}/s", Bytes(rate.abs() as u64))
        }
    }
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |rate| grouped(rate.round() as u64))
}

/// Steps take from milliseconds to minutes: three digits.
fn steps_rate(rate: Option<f64>) -> String {
    match rate {
        Some(rate) if rate < 0.005 => if rate > 0.0 { "< 0.01" } else { "0" }.into(),
        Some(rate) if rate < 9.995 => format!("{rate:.2}"),
        Some(rate) if rate < 99.95 => format!("{rate:.1}"),
        rate => self::rate(rate),
    }
}

/// With how they are known.
fn steps(reading: &Reading) -> String {
    if reading.steps == 0 {
        return String::new();
    }
    let source = reading.steps_source.unwrap_or_default().label();
    format!("{} steps ({source}), {}/s  ", grouped(reading.steps), steps_rate(reading.steps_per_second))
}

fn share(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0))
}

fn bar(part: u64, whole: u64, wide: usize) -> String {
    let full =
        (u128::from(part) * wide as u128).div_ceil(u128::from(whole.max(1))).min(wide as u128) as usize;
    format!("[{}{}]", "█".repeat(full), " ".repeat(wide - full))
}

/// The last values as one character each, against the highest of them.
fn past(values: &[u64], wide: usize) -> String {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values = values.get(values.len().saturating_sub(wide)..).unwrap_or_default();
    let top = values.iter().copied().max().unwrap_or(0).max(1);
    // Anything that is held shows.
    let level = |value: &u64| (u128::from(*value) * 8).div_ceil(u128::from(top)) as usize;
    values.iter().map(|value| LEVELS[level(value).min(8)]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::steps::StepSource;
    use super::*;
    use std::collections::BTreeMap;

    fn reading(run: u32) -> Reading {
        Reading {
            run,
            user: "ada".into(),
            command: format!("python3 train.py --name \x1b[2J{}", "x".repeat(300)),
            launcher_running: true,
            seconds: 75.9,
            gpus: vec![GpuReading {
                index: 1,
                name: "NVIDIA H200".into(),
                total_bytes: 140 << 30,
                held_bytes: 3 << 30,
                peak_bytes: 5 << 30,
                peak_exact: false,
                kinds: BTreeMap::from([("device", 3 << 30), ("managed", 1 << 20)]),
                quota_bytes: Some(8 << 30),
                refused: 0,
            }],
            launches: 12_345,
            launches_per_second: Some(1234.4),
            steps: 1234,
            steps_source: Some(StepSource::OptimizerHooks),
            steps_per_second: Some(2.5),
            growth_bytes_per_second: Some(-(2.0 * 1024.0 * 1024.0)),
            refused: 3,
            sm_active_share: Some(0.42),
            held_before: vec![0, 1, 4, 8],
            ..Reading::default()
        }
    }

    fn widest(text: &str) -> usize {
        let bare =
            text.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[7m", "").replace("\x1b[0m", "");
        let bare = bare.replace("\x1b[K", "").replace("\x1b[H", "").replace("\x1b[J", "");
        assert!(!bare.contains('\x1b'), "{bare:?}");
        bare.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn a_line_has_a_runs_figures() {
        let text = plain(&[reading(7)], 200);
        for part in [
            "7  ada",
            "3.00 GiB",
            ">= 5.00 GiB",
            "8.00 GiB",
            "-2.00 MiB/s",
            "1,234",
            "2.50",
            "42 %",
            "1 min 15 s",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(plain(&[], 80).contains("no program is running"));
    }

    #[test]
    fn no_screen_is_larger_than_its_terminal() {
        let readings: Vec<Reading> = (0..100).map(reading).collect();
        for (columns, lines) in [(200, 50), (80, 24), (60, 10), (20, 4)] {
            for keys in [&b""[..], b"\x1b[F", b"\r", b"\r\x1b[F", b"h", b"/zzz\r", b"/t", b"K"] {
                let mut interface = Interface::default();
                for key in super::super::interface::Key::of(keys) {
                    interface.press(key, &readings);
                }
                let text = screen(&readings, &mut interface, "node", columns, lines);
                assert!(widest(&text) <= columns, "{} at {columns}: {text}", widest(&text));
                assert!(text.lines().count() <= lines, "{} at {lines}", text.lines().count());
            }
        }
    }

    #[test]
    fn a_narrow_terminal_shows_whole_columns_and_the_command() {
        let run = reading(7);
        let mut before = LISTED.len();
        for columns in [200, 100, 80, 60] {
            let lines = list(&[&run], "GROWTH", columns);
            let titles: Vec<&str> = lines[0].split_whitespace().collect();
            let spared = LISTED.len() - titles.len();
            let expected = SPARED.iter().filter(|title| **title != "GROWTH").take(spared);
            for title in expected {
                assert!(!titles.contains(title), "{title} at {columns}: {lines:?}");
            }
            assert!(titles.contains(&"GROWTHv"), "what is sorted by stays: {lines:?}");
            assert!(lines[1].contains("python3"), "{lines:?}");
            assert!(titles.len() <= before, "{lines:?}");
            before = titles.len();
        }
        assert_eq!(list(&[&run], "HELD", 200)[0].split_whitespace().count(), LISTED.len());
        let narrow = list(&[&run], "HELD", 80);
        assert!(
            ["SM", "TIME", "REFUSED", "COMMAND"].iter().all(|title| narrow[0].contains(title)),
            "{narrow:?}"
        );
    }

    #[test]
    fn a_long_command_is_shown_whole_in_the_details() {
        let lines = details(&reading(7), 80);
        let command: String = lines.iter().take(6).map(|line| line.trim()).collect();
        assert!(command.matches('x').count() >= 300, "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    }

    #[test]
    fn the_chosen_run_is_on_the_screen() {
        let readings: Vec<Reading> = (0..100).map(reading).collect();
        let mut interface = Interface::default();
        for key in super::super::interface::Key::of(b"N\x1b[F") {
            interface.press(key, &readings);
        }
        let text = screen(&readings, &mut interface, "node", 100, 24);
        assert!(text.lines().any(|line| line.starts_with("\x1b[7m") && line.contains(" 99 ")), "{text}");
    }

    #[test]
    fn details_show_kinds_and_the_quota() {
        let text = details(&reading(7), 120).join("\n");
        for part in [
            "3.00 GiB of 8.00 GiB (quota), peak >= 5.00 GiB",
            "device",
            "(not in the total)",
            "12,345 launches",
            "1,234 steps (of optimizers, by hooks), 2.50/s",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert_eq!(past(&[0, 1, 4, 8], 3), "▁▄█");
    }

    #[test]
    fn rates_of_steps_have_three_digits() {
        let rates =
            [None, Some(0.0), Some(0.001), Some(0.033), Some(9.994), Some(12.34), Some(99.96), Some(1234.5)];
        let shown = ["-", "0", "< 0.01", "0.03", "9.99", "12.3", "100", "1,235"];
        assert_eq!(rates.map(steps_rate), shown);
    }
}
