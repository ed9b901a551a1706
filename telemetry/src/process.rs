//! Identity of a process: pid and start time, which together are never used twice.

use crate::sys;
use rustix::io::Errno;
use std::ffi::CStr;

/// Fields of `/proc/PID/stat` of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `Z` (dead, not yet waited for), `R`, `S`, ...: field 3. Of the first thread: it may have ended before others.
    pub state: u8,
    /// Parent's pid: field 4.
    pub ppid: u32,
    /// Its processor time in user and kernel mode, clock ticks: fields 14 and 15.
    pub own_ticks: u64,
    /// The same of children that it has waited for, and of theirs: fields 16 and 17.
    pub children_ticks: u64,
    /// Threads that have not been waited for: field 20.
    pub threads: u32,
    /// Start time in clock ticks since boot: field 22.
    pub start: u64,
    /// Resident memory, pages: field 24.
    pub resident: u64,
    /// Start address of the stack: field 28; 0 where the system does not show it. Another one after `execve`.
    pub stack: u64,
}

impl Stat {
    /// Reads the present fields. `None` if there is no such process, or it may not be read.
    pub fn now(pid: u32) -> Option<Self> {
        of(pid).ok()
    }

    /// Reads a line of it.
    pub fn parse(line: &[u8]) -> Option<Self> {
        // The command may hold anything, blanks and parentheses too; the last parenthesis ends it.
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = line.get(end + 1..)?.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let state = *fields.next()?.first()?;
        let ppid = number(fields.next()?)?;
        let mut at = 5;
        let mut field = |wanted: usize| {
            let number = fields.nth(wanted - at).and_then(number);
            at = wanted + 1;
            number
        };
        Some(Self {
            state,
            ppid: u32::try_from(ppid).ok()?,
            own_ticks: field(14)?.saturating_add(field(15)?),
            children_ticks: field(16)?.saturating_add(field(17)?),
            threads: u32::try_from(field(20)?).unwrap_or(u32::MAX),
            start: field(22)?,
            resident: field(24)?,
            stack: field(28).unwrap_or(0),
        })
    }

    /// Returns true if no thread of the process runs any more.
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().filter(|digit| **digit != b'\n').try_fold(0u64, |sum, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(digit.into())
    })
}

/// The calling process.
pub(crate) fn own() -> Result<Stat, Errno> {
    let mut line = [0; 1024];
    let filled = sys::read_start(c"/proc/self/stat", &mut line)?;
    line.get(..filled).and_then(Stat::parse).ok_or(Errno::INVAL)
}

/// Returns true if the process with this pid and start time is running. A dead process that only waits for its parent
/// is not.
///
/// If `/proc` does not show it, existence of the pid decides.
pub fn is_running(pid: u32, start: u64) -> bool {
    is_image_running(pid, start, 0)
}

/// Returns true if the process with this pid and start time is running and has not become another program since its
/// stack began at `stack` (0: not known).
///
/// Allocates nothing. In doubt: yes.
pub fn is_image_running(pid: u32, start: u64, stack: u64) -> bool {
    if pid == 0 {
        return false;
    }
    match of(pid) {
        Ok(it) => {
            let same = stack == 0 || it.stack == 0 || it.stack == stack;
            it.start == start && !it.is_dead() && same
        }
        // Without /proc at all nothing is known.
        Err(Errno::NOENT | Errno::SRCH) => own().is_err() && sys::process_exists(pid),
        Err(_) => sys::process_exists(pid),
    }
}

/// Returns true if this process of a user is running, as far as can be known: where `/proc` hides the processes of
/// other users, existence of the pid decides.
///
/// Allocates nothing.
pub fn lives_as(uid: u32, pid: u32, start: u64, stack: u64) -> bool {
    if !sys::process_exists(pid) {
        return false;
    }
    let Some(it) = Stat::now(pid) else { return sys::process_exists(pid) };
    let is_same = it.start == start && (stack == 0 || it.stack == 0 || it.stack == stack);
    let is_its = |owner| owner == uid || !sees_all_users();
    is_same && !it.is_dead() && owner(pid).is_none_or(is_its)
}

/// Returns true if users have the ids here that they have on the host: not in a user namespace that maps them to
/// others.
pub(crate) fn sees_all_users() -> bool {
    let mut line = [0; 64];
    let Ok(filled) = sys::read_start(c"/proc/self/uid_map", &mut line) else { return true };
    // First id inside, first id outside, how many.
    let fields = line.get(..filled).unwrap_or_default().split(|byte| matches!(byte, b' ' | b'\n'));
    let mut numbers = fields.filter(|field| !field.is_empty()).map(number);
    [Some(0), Some(0), Some(u32::MAX.into())].iter().all(|wanted| numbers.next() == Some(*wanted))
}

