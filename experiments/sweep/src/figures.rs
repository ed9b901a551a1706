//! Resources that a run took, from its profile: those of the job and not of the GPU.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use radrm_analyzer::Summary;
use radrm_os::untrusted;
use radrm_profile::model::Profile;
use radrm_text::clean;

use crate::attempt::{Attempt, Ended, OUTPUT};
use crate::store::{Outcome, State};
use crate::{metrics, tensorboard};

/// Outcome of a run, with what it logged beside its profile and the figures of the profile, if it wrote these.
#[must_use]
pub fn outcome(ended: &Ended, profile: &Path) -> Outcome {
    let given_up = profile.parent().and_then(|folder| Attempt::at(folder.to_owned()).given_up());
    let state = match ended {
        // A program that handles SIGTERM ends with exit code 0.
        Ended { stopped: true, .. } if given_up.is_some() => State::Stopped,
        Ended { timed_out: true, .. } => State::TimedOut,
        Ended { code: Some(0), .. } => State::Finished,
        _ if given_up.is_some() => State::Stopped,
        _ => State::Failed,
    };
    let failure = (state == State::Failed).then(|| last_words(&profile.with_file_name(OUTPUT))).flatten();
    let plain = Outcome {
        state,
        started_ms: ended.started_ms,
        duration_ms: ended.duration_ms,
        exit_code: ended.code,
        signal: ended.signal,
        reason: given_up.filter(|_| state == State::Stopped).or_else(|| ended.why.clone()),
        metrics: metrics::read(&profile.with_file_name(metrics::FILE)),
        ..Outcome::default()
    };
    let Ok(read) = Profile::open(profile) else {
        return Outcome { reason: plain.reason.or(failure), ..plain };
    };
    let summary = Summary::from_profile(&read);
    let mut metrics = plain.metrics;
    let pids = summary.processes.iter().map(|process| process.pid).chain([summary.job.pid]).collect();
    let since_s = summary.job.start_unix_ns / 1_000_000_000;
    tensorboard::add_to(&mut metrics, Path::new(summary.job.cwd.raw()), &pids, since_s);
    let activity = summary.activity();
    let duration = summary.outcome.duration_ns.0 / 1_000_000;
    Outcome {
        // The program's own time, without that of the recording.
        duration_ms: if duration > 0 { duration } else { plain.duration_ms },
        reason: plain
            .reason
            .or_else(|| summary.outcome.out_of_memory.then(|| "out of GPU memory".to_owned()))
            .or(failure),
        peak_bytes: summary.peak_bytes(),
        gpu_sm_activity: activity.metered.map(|(share, _)| share),
        gpu_sm_origin: activity.metered.map(|(_, meter)| meter.to_owned()),
        launch_sm_activity: activity.launched,
        steps_per_s: summary.steps_per_s(),
        gpu_energy_j: summary.gpu_energy_j(),
        has_others: summary.has_others(),
        emulated: summary.emulated.is_some(),
        profile: Some(profile.to_owned()),
        metrics,
        ..plain
    }
}

/// Bytes at the end of an output in which its last line is looked for.
const TAIL_BYTES: u64 = 16 << 10;

/// Characters of that line.
const MAX_WORDS: usize = 200;

/// The last line that a program wrote, which often says why it failed.
fn last_words(output: &Path) -> Option<String> {
    let mut file = untrusted::open(output).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).ok()?;
    let mut end = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    let last = text.lines().rfind(|line| !line.trim().is_empty())?;
    let words: String = clean(last).chars().take(MAX_WORDS).collect();
    Some(format!("its last line is `{words}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_given_up_is_no_failure_unless_it_ended_before() {
        let dir = tempfile::tempdir().unwrap();
        let profile = dir.path().join("profile.radrm");
        let killed = Ended { signal: Some(15), ..Ended::default() };
        assert_eq!(outcome(&killed, &profile).state, State::Failed);
        Attempt::at(dir.path().to_owned()).give_up("its loss is too high").unwrap();
        let stopped = outcome(&killed, &profile);
        assert_eq!(
            (stopped.state, stopped.reason.as_deref()),
            (State::Stopped, Some("its loss is too high"))
        );
        let exited = Ended { code: Some(0), ..Ended::default() };
        let finished = outcome(&exited, &profile);
        assert_eq!((finished.state, finished.reason), (State::Finished, None));
        let handled = outcome(&Ended { stopped: true, ..exited }, &profile);
        assert_eq!((handled.state, handled.exit_code), (State::Stopped, Some(0)), "it handles SIGTERM");
    }

    #[test]
    fn a_failed_run_says_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let profile = dir.path().join("profile.radrm");
        let failed = Ended { code: Some(125), ..Ended::default() };
        assert_eq!(outcome(&failed, &profile).reason, None);
        let output = profile.with_file_name(OUTPUT);
        std::fs::write(&output, "starts\nradrm-run: the limit cannot hold: no GPU 3\n\n").unwrap();
        assert_eq!(
            outcome(&failed, &profile).reason.as_deref(),
            Some("its last line is `radrm-run: the limit cannot hold: no GPU 3`")
        );
        let finished = Ended { code: Some(0), ..Ended::default() };
        assert_eq!(outcome(&finished, &profile).reason, None);
        std::fs::remove_file(&output).unwrap();
        std::os::unix::fs::symlink("/proc/self/status", &output).unwrap();
        assert_eq!(outcome(&failed, &profile).reason, None, "the program may have put a link there");
    }
}
