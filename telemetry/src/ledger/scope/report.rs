//! A scope as it is at one moment, for people: a copy of its files, of which nothing is mapped.

use super::layout::*;
use super::{ScopeDirectory, setup};
use crate::layout::SlotState;
use crate::ledger::layout::*;
use crate::ledger::living::{Living, Record};
use crate::ledger::view::uuid_of;
use crate::ledger::{Access, Amount, GpuUse, LedgerError, Limit, MemberUse, Place, words};
use crate::sync::Ordering::Relaxed;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Limits and use of a scope.
#[derive(Clone, Debug)]
pub struct ScopeReport {
    /// The limit of GPUs that have none of their own.
    pub general: Amount,
    /// The limits, as the administrator has set them.
    pub limits: Vec<Limit>,
    /// The administrator has set them by hand.
    pub by_hand: bool,
    /// Limits that the calling user has set by hand below the administrator's.
    pub own: Option<Vec<Limit>>,
    /// Users that have a ledger here.
    pub users: Vec<u32>,
    /// Users whose ledger is shortened, written over or closed.
    pub damaged: Vec<u32>,
    /// A process has counted here.
    pub used: bool,
    /// GPUs that are limited by name or in use.
    pub gpus: Vec<GpuUse>,
    /// Living processes, with bytes in the order of [`ScopeReport::gpus`].
    pub members: Vec<ScopeMember>,
}

/// A living process in a user's ledger, as this ledger names it: its owner can write any number there.
#[derive(Clone, Debug)]
pub struct ScopeMember {
    /// User id of the ledger's owner.
    pub owner: u32,
    /// Device and inode of the ledger.
    pub file: (u64, u64),
    /// Process and bytes.
    pub member: MemberUse,
}

impl ScopeReport {
    /// Reads all files of a scope.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`]. Users whose ledgers cannot be read are [`ScopeReport::damaged`].
    pub fn read(scope: &ScopeDirectory) -> Result<Self, LedgerError> {
        Self::of(scope, |_| true)
    }

    /// Reads the limits, and of the users' ledgers the caller's own.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`].
    pub fn limits(scope: &ScopeDirectory) -> Result<Self, LedgerError> {
        let own = rustix::process::getuid().as_raw();
        Self::of(scope, |uid| uid == own)
    }

    fn of(scope: &ScopeDirectory, is_wanted: impl Fn(u32) -> bool) -> Result<Self, LedgerError> {
        let path = scope.path().join(setup::LIMITS);
        let area = copy::<ScopeArea>(&path).map_err(|error| LedgerError::Io(path.clone(), error))?;
        let area = area.get();
        if area.magic.load(Relaxed) != SCOPE_MAGIC || area.version.load(Relaxed) != SCOPE_VERSION {
            return Err(LedgerError::Foreign(path));
        }
        let named = area.tags.iter().zip(&area.uuids).zip(&area.amounts);
        let named =
            named.filter(|((tag, _), _)| tag.load(Relaxed) != 0).filter_map(|((_, words), amount)| {
                Some(Limit { gpu: Some(uuid_of(words)), amount: Amount::from_word(amount.load(Relaxed))? })
            });
        let general = Limit { gpu: None, amount: area.general() };
        let limits: Vec<Limit> = std::iter::once(general).chain(named).collect();
        let mut report = Self {
            general: area.general(),
            gpus: limits.iter().filter_map(|limit| limit.gpu).map(|gpu| of_gpu(gpu, area)).collect(),
            limits,
            by_hand: area.is_by_hand(),
            own: None,
            users: area.users().map(|(_, uid)| uid).collect(),
            damaged: Vec::new(),
            used: false,
            members: Vec::new(),
        };
        for uid in report.users.clone().into_iter().filter(|uid| is_wanted(*uid)) {
            let path = scope.member(uid);
            let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else { continue };
            match copy::<LedgerArea>(&path) {
                Ok(ledger) if ledger.get().header.magic.load(Relaxed) == LEDGER_MAGIC => {
                    // Of a group's members only the caller's own limits are of interest.
                    let own = uid == rustix::process::getuid().as_raw();
                    if own || matches!(scope.access(), Access::User(_)) {
                        report.take_own_limits(own, ledger.get(), area);
                    }
                    report.add(uid, &c_path, &ledger, area);
                }
                _ => report.damaged.push(uid),
            }
        }
        for ScopeMember { member, .. } in &mut report.members {
            member.bytes.resize(report.gpus.len(), 0);
            member.overhead.resize(report.gpus.len(), 0);
        }
        Ok(report)
    }

    /// Lowers the administrator's limits to those that apply to the jobs of a user, from the user's ledger.
    fn take_own_limits(&mut self, own: bool, ledger: &LedgerArea, area: &ScopeArea) {
        let by_hand = ledger.header.by_hand.load(Relaxed) == 1;
        if self.by_hand && !by_hand {
            return;
        }
        let general = ledger.general_amount();
        let cells = || ledger.gpus.iter().filter(|cell| cell.tag.load(Relaxed) != 0);
        if own && by_hand {
            let named = cells().filter_map(|cell| {
                let amount = Amount::from_word(cell.amount.load(Relaxed))?;
                Some(Limit { gpu: Some(uuid_of(&cell.uuid)), amount })
            });
            self.own = Some(std::iter::once(Limit { gpu: None, amount: general }).chain(named).collect());
        }
        self.general = lower(self.general, general, 0);
        for cell in cells() {
            let uuid = uuid_of(&cell.uuid);
            let place = self.place(uuid, area);
            if let Some(gpu) = self.gpus.get_mut(place) {
                gpu.amount = lower(gpu.amount, ledger.amount_of(cell), cell.total_bytes.load(Relaxed));
            }
        }
    }

