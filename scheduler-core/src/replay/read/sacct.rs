//! Output of Slurm's `sacct --parsable2`.

use std::collections::BTreeMap;

use csv::{ReaderBuilder, StringRecord, Trim};

use super::philly::since;
use super::table::Table;
use super::{LeftOut, ReadError, Trace, calendar};
use crate::replay::TraceJob;
use crate::units::{Bytes, Permille};
use radrm_base::UserId;

/// Returns true if a text begins with the heads of such columns.
pub(super) fn is_sacct(text: &str) -> bool {
    let columns: Vec<&str> = text.lines().next().unwrap_or_default().split('|').map(str::trim).collect();
    columns.iter().any(|column| ["JobID", "JobIDRaw"].contains(column)) && columns.contains(&"Submit")
}

/// Reads the table. Needed are `JobID` or `JobIDRaw`, `Submit`, `Start`, `End`, and `AllocTRES` or `ReqTRES`; `JobName`, `User`
/// and `Timelimit` are used where they are.
pub(super) fn read(text: &str) -> Result<Trace, ReadError> {
    let reader = ReaderBuilder::new()
        .delimiter(b'|')
        .quoting(false)
        .trim(Trim::All)
        .flexible(true)
        .from_reader(text.as_bytes());
    let table = Table::of(reader)?;
    let mut left_out = LeftOut::default();
    let mut users: BTreeMap<String, UserId> = BTreeMap::new();
    let mut found = Vec::new();
    let id = if table.has("JobIDRaw") { "JobIDRaw" } else { "JobID" };
    let gpus_of = if table.has("ReqTRES") { "ReqTRES" } else { "AllocTRES" };
    table.require(&[id, "Submit", "Start", "End", gpus_of])?;
    for row in &table.rows {
        if table.text(row, id)?.contains('.') {
            left_out.count("are steps of jobs");
            continue;
        }
        let at = |column| table.text(row, column).map(calendar::seconds);
        let (submitted, start, end) = (at("Submit")?, at("Start")?, at("End")?);
        let gpus = gpus(&table, row);
        match (submitted, start.zip(end).map(|(start, end)| end - start), gpus) {
            (None, ..) => left_out.count("have no time of submission"),
            (_, None, _) => left_out.count("have not run, or not ended"),
            (_, Some(..=0), _) => left_out.count("ran for less than a second"),
            (.., 0) => left_out.count("had no GPU"),
            (Some(submitted), Some(ran), gpus) => {
                let next = UserId(u32::try_from(users.len()).unwrap_or(u32::MAX));
                let user = optional(&table, row, "User").to_owned();
                let user = *users.entry(user).or_insert(next);
                let name = match optional(&table, row, "JobName") {
                    "" => table.text(row, id)?.to_owned(),
                    // Equal names of one user are runs of one program, as radrmd has it of equal commands.
                    name => format!("{name} of user {}", user.0),
                };
                found.push((submitted, ran, gpus, user, name, limit(optional(&table, row, "Timelimit"))));
            }
        }
    }
    let first = found.iter().map(|(submitted, ..)| *submitted).min().unwrap_or(0);
    let jobs = found.into_iter().map(|(submitted, ran, gpus, user, name, limit)| TraceJob {
        gpus,
        user,
        share: Some(Permille::WHOLE),
        peak: Bytes::ZERO,
        time_limit: limit.filter(|limit| *limit >= ran).map(|limit| since(limit, 0)),
        ..TraceJob::new(name, since(submitted, first), since(ran, 0))
    });
    Ok(Trace { jobs: jobs.collect(), left_out })
}

fn optional<'a>(table: &Table, row: &'a StringRecord, column: &str) -> &'a str {
    if table.has(column) { table.text(row, column).unwrap_or_default() } else { "" }
}

