//! The files of radrmd are those of `docs/security.md`, with owners and modes as there.

use std::{fs, os::unix::fs::MetadataExt};

use radrm_preload_tests::{node::Daemon, rights::Rights};

#[test]
fn files_of_radrmd_have_the_rights_that_the_page_states() {
    let daemon = Daemon::new("");
    let script = "touch $PLACE/go; while [ ! -e $PLACE/end ]; do sleep 0.05; done";
    let job = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", script]);
    daemon.submit(&["--exclusive"], &["true"]);
    daemon.until("the job runs", |daemon| daemon.path("go").exists());
    let own = fs::metadata(daemon.place()).expect("its place").uid();
    let (state, socket, lock) = (daemon.path("state"), daemon.path("socket"), daemon.path("socket.lock"));
    let check = |expected: &[&str]| {
        Rights::of("radrmd").assert(
            &[("STATE", &state), ("/run/radrmd/socket", &socket), ("/run/radrmd/socket.lock", &lock)],
            &[("radrmd", own), ("user", own)],
            expected,
        );
    };
    check(&[
        "STATE/attempts/*",
        "STATE/jobs/*/output",
        "STATE/queue.db*",
        "/run/radrmd/socket",
        "/run/radrmd/socket.lock",
    ]);
    fs::write(daemon.path("end"), "").expect("file");
    daemon.end(job);
    check(&["STATE/jobs/*/*.radrm", "STATE/dataset.db*"]);
}
