//! Confinement that a program enters between fork and exec.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::landlock::Ruleset;

/// Confinement of a program that must not change the user's files.
pub(crate) enum Confinement {
    /// In a mount namespace whose file systems have a layer for writes.
    Layer {
        /// The namespace's user namespace; `None`: it is this process's.
        user: Option<OwnedFd>,
        /// The mount namespace.
        mounts: OwnedFd,
        /// The directory to start in: the one of this process has no layer.
        current: CString,
        /// Keeps the program from what lies below the layers; `None`: the kernel has nothing for it.
        ruleset: Option<Ruleset>,
    },
    /// In place, but the kernel refuses its writes.
    Refusal(Ruleset),
}

impl Confinement {
    /// One by namespaces.
    pub(super) fn layer(
        user: Option<OwnedFd>,
        mounts: OwnedFd,
        current: &Path,
        ruleset: Option<Ruleset>,
    ) -> Self {
        // A path of the system has no zero byte.
        let current = CString::new(current.as_os_str().as_bytes()).unwrap_or_default();
        Self::Layer { user, mounts, current, ruleset }
    }

    /// Enters it; false if that failed, with the reason in `errno`. Only async-signal-safe calls, and no memory is written.
    pub(crate) fn enter(&self) -> bool {
        match self {
            // SAFETY: system calls on open descriptors and a null-terminated path; they change this process only, which
            // shares neither its credentials nor its directory with its parent.
            Self::Layer { user, mounts, current, ruleset } => unsafe {
                let user = user.as_ref().map_or(0, |user| libc::setns(user.as_raw_fd(), libc::CLONE_NEWUSER));
                user == 0
                    && libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS) == 0
                    && libc::chdir(current.as_ptr()) == 0
                    && ruleset.as_ref().is_none_or(Ruleset::enter)
            },
            Self::Refusal(ruleset) => ruleset.enter(),
        }
    }
}
