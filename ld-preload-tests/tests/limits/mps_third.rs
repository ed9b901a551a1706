//! `radrm-run --mps` against a stand-in of a control daemon with protocol 3: servers, namespaces and SM partitions.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use radrm_preload_tests::{
    child::{self, Running},
    programs,
    rig::PATIENCE,
    rights::Rights,
};

use super::hostile::Shared;
use super::mps::{Node, rustix_uid, until, value};
use super::users::{ALICE, BOB, GROUP};

const PIPE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const PARTITION: &str = "CUDA_MPS_SM_PARTITION";

/// Commands that the user's daemon got.
fn log(node: &Node) -> String {
    fs::read_to_string(node.pipe().join("log/control.log")).unwrap_or_default()
}

fn is_gone(node: &Node) -> bool {
    !node.pipe().join("nvidia-cuda-mps-control.pid").exists()
}

#[test]
fn each_job_has_a_namespace_below_the_server_of_its_user() {
    let node = Node::new("1xH200");
    let file = node.rig.path().join("node.toml");
    fs::write(&file, format!("[user.{}]\nmem-limit = \"20GiB\"\n", rustix_uid())).expect("file");
    let mut command = node.run_third("v3", &["--mps=40", "--mem-limit", "10GiB"], &["env"]);
    command.env("RADRM_CONFIG", &file);
    let ended = child::run(command, PATIENCE).ok();
    let server = format!("uid_{}", rustix_uid());
    let pipe = Path::new(value(&ended, PIPE).expect("a pipe directory"));
    assert_eq!(pipe.parent(), Some(&*node.pipe().join(&server)), "{ended:?}");
    let name = pipe.file_name().expect("a name").to_str().expect("text");
    let log = log(&node);
    for command in [
        format!("server create {server} --uid={}\n", rustix_uid()),
        format!("server set {server} --pinned-memory-limit=20992M\n"),
        format!("namespace create {name} --server={server}\n"),
        format!(
            "namespace set {name} --server={server} --pinned-memory-limit=10752M --active-thread-percentage=40\n"
        ),
        format!("namespace delete {name} --server={server} --force\n"),
        "Cmd:-q\n".to_owned(),
    ] {
        assert!(log.contains(&command), "{command}: {log}");
    }
    assert_eq!(value(&ended, PARTITION), None);
    assert!(is_gone(&node), "it ended with its last job");
}

#[test]
fn protocol_2_stays_where_it_is_asked_for_or_runs_already() {
    let node = Node::new("1xH200");
    let asked = child::run(node.run_third("v3", &["--mps", "--mps-protocol=2"], &["env"]), PATIENCE).ok();
    assert_eq!(value(&asked, PIPE), node.pipe().to_str());
    let mut old = Running::start(node.run(&["--mps"], &["sh", "-c", "echo begun; read end"]), PATIENCE);
    old.line();
    let joined = child::run(node.run_third("v3", &["--mps"], &["env"]), PATIENCE).ok();
    assert_eq!(value(&joined, PIPE), node.pipe().to_str(), "a daemon keeps its protocol");
    old.go_on();
    old.end().ok();
    assert!(is_gone(&node));
}

#[test]
fn a_job_sees_the_sms_of_its_partition_and_a_neighbour_gets_the_rest() {
    let node = Node::new("1xA100-40GB");
    let steps = programs::compile("steps.c", &[]).display().to_string();
    let start = |option: &str| {
        let program = [&steps, "use:0", "sms:0", "pause"];
        let mut job = Running::start(node.run_third("v3", &["--mps", option], &program), PATIENCE);
        let line = job.line();
        (job, line)
    };
    let sees = |line: &str, sms: u32| assert_eq!(line.trim(), format!("sms {sms}"));
    // 108 multiprocessors in 27 chunks of 4: half of them is 13 chunks at most.
    let (half, line) = start("--mps-partition=50");
    sees(&line, 52);
    let (rest, line) = start("--mps-partition");
    sees(&line, 56);
    for mut job in [half, rest] {
        job.until_ready();
        job.go_on();
        assert_eq!(job.end().ok().stderr, "");
    }
    assert!(is_gone(&node));
    let log = log(&node);
    assert_eq!(log.matches("sm-partition create run_").count(), 2, "{log}");
    assert_eq!(log.matches("sm-partition delete run_").count(), 2, "{log}");
    // Without partitions a GPU is whole.
    let whole = child::run(node.run_third("v3", &["--mps", "--mps-partition"], &["env"]), PATIENCE).ok();
    assert_eq!(value(&whole, PARTITION), None);
}

