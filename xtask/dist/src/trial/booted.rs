//! The Debian package in a system that runs: the commands of the page that sets up a node print what it shows, systemd starts
//! the units, alice submits jobs, and her logins by sshd, cron and su are held to her limit.
//!
//! systemd is process 1 of namespaces of its own, in a control group of its own, with a network that has no other machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use xtask::pages::{self, Stage};
use xtask::shell;

/// Boots the system, and ends with the trial's exit code.
const BOOT: &str = include_str!("../../../data/trial/boot.sh");

/// Files of the trial in the system.
const FILES: [(&str, &str); 5] = [
    ("total.py", super::TOTAL),
    ("trial.sh", include_str!("../../../data/trial/node.sh")),
    ("logins.sh", include_str!("../../../data/trial/logins.sh")),
    ("etc/systemd/system/trial.target", include_str!("../../../data/trial/trial.target")),
    ("etc/systemd/system/trial.service", include_str!("../../../data/trial/trial.service")),
];

/// The page whose commands are run first, and the shell of its user.
const PAGE: (&str, &str) = ("docs/how-to/set-up-a-node.md", "runuser -l alice -c");

/// Makes the control group in `$1`, and starts the rest in it. What systemd made there ends with it.
const ENTER: &str = r#"
group=$1/radrm-trial
shift
mkdir "$group"
code=0
sh -ec 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$@" || code=$?
find "$group" -depth -type d -exec rmdir {} +
exit $code
"#;

/// Boots a system in which the package lies, and runs the trial in it.
///
/// # Errors
/// The system cannot be booted here, or something in it does not work: the end of the trial's log.
pub fn run(root: &Path) -> Result<()> {
    for (name, text) in FILES {
        fs::write(root.join(name), text).with_context(|| name.to_owned())?;
    }
    let (page, user) = PAGE;
    let text = fs::read_to_string(shell::root().join(page)).context(page)?;
    let steps = pages::steps(&pages::blocks(&text)?, Stage::Node)?;
    ensure!(!steps.is_empty(), "{page}: no command for a node");
    fs::write(root.join("page.sh"), pages::script(&steps, Some(user)))?;
    symlink("trial.target", root.join("etc/systemd/system/default.target"))?;
    let groups = control_groups(&fs::read_to_string("/proc/mounts")?)
        .context("no control groups of version 2 are mounted: systemd needs one")?;
    let mut command = shell::command("sh");
    command.args(["-ec", ENTER, "sh", &groups, "unshare"]);
    command.args(["--mount", "--pid", "--cgroup", "--net", "--uts", "--ipc", "--fork", "--kill-child"]);
    command.args(["sh", "-ec", BOOT, "sh"]).arg(root);
    let done = shell::run(&mut command);
    let printed = fs::read_to_string(root.join("page.log"));
    if let Ok(printed) = &printed {
        let problems = pages::problems(&steps, printed);
        ensure!(problems.is_empty(), "{page}: {}", problems.join("\n"));
    }
    if done.is_err() || printed.is_err() {
        let log = fs::read_to_string(root.join("trial.log")).unwrap_or_else(|error| error.to_string());
        let lines: Vec<_> = log.lines().collect();
        bail!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
    }
    Ok(())
}

/// Mount point of control groups of version 2.
fn control_groups(mounts: &str) -> Option<String> {
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    lines.find(|line| line.get(2) == Some(&"cgroup2")).and_then(|line| Some((*line.get(1)?).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_are_found_beside_those_of_version_1() {
        let mounts = "proc /proc proc rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(control_groups(mounts).as_deref(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(control_groups("proc /proc proc rw 0 0\n"), None);
    }
}
