use super::setup::Repaired;
use super::*;
use crate::layout::SlotState;
use crate::ledger::{Access, Amount, LedgerError, Limit};
use crate::sync::Ordering::Release;
use std::cell::RefCell;
use std::ffi::CString;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

const GPU: [u8; 16] = *b"a gpu of 16 byte";
const TOTAL: u64 = 1000;
/// A user that this computer does not have.
const OTHER: u32 = 64_101;

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_root() -> bool {
    own_uid() == 0
}

/// A group's scope with a limit, in which this user and [`OTHER`] have ledgers.
struct Group {
    _directory: tempfile::TempDir,
    scope: ScopeDirectory,
    processes: RefCell<Vec<Child>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        for process in self.processes.get_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Group {
    /// `None` where this user may not give files to others.
    fn new(limit: u64) -> Option<Self> {
        if !is_root() {
            eprintln!("skipped: only root makes ledgers of other users");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("group-64100");
        let scope = ScopeDirectory::make(&path, Access::Group(64_100)).unwrap();
        scope.set_limits(&[Limit { gpu: None, amount: Amount::Bytes(limit) }], false).unwrap();
        for uid in [own_uid(), OTHER] {
            assert_eq!(scope.add(uid).unwrap(), Repaired::Nothing);
        }
        Some(Self { _directory: directory, scope, processes: RefCell::default() })
    }

    fn join(&self) -> SharedLedger {
        SharedLedger::join(&c_path(&self.scope.member(own_uid()))).unwrap()
    }

    fn file(&self, uid: u32) -> File {
        OpenOptions::new().read(true).write(true).open(self.scope.member(uid)).unwrap()
    }

    /// The other user's ledger with a word of a living process of that user.
    fn claim(&self, bytes: u64) -> &'static LedgerArea {
        self.claim_of(OTHER, bytes)
    }

    fn claim_of(&self, uid: u32, bytes: u64) -> &'static LedgerArea {
        let (view, home) = crate::ledger::file::map(&self.scope.member(uid), Place::File).unwrap();
        let own = join::enter(NonNull::from(view), home).unwrap();
        let row = own.gpu(&GPU, TOTAL).unwrap();
        own.add(row, bytes);
        let process = Command::new("sleep").arg("600").uid(uid).gid(uid).spawn().unwrap();
        let start = process::Stat::now(process.id()).unwrap().start;
        for (_, member) in view.used_members() {
            let generation = SlotState(member.state.load(Relaxed)).generation();
            member.state.store(SlotState::new(SlotState::LIVE, generation, process.id()).0, Relaxed);
            member.start.store(start, Relaxed);
            [&member.stack, &member.lock].iter().for_each(|word| word.store(0, Relaxed));
        }
        self.processes.borrow_mut().push(process);
        view
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn share(ledger: &SharedLedger) -> (u64, u64) {
    let row = ledger.own().gpu(&GPU, TOTAL).unwrap();
    (ledger.limit(row), ledger.used(row))
}

#[test]
fn what_other_users_reserved_counts() {
    let Some(group) = Group::new(100) else { return };
    let ledger = group.join();
    let row = ledger.own().gpu(&GPU, TOTAL).unwrap();
    ledger.reserve(row, 30).unwrap();
    let area = group.claim(50);
    assert_eq!(share(&ledger), (100, 80));
    assert_eq!(ledger.reserve(row, 21), Err(Refused { limit: 100, used: 80 }));
    assert_eq!(ledger.reserve(row, 20), Ok(()));
    let mut holders = Vec::new();
    ledger.each_holder(row, |_, bytes| holders.push(bytes));
    assert_eq!(holders, [50, 50]);
    let peek = SharedPeek::open(&c_path(&group.scope.member(own_uid()))).unwrap();
    assert_eq!(peek.gpu(&GPU, TOTAL), Share { limit: 100, used: 100 });
    // A process that is gone holds nothing, though its word stays.
    for (_, member) in area.used_members() {
        member.start.store(1, Relaxed);
    }
    assert_eq!(share(&ledger), (100, 50));
    assert_eq!(ledger.reserve(row, 50), Ok(()));
}

/// The owner of a ledger can write any process id there.
#[test]
fn a_process_of_another_user_holds_nothing() {
    let Some(group) = Group::new(100) else { return };
    let ledger = group.join();
    let area = group.claim(50);
    assert_eq!(share(&ledger), (100, 50));
    let own = process::Stat::now(std::process::id()).unwrap();
    for (_, member) in area.used_members() {
        let generation = SlotState(member.state.load(Relaxed)).generation();
        member.state.store(SlotState::new(SlotState::LIVE, generation, std::process::id()).0, Relaxed);
        member.start.store(own.start, Relaxed);
    }
    assert_eq!(share(&ledger), (100, 0));
}

#[test]
fn rows_beyond_the_first_chunk_count() {
    let Some(group) = Group::new(1000) else { return };
    let ledger = group.join();
    let area = group.claim(1);
    let state = area.members[0].state.load(Relaxed);
    for place in [31, 32, 33, 63, 64, MEMBERS - 1] {
        let (first, member) = (&area.members[0], &area.members[place]);
        for (to, from) in [
            (&member.start, &first.start),
            (&member.stack, &first.stack),
            (&member.namespace, &first.namespace),
        ] {
            to.store(from.load(Relaxed), Relaxed);
        }
        area.reserved[0][place].store(words::empty(SlotState(state).generation()) | 10, Relaxed);
        member.state.store(state, Release);
        area.header.high.store(place as u64 + 1, Release);
    }
    assert_eq!(share(&ledger).1, 61);
}

#[test]
fn a_shortened_ledger_raises_no_signal_in_others() {
    let Some(group) = Group::new(100) else { return };
    let ledger = group.join();
    let row = ledger.own().gpu(&GPU, TOTAL).unwrap();
    let _ = group.claim(50);
    assert_eq!(share(&ledger).1, 50);
    for length in [0, 100, 4096, 50_000, 0] {
        group.file(OTHER).set_len(length).unwrap();
        let _ = ledger.reserve(row, 1);
        assert!(share(&ledger).1 <= 51, "{length}");
        ledger.own().release(row, 1);
    }
    assert_eq!(ledger.reserve(row, 100), Ok(()));
    // A process that joins later is not hindered either.
    let later = group.join();
    assert_eq!(share(&later).0, 100);
    assert_eq!(ScopeReport::read(&group.scope).unwrap().damaged, [OTHER]);
    assert_eq!(group.scope.add(OTHER).unwrap(), Repaired::Contents);
    assert_eq!(ScopeReport::read(&group.scope).unwrap().damaged, [] as [u32; 0]);
}

#[test]
fn random_bytes_refuse_no_request_that_fits() {
    let Some(group) = Group::new(100) else { return };
    let ledger = group.join();
    let row = ledger.own().gpu(&GPU, TOTAL).unwrap();
    let _ = group.claim(50);
    assert_eq!(share(&ledger).1, 50);
    let mut seed = 1u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    })
    .take(LEDGER_BYTES as usize)
    .collect();
    for bytes in [bytes, vec![0xff; LEDGER_BYTES as usize]] {
        group.file(OTHER).write_all_at(&bytes, 0).unwrap();
        assert_eq!(ledger.reserve(row, 100), Ok(()), "no word of it belongs to a living process");
        ledger.own().release(row, 100);
        let peek = SharedPeek::open(&c_path(&group.scope.member(own_uid()))).unwrap();
        assert_eq!(peek.gpu(&GPU, TOTAL), Share { limit: 100, used: 0 });
    }
}

