//! The bounds of a dry run's processes, set before they begin.
//!
//! They come last in everything: niceness, disk, the kernel's choice when the host's memory runs out. None of them can
//! take its bounds back, as none has the rights of root.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;

use radrm_os::Process;

use super::Bounds;

/// Nothing is nicer.
const NICENESS: i32 = 19;
/// `ioprio_set(IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE << 13)`.
const IO_IDLE: [libc::c_long; 3] = [1, 0, 3 << 13];

/// Bounds this process, which is to become the program's. `uid` is whose it will be.
///
/// # Errors
/// The node's GPUs cannot be hidden; nothing may run then.
pub(super) fn confine(bounds: &Bounds, uid: u32) -> io::Result<()> {
    // Raising is always allowed.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    if rustix::process::geteuid().is_root() {
        hide_gpus(Path::new("/dev"))?;
    }
    // SAFETY: plain system calls on this process.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS);
        let [who, which, priority] = IO_IDLE;
        libc::syscall(libc::SYS_ioprio_set, who, which, priority);
    }
    let _ = keep_to_cores(bounds.cpus);
    limit(libc::RLIMIT_CORE, 0);
    limit(libc::RLIMIT_CPU, bounds.limit_s.saturating_mul(u64::from(bounds.cpus)).max(1));
    // The kernel counts all that the user has.
    limit(libc::RLIMIT_NPROC, tasks_of(uid).saturating_add(bounds.processes));
    Ok(())
}

fn limit(which: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: a plain system call on this process.
    unsafe { libc::setrlimit(which, &raw const limit) };
}

/// Processes and threads of a user.
fn tasks_of(uid: u32) -> u64 {
    let own = Process::all().filter(|process| process.users().is_some_and(|(real, _)| real == uid));
    own.map(|process| tasks(process.0)).sum()
}

/// Threads of a process.
pub(super) fn tasks(pid: u32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count() as u64)
}

/// Keeps this process to so many of the cores that it has: others for each process.
fn keep_to_cores(count: u32) -> io::Result<()> {
    // SAFETY: sets of cores are plain data, and there is room for one.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size, &raw mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        let all: Vec<usize> =
            (0..libc::CPU_SETSIZE as usize).filter(|core| libc::CPU_ISSET(*core, &set)).collect();
        let mut kept: libc::cpu_set_t = std::mem::zeroed();
        let first = std::process::id() as usize;
        for at in 0..(count as usize).min(all.len()) {
            libc::CPU_SET(all[(first + at) % all.len()], &mut kept);
        }
        match libc::sched_setaffinity(0, size, &raw const kept) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Lets this process, and what it starts, see no device file of an NVIDIA GPU: in a mount namespace of its own there is
/// nothing in their places.
fn hide_gpus(devices: &Path) -> io::Result<()> {
    let is_gpu = |name: &str| name.starts_with("nvidia");
    let found: Vec<_> = fs::read_dir(devices)?
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_gpu))
        .filter_map(|entry| Some((entry.path(), entry.file_type().ok()?.is_dir())))
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    // SAFETY: a plain system call; this process has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // What the administrator mounts later is seen, and nothing of this goes out.
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_SLAVE)?;
    for (path, is_folder) in found {
        match is_folder {
            true => mount(Some("radrm-no-gpu"), &path, Some("tmpfs"), libc::MS_RDONLY | libc::MS_NOSUID)?,
            false => mount(Some("/dev/null"), &path, None, libc::MS_BIND)?,
        }
    }
    Ok(())
}

fn mount(source: Option<&str>, target: &Path, kind: Option<&str>, flags: libc::c_ulong) -> io::Result<()> {
    let text = |text: &str| CString::new(text).map_err(io::Error::other);
    let (source, kind) = (source.map(text).transpose()?, kind.map(text).transpose()?);
    let target = CString::new(target.as_os_str().as_encoded_bytes()).map_err(io::Error::other)?;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    // SAFETY: texts that end with zero and live here, or null where the call takes that.
    let done =
        unsafe { libc::mount(pointer(&source), target.as_ptr(), pointer(&kind), flags, std::ptr::null()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
