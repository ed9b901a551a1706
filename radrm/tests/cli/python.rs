//! `radrm replay` with a policy and a predictor in Python, as their authors call it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// First come, first served, where most memory is free.
const POLICY: &str = "\
def place(view):
    job = view.waiting[0]
    gpus = sorted((gpu for gpu in view.gpus if job.fits(gpu)), key=lambda gpu: -gpu.free)
    if len(gpus) < job.gpus:
        return f'{job.name} fits on {len(gpus)} GPUs'
    return [(job, gpus[: job.gpus], 'most free')]
";

fn radrm(dir: &Path, line: &str) -> Output {
    let words = line.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_radrm")).current_dir(dir).args(words).output().expect("radrm runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with this file as `p.py`.
fn folder(program: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("p.py"), program).unwrap();
    dir
}

#[test]
fn a_policy_in_python_gives_a_row_that_is_the_same_again() {
    let dir = folder(POLICY);
    let line = "replay synthetic:60 --gpus 2xA100-40GB --policy p.py,exclusive --seeds 2 --scatter 1.5";
    let out = radrm(dir.path(), line);
    let table = text(&out.stdout);
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
    assert!(
        table.contains("\n  p.py ") && table.contains("calls of Python, slower than a policy in Rust"),
        "{table}"
    );
    assert_eq!(text(&radrm(dir.path(), line).stdout), table);
    let json = radrm(dir.path(), &format!("{line} --json --html p.html")).stdout;
    let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let own = &value["traces"][0]["policies"][0];
    assert_eq!(own["policy"], "p.py");
    assert!(own["python_calls"].as_u64() > Some(60) && own["seeds"][1]["failed"] == 0.0, "{own}");
    let makespan = |at: usize| value["traces"][0]["policies"][at]["seeds"][0]["makespan_s"].as_f64().unwrap();
    assert!(makespan(0) < makespan(1), "jobs share GPUs");
    assert!(fs::read_to_string(dir.path().join("p.html")).unwrap().contains("<h3>p.py"));
}

#[test]
fn a_job_and_why_it_waited_and_started_is_shown() {
    let dir = folder(POLICY);
    let trace = "arrival_s,task,rad,model,batch,dataset,epochs,n_gpus,mem_mib,duration_min\n\
        0,1,big,vgg16,128,imagenet,1,1,30000,40\n60,2,late,vgg16,128,imagenet,1,1,30000,40\n";
    fs::write(dir.path().join("t.csv"), trace).unwrap();
    for job in ["1", "late"] {
        let line = format!("replay t.csv --gpus 1xA100-40GB --policy p.py,exclusive --seeds 0 --why {job}");
        let told = text(&radrm(dir.path(), &line).stdout);
        assert!(told.contains("t.csv: job 1 (late) under p.py\n"), "{told}");
        assert!(
            told.contains(" s  waits: late fits on 0 GPUs\n")
                && told.contains(" s  starts on GPU 0: most free\n"),
            "{told}"
        );
        assert!(
            told.contains("under exclusive\n") && told.contains("exclusive: a device without jobs\n"),
            "{told}"
        );
    }
    let out = radrm(dir.path(), "replay t.csv --why lat --seeds 0");
    assert_eq!(
        text(&out.stderr),
        "radrm: t.csv has no job lat: name one of its 2 jobs, or its number from 0\n"
    );
}

