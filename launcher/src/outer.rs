//! The job that this one is started in, if there is one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use radrm_limits::carriers::VARIABLE;
use radrm_limits::program::environment::Environment;
use radrm_limits::start::{LEDGERS_VARIABLE, QUOTA_VARIABLE};
use radrm_telemetry::{Segment, SegmentError};

/// Takes the job that this environment leads to out of it if that has ended: its segment is gone, or another user's. No
/// process could count there. Returns whether it did.
pub(crate) fn leave_if_ended(environment: &mut Environment) -> bool {
    let path = environment.get(VARIABLE).filter(|path| !path.is_empty());
    // A segment of another version is that of a living job, of an earlier radrm-run.
    let is_gone = |path| matches!(Segment::open(path), Err(SegmentError::Io(_) | SegmentError::Foreign));
    let has_ended = path.is_some_and(|path| is_gone(Path::new(OsStr::from_bytes(path))));
    if has_ended {
        [VARIABLE, QUOTA_VARIABLE, LEDGERS_VARIABLE].into_iter().for_each(|name| environment.remove(name));
    }
    has_ended
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
