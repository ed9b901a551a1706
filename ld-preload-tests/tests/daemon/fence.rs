//! The driver's own limits around the jobs of radrmd.

use std::{ffi::CString, os::unix::ffi::OsStrExt};

use radrm_preload_tests::{artifacts, groups::ControlGroup, node::Daemon, programs};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Bytes that the fence lets through above the limit.
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

#[test]
fn the_kernel_hides_the_device_files_of_other_gpus_from_jobs() {
    let Some(group) = ControlGroup::new(&format!("radrm-test-files-{}", std::process::id())) else { return };
    if !delegate(&group) {
        eprintln!("skipped: no control group can be delegated here");
        return;
    }
    // What the driver says of its GPUs: two, with the identifiers of the emulated ones.
    let mut daemon = Daemon::new("emulate = \"2xA100-40GB\"\n");
    let node: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    let uuids: Vec<&str> =
        node["gpus"].as_array().expect("GPUs").iter().filter_map(|gpu| gpu["uuid"].as_str()).collect();
    for (minor, uuid) in uuids.iter().enumerate() {
        let folder = daemon.path(&format!("driver/nvidia/gpus/0000:0{minor}:00.0"));
        std::fs::create_dir_all(&folder).expect("folder");
        let text = format!("Model: \t A100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n");
        std::fs::write(folder.join("information"), text).expect("file");
        let (path, made) = (daemon.path(&format!("nvidia{minor}")), minor.to_string());
        let done =
            std::process::Command::new("mknod").arg(path).args(["-m", "666", "c", "195", &made]).status();
        assert!(done.is_ok_and(|status| status.success()), "mknod");
    }
    let path = group.path().display();
    daemon.behind(&format!(
        "mount --bind $PLACE/driver /proc/driver; group={path}; test -d $group/daemon && group=$group/daemon; \
         echo 0 > $group/cgroup.procs"
    ));
    daemon.kill();
    daemon.start();
    let shown = daemon.ok(&["nodes"]);
    if !shown.contains("the kernel (device files)") {
        eprintln!("skipped: the kernel takes no filter on control groups here: {shown}");
        return;
    }
    let script =
        "for gpu in 0 1; do cat nvidia$gpu 2>&1 | grep -q 'Operation not permitted' && echo $gpu; done; true";
    for (options, hidden) in [(&["--gpu-mem", "1GiB"][..], 1), (&["--gpus", "0"], 2), (&["--gpus", "2"], 0)] {
        let job = daemon.submit(options, &["/bin/sh", "-c", script]);
        let end = daemon.end(job);
        let own: Vec<usize> = uuids
            .iter()
            .enumerate()
            .filter(|(_, uuid)| {
                end["devices"].as_array().is_some_and(|devices| devices.iter().any(|own| own == **uuid))
            })
            .map(|(at, _)| at)
            .collect();
        let log = daemon.ok(&["logs", &job.to_string()]);
        let denied: Vec<usize> = log.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(denied.len(), hidden, "{options:?}: {log}");
        assert!(denied.iter().all(|gpu| !own.contains(gpu)), "{options:?}: {log}");
    }
}
