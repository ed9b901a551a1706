//! `radrm sweep` with real programs on emulated GPUs: order, barriers, limits, ends, and what happens when it is killed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use radrm_preload_tests::artifacts;
use radrm_preload_tests::child::{self, Ended};
use radrm_preload_tests::random::Random;

mod early;
mod mlflow;
mod profiler;
mod radrmd;
mod together;

/// Seconds after which a sweep is taken to hang.
const PATIENCE: u64 = 120;

/// A program of the driver: MiB to allocate, name and size of its group.
const ALLOCATE: &str = r#"
import ctypes, os, sys, time
cuda = ctypes.CDLL('libcuda.so.1')
def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code: sys.exit('%s: %d' % (name, code))
call('cuInit', 0)
device, context = ctypes.c_int(), ctypes.c_void_p()
call('cuDeviceGet', ctypes.byref(device), 0)
call('cuDevicePrimaryCtxRetain', ctypes.byref(context), device)
call('cuCtxSetCurrent', context)
size, pointer = int(sys.argv[1]) << 20, ctypes.c_uint64()
code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
with open(sys.argv[2], 'ab', buffering=0) as file:
    file.write(b'.')
# What it got it holds until all of its group have asked.
while os.path.getsize(sys.argv[2]) < int(sys.argv[3]): time.sleep(0.01)
sys.exit(code)
"#;

