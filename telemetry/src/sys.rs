//! System calls of the writer's cold paths: no allocation, `errno` untouched, interrupted calls repeated.
//!
//! rustix makes raw system calls and never writes `errno`; where libc is called, [`keep_errno`] saves it.

use crate::sync::AtomicU64;
use crate::vdso;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// Runs `work` and puts `errno` back to what it was.
pub fn keep_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: glibc returns the address of the calling thread's errno, valid as long as the thread.
    let (place, saved) = unsafe {
        let place = libc::__errno_location();
        (place, *place)
    };
    let result = work();
    // SAFETY: as above; the thread is the same.
    unsafe { *place = saved };
    result
}

/// Repeats an interrupted call.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => continue,
            other => return other,
        }
    }
}

/// `CLOCK_MONOTONIC` in ns, the clock of segments and of launch slots; 0 if the system has none.
pub fn monotonic_ns() -> u64 {
    vdso::clock_ns(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME` in ns; 0 if the system has none.
pub fn realtime_ns() -> u64 {
    vdso::clock_ns(libc::CLOCK_REALTIME)
}

/// Opens a file for reading and writing, close-on-exec.
pub fn open_rw(path: &CStr) -> Result<OwnedFd, Errno> {
    retry(|| rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()))
}

/// Opens a file for reading, close-on-exec.
pub fn open_ro(path: &CStr) -> Result<OwnedFd, Errno> {
    retry(|| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
}

/// Opens a file for reading, close-on-exec, unless it is a link; does not wait for a device.
pub fn open_ro_here(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    retry(|| rustix::fs::open(path, flags, Mode::empty()))
}

/// Reads the beginning of a file into `buffer`; returns the bytes read.
pub fn read_start(path: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
    let file = retry(|| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))?;
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..) {
        if rest.is_empty() {
            break;
        }
        let got = retry(|| rustix::io::read(&file, &mut *rest))?;
        if got == 0 {
            break;
        }
        filled += got;
    }
    Ok(filled)
}

/// Reads as many bytes at an offset of a file as `buffer` has; an error if there are fewer. The file is the caller's own:
/// its position changes. A filter of the program may end it for `pread`, and lets it read.
pub fn read_at(file: impl AsFd, at: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    let bytes = buffer.len();
    rustix::fs::seek(&file, SeekFrom::Start(at))?;
    match retry(|| rustix::io::read(&file, &mut *buffer))? {
        got if got == bytes => Ok(()),
        _ => Err(Errno::IO),
    }
}

/// Maps a part of a file, shared, for reading and writing; not in core dumps.
pub fn map_shared(file: impl AsFd, at: u64, bytes: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = retry(|| unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE,
            &file,
            at,
        )
    })?;
    // A core dump of the program should hold the program only. Not being able to say so is no reason to stop.
    // SAFETY: the range was mapped just now.
    let _ = unsafe { rustix::mm::madvise(address, bytes, Advice::LinuxDontDump) };
    NonNull::new(address.cast()).ok_or(Errno::NOMEM)
}

/// Maps the beginning of a file, shared, for reading only; not in core dumps.
pub fn map_shared_ro(file: impl AsFd, bytes: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = retry(|| unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, &file, 0)
    })?;
    // SAFETY: the range was mapped just now.
    let _ = unsafe { rustix::mm::madvise(address, bytes, Advice::LinuxDontDump) };
    NonNull::new(address.cast()).ok_or(Errno::NOMEM)
}

/// Keeps a file open without a descriptor for as long as this image of the process lives: a mapping of its beginning
/// that cannot be touched and that forked children do not inherit.
pub fn map_unforked(file: impl AsFd, bytes: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = retry(|| unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::SHARED, &file, 0)
    })?;
    let mapped = NonNull::new(address.cast()).ok_or(Errno::NOMEM)?;
    // SAFETY: the range was mapped just now.
    if let Err(error) = unsafe { rustix::mm::madvise(address, bytes, Advice::LinuxDontFork) } {
        // SAFETY: mapped above, and nothing refers to it.
        unsafe { unmap(mapped, bytes) };
        return Err(error);
    }
    Ok(mapped)
}

/// Asks for a write lock on one byte of a file, held by the open file and not by the process. False: another open
/// file has a lock there.
pub fn write_lock(file: impl AsFd, at: u64) -> Result<bool, Errno> {
    match lock_command(file, libc::F_OFD_SETLK, libc::F_WRLCK, at) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives such a lock back.
pub fn unlock(file: impl AsFd, at: u64) {
    let _ = lock_command(file, libc::F_OFD_SETLK, libc::F_UNLCK, at);
}

/// Returns true if another open file has a write lock on a byte. The file need not be open for writing.
pub fn is_write_locked(file: impl AsFd, at: u64) -> Result<bool, Errno> {
    // A read lock would be hindered by write locks only.
    lock_command(file, libc::F_OFD_GETLK, libc::F_RDLCK, at).map(|kind| i32::from(kind) != libc::F_UNLCK)
}

/// One of the commands for locks of open files, for one byte; the kind of lock that the kernel reports.
fn lock_command(file: impl AsFd, command: i32, kind: i32, at: u64) -> Result<libc::c_short, Errno> {
    // SAFETY: zeros are valid for all fields; the process id has to be 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = libc::off_t::try_from(at).map_err(|_| Errno::INVAL)?;
    lock.l_len = 1;
    keep_errno(|| {
        // SAFETY: the descriptor is open, and the kernel writes into `lock` only.
        if unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) } == 0 {
            return Ok(lock.l_type);
        }
        // SAFETY: errno of this thread.
        Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    })
}

/// Zeroed memory of this process alone.
pub fn map_private(bytes: usize) -> Result<NonNull<u8>, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = retry(|| unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
    })?;
    NonNull::new(address.cast()).ok_or(Errno::NOMEM)
}

/// Copies ranges of this process's memory (address and bytes, whole words) one after the other. Where a load
/// would raise SIGBUS, since the file behind a mapping was shortened, this is an error.
pub fn read_mapped(from: &[(u64, usize)], into: &mut [u64]) -> Result<(), Errno> {
    const RANGES: usize = 4;
    let mut ranges = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; RANGES];
    for (range, (at, bytes)) in ranges.iter_mut().zip(from) {
        *range = libc::iovec { iov_base: *at as *mut c_void, iov_len: *bytes };
    }
    let bytes = size_of_val(into);
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: bytes };
    keep_errno(|| {
        // SAFETY: the kernel writes into `into` only, as many bytes as it has, and checks every other address.
        let got = unsafe {
            let count = from.len().min(RANGES) as libc::c_ulong;
            libc::process_vm_readv(libc::getpid(), &raw const local, 1, ranges.as_ptr(), count, 0)
        };
        if got == bytes as isize {
            return Ok(());
        }
        if got >= 0 {
            return Err(Errno::FAULT);
        }
        // SAFETY: errno of this thread.
        Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    })
}

/// Maps the beginning of a file, shared, for reading only, in place of what is at an address.
///
/// # Safety
///
/// The range is the caller's own, aligned to pages, and may be replaced.
pub unsafe fn map_over(file: impl AsFd, address: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    retry(|| unsafe {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        rustix::mm::mmap(address.as_ptr().cast(), bytes, ProtFlags::READ, flags, &file, 0)
    })
    .map(drop)
}

/// Sleeps until a word that other processes share is woken, or for so long (ns) at most; not at all if its lower half
/// (the one at its address) is not that of `seen` any more. Signals end it early.
pub fn wait_on(word: &AtomicU64, seen: u64, ns: u64) {
    let timeout =
        rustix::thread::Timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
    let flags = rustix::thread::futex::Flags::empty();
    let _ = rustix::thread::futex::wait(half(word), flags, seen as u32, Some(&timeout));
}

/// Wakes all that sleep in [`wait_on`] on this word.
pub fn wake(word: &AtomicU64) {
    let _ = rustix::thread::futex::wake(half(word), rustix::thread::futex::Flags::empty(), i32::MAX as u32);
}

/// The 32 bits at a word's address: the lower ones on the machines there are segments on.
fn half(word: &AtomicU64) -> &std::sync::atomic::AtomicU32 {
    // SAFETY: inside the word, aligned; the kernel only reads it.
    unsafe { &*(&raw const *word).cast() }
}

/// Removes a mapping made by [`map_shared`].
///
/// # Safety
///
/// `address` and `bytes` are those of one mapping, and nothing refers to it any more.
pub unsafe fn unmap(address: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's contract.
    let _ = unsafe { rustix::mm::munmap(address.as_ptr().cast::<c_void>(), bytes) };
}

/// Allocates the pages of a mapped range of a file and makes them present, so that touching them
/// can neither fail nor fault. `EINVAL`: the kernel is older than 5.14 and cannot do it.
///
/// # Safety
///
/// The range lies in one mapping made by [`map_shared`].
pub unsafe fn populate(address: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // The kernel wants the beginning of a page, which is one of this mapping too: mappings begin with a page.
    let within = address.addr().get() % page_size();
    let first = address.as_ptr().wrapping_sub(within).cast::<c_void>();
    // SAFETY: populating does not change what the pages hold; the range is mapped (caller's contract).
    retry(|| unsafe { rustix::mm::madvise(first, within + bytes, Advice::LinuxPopulateWrite) })
}

/// Allocates a range of a file without changing its size.
pub fn allocate(file: impl AsFd, at: u64, bytes: u64) -> Result<(), Errno> {
    retry(|| rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, at, bytes))
}

/// Gives a range of a file back: it reads as zeros afterwards.
pub fn punch(file: impl AsFd, at: u64, bytes: u64) -> Result<(), Errno> {
    retry(|| rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, at, bytes))
}

/// The calling thread's id; never 0.
pub fn thread_id() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

/// Returns true if a thread of this process exists. In doubt: true.
pub fn thread_exists(tid: u32) -> bool {
    keep_errno(|| {
        // SAFETY: signal 0 is never delivered, only the existence of the thread is checked.
        let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid as libc::pid_t, 0) };
        // SAFETY: errno of this thread.
        answer == 0 || unsafe { *libc::__errno_location() } != libc::ESRCH
    })
}

/// Returns true if a process exists. In doubt: true.
pub fn process_exists(pid: u32) -> bool {
    keep_errno(|| {
        // SAFETY: signal 0 is never delivered. `kill` of 0 or of a negative pid would speak of groups.
        let answer = pid != 0 && pid <= i32::MAX as u32 && unsafe { libc::kill(pid as libc::pid_t, 0) } == 0;
        // SAFETY: errno of this thread.
        answer || (pid != 0 && unsafe { *libc::__errno_location() } == libc::EPERM)
    })
}

/// Size of a page.
pub fn page_size() -> usize {
    // SAFETY: the call has no precondition, and cannot fail for this name.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Reads the counter that the cheap clock is built on.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it has no effect but its result.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks;
        // SAFETY: Linux lets every program read the counter; the instruction has no effect but its result.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
        };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// Returns true if [`ticks`] counts at one rate at all times on all cores.
pub fn ticks_are_steady() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::x86_64::__cpuid(0x8000_0000).eax >= 0x8000_0007
            && std::arch::x86_64::__cpuid(0x8000_0007).edx & (1 << 8) != 0
    }
    // The architecture says so of its counter.
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Number of the pid namespace of this process; 0 if the system does not show it.
pub fn pid_namespace() -> u64 {
    rustix::fs::stat(c"/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
}

/// Returns true if `/proc` shows this process under its own pid: that of another pid namespace says nothing of other
/// pids. Also true where there is no `/proc`.
pub fn proc_is_own() -> bool {
    let mut room = [std::mem::MaybeUninit::<u8>::uninit(); 16];
    let Ok((link, _)) = rustix::fs::readlinkat_raw(rustix::fs::CWD, c"/proc/self", &mut room) else {
        return true;
    };
    let shown = link.iter().try_fold(0u32, |pid, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        pid.checked_mul(10)?.checked_add(digit.into())
    });
    shown == Some(rustix::process::getpid().as_raw_nonzero().get() as u32)
}

/// Lets others run.
pub fn yield_now() {
    rustix::thread::sched_yield();
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use super::*;

    /// A read lock on the whole of a file, as any process may take that may read it.
    pub fn read_lock_all(file: impl AsFd) {
        // SAFETY: zeros are valid for all fields; the process id has to be 0.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_RDLCK as libc::c_short;
        // SAFETY: the descriptor is open, and `lock` is read only.
        let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn a_range_that_begins_inside_a_page_is_allocated() {
        use std::os::unix::fs::MetadataExt;
        // Only there a file has no more than its pages.
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let page = page_size();
        file.set_len(8 * page as u64).unwrap();
        let at = map_shared(&file, 0, 8 * page).unwrap();
        // From the middle of page 2 to the middle of page 4.
        let middle = NonNull::new(at.as_ptr().wrapping_add(2 * page + page / 2)).unwrap();
        // SAFETY: inside the mapping.
        match unsafe { populate(middle, 2 * page) } {
            // A kernel before 5.14.
            Err(Errno::INVAL) => {}
            done => {
                assert_eq!(done, Ok(()));
                assert_eq!(file.metadata().unwrap().blocks() * 512, 3 * page as u64);
            }
        }
        // SAFETY: mapped above, and nothing refers to it.
        unsafe { unmap(at, 8 * page) };
    }
}
