//! Processes of other users.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::PathBuf,
    process::Command,
};

use radrm_preload_tests::{artifacts, programs};

use super::commands::Node;

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A group and users that no machine knows by name.
pub(super) const GROUP: u32 = 64_000;
pub(super) const ALICE: u32 = 64_001;
pub(super) const BOB: u32 = 64_002;
pub(super) const OUTSIDER: u32 = 64_003;

/// Lets other users use the rig; `false`, said aloud, where that is not possible.
pub(super) fn open_to_others(node: &Node) -> bool {
    if !is_root() {
        eprintln!("skipped: only root can start programs of other users");
        return false;
    }
    let reachable = |user: u32| {
        let mut command = Command::new(artifacts::file("radrm-run"));
        command.arg("--version").uid(user).gid(user).stdout(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let mode =
        |path: PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    mode(node.rig.path().to_owned(), 0o1777);
    mode(node.rig.machine_path(), 0o666);
    // A program that may be run but not read is hidden from its own user too.
    mode(programs::compile("steps.c", &[]), 0o755);
    let found = reachable(ALICE);
    if !found {
        eprintln!("skipped: other users cannot reach {}", artifacts::directory().display());
    }
    found
}

/// The same as another user.
pub(super) fn as_user(mut command: Command, user: u32, group: u32) -> Command {
    command.uid(user).gid(group);
    command
}
