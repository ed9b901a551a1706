//! Which program a process is, and whose.

use crate::job::account;
use radrm_profile::model::postmortem::Who;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Program and owner of a process, as far as the system tells them to us.
pub(super) fn of_process(pid: u32) -> Who {
    let uid = fs::metadata(format!("/proc/{pid}")).ok().map(|metadata| metadata.uid());
    Who {
        program: fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned()),
        uid,
        user: uid.and_then(account).map(|account| account.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_name_and_an_owner() {
        let who = of_process(std::process::id());
        assert!(who.program.is_some_and(|name| !name.is_empty() && !name.ends_with('\n')));
        assert_eq!(who.uid, Some(rustix::process::getuid().as_raw()));
        assert_eq!(of_process(0), Who::default());
    }
}