/// The user that a process belongs to.
fn owner(pid: u32) -> Option<u32> {
    let folder = path(pid, b"\0");
    let stat = rustix::fs::stat(CStr::from_bytes_until_nul(&folder).ok()?).ok()?;
    // The system gives the folder of a process that may not be read to root.
    if stat.st_uid == 0 { real_user(pid) } else { Some(stat.st_uid) }
}

/// The real user of a process, which all users may read.
fn real_user(pid: u32) -> Option<u32> {
    let path = path(pid, b"/status\0");
    // The line stands behind the name of at most 64 bytes and seven numbers.
    let mut start = [0; 512];
    let filled = sys::read_start(CStr::from_bytes_until_nul(&path).ok()?, &mut start).ok()?;
    let mut lines = start.get(..filled)?.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"Uid:\t"))?;
    line.split(|byte| *byte == b'\t').next().and_then(number)?.try_into().ok()
}

/// A path below `/proc/PID`; `tail` ends with a 0.
fn path(pid: u32, tail: &[u8]) -> [u8; 25] {
    let mut path = *b"/proc/\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let digits = pid.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = pid;
    for place in path.iter_mut().skip(6).take(digits).rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    for (place, byte) in path.iter_mut().skip(6 + digits).zip(tail) {
        *place = *byte;
    }
    path
}

/// Reads `/proc/PID/stat` of a process.
fn of(pid: u32) -> Result<Stat, Errno> {
    let path = path(pid, b"/stat\0");
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
    let mut line = [0; 1024];
    let filled = sys::read_start(path, &mut line)?;
    // A process that is being reaped has a file without contents.
    line.get(..filled).and_then(Stat::parse).ok_or(if filled == 0 { Errno::SRCH } else { Errno::INVAL })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything_and_moves_no_field() {
        let fields = "S 7 1 1 0 -1 4194304 1 2 3 4 5 60 700 8000 20 0 3 0 987654 1 25 3 4 5 99 6\n";
        let expected = Stat {
            state: b'S',
            ppid: 7,
            own_ticks: 65,
            children_ticks: 8700,
            threads: 3,
            start: 987_654,
            resident: 25,
            stack: 99,
        };
        // A name is cut after 15 bytes, in the middle of a letter too.
        for name in [&b"(a) Z 1) (c"[..], b"sch\xc3", b"\n"] {
            let line = [b"42 (", name, b") ", fields.as_bytes()].concat();
            assert_eq!(Stat::parse(&line), Some(expected));
        }
    }

    #[test]
    fn cut_lines_are_refused() {
        for line in
            [&b""[..], b"42", b"42 (a)", b"42 (a) S 7 1", b"42 (a) S x 1 1 0 0 0 1 2 3 4 5 6 7 8 20 0 1 0 9"]
        {
            assert_eq!(Stat::parse(line), None);
        }
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_not_dead() {
        let seen = |threads| {
            Stat::parse(
                format!("9 (x) Z 7 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 5 1 2 3").as_bytes(),
            )
        };
        assert!(!seen(2).unwrap().is_dead());
        assert!(seen(1).unwrap().is_dead());
    }

    #[test]
    fn a_process_that_became_another_program_is_known_by_its_stack() {
        let own = own().unwrap();
        assert_ne!(own.stack, 0);
        assert!(is_image_running(std::process::id(), own.start, own.stack));
        assert!(!is_image_running(std::process::id(), own.start, own.stack ^ 4096));
    }

    #[test]
    fn a_process_of_root_is_no_members_of_another_user() {
        let own = own().unwrap();
        let (pid, uid) = (std::process::id(), rustix::process::getuid().as_raw());
        assert_eq!((owner(pid), real_user(pid)), (Some(uid), Some(uid)));
        assert!(lives_as(uid, pid, own.start, own.stack));
        let first = Stat::now(1).map(|it| it.start);
        if let (Some(start), true) = (first, sees_all_users()) {
            assert!(lives_as(0, 1, start, 0));
            assert!(!lives_as(4711, 1, start, 0), "a user has named a process of root");
        }
    }

    #[test]
    fn this_process_is_running_and_an_earlier_one_with_its_pid_is_not() {
        let own = own().unwrap();
        assert!(is_running(std::process::id(), own.start));
        assert!(!is_running(std::process::id(), own.start - 1));
        assert!(!is_running(0, 0));
    }
}
