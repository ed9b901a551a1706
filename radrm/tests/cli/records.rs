//! Records of a run: a profile, a row, a report; and what `radrm` makes of them.
//!
//! The program is a few lines of Python that talk to the emulated driver. The libraries must be
//! built (`cargo build --workspace`).

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{Output, Place, collect, finish};
use radrm_collector::dataset::{Dataset, Features, ProcessFeatures, Row};

/// Takes 3 MiB and 5 MiB on the first GPU, gives 3 back, and is refused 999 GiB.
const PROGRAM: &str = r#"
import ctypes, sys
cuda = ctypes.CDLL('libcuda.so.1')
def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code and name != 'cuMemAlloc_v2': sys.exit('%s: %d' % (name, code))
    return code
call('cuInit', 0)
device, context = ctypes.c_int(), ctypes.c_void_p()
call('cuDeviceGet', ctypes.byref(device), 0)
call('cuDevicePrimaryCtxRetain', ctypes.byref(context), device)
call('cuCtxSetCurrent', context)
a, b, c = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
call('cuMemAlloc_v2', ctypes.byref(a), ctypes.c_size_t(3 << 20))
call('cuMemAlloc_v2', ctypes.byref(b), ctypes.c_size_t(5 << 20))
call('cuMemFree_v2', a)
assert call('cuMemAlloc_v2', ctypes.byref(c), ctypes.c_size_t(999 << 30)) == 2
print('done')
"#;

fn watched(place: &Place, options: &[&str]) -> Command {
    let mut command = place.run(options);
    command.args(["--emulate", "2xA100-40GB", "--", "python3", "-c", PROGRAM]);
    command
}

fn radrm(place: &Place, words: &[&str]) -> Output {
    finish(&mut place.command(env!("CARGO_BIN_EXE_radrm"), words))
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_run_leaves_a_profile_a_row_and_a_report() {
    let place = Place::new();
    let output = finish(&mut watched(&place, &[]));
    output.code(0);
    assert_eq!(output.text(), "done\n");
    for part in ["8.00 MiB", "A100", "999.0 GiB", "python3"] {
        assert!(output.stderr.contains(part), "no {part} in {}", output.stderr);
    }
    let profiles = place.profiles();
    assert_eq!(profiles.len(), 1, "{profiles:?}");
    assert!(profiles[0].starts_with("python3."), "{profiles:?}");
    let named = output.stderr.lines().filter(|line| line.starts_with("profile:")).count();
    assert_eq!(named, 1, "the profile is named once: {}", output.stderr);

    let again = radrm(&place, &["report", &profiles[0], "--json"]);
    again.code(0);
    let summary = json(&again.text());
    assert_eq!(summary["gpus"].as_array().unwrap().len(), 1, "{summary}");

    let rows = json(&radrm(&place, &["dataset", "list", "--json"]).text());
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert_eq!(rows[0]["peak_bytes"], 8 << 20);
    assert_eq!(rows[0]["failed_requests"], 1);
    assert_eq!(rows[0]["emulated"], "2xA100-40GB");
    assert!(radrm(&place, &["dataset", "list"]).text().contains("8.00 MiB"));
    let features = &rows[0]["features"];
    assert_eq!((&features["left_out"], features["processes"].as_array().unwrap().len()), (&0.into(), 1));
    let footprint = &features["processes"][0]["features"]["memory_footprint_bytes"];
    assert_eq!(footprint, &serde_json::json!({"value": f64::from(8 << 20), "origin": "counted"}));
    assert_eq!(features["processes"][0]["features"].get("l2_throughput"), Some(&serde_json::Value::Null));
}

#[test]
fn features_of_the_dataset_are_read_for_json_only_and_a_row_at_a_time() {
    let place = Place::new();
    let file = place.join("some.db");
    let mut dataset = Dataset::open(&file).unwrap();
    for (pid, command) in [(1, "a"), (2, "b"), (3, "c")] {
        let row = Row { command: command.into(), start_unix_ns: pid.into(), ..Row::default() };
        let processes = vec![ProcessFeatures { pid, ..ProcessFeatures::default() }];
        dataset.add(&row, Some(&Features { processes, left_out: 4080 })).unwrap();
    }
    let list =
        |words: &[&str]| radrm(&place, &[&["dataset", "list", "--dataset", "some.db"], words].concat());
    let text = list(&["--json"]).code(0).text();
    let rows = json(&text);
    assert_eq!(text, format!("{rows:#}\n"), "laid out as one list");
    let told: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["features"].clone()).collect();
    let expected = [3, 2, 1]
        .map(|pid| serde_json::json!({"processes": [{"pid": pid, "features": {}}], "left_out": 4080}));
    assert_eq!(told, expected);
    assert_eq!(list(&["--json", "--program", "none"]).code(0).text(), "[]\n");
    // The column of one row cannot be read: that is found out when it is its turn.
    let connection = rusqlite::Connection::open(&file).unwrap();
    let trap = "ALTER TABLE runs DROP COLUMN features;
        ALTER TABLE runs ADD COLUMN features TEXT AS (CASE id WHEN 2 THEN json('{') END);";
    connection.execute_batch(trap).unwrap();
    assert_eq!(list(&[]).code(0).text().lines().count(), 1 + 3);
    let broken = list(&["--json"]);
    broken.code(1).one_sentence("malformed JSON");
    assert!(broken.text().contains("\"c\"") && !broken.text().contains("\"b\""), "{}", broken.text());
    assert_eq!(json(&list(&["--json", "-n", "1"]).code(0).text())[0]["command"], "c");
}

