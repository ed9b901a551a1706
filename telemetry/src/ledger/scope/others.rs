//! Bytes that other users have reserved in a scope.
//!
//! Their ledgers are theirs to write, to shorten and to fill with anything, so nothing in them is trusted:
//! - they are mapped for reading but never loaded from. The kernel copies out of the mapping and reports an
//!   error where the file was shortened; a load would raise SIGBUS;
//! - a word is an allegation. The sum of a file counts up to the GPU's memory, which is what its owner could
//!   reserve honestly; where a request does not fit, a word counts only while its process lives.
//!
//! The kernel copies bytes and promises no whole words: a word that changes meanwhile may be read half old and
//! half new. So every row is read twice and the larger figure counts.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::Scope;
use crate::layout::GPUS;
use crate::ledger::layout::*;
use crate::ledger::living::{self, Living, Record};
use crate::ledger::{Place, words};
use crate::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicU64, fence};
use crate::sys;
use rustix::io::Errno;
use std::mem::offset_of;

/// Words of a row that are copied at a time.
const CHUNK: usize = 32;

/// Another user's ledger.
#[derive(Debug)]
pub(super) struct Other {
    /// Address of its mapping; 0: not mapped yet, or [`UNREADABLE`].
    at: AtomicU64,
    /// In which row it keeps each GPU of the own ledger, plus one; 0: not known.
    rows: [AtomicU64; GPUS],
}

/// Its owner has closed it to others. That hides no more than writing zeros into it would.
const UNREADABLE: u64 = 1;

/// A GPU, as a ledger is asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Its tag.
    pub tag: u64,
    /// Its row in the own ledger, if it has one there.
    pub row: Option<usize>,
    /// Most that one user can have reserved, bytes.
    pub most: u64,
}

/// The roster names a ledger that cannot be opened: what its owner holds is unknown.
pub(super) struct Unknown;

/// Words that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// All.
    All,
    /// Words of living processes. Asks the system for every one.
    Living,
}

impl Scope {
    /// Bytes that other users have reserved of a GPU. What cannot be known counts as everything.
    pub(super) fn reserved(&self, gpu: Wanted, which: Which) -> u64 {
        let mut sum = 0u64;
        match self.each(gpu, which, |_, bytes| sum = sum.saturating_add(bytes)) {
            Ok(()) => sum,
            Err(Unknown) => words::LARGEST,
        }
    }

    /// Visits process id (0 unless only the living are read) and bytes of every word of other users.
    pub(super) fn each(
        &self,
        gpu: Wanted,
        which: Which,
        mut visit: impl FnMut(u32, u64),
    ) -> Result<(), Unknown> {
        for (place, uid) in self.limits().users().filter(|(_, uid)| *uid != self.own) {
            let other = self.others.get(place).ok_or(Unknown)?;
            let Some(at) = self.mapped(other, uid)? else { continue };
            let mut left = gpu.most;
            let mut room = [0; super::PATH_BYTES + 32];
            let path = self.member_path(uid, &mut room).ok_or(Unknown)?;
            let living = Living::at(path, Place::File);
            // A ledger that was shortened holds nothing: the processes of its owner that touch it are gone.
            let _ = other.each(at, gpu, |index, word| {
                let mut pid = 0;
                if which == Which::Living {
                    match holder(at, index, word, uid, &living) {
                        Some(found) => pid = found,
                        None => return,
                    }
                }
                let bytes = words::bytes_of(word).min(left);
                left -= bytes;
                visit(pid, bytes);
            });
        }
        Ok(())
    }

    /// Address of the mapping of a user's ledger; `None` if its owner has closed it.
    fn mapped(&self, other: &Other, uid: u32) -> Result<Option<u64>, Unknown> {
        // Acquire: the mapping is there.
        match other.at.load(Acquire) {
            0 => {}
            UNREADABLE => return Ok(None),
            at => return Ok(Some(at)),
        }
        sys::keep_errno(|| {
            let found = match self.map(uid) {
                Ok(at) => at,
                Err(Errno::ACCESS) => UNREADABLE,
                Err(_) => return Err(Unknown),
            };
            // Of threads that do so at once one wins; the others leave a mapping behind.
            let _ = other.at.compare_exchange(0, found, Release, Acquire);
            Ok((found != UNREADABLE).then_some(found))
        })
    }

