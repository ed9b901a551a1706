//! radrmd in engine mode: Slurm places the jobs, and radrmd reports them.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use radrm_os::host::boot_id;
use radrm_preload_tests::{
    artifacts, child,
    faults::{self, Fault, Faults},
    programs,
    rig::PATIENCE,
    slurm::{Setup, Slurm, free_ports},
};

const MIB: u64 = 1 << 20;

/// radrmd beside the first node of a cluster, on the same emulated GPUs.
struct Daemon<'s> {
    slurm: &'s Slurm,
    port: u16,
    child: Option<Child>,
    /// Words before its command line.
    before: Vec<String>,
}

impl<'s> Daemon<'s> {
    fn new(slurm: &'s Slurm) -> Self {
        Self::behind(slurm, Vec::new())
    }

    fn behind(slurm: &'s Slurm, before: Vec<String>) -> Self {
        let port = free_ports(1)[0];
        let state = slurm.path("radrmd");
        fs::create_dir(&state).expect("state");
        // As a daemon of this boot has left it: the machine is not made anew.
        fs::write(state.join("boot"), boot_id()).expect("boot");
        std::os::unix::fs::symlink(slurm.path("gpus/machine1"), state.join("machine")).expect("machine");
        let text = format!(
            "state = \"{}\"\nsocket = \"{}\"\nmetrics = \"127.0.0.1:{port}\"\nemulate = \"{}\"\npoll_ms = 100\n\
             [slurm]\nengine = true\nstate = \"{}\"\n",
            state.display(),
            slurm.path("radrmd.sock").display(),
            slurm.path("machine.toml").display(),
            slurm.path("state-radrm1").display(),
        );
        fs::write(slurm.path("radrmd.toml"), text).expect("configuration");
        let mut daemon = Self { slurm, port, child: None, before };
        daemon.start();
        daemon
    }

    fn start(&mut self) {
        let log =
            fs::File::options().create(true).append(true).open(self.slurm.path("log/radrmd")).expect("log");
        let radrmd = artifacts::file("radrmd");
        let mut command = match self.before.split_first() {
            Some((first, rest)) => {
                let mut command = self.slurm.command(first);
                command.args(rest).arg(radrmd);
                command
            }
            None => self.slurm.command(radrmd),
        };
        command
            .arg("--config")
            .arg(self.slurm.path("radrmd.toml"))
            .env("RADRM_LIB_DIR", artifacts::directory());
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("radrmd"));
        self.slurm.until("radrmd answers", || !self.metrics().is_empty());
    }

    fn kill(&mut self) {
        let mut child = self.child.take().expect("a running radrmd");
        let _ = child.kill();
        let _ = child.wait();
    }

    fn metrics(&self) -> String {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return String::new() };
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    /// The lines of the table that begin like this.
    fn rows(&self, begin: &str) -> Vec<Vec<String>> {
        let text = fs::read_to_string(self.slurm.path("radrmd/slurm.csv")).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with(begin));
        lines.map(|line| line.split(',').map(str::to_owned).collect()).collect()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

fn one_node() -> Option<Slurm> {
    Slurm::start_with(&Setup { nodes: 1, gpus: 2, mib: 4096, script: None, further: "" })
}

/// A script that holds so much memory until a file is there.
fn holding(slurm: &Slurm, mib: u64) -> String {
    let asker = programs::compile("quota_ask.c", &[]);
    format!(
        "{{ echo keep {}; until [ -e {} ]; do sleep 0.05; done; }} | {}",
        mib * MIB,
        slurm.path("go").display(),
        asker.display()
    )
}

