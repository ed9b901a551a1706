//! `radrm limits` and `radrm admin`: limits of users in the queue, and reservations.

use clap::{Args, Subcommand};
use radrm_base::calendar;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::limits::{LimitRow, LimitsRow, ReserveRow, SetLimitRow};
use radrm_protocol::wire::{Request, Response};
use radrm_text::{Table, left, right};

use super::reservations;
use super::text::{bytes, time};
use crate::{Failure, print, print_json};

#[derive(Args, Debug)]
pub struct Flags {
    /// Show this user's (administrators)
    #[arg(value_name = "USER")]
    user: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Changes of administrators while jobs run.
#[derive(Subcommand, Debug)]
pub enum Admin {
    /// Set a limit of users in the queue
    ///
    /// Replaces the same limit of the same section in radrmd.toml until `radrm admin unset`, also over restarts. It
    /// holds from the next start of a job on; jobs that run stay.
    #[command(after_long_help = "\
Examples:
  radrm admin set default gpus 4
  radrm admin set group:students max_time 4h30m
  radrm admin set user:alice memory none")]
    Set {
        /// default, user:NAME or group:NAME
        #[arg(value_name = "WHOSE")]
        scope: String,
        /// gpus, running_jobs, default_time, max_time, memory, allowed_gpus, gpu_hours, quiet_hours, quiet_memory, quiet_share or quiet_time
        #[arg(value_name = "LIMIT")]
        name: String,
        /// Such as 4, 4h30m, 20GiB, 0,1, "Mon-Fri 08:00-18:00", or none
        #[arg(value_name = "VALUE")]
        value: String,
    },
    /// Take back a limit that was set: that of radrmd.toml holds again
    Unset {
        /// default, user:NAME or group:NAME
        #[arg(value_name = "WHOSE")]
        scope: String,
        /// The limit
        #[arg(value_name = "LIMIT")]
        name: String,
    },
    /// Show the limits that were set, by whom and when
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep GPUs for people from one time to another
    ///
    /// While the reservation holds, only jobs of these users and of members of these groups start on the GPUs. Before it
    /// begins, another job starts there only if its time limit ends by then; one without a time limit does not start there
    /// in the lead time. A job that still runs there stays, unless --evict is stated. It ends by itself, is kept over
    /// restarts, and its times are those of the node's clock and time zone.
    #[command(after_long_help = "\
Examples:
  radrm admin reserve --users alice --gpus 0 --until '2026-12-26 20:00'
  radrm admin reserve --groups course --from 2026-12-24 --until 2026-12-27")]
    Reserve(Reserve),
    /// Show reservations of GPUs that are not over
    Reservations {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take a reservation back
    Unreserve {
        /// Its number
        #[arg(value_name = "NUMBER")]
        number: u64,
    },
}

/// A reservation.
#[derive(Args, Debug)]
pub struct Reserve {
    /// Users whose jobs may start there
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required_unless_present = "groups")]
    users: Vec<String>,
    /// Unix groups whose members' jobs may start there
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    groups: Vec<String>,
    /// GPUs, by number, UUID or model [default: all]
    #[arg(long, value_name = "GPUS", value_delimiter = ',')]
    gpus: Vec<String>,
    /// Begin, such as "2026-12-24 08:00" [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End; a date alone is its first minute
    #[arg(long, value_name = "TIME")]
    until: String,
    /// Time before the begin in which no other job without a time limit starts there [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = super::text::span)]
    lead: Option<u64>,
    /// Ask other jobs that still run there at the begin to leave, if they may be preempted
    #[arg(long)]
    evict: bool,
    /// Show this text with it, such as "CUDA course"
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), Failure> {
    let row = match connection.ask(&Request::Limits { user: flags.user.clone() })? {
        Response::Limits(row) => row,
        other => return Err(odd(&other).into()),
    };
    if flags.json { print_json(&row) } else { print(&table(&row)) }
}

