//! Dry runs that `radrmd` makes by itself: real programs before they are placed, what they may do, and what is left.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
};

use radrm_preload_tests::{
    artifacts,
    node::{Daemon, may},
    python,
};
use serde_json::Value;

const GIB: u64 = 1 << 30;

/// The interpreter of scripts that only name PyTorch.
const PYTHON: &str = "/usr/bin/python3";

/// Beginning of a script: it names PyTorch, and does without. As a job it is over at once.
const BEGIN: &str = "import json, os, signal, sys, time\n\
                     try:\n    import torch\nexcept ImportError:\n    pass\n\
                     if os.environ.get('RADRM_ATTEMPT') != '0':\n    sys.exit(0)\n";

/// Keys of `[dry_run]`: the first that is given twice counts.
fn settings(lines: &str) -> String {
    for library in ["libradrm_emulated_toolkit.so", "libradrm_emulated_cuda.so"] {
        artifacts::file(library);
    }
    let usual = ["max_load = 100000", "memory_mib = 6144", "limit_s = 60", "wait_s = 600"];
    let key = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let given: Vec<String> = lines.lines().map(key).collect();
    let rest: Vec<&str> = usual.into_iter().filter(|line| !given.contains(&key(line))).collect();
    format!("emulate = \"1xA100-40GB\"\n[dry_run]\non = true\n{lines}\n{}\n", rest.join("\n"))
}

/// A script in the daemon's place.
fn script(daemon: &Daemon, name: &str, text: &str) -> String {
    let path = daemon.path(name);
    fs::write(&path, format!("{BEGIN}{text}")).expect("script");
    path.display().to_string()
}

/// Submits a job whose temporary files are in a folder of the daemon's place.
fn submit(daemon: &Daemon, options: &[&str], command: &[&str]) -> u64 {
    let temporary = daemon.path("temporary");
    let _ = fs::create_dir(&temporary);
    let _ = fs::set_permissions(&temporary, fs::Permissions::from_mode(0o777));
    let all = [&["submit", "--quiet"], options, &["--"], command].concat();
    submitted(daemon.client(&all).env("TMPDIR", temporary))
}

/// The number of the job that `radrm submit --quiet` submits.
fn submitted(client: &mut Command) -> u64 {
    let done = client.output().expect("radrm");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number")
}

fn history(daemon: &Daemon, job: u64) -> String {
    daemon.show(job)["history"].to_string()
}

/// Processes of dry runs in this place, but for the daemon's helper.
fn processes(place: &Path) -> Vec<String> {
    let mark = place.as_os_str().as_encoded_bytes();
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let own = entries.filter(|entry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let is_dry_run = environment.split(|byte| *byte == 0).any(|line| line == b"RADRM_ATTEMPT=0");
        is_dry_run && environment.windows(mark.len()).any(|part| part == mark)
    });
    own.map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " "))
        .collect()
}

