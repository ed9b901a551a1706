//! Mappings of files that others may shorten, as the owner of a segment can.
//!
//! A load beyond the end of a file raises SIGBUS. In a guarded mapping zeros take the place of what was cut off, and the
//! program goes on: RADRM's own programs map ledgers of any user, for words that need an atomic change, and the file of an
//! emulated machine, which all its users write. Never used inside a watched program, whose signals are its own.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A guarded mapping. Never given back: the mapping is not either.
struct Range {
    start: usize,
    end: usize,
    next: *const Range,
}

static RANGES: AtomicPtr<Range> = AtomicPtr::new(ptr::null_mut());

/// State that the handler needs: the action that it has replaced, and the size of a page.
struct Installed {
    before: libc::sigaction,
    page: usize,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// Guards a mapping that stays until the process ends.
pub fn protect(start: NonNull<u8>, bytes: usize) {
    let start = start.as_ptr().addr();
    let range = Box::leak(Box::new(Range { start, end: start.saturating_add(bytes), next: ptr::null() }));
    // Acquire and Release: who sees a range sees all that it leads to.
    let mut first = RANGES.load(Ordering::Acquire);
    loop {
        range.next = first;
        match RANGES.compare_exchange(first, range, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(seen) => first = seen,
        }
    }
    INSTALLED.get_or_init(install);
}

/// Guards all mappings of a file that this process has now, as a library may have made them. They stay guarded until the
/// process ends, also where the library gives them back.
///
/// # Errors
/// The file is not there, or `/proc` is not.
pub fn protect_file(path: &Path) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let inode = fs::metadata(&path)?.ino();
    for line in BufReader::new(fs::File::open("/proc/self/maps")?).split(b'\n') {
        let line = line?;
        let Some((start, end)) = range_of(&line, inode, &path) else { continue };
        let start = ptr::with_exposed_provenance_mut::<u8>(start);
        if let Some(at) = NonNull::new(start)
            && !is_guarded(start.addr())
        {
            protect(at, end - start.addr());
        }
    }
    Ok(())
}

/// Addresses of a mapping in a line of `/proc/self/maps`, if it is a shared one of a file with this inode or name: for
/// files of an overlay the inode may be another one there than `stat` gives, and the device is.
fn range_of(line: &[u8], inode: u64, path: &Path) -> Option<(usize, usize)> {
    let name = line.iter().position(|byte| *byte == b'/').map(|at| &line[at..]);
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let mut next = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = next()?.split_once('-')?;
    let is_shared = next()?.ends_with('s');
    let (_offset, _device) = (next()?, next()?);
    let is_it = is_shared && (next()?.parse() == Ok(inode) || name == Some(path.as_os_str().as_bytes()));
    let address = |text| usize::from_str_radix(text, 16).ok();
    is_it.then(|| Some((address(start)?, address(end)?))).flatten()
}

fn install() -> Installed {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: structures that live here, zero is valid for all of them; the handler calls what is async-signal-safe only.
    unsafe {
        libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr());
        let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
        let installed = Installed { before: before.assume_init(), page };
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        installed
    }
}

