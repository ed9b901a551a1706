//! Another user can neither attach, nor read, nor block.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use radrm_preload_tests::child::{self, Running};

use super::{PATIENCE, program};

/// Attempts of the other user, with the folder of the socket and the producer's name as arguments.
const TRY: &str = r#"
import os, socket, sys
folder, name = sys.argv[1:]
for call in (os.listdir, lambda path: os.unlink(f"{path}/{name}.sock"), lambda path: open(f"{path}/{name}.lock", "r+")):
    try:
        call(folder)
        print("allowed")
    except OSError as error:
        print(type(error).__name__)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.settimeout(20)
try:
    connection.connect(f"{folder}/{name}.sock")
    try:
        connection.send(bytes.fromhex("0101") + bytes(100))
        print("answered" if connection.recv(2000) else "closed")
    except (BrokenPipeError, ConnectionResetError):
        print("closed")
except OSError as error:
    print(type(error).__name__)
"#;

fn other_user(folder: &Path, name: &str) -> Vec<String> {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", TRY])
        .arg(folder)
        .arg(name);
    child::run(command, PATIENCE).ok().stdout.lines().map(str::to_owned).collect()
}

/// Returns true if this test can act as a second user; if not, prints a line.
pub(super) fn is_there_another() -> bool {
    let may = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", ""])
        .status();
    let may = may.is_ok_and(|status| status.success());
    if !may {
        eprintln!("skipped: no second user");
    }
    may
}

/// A second user neither enters the folder of a producer nor is answered.
pub(super) fn is_kept_out(runtime: &Path, name: &str) {
    // A way for the other user to the folder itself.
    std::fs::set_permissions(runtime, PermissionsExt::from_mode(0o755)).expect("mode");
    let folder = runtime.join("radrm/share");
    let mode = std::fs::metadata(&folder).expect("folder").permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    assert_eq!(other_user(&folder, name), ["PermissionError"; 4]);

    // With the folder open to all, the credentials alone keep the other user out.
    let socket = format!("radrm/share/{name}.sock");
    for (path, mode) in [("radrm", 0o711), ("radrm/share", 0o711), (&socket[..], 0o777)] {
        std::fs::set_permissions(runtime.join(path), PermissionsExt::from_mode(mode)).expect("mode");
    }
    assert_eq!(other_user(&folder, name)[3], "closed");
    // What a consumer of the right user accepts again.
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("mode");
}

#[test]
fn another_user_is_kept_out() {
    if !is_there_another() {
        return;
    }
    let runtime = tempfile::tempdir().expect("folder");
    let Some(producer) = program(runtime.path(), "share_loader.py", &["users", "1", "100", "10", "1"]) else {
        return;
    };
    let mut producer = Running::start(producer, PATIENCE);
    producer.until_ready();
    is_kept_out(runtime.path(), "users");
    let log = runtime.path().join("log");
    let words = ["users", log.to_str().expect("a path"), "0", "epoch", "0"];
    let consumer = program(runtime.path(), "share_trainer.py", &words).expect("an interpreter");
    child::run(consumer, PATIENCE).ok();
    producer.end().ok();
}
