//! Forgetting jobs that ended long ago, with their files.
//!
//! A job's folder is its user's: it may be as deep and as full as that user likes. So another program removes it, and
//! the engine does not wait for that.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::message::Message;

/// Longest time that the clock may go on while no radrmd runs here without being taken for set: a clock without a battery, or
/// before the first answer of a time server, is months or years off.
const MAX_GAP_MS: u64 = 3 * 86_400_000;
/// A time server corrects less than this.
const MAX_CORRECTION_MS: u64 = 3_600_000;

/// By how much the wall clock is ahead of the time that has passed since the state was made, as far as radrmd has seen it, ms.
/// No job is as old as it says then. `None`: it was never looked at before, and nothing is to be removed by it.
pub(super) fn jump_ms(file: &Path) -> Option<u64> {
    static SEEN: Mutex<Option<Duration>> = Mutex::new(None);
    let up = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    let before = SEEN.lock().ok()?.replace(up);
    let passed = before.map(|before| millis(up.saturating_sub(before)));
    let stored = fs::read_to_string(file).ok().and_then(|text| {
        let (wall, jump) = text.trim().split_once(' ')?;
        Some((wall.parse().ok()?, jump.parse().ok()?))
    });
    let wall = millis(radrm_os::time::since_epoch());
    let jump = stored.map(|stored| jump_since(stored, wall, passed));
    // Where it cannot be noted, the next look compares with an older one.
    let draft = file.with_extension("new");
    let written = fs::write(&draft, format!("{wall} {}\n", jump.unwrap_or(0)));
    let _ = written.and_then(|()| fs::rename(&draft, file));
    jump
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The jump now, by what was stored and the time that this radrmd has seen pass since; `None`: it has just been started.
fn jump_since((last, jump): (u64, u64), wall: u64, passed: Option<u64>) -> u64 {
    let passed = passed.unwrap_or_else(|| match wall.saturating_sub(last) {
        gap if gap <= MAX_GAP_MS => gap,
        _ => 0,
    });
    let ahead = wall.saturating_sub(last.saturating_add(passed));
    let behind = last.saturating_add(passed).saturating_sub(wall);
    let counts = |by: u64| if by > MAX_CORRECTION_MS { by } else { 0 };
    // What is left after a clock has been set back is the time that has passed meanwhile.
    counts(jump.saturating_add(counts(ahead)).saturating_sub(counts(behind)))
}

/// Removes the folders that did not change within this time, on a thread of its own, which reports those that are
/// gone; false if there is no thread. `jump_ms`: by how much the wall clock is ahead.
pub(super) fn start(folders: Vec<(u64, PathBuf)>, age_ms: u64, jump_ms: u64, to: Sender<Message>) -> bool {
    let age_ms = age_ms.saturating_add(jump_ms);
    let clean = move || {
        let is_due = |folder: &Path| match age_of(folder) {
            Some(age) => age >= age_ms,
            // A job that has none is known by the scheduler's clock only.
            None => jump_ms == 0,
        };
        let due = folders.into_iter().filter(|(_, folder)| is_due(folder));
        let removed = due.filter(|(_, folder)| remove(folder)).map(|(job, _)| job);
        let _ = to.send(Message::Removed(removed.collect()));
    };
    thread::Builder::new().name("cleaner".into()).stack_size(128 << 10).spawn(clean).is_ok()
}

/// Time since a folder changed by the wall clock, ms. The scheduler's clock, by which a job's end is known, may have been
/// started before the wall clock was right.
fn age_of(folder: &Path) -> Option<u64> {
    let now = radrm_os::time::since_epoch().as_secs();
    let found = fs::symlink_metadata(folder).ok()?;
    Some(now.saturating_sub(found.ctime().unsigned_abs()).saturating_mul(1000))
}

/// Removes a folder, and returns true if nothing of it is left.
fn remove(folder: &Path) -> bool {
    if folder.symlink_metadata().is_ok() {
        let mut command = Command::new("rm");
        command.args(["-rf", "--one-file-system", "--"]).arg(folder);
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    folder.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::{self, GpuTime};
    use crate::store::Store;
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

    #[test]
    fn a_folder_of_any_depth_is_removed_and_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("7");
        let beside = place.path().join("beside");
        fs::write(&beside, "x").unwrap();
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&beside, folder.join("link")).unwrap();
        let mut at = openat(CWD, &folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..5000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let (gone, there) = (folder.clone(), place.path().join("8"));
        let clean = move || remove(&gone) && remove(&there);
        // Less of a stack than a walk by recursion takes.
        assert!(thread::Builder::new().stack_size(128 << 10).spawn(clean).unwrap().join().unwrap());
        assert!(!folder.exists() && beside.exists());
    }

    const DAY: u64 = 86_400_000;

    #[test]
    fn what_changed_lately_is_kept_whatever_the_schedulers_clock_said() {
        let place = tempfile::tempdir().unwrap();
        assert!(age_of(place.path()).unwrap() < DAY);
        assert_eq!(age_of(&place.path().join("none")), None);
    }

    #[test]
    fn a_clock_that_was_set_ahead_makes_no_job_older() {
        let start = 20_000 * DAY;
        // Started again after a day, and after a weekend.
        assert_eq!(jump_since((start, 0), start + DAY, None), 0);
        assert_eq!(jump_since((start, 0), start + 3 * DAY, None), 0);
        // With the clock 40 days ahead, then back.
        assert_eq!(jump_since((start, 0), start + 40 * DAY, None), 40 * DAY);
        assert_eq!(jump_since((start + 40 * DAY, 40 * DAY), start + 1000, None), 0);
        // Set while radrmd runs, and corrected by a time server.
        assert_eq!(jump_since((start, 0), start + 40 * DAY, Some(1000)), 40 * DAY - 1000);
        assert_eq!(jump_since((start, 0), start + 61_000, Some(1000)), 0);
        assert_eq!(jump_since((start, DAY), start + 400 * DAY, Some(400 * DAY)), DAY, "time that has passed");
    }

    #[test]
    fn gpu_time_outlives_a_clock_that_is_a_year_ahead_and_its_way_back() {
        let place = tempfile::tempdir().unwrap();
        let mut store = Store::open(&place.path().join("queue.db")).unwrap();
        let start = 20_000 * DAY;
        let year = 365 * DAY;
        let ended = |job, end_ms| GpuTime { job, attempt: 1, end_ms, ..GpuTime::default() };
        // Attempts of eighteen months ago and of yesterday; then one that ends at each look at the clock.
        let before = [ended(1, start - year - year / 2), ended(2, start - DAY)];
        store.transaction(|tx| before.iter().try_for_each(|of| accounting::insert(tx, of))).unwrap();
        let mut seen = (start, 0);
        let mut look = |wall, passed, job| {
            seen = (wall, jump_since(seen, wall, passed));
            let kept_since = accounting::kept_since(wall, seen.1);
            store
                .transaction(|tx| {
                    accounting::insert(tx, &ended(job, wall))
                        .and_then(|()| accounting::forget_older(tx, kept_since))
                })
                .unwrap();
            let kept = accounting::select(&store.connection, None, 0, u64::MAX);
            kept.into_iter().map(|of| of.job).collect::<Vec<_>>()
        };
        let hour = DAY / 24;
        assert_eq!(look(start + year, None, 3), [1, 2, 3], "radrmd is started with the clock ahead");
        assert_eq!(look(start + year + hour, Some(hour), 4), [1, 2, 3, 4], "an hour later");
        assert_eq!(look(start + 2 * hour, Some(hour), 5), [1, 2, 3, 4, 5], "the clock is right again");
        assert_eq!(look(start + 3 * hour, None, 6), [1, 2, 3, 4, 5, 6], "also after a restart");
        let later = start + year;
        assert_eq!(look(later, Some(year - 3 * hour), 7), [2, 3, 4, 5, 6, 7], "time that has passed");
    }

    #[test]
    fn a_look_at_the_clock_is_noted_and_the_first_one_removes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("clock");
        assert_eq!(jump_ms(&file), None);
        assert_eq!(jump_ms(&file), Some(0));
        let now = millis(radrm_os::time::since_epoch());
        fs::write(&file, format!("{} 0\n", now - 40 * DAY)).unwrap();
        assert!(jump_ms(&file).unwrap() > 39 * DAY);
    }

    #[test]
    fn only_old_folders_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("7");
        let removed = |age, jump| {
            let (to, from) = std::sync::mpsc::channel();
            fs::create_dir_all(&folder).unwrap();
            assert!(start(vec![(7, folder.clone()), (8, place.path().join("8"))], age, jump, to));
            match from.recv().unwrap() {
                Message::Removed(jobs) => jobs,
                _ => panic!("another message"),
            }
        };
        assert_eq!(removed(DAY, 0), [8], "what has no folder goes by its row");
        assert_eq!(removed(0, 40 * DAY), [] as [u64; 0], "the clock is ahead");
        assert_eq!(removed(0, 0), [7, 8]);
    }
}
