//! Joining a segment: map it, find a slot, record the process's identity. Cold; makes system calls, allocates nothing.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

pub use crate::join_failure::JoinError;
use crate::join_failure::JoinFailure;
use crate::kind::{EndReason, EventKind};
use crate::layout::*;
use crate::lock::{LifeLock, Taken};
use crate::notices::Notice;
use crate::process::{self, Stat};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::writer::Writer;
use crate::{Event, sys};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A mapping that is removed unless it is kept.
struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn keep(self) -> NonNull<u8> {
        let address = self.address;
        std::mem::forget(self);
        address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and it was not kept, so nothing refers to it.
        unsafe { sys::unmap(self.address, self.bytes) };
    }
}

fn map(file: &OwnedFd, at: u64, bytes: u64) -> Result<Mapping, Errno> {
    let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
    Ok(Mapping { address: sys::map_shared(file, at, bytes)?, bytes })
}

impl Writer {
    /// Joins the segment at `path` with a slot of the calling process's own.
    ///
    /// A slot that this very process held before it became another program is ended. A child after fork
    /// joins anew; the mapping it inherited stays and must not be used.
    ///
    /// # Errors
    ///
    /// See [`JoinError`]. Where the segment itself is in order, a notice of the process is entered in its header.
    /// `errno` is left alone, and no file stays open.
    pub fn join(path: &CStr) -> Result<Self, JoinError> {
        sys::keep_errno(|| join(path))
    }
}

fn join(path: &CStr) -> Result<Writer, JoinError> {
    if sys::page_size() > MAX_PAGE {
        return Err(JoinError::Map(Errno::NOSYS.raw_os_error()));
    }
    let file = sys::open_rw(path).map_err(|e| JoinError::Open(e.raw_os_error()))?;
    let stat = rustix::fs::fstat(&file).map_err(|e| JoinError::Open(e.raw_os_error()))?;
    if stat.st_size as u64 != TOTAL_BYTES {
        // Perhaps a segment of another version: its first two words say.
        let mut words = [0u8; 16];
        let read = sys::read_start(path, &mut words).unwrap_or(0);
        let (words, _) = words.as_chunks::<8>();
        return match words {
            [magic, version] if read == 16 && u64::from_ne_bytes(*magic) == MAGIC => {
                Err(JoinError::Version(u64::from_ne_bytes(*version)))
            }
            _ => Err(JoinError::Foreign),
        };
    }
    let header_map = map(&file, 0, HEADER_BYTES).map_err(|e| JoinError::Map(e.raw_os_error()))?;
    // SAFETY: the mapping holds HEADER_BYTES of a file that is that long; all of the structure are atomics.
    let area = unsafe { header_map.address.cast::<HeaderArea>().as_ref() };
    if area.header.magic.load(Acquire) != MAGIC {
        return Err(JoinError::Foreign);
    }
    let version = area.header.version.load(Relaxed);
    if version != VERSION {
        return Err(JoinError::Version(version));
    }
    if area.header.total_bytes.load(Relaxed) != TOTAL_BYTES {
        return Err(JoinError::Foreign);
    }
    let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let report = |error: JoinError| {
        area.header.notices.post(pid, Notice::Unjoined(JoinFailure::of(error)));
        error
    };
    let identity = process::own().map_err(|e| report(JoinError::Identity(e.raw_os_error())))?;
    let launchers = area.header.namespace.load(Relaxed);
    let own = sys::pid_namespace();
    // Where either is not known, they count as one.
    let other = (launchers != 0 && own != 0 && own != launchers).then_some(own);
    let (index, entry, claimed, used_before) =
        claim(area, pid, identity.start, other).ok_or_else(|| report(JoinError::Full))?;
    let give_up = |error: JoinError| {
        // Ended and saved: free for the next one, which gets a new generation.
        entry.harvested.store(claimed.generation().into(), Relaxed);
        entry.state.store(SlotState::new(SlotState::ENDED, claimed.generation(), 0).0, Release);
        report(error)
    };

    let at = slot_at(index);
    if used_before && let Err(e) = sys::punch(&file, at, SLOT_STRIDE) {
        return Err(give_up(JoinError::NoSpace(e.raw_os_error())));
    }
    let slot = match map(&file, at, SLOT_STRIDE) {
        Ok(slot) => slot,
        Err(e) => return Err(give_up(JoinError::Map(e.raw_os_error()))),
    };
    if let Err(e) = prepare(&file, at, &slot) {
        return Err(give_up(JoinError::NoSpace(e.raw_os_error())));
    }
    let writer = Writer::over(
        header_map.keep().cast(),
        slot.keep(),
        index,
        claimed.generation(),
        (stat.st_dev, stat.st_ino),
        path,
    );
    introduce(&writer, &identity);
    entry.start.store(identity.start, Relaxed);
    let namespace =
        other.map_or(SlotNamespace::LAUNCHERS, |inode| SlotNamespace::other(inode, lock(path, index)));
    entry.namespace.store(namespace.0, Relaxed);
    // Release: pairs with the reader, which copies the slot after it has seen the state.
    entry.state.store(SlotState::new(SlotState::LIVE, claimed.generation(), pid).0, Release);
    writer.event(&Event {
        a: pid.into(),
        ..Event::new(EventKind::Joined, writer.base().head.joined_ns.load(Relaxed))
    });
    Ok(writer)
}

