//! `radrm top`: GPUs and jobs in the terminal, again and again.

use std::fmt::Write;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::connection::Connection;
use super::queue;
use super::text::{bytes, plain};
use crate::daemon::wire::{GpuRow, JobRow, NodeRow};
use crate::output::{self, Delivery};
use crate::show::report::width;

#[derive(Args, Debug)]
pub(super) struct Flags {
    /// One picture.
    #[arg(long)]
    once: bool,
    /// Seconds between two pictures.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    every: f64,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), String> {
    if !(0.1..=3600.0).contains(&flags.every) {
        return Err("--every is between 0.1 and 3600 seconds".to_owned());
    }
    let out = std::io::stdout();
    let once = flags.once || !out.is_terminal();
    loop {
        let node = queue::node(connection)?;
        let jobs = queue::jobs(true, 0, connection)?;
        let wide = width(out.as_fd());
        let picture = picture(&node, &jobs, wide);
        if once {
            return super::print(&picture);
        }
        // Over the old picture line by line, and what is left of it away: nothing flickers.
        let tall = rustix::termios::tcgetwinsize(&out).map_or(24, |size| usize::from(size.ws_row).max(4));
        let lines: Vec<&str> = picture.lines().take(tall - 1).collect();
        let frame = format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n"));
        match output::to_stdout(&frame) {
            Ok(Delivery::Complete) => {}
            Ok(Delivery::NobodyReads) => return Ok(()),
            Err(error) => return Err(format!("standard output cannot be written: {error}")),
        }
        thread::sleep(Duration::from_secs_f64(flags.every));
    }
}

/// Everything at one moment.
fn picture(node: &NodeRow, jobs: &[JobRow], past: &Past, wide: usize) -> String {
    let mut text = format!(
        "{}  {} running, {}{} waiting, policy {}{}\n\n",
        plain(&node.host, 40),
        node.running,
        queue::off_gpu(node),
        node.waiting,
        node.policy,
        node.emulated.as_ref().map(|spec| format!("  (emulated: {spec})")).unwrap_or_default()
    );
    // Two bars beside each other, and a label.
    let bar = wide.saturating_sub(46).clamp(10, 60) * 2 / 3;
    for gpu in &node.gpus {
        let busy = gpu.smact.map(|parts| f64::from(parts) / 1000.0);
        let busy = busy.or(gpu.utilization.map(|percent| f64::from(percent) / 100.0));
        let _ = writeln!(
            text,
            "GPU {:<2} mem {} {:>9}/{:<9} SM {} {:>4}  {}",
            gpu.index,
            memory_bar(gpu, bar),
            bytes(gpu.used),
            bytes(gpu.total),
            plain_bar(busy.unwrap_or(0.0), bar / 2),
            busy.map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0)),
            match gpu.job_count {
                0 => String::new(),
                1 => "1 job".to_owned(),
                count => format!("{count} jobs"),
            }
        );
    }
    text.push_str("         █ in use  ▒ set aside for jobs\n");
    for sentence in node.troubles.iter().chain(&node.audit) {
        let _ = writeln!(text, "! {}", plain(sentence, wide.saturating_sub(2)));
    }
    text.push('\n');
    let table = queue::list(jobs, true, true);
    text.push_str(&table);
    text.lines().map(|line| format!("{}\n", plain(line, wide))).collect()
}

fn memory_bar(gpu: &GpuRow, wide: usize) -> String {
    let cells = |bytes: u64| {
        if gpu.total == 0 {
            return 0;
        }
        (u128::from(bytes) * wide as u128).div_ceil(u128::from(gpu.total)).min(wide as u128) as usize
    };
    let used = cells(gpu.used);
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
        let gpu = GpuRow { total: 100, used: 50, reserved: 75, job_count: 2, ..GpuRow::default() };
        assert_eq!(memory_bar(&gpu, 4), "[██▒ ]");
        assert_eq!(memory_bar(&GpuRow::default(), 4), "[    ]");
        assert_eq!(plain_bar(0.5, 4), "[██  ]");
        let node = NodeRow { gpus: vec![gpu], troubles: vec!["x".repeat(500)], ..NodeRow::default() };
        let job = JobRow { job: 1, name: "n".repeat(300), why: "w".repeat(300), ..JobRow::default() };
        for wide in [60, 80, 200] {
            let text = picture(&node, std::slice::from_ref(&job), wide);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= wide, "{widest} at {wide}");
        }
    }
}
