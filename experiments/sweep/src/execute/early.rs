//! Runs that early stopping ends.

use super::Sweep;
use super::here::end;
use crate::attempt::Attempt;
use crate::error::SweepError;
use crate::metrics;
use crate::store::Recorded;

impl Sweep<'_> {
    /// Asks the runs that early stopping gives up to end, of those that the sweep itself started.
    pub(super) fn stop_early(&mut self, runs: &[Recorded]) -> Result<(), SweepError> {
        for run in runs {
            // A supervisor that cannot be asked yet is asked the next time.
            if let Some(attempt) = self.given_up(run)?
                && end(&attempt)
            {
                self.asked(&attempt);
            }
        }
        Ok(())
    }

    /// The attempt of a run that early stopping gives up, with the reason on disk; `None` if it goes on, or was asked to end.
    pub(super) fn given_up(&mut self, run: &Recorded) -> Result<Option<Attempt>, SweepError> {
        let attempt = self.attempt(run);
        let file = attempt.file(metrics::FILE);
        // A run that ends because the sweep ends is repeated, and has its time from SIGTERM to SIGKILL.
        if self.stop.count() > 0 {
            return Ok(None);
        }
        let Some(judge) = self.judge.as_mut().filter(|judge| !judge.is_asked(&file)) else { return Ok(None) };
        // Of a sweep that was killed before it asked.
        if attempt.given_up().is_some() {
            return Ok(Some(attempt));
        }
        judge.read(&run.key, &file);
        let Some(why) = judge.verdict(&run.key) else { return Ok(None) };
        let io = |source| SweepError::Io { path: attempt.folder().to_owned(), source };
        attempt.give_up(&why).map_err(io)?;
        Ok(Some(attempt))
    }

    /// An attempt was asked to end.
    pub(super) fn asked(&mut self, attempt: &Attempt) {
        if let Some(judge) = &mut self.judge {
            judge.ask(attempt.file(metrics::FILE));
        }
    }
}
