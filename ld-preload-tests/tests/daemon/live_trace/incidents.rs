//! Incidents while the jobs run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use radrm_preload_tests::{artifacts, node::Daemon};

/// A file system of its own for the daemon's state, which can be filled. It outlives daemons: a process holds
/// its namespace.
pub struct Disk {
    holder: Child,
}

impl Disk {
    /// At `state` below the place.
    pub fn mount(place: &Path) -> Self {
        let words = "mkdir -p state && mount -t tmpfs -o size=160m,mode=0711 none state && echo ready && exec sleep 100000";
        let mut holder = Command::new("unshare")
            .args(["--mount", "/bin/sh", "-c", words])
            .current_dir(place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("output")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self { holder }
    }

    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// A file of the daemon's place, seen from outside.
    pub fn path(&self, path: &Path) -> PathBuf {
        let path = fs::canonicalize(path.parent().expect("directory"))
            .expect("path")
            .join(path.file_name().expect("name"));
        let mut seen = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        seen.push(path.strip_prefix("/").expect("an absolute path"));
        seen
    }

    /// Takes all room that is left.
    pub fn fill(&self, daemon: &Daemon) {
        // Not the room of the emulated GPUs: that is no disk on a real machine.
        let machine = fs::OpenOptions::new().write(true).open(self.path(&daemon.path("state/machine")));
        let machine = machine.expect("machine");
        let length = machine.metadata().expect("length").len();
        // SAFETY: a plain system call on an open file.
        let done = unsafe { libc::fallocate(machine.as_raw_fd(), 0, 0, length as libc::off_t) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        let mut filler = fs::File::create(self.path(&daemon.path("state/filler"))).expect("filler");
        for size in [1 << 16, 1 << 12, 1] {
            let block = vec![0; size];
            while filler.write(&block).is_ok_and(|written| written > 0) {}
        }
    }

    pub fn free(&self, daemon: &Daemon) {
        fs::remove_file(self.path(&daemon.path("state/filler"))).expect("filler");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A line that a job's program left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub job: u64,
    pub attempt: u32,
    pub pid: u32,
    /// Numbers in the order of the bus.
    pub gpus: Vec<String>,
}

/// Lines of programs' beginnings, and of their ends.
#[derive(Debug, Default)]
pub struct Marks {
    pub started: Vec<Mark>,
    pub ended: BTreeSet<(u64, u32)>,
}

impl Marks {
    pub fn read(daemon: &Daemon) -> Self {
        let mut marks = Self::default();
        for line in daemon.lines("marks") {
            let words: Vec<&str> = line.split(' ').collect();
            let [word, job, attempt, pid, gpus] = words[..] else { panic!("odd line: {line}") };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let mark = Mark {
                job: number(job),
                attempt: number(attempt) as u32,
                pid: number(pid) as u32,
                gpus: gpus.split(',').map(str::to_owned).collect(),
            };
            if word == "end" {
                assert!(marks.ended.insert((mark.job, mark.attempt)), "{line} twice");
            } else {
                marks.started.push(mark);
            }
        }
        marks
    }

    /// Programs that began and are not at their end.
    pub fn running(&self) -> impl Iterator<Item = &Mark> {
        self.started.iter().filter(|mark| !self.ended.contains(&(mark.job, mark.attempt)))
    }

    /// By job and attempt; nothing is started twice.
    pub fn by_attempt(&self) -> BTreeMap<(u64, u32), Mark> {
        let mut all = BTreeMap::new();
        for mark in &self.started {
            let before = all.insert((mark.job, mark.attempt), mark.clone());
            assert_eq!(before, None, "started twice");
        }
        all
    }
}

/// Kills the program of a job as a person from outside would.
pub fn kill(mark: &Mark) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", mark.pid)).unwrap_or_default();
    let its = format!("RADRM_JOB={}", mark.job);
    if !environment.split(|byte| *byte == 0).any(|line| line == its.as_bytes()) {
        return false;
    }
    // SAFETY: a plain system call on a process of this test.
    unsafe { libc::kill(mark.pid.cast_signed(), libc::SIGKILL) == 0 }
}

/// A user of whom `job` is not one tries what one might try.
pub fn meddle(daemon: &Daemon, user: u32, job: u64) {
    let job = job.to_string();
    for arguments in [
        vec!["show", &job],
        vec!["logs", &job],
        vec!["cancel", &job],
        vec!["hold", &job],
        vec!["hold", "--release", &job],
    ] {
        let done = daemon.client_of(user, &arguments).output().expect("radrm");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(&format!("there is no job {job}")), "{said}");
    }
    let listed =
        daemon.client_of(user, &["queue", "--all", "--ended", "100", "--json"]).output().expect("radrm");
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    for row in listed.as_array().expect("jobs") {
        assert_eq!(row["uid"], user, "{row}");
    }
}

/// The program that the jobs run, and what stands for the time of its kernel.
pub fn program(daemon: &Daemon) -> String {
    fs::write(daemon.path("times"), "nothing 100000\n").expect("times");
    let program = radrm_preload_tests::programs::compile("trace_job.c", &[]);
    assert!(artifacts::file("radrm").is_file());
    program.display().to_string()
}
