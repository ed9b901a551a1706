//! A process without figures has a reason wherever its user looks: in the report, in its JSON, in `radrm audit`, and where
//! there is no report on its standard error.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use radrm_os::Process;
use radrm_preload_tests::{
    artifacts,
    child::{self, Ended, Running},
    node::may,
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_telemetry::layout::{HEADER_BYTES, SLOT_STRIDE};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 1024 * MIB;
/// The emulated GPU's memory.
const CARD: u64 = 40 << 30;

fn steps() -> String {
    programs::compile("steps.c", &[]).display().to_string()
}

/// `radrm-run` on a rig's machine under a limit, its report as JSON in a file.
pub fn limited(rig: &Rig, words: &[&str]) -> Command {
    launched(rig, &["--mem-limit", "1GiB"], words)
}

pub fn launched(rig: &Rig, options: &[&str], words: &[&str]) -> Command {
    for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
        artifacts::file(library);
    }
    let mut command = rig.bare_command(artifacts::file("radrm-run"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
    command.args(["--no-dataset", "--no-profile", "--machine"]).arg(rig.machine_path());
    command.args(options).arg(format!("--json={}", report(rig))).arg("--").args(words);
    command
}

fn report(rig: &Rig) -> String {
    rig.path().join("report.json").display().to_string()
}

/// The report that a run left.
#[track_caller]
pub fn read(rig: &Rig) -> Value {
    serde_json::from_str(&fs::read_to_string(report(rig)).expect("a report")).expect("JSON")
}

/// Reasons of the uncounted processes.
pub fn reasons(report: &Value) -> Vec<String> {
    let all = report["uncounted"].as_array().cloned().unwrap_or_default();
    all.iter().map(|process| process["reason"].as_str().expect("a reason").to_owned()).collect()
}

/// `radrm audit`'s reason for a process.
fn audited(rig: &Rig, pid: u32) -> String {
    let mut command = rig.bare_command(artifacts::file("radrm"));
    command.env("RADRM_LIB_DIR", artifacts::directory());
    command.args(["audit", "--json", "--machine"]).arg(rig.machine_path());
    let page: Value = serde_json::from_str(&child::run(command, PATIENCE).stdout).expect("JSON");
    let rows = page["processes"].as_array().cloned().unwrap_or_default();
    let row = rows.iter().find(|row| row["pid"].as_u64() == Some(pid.into()));
    row.and_then(|row| row["reason"].as_str()).unwrap_or_default().to_owned()
}

/// A way in which a process of a limited job cannot join it.
struct Way<'w> {
    options: &'w [&'w str],
    /// Commands of the shell before the program.
    before: &'w str,
    /// Command that starts the program, with a blank behind it.
    by: &'w str,
    code: &'w str,
    /// Size of the GPU's memory that the process sees.
    total: u64,
    /// Kind of the process in the report.
    kind: &'w str,
    /// It shows in the audit: the emulated driver, too, knows its processes by their entries in `/proc`.
    is_listed: bool,
    /// Neither the segment nor the board can be reached: the process prints its reason too.
    prints: bool,
}

impl Default for Way<'_> {
    fn default() -> Self {
        let options = &["--mem-limit", "1GiB"];
        Self {
            options,
            before: "",
            by: "",
            code: "",
            total: LIMIT,
            kind: "refused",
            is_listed: true,
            prints: false,
        }
    }
}

/// The process sees the limit and nothing free, is refused, and its reason is in the report, the JSON and the audit.
#[track_caller]
fn assert_refused(rig: &Rig, way: &Way<'_>) {
    let Way { options, before, by, code, total, kind, is_listed, prints } = *way;
    let script = format!("{before}\nexec {by}'{}' use:0 sees:0:{total} '!alloc:a:1m' pause", steps());
    let mut job = Running::start(launched(rig, options, &["/bin/sh", "-c", &script]), PATIENCE);
    let pid = job.until_ready();
    assert_eq!(audited(rig, pid), if is_listed { code } else { "" }, "{script}");
    // Of a process that says nothing where the recorder reads it, the job's audit alone knows: let it look a few times.
    thread::sleep(Duration::from_millis(400));
    job.go_on();
    let ended = job.end().ok();
    let report = read(rig);
    assert_eq!(reasons(&report), [code], "{script}: {report}");
    assert_eq!(report["uncounted"][0]["kind"], kind, "{report}");
    let notes = report["notes"].to_string();
    let refused = "got no GPU memory under the job's limit";
    assert_eq!(notes.contains(refused), kind == "refused", "{notes}");
    assert!(!notes.contains("no GPU program was seen"), "{notes}");
    let printed = ended.stderr.matches("gets no GPU memory").count();
    assert_eq!(printed, usize::from(prints), "{}", ended.stderr);
}

