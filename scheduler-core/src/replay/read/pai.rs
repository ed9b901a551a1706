//! Tasks of Alibaba's PAI cluster of 2020: `pai_task_table.csv`, which is published without a head.

use csv::{ReaderBuilder, StringRecord, Trim};

use super::columns::PAI;
use super::table::{Table, seconds};
use super::{LeftOut, ReadError, Trace};
use crate::replay::TraceJob;
use crate::units::{Millis, Permille};

/// Values of `status`.
const STATES: [&str; 4] = ["Terminated", "Failed", "Running", "Waiting"];

/// Returns true if a table's first line is the head of such a table, or a row of one.
pub(super) fn is_pai(first: &[&str]) -> bool {
    first == PAI || (first.len() == PAI.len() && STATES.contains(&first[3]))
}

/// Reads the table. A task is a job of so many GPUs as its instances plan to have together; of those that plan a part of a
/// GPU each has one. It arrives when it was started: how long it waited the table does not say.
pub(super) fn read(text: &str) -> Result<Trace, ReadError> {
    let has_head = text.trim_start_matches('\u{feff}').trim_start().starts_with(PAI[0]);
    let mut reader = ReaderBuilder::new().trim(Trim::All).flexible(false).from_reader(text.as_bytes());
    if !has_head {
        // The first line is then a row.
        reader.set_headers(StringRecord::from(PAI.to_vec()));
    }
    let table = Table::of(reader)?;
    table.require(&PAI)?;
    let mut left_out = LeftOut::default();
    let mut jobs = Vec::new();
    for row in &table.rows {
        let (start, end) = (table.number(row, "start_time")?, table.number(row, "end_time")?);
        let percent = table.number(row, "plan_gpu")?.unwrap_or(0.0);
        let instances = table.number(row, "inst_num")?.unwrap_or(1.0).max(1.0);
        // An instance that plans 0.1 % or less of a GPU has none.
        let part = Permille((percent * 10.0).min(1000.0) as u32);
        let Some((start, end)) = start.zip(end).filter(|(start, end)| end > start) else {
            left_out.count("have no start and end, or no time between them");
            continue;
        };
        if part.0 == 0 {
            left_out.count("had no GPU");
            continue;
        }
        let name = format!("{}/{}", table.text(row, "job_name")?, table.text(row, "task_name")?);
        jobs.push(TraceJob {
            gpus: (instances * (percent / 100.0).ceil()).min(f64::from(u16::MAX)) as u16,
            share: Some(part),
            ..TraceJob::new(name, seconds(start), seconds(end - start))
        });
    }
    let first = jobs.iter().map(|job| job.arrival).min().unwrap_or(Millis::ZERO);
    jobs.iter_mut().for_each(|job| job.arrival = job.arrival.minus(first));
    Ok(Trace { jobs, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "4d1,tensorflow,1,Terminated,1000.0,1600.0,600.0,29.296875,50.0,MISC\n\
        77a,worker,4,Failed,900.0,960.5,600.0,29.0,200.0,V100\n\
        77a,ps,1,Terminated,900.0,960.0,600.0,29.0,,\n\
        90b,worker,1,Running,950.0,,600.0,29.0,100.0,T4\n";

    #[test]
    fn tasks_are_read_with_and_without_a_head() {
        let head = format!("{}\n", PAI.join(","));
        for text in [ROWS.to_owned(), head + ROWS] {
            let Trace { jobs, left_out } = read(&text).unwrap();
            let row = |job: &TraceJob| {
                (job.name.clone(), job.arrival.0, job.duration.0, job.gpus, job.share.unwrap().0)
            };
            let expected = [
                ("4d1/tensorflow".to_owned(), 100_000, 600_000, 1, 500),
                ("77a/worker".to_owned(), 0, 60_500, 8, 1000),
            ];
            assert_eq!(jobs.iter().map(row).collect::<Vec<_>>(), expected);
            let why = "1 had no GPU, 1 have no start and end, or no time between them";
            assert_eq!(left_out.to_string(), why);
        }
    }
}