#[test]
fn json_goes_to_standard_error_or_into_a_file() {
    let place = Place::new();
    let output = finish(&mut watched(&place, &["--json", "--no-profile", "--no-dataset"]));
    output.code(0);
    assert_eq!(output.text(), "done\n", "standard output is the program's alone");
    json(&output.stderr);
    let output =
        finish(&mut watched(&place, &["--json=out.json", "--quiet", "--no-profile", "--no-dataset"]));
    assert_eq!(output.code(0).stderr, "");
    json(&fs::read_to_string(place.join("out.json")).unwrap());
    assert!(place.profiles().is_empty());
    assert!(!place.join("data").exists(), "nothing was to be kept");
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_start() {
    let place = Place::new();
    finish(&mut watched(&place, &["-o", "p.radrm", "--quiet", "--no-dataset"])).code(0);
    let profile = fs::read(place.join("p.radrm")).unwrap();
    fs::write(place.join("old.json"), "old").unwrap();
    for (options, part) in [
        (&["--json=none/x.json"][..], "none/x.json cannot be written: No such file or directory"),
        (&["--json=p.radrm"], "p.radrm is a profile, and is not replaced by a report"),
        (&["-o", "p.radrm", "--json=p.radrm"], "p.radrm is a profile"),
        (&["-o", "new.radrm", "--json=new.radrm"], "new.radrm cannot be both the profile and the report"),
        (&["-o", "none/p.radrm", "--json=old.json"], "none/p.radrm cannot be written"),
    ] {
        let output = finish(&mut watched(&place, options));
        assert_eq!(output.code(125).one_sentence(part).text(), "", "the program ran");
    }
    assert_eq!(fs::read(place.join("p.radrm")).unwrap(), profile);
    assert_eq!(fs::read(place.join("old.json")).unwrap(), b"old");
    assert!(!place.join("new.radrm").exists());
}

/// The program's exit code is told all the same.
#[test]
fn a_report_for_which_there_is_no_room_leaves_no_file() {
    let place = Place::new();
    // From its start on there is no room for more than this in a file of `radrm-run`'s.
    let program = "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (100, 100))";
    let words =
        ["--json=out.json", "--quiet", "--no-profile", "--no-dataset", "--", "python3", "-c", program];
    for before in [None, Some("old")] {
        before.inspect(|text| fs::write(place.join("out.json"), text).unwrap());
        let output = finish(&mut place.run(&words));
        output.code(0).one_sentence("the report out.json cannot be written: File too large");
        assert_eq!(fs::read_to_string(place.join("out.json")).ok().as_deref(), before);
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "something else is left");
}

#[test]
fn no_report_replaces_a_profile() {
    let place = Place::new();
    for name in ["a.radrm", "b.radrm"] {
        finish(&mut watched(&place, &["-o", name, "--quiet", "--no-dataset"])).code(0);
    }
    let profiles = || ["a.radrm", "b.radrm"].map(|name| fs::read(place.join(name)).unwrap());
    let before = profiles();
    for words in [
        &["--perfetto", "a.radrm", "b.radrm"][..],
        &["a.radrm", "--perfetto=b.radrm"],
        &["a.radrm", "--perfetto=a.radrm"],
        &["a.radrm", "--html=a.radrm"],
        &["a.radrm", "--html=b.radrm"],
    ] {
        let words: Vec<_> = ["report"].iter().chain(words).copied().collect();
        radrm(&place, &words).code(2).one_sentence("is a profile, and is not replaced by a report");
    }
    assert!(profiles() == before, "a profile was changed");
}

#[test]
fn a_page_is_written_beside_the_profile() {
    let place = Place::new();
    finish(&mut watched(&place, &["-o", "p.radrm", "--quiet"])).code(0);
    let output = radrm(&place, &["report", "p.radrm", "--html"]);
    output.code(0);
    let page = fs::read_to_string(place.join("p.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("http-equiv=\"refresh\""), "no picture");
    assert_eq!(radrm(&place, &["report", "p.radrm", "--html=-"]).text(), page);
}

#[test]
fn the_profile_is_readable_when_we_are_killed() {
    let place = Place::new();
    let program = format!(
        "{PROGRAM}\nsys.stdout.flush()\nimport time, os\nfor _ in range(3000):\n    time.sleep(0.02)\n    if os.path.exists('end'): break\n"
    );
    let words = ["--emulate", "T4", "-o", "p.radrm", "--", "python3", "-c", &program];
    let mut child = place.run(&words).process_group(0).spawn().unwrap();
    let summary = crate::common::until("the figures", || {
        let output = radrm(&place, &["report", "p.radrm", "--json"]);
        output.text().contains("999").then(|| output.text())
    });
    child.kill().unwrap();
    crate::common::wait(&mut child);
    let after = radrm(&place, &["report", "p.radrm", "--json"]);
    after.code(0);
    fs::write(place.join("end"), "").unwrap();
    assert_eq!(
        json(&summary)["gpus"].as_array().map(Vec::len),
        json(&after.text())["gpus"].as_array().map(Vec::len)
    );
}

#[test]
fn a_current_directory_that_cannot_be_written_does_not_lose_the_profile() {
    let place = Place::new();
    let output = finish(watched(&place, &[]).current_dir("/proc"));
    output.code(0);
    let kept: Vec<_> = fs::read_dir(place.join("data/radrm/profiles")).unwrap().collect();
    assert_eq!(kept.len(), 1);
    assert!(output.stderr.contains("cannot be written"), "{}", output.stderr);
}

#[test]
fn a_profile_has_the_number_of_its_job_in_quota_show() {
    let place = Place::new();
    let child = place.run(&["--no-dataset", "--quiet", "true"]).spawn().unwrap();
    let job = child.id();
    collect(child).code(0);
    assert_eq!(place.profiles(), [format!("true.{job}.radrm")]);
}

#[test]
fn an_older_profile_of_the_same_name_is_kept() {
    let place = Place::new();
    // The shell's process becomes radrm-run, which gives its number to the profile.
    let program = env!("CARGO_BIN_EXE_radrm-run");
    let script = format!("echo old > true.$$.radrm; exec '{program}' --no-dataset --quiet true");
    finish(&mut place.command("sh", &["-c", &script])).code(0);
    let names = place.profiles();
    assert!(names.len() == 2 && names[0].ends_with(".2.radrm"), "{names:?}");
    assert_eq!(fs::read(place.join(&names[1])).unwrap(), b"old\n");
}

#[test]
fn two_programs_share_one_emulated_machine() {
    let place = Place::new();
    let options = ["--quiet", "--no-profile", "--no-dataset", "--machine", "m"];
    let run = |extra: &[&str], bytes: &str| {
        let program = PROGRAM.replace("5 << 20", bytes).replace("print('done')", "print(a.value, b.value)");
        let mut command = place.run(&options);
        command.args(extra).args(["--", "python3", "-c", &program]);
        finish(&mut command)
    };
    run(&[], "5 << 20").code(125);
    run(&["--emulate", "T4"], "5 << 20").code(0);
    assert!(place.join("m").exists(), "the machine stays for the next one");
    run(&[], "7 << 20").code(0);
}

#[test]
fn faults_reach_the_program() {
    let place = Place::new();
    let program = PROGRAM.replace("print('done')", "print(a.value != 0, b.value != 0)");
    let words = [
        "--quiet",
        "--no-profile",
        "--no-dataset",
        "--emulate",
        "T4",
        "--faults",
        "oom@2",
        "--",
        "python3",
        "-c",
    ];
    let output = finish(place.run(&words).arg(&program));
    output.code(0);
    assert_eq!(output.text(), "True False\n");
}

#[test]
fn the_switch_turns_counting_off_and_says_so() {
    let place = Place::new();
    let output = finish(watched(&place, &["--no-profile", "--no-dataset"]).env("RADRM_DISABLE", "1"));
    output.code(0);
    assert!(
        output.stderr.contains("RADRM_DISABLE") && !output.stderr.contains("8.00 MiB"),
        "{}",
        output.stderr
    );
}

#[test]
fn what_is_no_profile_is_told_in_one_sentence() {
    let place = Place::new();
    finish(&mut watched(&place, &["-o", "p.radrm", "--quiet", "--no-dataset"])).code(0);
    let whole = fs::read(place.join("p.radrm")).unwrap();
    fs::write(place.join("empty"), "").unwrap();
    fs::write(place.join("foreign"), "GIF89a and more").unwrap();
    for name in ["empty", "foreign", "missing", "."] {
        radrm(&place, &["report", name]).code(1).one_sentence(name);
    }
    // A profile that is cut off shows what is there, and says that it is cut off.
    fs::write(place.join("cut"), &whole[..whole.len() - 7]).unwrap();
    let output = radrm(&place, &["report", "cut"]);
    output.code(0);
}

#[test]
fn wrong_command_lines_are_2_and_help_is_0() {
    let place = Place::new();
    radrm(&place, &[]).code(2).one_sentence("no command given");
    radrm(&place, &["report"]).code(2).one_sentence("missing");
    radrm(&place, &["bogus"]).code(2).one_sentence("bogus");
    assert!(radrm(&place, &["--help"]).code(0).text().contains("Show a profile"));
    assert!(radrm(&place, &["--version"]).code(0).text().starts_with("radrm "));
    let models = radrm(&place, &["machines"]).code(0).text();
    assert!(models.contains("H200") && models.contains("A100-40GB"), "{models}");
    let listed = json(&radrm(&place, &["machines", "--json"]).text());
    assert!(listed.as_array().unwrap().len() > 10);
    assert_eq!(radrm(&place, &["dataset", "list"]).code(0).text(), "no run was recorded yet\n");
    radrm(&place, &["dataset", "list", "--dataset", "none.db"]).code(1).one_sentence("none.db");
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let place = Place::new();
    let script = format!("'{}' machines | true; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_radrm"));
    assert_eq!(finish(&mut place.command("bash", &["-c", &script])).text(), "0\n");
}

