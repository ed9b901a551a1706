//! The driver's own limits around the jobs of radrmd.

use std::{ffi::CString, os::unix::ffi::OsStrExt};

use radrm_preload_tests::{artifacts, groups::ControlGroup, node::Daemon, programs};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// What the fence lets through above the limit.
const SLACK: u64 = 512 * MIB;

/// As a service manager delegates it.
fn delegate(group: &ControlGroup) -> bool {
    let path = CString::new(group.path().as_os_str().as_bytes()).expect("a path");
    // SAFETY: both strings end with zero, and the value has one byte.
    unsafe { libc::setxattr(path.as_ptr(), c"user.delegate".as_ptr(), c"1".as_ptr().cast(), 1, 0) == 0 }
}

#[test]
fn the_driver_holds_jobs_to_their_limits_whatever_they_load() {
    let Some(group) = ControlGroup::new(&format!("radrm-test-fence-{}", std::process::id())) else { return };
    if !delegate(&group) {
        eprintln!("skipped: no control group can be delegated here");
        return;
    }
    let path = group.path().display();
    let entrance =
        format!("group={path}; test -d $group/daemon && group=$group/daemon; echo 0 > $group/cgroup.procs");
    let mut daemon = Daemon::with("emulate = \"2xA100-40GB,driver=13040\"\n", &entrance);
    let asker = programs::compile("quota_ask.c", &[]);
    let ask = |bytes: u64| format!("env -u LD_PRELOAD {} <<< {bytes}; ", asker.display());
    let root = radrm_os::host::control_groups().expect("control groups");
    let script = format!(
        "{}{}{} fence show --json --machine $PLACE/state/machine {}$(sed -n s/^0:://p /proc/self/cgroup)",
        ask(1024 * MIB),
        ask(1024 * MIB + SLACK + 2 * MIB),
        artifacts::file("radrm").display(),
        root.display(),
    );
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &["/bin/bash", "-c", &script]);
    assert_eq!(daemon.end(job)["exit_code"], 0, "{}", daemon.show(job));
    let log = daemon.ok(&["logs", &job.to_string()]);
    let (answers, shown): (Vec<&str>, Vec<&str>) = log
        .lines()
        .filter(|line| !line.starts_with("ready"))
        .partition(|line| ["granted", "refused"].contains(line));
    assert_eq!(answers, ["granted", "refused"], "programs without the shim: {log}");
    let shown: Value = serde_json::from_str(&shown.join("\n")).expect(&log);
    let limits: Vec<_> = shown
        .as_array()
        .expect(&log)
        .iter()
        .map(|row| (row["soft_bytes"].as_u64(), row["hard_bytes"].as_u64()))
        .collect();
    let (own, other) = ((Some(1024 * MIB), Some(1024 * MIB + SLACK)), (Some(0), Some(SLACK)));
    assert!(limits == [own, other] || limits == [other, own], "{log}");
    // A daemon that comes back takes the limits of jobs back that ended meanwhile.
    let running = daemon.submit(&["--gpu-mem", "1GiB"], &["sleep", "1000"]);
    daemon.until_state(running, "running");
    let own = group.path().join(format!("job-{running}.1"));
    daemon.until("its group is there", |_| own.is_dir());
    daemon.kill();
    daemon.start();
    daemon.ok(&["cancel", &running.to_string()]);
    daemon.end(running);
    daemon.until("its group goes", |_| !own.exists());
}
