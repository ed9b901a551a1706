//! Modes, owners, times and attributes of files, which Landlock does not cover: calls that change them do nothing.
//!
//! They succeed, since programs that copy or unpack files end where one of them fails.

/// `SECCOMP_RET_ERRNO` without an error: the call returns 0 and is not made.
const NOTHING: u32 = 0x0005_0000;
const ALLOWED: u32 = 0x7fff_0000;
const NO_SUCH_CALL: u32 = NOTHING | libc::ENOSYS as u32;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// `AUDIT_ARCH_` of this kind of machine: calls of another have other numbers.
const OWN: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };
/// Numbers from here on are of the x32 kind of calls.
const X32: u32 = 0x4000_0000;

/// Calls that change what a file is like.
const CHANGES: [libc::c_long; 10] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_fremovexattr,
];
/// `fchmodat2`, `setxattrat`, `removexattrat`, `file_setattr`, `lremovexattr`: the first four have one number on all kinds of machines.
const NEWER_CHANGES: [libc::c_long; 5] = [452, 463, 466, 469, libc::SYS_lremovexattr];
#[cfg(target_arch = "x86_64")]
const OLDER_CHANGES: [libc::c_long; 6] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CHANGES: [libc::c_long; 0] = [];

/// A filter of system calls.
pub(super) struct Filter(Vec<libc::sock_filter>);

impl Filter {
    pub(super) fn new() -> Self {
        const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
        const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
        const AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
        const RETURN: u16 = 0x06; // BPF_RET | BPF_K
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut steps = vec![
            step(LOAD, 0, 0, ARCHITECTURE),
            step(EQUAL, 1, 0, OWN),
            step(RETURN, 0, 0, NO_SUCH_CALL),
            step(LOAD, 0, 0, NUMBER),
            step(AT_LEAST, 0, 1, X32),
            step(RETURN, 0, 0, NO_SUCH_CALL),
        ];
        // Its queues make calls that no filter sees.
        let calls = [(libc::SYS_io_uring_setup, NO_SUCH_CALL)].into_iter();
        let changes = CHANGES.iter().chain(&NEWER_CHANGES).chain(&OLDER_CHANGES);
        for (call, result) in calls.chain(changes.map(|call| (*call, NOTHING))) {
            steps.push(step(EQUAL, 0, 1, u32::try_from(call).unwrap_or(u32::MAX)));
            steps.push(step(RETURN, 0, 0, result));
        }
        steps.push(step(RETURN, 0, 0, ALLOWED));
        Self(steps)
    }

    /// Puts this process under it, which must not gain rights any more; only async-signal-safe calls.
    pub(super) fn enter(&self) -> bool {
        let program = libc::sock_fprog {
            len: u16::try_from(self.0.len()).unwrap_or(u16::MAX),
            filter: self.0.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies the filter, which lives as long as this and is only read.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0 }
    }
}
