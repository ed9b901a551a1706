//! Program and owner of a process.

use crate::job::account;
use radrm_os::Process;
use radrm_profile::model::postmortem::Who;

/// Program and owner of a process, as far as the system reports them.
pub(super) fn of_process(pid: u32) -> Who {
    let process = Process(pid);
    let uid = process.uid();
    Who {
        program: Some(process.name()).filter(|name| !name.is_empty()),
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
