//! Another user can neither attach, nor read, nor block.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use radrm_preload_tests::child::{self, Running};

use super::{PATIENCE, program};

/// What the other user tries, with the folder of the socket as argument.
const TRY: &str = r#"
import os, socket, sys
folder = sys.argv[1]
for call in (os.listdir, lambda path: os.unlink(path + "/users.sock"), lambda path: open(path + "/users.lock", "r+")):
    try:
        call(folder)
        print("allowed")
    except OSError as error:
        print(type(error).__name__)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.settimeout(20)
try:
    connection.connect(folder + "/users.sock")
    try:
        connection.send(bytes.fromhex("0101") + bytes(100))
        print("answered" if connection.recv(2000) else "closed")
    except (BrokenPipeError, ConnectionResetError):
        print("closed")
except OSError as error:
    print(type(error).__name__)
"#;

fn other_user(folder: &Path) -> Vec<String> {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", TRY])
        .arg(folder);
    child::run(command, PATIENCE).ok().stdout.lines().map(str::to_owned).collect()
}

#[test]
fn another_user_is_kept_out() {
    let may = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", ""])
        .status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no second user");
        return;
    }
    let runtime = tempfile::tempdir().expect("folder");
    // A way for the other user to the folder itself.
    std::fs::set_permissions(runtime.path(), PermissionsExt::from_mode(0o755)).expect("mode");
    let Some(producer) = program(runtime.path(), "share_loader.py", &["users", "1", "100", "10", "1"]) else {
        return;
    };
    let mut producer = Running::start(producer, PATIENCE);
    producer.until_ready();
    let folder = runtime.path().join("radrm/share");
    let mode = std::fs::metadata(&folder).expect("folder").permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    assert_eq!(other_user(&folder), ["PermissionError"; 4]);

    // With the folder open to all, the credentials alone keep the other user out.
    for (path, mode) in [("radrm", 0o711), ("radrm/share", 0o711), ("radrm/share/users.sock", 0o777)] {
        std::fs::set_permissions(runtime.path().join(path), PermissionsExt::from_mode(mode)).expect("mode");
    }
    assert_eq!(other_user(&folder)[3], "closed");
    // A consumer of the right user does not use such a folder.
    let log = runtime.path().join("log");
    let words = ["users", log.to_str().expect("a path"), "0", "epoch", "0"];
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("mode");
    let consumer = program(runtime.path(), "share_trainer.py", &words).expect("an interpreter");
    child::run(consumer, PATIENCE).ok();
    producer.end().ok();
}