#[test]
fn slurms_jobs_have_figures_rows_and_comments() {
    let Some(slurm) = one_node() else { return };
    let daemon = Daemon::new(&slurm);
    let job = slurm.sbatch(&["--gres=shard:1000"], &holding(&slurm, 600));
    let user = String::from_utf8(Command::new("id").arg("-un").output().expect("id").stdout).expect("text");
    let holds = format!("job=\"{job}\",user=\"{}\"}} {}", user.trim(), 600 * MIB);
    slurm.until("its memory is in /metrics", || daemon.metrics().contains(&holds));
    assert!(daemon.metrics().contains("radrm_jobs{state=\"running\"} 1"), "{}", daemon.metrics());
    let comment = || slurm.said("scontrol", &["show", "job", &job.to_string()]);
    slurm.until("it has a comment", || comment().contains("radrm: peak so far 600.0 MiB of 1000.0 MiB"));
    assert!(!comment().contains("is enough"), "it may take more yet: {}", comment());
    fs::write(slurm.path("go"), "").expect("file");
    slurm.until_ended(job);
    let begin = format!("{job}.batch,");
    slurm.until("it has a row", || !daemon.rows(&begin).is_empty());
    let row = daemon.rows(&begin).remove(0);
    // JobIDRaw, Node, User, UID, Start, End, ExitCode, GrantedBytes, PeakBytes, OutOfMemoryBytes...
    let [exit, granted, peak] = [6, 7, 8].map(|at| row[at].as_str());
    assert_eq!((exit, granted, peak), ("0:0", "1048576000", "629145600"), "{row:?}");
    // What radrmd does not do here is said with what to do instead.
    let mut command = slurm.radrm(&["submit", "--", "true"]);
    command.env("RADRM_SOCKET", slurm.path("radrmd.sock"));
    let refused = child::run(command, PATIENCE);
    assert!(!refused.status.success() && refused.stderr.contains("submit them by sbatch"), "{refused:?}");
    // Out of memory.
    let needs = programs::compile("needs.c", &[]);
    let job = slurm.sbatch(&["--gres=shard:1000"], &format!("{} 2000", needs.display()));
    let begin = format!("{job}.batch,");
    slurm.until("it has a row", || !daemon.rows(&begin).is_empty());
    let row = daemon.rows(&begin).remove(0);
    assert_eq!(
        (row[6].as_str(), row[9].as_str()),
        ("1:0", "1572864000"),
        "held 1000 MiB, asked for 500: {row:?}"
    );
}

/// Numbers of jobs begin at 1 in each cluster, and UUIDs of emulated GPUs are equal.
#[test]
fn another_clusters_job_of_the_same_number_is_not_counted() {
    let (Some(slurm), Some(other)) = (one_node(), one_node()) else { return };
    let daemon = Daemon::new(&slurm);
    let jobs = [&other, &slurm].map(|slurm| {
        let job = slurm.sbatch(&["--gres=shard:1000"], &holding(slurm, 600));
        let used = |gpu| slurm.machines()[0].memory(gpu).used;
        slurm.until("it holds its memory", || used(0) + used(1) == 600 * MIB);
        job
    });
    assert_eq!(jobs[0], jobs[1]);
    let of_job = format!("job=\"{}\"", jobs[1]);
    slurm.until("its comment states its own memory", || {
        let shown = slurm.said("scontrol", &["show", "job", &jobs[1].to_string()]);
        shown.contains("radrm: peak so far 600.0 MiB of 1000.0 MiB")
    });
    let metrics = daemon.metrics();
    let line = metrics.lines().find(|line| line.contains(&of_job)).unwrap_or_default();
    assert!(line.ends_with(&format!(" {}", 600 * MIB)), "{metrics}");
    for slurm in [&other, &slurm] {
        fs::write(slurm.path("go"), "").expect("file");
        slurm.until_ended(jobs[0]);
    }
}

