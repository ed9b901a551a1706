//! Notices of processes that have no slot: a failed `cuInit`, a segment that could not be joined.
//!
//! The table lies in the segment's header, and once more in memory of the launcher's that needs neither a descriptor nor
//! a file ([`NoticeBoard`]): a process whose segment is out of reach reports there. Each process enters a notice once.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

#[cfg(not(loom))]
mod board;

use crate::join_failure::JoinFailure;
use crate::layout::{Header, MAGIC, NoticeTable, TOTAL_BYTES, VERSION};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys;
use std::ffi::CStr;

#[cfg(not(loom))]
pub use board::NoticeBoard;

/// Report of a process without a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The process could not join the segment.
    Unjoined(JoinFailure),
    /// `cuInit` failed with this code of the driver.
    InitFailed(u32),
}

const UNJOINED: u64 = 1 << 56;
const INIT_FAILED: u64 = 2 << 56;

impl Notice {
    fn to_word(self) -> u64 {
        match self {
            Self::Unjoined(failure) => UNJOINED | failure as u64,
            Self::InitFailed(code) => INIT_FAILED | u64::from(code),
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        let low = word as u32;
        match word - u64::from(low) {
            UNJOINED => Some(Self::Unjoined(JoinFailure::from_raw(u8::try_from(low).ok()?)?)),
            INIT_FAILED => Some(Self::InitFailed(low)),
            _ => None,
        }
    }
}

/// A notice as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeSeen {
    /// Content of the notice.
    pub notice: Notice,
    /// Process id in the process's own pid namespace.
    pub pid: u32,
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: u64,
}

impl NoticeSeen {
    /// From the words of a [`crate::layout::NoticeCell`]; `None`: there is none, or none that this version knows.
    pub(crate) fn from_words([pid, what, ns]: [u64; 3]) -> Option<Self> {
        let pid = u32::try_from(pid).ok().filter(|pid| *pid != 0)?;
        Some(Self { notice: Notice::from_word(what)?, pid, ns })
    }
}

impl NoticeTable {
    /// Enters a notice of a process, unless it is there already.
    pub(crate) fn post(&self, pid: u32, notice: Notice) {
        let (pid, what) = (u64::from(pid), notice.to_word());
        for cell in &self.cells {
            let owner = cell.pid.load(Relaxed);
            // Acquire pairs with the release below: a complete notice.
            if owner == pid && cell.what.load(Acquire) == what {
                return;
            }
            if owner == 0 && cell.pid.compare_exchange(0, pid, AcqRel, Relaxed).is_ok() {
                cell.ns.store(sys::monotonic_ns(), Relaxed);
                // Release pairs with the reader's acquire: pid and time are written.
                cell.what.store(what, Release);
                return;
            }
        }
        self.lost.fetch_add(1, Relaxed);
    }
}

/// Enters a notice of this process in the header of the segment at `segment`, else on the board with the number
/// `board`. Returns whether one of them took it. Cold; `errno` is left alone, and no file stays open.
#[cfg(not(loom))]
pub fn post(segment: Option<&CStr>, board: Option<i32>, notice: Notice) -> bool {
    let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    sys::keep_errno(|| {
        segment.is_some_and(|path| in_header(path, pid, notice))
            || board.is_some_and(|id| board::post(id, pid, notice))
    })
}

#[cfg(not(loom))]
fn in_header(path: &CStr, pid: u32, notice: Notice) -> bool {
    let Ok(file) = sys::open_rw(path) else { return false };
    // A page beyond the end of the file would be deadly to touch.
    if !rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_size as u64 == TOTAL_BYTES) {
        return false;
    }
    let Ok(address) = sys::map_shared(&file, 0, size_of::<Header>()) else { return false };
    // SAFETY: the mapping holds the header of a file that is longer; atomics only.
    let header = unsafe { address.cast::<Header>().as_ref() };
    let is_segment = header.magic.load(Acquire) == MAGIC && header.version.load(Relaxed) == VERSION;
    if is_segment {
        header.notices.post(pid, notice);
    }
    // SAFETY: mapped above, and nothing refers to it any more.
    unsafe { sys::unmap(address, size_of::<Header>()) };
    is_segment
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SegmentFile;
    use crate::layout::NOTICES;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    const UNREADY: Notice = Notice::InitFailed(802);

    #[test]
    fn every_notice_survives_its_word() {
        let failures = JoinFailure::ALL.iter().map(|failure| Notice::Unjoined(*failure));
        for notice in failures.chain([0, 803, u32::MAX].map(Notice::InitFailed)) {
            assert_eq!(Notice::from_word(notice.to_word()), Some(notice));
        }
        for word in [0, 1, UNJOINED | 255, UNJOINED | 300, 3 << 56, u64::MAX] {
            assert_eq!(Notice::from_word(word), None, "{word:x}");
        }
    }

    #[test]
    fn a_process_enters_a_notice_once_and_a_full_table_counts() {
        let file = SegmentFile::create_unnamed(0).unwrap();
        let path = CString::new(file.path().as_os_str().as_bytes()).unwrap();
        for _ in 0..3 {
            assert!(post(Some(&path), None, UNREADY));
        }
        assert!(post(Some(&path), None, Notice::Unjoined(JoinFailure::Full)));
        let (seen, lost) = file.segment().unwrap().notices().unwrap();
        assert_eq!(
            seen.iter().map(|seen| seen.notice).collect::<Vec<_>>(),
            [UNREADY, Notice::Unjoined(JoinFailure::Full)]
        );
        assert!(seen.iter().all(|seen| seen.pid == std::process::id() && seen.ns > 0) && lost == 0);
        for code in 0..NOTICES as u32 {
            assert!(post(Some(&path), None, Notice::InitFailed(code)));
        }
        let (seen, lost) = file.segment().unwrap().notices().unwrap();
        assert_eq!((seen.len(), lost), (NOTICES, 2));
    }

    #[test]
    fn a_file_that_is_no_segment_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = CString::new(file.path().as_os_str().as_bytes()).unwrap();
        for bytes in [0, 4096, TOTAL_BYTES] {
            file.as_file().set_len(bytes).unwrap();
            assert!(!post(Some(&path), None, UNREADY), "{bytes}");
        }
        assert!(!post(Some(c"/nonexistent"), None, UNREADY));
    }
}
