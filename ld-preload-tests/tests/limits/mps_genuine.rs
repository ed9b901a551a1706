//! The genuine MPS control daemon under `radrm-run --mps`, and the stand-in held against it.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use radrm_preload_tests::{
    child::Running,
    genuine::{Generation, generations, oracles},
    rig::PATIENCE,
};

use crate::mps::{Node, until};

/// Questions to a daemon without a server, and none of them starts one.
const CONVERSATION: &str = "help
get_server_list
get_server_list extra
get_client_list 1
get_server_status 1
get_default_active_thread_percentage
set_default_active_thread_percentage 30
get_default_active_thread_percentage
set_default_active_thread_percentage 0
set_default_active_thread_percentage 101
set_default_active_thread_percentage abc
set_default_active_thread_percentage 33.5
set_default_active_thread_percentage 99.99
set_default_active_thread_percentage 30 40
set_active_thread_percentage 1 30
get_active_thread_percentage 1
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 1G
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 abc
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 20992M
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0 100
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 0=1G
set_device_pinned_mem_limit 1 0 1G
get_device_pinned_mem_limit 1 0
get_default_client_priority
set_default_client_priority 1
set_default_client_priority 7
get_default_client_priority
ps
ps -p 1
terminate_client 1 2
lspart
nonsense
";

/// Questions of a user who did not start the daemon, among them what only the owner and root may ask.
const FOREIGN: &str = "get_server_list
get_default_active_thread_percentage
set_default_active_thread_percentage 30
get_default_active_thread_percentage
set_default_device_pinned_mem_limit 0 1G
get_default_device_pinned_mem_limit 0
set_default_client_priority 1
get_default_client_priority
ps
";

/// Users that no other test has.
const OWNER: u32 = 64_011;
const OTHER: u32 = 64_012;

/// A control program, the stand-in or a genuine one, with a pipe directory of its own.
struct Program {
    program: PathBuf,
    libraries: Option<PathBuf>,
    folder: tempfile::TempDir,
}

impl Program {
    fn new(program: PathBuf, libraries: Option<PathBuf>) -> Self {
        Self { program, libraries, folder: tempfile::tempdir().expect("pipe directory") }
    }

    fn genuine(generation: &Generation) -> Self {
        Self::new(generation.programs().join("nvidia-cuda-mps-control"), Some(generation.libraries()))
    }

    /// Runs the program as the own user, or as another one.
    fn run_as(&self, user: Option<u32>, arguments: &[&str], said: &str) -> (Option<i32>, String) {
        let mut command = Command::new(&self.program);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.args(arguments).envs(self.libraries.iter().map(|folder| ("LD_LIBRARY_PATH", folder)));
        // A daemon keeps its standard streams: its output goes to a file, which has an end.
        let output = fs::File::create(self.folder.path().join("output")).expect("output");
        let input = self.folder.path().join("input");
        fs::write(&input, said).expect("input");
        command
            .stdin(fs::File::open(input).expect("input"))
            .stdout(output.try_clone().expect("output"))
            .stderr(output);
        for variable in ["CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"] {
            command.env(variable, self.folder.path());
        }
        let status = command.status().expect("control program");
        (status.code(), fs::read_to_string(self.folder.path().join("output")).expect("output"))
    }

    fn run(&self, arguments: &[&str], said: &str) -> (Option<i32>, String) {
        self.run_as(None, arguments, said)
    }

    /// Answers of a daemon of one user to another one and to root, from its start to its end.
    fn users(&self, owner: Option<u32>, questions: &[&str]) -> Vec<String> {
        // All users may come in, as to the usual directory.
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
        let mut answers = vec![format!("start: {:?}", self.run_as(owner, &["-d"], ""))];
        for (who, user) in [("other user", Some(OTHER)), ("owner", owner), ("root", None)] {
            answers.extend(
                questions
                    .iter()
                    .map(|ask| format!("{who}: {ask}: {:?}", self.run_as(user, &[], &format!("{ask}\n")))),
            );
        }
        answers.push(format!("another user ends it: {:?}", self.run_as(Some(OTHER), &[], "quit\n")));
        answers.push(format!("still there: {:?}", self.run(&[], "get_server_list\n")));
        self.run_as(owner, &[], "quit\n");
        until(|| self.run(&[], "get_server_list\n").0 == Some(1));
        answers
    }

    /// Every answer of a daemon from its start to its end.
    fn conversation(&self, questions: &[&str]) -> Vec<String> {
        let mut answers = vec![
            format!("absent: {:?}", self.run(&[], "get_server_list\n")),
            format!("start: {:?}", self.run(&["-d"], "")),
            format!("second start: {:?}", self.run(&["-d"], "")),
        ];
        answers
            .extend(questions.iter().map(|ask| format!("{ask}: {:?}", self.run(&[], &format!("{ask}\n")))));
        answers.push(format!("all at once: {:?}", self.run(&[], &questions.join("\n"))));
        self.run(&[], "quit\n");
        until(|| self.run(&[], "get_server_list\n").0 == Some(1));
        answers
    }
}