#[test]
fn a_false_claim_counts_up_to_the_gpus_memory() {
    let Some(group) = Group::new(1 << 30) else { return };
    let ledger = group.join();
    let _ = group.claim(1 << 39);
    assert_eq!(share(&ledger).1, TOTAL);
    assert_eq!(ledger.reserve(ledger.own().gpu(&GPU, TOTAL).unwrap(), 1 << 20), Ok(()));
}

#[test]
fn a_user_who_is_added_later_counts_for_those_who_run() {
    let Some(group) = Group::new(100) else { return };
    let ledger = group.join();
    let row = ledger.own().gpu(&GPU, TOTAL).unwrap();
    ledger.reserve(row, 30).unwrap();
    group.scope.add(OTHER + 1).unwrap();
    let _ = group.claim_of(OTHER + 1, 60);
    assert!(ledger.reserve(row, 20).is_err());
    // Of a user whose ledger is gone nothing is known: no more memory, and no other harm.
    std::fs::remove_file(group.scope.member(OTHER)).unwrap();
    let later = group.join();
    assert!(later.reserve(row, 1).is_err());
    group.scope.add(OTHER).unwrap();
    assert_eq!(later.reserve(row, 1), Ok(()));
}

#[test]
fn the_administrators_limit_holds_at_once_and_members_only_lower_it() {
    let Some(group) = Group::new(100) else { return };
    let ledger = group.join();
    let row = ledger.own().gpu(&GPU, TOTAL).unwrap();
    let general = |bytes| vec![Limit { gpu: None, amount: Amount::Bytes(bytes) }];
    group.scope.set_own_limits(own_uid(), &general(500), true).unwrap();
    assert_eq!(ledger.limit(row), 100);
    group.scope.set_own_limits(own_uid(), &general(50), false).unwrap();
    assert_eq!(ledger.limit(row), 50);
    // Set by hand: what the job read from files is no bound any more.
    group.scope.set_limits(&[Limit { gpu: Some(GPU), amount: Amount::PerMyriad(2_000) }], true).unwrap();
    assert_eq!(ledger.limit(row), 200);
    group.scope.set_own_limits(own_uid(), &general(150), true).unwrap();
    assert_eq!(ledger.limit(row), 150);
    let report = ScopeReport::read(&group.scope).unwrap();
    assert!(report.by_hand && report.own.is_some());
    assert_eq!((report.gpus[0].uuid, report.gpus[0].amount), (GPU, Amount::Bytes(150)), "what holds");
    let by_root = Limit { gpu: Some(GPU), amount: Amount::PerMyriad(2_000) };
    assert!(report.limits.contains(&by_root), "{:?}", report.limits);
    group.scope.set_limits(&[], false).unwrap();
    group.scope.set_own_limits(own_uid(), &[], false).unwrap();
    assert_eq!(ledger.limit(row), u64::MAX);
}

