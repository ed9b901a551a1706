//! Estimates that were recorded beside a trace: a table by the trace's names of jobs.

use std::collections::BTreeMap;

use radrm_base::ProgramKind;

use super::read::ReadError;
use super::read::table::{Table, estimators, mib};
use super::trace::TraceJob;
use crate::units::{Bytes, Millis};
use radrm_need::DryRun;

/// Steps that a training must make in a dry run for its peak: the third has all memory that later ones have.
const STEPS: u64 = 3;

/// Recorded run time, dry run and estimates of the jobs of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    ran: Option<Millis>,
    dry_run: Option<DryRun>,
    estimates: BTreeMap<String, Bytes>,
}

/// Recorded estimates: `rad,duration_min,kind,dry_run_mib,est_NAME_mib,...`, of which all but the first may be left out; without
/// `kind` the kinds of the programs are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded(BTreeMap<String, Row>);

impl Recorded {
    /// Reads the table. Other columns are left to its readers: they may name where a figure is from.
    ///
    /// # Errors
    /// It has no column `rad`, none with estimates or run times, or a value is wrong.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let table = Table::read(text)?;
        let estimators = estimators(&table);
        let has_some = !estimators.is_empty() || table.has("duration_min");
        table.require(if has_some { &["rad"] } else { &["rad", "dry_run_mib"] })?;
        let mut all = BTreeMap::new();
        for row in &table.rows {
            let mut found = Row::default();
            if table.has("duration_min") {
                let minutes = table.number(row, "duration_min")?;
                found.ran = minutes.map(|minutes| Millis((minutes * 60_000.0).round() as u64));
            }
            if table.has("dry_run_mib") {
                let held = table.number(row, "dry_run_mib")?.map(mib);
                let kind = table.has("kind").then(|| table.text(row, "kind")).transpose()?;
                let kind = kind.and_then(ProgramKind::parse);
                found.dry_run = held.map(|held| DryRun {
                    held,
                    kind,
                    steps: STEPS,
                    gpu: "GPU".to_owned(),
                    ..DryRun::default()
                });
            }
            for (column, name) in &estimators {
                found.estimates.extend(table.number(row, column)?.map(|value| (name.clone(), mib(value))));
            }
            all.insert(table.text(row, "rad")?.to_owned(), found);
        }
        Ok(Self(all))
    }

    /// Recorded run time of the jobs of a name.
    #[must_use]
    pub fn ran(&self, name: &str) -> Option<Millis> {
        self.0.get(name)?.ran
    }

    /// Gives jobs what was recorded of them, in place of what the trace has; returns how many have something.
    pub fn give(&self, jobs: &mut [TraceJob]) -> usize {
        let mut given = 0;
        for job in jobs {
            let Some(row) = self.0.get(&job.name) else { continue };
            given += 1;
            job.dry_run = row.dry_run.clone().or(job.dry_run.take());
            job.estimates.extend(row.estimates.clone());
            if let Some(ran) = row.ran {
                (job.duration, job.is_duration_assumed) = (ran, false);
            }
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_estimates_go_to_the_jobs_of_their_name() {
        let text = "rad,kind,made_by,dry_run_mib,est_horus_mib\na,cudnn,us,100,\nb,,us,,7\n";
        let recorded = Recorded::read(text).unwrap();
        let mut jobs = ["a", "b", "c"].map(|name| TraceJob::new(name, Millis(0), Millis(1)));
        jobs[0].estimates.insert("horus".to_owned(), Bytes(1));
        assert_eq!(recorded.give(&mut jobs), 2);
        let run = jobs[0].dry_run.as_ref().unwrap();
        assert_eq!((run.held, run.kind), (Bytes::from_mib(100), Some(ProgramKind::Cudnn)));
        assert_eq!(jobs[0].estimates["horus"], Bytes(1), "an empty field replaces nothing");
        assert_eq!((&jobs[1].dry_run, jobs[1].estimates["horus"]), (&None, Bytes::from_mib(7)));
        assert_eq!((&jobs[2].dry_run, jobs[2].estimates.len()), (&None, 0));
    }

    #[test]
    fn recorded_run_times_take_the_place_of_assumed_ones() {
        let recorded = Recorded::read("rad,duration_min\na,1.5\nb,\n").unwrap();
        let assumed =
            |name| TraceJob { is_duration_assumed: true, ..TraceJob::new(name, Millis(0), Millis(1)) };
        let mut jobs = ["a", "b"].map(assumed);
        assert_eq!(recorded.give(&mut jobs), 2);
        let times = jobs.map(|job| (job.duration, job.is_duration_assumed));
        assert_eq!(times, [(Millis(90_000), false), (Millis(1), true)]);
        assert_eq!((recorded.ran("a"), recorded.ran("c")), (Some(Millis(90_000)), None));
    }

    #[test]
    fn a_table_without_names_or_estimates_is_refused() {
        let why = |text: &str| Recorded::read(text).unwrap_err().to_string();
        assert_eq!(why("rad,peak\na,1\n"), "the column dry_run_mib is missing");
        assert_eq!(why("dry_run_mib\n1\n"), "the column rad is missing");
        assert_eq!(why("peak\n1\n"), "the columns rad and dry_run_mib are missing");
        assert!(why("rad,dry_run_mib\na,x\n").starts_with("line 2: dry_run_mib is \"x\""));
    }
}