/// A private directory: the current one, and that of the dataset.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        for file in
            ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so", "radrm", "radrm-run"]
        {
            artifacts::file(file);
        }
        Self(tempfile::tempdir().expect("directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// A command that has ended.
trait Checks {
    fn code(&self, expected: i32) -> &Self;
    fn one_sentence(&self, part: &str) -> &Self;
    fn text(&self) -> &str;
}

impl Checks for Ended {
    #[track_caller]
    fn code(&self, expected: i32) -> &Self {
        assert_eq!(self.status.code(), Some(expected), "{self:?}");
        self
    }

    #[track_caller]
    fn one_sentence(&self, part: &str) -> &Self {
        assert!(self.stderr.lines().count() == 1 && self.stderr.contains(part), "{part}: {}", self.stderr);
        self
    }

    fn text(&self) -> &str {
        &self.stdout
    }
}

fn finish(command: Command) -> Ended {
    child::run(command, PATIENCE)
}

/// Logs its begin and its end: each line is one write.
const PROGRAM: &str = r#"
import os, sys, time
def log(word):
    with open('log', 'ab', buffering=0) as file:
        file.write(('%s %s %f\n' % (word, sys.argv[1], time.time())).encode())
log('begin')
time.sleep(float(sys.argv[2]))
log('end')
sys.exit(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
"#;

fn place(sweep: &str) -> Place {
    let place = Place::new();
    fs::write(place.join("program.py"), PROGRAM).unwrap();
    fs::write(place.join("sweep.toml"), sweep).unwrap();
    place
}

fn sweep(place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(artifacts::file("radrm"));
    command.arg("sweep").args(words).current_dir(place.path()).stdin(Stdio::null());
    command.env("XDG_DATA_HOME", place.join("data")).env("XDG_RUNTIME_DIR", place.path());
    command.env_remove("LD_PRELOAD").env_remove("RADRM_DISABLE").env_remove("RADRM_SOCKET");
    command
}

/// Number of begins and ends of each run.
fn log(place: &Place) -> BTreeMap<String, (u32, u32)> {
    let mut counts: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for (word, name, _) in lines(place) {
        let count = counts.entry(name).or_default();
        if word == "begin" { count.0 += 1 } else { count.1 += 1 }
    }
    counts
}

fn lines(place: &Place) -> Vec<(String, String, f64)> {
    let text = fs::read_to_string(place.join("log")).unwrap_or_default();
    let line = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        (words[0].to_owned(), words[1].to_owned(), words[2].parse().unwrap())
    };
    text.lines().map(line).collect()
}

/// The column of a sweep's runs, by the report.
fn column(place: &Place, name: &str) -> Vec<String> {
    let output = finish(sweep(place, &["report", "sweep.toml", "--csv"]));
    output.code(0);
    let text = output.text();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let at = lines.next().unwrap().iter().position(|title| title == name).unwrap();
    lines.map(|cells| cells[at].clone()).collect()
}

#[test]
fn a_grid_runs_each_combination_once_and_then_nothing() {
    let place = place(
        "command = \"python3 program.py {x}{y} 0\"\nrepetitions = 2\n[axes]\nx = [1, 2]\ny = [\"a\", \"b\"]\n",
    );
    let first = finish(sweep(&place, &["sweep.toml"]));
    first.code(0);
    assert!(first.stderr.contains("8/8 x=2 y=b: finished in "), "{}", first.stderr);
    assert!(first.text().contains("best: "), "{}", first.text());
    let expected: BTreeMap<_, _> = ["1a", "1b", "2a", "2b"].map(|name| (name.to_owned(), (2, 2))).into();
    assert_eq!(log(&place), expected);
    finish(sweep(&place, &["sweep.toml"])).code(0);
    assert_eq!(log(&place), expected, "all runs are over");
    assert_eq!(column(&place, "state"), ["finished"; 8]);
    // The file grew: only what is new is run.
    let text = fs::read_to_string(place.join("sweep.toml")).unwrap().replace("[1, 2]", "[1, 2, 3]");
    fs::write(place.join("sweep.toml"), text).unwrap();
    finish(sweep(&place, &["sweep.toml"])).code(0);
    let counts = log(&place);
    assert_eq!((counts["1a"], counts["3b"], counts.len()), ((2, 2), (2, 2), 6));
}

#[test]
fn a_report_is_a_page_with_the_figures_of_its_text() {
    let place = place("command = \"python3 program.py {x} 0\"\nrepetitions = 2\n[axes]\nx = [1, \"<b>\"]\n");
    finish(sweep(&place, &["sweep.toml"])).code(0);
    let output = finish(sweep(&place, &["report", "sweep.toml", "--html=page.html"]));
    output.code(0);
    assert_eq!(output.text(), "page.html\n");
    let page = fs::read_to_string(place.join("page.html")).unwrap();
    let text = finish(sweep(&place, &["report", "sweep.toml"]));
    let best = text.text().lines().find(|line| line.starts_with("best: ")).unwrap().to_owned();
    let figures = best.rsplit("run time ").next().unwrap();
    let time = figures.split(';').next().unwrap();
    for part in ["Sweep sweep.toml", "Run time and memory", "x=1", time] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<b>"), "names are no markup");
    assert_eq!(finish(sweep(&place, &["report", "sweep.toml", "--html=-"])).text(), page);
    finish(sweep(&place, &["report", "sweep.toml", "--html=none/page.html"]))
        .code(1)
        .one_sentence("none/page.html");
    finish(sweep(&place, &["report", "sweep.toml", "--html=p", "--csv"])).code(2);
}

#[test]
fn a_failed_run_is_reported_and_run_again_only_if_asked() {
    let place = place("command = \"python3 program.py {x} 0 {x}\"\n[axes]\nx = [0, 3]\n");
    let output = finish(sweep(&place, &["sweep.toml"]));
    output.code(1);
    assert!(output.stderr.contains("2/2 x=3: failed with exit code 3"), "{}", output.stderr);
    assert!(output.stderr.contains("sweep.toml.sweep/00002/1/output.log\n"), "{}", output.stderr);
    finish(sweep(&place, &["sweep.toml"])).code(1);
    assert_eq!(log(&place)["3"], (1, 1));
    finish(sweep(&place, &["--rerun", "sweep.toml"])).code(1);
    assert_eq!((log(&place)["3"], log(&place)["0"]), ((2, 2), (1, 1)));
    assert_eq!(
        (column(&place, "state"), column(&place, "exit_code")),
        (vec!["finished".to_owned(), "failed".to_owned()], vec!["0".to_owned(), "3".to_owned()])
    );
}

#[test]
fn members_of_a_group_start_at_once_and_groups_one_after_the_other() {
    let place = place("command = \"python3 program.py {x} 2\"\ntogether = 3\n[axes]\nx = [1, 2]\n");
    finish(sweep(&place, &["sweep.toml"])).code(0);
    let lines = lines(&place);
    let times = |word: &str, name: &str| {
        let found = lines.iter().filter(|(w, n, _)| w == word && n == name);
        found.map(|(_, _, at)| *at).collect::<Vec<_>>()
    };
    for name in ["1", "2"] {
        assert_eq!(times("begin", name).len(), 3);
        let last_begin = times("begin", name).into_iter().fold(0.0, f64::max);
        let first_end = times("end", name).into_iter().fold(f64::MAX, f64::min);
        assert!(last_begin < first_end, "the members of {name} were not there together: {lines:?}");
    }
    let [last, next] = [("end", "1"), ("begin", "2")].map(|(word, name)| times(word, name));
    assert!(last.into_iter().fold(0.0, f64::max) < next.into_iter().fold(f64::MAX, f64::min), "{lines:?}");
}

#[test]
fn a_timeout_ends_all_processes_of_a_run() {
    let place = Place::new();
    // A child that leaves the process group, and ignores what a group is sent.
    fs::write(
        place.join("program.py"),
        "import os, signal, subprocess, sys, time\n\
         child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n\
         open('child', 'w').write(str(child.pid))\n\
         time.sleep(600)\n",
    )
    .unwrap();
    fs::write(place.join("sweep.toml"), "command = \"python3 program.py\"\ntimeout = \"3s\"\n").unwrap();
    let output = finish(sweep(&place, &["sweep.toml"]));
    output.code(1);
    assert!(output.stderr.contains("ended by its timeout"), "{}", output.stderr);
    let child = fs::read_to_string(place.join("child")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the run's child still lives: {stat}");
    assert_eq!(column(&place, "state"), ["timeout"]);
}

#[test]
fn members_share_an_emulated_gpu_and_their_peaks_are_their_own() {
    let place = Place::new();
    fs::write(place.join("program.py"), ALLOCATE).unwrap();
    let text = "command = \"python3 program.py {mib} {group} {size}\"\nemulate = \"T4\"\n\
                [[group]]\nname = \"pair\"\n\
                members = [{mib = 5000, group = \"pair\", size = 2}, {mib = 9000, group = \"pair\", size = 2}]\n\
                [[group]]\nname = \"full\"\nmembers = [{mib = 9000, group = \"full\", size = 2, copies = 2}]\n\
                [[group]]\nname = \"limited\"\n\
                members = [{mib = 5000, group = \"limited\", size = 1, mem_limit = \"4GiB\"}]\n";
    fs::write(place.join("sweep.toml"), text).unwrap();
    let output = finish(sweep(&place, &["sweep.toml"]));
    output.code(1);
    let states = column(&place, "state");
    let (pair, full) = (&states[..2], &mut states[2..4].to_vec());
    full.sort_unstable();
    // The 15 GiB of a T4 hold 5000 and 9000 MiB, but not 9000 twice; and 4 GiB hold no 5000.
    assert_eq!(pair, ["finished"; 2], "{}", output.stderr);
    assert_eq!(*full, ["failed", "finished"], "{}", output.stderr);
    assert_eq!(states[4..], ["failed"], "{}", output.stderr);
    let peaks: Vec<u64> =
        column(&place, "peak_bytes").iter().map(|peak| peak.parse().unwrap_or(0) >> 20).collect();
    assert!((5000..6000).contains(&peaks[0]) && (9000..10_000).contains(&peaks[1]), "{peaks:?}");
}

#[test]
fn a_table_of_radt_gets_its_status_and_is_not_run_again() {
    let place = place("");
    let table = "Experiment,Workload,Status,Run,Devices,Collocation,    File,    Listeners,Params\n\
                 \t1,1,,,0,-,program.py,smi+top,one 0\n\
                 1,2,,,0,-,program.py,smi+top,two 0\n\
                 1,2,,,0,-,program.py,smi+top,three 0 1\n\
                 1,3,FINISHED old (0),9f,0,-,program.py,smi+top,four 0\n";
    fs::write(place.join("t.csv"), table).unwrap();
    let output = finish(sweep(&place, &["--emulate", "T4", "t.csv"]));
    output.code(1);
    let written = fs::read_to_string(place.join("t.csv")).unwrap();
    let rows: Vec<Vec<&str>> = written.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        rows[0],
        ["Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File", "Listeners", "Params"]
    );
    let begins: Vec<_> = rows[1..].iter().map(|row| row[2].split(' ').next().unwrap()).collect();
    assert_eq!(begins, ["FINISHED", "FINISHED", "FAILED", "FINISHED"], "{written}");
    assert_eq!((rows[2][2].ends_with("(0_A)"), rows[4][2]), (true, "FINISHED old (0)"));
    assert!(!log(&place).contains_key("four"), "radT finished it");
    finish(sweep(&place, &["--emulate", "T4", "t.csv"])).code(1);
    assert_eq!(log(&place)["one"], (1, 1));
    assert_eq!(fs::read_to_string(place.join("t.csv")).unwrap(), written);
}

#[test]
fn a_table_that_states_a_failure_ends_with_its_exit_code() {
    let place = place("");
    fs::write(place.join("t.csv"), "Workload,Status,File,Params\n1,FAILED old (0),program.py,one 0\n")
        .unwrap();
    finish(sweep(&place, &["--emulate", "T4", "t.csv"])).code(1);
    assert!(!place.join("log").exists(), "radT ran it");
    finish(sweep(&place, &["--emulate", "T4", "--rerun", "t.csv"])).code(0);
    assert_eq!(log(&place)["one"], (1, 1));
}

#[test]
fn a_report_has_the_runs_of_the_file_as_it_is_now_and_of_one_machine() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2]\n");
    finish(sweep(&place, &["--emulate", "T4", "sweep.toml"])).code(0);
    let text = fs::read_to_string(place.join("sweep.toml")).unwrap().replace("[1, 2]", "[2, 3]");
    fs::write(place.join("sweep.toml"), text).unwrap();
    finish(sweep(&place, &["--emulate", "T4", "sweep.toml"])).code(0);
    assert_eq!((log(&place)["2"], column(&place, "param.x")), ((1, 1), vec!["2".to_owned(), "3".to_owned()]));
    finish(sweep(&place, &["--emulate", "2xT4", "sweep.toml"])).code(0);
    assert_eq!((log(&place)["2"], column(&place, "run")), ((2, 2), vec!["4".to_owned(), "5".to_owned()]));
}