/// Allocates the slot's base. Once the system has said yes, touching it cannot fail.
fn prepare(file: &OwnedFd, at: u64, slot: &Mapping) -> Result<(), Errno> {
    let allocated = sys::allocate(file, at, BASE_BYTES);
    // SAFETY: the base is the beginning of the mapping.
    let present = unsafe { sys::populate(slot.address, BASE_BYTES as usize) };
    // Either is enough: a file system without allocation, a kernel without populating.
    match (allocated, present) {
        (Err(allocated), Err(_)) => Err(allocated),
        (Ok(()), Err(error)) if error != Errno::INVAL => Err(error),
        _ => Ok(()),
    }
}

/// Takes the lock of a slot until this image of the process ends, and says whether that succeeded.
fn lock(path: &CStr, slot: usize) -> bool {
    let Ok(lock) = LifeLock::open(path) else { return false };
    let is_held = lock.take(entry_at(slot)) == Taken::Held;
    if is_held {
        lock.keep();
    }
    is_held
}

/// Finds a slot and marks it as being made ready. Returns it with its new state and whether
/// another process had it before. `other`: the pid namespace, if it is not the launcher's.
fn claim(
    area: &HeaderArea,
    pid: u32,
    start: u64,
    other: Option<u64>,
) -> Option<(usize, &DirEntry, SlotState, bool)> {
    end_earlier_self(area, pid, start, other);
    // The pid of another namespace would not tell whether its process has died meanwhile.
    let shown = if other.is_none() { pid } else { 0 };
    let first = area.header.next_slot.fetch_add(1, Relaxed);
    if first < SLOTS as u64
        && let Some(entry) = area.directory.get(first as usize)
        && entry.state.load(Acquire) == 0
    {
        let state = SlotState::new(SlotState::CLAIMING, 1, shown);
        if entry.state.compare_exchange(0, state.0, AcqRel, Relaxed).is_ok() {
            return Some((first as usize, entry, state, false));
        }
    }
    // A second round from the beginning: free ones that were passed over, saved ones of dead
    // processes, ones whose process died while it made them ready.
    area.directory.iter().enumerate().find_map(|(index, entry)| {
        let seen = SlotState(entry.state.load(Acquire));
        let saved = entry.harvested.load(Relaxed) == u64::from(seen.generation());
        let usable = match seen.state() {
            SlotState::FREE => true,
            SlotState::CLAIMING => {
                seen.pid() != 0 && other.is_none() && (seen.pid() == pid || !sys::process_exists(seen.pid()))
            }
            // What another namespace's pid means is the launcher's to know, which has saved it only if it is dead.
            SlotState::LIVE => {
                let by_pid = other.is_none() && entry.namespace.load(Relaxed) == SlotNamespace::LAUNCHERS.0;
                saved && !(by_pid && sys::process_exists(seen.pid()))
            }
            SlotState::ENDED => saved,
            _ => false,
        };
        // Generation 0 is that of slots never used.
        let generation = (seen.generation() + 1) & 0xff_ffff;
        let state = SlotState::new(SlotState::CLAIMING, generation.max(1), shown);
        (usable && entry.state.compare_exchange(seen.0, state.0, AcqRel, Relaxed).is_ok()).then_some((
            index,
            entry,
            state,
            seen.state() != SlotState::FREE,
        ))
    })
}

/// Ends slots that this process holds already: it became another program, which starts from nothing.
fn end_earlier_self(area: &HeaderArea, pid: u32, start: u64, other: Option<u64>) {
    let used = area.header.next_slot.load(Relaxed).min(SLOTS as u64) as usize;
    for entry in area.directory.iter().take(used) {
        let seen = SlotState(entry.state.load(Acquire));
        let is_own = entry.start.load(Relaxed) == start
            && SlotNamespace(entry.namespace.load(Relaxed)).inode() == other;
        if seen.state() == SlotState::LIVE && seen.pid() == pid && is_own {
            // The reader takes "ended" without a reason in the slot for "became another program": the slot itself is
            // not mapped here.
            let ended = SlotState::new(SlotState::ENDED, seen.generation(), pid);
            let _ = entry.state.compare_exchange(seen.0, ended.0, AcqRel, Relaxed);
        }
    }
}

/// Records the process's identity.
fn introduce(writer: &Writer, identity: &Stat) {
    let base = writer.base();
    let head = &base.head;
    head.ppid.store(identity.ppid.into(), Relaxed);
    head.uid.store(rustix::process::getuid().as_raw().into(), Relaxed);
    head.joined_ns.store(writer.now(), Relaxed);
    head.end_reason.store(EndReason::Unknown as u64, Relaxed);

    let mut text = [0u8; TEXT_BYTES];
    let mut place = [MaybeUninit::<u8>::uninit(); TEXT_BYTES];
    if let Ok((path, _)) = rustix::fs::readlinkat_raw(rustix::fs::CWD, c"/proc/self/exe", &mut place) {
        for (to, from) in text.iter_mut().zip(path.iter()) {
            *to = *from;
        }
        head.exe_len.store(store_text(&base.exe, &text, path.len()), Relaxed);
    }
    text.fill(0);
    if let Ok(filled) = sys::read_start(c"/proc/self/cmdline", &mut text) {
        head.cmdline_len.store(store_text(&base.cmdline, &text, filled), Relaxed);
    }
}

/// Stores the first `len` bytes; the rest is zeros already.
fn store_text(places: &[crate::sync::AtomicU64], text: &[u8; TEXT_BYTES], len: usize) -> u64 {
    let (words, _) = text.as_chunks::<8>();
    for (place, word) in places.iter().zip(words).take(len.div_ceil(8)) {
        place.store(u64::from_ne_bytes(*word), Relaxed);
    }
    len as u64
}
