//! CPU time and host memory of jobs, limited by control groups version 2 where such are delegated to the daemon.
//!
//! | group | has |
//! |---|---|
//! | the service's own, delegated by the service manager | no process: the kernel permits none beside groups below it |
//! | `daemon` below it | the daemon and the supervisors |
//! | `job-JOB.ATTEMPT` below it | the processes of one attempt, with its limits |

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use radrm_os::host::{control_groups, own_control_group};
use serde::{Deserialize, Serialize};

/// The group of the daemon itself. systemd's `DelegateSubgroup=` names it too.
const LEAF: &str = "daemon";
/// The period of `cpu.max`, in microseconds.
const PERIOD_US: u64 = 100_000;
/// The attributes by which systemd marks a group as delegated.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Reason that there are no limits, in the words of `radrm nodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Control groups of version 1, or none.
    NoVersion2,
    /// The service manager keeps the group for itself.
    NotDelegated,
    /// The kernel does not let the groups be used.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVersion2 => f.write_str("this node has no control groups version 2"),
            Self::NotDelegated => f.write_str("no control group is delegated to radrmd"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// A group that is the daemon's to divide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    base: PathBuf,
    /// CPU time can be limited.
    pub cpu: bool,
    /// Host memory can be limited.
    pub memory: bool,
}

impl Delegated {
    /// Prepares the group of this process.
    ///
    /// # Errors
    /// Why it cannot be divided.
    pub fn prepare() -> Result<Self, Refusal> {
        let is_marked = |group: &Path| {
            let mut value = [0; 1];
            let mark = |name: &&str| matches!(rustix::fs::getxattr(group, *name, &mut value[..]), Ok(1) if value == *b"1");
            MARKS.iter().any(mark)
        };
        let root = control_groups().ok_or(Refusal::NoVersion2)?;
        Self::prepare_at(&root, own_control_group().as_deref(), std::process::id(), is_marked)
    }

    /// As [`Delegated::prepare`], for a tree mounted elsewhere and a process in the group `own`.
    fn prepare_at(
        root: &Path,
        own: Option<&Path>,
        pid: u32,
        mut is_delegated: impl FnMut(&Path) -> bool,
    ) -> Result<Self, Refusal> {
        let path = own.filter(|_| root.join("cgroup.controllers").is_file()).ok_or(Refusal::NoVersion2)?;
        let home = root.join(path);
        let base = match home.file_name().is_some_and(|name| name == LEAF) {
            true => home.parent().unwrap_or(root).to_owned(),
            false => home,
        };
        // The group of the whole node is not delegated.
        if base == root || !is_delegated(&base) {
            return Err(Refusal::NotDelegated);
        }
        let failed = |what: &Path, error: &io::Error| Refusal::Failed(format!("{}: {error}", what.display()));
        let leaf = base.join(LEAF);
        make_directory(&leaf).map_err(|error| failed(&leaf, &error))?;
        let list = leaf.join("cgroup.procs");
        fs::write(&list, pid.to_string()).map_err(|error| failed(&list, &error))?;
        let has = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
        let control = base.join("cgroup.subtree_control");
        let enable = |name: &str| {
            has.split_whitespace().any(|known| known == name)
                && fs::write(&control, format!("+{name}")).is_ok()
        };
        let (cpu, memory) = (enable("cpu"), enable("memory"));
        // By this the kernel keeps the driver's limits; older ones leave them to the driver.
        enable("dmem");
        Ok(Self { base, cpu, memory })
    }

    /// Reason that neither CPU time nor host memory can be limited; `None` if one of them can.
    #[must_use]
    pub fn why_none(&self) -> Option<&'static str> {
        (!self.cpu && !self.memory).then_some("the delegated control group has neither cpu nor memory")
    }

    /// The group of an attempt.
    #[must_use]
    pub fn group(&self, job: u64, attempt: u32) -> Group {
        Group { directory: self.base.join(format!("job-{job}.{attempt}")) }
    }

    /// Makes a group with these limits: thousandths of a core, and bytes; 0 is no limit.
    ///
    /// # Errors
    /// The kernel's; nothing is left behind.
    pub fn make(&self, group: &Group, cpu_milli: u64, memory: u64) -> io::Result<()> {
        make_directory(&group.directory)?;
        let cpu = (self.cpu && cpu_milli > 0)
            .then(|| ("cpu.max", format!("{} {PERIOD_US}", cpu_milli * PERIOD_US / 1000)));
        let memory = (self.memory && memory > 0).then(|| ("memory.max", memory.to_string()));
        for (file, value) in cpu.into_iter().chain(memory) {
            if let Err(error) = fs::write(group.directory.join(file), value) {
                group.remove();
                return Err(error);
            }
        }
        Ok(())
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The control group of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    directory: PathBuf,
}