#[test]
fn a_share_holds_by_percentage_where_no_partition_can_be_had() {
    let node = Node::new("1xA100-40GB");
    let steps = programs::compile("steps.c", &[]).display().to_string();
    // It divides no GPU that has clients.
    let program = [&steps, "use:0", "pause"];
    let mut first =
        Running::start(node.run_third("v3-strict", &["--mps", "--mps-partition=50"], &program), PATIENCE);
    first.until_ready();
    let second =
        child::run(node.run_third("v3-strict", &["--mps", "--mps-partition=30"], &["env"]), PATIENCE).ok();
    assert!(
        second.stderr.contains("no SM partition: ") && second.stderr.contains("active clients"),
        "{second:?}"
    );
    assert!(second.stderr.contains("at most 30 % of the SMs"), "{second:?}");
    assert_eq!(value(&second, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("30"));
    assert_eq!(value(&second, PARTITION), None);
    assert!(log(&node).contains("--active-thread-percentage=30"), "the namespace has the share, too");
    first.go_on();
    first.end().ok();
    let old = child::run(node.run(&["--mps", "--mps-partition=30"], &["env"]), PATIENCE).ok();
    assert_eq!(value(&old, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("30"));
    assert!(old.stderr.contains("protocol 3"), "{old:?}");
}

#[test]
fn what_a_killed_launcher_left_is_removed_by_the_next_job() {
    let node = Node::new("1xA100-40GB");
    let sleeper = ["sh", "-c", "echo begun; read end"];
    let mut killed =
        Running::start(node.run_third("v3", &["--mps", "--mps-partition=50"], &sleeper), PATIENCE);
    killed.line();
    let server = node.pipe().join(format!("uid_{}", rustix_uid()));
    let namespaces = || {
        let entries = fs::read_dir(&server).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("run_")).collect::<Vec<_>>()
    };
    let left = namespaces();
    killed.signal(libc::SIGKILL);
    killed.end();
    assert_eq!((left.len(), namespaces()), (1, left.clone()));
    let steps = programs::compile("steps.c", &[]).display().to_string();
    let next = child::run(
        node.run_third("v3", &["--mps", "--mps-partition=100"], &[&steps, "use:0", "sms:0"]),
        PATIENCE,
    );
    assert!(next.ok().stdout.contains("sms 108"), "its partition is free again");
    assert!(is_gone(&node));
}

#[test]
fn limits_of_a_namespace_hold_for_clients_without_the_shim() {
    let node = Node::new("1xA100-40GB");
    let namespace = node.rig.path().join("server/namespace");
    fs::create_dir_all(&namespace).expect("folder");
    for (file, text) in [("control", ""), ("standin-limits", "memory_mib 2048\n")] {
        fs::write(namespace.join(file), text).expect("file");
    }
    let run = |steps: &[&str]| {
        let mut command = node.rig.bare_command(programs::compile("steps.c", &[]));
        command.args(steps).env(PIPE, &namespace).env_remove("LD_PRELOAD");
        child::run(command, PATIENCE).ok();
    };
    run(&["use:0", "alloc:a:1g", "!alloc:b:1500m"]);
    // Each process has the limit of its own.
    run(&["fork:2", "use:0", "alloc:a:1g"]);
    let uuid = node.rig.machine().spec().uuid_text(0);
    fs::write(node.rig.path().join("server/standin-partitions"), format!("{uuid} one 16\n")).expect("file");
    let mut command = node.rig.bare_command(programs::compile("steps.c", &[]));
    command.args(["use:0", "sms:0"]).env(PIPE, &namespace).env(PARTITION, format!("{uuid}/one"));
    assert!(child::run(command, PATIENCE).ok().stdout.contains("sms 16"));
}

#[test]
fn a_launcher_inside_a_namespace_uses_it_and_leaves_it_alone() {
    let node = Node::new("1xH200");
    let mut job = Running::start(
        node.run_third("v3", &["--mps"], &["sh", "-c", "env; echo begun; read end"]),
        PATIENCE,
    );
    let pipe = loop {
        let line = job.line();
        if let Some(pipe) = line.trim().strip_prefix("CUDA_MPS_PIPE_DIRECTORY=") {
            break pipe.to_owned();
        }
    };
    let mut inner = node.run_third("v3", &["--mps"], &["env"]);
    inner.env(PIPE, &pipe);
    let inner = child::run(inner, PATIENCE).ok();
    assert_eq!(value(&inner, PIPE), Some(&*pipe));
    assert!(Path::new(&pipe).join("control").exists(), "the end of the inner one ended nothing");
    job.go_on();
    job.end().ok();
    until(|| is_gone(&node));
}

#[test]
fn each_mig_instance_has_a_control_daemon_that_serves_nothing_else() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("file");
    let text = "[[gpu]]\nmodel = \"A100-40GB\"\nname = \"NVIDIA A100 MIG 1g.5gb\"\nmig_profile = \"1g.5gb\"\n\
                memory_mib = 4864\nsms = 14\ncount = 2\n";
    fs::write(file.path(), text).expect("file");
    let node = Node::new(&file.path().display().to_string());
    let spec = node.rig.machine().spec().clone();
    let run = |visible: &str, words: &[&str]| {
        let mut command = node.run(&["--mps"], words);
        command.env("CUDA_VISIBLE_DEVICES", visible);
        command
    };
    let [one, two] = [0, 1].map(|at| spec.uuid_text(at));
    let pipe_of = |instance: &str| {
        let ended = child::run(run(instance, &["env"]), PATIENCE).ok();
        value(&ended, PIPE).expect("a pipe directory").to_owned()
    };
    let pipes = [pipe_of(&one), pipe_of(&two)];
    assert!(pipes[0] != pipes[1] && pipes.iter().all(|pipe| Path::new(pipe) != node.pipe()), "{pipes:?}");
    let sleeper = ["sh", "-c", "echo begun; read end"];
    let mut job = Running::start(run(&one, &sleeper), PATIENCE);
    job.line();
    let control = node.ask(Path::new(&pipes[0]), "standin_environment visible_devices").stdout;
    assert_eq!(control.trim(), one, "its daemon sees the instance and nothing else");
    assert!(!Path::new(&pipes[1]).join("control").exists());
    job.go_on();
    job.end().ok();
    assert!(!node.is_alive(Path::new(&pipes[0])));
}