#[test]
fn what_could_not_be_looked_at_is_said_and_gets_no_row() {
    let place = Place::new();
    let program = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)";
    let run = |options: &[&str], words: &[&str]| {
        let mut command = place.run(options);
        command.args(words);
        command
    };
    let python = ["python3", "-c", program];
    let emulated = ["--emulate", "T4", "--no-profile", "--json", "--"];
    let note = |output: &Output| {
        let json_at = output.stderr.find('{').unwrap_or_else(|| panic!("{}", output.stderr));
        json(&output.stderr[json_at..])["notes"][0].as_str().unwrap().to_owned()
    };
    let said = finish(run(&emulated, &python).env("RADRM_DISABLE", "1"));
    assert_eq!(note(&said), "nothing was counted: RADRM_DISABLE is set");
    // cuInit fails: no device is visible.
    let said = finish(run(&emulated, &python).env("CUDA_VISIBLE_DEVICES", ""));
    assert!(note(&said).starts_with("cuInit failed with 100 (CUDA_ERROR_NO_DEVICE)"), "{}", note(&said));
    // A child without the shim.
    let said = finish(&mut run(&emulated, &["env", "-u", "LD_PRELOAD", "python3", "-c", program]));
    assert!(note(&said).contains("that RADRM was loaded into"), "{}", note(&said));
    // A job inside this one.
    let inner = [env!("CARGO_BIN_EXE_radrm-run"), "-q", "--no-profile", "--no-dataset", "--"];
    let said = finish(&mut run(&emulated, &[&inner[..], &python[..]].concat()));
    assert!(note(&said).contains("keeps a record of its own"), "{}", note(&said));
    assert_eq!(radrm(&place, &["dataset", "list"]).text(), "no run was recorded yet\n");
}