#[test]
fn the_best_run_is_found_by_a_metric_that_the_program_logs() {
    let place = place("command = \"python3 metric.py {x}\"\n[axes]\nx = [1, 2, 3]\n");
    let program = "import radrm, sys\nx = int(sys.argv[1])\nfor step in range(5):\n    \
                   radrm.log_metric('loss', 10 / x - step, step)\nif x == 3: radrm.log_metrics({'loss': float('nan')})\n";
    fs::write(place.join("metric.py"), program).unwrap();
    let mut command = sweep(&place, &["--emulate", "T4", "sweep.toml"]);
    command.env("PYTHONPATH", artifacts::workspace().join("contrib/python"));
    finish(command).code(0);
    for (by, part) in
        [("loss:min", "best: x=2, alone: loss 1.000"), ("loss:max", "best: x=1, alone: loss 6.000")]
    {
        let report = finish(sweep(&place, &["report", "--best", by, "sweep.toml"]));
        report.code(0);
        assert!(report.text().contains(part), "{part}: {}", report.text());
    }
    assert_eq!(column(&place, "metric.loss"), ["6", "1", ""]);
}

#[test]
fn mig_profiles_are_refused_where_there_are_none() {
    let place = place("");
    fs::write(place.join("t.csv"), "Workload,Collocation,File\n1,3g.20gb,program.py\n").unwrap();
    let output = finish(sweep(&place, &["--emulate", "T4", "t.csv"]));
    output.code(1).one_sentence("this machine has no MIG instance of profile 3g.20gb");
    assert!(!place.join("log").exists());
}

