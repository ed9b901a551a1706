//! One sentence on the program's standard error, without harm to the program.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};

use crate::bytes;
use crate::telemetry::JoinFailure;

/// A write of no more bytes to a pipe is whole, and does not wait where the pipe is ready.
const SENTENCE_BYTES: usize = 1024;

/// A buffer of a fixed size.
struct Sentence {
    bytes: [u8; SENTENCE_BYTES],
    filled: usize,
}

impl Sentence {
    /// Adds text; what does not fit is left out.
    fn add(&mut self, text: &[u8]) {
        let end = self.filled.saturating_add(text.len());
        if let Some(place) = self.bytes.get_mut(self.filled..end) {
            bytes::copy(place, text);
            self.filled = end;
        }
    }

    fn add_number(&mut self, number: u32) {
        let mut digits = [0u8; 10];
        let (mut rest, mut at) = (number, digits.len());
        for place in digits.iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
            at -= 1;
            if rest == 0 {
                break;
            }
        }
        self.add(digits.get(at..).unwrap_or_default());
    }
}

/// Prints why a process gets no memory.
pub(super) fn refused(pid: u32, failure: JoinFailure) {
    let mut sentence = Sentence { bytes: [0; SENTENCE_BYTES], filled: 0 };
    sentence.add(b"radrm: process ");
    sentence.add_number(pid);
    sentence.add(b" gets no GPU memory under the limit of its job, since it ");
    sentence.add(failure.sentence().as_bytes());
    sentence.add(b"; remedy: ");
    sentence.add(failure.remedy().as_bytes());
    sentence.add(b"\n");
    print(sentence.bytes.get(..sentence.filled).unwrap_or_default());
}

fn print(text: &[u8]) {
    // SAFETY: used for these system calls only, which fail if the program has closed it.
    let stderr = unsafe { BorrowedFd::borrow_raw(2) };
    if is_for_messages(stderr) && is_ready(stderr) {
        without_sigpipe(|| {
            let _ = rustix::io::write(stderr, text);
        });
    }
}

/// Returns true if messages are expected there: a program that has closed its standard error may have opened a file of
/// its own under that number.
fn is_for_messages(file: BorrowedFd<'_>) -> bool {
    let Ok(stat) = fstat(file) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            fcntl_getfl(file).is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::WRONLY)
        }
        FileType::CharacterDevice | FileType::Fifo | FileType::Socket => true,
        _ => false,
    }
}

/// Returns true if a write does not wait, and has a reader.
fn is_ready(file: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled.iter().all(|file| file.revents() == PollFlags::OUT)
}

/// Runs a write whose SIGPIPE, if the reader goes at this very moment, does not reach the program.
fn without_sigpipe(write: impl FnOnce()) {
    let sigpipe = 1u64 << (libc::SIGPIPE - 1);
    let set = |how: i32, new: *const u64, old: *mut u64| {
        // SAFETY: the kernel reads and writes sets of 8 bytes.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, 8usize) }
    };
    let (mut before, mut pending) = (0u64, 0u64);
    if set(libc::SIG_BLOCK, &raw const sigpipe, &raw mut before) != 0 {
        return;
    }
    // SAFETY: the kernel writes a set of 8 bytes.
    let known = unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, 8usize) } == 0;
    write();
    if known && pending & sigpipe == 0 {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: takes a pending SIGPIPE of this write, if there is one.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const sigpipe,
                std::ptr::null_mut::<u8>(),
                &raw const now,
                8usize,
            )
        };
    }
    set(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
}
