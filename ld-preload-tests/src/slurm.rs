//! A Slurm of one node with emulated GPUs: its own munge, controller and node daemon, in a directory and on ports of its
//! own, as whatever user runs the test.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use radrm_emulator_machine::{Machine, MachineSpec};
use radrm_os::Process;
use tempfile::TempDir;

use crate::{artifacts, rig::PATIENCE};

/// The programs that a node needs.
const PROGRAMS: [&str; 5] = ["munged", "slurmctld", "slurmd", "srun", "sbatch"];
/// Where they are besides `PATH`.
const FURTHER: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// A Slurm that runs.
pub struct Slurm {
    place: TempDir,
    machine: Machine,
    gpus: usize,
}

/// Where a program is.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FURTHER.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

impl Slurm {
    /// One node with so many GPUs of so many MiB, where one shard is one MiB. `None`, said aloud: Slurm is not
    /// installed.
    ///
    /// # Panics
    /// If it is installed and does not start.
    pub fn start(gpus: usize, mib: u64) -> Option<Self> {
        Self::start_with(gpus, mib, None)
    }

    /// The same with a `job_submit.lua`.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_with_script(gpus: usize, mib: u64, script: &str) -> Option<Self> {
        Self::start_with(gpus, mib, Some(script))
    }

    fn start_with(gpus: usize, mib: u64, script: Option<&str>) -> Option<Self> {
        if let Some(missing) = PROGRAMS.into_iter().find(|name| find(name).is_none()) {
            eprintln!("skipped: {missing} is not installed (packages slurmctld slurmd slurm-client munge)");
            return None;
        }
        for file in
            ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so", "radrm-run", "radrm"]
        {
            artifacts::file(file);
        }
        let place = tempfile::Builder::new().prefix("radrm-slurm").tempdir_in("/tmp").expect("directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        let gpu = format!("[[gpu]]\nmodel = \"H100-80GB\"\nmemory_mib = {mib}\ncontext_mib = 0\n");
        let description = place.path().join("machine.toml");
        fs::write(&description, gpu.repeat(gpus)).expect("description");
        let spec = MachineSpec::parse(description.to_str().expect("text")).expect("description");
        let machine = Machine::create(&spec, &place.path().join("machine")).expect("emulated machine");
        let slurm = Self { place, machine, gpus };
        slurm.configure(mib, script);
        slurm.up();
        Some(slurm)
    }

    fn configure(&self, mib: u64, script: Option<&str>) {
        for folder in ["state", "log", "dev", "run", "spool", "work"] {
            fs::create_dir(self.path(folder)).expect("directory");
        }
        let (place, gpus) = (self.place.path().display(), self.gpus);
        let mut key = [0_u8; 128];
        getrandom(&mut key);
        fs::write(self.path("munge.key"), key).expect("key");
        fs::set_permissions(self.path("munge.key"), fs::Permissions::from_mode(0o400)).expect("mode");
        for gpu in 0..gpus {
            // Slurm asks for a device, and follows links.
            symlink("/dev/null", self.path(&format!("dev/nvidia{gpu}"))).expect("device");
        }
        let (host, user) = (said("hostname", "-s"), said("id", "-un"));
        let [controller, node] = free_ports();
        let shards = mib * gpus as u64;
        let submit = if script.is_some() { "JobSubmitPlugins=lua\n" } else { "" };
        if let Some(script) = script {
            fs::write(self.path("job_submit.lua"), script).expect("job_submit.lua");
        }
        let text = format!(
            "{submit}ClusterName=radrm\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser={user}\nSlurmdUser={user}\n\
             SlurmctldPort={controller}\nSlurmdPort={node}\nAuthType=auth/munge\nCredType=cred/munge\n\
             AuthInfo=socket={place}/run/munge.sock\nSlurmctldPidFile={place}/run/slurmctld.pid\n\
             SlurmdPidFile={place}/run/slurmd.pid\nSlurmctldLogFile={place}/log/slurmctld.log\n\
             SlurmdLogFile={place}/log/slurmd.log\nStateSaveLocation={place}/state\nSlurmdSpoolDir={place}/spool\n\
             PlugStackConfig={place}/plugstack.conf\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nSwitchType=switch/none\nMpiDefault=none\n\
             AccountingStorageType=accounting_storage/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU\nSchedulerParameters=bf_interval=1\nSlurmdParameters=config_overrides\n\
             ReturnToService=2\nKillWait=2\nMessageTimeout=30\nGresTypes=gpu,shard\n\
             NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node} CPUs=32 RealMemory=64000 \
             Gres=gpu:{gpus},shard:{shards} State=UNKNOWN\n\
             PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP OverSubscribe=FORCE:4\n"
        );
        fs::write(self.path("slurm.conf"), text).expect("slurm.conf");
        let gres = format!(
            "AutoDetect=off\nName=gpu File={place}/dev/nvidia[0-{}]\nName=shard Count={shards}\n",
            gpus - 1
        );
        fs::write(self.path("gres.conf"), gres).expect("gres.conf");
        fs::write(self.path("cgroup.conf"), "CgroupPlugin=cgroup/v1\n").expect("cgroup.conf");
        // Without the user's own record of what contexts took, which jobs without an environment would find.
        let launcher = self.path("radrm-run");
        let built = artifacts::directory().display();
        let script = format!("#!/bin/sh\nXDG_DATA_HOME={place}/data exec {built}/radrm-run \"$@\"\n");
        fs::write(&launcher, script).expect("launcher");
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).expect("mode");
        symlink(artifacts::directory().join("radrm"), self.path("radrm")).expect("radrm");
        self.plug("shard=1MiB");
    }

    /// Runs `radrm` as a user does, with the user's dataset that the jobs of this cluster fill.
    pub fn radrm(&self, words: &[&str]) -> Command {
        let mut command = self.command(self.path("radrm"));
        command.args(words);
        command
    }

    /// A script in the directory in which jobs run.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn script(&self, name: &str, text: &str) {
        fs::write(self.path("work").join(name), format!("#!/bin/bash\n{text}\n")).expect("script");
    }

    /// What the controller says of a job's field, `TresPerNode` for instance.
    pub fn field(&self, job: u32, name: &str) -> String {
        let text = self.said("scontrol", &["show", "job", &job.to_string()]);
        let line = text.lines().find_map(|line| {
            let (_, value) = line.split_once(&format!("{name}="))?;
            // A comment has blanks; other fields stand side by side.
            let ends = if name == "Comment" { value.len() } else { value.find(' ').unwrap_or(value.len()) };
            Some(value[..ends].trim_end().to_owned())
        });
        line.unwrap_or_else(|| panic!("job {job} has no {name}:\n{text}"))
    }

    /// Configures the plug-in anew, with these words beside its places.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn plug(&self, words: &str) {
        let plugin = artifacts::file("libradrm_spank.so");
        let (built, place) = (artifacts::directory().display(), self.place.path().display());
        let text = format!(
            "required {} run={place}/radrm-run lib={built} state={place}/state-radrm machine={place}/machine {words}\n",
            plugin.display()
        );
        fs::write(self.path("plugstack.conf"), text).expect("plugstack.conf");
    }

    fn up(&self) {
        let mut munge = Command::new(find("munged").expect("munged"));
        for (option, name) in [
            ("socket", "run/munge.sock"),
            ("key-file", "munge.key"),
            ("pid-file", "run/munged.pid"),
            ("log-file", "log/munged.log"),
            ("seed-file", "run/munged.seed"),
        ] {
            munge.arg(format!("--{option}={}", self.path(name).display()));
        }
        self.run(munge);
        let mut controller = self.command("slurmctld");
        controller.arg("-i");
        self.run(controller);
        let mut node = self.command("slurmd");
        node.args(["-N", "node1"]);
        self.run(node);
        self.until_idle();
    }

    /// Runs a daemon, which leaves this process alone.
    fn run(&self, mut command: Command) {
        let log = fs::File::options().create(true).append(true).open(self.path("log/started")).expect("log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("log")).stderr(log);
        let status = command.status().expect("daemon");
        assert!(status.success(), "{command:?}: {status}\n{}", self.logs());
    }

    /// A program of Slurm's or of a user, who is somewhere else than the files of Slurm are.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        let mut command = Command::new(program.to_str().and_then(find).unwrap_or_else(|| program.to_owned()));
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if ["RADRM_", "CUDA_", "SLURM", "SPANK"].iter().any(|begin| name_text.starts_with(begin)) {
                command.env_remove(&name);
            }
        }
        command
            .env_remove("LD_PRELOAD")
            .env("SLURM_CONF", self.path("slurm.conf"))
            .env("XDG_DATA_HOME", self.path("data"))
            .current_dir(self.path("work"));
        command
    }

    /// What a program prints.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn said(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect(program);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Submits a script; gives the job's number.
    ///
    /// # Panics
    /// If it is rejected.
    #[track_caller]
    pub fn sbatch(&self, options: &[&str], script: &str) -> u32 {
        let mut command = self.command("sbatch");
        command.args(["--parsable", "-o", "out.%a.%j"]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("sbatch");
        let text = format!("#!/bin/bash\n{script}\n");
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("script");
        let output = child.wait_with_output().expect("sbatch");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        said.parse().unwrap_or_else(|_| panic!("sbatch: {said} {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Waits until a job has ended and all its output is there.
    #[track_caller]
    pub fn until_ended(&self, job: u32) {
        self.until("the job has ended", || {
            let state = self.said("squeue", &["-h", "-t", "all", "-j", &job.to_string(), "-o", "%T"]);
            !state.lines().any(|state| ["PENDING", "RUNNING", "COMPLETING", "SUSPENDED"].contains(&state))
        });
    }

    /// Waits until the node has no job: one that a failed hook drained never becomes idle.
    #[track_caller]
    pub fn until_idle(&self) {
        self.until("the node is idle", || self.said("sinfo", &["-h", "-o", "%T"]).trim() == "idle");
    }

    /// What a script wrote.
    ///
    /// # Panics
    /// If it is not there.
    pub fn output(&self, job: u32) -> String {
        let path = self.path(&format!("work/out.4294967294.{job}"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Recorders of a job that run.
    pub fn recorders(&self, job: u32) -> usize {
        let word = format!("--step-of=slurm-{job}");
        processes().filter(|(_, words)| words.contains(&word)).count()
    }

    /// Kills all recorders of this node, and waits until they are gone.
    ///
    /// # Panics
    /// If they do not go.
    pub fn kill_recorders(&self) {
        let word = format!("--machine={}", self.path("machine").display());
        let all = || -> Vec<u32> {
            processes().filter(|(_, words)| words.contains(&word)).map(|(pid, _)| pid).collect()
        };
        for pid in all() {
            // SAFETY: a plain system call on a process of this test.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        self.until("the recorders are gone", || all().is_empty());
    }

    /// Waits for something.
    ///
    /// # Panics
    /// If it does not come.
    #[track_caller]
    pub fn until(&self, what: &str, is_there: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_there() {
            assert!(since.elapsed() < Duration::from_secs(PATIENCE), "never: {what}\n{}", self.logs());
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// The emulated machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A file below its directory. Jobs run in `work`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// What its daemons have logged, for messages of tests.
    pub fn logs(&self) -> String {
        let end = |name: &str| {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(25).collect();
            format!("--- {name}\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        ["log/started", "log/munged.log", "log/slurmctld.log", "log/slurmd.log"].map(end).concat()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = self.command("scancel").args(["--me", "--signal=KILL"]).output();
        let _ = self.command("scancel").args(["--me"]).output();
        let pids = ["slurmd", "slurmctld", "munged"].map(|name| {
            let text = fs::read_to_string(self.path(&format!("run/{name}.pid"))).unwrap_or_default();
            text.trim().parse::<libc::pid_t>().ok().filter(|pid| *pid > 1)
        });
        let since = Instant::now();
        for pid in pids.into_iter().flatten() {
            // SAFETY: plain system calls on a daemon that this test has started.
            unsafe { libc::kill(pid, libc::SIGTERM) };
            while runs(pid) {
                if since.elapsed() > Duration::from_secs(10) {
                    // SAFETY: as above.
                    unsafe { libc::kill(pid, libc::SIGKILL) };
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Whether a process runs. One that has ended stays as a zombie where the first process of a container reaps none.
fn runs(pid: libc::pid_t) -> bool {
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

fn said(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output().expect(program);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Two ports that are free at the same time.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("port"));
    listeners.map(|listener| listener.local_addr().expect("address").port())
}

fn getrandom(room: &mut [u8]) {
    use std::io::Read;
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(room)).expect("random bytes");
}