#[test]
fn rows_of_radt_that_cannot_run_do_not_keep_the_others_from_it() {
    let place = place("");
    let table = "Experiment,Workload,Status,Run,Devices,Collocation,File,Listeners,Params\n\
                 2,1,,,0,3g.20gb,program.py,smi+top,one 0\n\
                 2,2,,,0,-,program.py,smi+top+dcgmi,two 0\n";
    fs::write(place.join("t.csv"), table).unwrap();
    let output = finish(sweep(&place, &["--emulate", "T4", "t.csv"]));
    output.code(1);
    assert!(
        output.stderr.contains("this machine has no MIG instance of profile 3g.20gb"),
        "{}",
        output.stderr
    );
    assert_eq!(log(&place), BTreeMap::from([("two".to_owned(), (1, 1))]));
    let written = fs::read_to_string(place.join("t.csv")).unwrap();
    let statuses: Vec<_> = written.lines().skip(1).map(|line| line.split(',').nth(2).unwrap()).collect();
    assert!(statuses[0].starts_with("FAILED ") && statuses[1].starts_with("FINISHED "), "{written}");
}

#[test]
fn a_row_of_radt_runs_on_an_instance_of_the_emulated_machine() {
    let place = place("");
    let machine = "[[gpu]]\nmodel = \"A100\"\n[[gpu]]\nmodel = \"A100\"\nmig_profile = \"1g.5gb\"\nmemory_mib = 4864\nsms = 14\n";
    fs::write(place.join("machine.toml"), machine).unwrap();
    fs::write(place.join("allocate.py"), ALLOCATE).unwrap();
    let table = "Workload,Collocation,File,Params\n1,1g.5gb,allocate.py,3000 small 1\n2,1g.5gb,allocate.py,6000 large 1\n";
    fs::write(place.join("t.csv"), table).unwrap();
    let output = finish(sweep(&place, &["--emulate", "machine.toml", "t.csv"]));
    output.code(1);
    // The instance has 4.75 GiB.
    let report = finish(sweep(&place, &["report", "t.csv", "--csv"]));
    let states = ["finished", "failed"].map(|state| report.text().matches(state).count());
    assert_eq!(states, [1, 1], "{}", report.text());
}