#[test]
fn what_is_wrong_in_a_policy_is_one_sentence_with_its_line() {
    for (program, expected) in [
        ("def place(view):\n    return 1 / 0\n", "p.py: line 2: ZeroDivisionError: division by zero"),
        ("def place(view):\n    return len(view.waiting, 2\n", "p.py: line 2: SyntaxError: "),
        ("import nothing_of_this_name\n", "p.py: line 1: ModuleNotFoundError: "),
        ("x = 3\n", "p.py: it defines no function place()"),
        ("import sys\ndef place(view):\n    sys.exit(7)\n", "p.py: line 3: SystemExit: 7"),
        (
            "import os\ndef place(view):\n    os._exit(7)\n",
            "p.py: python3 ended before place() returned (exit status: 7)",
        ),
        (
            "\ndef place(view):\n    return 3\n",
            "p.py: line 2: place() answered 3, and not a list, a sentence or None",
        ),
        ("def place(view):\n    return [view.waiting[0]]\n", "p.py: line 1: place() answered <job 0 "),
        (
            "def place(view):\n    return [(view.waiting[0], 'a')]\n",
            "p.py: line 1: place() answered 'a' where a gpu belongs",
        ),
        (
            "def place(view):\n    return [(view.waiting[0], 9)]\n",
            "p.py: job 0 was given GPU 9, and there is none",
        ),
        ("def place(view):\n    return 'not now'\n", "p.py: 20 jobs wait for ever, the first is job 0: "),
        ("def place(view):\n    while True: pass\n", "p.py: place() has not returned for 5 s (--call-limit)"),
        ("while True: pass\n", "p.py: its program has not been read after 5 s (--call-limit)"),
    ] {
        let dir = folder(program);
        let out = radrm(
            dir.path(),
            "replay synthetic:20 --gpus 1xA100-40GB --policy p.py --seeds 0 --call-limit 5",
        );
        let why = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{program}: {why}");
        assert!(
            why.starts_with(&format!("radrm: {expected}")) && why.lines().count() == 1,
            "{program}: {why}"
        );
    }
    let dir = folder("import helper\ndef place(view):\n    return helper.choose(view)\n");
    fs::write(dir.path().join("helper.py"), "def choose(view):\n    return view.nothing\n").unwrap();
    let why = text(&radrm(dir.path(), "replay synthetic:20 --policy p.py --seeds 0").stderr);
    assert!(why.starts_with("radrm: p.py: line 3: AttributeError: "), "{why}");
    let why = radrm(dir.path(), "replay synthetic:20 --policy none.py");
    assert_eq!(
        text(&why.stderr),
        "radrm: p.py: \n"
            .replace("p.py: ", "none.py: FileNotFoundError: [Errno 2] No such file or directory: 'none.py'")
    );
    let why = radrm(dir.path(), "replay synthetic:20 --policy own");
    assert_eq!(why.status.code(), Some(2), "{}", text(&why.stderr));
}

#[test]
fn what_a_policy_reads_and_prints_does_not_disturb_it() {
    let dir = folder(&format!(
        "import subprocess, sys\nprint('read')\n{}    print('asked', sys.stdin.read())\n    subprocess.run(['echo', 'x'])\n{}",
        &POLICY[..17],
        &POLICY[17..]
    ));
    let out = radrm(dir.path(), "replay synthetic:9 --policy p.py --seeds 0");
    let (table, printed) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{printed}");
    assert!(
        !table.contains("asked") && printed.contains("read\n") && printed.contains("asked \nx\n"),
        "{printed}"
    );
}