#[test]
fn a_word_that_was_written_over_gets_no_more_memory() {
    let Some(group) = Group::new(100) else { return };
    let ledger = group.join();
    let row = ledger.own().gpu(&GPU, TOTAL).unwrap();
    ledger.reserve(row, 30).unwrap();
    let zeros = vec![0; LEDGER_BYTES as usize];
    let at = std::mem::offset_of!(LedgerArea, reserved);
    group.file(own_uid()).write_all_at(&zeros[at..], at as u64).unwrap();
    assert!(ledger.reserve(row, 1).is_err());
}

#[test]
fn a_ledger_whose_owner_changed_its_mode_is_not_joined() {
    let Some(group) = Group::new(100) else { return };
    let member = group.scope.member(own_uid());
    for mode in [0o600, 0o666, 0o000] {
        std::fs::set_permissions(&member, Permissions::from_mode(mode)).unwrap();
        assert!(SharedLedger::join(&c_path(&member)).is_err(), "{mode:o}");
    }
    assert_eq!(group.scope.add(own_uid()).unwrap(), Repaired::Mode);
    group.join();
    group.file(own_uid()).set_len(LEDGER_BYTES * 10).unwrap();
    assert_eq!(group.scope.add(own_uid()).unwrap(), Repaired::Size);
    assert_eq!(group.file(own_uid()).metadata().unwrap().len(), LEDGER_BYTES);
}

#[test]
fn a_directory_that_others_can_change_is_no_scope() {
    let directory = tempfile::tempdir().unwrap();
    let own = own_uid();
    let access = Access::User(own);
    let path = directory.path().join("user");
    let open = || ScopeDirectory::open(&path, access, &[own]);
    assert!(matches!(open(), Err(LedgerError::NotSetUp(_))));
    let scope = ScopeDirectory::make(&path, access).unwrap();
    scope.add(own).unwrap();
    assert_eq!(open().unwrap(), scope);
    assert!(matches!(ScopeDirectory::open(&path, access, &[own + 1]), Err(LedgerError::Unsafe(_))));
    for mode in [0o777, 0o775, 0o1777] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(matches!(open(), Err(LedgerError::Unsafe(_))), "{mode:o}");
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let elsewhere = directory.path().join("elsewhere");
    std::fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(matches!(open(), Err(LedgerError::Unsafe(_))), "a link");
    let limits = elsewhere.join(setup::LIMITS);
    std::fs::remove_file(&limits).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &limits).unwrap();
    let linked = ScopeDirectory::open(&elsewhere, access, &[own]);
    assert!(matches!(linked, Err(LedgerError::Unsafe(_))), "a link");
}

#[test]
fn a_users_scope_needs_no_other_user() {
    let directory = tempfile::tempdir().unwrap();
    let own = own_uid();
    let scope = ScopeDirectory::make(&directory.path().join("user"), Access::User(own)).unwrap();
    scope.add(own).unwrap();
    scope.set_limits(&[Limit { gpu: None, amount: Amount::Bytes(100) }], false).unwrap();
    let ledger = SharedLedger::join(&c_path(&scope.member(own))).unwrap();
    let row = ledger.own().gpu(&GPU, TOTAL).unwrap();
    assert_eq!((ledger.reserve(row, 60), ledger.reserve(row, 60).is_err()), (Ok(()), true));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(scope.path()), mode(&scope.member(own))), (0o755, 0o600));
    assert_eq!(mode(&scope.path().join(setup::LIMITS)), 0o644);
    let left: Vec<_> = std::fs::read_dir(scope.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