/// Waits until nothing of dry runs is left in the place: neither processes nor files.
#[track_caller]
fn leaves_nothing(daemon: &Daemon) {
    daemon.until("no process of a dry run is left", |daemon| processes(daemon.place()).is_empty());
    let files = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(daemon.path(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let left = files("temporary");
    let left: Vec<&String> = left.iter().filter(|name| !name.starts_with("torchinductor")).collect();
    assert!(left.is_empty(), "{left:?}");
    let markers = files("state/attempts");
    assert!(!markers.iter().any(|name| name.ends_with(".0")), "{markers:?}");
}

const TRAIN: &str = "
model = torch.nn.Linear(8192, 8192, bias=False).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(1000):
    model(torch.zeros(64, 8192, device='cuda')).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
open(os.environ['MARKS'] + '/all-steps', 'w')
";

#[test]
fn a_training_of_unknown_need_is_dry_run_and_placed_by_its_figure() {
    let Some(python) = python::torch() else { return };
    let python = python.display().to_string();
    let daemon = Daemon::new(&settings(""));
    let train = script(&daemon, "train.py", TRAIN);
    let job = submit(&daemon, &[], &[&python, &train]);
    let why = daemon.ok(&["queue", "--why"]);
    assert!(why.contains("a dry run in the background comes first"), "{why}");
    daemon.until("it has ended", |daemon| {
        daemon.state(job) == "ended" || history(daemon, job).contains("no need")
    });
    let told = history(&daemon, job);
    assert!(told.contains("dry run of 3 steps in the background on an emulated NVIDIA A100"), "{told}");
    // Weights, gradients and two moments of 256 MiB each, with activations, workspace and context.
    let begin = told.find("in the background, in ").expect("its time");
    let held =
        told[begin..].split("held ").nth(1).and_then(|rest| rest.split(' ').next()).expect("its figure");
    assert!((1.4..2.5).contains(&held.parse::<f64>().expect("GiB")), "{told}");
    assert!(!daemon.mark("all-steps").exists(), "it was ended after its steps");
    leaves_nothing(&daemon);
    // The same program is not run again; a changed one is.
    let again = submit(&daemon, &[], &[&python, &train]);
    daemon.end(again);
    assert!(!history(&daemon, again).contains("begins") || history(&daemon, again).contains("earlier"));
    fs::write(&train, format!("{BEGIN}{TRAIN}# changed\n")).expect("script");
    let refused = submit(&daemon, &["--no-dry-run"], &[&python, &train, "--other"]);
    daemon.end(refused);
    assert!(!history(&daemon, refused).contains("dry run"), "{}", history(&daemon, refused));
}

#[test]
fn a_program_that_hangs_with_children_is_ended_and_its_job_placed() {
    let daemon = Daemon::new(&settings("limit_s = 3"));
    let text = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                for own_session in [True, False]:\n    \
                    if os.fork() == 0:\n        \
                        if own_session:\n            os.setsid()\n        \
                        if os.fork() == 0:\n            break\n        \
                        os._exit(0)\n\
                open(os.environ['MARKS'] + '/began', 'a').write('x')\n\
                while True:\n    time.sleep(1)\n";
    let hangs = script(&daemon, "hangs.py", text);
    let job = submit(&daemon, &[], &[PYTHON, &hangs]);
    daemon
        .until("all of it hangs", |daemon| fs::read(daemon.mark("began")).is_ok_and(|text| text.len() == 3));
    assert!(processes(daemon.place()).len() >= 4, "{:?}", processes(daemon.place()));
    assert_eq!(daemon.end(job)["exit_code"], 0);
    let told = history(&daemon, job);
    assert_eq!(told.matches("it was ended after 3 s (dry_run.limit_s)").count(), 1, "{told}");
    leaves_nothing(&daemon);
    // What failed is not run again for the same files.
    let again = submit(&daemon, &[], &[PYTHON, &hangs]);
    assert_eq!(daemon.end(again)["exit_code"], 0);
    assert!(
        history(&daemon, again).contains("as the last time, it was ended"),
        "{}",
        history(&daemon, again)
    );
    assert_eq!(fs::read(daemon.mark("began")).expect("began").len(), 3);
}

#[test]
fn a_result_counts_until_a_file_of_its_program_changes() {
    let daemon = Daemon::new(&settings(""));
    let text = "import beside\nopen(os.environ['MARKS'] + '/began', 'a').write('x')\n";
    let train = script(&daemon, "train.py", text);
    let began = |module: &str| {
        fs::write(daemon.path("beside.py"), module).expect("module");
        daemon.end(submit(&daemon, &[], &[PYTHON, &train]));
        fs::read_to_string(daemon.mark("began")).expect("began")
    };
    assert_eq!(began("lr = 1\n"), "x");
    assert_eq!(began("lr = 1\n"), "x", "the same files");
    assert_eq!(began("lr = 2\n"), "xx", "another file beside it");
}

/// `kill 0` reaches all that share a process group.
#[test]
fn a_program_that_kills_its_group_does_not_kill_the_helper() {
    let daemon = Daemon::new(&settings(""));
    let kills = script(&daemon, "kills.py", "os.kill(0, signal.SIGKILL)\n");
    let job = submit(&daemon, &[], &[PYTHON, &kills]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    let told = history(&daemon, job);
    assert!(told.contains("shows no need: it was killed"), "{told}");
    daemon.until("nothing of it runs", |daemon| processes(daemon.place()).is_empty());
}

#[test]
fn bounds_of_memory_and_processes_end_a_dry_run() {
    let daemon = Daemon::new(&settings("memory_mib = 256\nprocesses = 40"));
    let large = script(&daemon, "large.py", "all = bytearray(1 << 30)\ntime.sleep(1000)\n");
    let forks = "for at in range(200):\n    if os.fork() == 0:\n        time.sleep(1000)\n    time.sleep(0.01)\n\
                 time.sleep(1000)\n";
    let forks = script(&daemon, "forks.py", forks);
    let jobs = [&large, &forks].map(|script| submit(&daemon, &[], &[PYTHON, script]));
    for (job, why) in
        jobs.into_iter().zip(["more than 256.0 MiB of host memory", "more than 40 processes and threads"])
    {
        assert_eq!(daemon.end(job)["exit_code"], 0);
        let told = history(&daemon, job);
        assert!(told.contains(why), "{told}");
    }
    leaves_nothing(&daemon);
}

#[test]
fn a_flood_of_output_fills_neither_disk_nor_daemon() {
    let mut daemon = Daemon::new(&settings("limit_s = 20"));
    let text = "page = b'x' * 65536\n\
                for at in range(4096):\n    \
                    for fd in range(1, 10):\n        \
                        try:\n            os.write(fd, page)\n        \
                        except OSError:\n            pass\n\
                time.sleep(1000)\n";
    let floods = script(&daemon, "floods.py", text);
    let job = submit(&daemon, &[], &[PYTHON, &floods]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    let told = history(&daemon, job);
    assert!(told.contains("shows no need: "), "{told}");
    let output = daemon.show(job)["job"]["output"].as_str().map(fs::metadata).and_then(Result::ok);
    assert!(output.is_none_or(|meta| meta.len() < 4096), "the job's output has nothing of it");
    let resident = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("status");
    let peak = resident.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("peak");
    let peak: u64 = peak.trim().split(' ').next().and_then(|word| word.parse().ok()).expect("KiB");
    assert!(peak < 100 << 10, "{peak} KiB");
    leaves_nothing(&daemon);
    daemon.stop();
}

/// The program is its launcher's user, and can write where the launcher writes its report, unless the kernel has Landlock:
/// then it is refused.
#[test]
fn a_report_without_an_end_ends_the_dry_run() {
    let daemon = Daemon::new(&settings(""));
    let text = "page = b'x' * 65536\n\
                report = os.open('/proc/%d/fd/3' % os.getppid(), os.O_WRONLY)\n\
                for at in range(4096):\n    os.write(report, page)\n\
                time.sleep(1000)\n";
    let floods = script(&daemon, "floods.py", text);
    let job = submit(&daemon, &[], &[PYTHON, &floods]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    let told = history(&daemon, job);
    let ends = ["its report is too long", "shows no need: it ended with exit code 1"];
    assert!(ends.iter().any(|end| told.contains(end)), "{told}");
    leaves_nothing(&daemon);
}

/// The notes of a dry run are the program's to write, also under Landlock, and each of its remarks stands in the report.
#[test]
fn a_report_that_remarks_make_too_long_shows_no_need() {
    let daemon = Daemon::new(&settings(""));
    let text = "with open(os.environ['RADRM_DRY_RUN_NOTES'], 'a') as notes:\n    \
                for at in range(160):\n        \
                notes.write('remark\\t%d\\t0\\t%d %s\\n' % (os.getpid(), at, 'x' * 65536))\n";
    let floods = script(&daemon, "remarks.py", text);
    let job = submit(&daemon, &[], &[PYTHON, &floods]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    let told = history(&daemon, job);
    assert!(told.contains("its report is too long"), "{told}");
    leaves_nothing(&daemon);
}

#[test]
fn a_killed_daemon_leaves_nothing_of_a_dry_run_and_the_next_makes_it_again() {
    // Its own time does not end it.
    let mut daemon = Daemon::new(&settings("limit_s = 3600"));
    // The first two never end by themselves.
    let text = "began = os.environ['MARKS'] + '/began'\n\
                open(began, 'a').write('x')\n\
                number = os.path.getsize(began)\n\
                if os.fork() == 0:\n    os.setsid()\n\
                while number < 3:\n    time.sleep(0.05)\n";
    let waits = script(&daemon, "waits.py", text);
    let job = submit(&daemon, &[], &[PYTHON, &waits]);
    let began = |daemon: &Daemon| fs::read(daemon.mark("began")).map_or(0, |text| text.len());
    daemon.until("it has begun", |daemon| began(daemon) == 1);
    daemon.kill();
    daemon.until("nothing of it runs", |daemon| processes(daemon.place()).is_empty());
    daemon.start();
    daemon.until("it begins again", |daemon| began(daemon) == 2);
    // Its helper is killed with the daemon: only the next daemon can end what is left.
    let helper = helper(&daemon);
    daemon.kill();
    // SAFETY: a plain system call on a process that was just found.
    unsafe { libc::kill(helper, libc::SIGKILL) };
    let is_launcher = |words: &String| words.contains("--dry-run --quiet");
    daemon.until("the launcher ends with its helper", |daemon| {
        !processes(daemon.place()).iter().any(is_launcher)
    });
    let left = processes(daemon.place());
    assert!(!left.is_empty(), "the test is about nothing");
    daemon.start();
    assert_eq!(daemon.end(job)["exit_code"], 0);
    daemon.until("nothing of it runs", |daemon| processes(daemon.place()).is_empty());
}

/// The helper below the daemon.
fn helper(daemon: &Daemon) -> libc::pid_t {
    let children =
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.pid())).unwrap_or_default();
    let mut all: Vec<String> = children.split_whitespace().map(str::to_owned).collect();
    // Threads have children of their own.
    for task in fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("tasks").flatten() {
        let own = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(own.split_whitespace().map(str::to_owned));
    }
    let is_helper = |pid: &&String| {
        fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|text| text.contains("--dry-run-one-job"))
    };
    all.iter().find(is_helper).and_then(|pid| pid.parse().ok()).expect("a helper")
}

#[test]
fn a_job_that_starts_ends_its_own_dry_run_first() {
    let daemon = Daemon::new(&settings("wait_s = 1\nlimit_s = 3600"));
    let text = "open(os.environ['MARKS'] + '/began', 'a').write('dry ')\ntime.sleep(1000)\n";
    let script = script(&daemon, "slow.py", text);
    // As a job it notes who else is there.
    let both = format!("{BEGIN}{text}").replace(
        "    sys.exit(0)\n",
        "    open(os.environ['MARKS'] + '/began', 'a').write('job ')\n    \
         def read(pid):\n        \
             try:\n            return open('/proc/%s/cmdline' % pid).read()\n        \
             except OSError:\n            return ''\n    \
         others = [read(p) for p in os.listdir('/proc') if p.isdigit() and p != str(os.getpid())]\n    \
         print(sum(os.environ['PLACE'] in other and '--dry-run\\0' in other for other in others))\n    sys.exit(0)\n",
    );
    fs::write(&script, both).expect("script");
    // Another job has the GPU until the dry run is under way.
    let wait = "while [ ! -e \"$PLACE/go\" ]; do sleep 0.05; done";
    let other = submit(&daemon, &["--gpu-mem", "30GiB"], &["/bin/sh", "-c", wait]);
    let job = submit(&daemon, &[], &[PYTHON, &script]);
    let began = |daemon: &Daemon| fs::read_to_string(daemon.mark("began")).unwrap_or_default();
    daemon.until("it is placed without", |daemon| {
        began(daemon) == "dry " && history(daemon, job).contains("within 1 s")
    });
    fs::write(daemon.path("go"), "").expect("file");
    assert_eq!(daemon.end(other)["exit_code"], 0);
    let row = daemon.end(job);
    assert_eq!(row["exit_code"], 0);
    assert_eq!(began(&daemon), "dry job ");
    let output = fs::read_to_string(row["output"].as_str().expect("output")).expect("output");
    assert_eq!(output.trim(), "0", "none of the dry run is there when the job runs");
    assert!(history(&daemon, job).contains(": it is placed without"), "{}", history(&daemon, job));
    leaves_nothing(&daemon);
}

const ANOTHER_USER: u32 = 65_534;

/// Returns true if jobs of another user can run here.
fn has_another_user() -> bool {
    may(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"])
        && may(&["getent", "passwd", "65534"])
}

#[test]
fn a_dry_run_is_its_users_and_comes_last_in_everything() {
    if !has_another_user() {
        return;
    }
    let daemon = Daemon::new(&settings("cpus = 1\nprocesses = 77"));
    // The number of ioprio_get on the architectures that there are wheels for; the class is above 13 bits.
    let text = "import ctypes, platform, resource\n\
                number = {'x86_64': 252, 'aarch64': 31}[platform.machine()]\n\
                disk = ctypes.CDLL(None).syscall(number, 1, 0) >> 13\n\
                limit = lambda which: resource.getrlimit(which)[1]\n\
                facts = dict(uid=os.getuid(), nice=os.nice(0), cores=len(os.sched_getaffinity(0)), disk=disk,\n\
                umask=os.umask(0), gids=[os.getgid(), os.getegid()] + os.getgroups(), cpu=limit(resource.RLIMIT_CPU),\n\
                tasks=limit(resource.RLIMIT_NPROC),\n\
                oom=open('/proc/self/oom_score_adj').read().strip(), gpus=os.environ.get('CUDA_VISIBLE_DEVICES'),\n\
                core=resource.getrlimit(resource.RLIMIT_CORE)[0], files=os.listdir(os.getcwd()))\n\
                open(os.environ['MARKS'] + '/facts', 'w').write(json.dumps(facts))\n";
    let script = script(&daemon, "facts.py", text);
    let shared = daemon.path("shared");
    fs::create_dir(&shared).expect("folder");
    for path in [shared.as_path(), daemon.place()] {
        let mode = if path == shared { 0o777 } else { 0o755 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    }
    let arguments = ["submit", "--quiet", "--", PYTHON, &script];
    let mut client = daemon.client_of(ANOTHER_USER, &arguments);
    // SAFETY: a plain system call that cannot fail.
    let set_umask = || unsafe {
        libc::umask(0o27);
        Ok(())
    };
    // SAFETY: it only makes that system call.
    unsafe { client.pre_exec(set_umask) };
    let job = submitted(client.current_dir(&shared));
    daemon.end(job);
    let facts = fs::read_to_string(daemon.mark("facts")).expect("facts");
    let facts: Value = serde_json::from_str(&facts).expect("JSON");
    assert_eq!((&facts["uid"], &facts["umask"]), (&ANOTHER_USER.into(), &0o27.into()), "{facts}");
    assert_eq!(
        (&facts["nice"], &facts["cores"], &facts["core"]),
        (&19.into(), &1.into(), &0.into()),
        "{facts}"
    );
    assert_eq!((&facts["oom"], &facts["gpus"]), (&"1000".into(), &Value::Null), "{facts}");
    let gids = facts["gids"].as_array().expect("groups");
    assert!(gids.iter().all(|gid| gid.as_u64().is_some_and(|gid| gid != 0)), "no group of root: {facts}");
    // A minute on one core, and 77 processes and threads beside those that the user has.
    assert_eq!(facts["cpu"], 60, "{facts}");
    assert!(facts["tasks"].as_i64().is_some_and(|tasks| (77..77 + 4000).contains(&tasks)), "{facts}");
    if may(&["ionice", "-c", "3", "true"]) {
        assert_eq!(facts["disk"], 3, "idle: {facts}");
    }
    assert!(history(&daemon, job).contains("the program took no GPU memory"), "{}", history(&daemon, job));
}

/// Shell words that give the daemon a /dev of its own, in which a GPU's files can be made. Mounts are shared, as on a node:
/// what a dry run mounts must not reach the daemon.
const GPU_FILES: &str = "d=$PLACE/dev; mkdir $d && mount -t tmpfs none $d && \
     for n in null zero full random urandom; do touch $d/$n && mount --bind /dev/$n $d/$n; done && \
     mkdir $d/shm $d/pts $d/nvidia-caps && mount --rbind /dev/shm $d/shm && ln -s /proc/self/fd $d/fd && \
     echo real > $d/nvidia0 && echo real > $d/nvidia-caps/nvidia-cap1 && mount --move $d /dev && \
     mount --make-rshared / || exit 9";

#[test]
fn device_files_of_gpus_are_hidden_from_a_dry_run() {
    if !may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]) {
        return;
    }
    let daemon = Daemon::with(&settings(""), GPU_FILES);
    let text = "read = lambda path: open(path).read() if os.path.exists(path) else None\n\
                facts = [read('/dev/nvidia0'), os.listdir('/dev/nvidia-caps')]\n\
                open(os.environ['MARKS'] + '/facts', 'w').write(json.dumps(facts))\n";
    let script = script(&daemon, "facts.py", text);
    let job = submit(&daemon, &[], &[PYTHON, &script]);
    daemon.end(job);
    let facts =
        fs::read_to_string(daemon.mark("facts")).unwrap_or_else(|_| panic!("{}", history(&daemon, job)));
    assert_eq!(facts, "[\"\", []]");
    let inside = Command::new("nsenter")
        .args(["--mount", "--target", &daemon.pid().to_string(), "cat", "/dev/nvidia0"])
        .output()
        .expect("nsenter");
    assert_eq!(String::from_utf8_lossy(&inside.stdout), "real\n", "the daemon sees it as before");
}

#[test]
fn nothing_runs_where_the_gpus_cannot_be_hidden() {
    let without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
    if !may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
        || !may(&[&without[..], &["true"]].concat())
    {
        return;
    }
    let before = format!("{GPU_FILES}\nset -- {} \"$@\"", without.join(" "));
    let daemon = Daemon::with(&settings(""), &before);
    let script = script(&daemon, "runs.py", "open(os.environ['MARKS'] + '/ran', 'w')\n");
    let job = submit(&daemon, &[], &[PYTHON, &script]);
    daemon.end(job);
    let told = history(&daemon, job);
    assert!(told.contains("GPUs cannot be hidden from it"), "{told}");
    assert!(!daemon.mark("ran").exists(), "{told}");
    leaves_nothing(&daemon);
}

#[test]
fn files_that_its_user_cannot_read_are_not_read_for_a_dry_run() {
    if !has_another_user() {
        return;
    }
    let daemon = Daemon::new(&settings(""));
    let secret = script(&daemon, "secret.py", "");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("mode");
    let arguments = ["submit", "--quiet", "--", PYTHON, &secret];
    let job = submitted(daemon.client_of(ANOTHER_USER, &arguments).current_dir("/tmp"));
    daemon.end(job);
    let told = history(&daemon, job);
    assert!(told.contains("no dry run in the background: its script cannot be read"), "{told}");
}

/// Processes that were forked share what they do not write.
#[test]
fn memory_that_processes_share_counts_once() {
    let daemon = Daemon::new(&settings("memory_mib = 768\nlimit_s = 600"));
    // Five processes with 300 MiB each, which are 300 MiB together, until memory was looked at some times.
    let text = "all = b'x' * (300 << 20)\n\
                for at in range(4):\n    \
                    if os.fork() == 0:\n        \
                        time.sleep(2)\n        \
                        os._exit(0)\n\
                for at in range(4):\n    os.wait()\n\
                open(os.environ['MARKS'] + '/done', 'w')\n";
    let shares = script(&daemon, "shares.py", text);
    let job = submit(&daemon, &[], &[PYTHON, &shares]);
    daemon.end(job);
    assert!(daemon.mark("done").exists(), "{}", history(&daemon, job));
}

#[test]
fn a_program_without_a_framework_does_not_run_before_it_is_placed() {
    let daemon = Daemon::new(&settings(""));
    let path = daemon.path("plain.py");
    fs::write(
        &path,
        "import os\nopen(os.environ['MARKS'] + '/ran', 'a').write(os.environ['RADRM_ATTEMPT'])\n",
    )
    .expect("script");
    let job = submit(&daemon, &[], &[PYTHON, &path.display().to_string()]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    assert_eq!(fs::read_to_string(daemon.mark("ran")).expect("ran"), "1");
    assert!(history(&daemon, job).contains("neither PyTorch nor JAX"), "{}", history(&daemon, job));
    assert!(daemon.show(job)["job"]["reserved"].as_u64().is_none_or(|bytes| bytes >= 30 * GIB));
}
