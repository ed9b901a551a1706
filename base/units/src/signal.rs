//! Names of signals.

use alloc::format;
use alloc::string::String;

/// The name of a signal as `kill -l` has it, for instance `SIGTERM`.
#[must_use]
pub fn name(signal: i32) -> String {
    const NAMES: [&str; 32] = [
        "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU",
        "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(signal).ok().and_then(|index| NAMES.get(index)) {
        Some(name) if signal != 0 => format!("SIG{name}"),
        _ => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_named_as_kill_names_them() {
        assert_eq!(name(15), "SIGTERM");
        assert_eq!(name(31), "SIGSYS");
        assert_eq!(name(40), "signal 40");
    }
}
