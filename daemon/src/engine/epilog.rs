//! The administrator's programs around attempts, as the engine has them run.
//!
//! An attempt whose epilog runs holds its GPUs until that has ended: the next job finds them as the epilog left them.

use radrm_scheduler_core::{Outcome, Reason, Verdict};
use radrm_text::output::say;

use super::Engine;
use super::jobs::Over;
use crate::attempt::Attempt;
use crate::error::DaemonError;
use crate::status::Status;
use crate::store::Entry;
use crate::supervisor;

/// Environment of both programs: the job, its user and its GPUs. Nothing that the user wrote is among it.
pub(super) fn environment(entry: &Entry) -> Vec<String> {
    let mut lines = supervisor::marks(entry.id, entry.attempt).to_vec();
    lines.extend([
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        format!("RADRM_USER={}", entry.user),
        format!("RADRM_UID={}", entry.uid),
        format!("RADRM_GPUS={}", entry.devices.join(",")),
    ]);
    lines.extend(super::arrays::marks(entry));
    lines
}

/// End of the attempt, as variables for its epilog.
fn end_words(status: &Status) -> Vec<String> {
    let end = status.end.as_ref();
    let (word, more) = match end.map(crate::status::End::outcome) {
        Some(Outcome::Exited { code } | Outcome::OutOfMemory { code, .. }) => {
            ("exited", Some(format!("RADRM_EXIT_CODE={code}")))
        }
        Some(Outcome::HostOutOfMemory { code, .. }) => {
            ("host-out-of-memory", Some(format!("RADRM_EXIT_CODE={code}")))
        }
        Some(Outcome::Signalled { signal }) => ("signalled", Some(format!("RADRM_EXIT_SIGNAL={signal}"))),
        Some(Outcome::NotStarted) => ("not-started", None),
        Some(Outcome::Lost) => ("lost", None),
        None => ("supervisor-killed", None),
    };
    [Some(format!("RADRM_END={word}")), more].into_iter().flatten().collect()
}

/// Prefix of the line with the reason that nothing of an attempt began.
pub(super) const NOT_STARTED: &str = "not started: ";

impl Engine {
    /// End of a job, in words: with the reason where it could not be started.
    pub(super) fn end_words(&self, job: u64, verdict: &Verdict, reason: &Reason) -> String {
        let words = super::rows::end_words(verdict, reason);
        let why = self.jobs.entry(job).and_then(|entry| entry.why.strip_prefix(NOT_STARTED));
        match (verdict, why) {
            (Verdict::Ended(Outcome::Lost | Outcome::NotStarted), Some(why)) => {
                format!("could not be started: {why}")
            }
            // Its user reads who else it was.
            (Verdict::Cancelled, _) if words == "cancelled" => {
                let owner = self.jobs.entry(job).map(|entry| entry.user.as_str());
                let by = self.canceller(job).filter(|by| Some(by.as_str()) != owner);
                by.map_or(words, |by| format!("cancelled by {by}"))
            }
            _ => words,
        }
    }

    /// Has the epilog of an attempt run, and keeps the attempt until it has ended; returns it if there is none.
    pub(super) fn begin_epilog(&mut self, over: Over) -> Option<Over> {
        let Over { attempt, status, .. } = &over;
        let Some(entry) = self.jobs.entry(attempt.0) else { return Some(over) };
        // Without a supervisor nothing was there, the prolog included.
        if status.supervisor.or(status.program).is_none() && status.end.is_none() {
            return Some(over);
        }
        let environment = environment(entry).into_iter().chain(end_words(status)).collect();
        let Some(call) = self.config.hooks.epilog(environment) else { return Some(over) };
        match self.effects.start_epilog(*attempt, &call) {
            Ok(()) => {
                self.epilogs.insert(*attempt, over);
                None
            }
            Err(why) => {
                self.remark_epilog(attempt.0, why);
                Some(over)
            }
        }
    }

    /// The epilog has ended, and with it the attempt.
    pub(super) fn epilog_ended(&mut self, attempt: Attempt, result: Result<(), DaemonError>) {
        let Some(over) = self.epilogs.remove(&attempt) else { return };
        if let Err(why) = result {
            self.remark_epilog(attempt.0, why);
        }
        self.end_unless_doubtful(over);
    }

    /// Notes in the job's history and the log that its epilog failed.
    fn remark_epilog(&mut self, job: u64, why: DaemonError) {
        let error = DaemonError::Hook { hook: "epilog", error: Box::new(why) };
        say(crate::process::NAME, &format!("job {job}: {error}"));
        self.remark(job, error.to_string());
    }
}