#[test]
fn a_machine_that_is_there_must_be_the_one_that_is_asked_for() {
    let place = Place::new();
    let run = |emulate: &[&str]| {
        let options = ["--machine", "m", "-q", "--no-profile", "--no-dataset", "--json=out.json"];
        finish(&mut place.run(&[emulate, &options[..], &["python3", "-c", PROGRAM]].concat()))
    };
    run(&["--emulate", "2xA100-40GB"]).code(0);
    let refused = run(&["--emulate", "1xT4"]);
    refused.code(125).one_sentence("is 2xA100-40GB");
    assert!(refused.stdout.is_empty(), "the program must not run");
    // Without --emulate the label is the machine's own.
    run(&[]).code(0);
    assert_eq!(json(&fs::read_to_string(place.join("out.json")).unwrap())["emulated"], "2xA100-40GB");
}

#[test]
fn json_can_go_to_standard_output() {
    let place = Place::new();
    let output = finish(&mut watched(&place, &["--json=-", "--no-profile", "--no-dataset"]));
    output.code(0);
    let text = output.text();
    let report = text.strip_prefix("done\n").expect("the program's own output comes first");
    assert_eq!(json(report)["gpus"][0]["peak_bytes"], 8 << 20);
    assert!(!place.join("-").exists());
}

