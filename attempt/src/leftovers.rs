//! Processes that an attempt left when its supervisor was killed: nothing waits for them any more.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use radrm_os::{Process, ProcessIdentity};

use crate::process::HeldProcess;

/// Processes that are killed may have started others meanwhile: the search is repeated until nothing is found.
const MAX_SEARCHES: u32 = 10;

/// Between two searches.
const SEARCH_INTERVAL: Duration = Duration::from_millis(2);

/// Kills all processes that `is_of` takes for the attempt's; returns their numbers. This process is never among them.
pub fn kill_all(is_of: impl Fn(Process) -> bool) -> BTreeSet<u32> {
    let own = std::process::id();
    let mut killed = BTreeSet::new();
    for _ in 0..MAX_SEARCHES {
        let mut found = false;
        for process in Process::all().filter(|process| process.0 != own) {
            let Some(stat) = process.stat().filter(|stat| !stat.is_dead()) else { continue };
            if !is_of(process) {
                continue;
            }
            let who = ProcessIdentity { pid: process.0, start: stat.start };
            // Compared again: what was read may be of a later process of this number.
            if let Some(held) = HeldProcess::of(who).filter(|_| is_of(process))
                && held.signal(libc::SIGKILL)
            {
                killed.insert(process.0);
                found = true;
            }
        }
        if !found {
            break;
        }
        thread::sleep(SEARCH_INTERVAL);
    }
    killed
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn all_processes_of_an_attempt_are_killed_and_no_other() {
        const NAME: &str = "RADRM_ATTEMPT_TEST";
        let mark = std::process::id().to_string();
        let start = |value: &str| Command::new("sleep").arg("60").env(NAME, value).spawn().unwrap();
        let mut marked = [start(&mark), start(&mark)];
        let mut other = start("another");
        let has = |child: &std::process::Child, value: &str| {
            Process(child.id()).variable(NAME).is_some_and(|found| found == OsStr::new(value))
        };
        // Until the children have become their program.
        while !(marked.iter().all(|child| has(child, &mark)) && has(&other, "another")) {
            thread::sleep(Duration::from_millis(1));
        }
        let killed =
            kill_all(|process| process.variable(NAME).is_some_and(|value| value == OsStr::new(&mark)));
        assert_eq!(killed, marked.iter().map(std::process::Child::id).collect());
        for child in &mut marked {
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        }
        assert!(matches!(other.try_wait(), Ok(None)));
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
