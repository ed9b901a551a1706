//! The search for processes that keep a limit alive.

use std::process::Command;

use radrm_limits::carriers::{Processes, SegmentOrigin};
use radrm_os::Process;
use radrm_telemetry::SegmentFile;

/// A process that is met as it ends may have started another one, which the first look did not show.
#[test]
fn a_carrier_that_was_not_known_at_the_first_look_is_found() {
    let place = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&place.path().join("radrm"), 1).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let origin = SegmentOrigin { path: file.path(), name: file.name(), uid };
    let mut processes = Processes::now();
    let mut late = Command::new("sleep").arg("600").env("RADRM_SEGMENT", file.path()).spawn().unwrap();
    while Process(late.id()).variable("RADRM_SEGMENT").is_none_or(|found| found != file.path().as_os_str()) {
        std::thread::yield_now();
    }
    assert!(processes.carrying(origin).is_empty());
    let found: Vec<u32> = processes.settled(origin).processes.iter().map(|carrier| carrier.pid).collect();
    assert_eq!(found, [late.id()]);
    late.kill().unwrap();
    late.wait().unwrap();
    assert!(Processes::now().settled(origin).is_empty());
}