#[test]
fn a_dataset_that_cannot_be_written_is_said_also_if_quiet() {
    let place = Place::new();
    fs::write(place.join("d.db"), "no database, but something else of some length").unwrap();
    let output = finish(&mut watched(&place, &["-q", "--no-profile", "--dataset", "d.db"]));
    output.code(0).one_sentence("no row was added to the dataset");
    assert_eq!(output.text(), "done\n");
}

#[test]
fn a_profile_that_a_run_is_writing_is_not_taken_over() {
    let place = Place::new();
    let program =
        "import os, time\nfor _ in range(3000):\n    time.sleep(0.02)\n    if os.path.exists('end'): break";
    let words = ["-o", "p.radrm", "-q", "--no-dataset", "--", "python3", "-c", program];
    let first = place.run(&words).spawn().unwrap();
    crate::common::until("the profile", || place.join("p.radrm").exists().then_some(()));
    let second = finish(&mut place.run(&["-o", "p.radrm", "--no-dataset", "touch", "ran"]));
    second.code(125).one_sentence("is being written by another run");
    assert!(!place.join("ran").exists());
    fs::write(place.join("end"), "").unwrap();
    collect(first).code(0);
    // Once it is finished it may be replaced.
    finish(&mut place.run(&["-o", "p.radrm", "-q", "--no-dataset", "true"])).code(0);
}

