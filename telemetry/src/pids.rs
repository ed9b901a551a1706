//! Pid namespaces: where a process id counts, and which process it is for the caller.

use crate::sys;

/// View that the caller has of process ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PidView {
    /// Inode number of the caller's pid namespace; 0: not known.
    pub namespace: u64,
    /// True if `/proc` shows that namespace: a container may have been started with its parent's.
    sees: bool,
}

impl PidView {
    /// View of the calling process. Cold.
    pub fn now() -> Self {
        Self { namespace: sys::pid_namespace(), sees: sys::proc_is_own() }
    }

    /// Returns true if a namespace is the caller's.
    pub const fn is_here(&self, namespace: u64) -> bool {
        namespace == self.namespace
    }

    /// Returns true if pids of a namespace can be looked up in `/proc`.
    pub const fn sees(&self, namespace: u64) -> bool {
        self.is_here(namespace) && self.sees
    }
}
