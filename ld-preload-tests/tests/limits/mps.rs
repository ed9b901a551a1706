//! `radrm-run --mps` against a stand-in of the control daemon. What MPS does with a share or a limit, only
//! a real GPU can show; here is tested what is asked of it, and that what it would drop is said.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use radrm_preload_tests::{
    child::{self, Ended, Running},
    programs,
    rig::{PATIENCE, Rig},
};

/// A rig with the stand-in in its `PATH`, under the real one's name.
pub(super) struct Node {
    pub(super) rig: Rig,
}

impl Node {
    pub(super) fn new(gpus: &str) -> Self {
        let rig = Rig::emulated(gpus);
        let bin = rig.path().join("bin");
        fs::create_dir(&bin).expect("bin");
        symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), bin.join("nvidia-cuda-mps-control"))
            .expect("stand-in");
        Self { rig }
    }

    fn with_stand_in(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.rig.path().join("bin").display()));
        command.env("XDG_CONFIG_HOME", self.rig.path().join("config"));
    }

    /// `radrm-run` with these options and this program, saying what it has to say.
    pub(super) fn run(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = self.rig.bare_command(radrm_preload_tests::artifacts::file("radrm-run"));
        command.env("RADRM_LIB_DIR", radrm_preload_tests::artifacts::directory());
        command.env_remove("RADRM_EMULATED_MACHINE");
        command.args(["--no-dataset", "--no-profile", "--wait-all", "--json=/dev/null", "--machine"]);
        command.arg(self.rig.machine_path()).args(options).arg("--").args(program);
        self.with_stand_in(&mut command);
        command
    }

    /// The same where MPS has protocol 3, in this behaviour of the stand-in.
    pub(super) fn run_third(&self, behaviour: &str, options: &[&str], program: &[&str]) -> Command {
        let mut command = self.run(options, program);
        let spec = self.rig.machine().spec();
        let device = |at| format!("{}={}", spec.uuid_text(at), spec.gpu[at].sms);
        let devices: Vec<String> = (0..spec.gpu.len()).map(device).collect();
        command.env("RADRM_MPS_STANDIN", behaviour).env("RADRM_MPS_STANDIN_DEVICES", devices.join(","));
        command
    }

    /// The pipe directory of the user's own daemon.
    pub(super) fn pipe(&self) -> PathBuf {
        let uid = rustix_uid();
        PathBuf::from(format!("{}.own-{uid}/mps", self.rig.machine_path().display()))
    }

    /// Asks the stand-in.
    pub(super) fn ask(&self, pipe: &Path, question: &str) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radrm-mps-standin"));
        command.env("CUDA_MPS_PIPE_DIRECTORY", pipe);
        let mut running = Running::start(command, PATIENCE);
        running.say(&format!("{question}\n"));
        running.end()
    }

    pub(super) fn is_alive(&self, pipe: &Path) -> bool {
        self.ask(pipe, "get_server_list").status.success()
    }

    /// A daemon that another user runs.
    fn foreign(&self, behaviour: &str) -> (PathBuf, Running) {
        let pipe = self.rig.path().join("foreign");
        let mut command = Command::new(env!("CARGO_BIN_EXE_radrm-mps-standin"));
        command.arg("-f").env("CUDA_MPS_PIPE_DIRECTORY", &pipe).env("CUDA_MPS_LOG_DIRECTORY", &pipe);
        command.env("RADRM_MPS_STANDIN", behaviour);
        let running = Running::start(command, 120);
        until(|| pipe.join("nvidia-cuda-mps-control.pid").exists());
        (pipe, running)
    }
}

pub(super) fn rustix_uid() -> u32 {
    // SAFETY: always works.
    unsafe { libc::getuid() }
}

#[track_caller]
pub(super) fn until(mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(PATIENCE);
    while !condition() {
        assert!(Instant::now() < give_up, "it does not come true");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn value<'a>(ended: &'a Ended, name: &str) -> Option<&'a str> {
    ended.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[track_caller]
fn refused(ended: &Ended, part: &str) {
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains(part) && ended.stderr.lines().count() == 1, "{ended:?}");
    assert_eq!(ended.stdout, "", "the program ran");
}