#[test]
fn emulated_machines_leave_nothing_behind() {
    let place = Place::new();
    let temporary = place.join("tmp");
    fs::create_dir(&temporary).unwrap();
    let left = || fs::read_dir(&temporary).unwrap().count();
    let run = || {
        let mut command = watched(&place, &["-q", "--no-profile", "--no-dataset"]);
        command.env("TMPDIR", &temporary);
        command
    };
    finish(&mut run()).code(0);
    assert_eq!(left(), 0);
    // A launcher that is killed cannot tidy up; the next one does.
    let sleeper = ["-q", "--no-profile", "--no-dataset", "--emulate", "T4", "--", "sleep", "0.3"];
    let mut killed = place.run(&sleeper).env("TMPDIR", &temporary).spawn().unwrap();
    crate::common::until("the directory", || (left() == 1).then_some(()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    crate::common::until("the end of the program", || {
        finish(&mut run()).code(0);
        (left() == 0).then_some(())
    });
}

#[test]
fn an_estimate_is_the_peak_of_the_runs_before() {
    let place = Place::new();
    let estimate = |options: &[&str]| {
        let words = [&["estimate"], options, &["--", "python3", "-c", PROGRAM]].concat();
        radrm(&place, &words)
    };
    let before = estimate(&[]);
    before.code(0);
    assert!(before.text().contains("no runs of this program yet"), "{}", before.text());
    for _ in 0..2 {
        finish(&mut watched(&place, &["--quiet"])).code(0);
    }
    let dataset = Dataset::open_existing(&place.join("data/radrm/dataset.db")).unwrap();
    let rows = dataset.rows(&radrm_collector::dataset::Filter::default()).unwrap();
    let peak = rows.iter().filter_map(|row| row.footprint_bytes).max().unwrap();
    let need = json(&estimate(&["--json"]).code(0).text());
    assert_eq!((&need["memory"]["bytes"], &need["runs"]), (&peak.into(), &2.into()), "{need}");
    assert_eq!(need["memory"]["source"]["equal_runs"]["runs"], 2, "{need}");
    let text = estimate(&[]).text();
    assert!(text.contains("measured in 2 equal runs") && text.contains("on emulated GPUs"), "{text}");
    let other = json(&estimate(&["--json", "--gpus", "2"]).code(0).text());
    assert!(other["memory"].is_null() && other["advice"].is_string(), "{other}");
    estimate(&["--gpus", "x"]).code(2).one_sentence("--gpus");
    fs::write(place.join("odd.db"), "no database, but long enough to be read as one").unwrap();
    estimate(&["--dataset", "odd.db"]).code(1).one_sentence("damaged");
}

#[test]
fn a_dataset_is_copied_and_checked() {
    let place = Place::new();
    finish(&mut watched(&place, &["--quiet"])).code(0);
    radrm(&place, &["dataset", "backup", "copy.db"]).code(0);
    radrm(&place, &["dataset", "backup", "copy.db"]).code(1).one_sentence("copy.db exists");
    let listed = |options: &[&str]| radrm(&place, &[&["dataset", "list", "--json"], options].concat()).text();
    assert_eq!(listed(&[]), listed(&["--dataset", "copy.db"]));
    let table = radrm(&place, &["dataset", "list"]).text();
    assert!(table.contains("ORIGIN") && table.contains("emulated"), "{table}");
    let mode = fs::metadata(place.join("copy.db")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    let checked = radrm(&place, &["dataset", "check"]);
    assert!(checked.code(0).text().ends_with("dataset.db: ok, 1 runs\n"), "{}", checked.text());
    let mut bytes = fs::read(place.join("copy.db")).unwrap();
    bytes[4096..].fill(0xa5);
    fs::write(place.join("copy.db"), bytes).unwrap();
    radrm(&place, &["dataset", "check", "--dataset", "copy.db"]).code(1).one_sentence("damaged");
}
