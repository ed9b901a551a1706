//! The files of radrmd are those of `docs/security.md`, with owners and modes as there.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, process::Stdio};

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

#[test]
fn the_folder_and_socket_of_an_interactive_job_have_the_rights_that_the_page_states() {
    let daemon = Daemon::new("");
    let script = "umask 0; read line";
    let line = ["submit", "-q", "--interactive", "--gpus", "0", "--", "/bin/sh", "-c", script];
    let mut client = daemon.client(&line);
    client.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut client = client.spawn().expect("radrm");
    daemon.until("the job runs", |daemon| daemon.output(&["show", "1"]).status.success());
    let socket = PathBuf::from(daemon.show(1)["job"]["command"][2].as_str().expect("a command"));
    daemon.until("its terminal is there", |_| socket.exists());
    let own = fs::metadata(daemon.place()).expect("its place").uid();
    let folder = socket.parent().expect("a folder");
    let expected = ["/tmp/radrm-terminals-UID", "/tmp/radrm-terminals-UID/*"];
    // What else is there may be of jobs that were killed.
    let found = [(expected[0], folder), ("/tmp/radrm-terminals-UID/socket", &*socket)];
    Rights::of("radrmd").assert_alone(&found, &[("user", own)], &expected);
    drop(client.stdin.take());
    client.wait().expect("an end");
}
