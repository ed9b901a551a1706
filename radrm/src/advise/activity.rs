//! Activity of a program alone on a GPU: measured, or by its launches, as radrmd has it.

use radrm_analyzer::Summary;
use radrm_base::SeenActivity;
use radrm_collector::dataset::{Dataset, Row};
use radrm_scheduler_core::{Activity, Permille, Settings};
use serde::Serialize;

/// Source of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    /// GPM or DCGM.
    Measured,
    /// Shapes of launches and the times of those that were timed; DRAM activity as is assumed of others at that SM activity.
    Launches,
}

/// Activity of a run and where it is from; `None`: nothing tells of it.
pub(super) fn of(row: &Row, dataset: &Dataset, summary: Option<&Summary>) -> Option<(Activity, Source)> {
    let of_row = [row.smact_permille, row.smocc_permille, row.drama_permille].map(|part| part.map(Permille));
    let features = || dataset.features(row.id).ok().flatten().map(|features| features.activity());
    let [smact, smocc, drama] = if of_row[0].is_some() { of_row } else { features().unwrap_or_default() };
    let measured =
        smact.map(|smact| SeenActivity { smact, smocc, drama }.with_usual(Settings::default().assumed));
    // Of launches radrmd's own row has no DRAM activity either.
    let source = if drama.is_some() { Source::Measured } else { Source::Launches };
    measured
        .map(|activity| (activity, source))
        .or_else(|| by_launches(summary?).map(|activity| (activity, Source::Launches)))
}

/// On the GPU that the program kept busiest.
fn by_launches(summary: &Summary) -> Option<Activity> {
    let estimates = summary.gpus.iter().filter_map(|gpu| gpu.estimate);
    let parts = estimates.filter_map(|found| Some((found.sm_active_share?, found.sm_occupancy_share?)));
    parts.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(smact, smocc)| estimated(smact, smocc))
}

fn estimated(smact: f64, smocc: f64) -> Activity {
    let part = |value: f64| Permille::from_fraction(value.clamp(0.0, 1.0));
    let seen = SeenActivity { smact: part(smact), smocc: Some(part(smocc)), drama: None };
    seen.with_usual(Settings::default().assumed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dram_that_nothing_measured_is_as_much_by_sm_activity_as_is_assumed() {
        let assumed = Settings::default().assumed;
        let found = estimated(assumed.smact.fraction() / 2.0, 0.1);
        assert_eq!((found.smocc, found.drama.0.abs_diff(assumed.drama.0 / 2)), (Permille(100), 0));
    }
}
