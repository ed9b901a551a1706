//! `radrm usage`: GPU-hours of users.

use clap::Args;
use radrm_base::calendar;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::wire::{Request, Response, UsageRow};
use radrm_text::{Table, left, right};

use super::text::ValueError;
use crate::error::UsageError;
use crate::{Failure, print, print_json};

/// ms.
const DAY: u64 = 86_400_000;

#[derive(Args, Debug)]
pub struct Flags {
    /// First day, UTC: 2026-11-01 [default: the oldest on record]
    #[arg(long, value_name = "DATE", value_parser = day)]
    from: Option<u64>,
    /// Last day, UTC [default: today]
    #[arg(long, value_name = "DATE", value_parser = day)]
    to: Option<u64>,
    /// Only this user (administrators)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), Failure> {
    let from_ms = flags.from.unwrap_or(0);
    let to_ms = flags.to.map_or(u64::MAX, |day| day.saturating_add(DAY));
    if to_ms <= from_ms {
        return Err(UsageError::Backwards.into());
    }
    let rows = match connection.ask(&Request::Usage { user: flags.user.clone(), from_ms, to_ms })? {
        Response::Usage(rows) => rows,
        other => return Err(odd(&other).into()),
    };
    match (flags.json, flags.csv) {
        (true, _) => print_json(&rows),
        (_, true) => print(&csv(&rows)),
        _ => print(&table(&rows)),
    }
}

fn table(rows: &[UsageRow]) -> String {
    let columns = ["GPU-HOURS", "WEIGHTED", "IDLE", "JOBS", "ATTEMPTS", "OUT OF MEMORY"].map(right);
    let mut table = Table::new([left("USER")].into_iter().chain(columns));
    for row in rows {
        table.row([
            row.user.clone(),
            format!("{:.2}", row.gpu_hours),
            format!("{:.2}", row.weighted_gpu_hours),
            format!("{:.2}", row.idle_gpu_hours),
            row.jobs.to_string(),
            row.attempts.to_string(),
            row.out_of_memory.to_string(),
        ]);
    }
    if table.is_empty() { "no GPU time on record\n".to_owned() } else { table.to_string() }
}

/// Names of users have no commas and quotes on any system; one that has is quoted by the rules of RFC 4180.
fn csv(rows: &[UsageRow]) -> String {
    let quoted = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let line = |row: &UsageRow| {
        let UsageRow { user, uid, gpu_hours, weighted_gpu_hours: weighted, idle_gpu_hours: idle, .. } = row;
        let UsageRow { jobs, attempts, out_of_memory, .. } = row;
        let user = quoted(&radrm_text::csv_cell(user));
        format!("{user},{uid},{gpu_hours:.6},{weighted:.6},{idle:.6},{jobs},{attempts},{out_of_memory}\n")
    };
    let head =
        "user,uid,gpu_hours,weighted_gpu_hours,idle_gpu_hours,jobs,attempts,out_of_memory\n".to_owned();
    rows.iter().map(line).fold(head, |text, line| text + &line)
}

/// The beginning of a day, ms since 1970.
fn day(text: &str) -> Result<u64, ValueError> {
    let parts: Option<Vec<u64>> = text.split('-').map(|part| part.parse().ok()).collect();
    let days = match parts.as_deref() {
        Some([year, month, day]) => calendar::days(*year, *month, *day),
        _ => None,
    };
    days.map(|days| days * DAY).ok_or_else(|| ValueError::Day(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_of_the_calendar() {
        for (text, seconds) in [("1970-01-01", 0), ("2000-02-29", 951_782_400), ("2100-03-01", 4_107_542_400)]
        {
            assert_eq!(day(text), Ok(seconds * 1000), "{text}");
        }
        for text in ["2026-11", "2026-11-31", "2100-02-29", "1969-01-01", "x", "2026-13-01", "2026-1-0"] {
            assert!(day(text).is_err(), "{text}");
        }
    }

    #[test]
    fn csv_has_one_line_a_user_with_full_precision() {
        let row = UsageRow {
            user: "a,b".to_owned(),
            uid: 7,
            gpu_hours: 1.25,
            weighted_gpu_hours: 0.5,
            idle_gpu_hours: 0.75,
            jobs: 2,
            attempts: 3,
            out_of_memory: 1,
            energy_mj: None,
        };
        let text = csv(std::slice::from_ref(&row));
        assert_eq!(text.lines().nth(1), Some("\"a,b\",7,1.250000,0.500000,0.750000,2,3,1"));
        assert_eq!(text.lines().next().unwrap().split(',').count(), 8);
        let text = table(&[row]);
        assert!(text.contains("1.25") && text.contains("0.75") && table(&[]).contains("no GPU time"));
    }
}
