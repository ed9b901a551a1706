//! Place, time and subject of a measurement, for the heads of tables.

use std::process::Command;

use crate::artifacts;

fn said_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(artifacts::workspace()).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

/// Model and number of the processors, and the kernel.
pub fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown processor");
    let processors = cpuinfo.lines().filter(|l| l.starts_with("processor")).count();
    format!(
        "{}, {processors} processors, Linux {}",
        model.trim_start_matches([' ', '\t', ':']),
        said_by("uname", &["-r"])
    )
}

/// Now, to the minute.
pub fn date() -> String {
    said_by("date", &["-u", "+%Y-%m-%d %H:%M UTC"])
}

/// The commit, and whether files were changed since.
pub fn commit() -> String {
    let changed =
        if said_by("git", &["status", "--porcelain", "-uno"]).is_empty() { "" } else { ", with changes" };
    format!("{}{changed}", said_by("git", &["rev-parse", "--short", "HEAD"]))
}
