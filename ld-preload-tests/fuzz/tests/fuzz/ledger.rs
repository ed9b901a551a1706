//! Ledgers of users and groups, which their owners may write over.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bolero::check;
use radrm_fuzz::damaged;
use radrm_telemetry::ledger::{
    Access, Amount, LedgerView, Limit, Place, ScopeDirectory, ScopeReport, SharedLedger,
};

#[test]
fn ledgers() {
    let place = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let uid = rustix::process::geteuid().as_raw();
    let scope =
        ScopeDirectory::make(&place.path().join(format!("user-{uid}")), Access::User(uid)).expect("a scope");
    scope.set_limits(&[Limit { gpu: None, amount: Amount::Bytes(1 << 30) }], false).expect("limits");
    scope.add(uid).expect("a ledger");
    let member = scope.member(uid);
    // A member of it, which this process stays.
    let ledger =
        SharedLedger::join(&CString::new(member.as_os_str().as_bytes()).expect("a path")).expect("joined");
    let row = ledger.own().gpu(&[7; 16], 80 << 30).expect("a GPU");
    ledger.reserve(row, 5).expect("room");
    let view = LedgerView::open(&member, Place::File).expect("a view");
    let limits = scope.path().join("limits");
    let whole: Vec<Vec<u8>> = [&member, &limits].map(|path| fs::read(path).expect("a file")).into();
    let write = |path: &Path, content: &[u8]| {
        let file = File::options().write(true).open(path).expect("the file");
        file.set_len(content.len() as u64).and_then(|()| file.write_all_at(content, 0)).expect("written");
    };
    let report = || {
        let _ = ScopeReport::read(&scope).map(|report| (report.gpus.len(), report.members.len()));
        (view.gpus(), view.members(), view.limits())
    };
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let Some((which, rest)) = bytes.split_first() else { return };
        let (path, whole) = if which % 4 == 0 { (&limits, &whole[1]) } else { (&member, &whole[0]) };
        let mut content = damaged(whole, rest);
        // One that is shorter is another matter, and has a test: it is mapped here.
        content.resize(whole.len(), 0);
        write(path, &content);
        report();
        write(path, whole);
    });
    assert_eq!(report().1.len(), 1, "the whole is read as it was");
}