/// Touches guarded mappings: a thread that blocks all signals would be killed by the fault.
pub fn touch<T>(work: impl FnOnce() -> T) -> T {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: structures that live here; the set is filled before it is read.
    let changed = unsafe {
        let mut only: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, before.as_mut_ptr()) == 0
    };
    let result = work();
    if changed {
        // SAFETY: filled by the system above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    result
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives both to a handler of this kind, and the address of this thread's errno is always valid.
    let (code, at, errno) = unsafe { ((*info).si_code, (*info).si_addr().addr(), libc::__errno_location()) };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    let Some(installed) = INSTALLED.get() else { return };
    if code <= 0 {
        // Another process has sent it: it waits for whom it is for, as it would without this handler.
        // SAFETY: the context of this signal, and a signal to this process with what it came with.
        unsafe {
            libc::sigaddset(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask, signal);
            libc::syscall(libc::SYS_rt_sigqueueinfo, libc::getpid(), signal, info);
        }
    } else if !(is_guarded(at) && fill(at & !(installed.page - 1), installed.page)) {
        pass_on(&installed.before, signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

fn is_guarded(at: usize) -> bool {
    let mut next = RANGES.load(Ordering::Acquire).cast_const();
    // SAFETY: ranges are never freed.
    while let Some(range) = unsafe { next.as_ref() } {
        if (range.start..range.end).contains(&at) {
            return true;
        }
        next = range.next;
    }
    false
}

/// Puts zeros in the place of a page.
fn fill(page: usize, bytes: usize) -> bool {
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    let page = ptr::with_exposed_provenance_mut(page);
    // SAFETY: the page lies in a mapping of this module's, which holds atomics only.
    unsafe { libc::mmap(page, bytes, rights, kind, -1, 0) != libc::MAP_FAILED }
}

/// Does what was done before there was this handler.
fn pass_on(
    before: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The fault comes again and ends the process.
            // SAFETY: an action that the system gave.
            unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        }
        handler => {
            // SAFETY: the address of a handler; one that takes the number alone ignores the rest.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn map(file: &File, bytes: usize) -> NonNull<u8> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        NonNull::new(at.cast()).unwrap()
    }

    #[test]
    fn what_was_cut_off_reads_as_zeros() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 << 12).unwrap();
        let mapped = map(&file, 3 << 12);
        // SAFETY: mapped just now; each access is one byte of it.
        let (first, last) = unsafe { (mapped.as_ptr(), mapped.as_ptr().add(2 << 12)) };
        protect(mapped, 3 << 12);
        // SAFETY: as above.
        touch(|| unsafe { last.write_volatile(7) });
        file.set_len(1 << 12).unwrap();
        // SAFETY: as above; the fault is this test's subject.
        touch(|| unsafe {
            assert_eq!(last.read_volatile(), 0);
            last.write_volatile(9);
            first.write_volatile(1);
            assert_eq!((first.read_volatile(), last.read_volatile()), (1, 9));
        });
        // What the rest of the file holds is still shared.
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 0).unwrap();
        assert_eq!(byte, [1]);
    }

    #[test]
    fn a_thread_that_blocks_all_signals_is_guarded_too() {
        std::thread::spawn(|| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(1 << 12).unwrap();
            let mapped = map(&file, 1 << 12);
            protect(mapped, 1 << 12);
            // SAFETY: a filled set.
            unsafe {
                let mut all: libc::sigset_t = MaybeUninit::zeroed().assume_init();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
            }
            file.set_len(0).unwrap();
            // SAFETY: mapped above; the fault is this test's subject.
            assert_eq!(touch(|| unsafe { mapped.as_ptr().read_volatile() }), 0);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_librarys_mapping_of_a_file_is_found_and_guarded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 << 12).unwrap();
        let mapped = map(file.as_file(), 2 << 12);
        protect_file(file.path()).unwrap();
        file.as_file().set_len(0).unwrap();
        // SAFETY: mapped above; the fault is this test's subject.
        assert_eq!(touch(|| unsafe { mapped.as_ptr().add(1 << 12).read_volatile() }), 0);
        let line = b"7f00-8f00 rw-s 00000000 00:2a 77                         /run/with a blank";
        let range = |inode, name: &str| range_of(line, inode, Path::new(name));
        assert_eq!(range(77, "/other"), Some((0x7f00, 0x8f00)));
        assert_eq!(range(78, "/run/with a blank"), Some((0x7f00, 0x8f00)));
        assert_eq!(range(78, "/other"), None);
        let code = b"7f00-8f00 r-xp 00000000 00:2a 77  /lib/x";
        assert_eq!(range_of(code, 77, Path::new("/lib/x")), None, "a library's code");
    }
}