#[test]
fn a_dry_run_starts_nothing_and_says_what_is_known() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2]\n");
    let output = finish(sweep(&place, &["--dry-run", "--emulate", "2xT4", "sweep.toml"]));
    output.code(0);
    for part in ["2 runs in 2 groups", "GPUs: ", "Tesla T4", "time: n/a"] {
        assert!(output.text().contains(part), "{part}: {}", output.text());
    }
    assert!(!place.join("log").exists() && !place.join("sweep.toml.sweep").exists());
}

#[test]
fn wrong_files_and_lines_end_with_one_sentence() {
    let place = place("comand = 1\n");
    finish(sweep(&place, &[])).code(2).one_sentence("no sweep given");
    finish(sweep(&place, &["sweep.toml"])).code(1).one_sentence("sweep.toml: line 1");
    finish(sweep(&place, &["absent.toml"])).code(1).one_sentence("absent.toml: ");
    finish(sweep(&place, &["program.py"])).code(1).one_sentence("a sweep is a file .toml");
    fs::write(place.join("sweep.toml"), "command = \"true\"\n").unwrap();
    finish(sweep(&place, &["report", "sweep.toml"]))
        .code(1)
        .one_sentence("no sweep of this file was started");
}

/// Waits until a sweep is under way.
fn wait_for(place: &Place, part: &str) {
    let since = Instant::now();
    while !fs::read_to_string(place.join("log")).unwrap_or_default().contains(part) {
        assert!(
            since.elapsed() < Duration::from_secs(PATIENCE),
            "{part}: {:?}",
            fs::read_to_string(place.join("log"))
        );
        thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a plain system call on a child that was not waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// Processes that have a path on their command line.
fn processes_with(path: &Path) -> Vec<String> {
    let commands = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&words).replace('\0', " "))
    });
    commands.filter(|command| command.contains(&path.display().to_string())).collect()
}

