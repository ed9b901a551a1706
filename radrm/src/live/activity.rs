//! SM activity of a run: its recorder measures it, and writes it to the profile, which is read from time to time.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use radrm_os::Process;
use radrm_profile::Nanos;
use radrm_profile::model::{GpuSpan, Profile, Share};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

/// Between two readings of a profile: it can be long.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// A longer profile is not read again and again.
const MAX_BYTES: u64 = 32 << 20;

/// Activity is the mean over so much time before the last that was recorded.
const OVER: Nanos = Nanos::from_secs(10);

/// The activity of a run as it was last read.
#[derive(Debug, Default)]
pub(super) struct Activity {
    read: Option<Duration>,
    shares: Shares,
}

/// Parts of the time lately, means of the GPUs, each where it is measured. One says nothing of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    /// Share of the SMs that were active.
    pub(super) sm_active: Option<f64>,
    /// Share of the time in which any kernel ran.
    pub(super) utilization: Option<f64>,
}

/// The profile that a launcher is writing.
pub(super) struct Written {
    /// Device and inode.
    pub(super) id: (u64, u64),
    file: OwnedFd,
    bytes: u64,
}

impl Activity {
    /// Shares of the time lately.
    pub(super) fn shares(&mut self, launcher: Process, now: Duration) -> Shares {
        if self.read.is_none_or(|read| now.saturating_sub(read) >= READ_INTERVAL) {
            self.read = Some(now);
            let profile = profile_of(launcher).and_then(Written::profile);
            self.shares = profile.map(|profile| lately(&profile)).unwrap_or_default();
        }
        self.shares
    }
}

/// The profile that a launcher holds open: a regular file of its user. Nothing is opened before that is known.
pub(super) fn profile_of(launcher: Process) -> Option<Written> {
    let user = launcher.users().map(|(real, _)| real)?;
    let named =
        launcher.open_files().into_iter().filter(|(_, name)| name.to_string_lossy().ends_with(".radrm"));
    let mut found = named.filter_map(|(path, _)| {
        let file = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let status = fstat(&file).ok()?;
        let is_profile =
            FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && status.st_uid == user;
        is_profile.then(|| Written {
            id: (status.st_dev, status.st_ino),
            file,
            bytes: u64::try_from(status.st_size).unwrap_or(0),
        })
    });
    found.next()
}

impl Written {
    /// Copied and then read: what another user cuts off a mapped file would kill the reader.
    fn profile(self) -> Option<Profile> {
        if self.bytes > MAX_BYTES {
            return None;
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(open(path.as_str(), flags, Mode::empty()).ok()?);
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        radrm_profile::read_bytes(&bytes).ok()
    }
}

/// The means over the last spans of all GPUs.
fn lately(profile: &Profile) -> Shares {
    let last = profile.activity.iter().map(|span| span.t).max();
    let Some(last) = last.filter(|_| profile.gpu_clock.is_real()) else { return Shares::default() };
    let recent = || profile.activity.iter().filter(|span| last.minus(span.t) <= OVER);
    let mean = |of: fn(&GpuSpan) -> Option<Share>| {
        let (mut sum, mut time) = (0.0, 0.0);
        for span in recent() {
            if let Some(share) = of(span) {
                let seconds = span.span.as_secs_f64().max(1e-9);
                sum += share.get() * seconds;
                time += seconds;
            }
        }
        (time > 0.0).then(|| sum / time)
    };
    Shares { sm_active: mean(|span| span.sm_active), utilization: mean(|span| span.utilization) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{GpuClock, Job};

    #[test]
    fn activity_is_that_of_the_last_seconds() {
        let span = |t: u64, share: f64| GpuSpan {
            t: Nanos::from_secs(t),
            span: Nanos::from_secs(1),
            sm_active: Share::new(share),
            ..GpuSpan::default()
        };
        let mut profile = Profile::new(Job::default());
        assert_eq!(lately(&profile), Shares::default());
        profile.activity = vec![span(0, 1.0), span(30, 0.5), span(31, 0.25)];
        assert_eq!(lately(&profile), Shares { sm_active: Some(0.375), utilization: None });
        profile.gpu_clock = GpuClock::Modelled;
        assert_eq!(lately(&profile), Shares::default(), "modelled time is no load");
    }

    #[test]
    fn a_utilisation_is_no_sm_activity() {
        let span = GpuSpan { span: Nanos::from_secs(1), utilization: Share::new(0.9), ..GpuSpan::default() };
        let mut profile = Profile::new(Job::default());
        profile.activity = vec![span];
        assert_eq!(lately(&profile), Shares { sm_active: None, utilization: Some(0.9) });
    }
}