impl Group {
    /// A file through which a process enters the group by writing `0`, also one that has given up its rights since this
    /// was opened.
    ///
    /// # Errors
    /// The file's.
    pub fn entrance(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.directory.join("cgroup.procs"))
    }

    /// Returns true if the kernel has ended a process of the group because its memory was used up.
    #[must_use]
    pub fn has_killed(&self) -> bool {
        let events = fs::read_to_string(self.directory.join("memory.events")).unwrap_or_default();
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|kills| kills.trim().parse::<u64>().ok()).is_some_and(|kills| kills > 0)
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Kills all that is in the group.
    pub fn kill(&self) {
        let _ = fs::write(self.directory.join("cgroup.kill"), "1");
    }

    /// Kills all that is in the group, and removes it. One whose last process is not gone yet stays.
    pub fn remove(&self) {
        self.kill();
        let _ = fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, Stdio};

    const OWN: &str = "system.slice/radrmd.service";

    /// A directory that resembles a tree of control groups.
    fn tree(controllers: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("system.slice/radrmd.service");
        fs::create_dir_all(&base).unwrap();
        for group in [dir.path(), &base] {
            fs::write(group.join("cgroup.controllers"), controllers).unwrap();
        }
        (dir, base)
    }

    #[test]
    fn a_delegated_group_is_divided_into_the_daemons_and_the_jobs() {
        let (dir, base) = tree("cpuset cpu io memory pids\n");
        let found =
            Delegated::prepare_at(dir.path(), Some(Path::new(OWN)), 77, |group| group == base).unwrap();
        assert_eq!((found.cpu, found.memory), (true, true));
        assert_eq!(fs::read_to_string(base.join("daemon/cgroup.procs")).unwrap(), "77");
        // A daemon that comes back finds itself in its leaf.
        let leaf = Path::new(OWN).join("daemon");
        assert_eq!(
            Delegated::prepare_at(dir.path(), Some(&leaf), 78, |group| group == base),
            Ok(found.clone())
        );
        let group = found.group(12, 1);
        found.make(&group, 1500, 8 << 30).unwrap();
        let read = |file: &str| fs::read_to_string(base.join("job-12.1").join(file)).unwrap();
        assert_eq!((read("cpu.max").as_str(), read("memory.max").as_str()), ("150000 100000", "8589934592"));
        found.make(&found.group(13, 1), 0, 0).unwrap();
        assert_eq!(fs::read_dir(base.join("job-13.1")).unwrap().count(), 0, "nothing is limited");
    }

    #[test]
    fn where_nothing_is_delegated_nothing_is_touched_and_the_reason_is_known() {
        let (dir, base) = tree("cpu memory\n");
        let prepare_at = |own| Delegated::prepare_at(dir.path(), own, 77, |group| group != base);
        let prepare = |own: &'static str| prepare_at(Some(Path::new(own)));
        assert_eq!(prepare(OWN), Err(Refusal::NotDelegated));
        assert_eq!(prepare(""), Err(Refusal::NotDelegated), "the group of the whole node");
        assert_eq!(prepare("daemon"), Err(Refusal::NotDelegated));
        assert_eq!(prepare_at(None), Err(Refusal::NoVersion2));
        assert!(!base.join("daemon").exists());
        fs::remove_file(dir.path().join("cgroup.controllers")).unwrap();
        assert_eq!(prepare(OWN), Err(Refusal::NoVersion2));
        let (dir, _) = tree("pids\n");
        let none = Delegated::prepare_at(dir.path(), Some(Path::new(OWN)), 77, |_| true).unwrap();
        assert!(none.why_none().unwrap().contains("neither cpu nor memory"));
        let (dir, _) = tree("cpu\n");
        let some = Delegated::prepare_at(dir.path(), Some(Path::new(OWN)), 77, |_| true).unwrap();
        assert_eq!((some.cpu, some.memory), (true, false));
    }

    #[test]
    fn only_a_kill_for_want_of_memory_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group { directory: dir.path().to_owned() };
        let events = |kills: &str| {
            fs::write(
                dir.path().join("memory.events"),
                format!("low 0\noom 4\noom_kill {kills}\noom_group_kill 1\n"),
            )
        };
        assert!(!group.has_killed());
        events("0").unwrap();
        assert!(!group.has_killed());
        events("2").unwrap();
        assert!(group.has_killed());
    }

    #[test]
    fn a_process_enters_a_real_group_and_is_killed_with_it() {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let is_v2 = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let root = mounts.lines().find(is_v2).and_then(|line| line.split(' ').nth(1)).map(PathBuf::from);
        let place = root.map(|root| root.join(format!("radrm-test-{}", std::process::id())));
        let Some(directory) = place.filter(|place| fs::create_dir(place).is_ok()) else {
            eprintln!("skipped: no writable control groups version 2 here");
            return;
        };
        let group = Group { directory: directory.clone() };
        let entrance = group.entrance().unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000").stdout(Stdio::null());
        // SAFETY: a plain write between fork and exec.
        unsafe { command.pre_exec(move || (&entrance).write_all(b"0")) };
        let mut child = command.spawn().unwrap();
        let inside = fs::read_to_string(directory.join("cgroup.procs")).unwrap();
        assert_eq!(inside.trim(), child.id().to_string());
        group.remove();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        for _ in 0..100 {
            group.remove();
            if !directory.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{} is still there", directory.display());
    }
}