#[test]
fn steps_are_reported_once_whatever_is_killed() {
    let Some(slurm) = one_node() else { return };
    let mut daemon = Daemon::new(&slurm);
    let job = slurm.sbatch(&["--gres=shard:1000"], &holding(&slurm, 600));
    let holds = format!("job=\"{job}\"");
    slurm.until("its memory is in /metrics", || daemon.metrics().contains(&holds));
    daemon.kill();
    fs::write(slurm.path("go"), "").expect("file");
    slurm.until_ended(job);
    let begin = format!("{job}.batch,");
    assert!(daemon.rows(&begin).is_empty(), "nothing could write it");
    daemon.start();
    slurm.until("it has a row", || !daemon.rows(&begin).is_empty());
    assert_eq!(daemon.rows(&begin)[0][8], "629145600");
    // A step whose slurmstepd was killed: its peak is what radrmd saw, and how it ended is not known.
    fs::remove_file(slurm.path("go")).expect("file");
    let killed = slurm.sbatch(&["--gres=shard:1000"], &holding(&slurm, 500));
    // All of it: what is read while the program gets its memory is less.
    let (of_job, bytes) = (format!("job=\"{killed}\""), format!(" {}", 500 * MIB));
    slurm.until("its memory is in /metrics", || {
        daemon.metrics().lines().any(|line| line.contains(&of_job) && line.ends_with(&bytes))
    });
    for pid in slurm.steps() {
        // SAFETY: a plain system call on a process of this test.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
    let begin = format!("{killed}.batch,");
    slurm.until("it has a row", || !daemon.rows(&begin).is_empty());
    let row = daemon.rows(&begin).remove(0);
    assert_eq!(row[6], "", "{row:?}");
    // Of NVML's figure, where that was read in time, the process's context of 140 MiB is a part.
    let peak: u64 = row[8].parse().expect("bytes");
    assert!([500 * MIB, 640 * MIB].contains(&peak), "{row:?}");
    daemon.kill();
    daemon.start();
    // Its file goes after its row is written: the daemon may have been killed in between, and finds it again.
    let files = || fs::read_dir(slurm.path("state-radrm1/steps")).expect("steps").count();
    slurm.until("no step is left to be reported", || files() == 0);
    assert_eq!((daemon.rows(&begin).len(), daemon.rows(&format!("{job}.batch,")).len()), (1, 1));
}

#[test]
fn a_step_has_one_row_whichever_write_of_radrmd_fails() {
    if !faults::are_possible() {
        return;
    }
    let Some(slurm) = one_node() else { return };
    let faults = Faults::new(&slurm.path("faults"));
    let steps = slurm.path("state-radrm1/steps");
    let place = steps.ancestors().nth(2).expect("its place");
    let daemon = Daemon::behind(&slurm, faults.words(place));
    let mut job = 1000;
    for (fault, numbers) in [(Fault::ONE_ERROR, 1..=6), (Fault::ERRORS, 1..=2), (Fault::READ_ONLY, 1..=2)] {
        for number in numbers {
            job += 1;
            // As the plug-in leaves it: whole, and not locked any more.
            let draft = slurm.path("step");
            let text = format!(
                "job {job}\nstep batch\nnode node1\nuid 0\nbegin_ms 5000\nend_ms 6000\nexit 0\nsignal 0\npeak 7\n"
            );
            fs::write(&draft, text).expect("file");
            faults.begin(fault, number);
            let file = steps.join(format!("{job}.batch.5000"));
            fs::rename(&draft, &file).expect("file");
            // Some polls of radrmd.
            thread::sleep(Duration::from_millis(400));
            faults.end();
            let what = format!("{fault:?} from call {number} on\n{}", faults.log());
            slurm.until(&format!("its file is gone: {what}"), || !file.exists());
            assert_eq!(daemon.rows(&format!("{job}.batch,")).len(), 1, "{what}");
            let metrics = daemon.metrics();
            let counted = metrics.lines().find(|line| line.starts_with("radrm_slurm_steps_total "));
            assert_eq!(
                counted,
                Some(format!("radrm_slurm_steps_total {}", job - 1000).as_str()),
                "{what}\n{metrics}"
            );
        }
    }
}