#[test]
fn each_way_of_not_joining_has_its_reason() {
    let rig = Rig::emulated("1xA100-40GB");
    let text = rig.path().join("text").display().to_string();
    fs::write(&text, "no segment").expect("file");
    for (before, code) in [
        ("unset RADRM_SEGMENT".to_owned(), "no-segment"),
        ("export RADRM_SEGMENT=".to_owned(), "empty-segment"),
        ("export RADRM_SEGMENT=/nowhere/segment".to_owned(), "segment-gone"),
        (format!("export RADRM_SEGMENT={text}"), "not-a-segment"),
        ("export RADRM_LEDGERS=/nowhere".to_owned(), "shared-ledger"),
    ] {
        assert_refused(&rig, &Way { before: &before, code, ..Way::default() });
    }
    // Of the limit's text nothing is left: the card is what is known.
    let before = "unset RADRM_SEGMENT RADRM_LIMITS";
    assert_refused(&rig, &Way { before, code: "no-segment", total: CARD, ..Way::default() });
}

#[test]
fn a_kernel_that_refuses_what_joining_needs_is_named() {
    let rig = Rig::emulated("1xA100-40GB");
    let deny = programs::compile("deny.c", &[]).display().to_string();
    if !may(&[&deny, "madvise", "18", "true"]) {
        return;
    }
    // MADV_WIPEONFORK, the segment's header, a slot.
    for (call, code) in [
        ("madvise 18".to_owned(), "no-wipe"),
        (format!("shared {HEADER_BYTES}"), "no-mapping"),
        (format!("shared {SLOT_STRIDE}"), "no-mapping"),
    ] {
        assert_refused(&rig, &Way { by: &format!("'{deny}' {call} "), code, ..Way::default() });
    }
}

