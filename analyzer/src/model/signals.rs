//! Names of signals (x86-64 and most other Linux systems).

/// `SIGKILL` for 9 and so on; `None` for numbers without a name.
pub fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// The signal for a sentence: its name, or its number.
pub(crate) fn signal_text(number: i32) -> String {
    signal_name(number).map_or_else(|| format!("signal {number}"), str::to_owned)
}
