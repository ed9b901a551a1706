//! Who a process is: pid and start time, which together are never used twice.

use crate::sys;
use rustix::io::Errno;
use std::ffi::CStr;

/// Start and parent of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Parent's pid.
    pub ppid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start: u64,
    /// `Z` (dead, not yet waited for), `R`, `S`, ...: field 3. Of the first thread: it may have ended before others.
    pub state: u8,
    /// Threads that have not been waited for: field 20.
    pub threads: u32,
    /// Where the stack begins: field 28; 0 where the system does not tell. Another one after `execve`.
    pub stack: u64,
}

impl Identity {
    /// Whether no thread of the process runs any more.
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// Parses a line of `/proc/PID/stat`.
pub fn parse_stat(line: &[u8]) -> Option<Identity> {
    // The command may hold blanks and parentheses; the last parenthesis ends it.
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = line.get(end + 1..)?.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let ppid = number(fields.next()?)?;
    // `fields` goes on with field 5.
    let threads = number(fields.nth(20 - 5)?)?;
    let start = number(fields.nth(22 - 21)?)?;
    let stack = fields.nth(28 - 23).and_then(number).unwrap_or(0);
    Some(Identity {
        ppid: u32::try_from(ppid).ok()?,
        start,
        state,
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
        stack,
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().filter(|digit| **digit != b'\n').try_fold(0u64, |sum, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(digit.into())
    })
}

/// The calling process.
pub(crate) fn own() -> Result<Identity, Errno> {
    let mut line = [0; 1024];
    let filled = sys::read_start(c"/proc/self/stat", &mut line)?;
    line.get(..filled).and_then(parse_stat).ok_or(Errno::INVAL)
}

/// Whether the process with this pid and start time is running. One that is dead and only waits
/// for its parent is not.
///
/// If `/proc` cannot tell, existence of the pid decides.
pub fn is_running(pid: u32, start: u64) -> bool {
    is_image_running(pid, start, 0)
}

/// Whether the process with this pid and start time is running and has not become another program
/// since its stack began at `stack` (0: not known).
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

/// What `/proc` says of a process.
fn of(pid: u32) -> Result<Identity, Errno> {
    const TAIL: &[u8] = b"/stat\0";
    let mut path = *b"/proc/\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let digits = pid.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = pid;
    for place in path.iter_mut().skip(6).take(digits).rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    for (place, byte) in path.iter_mut().skip(6 + digits).zip(TAIL) {
        *place = *byte;
    }
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
    let mut line = [0; 1024];
    let filled = sys::read_start(path, &mut line)?;
    // A process that is being reaped has a file without contents.
    line.get(..filled).and_then(parse_stat).ok_or(if filled == 0 { Errno::SRCH } else { Errno::INVAL })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let line = b"42 (a) b (c) S 7 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3\n";
        let seen = parse_stat(line).unwrap();
        assert_eq!((seen.ppid, seen.start, seen.state, seen.threads), (7, 987_654, b'S', 1));
    }

    #[test]
    fn cut_lines_are_refused() {
        for line in
            [&b""[..], b"42", b"42 (a)", b"42 (a) S 7 1", b"42 (a) S x 1 1 0 0 0 1 2 3 4 5 6 7 8 20 0 1 0 9"]
        {
            assert_eq!(parse_stat(line), None);
        }
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_not_dead() {
        let seen = |threads| {
            parse_stat(
                format!("9 (x) Z 7 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 5 1 2 3").as_bytes(),
            )
        };
        assert!(!seen(2).unwrap().is_dead());
        assert!(seen(1).unwrap().is_dead());
    }

    #[test]
    fn a_process_that_became_another_program_is_told_by_its_stack() {
        let own = own().unwrap();
        assert_ne!(own.stack, 0);
        assert!(is_image_running(std::process::id(), own.start, own.stack));
        assert!(!is_image_running(std::process::id(), own.start, own.stack ^ 4096));
    }

    #[test]
    fn this_process_is_running_and_an_earlier_one_with_its_pid_is_not() {
        let own = own().unwrap();
        assert!(is_running(std::process::id(), own.start));
        assert!(!is_running(std::process::id(), own.start - 1));
        assert!(!is_running(0, 0));
    }
}
