//! The dataset as the history that needs are resolved from, and needs as its rows keep them.

use std::borrow::Cow;

use radrm_base::{Bytes, PastRun, Permille, UserId};
use radrm_need::{DryRun, DryRunPairs, MAX_RUNS, Need, Prediction, RunFilter, RunHistory, Source};

use super::row::{Origin, Row};
use super::{Dataset, DatasetError, Filter, PastRuns, ProgramKey, pairs};

impl RunHistory for Dataset {
    type Program = ProgramKey;
    type Error = DatasetError;

    /// Runs under `radrm-run`; in a dataset without any, those of the daemon.
    fn runs(&self, program: &ProgramKey, of: &RunFilter<'_>) -> Result<Cow<'_, [PastRun]>, DatasetError> {
        let select = |origin| {
            let limit = u32::try_from(MAX_RUNS).unwrap_or(u32::MAX);
            let RunFilter { user, gpu_model, emulated, since } = *of;
            self.past_runs(program, &PastRuns { origin, uid: user.0, gpu_model, emulated, limit, since })
        };
        let own = select(if of.emulated { Origin::Emulated } else { Origin::Measured })?;
        if own.is_empty() { select(Origin::Daemon).map(Cow::Owned) } else { Ok(Cow::Owned(own)) }
    }

    fn newest_dry_run(
        &self,
        program: &ProgramKey,
        of: &RunFilter<'_>,
        batch: Option<u32>,
    ) -> Result<Option<DryRun>, DatasetError> {
        Ok(pairs::newest_dry_run(&self.connection, program, of, batch)?)
    }

    fn dry_run_pairs(&self, like: &DryRun, gpu_model: Option<&str>) -> Result<DryRunPairs, DatasetError> {
        Ok(pairs::of_stack(&self.connection, like, gpu_model)?)
    }

    /// Of the daemon's runs: no other run has a need that was resolved before it.
    fn predictions(&self, newest: u32) -> Result<Vec<Prediction>, DatasetError> {
        let filter = Filter { origin: Some(Origin::Daemon), limit: Some(newest), ..Filter::default() };
        Ok(self.rows(&filter)?.iter().rev().filter_map(Row::prediction).collect())
    }
}

impl Row {
    /// The row with the need that was resolved for its run. `is_bounded` is false where the need's upper bound is none for a
    /// reason that the need does not know.
    #[must_use]
    pub fn predicted_as(self, need: Option<&Need>, is_bounded: bool) -> Self {
        Self {
            predicted_bytes: need.map(|need| need.bytes.0),
            predicted_upper_bytes: need
                .filter(|need| is_bounded && need.no_bound().is_none())
                .map(|need| need.upper.0),
            predicted_confidence_permille: need.and_then(|need| need.confidence).map(|part| part.0),
            predicted_source: need.map(|need| need.source.to_text()),
            ..self
        }
    }

    /// Prediction for the run, and what it took; `None` unless both are known and the run bounds its need.
    #[must_use]
    pub fn prediction(&self) -> Option<Prediction> {
        let source = Source::parse(self.predicted_source.as_deref()?)?;
        let confidence = self.predicted_confidence_permille.map(Permille);
        let [bytes, upper] = [self.predicted_bytes?, self.predicted_upper_bytes?].map(Bytes);
        (self.complete || self.out_of_memory).then_some(Prediction {
            user: UserId(self.uid),
            need: Need::new(bytes, upper, confidence, source),
            peak: Bytes(self.footprint_bytes?),
            complete: self.complete,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use radrm_base::Permille;

    use super::*;

    #[test]
    fn a_need_survives_its_row_with_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let mut dataset = Dataset::open(&folder.path().join("d.db")).unwrap();
        let run = DryRun { held: Bytes(5), steps: 3, gpu: "H200".into(), ..DryRun::default() };
        let said = radrm_need::Said {
            source: Source::DryRun { run, runs: 12, left_out: None },
            bytes: Bytes(7),
            weight: Permille::WHOLE,
        };
        let source = Source::Combined { said: vec![said], stretch: Permille(1200) };
        let need = Need::new(Bytes(7), Bytes(9), Some(Permille(900)), source);
        let row = Row {
            origin: Origin::Daemon,
            uid: 4,
            footprint_bytes: Some(8),
            complete: true,
            outcome: "exited".into(),
            ..Row::of_command(&["p".to_owned()], Path::new("/"), 1)
        };
        let row = row.predicted_as(Some(&need), true);
        dataset.add(&row, None).unwrap();
        let expected = Prediction { user: UserId(4), need: need.clone(), peak: Bytes(8), complete: true };
        assert_eq!(dataset.predictions(9).unwrap(), [expected]);
        // A dry run took what it held itself: it shows nothing of a prediction.
        dataset.add(&Row { origin: Origin::DryRun, ..row.clone() }, None).unwrap();
        assert_eq!(dataset.predictions(9).unwrap().len(), 1);
        for other in [
            row.clone().predicted_as(Some(&need), false),
            Row { complete: false, ..row.clone() },
            Row { predicted_source: Some("of another program".into()), ..row.clone() },
            row.clone().predicted_as(None, true),
        ] {
            assert_eq!(other.prediction(), None);
        }
    }
}