    fn map(&self, uid: u32) -> Result<u64, Errno> {
        let mut room = [0; super::PATH_BYTES + 32];
        let path = self.member_path(uid, &mut room).ok_or(Errno::NAMETOOLONG)?;
        let file = sys::open_ro_here(path)?;
        let stat = rustix::fs::fstat(&file)?;
        if !super::belongs_to(&stat, uid) || stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Errno::INVAL);
        }
        let at = sys::map_shared_ro(&file, LEDGER_BYTES as usize)?;
        Ok(at.as_ptr() as u64)
    }
}

impl Other {
    /// Visits number and contents of every word that may hold something.
    fn each(&self, at: u64, gpu: Wanted, mut visit: impl FnMut(usize, u64)) -> Result<(), Errno> {
        let Some(row) = self.row(at, gpu)? else { return Ok(()) };
        let row = at + (offset_of!(LedgerArea, reserved) + row * size_of::<Row>()) as u64;
        let high = at + offset_of!(LedgerArea, header.high) as u64;
        let mut first = 0;
        while first < MEMBERS {
            let chunk = (row + 8 * first as u64, CHUNK * 8);
            let mut copies = [[0u64; CHUNK + 1]; 2];
            sys::read_mapped(&[(high, 8), chunk, (high, 8), chunk], copies.as_flattened_mut())?;
            let [[high, earlier @ ..], [high_later, later @ ..]] = &copies;
            let used = (*high.max(high_later) as usize).saturating_sub(first);
            for (index, (earlier, later)) in earlier.iter().zip(later).enumerate().take(used) {
                // Of one generation the larger one; else the one that came later.
                let same = words::bytes_of(*earlier) ^ earlier == words::bytes_of(*later) ^ later;
                let word = if same { *earlier.max(later) } else { *later };
                if words::bytes_of(word) != 0 {
                    visit(first + index, word);
                }
            }
            if used <= CHUNK {
                break;
            }
            first += CHUNK;
        }
        Ok(())
    }

    /// The row in which this ledger keeps a GPU; `None`: its owner has not used that GPU.
    fn row(&self, at: u64, gpu: Wanted) -> Result<Option<usize>, Errno> {
        let known = gpu.row.and_then(|row| self.rows.get(row));
        if let Some(row) = known.and_then(|known| known.load(Relaxed).checked_sub(1)) {
            return Ok(Some(row as usize));
        }
        const WORDS: usize = size_of::<LedgerGpu>() / 8;
        let mut cells = [[0u64; WORDS]; GPUS];
        let gpus = at + offset_of!(LedgerArea, gpus) as u64;
        sys::read_mapped(&[(gpus, size_of_val(&cells))], cells.as_flattened_mut())?;
        // The tag is a cell's first word.
        let found = cells.iter().position(|[tag, ..]| *tag == gpu.tag);
        if let (Some(known), Some(found)) = (known, found) {
            known.store(found as u64 + 1, Relaxed);
        }
        Ok(found)
    }
}

/// The process that a word belongs to, if it lives as far as can be known.
fn holder(at: u64, index: usize, word: u64, uid: u32, living: &Living<'_>) -> Option<u32> {
    // The member is read after its word: a process is a member before it reserves anything.
    fence(SeqCst);
    let place = offset_of!(LedgerArea, members) + index * size_of::<LedgerMember>();
    let mut member = [0u64; size_of::<LedgerMember>() / 8];
    sys::read_mapped(&[(at + place as u64, size_of_val(&member))], &mut member).ok()?;
    let member = Record::from_words(member);
    (living::is_its(word, member.state) && living.lives_as(uid, index, &member)).then(|| member.state.pid())
}
