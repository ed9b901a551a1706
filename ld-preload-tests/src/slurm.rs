//! A Slurm with emulated GPUs: its own munge, controller and node daemons, in a directory and on ports of its own, as
//! the user that runs the test. Its nodes are `slurmd` processes on this machine, each with GPUs of its own.

use std::{
    fs,
    io::Write,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use radrm_emulator_machine::{Machine, MachineSpec};
use tempfile::TempDir;

use crate::{artifacts, rig::PATIENCE};

mod containers;
mod jobs;
mod ports;
mod processes;

pub use containers::Bundle;
pub use ports::free_ports;
use processes::runs;

/// The programs that a node needs.
const PROGRAMS: [&str; 5] = ["munged", "slurmctld", "slurmd", "srun", "sbatch"];
/// Folders in which they are besides `PATH`.
const FURTHER: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// A Slurm that runs.
pub struct Slurm {
    place: TempDir,
    /// That of each node.
    machines: Vec<Machine>,
    gpus: usize,
    further: String,
}

/// Parts of a cluster.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Nodes, `node1` and so on.
    pub nodes: usize,
    /// GPUs of each.
    pub gpus: usize,
    /// Memory of each GPU, MiB; one shard is one MiB.
    pub mib: u64,
    /// A `job_submit.lua`.
    pub script: Option<&'a str>,
    /// Further lines of `slurm.conf`.
    pub further: &'a str,
}

