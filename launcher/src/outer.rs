//! The job that this one is started in, if there is one.

use std::ffi::OsStr;
use std::iter::successors;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use radrm_limits::carriers::VARIABLE;
use radrm_limits::jobs;
use radrm_limits::program::environment::Environment;
use radrm_limits::start::{LEDGERS_VARIABLE, LIMITS_VARIABLE, NOTICES_VARIABLE, QUOTA_VARIABLE};
use radrm_os::Process;
use radrm_telemetry::{Segment, SegmentError};

use crate::preload::inside_limits;

/// Ancestors that are searched: more are a sign of something gone wrong.
const MAX_ANCESTORS: usize = 256;

/// Takes the job that this environment leads to out of it if that has ended: its segment is gone, or another user's. No
/// process could count there. Returns whether it did.
pub(crate) fn leave_if_ended(environment: &mut Environment) -> bool {
    let has_ended = has_ended(environment);
    if has_ended {
        [VARIABLE, QUOTA_VARIABLE, LEDGERS_VARIABLE].into_iter().for_each(|name| environment.remove(name));
    }
    has_ended
}

fn has_ended(environment: &Environment) -> bool {
    let path = environment.get(VARIABLE).filter(|path| !path.is_empty());
    // A segment of another version is that of a living job, of an earlier radrm-run.
    let is_gone = |path| matches!(Segment::open(path), Err(SegmentError::Io(_) | SegmentError::Foreign));
    path.is_some_and(|path| is_gone(Path::new(OsStr::from_bytes(path))))
}

/// Brings back the variables of a job with a limit that this process descends from and that its environment has lost.
/// Returns whether it did: a job within another one cannot have a wider limit.
pub(crate) fn rejoin(environment: &mut Environment) -> bool {
    if inside_limits(environment) {
        return false;
    }
    let parents = |process: &Process| process.parent().filter(|parent| parent.0 > 1);
    let mut ancestors = successors(parents(&Process(std::process::id())), parents).take(MAX_ANCESTORS);
    let Some(lost) = ancestors.find_map(of_limited) else { return false };
    for name in [VARIABLE, QUOTA_VARIABLE, LEDGERS_VARIABLE, LIMITS_VARIABLE, NOTICES_VARIABLE] {
        match lost.get(name) {
            Some(value) => environment.set(name, value),
            None => environment.remove(name),
        }
    }
    true
}

/// The variables of the job with a limit that a process carries, or launched.
fn of_limited(process: Process) -> Option<Environment> {
    let own = process.environment()?;
    let mut carried = Environment::default();
    for entry in own.entries() {
        let mut words = entry.splitn(2, |byte| *byte == b'=');
        if let (Some(name), Some(value)) =
            (words.next().and_then(|name| str::from_utf8(name).ok()), words.next())
        {
            carried.set(name, value);
        }
    }
    if inside_limits(&carried) && !has_ended(&carried) {
        return Some(carried);
    }
    // A launcher's own environment is that around its job.
    let job = jobs::limited_by(process)?;
    let mut launched = Environment::default();
    launched.set(VARIABLE, job.segment.as_os_str().as_bytes());
    launched.set(QUOTA_VARIABLE, b"1");
    if !job.ledgers.is_empty() {
        let ledgers: Vec<&OsStr> = job.ledgers.iter().map(|path| path.as_os_str()).collect();
        launched.set(LEDGERS_VARIABLE, ledgers.join(":".as_ref()).as_bytes());
    }
    Some(launched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::SegmentFile;

    #[test]
    fn only_a_job_that_has_ended_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&folder.path().join("r"), 7).unwrap();
        let mut environment = Environment::default();
        assert!(!leave_if_ended(&mut environment));
        environment.set(VARIABLE, file.path().as_os_str().as_bytes());
        environment.set(QUOTA_VARIABLE, b"1");
        environment.set("OTHER", b"1");
        assert!(!leave_if_ended(&mut environment));
        assert!(environment.get(VARIABLE).is_some());
        drop(file);
        assert!(leave_if_ended(&mut environment));
        let names = [VARIABLE, QUOTA_VARIABLE, "OTHER"].map(|name| environment.get(name).is_some());
        assert_eq!(names, [false, false, true]);
    }
}
