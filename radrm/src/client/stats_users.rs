//! Users in `radrm stats`: what each had of the GPUs, by the sums of `radrm usage`.

use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::wire::{Request, Response, StatsRow, UsageRow};
use radrm_text::{Table, fit, left, right};
use serde::Serialize;

use crate::Failure;

/// Figures over jobs and GPUs with those of users, as JSON has them.
#[derive(Serialize)]
pub(super) struct WithUsers<'a> {
    #[serde(flatten)]
    pub(super) stats: &'a StatsRow,
    pub(super) users: &'a [UsageRow],
}

/// GPU time since then, up to now: of all users for administrators, and of the one who asks for others, or with `mine`.
pub(super) fn ask(connection: &mut Connection, mine: bool, since_ms: u64) -> Result<Vec<UsageRow>, Failure> {
    match connection.ask(&Request::Usage { user: None, from_ms: since_ms, to_ms: u64::MAX })? {
        Response::Usage(mut rows) => {
            let own = rustix::process::geteuid().as_raw();
            rows.retain(|row| !mine || row.uid == own);
            Ok(rows)
        }
        other => Err(odd(&other).into()),
    }
}

/// A table, those who had most first; nothing where no GPU was used.
pub(super) fn table(mut rows: Vec<UsageRow>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by(|a, b| b.gpu_hours.total_cmp(&a.gpu_hours).then_with(|| a.uid.cmp(&b.uid)));
    let has_energy = rows.iter().any(|row| row.energy_mj.is_some());
    let columns =
        ["JOBS", "GPU-HOURS", "IDLE", "OUT OF MEMORY"].into_iter().chain(has_energy.then_some("ENERGY"));
    let mut table = Table::new([left("USER")].into_iter().chain(columns.map(right)));
    for row in &rows {
        let energy = row.energy_mj.map_or_else(|| "-".to_owned(), |energy| format!("{energy:.3} MJ"));
        let mut line = vec![
            fit(&row.user, 24),
            row.jobs.to_string(),
            format!("{:.2}", row.gpu_hours),
            format!("{:.2}", row.idle_gpu_hours),
            row.out_of_memory.to_string(),
        ];
        line.extend(has_energy.then_some(energy));
        table.row(line);
    }
    format!("\nGPU-hours of users, running attempts up to now:\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_listed_with_the_one_who_had_most_first() {
        let of = |user: &str, uid, gpu_hours, idle_gpu_hours| UsageRow {
            user: user.to_owned(),
            uid,
            gpu_hours,
            idle_gpu_hours,
            jobs: 2,
            out_of_memory: 1,
            ..UsageRow::default()
        };
        let text = table(vec![of("alice", 7, 1.5, 0.0), of("bob", 8, 30.25, 12.5)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["", "GPU-hours of users, running attempts up to now:"]);
        assert!(lines[2].starts_with("USER") && lines[2].contains("IDLE"), "{text}");
        assert!(
            lines[3].starts_with("bob") && lines[3].contains("30.25") && lines[3].contains("12.50"),
            "{text}"
        );
        assert!(lines[4].starts_with("alice") && lines.len() == 5, "{text}");
        assert!(!text.contains("ENERGY"), "no GPU counts it: {text}");
        let known = UsageRow { energy_mj: Some(1.25), ..of("carol", 9, 2.0, 0.0) };
        let text = table(vec![known, of("bob", 8, 1.0, 0.0)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("ENERGY") && lines[3].ends_with("1.250 MJ"), "{text}");
        assert!(lines[4].trim_end().ends_with('-'), "{text}");
        assert_eq!(table(Vec::new()), "", "a node whose GPUs no user had");
    }

    #[test]
    fn json_has_the_figures_beside_the_users() {
        let stats = StatsRow { jobs: 3, ..StatsRow::default() };
        let users = [UsageRow { uid: 7, ..UsageRow::default() }];
        let json = serde_json::to_value(WithUsers { stats: &stats, users: &users }).unwrap();
        assert_eq!((&json["jobs"], &json["users"][0]["uid"]), (&3.into(), &7.into()));
    }
}