/// Path of a program.
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
        Self::start_with(&Setup { nodes: 1, gpus, mib, script: None, further: "" })
    }

    /// The same with a `job_submit.lua`.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_with_script(gpus: usize, mib: u64, script: &str) -> Option<Self> {
        Self::start_with(&Setup { nodes: 1, gpus, mib, script: Some(script), further: "" })
    }

    /// A cluster.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_with(setup: &Setup<'_>) -> Option<Self> {
        Self::begin(setup, None)
    }

    /// A cluster with `slurmdbd` on the database at this Unix socket, which enforces limits of users.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_accounted(setup: &Setup<'_>, database: &str) -> Option<Self> {
        Self::begin(setup, Some(database))
    }

    fn begin(setup: &Setup<'_>, database: Option<&str>) -> Option<Self> {
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
        let Setup { nodes, gpus, mib, .. } = *setup;
        let gpu = format!("[[gpu]]\nmodel = \"H100-80GB\"\nmemory_mib = {mib}\ncontext_mib = 0\n");
        let description = place.path().join("machine.toml");
        // A driver that can limit control groups.
        let text = format!("driver_version = 13040\n{}", gpu.repeat(gpus));
        fs::write(&description, text).expect("description");
        let spec = MachineSpec::parse(description.to_str().expect("text")).expect("description");
        // Ledgers of all users lie beside a machine's file.
        let folder = place.path().join("gpus");
        fs::create_dir(&folder).expect("directory");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).expect("mode");
        let machines = (1..=nodes).map(|node| {
            let file = place.path().join(format!("gpus/machine{node}"));
            let machine = Machine::create(&spec, &file).expect("emulated machine");
            // Jobs of other users take part.
            fs::set_permissions(file, fs::Permissions::from_mode(0o666)).expect("mode");
            machine
        });
        let mut slurm = Self { machines: machines.collect(), place, gpus, further: setup.further.to_owned() };
        if database.is_some() {
            let (port, place) = (free_ports(1)[0], slurm.place.path().display());
            slurm.further += &format!(
                "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n\
                 AccountingStoragePort={port}\nAccountingStoragePass={place}/run/munge.sock\n\
                 AccountingStorageTRES=gres/gpu,gres/shard\nAccountingStorageEnforce=limits\n"
            );
            slurm.configure(setup);
            slurm.configure_accounting(port);
        } else {
            slurm.configure(setup);
        }
        slurm.up(database);
        Some(slurm)
    }

    fn configure(&self, &Setup { nodes, mib, script, .. }: &Setup<'_>) {
        for folder in ["state", "log", "dev", "run", "spool", "work", "data"] {
            fs::create_dir(self.path(folder)).expect("directory");
        }
        for folder in ["work", "data"] {
            fs::set_permissions(self.path(folder), fs::Permissions::from_mode(0o1777)).expect("mode");
        }
        for node in 1..=nodes {
            for folder in [self.path(&format!("spool/node{node}")), self.node_directory(node)] {
                fs::create_dir_all(folder).expect("directory");
            }
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
        let ports = free_ports(1 + nodes);
        let controller = ports[0];
        let shards = mib * gpus as u64;
        let submit = if script.is_some() { "JobSubmitPlugins=lua\n" } else { "" };
        if let Some(script) = script {
            fs::write(self.path("job_submit.lua"), script).expect("job_submit.lua");
        }
        let lines: String = (1..=nodes)
            .map(|node| {
                format!(
                    "NodeName=node{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=64 RealMemory=64000 \
                     Gres=gpu:{gpus},shard:{shards} State=UNKNOWN\n",
                    ports[node]
                )
            })
            .collect();
        // The same for all but the plug-in's line, which names the node's own GPUs.
        let text = |node: usize| {
            format!(
                "{submit}ClusterName=radrm\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser={user}\nSlurmdUser={user}\n\
                 SlurmctldPort={controller}\nAuthType=auth/munge\nCredType=cred/munge\n\
                 AuthInfo=socket={place}/run/munge.sock\nSlurmctldPidFile={place}/run/slurmctld.pid\n\
                 SlurmdPidFile={place}/run/slurmd-%n.pid\nSlurmctldLogFile={place}/log/slurmctld.log\n\
                 SlurmdLogFile={place}/log/slurmd-%n.log\nStateSaveLocation={place}/state\n\
                 SlurmdSpoolDir={place}/spool/%n\nPlugStackConfig={}/plugstack.conf\n\
                 ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
                 JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\n\
                 SelectTypeParameters=CR_CPU\nSchedulerParameters=bf_interval=1,sched_min_interval=10000\n\
                 SlurmdParameters=config_overrides\nDebugFlags=NO_CONF_HASH\nSlurmctldTimeout=30\nSlurmdTimeout=30\n\
                 ReturnToService=2\nKillWait=2\nMessageTimeout=30\nGresTypes=gpu,shard\n{}{lines}\
                 PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP \
                 OverSubscribe=FORCE:4\n",
                self.node_directory(node).display(),
                self.further
            )
        };
        for node in 1..=nodes {
            fs::write(self.node_directory(node).join("slurm.conf"), text(node)).expect("slurm.conf");
        }
        let gres = format!(
            "AutoDetect=off\nName=gpu File={place}/dev/nvidia[0-{}]\nName=shard Count={shards}\n",
            gpus - 1
        );
        for node in 1..=nodes {
            let write = |name: &str, text: &str| {
                fs::write(self.node_directory(node).join(name), text).expect(name);
            };
            write("gres.conf", &gres);
            write("cgroup.conf", "CgroupPlugin=cgroup/v1\n");
        }
        // Without the user's own record of what contexts took, which jobs without an environment would find.
        let launcher = self.path("radrm-run");
        let built = artifacts::directory().display();
        let script = format!(
            "#!/bin/sh\ncase \"$USER\" in ''|{user}) data={place}/data;; *) data={place}/data/$USER;; esac\n\
             XDG_DATA_HOME=$data exec {built}/radrm-run \"$@\"\n"
        );
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

    /// Configures the plug-in anew, with these words beside its places.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn plug(&self, words: &str) {
        let plugin = artifacts::file("libradrm_spank.so");
        let (built, place) = (artifacts::directory().display(), self.place.path().display());
        for node in 1..=self.machines.len() {
            let text = format!(
                "required {} run={place}/radrm-run lib={built} state={place}/state-radrm{node} \
                 machine={place}/gpus/machine{node} {words}\n",
                plugin.display()
            );
            fs::write(self.node_directory(node).join("plugstack.conf"), text).expect("plugstack.conf");
        }
    }

    /// Folder of a node's configuration. That of the first one is also the controller's and the users'.
    fn node_directory(&self, node: usize) -> PathBuf {
        if node == 1 { self.place.path().to_owned() } else { self.path(&format!("node{node}")) }
    }

    fn configure_accounting(&self, port: u16) {
        let (place, user) = (self.place.path().display(), said("id", "-un"));
        let text = format!(
            "AuthType=auth/munge\nAuthInfo=socket={place}/run/munge.sock\nDbdHost=localhost\nDbdPort={port}\n\
             SlurmUser={user}\nLogFile={place}/log/slurmdbd.log\nPidFile={place}/run/slurmdbd.pid\n\
             StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\nStorageLoc=slurm\n"
        );
        fs::write(self.path("slurmdbd.conf"), text).expect("slurmdbd.conf");
        fs::set_permissions(self.path("slurmdbd.conf"), fs::Permissions::from_mode(0o600)).expect("mode");
    }

    fn up(&self, database: Option<&str>) {
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
        if let Some(database) = database {
            let mut command = self.command("slurmdbd");
            command.env("MYSQL_UNIX_PORT", database);
            self.run(command);
            self.until("slurmdbd answers", || {
                let _ = self.said("sacctmgr", &["-i", "-Q", "add", "cluster", "radrm"]);
                self.said("sacctmgr", &["-n", "-P", "show", "cluster", "format=cluster"]).contains("radrm")
            });
        }
        self.start_controller();
        (1..=self.machines.len()).for_each(|node| self.start_node(node));
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

    /// Output of a program.
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
        self.sbatch_as(None, &[], options, script)
    }

    /// The same as another user, by name and number, and with these variables.
    ///
    /// # Panics
    /// As [`Self::sbatch`].
    #[track_caller]
    pub fn sbatch_as(
        &self,
        user: Option<(&str, u32)>,
        variables: &[(&str, &str)],
        options: &[&str],
        script: &str,
    ) -> u32 {
        let mut command = self.command("sbatch");
        command.args(["--parsable", "-o", "out.%a.%j"]).args(options).envs(variables.iter().copied());
        if let Some((name, uid)) = user {
            command.uid(uid).gid(uid).env("USER", name).env("LOGNAME", name).env("HOME", self.path("work"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("sbatch");
        let text = format!("#!/bin/bash\n{script}\n");
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("script");
        let output = child.wait_with_output().expect("sbatch");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        said.parse().unwrap_or_else(|_| panic!("sbatch: {said} {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Waits until no job waits or runs, and `each` time before does something.
    #[track_caller]
    pub fn until_none(&self, what: &str, each: impl Fn()) {
        self.until(what, || {
            each();
            let output = self.command("squeue").args(["-h", "-o", "%A %T"]).output().expect("squeue");
            output.status.success() && output.stdout.is_empty()
        });
    }

    /// Waits until no node has a job: one that a failed hook drained never becomes idle.
    #[track_caller]
    pub fn until_idle(&self) {
        self.until("all nodes are idle", || self.is_idle());
    }

    /// Returns true if no node has a job.
    pub fn is_idle(&self) -> bool {
        let states = self.said("sinfo", &["-h", "-N", "-o", "%T"]);
        states.lines().count() == self.machines.len() && states.lines().all(|state| state == "idle")
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

    /// The emulated machines of the nodes.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// A file below its directory. Jobs run in `work`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Ends of the logs of its daemons, for messages of tests.
    pub fn logs(&self) -> String {
        let end = |name: &str| {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(25).collect();
            format!("--- {name}\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        let nodes = (1..=self.machines.len()).map(|node| format!("log/slurmd-node{node}.log"));
        let names =
            ["log/started", "log/munged.log", "log/slurmctld.log", "log/slurmdbd.log"].map(str::to_owned);
        names.into_iter().chain(nodes).map(|name| end(&name)).chain([self.shown_processes()]).collect()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let jobs = self.command("squeue").args(["-h", "-o", "%A"]).output();
        let jobs =
            jobs.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        for words in [&["--signal=KILL"][..], &[]] {
            let _ = self.command("scancel").args(words).args(jobs.split_whitespace()).output();
        }
        let nodes = (1..=self.machines.len()).map(|node| format!("slurmd-node{node}"));
        let names = nodes.chain(["slurmctld", "slurmdbd", "munged"].map(str::to_owned));
        let pids: Vec<_> = names.map(|name| self.daemon(&name)).collect();
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
        self.end_steps();
    }
}

fn said(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output().expect(program);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn getrandom(room: &mut [u8]) {
    use std::io::Read;
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(room)).expect("random bytes");
}