#[test]
fn the_view_has_what_is_known_of_jobs_and_gpus() {
    let program = format!(
        "{POLICY}\nkinds = set()\nplain = place\n\
         def place(view):\n\
         \x20   job, gpu = view.waiting[0], view.gpus[0]\n\
         \x20   assert gpu.total == 40 << 30 and gpu.index == 0 and gpu.model == 'A100-40GB', gpu.__dict__\n\
         \x20   assert gpu.free == gpu.total - sum(job.reserves for job in gpu.jobs), gpu.__dict__\n\
         \x20   assert job.need <= job.need_upper <= job.reserves and job.submitted <= view.now, job.__dict__\n\
         \x20   assert job.user >= 0 and job.priority == 0 and job.ooms == 0 and job.gpus >= 1, job.__dict__\n\
         \x20   assert all(0 <= other.sm_activity <= 1 for gpu in view.gpus for other in gpu.jobs)\n\
         \x20   assert all(event.job.name for event in view.events)\n\
         \x20   kinds.update(event.kind for event in view.events)\n\
         \x20   if view.now > 40_000: assert kinds == {{'submitted', 'started', 'ended'}}, kinds\n\
         \x20   return plain(view)\n"
    );
    let dir = folder(&program);
    let trace: String =
        (0..40).map(|n| format!("{},{n},j{n},m,1,d,1,1,{},30,0.5\n", n * 1500, 900 + n * 700)).collect();
    let head = "arrival_s,task,rad,model,batch,dataset,epochs,n_gpus,mem_mib,duration_min,smact_mean\n";
    fs::write(dir.path().join("t.csv"), head.to_owned() + &trace).unwrap();
    let out = radrm(dir.path(), "replay synthetic:60 --gpus 2xA100-40GB --policy p.py --seeds 0");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let unknown = POLICY.replace("    job =", "    assert view.waiting[0].need is None\n    job =");
    fs::write(dir.path().join("p.py"), unknown).unwrap();
    let out = radrm(
        dir.path(),
        "replay t.csv --gpus 2xA100-40GB --policy p.py --seeds 0 --estimator none --known none",
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn aware_places_jobs_by_a_predictor_in_python() {
    let dir = folder(
        "def speeds(jobs):\n    assert all(0 <= job.sm_activity <= 1 and job.name for job in jobs)\n    return [0.97] * len(jobs)\n",
    );
    fs::write(dir.path().join("slow.py"), "def speeds(jobs):\n    return [1 / len(jobs)] * len(jobs)\n")
        .unwrap();
    let line = "replay synthetic:80 --gpus 2xA100-40GB --policy aware --seeds 0 --json";
    let makespan = |more: &str| {
        let out = radrm(dir.path(), &format!("{line} {more}"));
        assert!(out.status.success(), "{}", text(&out.stderr));
        let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        value["traces"][0]["policies"][0]["seeds"][0]["exec_mean_s"].as_f64().unwrap()
    };
    let [own, gentle, slow] = ["", "--predictor p.py", "--predictor slow.py"].map(makespan);
    assert!(
        slow < own && own < gentle,
        "jobs share the less the slower they are predicted to be: {slow} {own} {gentle}"
    );
    for (program, expected) in [
        ("def speeds(jobs):\n    return [1.0]\n", "p.py: 1 speeds were predicted for 2 jobs"),
        (
            "def speeds(jobs):\n    return [1.5, 1]\n",
            "p.py: a speed of 1.5 was predicted: it must be above 0 and at most 1",
        ),
        (
            "def speeds(jobs):\n    return None\n",
            "p.py: line 1: speeds() answered None, and not a list of numbers",
        ),
        (
            "def speeds(jobs):\n    return [float('nan')] * 2\n",
            "p.py: line 1: speeds() answered [nan, nan], and not",
        ),
        ("def place(jobs):\n    return []\n", "p.py: it defines no function speeds()"),
    ] {
        fs::write(dir.path().join("p.py"), program).unwrap();
        let out = radrm(dir.path(), &format!("{line} --predictor p.py"));
        let why = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{program}: {why}");
        assert!(
            why.starts_with(&format!("radrm: {expected}")) && why.lines().count() == 1,
            "{program}: {why}"
        );
    }
    let why = radrm(dir.path(), "replay synthetic:80 --policy magm --predictor p.py");
    assert_eq!(why.status.code(), Some(2), "{}", text(&why.stderr));
}

#[test]
fn a_function_that_never_returns_ends_with_radrm() {
    let dir = folder(
        "import os\ndef place(view):\n    open('pid', 'w').write(str(os.getpid()))\n    os.rename('pid', 'pid.there')\n    while True: pass\n",
    );
    let mut running = Command::new(env!("CARGO_BIN_EXE_radrm"))
        .current_dir(dir.path())
        .args(["replay", "synthetic:9", "--policy", "p.py", "--seeds", "0", "--call-limit", "600"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let wait = || std::thread::sleep(Duration::from_millis(20));
    while !dir.path().join("pid.there").exists() {
        assert_eq!(running.try_wait().unwrap(), None, "it is in its function");
        wait();
    }
    let pid = fs::read_to_string(dir.path().join("pid.there")).unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    while !state().is_empty() && !state().contains(") Z ") {
        wait();
    }
}
