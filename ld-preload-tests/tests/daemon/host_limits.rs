//! `--cpus` and `--mem` as limits of the kernel, where this node has control groups version 2 to give.

use std::{
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use radrm_preload_tests::{node::Daemon, rig::PATIENCE};
use serde_json::Value;

const ROOT: &str = "/sys/fs/cgroup";

/// A control group that is delegated as a service manager does it.
struct Delegated {
    path: PathBuf,
}

impl Delegated {
    /// Makes one below the root of all groups; says why there is none.
    fn new() -> Option<Self> {
        let has = fs::read_to_string(Path::new(ROOT).join("cgroup.subtree_control")).unwrap_or_default();
        if !["cpu", "memory"].iter().all(|name| has.split_whitespace().any(|known| known == *name)) {
            eprintln!("skipped: no control groups version 2 with cpu and memory at {ROOT}");
            return None;
        }
        let path = Path::new(ROOT).join(format!("radrm-test-{}", std::process::id()));
        let made = fs::create_dir(&path).and_then(|()| {
            let group = Self { path: path.clone() };
            group.mark()?;
            Ok(group)
        });
        made.inspect_err(|error| eprintln!("skipped: no control group can be delegated here: {error}")).ok()
    }

    fn mark(&self) -> io::Result<()> {
        let path = CString::new(self.path.as_os_str().as_encoded_bytes())?;
        // SAFETY: both strings end with zero, and the value has one byte.
        let done =
            unsafe { libc::setxattr(path.as_ptr(), c"user.delegate".as_ptr(), c"1".as_ptr().cast(), 1, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Shell words that enter it; where it is divided already, its part for the daemon.
    fn entrance(&self) -> String {
        let path = self.path.display();
        format!("group={path}; test -d $group/daemon && group=$group/daemon; echo 0 > $group/cgroup.procs")
    }

    fn jobs(&self) -> usize {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("job-")).count()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        for _ in 0..PATIENCE * 10 {
            for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(entry.path());
            }
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            // The kernel is at it.
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn the_kernel_holds_jobs_to_their_cpus_and_host_memory() {
    let Some(group) = Delegated::new() else { return };
    // Declared before the daemon, and so dropped after it.
    let mut daemon = Daemon::with("cpus = 8\nhost_memory = 8589934592\n", &group.entrance());
    let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    assert_eq!(nodes["host_limits"], serde_json::json!({"cpu": true, "memory": true, "why": null}));
    let words =
        "own=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup | tail -n 1); cat $own/cpu.max $own/memory.max";
    let limited = ["--gpus", "0", "--cpus", "0.5", "--mem", "128MiB"];
    let job = daemon.submit(&limited, &["/bin/sh", "-c", words]);
    assert_eq!(daemon.end(job)["exit_code"], 0, "{}", daemon.show(job));
    assert_eq!(daemon.ok(&["logs", &job.to_string()]).trim(), "50000 100000\n134217728");
    // What it has and has not limited.
    let free = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", words]);
    daemon.end(free);
    assert_eq!(daemon.ok(&["logs", &free.to_string()]).trim(), "max 100000\nmax");
    // A program that asks for more than its limit, beside one that runs on.
    let beside = daemon.submit(&["--gpus", "0", "--mem", "128MiB"], &["sleep", "1000"]);
    daemon.until_state(beside, "running");
    let greedy = daemon.submit(&limited, &["python3", "-c", "data = bytearray(400_000_000)"]);
    daemon.end(greedy);
    let text = daemon.ok(&["show", &greedy.to_string()]);
    assert!(text.contains("out of host memory: its processes reached 128.0 MiB (--mem)"), "{text}");
    assert_eq!(daemon.state(beside), "running");
    // A daemon that comes back finds its group, and the job in its own.
    daemon.kill();
    daemon.start();
    daemon.until("only its own group is left", |_| group.jobs() == 1);
    assert_eq!(daemon.state(beside), "running");
    daemon.ok(&["cancel", &beside.to_string()]);
    daemon.end(beside);
    daemon.until("the group of an ended job goes", |_| group.jobs() == 0);
}
