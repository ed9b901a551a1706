//! Records of a dry run for the profile.

use std::path::Path;

use radrm_analyzer::Summary;
use radrm_profile::{Profile, Record, Writer};

use super::{Found, cards, need};
use crate::cli::Plan;

/// As [`add`] names it.
pub const FIGURES: &str = "the dry run's figures";

/// Records of a dry run that ended as the summary shows. What the program needs is known only if it succeeded.
pub fn records(found: Found, summary: &Summary) -> Vec<Record> {
    let Found { mut figures, ranks, step } = found;
    // Not every program's allocator counts the requests that were refused.
    if summary.outcome.out_of_memory && figures.out_of_memory == 0 {
        figures.out_of_memory = summary.failed_requests_total.max(1);
    }
    // The run's own figures: another clock and another reading would give the report two of each.
    figures.seconds = summary.outcome.duration_ns.as_secs_f64();
    let resident = summary.host.as_ref().and_then(|host| host.resident_peak_bytes);
    if let (Some(resident), None) = (resident, &ranks) {
        figures.host_memory = resident.0;
    }
    let fits = if summary.outcome.success { cards::fits(&figures) } else { Vec::new() };
    let ranks = ranks.map(Record::Ranks);
    // Of a program that failed, a step may have been cut short.
    let step = step.filter(|_| summary.outcome.success && figures.withheld.is_none());
    let step = step.map(|step| Record::Step(Box::new(step)));
    [Record::DryRun(Box::new(figures)), Record::Fits(fits)].into_iter().chain(ranks).chain(step).collect()
}

/// Adds records to a profile that is complete otherwise; `what` could not be written, as a sentence.
pub fn add(profile: &mut Profile, path: Option<&Path>, what: &str, records: Vec<Record>) -> Option<String> {
    let write = |path: &Path| {
        let mut writer = Writer::reopen(path)?;
        records.iter().try_for_each(|record| writer.append(record))
    };
    let failed = path.and_then(|path| {
        let error = write(path).err()?;
        Some(format!("{what} are not in the profile {}: {error}", path.display()))
    });
    records.into_iter().for_each(|record| profile.apply(record));
    failed
}

/// Adds the need of a program whose dry run succeeded, as [`add`] does.
pub fn add_expected(profile: &mut Profile, path: Option<&Path>, plan: &Plan) -> Option<String> {
    let is_known = Summary::from_profile(profile).outcome.success;
    let expected = is_known.then(|| need::expected(profile, &plan.row, plan.node)).flatten()?;
    let fits = cards::bounded(&profile.fits, profile.dry_run.as_ref(), &expected);
    add(profile, path, FIGURES, vec![Record::Expected(expected), Record::Fits(fits)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::dry_run::{GpuFigures, RanRank};
    use radrm_profile::model::{DryRunFigures, DryRunRanks, Exit, HostSpan, Job, Outcome, Reason};
    use radrm_profile::{Bytes, Nanos};

    fn summary(exit: Exit, out_of_memory: bool) -> Summary {
        let mut profile = Profile::new(Job::default());
        let reason = out_of_memory.then_some(Reason::OutOfGpuMemory);
        profile.outcome = Some(Outcome { exit, duration: Nanos::ZERO, reason });
        Summary::from_profile(&profile)
    }

    fn found() -> Found {
        let figures = DryRunFigures {
            gpus: vec![GpuFigures { capability: (8, 0), held_peak: 1 << 30, ..GpuFigures::default() }],
            ..DryRunFigures::default()
        };
        let ran = vec![RanRank { rank: 63, gpu: 7, host_memory: Some(1) }];
        Found {
            figures,
            ranks: Some(DryRunRanks { world: 64, per_node: 8, ran, ..DryRunRanks::default() }),
            step: None,
        }
    }

    #[test]
    fn only_a_run_that_succeeded_fits_anywhere() {
        let fits = |exit, out_of_memory| {
            let mut profile = Profile::new(Job::default());
            add(&mut profile, None, FIGURES, records(found(), &summary(exit, out_of_memory)));
            (profile.fits.len(), profile.dry_run.unwrap().out_of_memory)
        };
        assert!(fits(Exit::Code(0), false).0 > 0);
        // Refusals that its framework has not counted.
        assert_eq!(fits(Exit::Code(1), true), (0, 1));
        assert_eq!(fits(Exit::Code(1), false), (0, 0));
        assert_eq!(fits(Exit::Signal(9), false), (0, 0));
    }

    #[test]
    fn duration_and_host_memory_are_those_of_the_run() {
        let mut profile = Profile::new(Job::default());
        let duration = Nanos::from_millis(18_734);
        profile.outcome = Some(Outcome { exit: Exit::Code(0), duration, reason: None });
        profile.host.resident_peak = Some(Bytes(439));
        profile.host.spans = vec![HostSpan { resident: Bytes(440), ..HostSpan::default() }];
        let summary = Summary::from_profile(&profile);
        let figures = |ranks| {
            let mut found = Found { ranks, ..found() };
            (found.figures.seconds, found.figures.host_memory) = (19.1, 450);
            let records = records(found, &summary);
            let Record::DryRun(figures) = &records[0] else { panic!("{records:?}") };
            (figures.seconds, figures.host_memory)
        };
        assert_eq!(figures(None), (18.734, 440));
        // The sum over the ranks is another figure.
        assert_eq!(figures(found().ranks), (18.734, 450));
    }

    #[test]
    fn what_is_added_to_a_profile_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.radrm");
        Writer::create(&path, &Job::default()).unwrap();
        let mut profile = Profile::new(Job::default());
        let failed =
            add(&mut profile, Some(&path), FIGURES, records(found(), &summary(Exit::Code(0), false)));
        assert_eq!(failed, None);
        assert_eq!(Profile::open(&path).unwrap(), profile);
        assert!(
            add(&mut profile, Some(folder.path()), FIGURES, Vec::new())
                .unwrap()
                .contains("figures are not in the profile")
        );
    }
}