/// GPUs of a row. Slurm lists them in sum and by type: `gres/gpu=2,gres/gpu:a100=2`.
fn gpus(table: &Table, row: &StringRecord) -> u16 {
    let texts = ["AllocTRES", "ReqTRES"].map(|column| optional(table, row, column));
    let text = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    let count = |value: &str| value.parse::<u16>().unwrap_or(0);
    let fields = || text.split(',').filter_map(|field| field.split_once('='));
    let sum = fields().find(|(name, _)| *name == "gres/gpu").map(|(_, value)| count(value));
    let typed = || {
        fields()
            .filter(|(name, _)| name.starts_with("gres/gpu:"))
            .fold(0_u16, |sum, (_, value)| sum.saturating_add(count(value)))
    };
    sum.unwrap_or_else(typed)
}

/// Seconds of `1-12:00:00` or `02:00:00`; none for `UNLIMITED` and `Partition_Limit`.
fn limit(text: &str) -> Option<i64> {
    let (days, clock) =
        text.split_once('-').map_or((Some(0), text), |(days, clock)| (days.parse::<i64>().ok(), clock));
    let parts: Vec<i64> =
        clock.split(':').map(|part| part.parse::<u32>().ok().map(i64::from)).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts[..] else { return None };
    days?.checked_mul(86_400)?.checked_add(hours * 3600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Millis;

    const TEXT: &str = "JobID|JobName|User|Submit|Start|End|State|AllocTRES|Timelimit\n\
        41|train|ann|2026-11-01T10:00:00|2026-11-01T10:05:00|2026-11-01T12:05:00|COMPLETED|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|1-00:00:00\n\
        41.batch|batch||2026-11-01T10:05:00|2026-11-01T10:05:00|2026-11-01T12:05:00|COMPLETED|cpu=8,gres/gpu=2|\n\
        42|train|bob|2026-11-01T10:01:00|2026-11-01T10:05:00|2026-11-01T10:05:30|FAILED|cpu=1,gres/gpu:h100=1,gres/gpu:t4=3|UNLIMITED\n\
        43|cpu|bob|2026-11-01T10:01:00|2026-11-01T10:05:00|2026-11-01T10:06:00|COMPLETED|cpu=1,mem=1G|01:00:00\n\
        44|train|bob|2026-11-01T10:02:00|Unknown|Unknown|PENDING||01:00:00\n\
        45|say \"x|bob|2026-11-01T10:02:00|2026-11-01T10:05:00|2026-11-01T10:05:00|CANCELLED|gres/gpu=1|01:00:00\n";

    #[test]
    fn jobs_are_read_and_those_left_out_are_counted() {
        assert!(is_sacct(TEXT));
        let Trace { jobs, left_out } = read(TEXT).unwrap();
        let row = |job: &TraceJob| (job.name.clone(), job.arrival.0, job.duration.0, job.gpus, job.user.0);
        let expected = [
            ("train of user 0".to_owned(), 0, 7_200_000, 2, 0),
            ("train of user 1".to_owned(), 60_000, 30_000, 4, 1),
        ];
        assert_eq!(jobs.iter().map(row).collect::<Vec<_>>(), expected);
        assert_eq!(
            jobs.iter().map(|job| job.time_limit).collect::<Vec<_>>(),
            [Some(Millis(86_400_000)), None]
        );
        let why =
            "1 are steps of jobs, 1 had no GPU, 1 have not run, or not ended, 1 ran for less than a second";
        assert_eq!(left_out.to_string(), why);
    }

    #[test]
    fn a_table_without_gpus_is_refused_and_not_read_as_empty() {
        let error =
            read("JobID|Submit|Start|End\n1|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T11:00:00\n");
        assert!(matches!(error, Err(ReadError::Column(column)) if column == "AllocTRES"));
        let all = read("JobIDRaw|Submit\n1|2026-11-01T10:00:00\n").unwrap_err().to_string();
        assert_eq!(all, "the columns Start, End and AllocTRES are missing");
    }
}