#[test]
fn stand_in_talks_like_the_genuine_mps_daemon() {
    for oracle in oracles() {
        // 535 has one command less.
        let missing = |question: &&str| oracle.name == "535" && question.starts_with("get_server_status");
        let questions: Vec<&str> = CONVERSATION.lines().filter(|question| !missing(question)).collect();
        let stand_in = Program::new(env!("CARGO_BIN_EXE_radrm-mps-standin").into(), None);
        let said = oracle.answers("mps", |genuine| Program::genuine(genuine).conversation(&questions));
        assert_eq!(stand_in.conversation(&questions), said, "{}", oracle.name);
    }
}

#[test]
fn stand_in_refuses_other_users_like_the_genuine_mps_daemon() {
    // SAFETY: a plain system call.
    if unsafe { libc::getuid() } != 0 {
        eprintln!("skipped: only root can be another user");
        return;
    }
    for oracle in oracles() {
        // 535 lets every user change the settings.
        let old = oracle.name == "535";
        let questions: Vec<&str> =
            FOREIGN.lines().filter(|question| !old || !question.starts_with("set_")).collect();
        for owner in [None, Some(OWNER)] {
            let stand_in = Program::new(env!("CARGO_BIN_EXE_radrm-mps-standin").into(), None);
            let record = if owner.is_none() { "mps-of-root" } else { "mps-of-a-user" };
            let said = oracle.answers(record, |genuine| Program::genuine(genuine).users(owner, &questions));
            let refused = said.iter().filter(|answer| answer.contains("rivilege")).count();
            assert_eq!(refused, if old { 1 } else { 4 }, "settings and the end: {said:?}");
            assert_eq!(stand_in.users(owner, &questions), said, "{}, daemon of {owner:?}", oracle.name);
        }
    }
}

/// Control daemons of a pipe directory. Driver 535's writes no file of its process id.
fn daemons_of(pipe: &Path) -> Vec<libc::pid_t> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let is_daemon = |process: &Path| {
        let read = |name: &str| fs::read(process.join(name)).unwrap_or_default();
        let named = format!("CUDA_MPS_PIPE_DIRECTORY={}", pipe.display());
        String::from_utf8_lossy(&read("cmdline")).contains("nvidia-cuda-mps-control")
            && read("environ").split(|byte| *byte == 0).any(|entry| entry == named.as_bytes())
    };
    let found = processes.filter(|process| is_daemon(&process.path()));
    found.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
}

#[test]
fn jobs_start_and_end_the_genuine_mps_daemon() {
    for generation in generations() {
        let node = Node::new("1xH200");
        let link = node.rig.path().join("bin/nvidia-cuda-mps-control");
        fs::remove_file(&link).expect("stand-in");
        symlink(generation.programs().join("nvidia-cuda-mps-control"), &link).expect("genuine program");
        let libraries = generation.libraries();
        let ask = |question: &str| {
            let mut command = Command::new(&link);
            command.env("CUDA_MPS_PIPE_DIRECTORY", node.pipe()).env("LD_LIBRARY_PATH", &libraries);
            let mut running = Running::start(command, PATIENCE);
            running.say(&format!("{question}\n"));
            running.end()
        };
        let job = |options: &[&str]| {
            let mut command = node.run(options, &["sh", "-c", "echo begun; read end"]);
            command.env("LD_LIBRARY_PATH", &libraries);
            let mut job = Running::start(command, PATIENCE);
            assert_eq!(job.line(), "begun\n", "{}", generation.name);
            job
        };
        let (mut one, mut two) = (job(&["--mps=30"]), job(&["--mps"]));
        assert_eq!(
            ask("get_default_active_thread_percentage").ok().stdout,
            "100.0\n",
            "a share is the job's own"
        );
        one.go_on();
        assert_eq!(one.end().ok().stderr, "");
        assert_eq!(ask("get_server_list").ok().stdout, "", "another job still uses it");
        two.go_on();
        assert_eq!(two.end().ok().stderr, "");
        assert_eq!(ask("get_server_list").status.code(), Some(1), "the last job ended it");
        // One that dies is replaced by the next job's.
        let mut three = job(&["--mps"]);
        let daemons = daemons_of(&node.pipe());
        assert!(!daemons.is_empty(), "{}", generation.name);
        // SAFETY: a plain system call on the daemon that this test's job started.
        daemons.iter().for_each(|pid| unsafe { assert_eq!(libc::kill(*pid, libc::SIGKILL), 0) });
        three.go_on();
        three.end().ok();
        let mut four = job(&["--mps"]);
        assert_eq!(ask("get_server_list").ok().stdout, "");
        four.go_on();
        assert_eq!(four.end().ok().stderr, "");
    }
}