#[test]
fn ctrl_c_ends_the_programs_and_the_next_call_goes_on() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2]\n");
    let hangs = PROGRAM.replace("float(sys.argv[2])", "0 if os.path.exists('go') else 600");
    fs::write(place.join("program.py"), hangs).unwrap();
    let mut child = sweep(&place, &["sweep.toml"]);
    child.process_group(0).stderr(Stdio::piped()).stdout(Stdio::null());
    let child = child.spawn().unwrap();
    wait_for(&place, "begin 1");
    // The second one says which process runs the sweep.
    finish(sweep(&place, &["sweep.toml"]))
        .code(1)
        .one_sentence("another radrm sweep runs this file (process ");
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted: `radrm sweep sweep.toml` goes on"), "{stderr}");
    assert_eq!(log(&place), BTreeMap::from([("1".to_owned(), (1, 0))]));
    assert_eq!(column(&place, "state"), ["waiting", "waiting"]);
    assert_eq!(processes_with(&place.join("sweep.toml.sweep")), [""; 0], "processes are left");
    fs::write(place.join("go"), "").unwrap();
    finish(sweep(&place, &["sweep.toml"])).code(0);
    assert_eq!(log(&place), BTreeMap::from([("1".to_owned(), (2, 1)), ("2".to_owned(), (1, 1))]));
}

/// Kills a sweep of groups at random moments and starts it again, until it is done.
fn killed(kills: u32, seed: u64) {
    let text = "command = \"python3 program.py {x}-{y} 0.15\"\nrepetitions = 1\n\
                [axes]\nx = { from = 1, to = RUNS, step = 1 }\ny = [0]\n\
                [[group]]\nname = \"one\"\nmembers = [{ y = 1 }]\n\
                [[group]]\nname = \"two\"\nmembers = [{ y = 2 }, { y = 3 }]\n";
    let runs = kills.max(4);
    let place = place(&text.replace("RUNS", &runs.to_string()));
    let mut random = Random(seed);
    for _ in 0..kills {
        let mut command = sweep(&place, &["sweep.toml"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(random.below(900)));
        signal(&child, libc::SIGKILL);
        let status = child.wait().unwrap();
        assert!(status.signal() == Some(libc::SIGKILL) || status.success(), "{status:?}");
    }
    let output = finish(sweep(&place, &["sweep.toml"]));
    output.code(0);
    let counts = log(&place);
    assert_eq!(counts.len(), 3 * runs as usize, "a run is lost");
    let wrong: Vec<_> = counts.iter().filter(|(_, count)| **count != (1, 1)).collect();
    assert!(wrong.is_empty(), "not run exactly once: {wrong:?}");
    assert_eq!(column(&place, "state"), vec!["finished"; 3 * runs as usize]);
}

#[test]
fn a_sweep_that_is_killed_again_and_again_runs_each_run_once() {
    killed(8, 1);
}

#[test]
#[ignore = "some minutes: 50 kills"]
fn a_sweep_that_is_killed_fifty_times_runs_each_run_once() {
    killed(50, 2);
}

/// The last release of radT that comes with examples; later ones have the same columns, and none.
const EXAMPLES: &str = "radt==0.1.3";

#[test]
fn examples_of_radt_are_expanded() {
    let place = place("");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", EXAMPLES]);
    pip.args(["--retries", "0", "--timeout", "15"]).current_dir(place.path());
    let fetched = child::run(pip, PATIENCE);
    if !fetched.status.success() {
        eprintln!("skipped: {EXAMPLES} cannot be had: {}", fetched.stderr.lines().last().unwrap_or_default());
        return;
    }
    let mut tar = Command::new("tar");
    tar.args(["xzf", "radt-0.1.3.tar.gz", "--strip-components=1"]).current_dir(place.path());
    finish(tar).code(0);
    for (file, expected) in [
        ("examples/csv/experiment_double.csv", "2 runs in 1 group"),
        ("examples/csv/experiment_live.csv", "2 runs in 1 group"),
        ("examples/pytorch/experiment_folder.csv", "2 runs in 1 group"),
    ] {
        let output = finish(sweep(&place, &["--dry-run", "--emulate", "2xT4", file]));
        output.code(0);
        assert!(output.text().contains(expected), "{file}: {}", output.text());
    }
}