#[test]
fn a_process_of_another_user_has_its_reason() {
    let by = "setpriv --reuid=64004 --regid=64004 --clear-groups ";
    if !may(&[&by.split_whitespace().collect::<Vec<_>>()[..], &["true"]].concat()) {
        return;
    }
    let rig = Rig::emulated("1xA100-40GB");
    for (path, mode) in [(rig.path().to_owned(), 0o755), (rig.machine_path(), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    }
    assert_refused(&rig, &Way { by, code: "segment-forbidden", prints: true, ..Way::default() });
}

#[test]
fn a_process_that_proc_does_not_show_has_its_reason() {
    let by = "unshare --mount sh -c 'mount --bind /dev/null /proc/$$/stat && exec \"$0\" \"$@\"' ";
    if !may(&["sh", "-c", &format!("{by} true")]) {
        return;
    }
    assert_refused(
        &Rig::emulated("1xA100-40GB"),
        &Way { by, code: "no-proc", is_listed: false, ..Way::default() },
    );
}

#[test]
fn a_segment_without_a_limit_under_a_limit_is_named() {
    let rig = Rig::emulated("1xA100-40GB");
    // In a job without a limit: what the limit is nothing says.
    let own =
        Way { options: &[], before: "export RADRM_QUOTA=1", kind: "unseen", total: CARD, ..Way::default() };
    assert_refused(&rig, &Way { code: "no-ledger", ..own });
    assert!(read(&rig)["notes"].to_string().contains("no request for memory is granted"));
    // Of another job.
    let mut other = Running::start(launched(&rig, &[], &[&steps(), "use:0", "pause"]), PATIENCE);
    let pid = other.until_ready();
    let segment = Process(pid).variable("RADRM_SEGMENT").expect("its segment").into_string().expect("text");
    let before = format!("export RADRM_SEGMENT='{segment}'");
    assert_refused(&rig, &Way { before: &before, code: "no-ledger", ..Way::default() });
    other.go_on();
    other.end().ok();
}

#[test]
fn a_segment_of_another_version_is_named() {
    let rig = Rig::emulated("1xA100-40GB");
    let file = rig.path().join("version").display().to_string();
    let script = format!(
        "printf 'RADRMSEG\\001\\000\\000\\000\\000\\000\\000\\000' > {file}; export RADRM_SEGMENT={file}; unset RADRM_QUOTA; \
         '{}' use:0 alloc:a:1m",
        steps()
    );
    child::run(limited(&rig, &["/bin/sh", "-c", &script]), PATIENCE).ok();
    // Without a word of the limit the process is only not counted.
    let report = read(&rig);
    assert!(reasons(&report).contains(&"other-version".to_owned()), "{report}");
}

#[test]
fn a_process_that_ends_at_once_has_its_reason() {
    let rig = Rig::emulated("1xA100-40GB");
    for _ in 0..3 {
        let command = limited(&rig, &["env", "-u", "RADRM_SEGMENT", &steps(), "use:0", "!alloc:a:1m"]);
        child::run(command, PATIENCE).ok();
        let report = read(&rig);
        assert_eq!(reasons(&report), ["no-segment"], "{report}");
        assert!(report["unseen"][0].as_str().is_some_and(|text| text.contains("RADRM_SEGMENT")), "{report}");
    }
}

#[test]
fn a_process_without_descriptors_has_its_reason() {
    let rig = Rig::emulated("1xA100-40GB");
    // The emulated driver keeps no file open; a shell needs a few while it starts.
    let script = format!("ulimit -n 3; exec '{}' use:0 sees:0:{LIMIT} '!alloc:a:1m'", steps());
    let ended = child::run(limited(&rig, &["/bin/sh", "-c", &script]), PATIENCE);
    if ended.stderr.contains("error while loading shared libraries") {
        return eprintln!("skipped: nothing can be loaded without a descriptor: {}", ended.stderr);
    }
    let report = read(&rig);
    assert_eq!(reasons(&report), ["no-descriptor"], "{report} {ended:?}");
}

#[test]
fn a_limit_on_the_address_space_is_named() {
    let rig = Rig::emulated("1xA100-40GB");
    let script = format!("ulimit -v 400000; exec '{}' use:0 alloc:a:1m", steps());
    for options in [&[][..], &["--mem-limit", "1GiB"]] {
        let ended = child::run(launched(&rig, options, &["/bin/sh", "-c", &script]), PATIENCE);
        let report = read(&rig);
        assert_eq!(reasons(&report), ["address-space"], "{options:?}: {report} {ended:?}");
        assert!(report["notes"].to_string().contains("ulimit -v"), "{report}");
    }
}

#[test]
fn a_sandbox_with_its_own_shm_has_its_reason() {
    let rig = Rig::emulated("1xA100-40GB");
    let machine = rig.path().display().to_string();
    let sandbox =
        ["bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", &machine, &machine];
    if !Command::new(sandbox[0])
        .args(&sandbox[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return eprintln!("skipped: bwrap makes no sandbox here");
    }
    let sees = format!("sees:0:{LIMIT}");
    let steps = steps();
    let program = [&sandbox[..], &[&steps, "use:0", &sees, "!alloc:a:1m"]].concat();
    // Where the segment lies elsewhere the sandbox takes nothing away.
    let mut command = limited(&rig, &program);
    command.env_remove("XDG_RUNTIME_DIR");
    if Path::new("/run/radrm").exists() {
        return eprintln!("skipped: segments lie in /run/radrm here");
    }
    child::run(command, PATIENCE).ok();
    let report = read(&rig);
    assert_eq!(reasons(&report), ["segment-gone"], "{report}");
}

#[test]
fn without_a_report_the_process_prints_its_reason_once() {
    let mut rig = Rig::emulated("1xA100-40GB").limited("1GiB");
    let made = |rig: &Rig| {
        let mut command = rig.command(steps());
        command.args(["use:0", "!alloc:a:1m", "!alloc:b:1m"]);
        command
    };
    let command = made(&rig);
    let mut quiet = made(&rig);
    quiet.env("RADRM_QUIET", "1");
    rig.end_session();
    let ended: Ended = child::run(command, PATIENCE).ok();
    let said: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("gets no GPU memory")).collect();
    assert_eq!(said.len(), 1, "{ended:?}");
    assert!(said[0].starts_with("radrm: process ") && said[0].contains("remedy: "), "{said:?}");
    let ended = child::run(quiet, PATIENCE).ok();
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_child_that_left_the_limit_is_in_the_jobs_report() {
    let rig = Rig::emulated("1xA100-40GB");
    let program = steps();
    let machine = format!("RADRM_EMULATED_MACHINE={}", rig.machine_path().display());
    let libraries = format!("LD_LIBRARY_PATH={}", rig.libraries().display());
    let takes = [&*program, "use:0", "alloc:a:2g", "sleep:400"];
    for (environment, code) in [
        (&["-u", "LD_PRELOAD"][..], "lost-preload"),
        (&["LD_PRELOAD=/nowhere/libradrm.so"], "not-loaded"),
        (&["RADRM_DISABLE=1"], "disabled"),
        (&["-i", &machine, &libraries], "left-job"),
    ] {
        let words = [&["env"], environment, &takes].concat();
        // Alone, and beside a process that is counted; it ends long before the job does.
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let beside = format!("{} ; '{program}' use:0 alloc:a:10m sleep:200", quoted.join(" "));
        for words in [words.clone(), vec!["/bin/sh", "-c", &beside]] {
            child::run(limited(&rig, &words), PATIENCE).ok();
            let report = read(&rig);
            assert_eq!(reasons(&report), [code], "{words:?}: {report}");
            let found = &report["uncounted"][0];
            assert_eq!(found["kind"], "outside", "{found}");
            assert!(found["gpus"][0]["peak_bytes"].as_u64() >= Some(2048 * MIB), "{found}");
            assert!(found["last_ns"].as_u64() > found["first_ns"].as_u64(), "{found}");
            assert!(report["notes"].to_string().contains("outside of the job's limit"), "{report}");
        }
    }
}

#[test]
fn drivers_loaded_past_the_shim_are_in_the_jobs_report() {
    let rig = Rig::emulated("1xA100-40GB");
    let program = programs::compile("evades.c", &[]).display().to_string();
    let genuine = rig.libraries().join("libcuda.so.1").display().to_string();
    let copy = rig.path().join("libown.so");
    fs::copy(artifacts::file("libradrm_emulated_cuda.so"), &copy).expect("copy");
    let copy = copy.display().to_string();
    for (words, code) in
        [([&*program, "dlmopen", &genuine], "dlmopen"), ([&*program, "second", &copy], "other-driver")]
    {
        let mut job = Running::start(limited(&rig, &words), PATIENCE);
        let pid = job.until_ready();
        assert_eq!(audited(&rig, pid), code);
        // The recorder's own poll comes at least twice a second.
        thread::sleep(Duration::from_millis(1200));
        job.go_on();
        job.end().ok();
        let report = read(&rig);
        assert_eq!(reasons(&report), [code], "{report}");
    }
}

#[test]
fn a_job_inside_its_limit_has_nothing_uncounted() {
    let rig = Rig::emulated("1xA100-40GB");
    child::run(limited(&rig, &[&steps(), "use:0", "alloc:a:500m", "sleep:600"]), PATIENCE).ok();
    let report = read(&rig);
    assert!(report["uncounted"].is_null() && report["init_failures"].is_null(), "{report}");
}

/// A driver whose cuInit fails.
fn failing_driver(rig: &Rig, code: u32) {
    let source = rig.path().join("driver.c");
    fs::write(&source, format!("int cuInit(unsigned f) {{ return {code}; }}\n")).expect("source");
    let library = rig.libraries().join("libcuda.so.1");
    let done = Command::new("gcc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    assert!(done.is_ok_and(|status| status.success()), "gcc");
}

#[test]
fn a_failed_start_of_the_driver_is_a_figure() {
    for (code, name, word) in [
        (999, "CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "cuda-compat"),
        (100, "CUDA_ERROR_NO_DEVICE", "MIG"),
        (101, "CUDA_ERROR_INVALID_DEVICE", "CUDA_VISIBLE_DEVICES"),
        (34, "CUDA_ERROR_STUB_LIBRARY", "stubs"),
        (3, "CUDA_ERROR_NOT_INITIALIZED", "spawn"),
        (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "nvidia-smi -c DEFAULT"),
        (4711, "", "radrm doctor"),
    ] {
        let rig = Rig::empty();
        failing_driver(&rig, code);
        let program = rig.path().join("asks.c");
        fs::write(
            &program,
            "#include <dlfcn.h>\n#include <errno.h>\nint main(void) {\n\
             int (*init)(unsigned) = dlsym(dlopen(\"libcuda.so.1\", RTLD_NOW), \"cuInit\");\n\
             errno = 77; int code = init(0); init(0); return code == CODE && errno == 77 ? 0 : 1; }\n",
        )
        .expect("source");
        let asks = rig.path().join("asks");
        let done = Command::new("gcc")
            .arg(format!("-DCODE={code}"))
            .arg("-o")
            .arg(&asks)
            .arg(&program)
            .arg("-ldl")
            .status();
        assert!(done.is_ok_and(|status| status.success()), "gcc");
        let mut command = rig.bare_command(artifacts::file("radrm-run"));
        command.env("RADRM_LIB_DIR", artifacts::directory());
        command
            .args(["--no-dataset", "--no-profile"])
            .arg(format!("--json={}", report(&rig)))
            .arg("--")
            .arg(&asks);
        child::run(command, PATIENCE).ok();
        let report = read(&rig);
        let failures = report["init_failures"].as_array().cloned().unwrap_or_default();
        assert_eq!(failures.len(), 1, "{report}");
        let failure = &failures[0];
        assert_eq!(
            (&failure["call"], &failure["code"], &failure["name"]),
            (&"cuInit".into(), &code.into(), &name.into())
        );
        assert_eq!(failure["pids"].as_array().map(Vec::len), Some(1), "once in each process: {failure}");
        let said = report["unseen"][0].as_str().unwrap_or_default();
        assert!(said.starts_with(&format!("cuInit failed with {code}")) && said.contains(word), "{said}");
        assert!(said.contains(name) && !report["notes"].to_string().contains("no GPU program"), "{report}");
    }
}