#[test]
fn no_user_comes_into_the_pipe_directory_of_another() {
    let Some(shared) = Shared::with(&format!("[group.{GROUP}]\nmem-limit = \"1GiB\"\n")) else { return };
    let bin = shared.stand_in();
    let (mut job, pipe) = shared.under_mps(ALICE, &bin, "v3");
    // The directory of the daemon, above those of the server and the namespace.
    let own = Path::new(&pipe).parent().and_then(Path::parent).expect("the daemon's").to_owned();
    let root = fs::metadata("/proc/self").expect("this process").uid();
    Rights::of("MPS").assert(
        &[("RUNTIME/mps", &own)],
        &[("user", ALICE), ("root", root)],
        &["RUNTIME/mps", "RUNTIME/mps/*.lock", "RUNTIME/mps/log"],
    );
    for attack in [
        format!("ls {pipe}"),
        format!("echo > {pipe}/standin-limits"),
        format!("cat {}/log/control.log", own.display()),
        format!(
            "CUDA_MPS_PIPE_DIRECTORY={} RADRM_MPS_STANDIN=v3 {}/nvidia-cuda-mps-control server list",
            own.display(),
            bin.display()
        ),
        format!(
            "CUDA_MPS_PIPE_DIRECTORY={} RADRM_MPS_STANDIN=v3 {}/nvidia-cuda-mps-control -q",
            own.display(),
            bin.display()
        ),
    ] {
        assert!(!shared.shell(BOB, &attack).status.success(), "{attack}");
    }
    // A job of bob that names alice's namespace is none of its clients, and does not start.
    let refused = shared.joining(BOB, &bin, &pipe);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    job.go_on();
    job.end().ok();
}