#[test]
fn the_daemon_runs_as_long_as_a_job_uses_it() {
    let node = Node::new("1xH200");
    let mut one = Running::start(node.run(&["--mps"], &["sh", "-c", "echo begun; read end"]), PATIENCE);
    assert_eq!(one.line(), "begun\n");
    let pipe = node.pipe();
    assert!(node.is_alive(&pipe));
    let mut two = Running::start(node.run(&["--mps=30"], &["sh", "-c", "echo begun; read end"]), PATIENCE);
    assert_eq!(two.line(), "begun\n");
    one.go_on();
    one.end().ok();
    assert!(node.is_alive(&pipe), "another job still uses it");
    two.go_on();
    two.end().ok();
    assert!(!node.is_alive(&pipe), "it has no client any more");
}

#[test]
fn many_jobs_that_start_at_once_share_one_daemon() {
    let node = Node::new("1xH200");
    let jobs: Vec<Running> =
        (0..12).map(|_| Running::start(node.run(&["--mps"], &["sleep", "0.1"]), PATIENCE)).collect();
    for job in jobs {
        let ended = job.end().ok();
        assert_eq!(ended.stderr, "");
    }
    assert!(!node.is_alive(&node.pipe()));
}

#[test]
fn the_next_job_adopts_and_ends_a_dead_launchers_mps_daemon() {
    let node = Node::new("1xH200");
    let mut killed = Running::start(node.run(&["--mps"], &["sh", "-c", "echo begun; read end"]), PATIENCE);
    killed.line();
    killed.signal(libc::SIGKILL);
    killed.end();
    assert!(node.is_alive(&node.pipe()));
    child::run(node.run(&["--mps"], &["true"]), PATIENCE).ok();
    assert!(!node.is_alive(&node.pipe()));
}

#[test]
fn the_program_is_told_its_share_and_its_fence() {
    let node = Node::new("2xA100-40GB");
    let spec = node.rig.machine().spec().clone();
    let fence = |gpu: usize, mib: u64| format!("{}={mib}M", spec.uuid_text(gpu));
    let told = |options: &[&str], visible: Option<&str>| {
        let mut command = node.run(options, &["env"]);
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        child::run(command, PATIENCE).ok()
    };
    let ended = told(&["--mps"], None);
    assert_eq!(value(&ended, "CUDA_MPS_PIPE_DIRECTORY"), node.pipe().to_str());
    assert_eq!(value(&ended, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), None);
    assert_eq!(value(&ended, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), None);
    let ended = told(&["--mps=30%", "--mem-limit", "0=10GiB,1=4GiB"], None);
    assert_eq!(value(&ended, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("30"));
    let both = format!("{},{}", fence(0, 10 * 1024 + 512), fence(1, 4 * 1024 + 512));
    assert_eq!(value(&ended, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), Some(both.as_str()));
    // An entry for a GPU that the program does not see would drop them all.
    let ended = told(&["--mps", "--mem-limit", "10GiB"], Some("1"));
    assert_eq!(value(&ended, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), Some(fence(1, 10 * 1024 + 512).as_str()));
}

#[test]
fn the_users_limit_stands_behind_every_client_of_the_users_daemon() {
    let node = Node::new("2xA100-40GB");
    let file = node.rig.path().join("node.toml");
    fs::write(&file, format!("[user.{}]\nmem-limit = \"0=20GiB\"\n", rustix_uid())).expect("file");
    let mut command = node.run(&["--mps", "--mem-limit", "5GiB"], &["sh", "-c", "echo begun; read end"]);
    command.env("RADRM_CONFIG", &file);
    let mut job = Running::start(command, PATIENCE);
    job.line();
    let spec = node.rig.machine().spec().clone();
    let default = |gpu: usize| {
        node.ask(&node.pipe(), &format!("get_default_device_pinned_mem_limit {}", spec.uuid_text(gpu))).stdout
    };
    assert_eq!((default(0).as_str(), default(1).as_str()), ("20G\n", ""), "the user's limit, not the job's");
    job.go_on();
    job.end().ok();
}

#[test]
fn what_is_meant_for_the_job_does_not_reach_the_daemon() {
    let node = Node::new("1xH200");
    let mut command = node.run(&["--mps"], &["sh", "-c", "echo begun; read end"]);
    command.env("CUDA_VISIBLE_DEVICES", "0").env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "7");
    let mut job = Running::start(command, PATIENCE);
    job.line();
    let pipe = node.pipe();
    assert_eq!(node.ask(&pipe, "get_default_active_thread_percentage").stdout, "100.0\n");
    for name in ["visible_devices", "preload"] {
        assert_eq!(node.ask(&pipe, &format!("standin_environment {name}")).stdout, "\n", "{name}");
    }
    job.go_on();
    job.end().ok();
}