    /// Index of a GPU in the list; adds the GPU if it was not there.
    fn place(&mut self, uuid: [u8; 16], area: &ScopeArea) -> usize {
        let known = self.gpus.iter().position(|known| known.uuid == uuid);
        known.unwrap_or_else(|| {
            self.gpus.push(of_gpu(uuid, area));
            self.gpus.len() - 1
        })
    }

    fn add(&mut self, uid: u32, path: &CStr, copied: &Copied<LedgerArea>, area: &ScopeArea) {
        let ledger = copied.get();
        self.used |= ledger.header.high.load(Relaxed) != 0;
        let cells = ledger.gpus.iter().enumerate().filter(|(_, cell)| cell.tag.load(Relaxed) != 0);
        let places: Vec<(usize, usize)> = cells
            .map(|(row, cell)| {
                let place = self.place(uuid_of(&cell.uuid), area);
                let gpu = &mut self.gpus[place];
                let total = cell.total_bytes.load(Relaxed);
                gpu.total_bytes = gpu.total_bytes.max(total);
                let limit = gpu.amount.bytes(gpu.total_bytes);
                // Before a process has seen the GPU a share of it is not known.
                gpu.limit = (limit != u64::MAX && (total != 0 || matches!(gpu.amount, Amount::Bytes(_))))
                    .then_some(limit);
                gpu.refused = gpu.refused.saturating_add(cell.refused.load(Relaxed));
                gpu.context = gpu.context.max(ledger.context_of(cell));
                (row, place)
            })
            .collect();
        let living = Living::at(path, Place::File);
        let mut held = vec![0u64; self.gpus.len()];
        for (number, member) in ledger.used_members() {
            let record = Record::read(member);
            let state = record.state;
            if state.state() != SlotState::LIVE || !living.lives_as(uid, number, &record) {
                continue;
            }
            let mut one = MemberUse {
                number,
                pid: state.pid(),
                is_here: living.is_here(record.namespace),
                start: record.start,
                bytes: vec![0; self.gpus.len()],
                overhead: vec![0; self.gpus.len()],
            };
            for (row, place) in &places {
                let of = |rows: &[Row]| {
                    let word = rows[*row][number].load(Relaxed);
                    if words::is_of(word, state.generation()) { words::bytes_of(word) } else { 0 }
                };
                one.bytes[*place] = of(&ledger.reserved);
                one.overhead[*place] = of(&ledger.overhead);
                held[*place] = held[*place].saturating_add(one.bytes[*place]);
            }
            self.members.push(ScopeMember { owner: copied.owner, file: copied.file, member: one });
        }
        for (gpu, held) in self.gpus.iter_mut().zip(held) {
            gpu.used = gpu.used.saturating_add(held.min(super::most(gpu.total_bytes)));
        }
    }
}

/// The lower one of two amounts; where that depends on a GPU of unknown size, the first one.
fn lower(one: Amount, other: Amount, total_bytes: u64) -> Amount {
    match (one, other) {
        (_, Amount::Unlimited) => one,
        (Amount::Unlimited, _) => other,
        (Amount::Bytes(a), Amount::Bytes(b)) if b < a => other,
        (Amount::PerMyriad(a), Amount::PerMyriad(b)) if b < a => other,
        _ if total_bytes != 0 && other.bytes(total_bytes) < one.bytes(total_bytes) => other,
        _ => one,
    }
}

/// A GPU that no process has been seen on.
fn of_gpu(uuid: [u8; 16], area: &ScopeArea) -> GpuUse {
    let amount = area.amount_of(crate::ledger::gpus::tag(&uuid));
    let limit = if let Amount::Bytes(bytes) = amount { Some(bytes) } else { None };
    GpuUse { uuid, total_bytes: 0, amount, limit, used: 0, refused: 0, context: 0 }
}

/// A copy of a file that holds nothing but words.
struct Copied<T> {
    owner: u32,
    /// Device and inode.
    file: (u64, u64),
    words: Vec<u64>,
    what: std::marker::PhantomData<T>,
}

impl<T> Copied<T> {
    fn get(&self) -> &T {
        // SAFETY: `copy` has made as many words as a `T` has, they are aligned alike, and a `T` is words only.
        unsafe { &*self.words.as_ptr().cast() }
    }
}

/// Copies the beginning of a file.
fn copy<T>(path: &Path) -> io::Result<Copied<T>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.size() < size_of::<T>() as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0u8; size_of::<T>()];
    file.read_exact_at(&mut bytes, 0)?;
    let (words, _) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let (owner, id) = (found.uid(), (found.dev(), found.ino()));
    Ok(Copied { owner, file: id, words, what: std::marker::PhantomData })
}
