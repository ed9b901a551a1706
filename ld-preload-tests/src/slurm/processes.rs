//! The processes of a cluster: daemons, steps, tasks and recorders.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use radrm_os::Process;

use super::Slurm;

impl Slurm {
    /// Starts the controller, with what an earlier one has kept.
    pub fn start_controller(&self) {
        self.run(self.command("slurmctld"));
    }

    /// Starts the daemon of a node.
    pub fn start_node(&self, node: usize) {
        self.start_node_with(node, &[], &[]);
    }

    /// Starts it behind these words of a command line.
    pub fn start_node_behind(&self, node: usize, before: &[String]) {
        self.start_node_with(node, before, &[]);
    }

    fn start_node_with(&self, node: usize, before: &[String], options: &[&str]) {
        let slurmd = self.command("slurmd");
        let mut command = match before.split_first() {
            Some((first, rest)) => {
                let mut command = self.command(first);
                command.args(rest).arg(slurmd.get_program());
                command
            }
            None => slurmd,
        };
        command.args(["-N", &format!("node{node}")]).args(options);
        command.env("SLURM_CONF", self.node_directory(node).join("slurm.conf"));
        self.run(command);
    }

    /// Moves the daemon of a node into a control group, and so the steps that it starts from then on.
    ///
    /// # Panics
    /// If it cannot be moved.
    pub fn move_node(&self, node: usize, group: &Path) {
        let pid = self.daemon(&format!("slurmd-node{node}")).expect("a running slurmd");
        fs::write(group.join("cgroup.procs"), pid.to_string()).expect("a control group");
    }

    /// Does to a node what a power failure does: all its processes are gone, and what lay in memory. It comes back
    /// at once.
    ///
    /// # Panics
    /// If its processes do not go.
    pub fn reboot_node(&self, node: usize) {
        self.kill_daemon(&format!("slurmd-node{node}"));
        let kill = |pid: u32| {
            // SAFETY: a plain system call on a process of this test.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        };
        self.until("no process of the node is left", || {
            let tasks = self.of_jobs();
            self.steps().into_iter().chain(self.all_recorders()).for_each(kill);
            tasks.iter().for_each(|process| kill(process.0));
            tasks.is_empty() && self.all_recorders().is_empty()
        });
        let state = self.path(&format!("state-radrm{node}"));
        for entry in fs::read_dir(state).into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
        self.boot_node(node);
    }

    /// Starts the daemon of a node that was booted at this moment.
    pub fn boot_node(&self, node: usize) {
        self.start_node_with(node, &[], &["-b"]);
    }

    /// Kills a daemon, `slurmctld` or `slurmd-node1`, and waits until it is gone.
    ///
    /// # Panics
    /// If it does not go.
    pub fn kill_daemon(&self, name: &str) {
        let pid = self.daemon(name).unwrap_or_else(|| panic!("{name} has written no number"));
        // SAFETY: a plain system call on a daemon that this test has started.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        self.until("the killed daemon is gone", || !runs(pid));
    }

    pub(super) fn daemon(&self, name: &str) -> Option<libc::pid_t> {
        let text = fs::read_to_string(self.path(&format!("run/{name}.pid"))).unwrap_or_default();
        text.trim().parse().ok().filter(|pid| *pid > 1)
    }

    /// Recorders of a job that run.
    pub fn recorders(&self, job: u32) -> usize {
        let word = format!("--step-of=slurm-{job}");
        // Other clusters of this machine have jobs of the same number.
        let own = self.all_recorders();
        processes().filter(|(pid, words)| own.contains(pid) && words.contains(&word)).count()
    }

    /// Processes of this cluster's jobs.
    pub fn of_jobs(&self) -> Vec<Process> {
        let conf = self.path("slurm.conf");
        let is_of = |process: &Process| {
            process.variable("SLURM_JOB_ID").is_some()
                && process.variable("SLURM_CONF").is_some_and(|file| file == conf.as_os_str())
        };
        Process::all().filter(is_of).collect()
    }

    /// The same with their parents and command lines, for messages of tests.
    pub(super) fn shown_processes(&self) -> String {
        let parent =
            |process: Process| process.parent().map(|parent| format!("{} ({})", parent.0, parent.name()));
        let shown = |process: Process| {
            format!("{} of {}: {}\n", process.0, parent(process).unwrap_or_default(), process.command())
        };
        let processes: String = self.of_jobs().into_iter().map(shown).collect();
        format!("--- processes of jobs\n{processes}")
    }

    /// The `slurmstepd` of steps whose tasks run.
    pub fn steps(&self) -> Vec<u32> {
        let parents = self.of_jobs().into_iter().filter_map(Process::parent);
        let mut found: Vec<u32> =
            parents.filter(|process| process.name() == "slurmstepd").map(|process| process.0).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Kills all recorders, and waits until they are gone.
    ///
    /// # Panics
    /// If they do not go.
    pub fn kill_recorders(&self) {
        for pid in self.all_recorders() {
            // SAFETY: a plain system call on a process of this test.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        self.until("the recorders are gone", || self.all_recorders().is_empty());
    }

    /// Ends what runs of steps when the daemons are gone: then `slurmstepd` of a newer Slurm tries for ever to report the
    /// end of its step. A recorder ends the tasks, also those in containers, when it is killed.
    pub(super) fn end_steps(&self) {
        let place = self.path("");
        let of_place = |process: &Process| {
            fs::read_link(format!("/proc/{}/cwd", process.0)).is_ok_and(|folder| folder.starts_with(&place))
        };
        let since = Instant::now();
        loop {
            let left: Vec<Process> = Process::all().filter(of_place).collect();
            if since.elapsed() > Duration::from_secs(10) || left.is_empty() && self.all_recorders().is_empty()
            {
                return;
            }
            let is_late = since.elapsed() > Duration::from_secs(5);
            for process in left.into_iter().filter(|process| is_late || process.name() == "slurmstepd") {
                // SAFETY: a plain system call on a process of this test.
                unsafe { libc::kill(process.0.cast_signed(), libc::SIGKILL) };
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The recorders of this cluster.
    pub fn all_recorders(&self) -> Vec<u32> {
        let word = format!("--machine={}", self.path("gpus/machine").display());
        let found = processes().filter(|(_, words)| words.iter().any(|own| own.starts_with(&word)));
        found.map(|(pid, _)| pid).collect()
    }
}

/// Returns true if a process runs. One that has ended stays as a zombie where the first process of a container
/// reaps none.
pub(super) fn runs(pid: libc::pid_t) -> bool {
    Process(pid.cast_unsigned()).stat().is_some_and(|stat| !stat.is_dead())
}

/// All processes with their command lines.
fn processes() -> impl Iterator<Item = (u32, Vec<String>)> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_string_lossy().parse::<u32>().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some((
            pid,
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        ))
    })
}
