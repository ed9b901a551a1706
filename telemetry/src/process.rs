//! Who a process is: pid and start time, which together are never used twice.

use crate::sys;
use rustix::io::Errno;

/// Start and parent of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Parent's pid.
    pub ppid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start: u64,
    /// `Z` (dead, not yet waited for), `R`, `S`, ...: field 3.
    pub state: u8,
}

/// Parses a line of `/proc/PID/stat`.
pub fn parse_stat(line: &[u8]) -> Option<Identity> {
    // The command may hold blanks and parentheses; the last parenthesis ends it.
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = line.get(end + 1..)?.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let ppid = number(fields.next()?)?;
    // `fields` goes on with field 5.
    let start = number(fields.nth(22 - 5)?)?;
    Some(Identity { ppid: u32::try_from(ppid).ok()?, start, state })
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
/// Reader's side: allocates. If `/proc` cannot tell, existence of the pid decides.
pub fn is_running(pid: u32, start: u64) -> bool {
    if pid == 0 {
        return false;
    }
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(line) => parse_stat(&line).is_some_and(|it| it.start == start && !matches!(it.state, b'Z' | b'X')),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Without /proc at all nothing is known.
            !std::path::Path::new("/proc/self/stat").exists() && sys::process_exists(pid)
        }
        Err(_) => sys::process_exists(pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let line = b"42 (a) b (c) S 7 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3\n";
        assert_eq!(parse_stat(line), Some(Identity { ppid: 7, start: 987_654, state: b'S' }));
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
    fn this_process_is_running_and_an_earlier_one_with_its_pid_is_not() {
        let own = own().unwrap();
        assert!(is_running(std::process::id(), own.start));
        assert!(!is_running(std::process::id(), own.start - 1));
        assert!(!is_running(0, 0));
    }
}