#[test]
fn an_mps_daemon_of_another_owner_is_used_and_left_alone() {
    let node = Node::new("1xH200");
    let (pipe, daemon) = node.foreign("");
    let mut command = node.run(&["--mps"], &["env"]);
    command.env("CUDA_MPS_PIPE_DIRECTORY", &pipe);
    let ended = child::run(command, PATIENCE).ok();
    assert_eq!(value(&ended, "CUDA_MPS_PIPE_DIRECTORY"), pipe.to_str());
    assert!(node.is_alive(&pipe));
    assert!(!node.pipe().join("control").exists(), "no second daemon");
    node.ask(&pipe, "quit");
    daemon.end().ok();
}

#[test]
fn the_configuration_can_use_mps_for_every_job() {
    let node = Node::new("1xH200");
    let (pipe, _daemon) = node.foreign("");
    let file = node.rig.path().join("node.toml");
    let text = format!(
        "[mps]\nenable = true\nactive-thread-percentage = 40\npipe-directory = {:?}\n",
        pipe.display().to_string()
    );
    fs::write(&file, text).expect("file");
    let mut command = node.run(&[], &["env"]);
    command.env("RADRM_CONFIG", &file);
    let ended = child::run(command, PATIENCE).ok();
    assert_eq!(value(&ended, "CUDA_MPS_PIPE_DIRECTORY"), pipe.to_str());
    assert_eq!(value(&ended, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("40"));
    let mut command = node.run(&["--mps=20"], &["env"]);
    command.env("RADRM_CONFIG", &file);
    let ended = child::run(command, PATIENCE).ok();
    assert_eq!(value(&ended, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("20"));
    node.ask(&pipe, "quit");
}

#[test]
fn mps_that_would_silently_not_be_used_keeps_the_program_from_starting() {
    let node = Node::new("1xH200");
    let mut command = node.run(&["--mps"], &["env"]);
    command.env("CUDA_MPS_PIPE_DIRECTORY", node.rig.path().join("nowhere"));
    refused(&child::run(command, PATIENCE), "no control daemon answers there");
    let mut command = node.run(&["--mps"], &["env"]);
    command.env("PATH", "/usr/bin:/bin");
    refused(&child::run(command, PATIENCE), "nvidia-cuda-mps-control is not installed");
    let mut command = node.run(&["--mps"], &["env"]);
    command.env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,1=1G");
    refused(&child::run(command, PATIENCE), "names GPU 1, which the program does not see");
    assert!(!node.is_alive(&node.pipe()), "the daemon went with the job that did not start");
    let missing = child::run(node.run(&["--mps"], &["/no/such/program"]), PATIENCE);
    assert_eq!(missing.status.code(), Some(127));
    assert!(!node.is_alive(&node.pipe()), "the daemon went with the program that is not there");
}

#[test]
fn a_daemon_that_does_not_answer_does_not_hang_the_job() {
    let node = Node::new("1xH200");
    let (pipe, _daemon) = node.foreign("mute");
    let mut command = node.run(&["--mps"], &["env"]);
    command.env("CUDA_MPS_PIPE_DIRECTORY", &pipe);
    refused(&child::run(command, PATIENCE), "does not answer");
}

#[test]
fn limits_of_mps_that_have_no_effect_are_named() {
    let node = Node::new("1xH200");
    let (pipe, _daemon) = node.foreign("");
    let nowhere = node.rig.path().join("nowhere");
    let said = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = node.run(options, &["true"]);
        command.envs(variables.iter().copied());
        child::run(command, PATIENCE).ok().stderr
    };
    let limit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
    let (pipe, nowhere) = (pipe.to_str().expect("path"), nowhere.to_str().expect("path"));
    let at = |pipe| ("CUDA_MPS_PIPE_DIRECTORY", pipe);
    assert!(said(&[], &[at(nowhere)]).contains("no MPS control daemon answers in"));
    assert!(said(&[], &[(limit, "0=1G"), at(nowhere)]).contains("runs without MPS and without its limits"));
    assert!(said(&[], &[(limit, "0=1G"), at(pipe)]).contains("shows as free memory only"));
    assert!(said(&[], &[(limit, "0=1G,3=1G"), at(pipe)]).contains("names GPU 3"));
    assert!(said(&[], &[(limit, "0=1000000"), at(pipe)]).contains("does not understand `0=1000000`"));
    assert!(
        said(&["--mem-limit", "2GiB"], &[(limit, "0=1G"), at(pipe)])
            .contains("holds for all of them together")
    );
    assert_eq!(said(&[], &[]), "");
    node.ask(Path::new(pipe), "quit");
}

#[test]
fn a_process_of_the_job_that_is_no_client_is_named() {
    let node = Node::new("1xH200");
    let steps = programs::compile("steps.c", &[]).display().to_string();
    let mut stray = Running::start(
        node.run(
            &["--mps"],
            &["env", "-u", "CUDA_MPS_PIPE_DIRECTORY", &steps, "use:0", "alloc:a:5m", "pause"],
        ),
        PATIENCE,
    );
    let pid = stray.until_ready();
    thread::sleep(Duration::from_millis(2500));
    stray.go_on();
    let ended = stray.end().ok();
    assert!(
        ended.stderr.contains(&format!("process {pid} of this job uses a GPU without being a client")),
        "{ended:?}"
    );
    let mut client =
        Running::start(node.run(&["--mps"], &[&steps, "use:0", "alloc:a:5m", "pause"]), PATIENCE);
    client.until_ready();
    thread::sleep(Duration::from_millis(2500));
    client.go_on();
    assert_eq!(client.end().ok().stderr, "");
}

/// Two jobs keep one GPU busy at the same time under shares of 30 and 70 %: the first one's part of the rate at which
/// the GPU does their kernels.
fn part_of_30_beside_70(first: &str, second: &str) -> f64 {
    let node = Node::new("1xH200");
    let program = programs::compile("shares.c", &[]);
    let start = |share: &str, way: &str| {
        let mut command = node.run(&[share], &[program.to_str().expect("text"), way, "2", "rate"]);
        command.env("RADRM_EMULATOR_TIME", "real");
        let mut running = Running::start(command, PATIENCE);
        running.until_ready();
        running
    };
    let mut jobs = [start("--mps=30", first), start("--mps=70", second)];
    jobs.iter_mut().for_each(Running::go_on);
    let [first, second] = jobs.map(|job| {
        let said = job.end().ok().stdout;
        said.trim().parse::<f64>().unwrap_or_else(|_| panic!("{said:?}"))
    });
    first / (first + second)
}

#[test]
fn case_16_shares_of_30_and_70_percent_hold_for_graphs_too() {
    for (first, second) in [("launches", "launches"), ("graphs", "graphs"), ("graphs", "launches")] {
        let part = part_of_30_beside_70(first, second);
        assert!((0.27..=0.33).contains(&part), "{first} beside {second}: {part}");
    }
}

#[test]
fn case_18_two_mps_clients_share_one_quota_exactly() {
    let mut node = Node::new("1xH200");
    node.rig = node.rig.limited("20GiB");
    let mut command = node.rig.launcher();
    command.args(["--mps", "--"]).arg(programs::compile("steps.c", &[]));
    // Each of them wants 60 % of it and would fit beside MPS's own limit, which is one for each process.
    command.args(["fork:2", "use:0", "alloc:b:1m", "alloc:a:12g", "sleep:1500"]);
    node.with_stand_in(&mut command);
    let ended = child::run(command, PATIENCE);
    assert_eq!(ended.status.code(), Some(45), "{ended:?}");
    assert_eq!(ended.stderr.matches("= 2").count(), 1, "{}", ended.stderr);
    let outcome = node.rig.outcome(ended);
    assert_eq!(outcome.assert_equals_ledger(), 2);
}
