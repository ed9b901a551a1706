//! Control groups of version 2 of a test's own.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use radrm_os::host::control_groups;

/// A control group, with those below it. It goes with this, and everything that runs in it.
pub struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// One below the root of all groups. `None`, said aloud: none can be made here.
    pub fn new(name: &str) -> Option<Self> {
        // SAFETY: always works.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: only root can make a control group");
            return None;
        }
        let Some(root) = control_groups() else {
            eprintln!("skipped: no control groups of version 2");
            return None;
        };
        let path = root.join(name);
        let made = fs::create_dir_all(&path);
        made.inspect_err(|error| eprintln!("skipped: {}: {error}", path.display())).ok()?;
        Some(Self { path })
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Shell words that enter it.
    pub fn entrance(&self) -> String {
        format!("echo 0 > {}/cgroup.procs", self.path.display())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        for _ in 0..500 {
            if remove(&self.path) {
                // Those above that were made for it; the root cannot be removed.
                let above = self.path.ancestors().skip(1);
                let _ = above.take_while(|group| fs::remove_dir(group).is_ok()).count();
                return;
            }
            // The kernel is at it.
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn remove(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove(&entry.path());
        }
    }
    fs::remove_dir(group).is_ok() || !group.exists()
}