pub(super) fn admin(command: Admin, connection: &mut Connection) -> Result<(), Failure> {
    match command {
        Admin::Set { scope, name, value } => {
            Ok(connection.done(&Request::SetLimit { scope, name, value: Some(value) })?)
        }
        Admin::Unset { scope, name } => {
            Ok(connection.done(&Request::SetLimit { scope, name, value: None })?)
        }
        Admin::Show { json } => {
            let rows = match connection.ask(&Request::SetLimits)? {
                Response::SetLimits(rows) => rows,
                other => return Err(odd(&other).into()),
            };
            if json { print_json(&rows) } else { print(&settings(&rows)) }
        }
        Admin::Reserve(Reserve { users, groups, gpus, from, until, lead, evict, reason }) => {
            let row = ReserveRow { users, groups, gpus, from, until, lead_ms: lead, evict, reason };
            match connection.ask(&Request::Reserve(Box::new(row)))? {
                Response::Reserved { number, text } => print(&format!("reservation {number}: {text}\n")),
                other => Err(odd(&other).into()),
            }
        }
        Admin::Reservations { json } => match connection.ask(&Request::Reservations)? {
            Response::Reservations(rows) if json => print_json(&rows),
            Response::Reservations(rows) => print(&reservations::table(&rows)),
            other => Err(odd(&other).into()),
        },
        Admin::Unreserve { number } => Ok(connection.done(&Request::Unreserve { number })?),
    }
}

fn table(row: &LimitsRow) -> String {
    let mut table = Table::new([left("LIMIT"), right("VALUE"), right("IN USE"), left("FROM")]);
    for limit in &row.limits {
        table.row([
            limit.name.clone(),
            value(limit),
            limit.used.map_or_else(|| "-".to_owned(), |used| used_text(limit, used)),
            from(limit),
        ]);
    }
    let behind = match row.behind {
        true => "the budget of gpu_hours is spent: jobs go behind those of other users\n",
        false => "",
    };
    let kept: String = row.reservations.iter().map(reservations::line).collect();
    format!("limits of {}\n{table}{behind}{kept}", row.user)
}

fn value(limit: &LimitRow) -> String {
    match (limit.unit.as_str(), limit.number, &limit.value) {
        ("ms", Some(ms), _) => time(ms),
        ("bytes", Some(amount), _) => bytes(amount),
        (_, _, Some(text)) => text.clone(),
        (_, _, None) => "none".to_owned(),
    }
}

fn used_text(limit: &LimitRow, used: f64) -> String {
    if limit.name == "gpu_hours" { format!("{used:.1}") } else { format!("{used}") }
}

fn from(limit: &LimitRow) -> String {
    let section = limit.from.clone().unwrap_or_else(|| "-".to_owned());
    match (&limit.set_by, limit.set_at_ms) {
        (Some(by), Some(at_ms)) => format!("{section}, set by {by} at {}", calendar::utc(at_ms * 1_000_000)),
        _ => section,
    }
}

fn settings(rows: &[SetLimitRow]) -> String {
    let mut table = Table::new([left("WHOSE"), left("LIMIT"), right("VALUE"), left("BY"), left("AT")]);
    for SetLimitRow { scope, name, value, by, at_ms } in rows {
        let at = calendar::utc(at_ms * 1_000_000);
        table.row([scope.clone(), name.clone(), value.clone(), by.clone(), at]);
    }
    match table.is_empty() {
        true => "no limit was set by radrm admin: those of radrmd.toml hold\n".to_owned(),
        false => table.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_with_their_sections_and_what_is_in_use() {
        let of = |name: &str, unit: &str, number, used| LimitRow {
            name: name.to_owned(),
            unit: unit.to_owned(),
            number,
            value: number.map(|number: u64| number.to_string()),
            from: number.map(|_| "group lab".to_owned()),
            used,
            ..LimitRow::default()
        };
        let set = LimitRow {
            set_by: Some("root".to_owned()),
            set_at_ms: Some(951_782_400_000),
            ..of("gpus", "count", Some(4), Some(3.0))
        };
        let limits = vec![
            set,
            of("running_jobs", "count", None, Some(1.0)),
            of("max_time", "ms", Some(16_200_000), None),
            of("memory", "bytes", Some(20 << 30), None),
            of("gpu_hours", "count", Some(200), Some(12.34)),
        ];
        let row = LimitsRow { user: "alice".to_owned(), limits, behind: true, ..LimitsRow::default() };
        let text = table(&row);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "limits of alice");
        assert!(lines[2].contains("group lab, set by root at 2000-02-29"), "{text}");
        assert!(lines[3].contains("none") && lines[3].trim_end().ends_with('-'), "{text}");
        assert!(lines[5].contains("20.0 GiB") && lines[6].contains("12.3"), "{text}");
        assert!(lines[7].contains("go behind"), "{text}");
        assert!(settings(&[]).contains("radrmd.toml"));
    }
}
