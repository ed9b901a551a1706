//! Reports to programs under a quota: the quota is the machine, and their job is alone on it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use radrm_preload_tests::{
    artifacts,
    child::{self, Ended, Running},
    programs, python,
    rig::{PATIENCE, Rig},
};
use radrm_telemetry::ledger::{LedgerView, Place};

const MIB: u64 = 1 << 20;
/// Size of the cards, unless a test says otherwise.
const CARD: u64 = 1024 * MIB;

/// Cards of 1 GiB on which contexts take nothing, so that figures come out to the byte.
fn rig_of(fields: &str, limit: Option<&str>) -> Rig {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("description");
    let text = format!("[[gpu]]\nmodel = \"A100-40GB\"\nmemory_mib = 1024\ncontext_mib = 0\n{fields}");
    fs::write(file.path(), text).expect("description");
    let rig = Rig::emulated(file.path().to_str().expect("text"));
    match limit {
        Some(limit) => rig.limited(limit),
        None => rig,
    }
}

fn loaded() -> PathBuf {
    programs::compile("quota_told.c", &[])
}

/// The same program, linked with libcuda and NVML.
fn linked() -> PathBuf {
    artifacts::file("libradrm_emulated_nvml.so");
    let place = format!("-L{}", artifacts::directory().display());
    let nvml = "-l:libradrm_emulated_nvml.so";
    programs::compile("quota_told.c", &["-DNVML_LINKED", "-DROUTE_LINKED", "-lcuda", &place, nvml])
}

fn with(mut command: Command, steps: &[&str]) -> Command {
    command.args(steps);
    command
}

/// Output of a program in the rig's job.
#[track_caller]
fn told(rig: &Rig, steps: &[&str]) -> String {
    child::run(with(rig.command(loaded()), steps), PATIENCE).ok().stdout
}

/// Output of a program outside of any job.
#[track_caller]
fn told_bare(rig: &Rig, steps: &[&str]) -> String {
    child::run(with(rig.bare_command(loaded()), steps), PATIENCE).ok().stdout
}

/// A program that has taken its steps and waits.
#[track_caller]
fn waiting(command: Command, steps: &[&str]) -> Running {
    let mut running = Running::start(with(command, &[steps, &["pause"]].concat()), 4 * PATIENCE);
    for step in steps.iter().filter(|step| !step.starts_with("use")) {
        assert_eq!(running.line().trim(), "granted", "{step}");
    }
    running.until_ready();
    running
}

/// The figures behind a word.
#[track_caller]
fn figures(text: &str, word: &str) -> Vec<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {word} in {text}"));
    line.split(' ').map(|figure| figure.parse().unwrap_or_else(|_| panic!("{word} {line}"))).collect()
}

/// Asserts that NVML tells a device of `total` bytes with `free` of them, in both versions.
#[track_caller]
fn assert_memory(text: &str, total: u64, free: u64) {
    assert_eq!(figures(text, "memory"), [total, free, total - free]);
    assert_eq!(figures(text, "memory_v2"), [total, 0, free, total - free]);
}

/// Processes of a list, as far as a whole word tells it.
#[track_caller]
fn listed(text: &str, list: &str) -> Vec<u32> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(list));
    let line = line.unwrap_or_else(|| panic!("no {list} in {text}"));
    let pid = |entry: &str| entry.split(':').next().and_then(|pid| pid.parse().ok()).expect("a pid");
    line.split(' ').skip(1).map(pid).collect()
}

const COMPUTE: [&str; 3] = [
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
];

#[test]
fn case_10_null_pointers_to_cumemgetinfo() {
    let rig = rig_of("", Some("300MiB"));
    for program in [loaded(), linked()] {
        let command = with(rig.command(program), &["use:0", "alloc:0x100000", "null"]);
        let text = child::run(command, PATIENCE).ok().stdout;
        assert_eq!(figures(&text, "null"), [0, 300 * MIB, 0, 299 * MIB, 0]);
    }
    // The bare driver answers alike.
    assert_eq!(figures(&told_bare(&rig, &["use:0", "null"]), "null"), [0, CARD, 0, CARD, 0]);
}

#[test]
fn case_19_driver_and_nvml_tell_the_quota_and_agree() {
    let rig = rig_of("", Some("300MiB"));
    let holder = waiting(rig.command(loaded()), &["use:0", "alloc:0x2000000"]);
    // Another process on the GPU takes nothing off the quota as long as there is room for both.
    let other = waiting(rig.bare_command(loaded()), &["use:0", "alloc:0x10000000"]);
    for program in [loaded(), linked()] {
        let steps = ["use:0", "alloc:0x1000000", "driver:0", "memory:0"];
        let text = child::run(with(rig.command(program), &steps), PATIENCE).ok().stdout;
        assert_eq!(figures(&text, "driver"), [300 * MIB, 252 * MIB, 300 * MIB]);
        assert_memory(&text, 300 * MIB, 252 * MIB);
        assert!(figures(&text, "bar1")[0] >= CARD, "what is no memory of the device stays as it is");
    }
    assert_memory(&told_bare(&rig, &["memory:0"]), CARD, CARD - 288 * MIB);
    // A card that is fuller than the quota.
    let greedy = waiting(rig.bare_command(loaded()), &["use:0", "alloc:0x24000000"]);
    let text = told(&rig, &["use:0", "driver:0", "memory:0"]);
    assert_eq!(figures(&text, "driver"), [300 * MIB, 160 * MIB, 300 * MIB]);
    assert_memory(&text, 300 * MIB, 160 * MIB);
    for running in [holder, other, greedy] {
        running.end().ok();
    }
    assert_memory(&told(&rig, &["memory:0"]), 300 * MIB, 300 * MIB);
}

#[test]
fn case_19_the_lists_of_processes_are_the_jobs() {
    let rig = rig_of("count = 2\n", Some("0=300MiB,1=none"));
    let ours = waiting(rig.command(loaded()), &["use:0", "alloc:0x200000"]);
    let elsewhere = waiting(rig.command(loaded()), &["use:1", "alloc:0x200000"]);
    let alone = ours.pid();
    // A long list, of which the smallest part is the job's.
    let others: Vec<Running> =
        (0..9).map(|_| waiting(rig.bare_command(loaded()), &["use:0", "alloc:0x100000"])).collect();
    for program in [loaded(), linked()] {
        let text = child::run(with(rig.command(program), &["lists:0"]), PATIENCE).ok().stdout;
        for list in COMPUTE {
            assert_eq!(listed(&text, list), [alone], "{list}");
        }
        assert!(text.contains(&format!("{alone}:{}", 2 * MIB)), "what it holds is told as it is: {text}");
        assert_eq!(listed(&text, "nvmlDeviceGetGraphicsRunningProcesses_v3"), [0_u32; 0]);
        assert_eq!(listed(&text, "nvmlDeviceGetMPSComputeRunningProcesses_v3"), [0_u32; 0]);
    }
    assert_eq!(listed(&told_bare(&rig, &["lists:0"]), COMPUTE[2]).len(), 10);
    let second = waiting(rig.command(loaded()), &["use:0", "alloc:0x100000"]);
    let mut both = listed(&told(&rig, &["lists:0"]), COMPUTE[2]);
    both.sort_unstable();
    let mut expected = [alone, second.pid()];
    expected.sort_unstable();
    assert_eq!(both, expected);
    // One that was killed is not there any more.
    second.signal(libc::SIGKILL);
    assert!(!second.end().status.success());
    assert_eq!(listed(&told(&rig, &["lists:0"]), COMPUTE[0]), [alone]);
    // The other card has no limit: everybody is there.
    let unmanaged = waiting(rig.bare_command(loaded()), &["use:1", "alloc:0x100000"]);
    assert_eq!(listed(&told(&rig, &["lists:1"]), COMPUTE[1]).len(), 2);
    for running in others.into_iter().chain([ours, elsewhere, unmanaged]) {
        running.end().ok();
    }
}

#[test]
fn case_19_the_tightest_of_several_limits_is_told() {
    let rig = rig_of("", Some("300MiB"));
    let config = rig.path().join("node.toml");
    // SAFETY: a plain system call.
    let uid = unsafe { libc::getuid() };
    for (user, total) in [("10%", 102), ("200MiB", 200), ("40%", 300)] {
        fs::write(&config, format!("[user.{uid}]\nmem-limit = \"{user}\"\n")).expect("limits");
        let mut command = with(rig.launched(loaded()), &["memory:0", "use:0", "driver:0", "memory:0"]);
        command.env("RADRM_CONFIG", &config);
        let text = rig.outcome(child::run(command, PATIENCE)).ok().ended.stdout;
        let total = if user == "10%" { CARD / 10 } else { total * MIB };
        assert_memory(&text, total, total);
        assert_eq!(figures(&text, "driver"), [total, total, total], "{user}");
        let (_, after) = text.split_once("driver").expect("both");
        assert_memory(after, total, total);
    }
}

#[test]
fn case_19_a_monitor_takes_no_place_in_the_job() {
    let mut rig = rig_of("", Some("300MiB"));
    let holder = waiting(rig.command(loaded()), &["use:0", "alloc:0x2000000"]);
    let segment = PathBuf::from(rig.segment());
    for _ in 0..3 {
        assert_memory(&told(&rig, &["memory:0", "lists:0"]), 300 * MIB, 268 * MIB);
    }
    let monitor = waiting(rig.command(loaded()), &[]);
    let members = || LedgerView::open(&segment, Place::Segment).expect("ledger").members();
    assert_eq!(members().iter().map(|member| member.pid).collect::<Vec<_>>(), [holder.pid()]);
    for running in [holder, monitor] {
        running.end().ok();
    }
    assert_eq!(rig.end_session().profile.processes.len(), 1);
}

#[test]
fn case_19_without_a_quota_and_for_calls_that_fail_nvml_speaks_for_itself() {
    let steps = ["memory:0", "lists:0", "odd:0"];
    let rig = rig_of("", None);
    let other = waiting(rig.bare_command(loaded()), &["use:0", "alloc:0x10000000"]);
    let bare = told_bare(&rig, &steps);
    assert_memory(&bare, CARD, CARD - 256 * MIB);
    assert_eq!(told(&rig, &steps), bare);
    other.end().ok();
    let limited = rig_of("", Some("300MiB"));
    let other = waiting(limited.bare_command(loaded()), &["use:0", "alloc:0x200000"]);
    assert_eq!(told(&limited, &["odd:0"]), told_bare(&limited, &["odd:0"]));
    other.end().ok();
    // The switch turns this off too.
    for program in [loaded(), linked()] {
        let mut command = with(limited.command(program), &["memory:0"]);
        command.env("RADRM_DISABLE", "1");
        assert_memory(&child::run(command, PATIENCE).ok().stdout, CARD, CARD);
    }
}

/// A rig with the small NVML of `programs/quota_told_nvml.c` in the place of the emulated one.
fn rig_of_other_nvml(flags: &[&str]) -> Rig {
    let rig = rig_of("", Some("300MiB"));
    // The launcher is content with the emulated one.
    rig.segment();
    let library = programs::compile(
        "quota_told_nvml.c",
        &[&["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"], flags].concat(),
    );
    let place = rig.libraries().join("libnvidia-ml.so.1");
    fs::remove_file(&place).expect("link");
    symlink(library, place).expect("link");
    rig
}

/// Output of a program with the small NVML and these processes on the device.
#[track_caller]
fn told_by_other(rig: &Rig, mut command: Command, pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    command.env("FAKE_UUID", rig.machine().spec().uuid_text(0)).env("FAKE_PIDS", pids.join(","));
    child::run(command, PATIENCE).ok().stdout
}

#[test]
fn case_19_an_nvml_with_longer_elements_and_memory_of_its_own() {
    let rig = rig_of_other_nvml(&[]);
    let holder = waiting(rig.command(loaded()), &["use:0", "alloc:0x2000000"]);
    let other = waiting(rig.command(loaded()), &["use:0", "alloc:0x2000000"]);
    let steps = ["memory:0", "long:0", "details:0", "newer:0"];
    // Pid 1 is not a member, and is listed before, between and after those that are.
    let pids = [1, other.pid(), 1, 1, holder.pid(), 1];
    let text = told_by_other(&rig, with(rig.command(loaded()), &steps), &pids);
    // What the device keeps lies outside of the quota.
    assert_memory(&text, 300 * MIB, 236 * MIB);
    for list in ["long", "details"] {
        assert_eq!(listed(&text, list), [other.pid(), holder.pid()]);
    }
    let untouched = [1000 * MIB, 100 * MIB, 700 * MIB, 200 * MIB];
    assert_eq!(figures(&text, "newer"), untouched, "a structure of an unknown version is left alone");
    let bare = told_by_other(&rig, with(rig.bare_command(loaded()), &steps), &pids);
    assert_eq!(listed(&bare, "details"), pids);
    assert_eq!(figures(&bare, "memory_v2"), untouched);
    // A device that does not tell its name is shown as it is.
    let steps = ["memory:0", "long:0"];
    let mut command = with(rig.command(loaded()), &steps);
    command.env("FAKE_PIDS", "1");
    let text = child::run(command, PATIENCE).ok().stdout;
    assert_eq!((figures(&text, "memory_v2"), listed(&text, "long")), (untouched.to_vec(), vec![1]));
    for running in [holder, other] {
        running.end().ok();
    }
}

#[test]
fn case_19_an_nvml_that_lacks_a_function() {
    let rig = rig_of_other_nvml(&["-DOLD"]);
    let text = told_by_other(&rig, with(rig.command(linked()), &["memory:0"]), &[]);
    assert_eq!(figures(&text, "memory"), [300 * MIB, 300 * MIB, 0]);
    assert!(text.contains("memory_v2 error 13\n"), "{text}");
}

/// Waits until the launcher has measured what the driver takes for every process of the job.
fn until_contexts_are_measured(rig: &Rig) {
    let view = LedgerView::open(&PathBuf::from(rig.segment()), Place::Segment).expect("ledger");
    let deadline = Instant::now() + Duration::from_secs(PATIENCE);
    while view.members().iter().any(|member| member.overhead.iter().sum::<u64>() == 0) {
        assert!(Instant::now() < deadline, "nothing was measured: {:?}", view.members());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn case_26_what_jax_and_vllm_preallocate_fits_into_the_quota() {
    for share in ["share:75", "share:90"] {
        // Contexts as large as the model's: what is left of the quota has room for them.
        let mut rig = Rig::emulated("1xH200").limited("16GiB");
        // Another job has measured them before.
        let earlier = waiting(rig.command(loaded()), &["use:0", "alloc:0x200000"]);
        until_contexts_are_measured(&rig);
        let before = earlier.pid();
        earlier.end().ok();
        rig.end_session();
        let first = waiting(rig.command(loaded()), &["use:0", share]);
        // The second is refused its share of the whole, and gets what is left.
        let text = told(&rig, &["use:0", share, "left:90", "driver:0", "memory:0"]);
        assert_eq!(text.lines().take(2).collect::<Vec<_>>(), ["refused", "granted"], "{share}");
        let [total, free, _] = figures(&text, "driver")[..] else { panic!("{text}") };
        assert_memory(&text, total, free);
        assert_eq!(total, 16 << 30);
        let ledgers = rig.ledgers();
        let peaks = ledgers.iter().filter(|ledger| ledger.pid != before).flat_map(|ledger| &ledger.gpus);
        let held: u64 = peaks.map(|gpu| gpu.held_peak).sum();
        assert!(held <= 16 << 30, "{held} bytes were held under a quota of 16 GiB");
        first.end().ok();
        assert_eq!(told(&rig, &["use:0", share]), "granted\n");
    }
}

#[test]
fn case_04_the_gpu_that_a_name_means_is_the_one_that_is_told() {
    for fields in ["count = 3\n", "count = 3\nmig_profile = \"1g.5gb\"\n"] {
        let name = |gpu: usize| rig_of(fields, None).machine().spec().uuid_text(gpu);
        let rig = rig_of(fields, Some(&format!("0=100MiB,{}=200MiB", &name(1)[..16])));
        for (visible, device, gpu) in [("1", 0, 1), (name(1).as_str(), 0, 1), ("1,0", 1, 0), ("2,1", 1, 1)] {
            let limit = [100 * MIB, 200 * MIB][gpu];
            let (device, gpu) = (format!("driver:{device}"), format!("memory:{gpu}"));
            let used = format!("use:{}", device.trim_start_matches("driver:"));
            let steps = [&used, "alloc:0x1000000", &device, &gpu, "alloc:0x10000000"];
            let mut command = with(rig.command(loaded()), &steps);
            command.env("CUDA_VISIBLE_DEVICES", visible);
            let text = child::run(command, PATIENCE).ok().stdout;
            assert_eq!(figures(&text, "driver"), [limit, limit - 16 * MIB, limit], "{visible}");
            assert_memory(&text, limit, limit - 16 * MIB);
            assert_eq!(text.lines().next_back(), Some("refused"), "{visible}");
        }
        // The third has no limit.
        assert_memory(&told(&rig, &["memory:0"]), 100 * MIB, 100 * MIB);
        assert_memory(&told(&rig, &["memory:2"]), CARD, CARD);
    }
}

#[test]
fn case_24_a_quota_on_a_machine_with_unified_memory() {
    let rig = rig_of("name = \"NVIDIA GB10\"\nintegrated = true\n", Some("300MiB"));
    let text = told(&rig, &["use:0", "alloc:0x2000000", "driver:0", "memory:0", "share:90", "left:90"]);
    assert_eq!(figures(&text, "driver"), [300 * MIB, 268 * MIB, 300 * MIB]);
    // NVML tells no figures of memory there, and is not made to.
    assert!(text.contains("memory error 3\nmemory_v2 error 3\n"), "{text}");
    assert!(text.ends_with("refused\ngranted\n"), "{text}");
}

#[test]
fn a_monitor_in_python_sees_the_quota() {
    let Some(python) = python::interpreter() else { return };
    let rig = rig_of("", Some("300MiB"));
    let holder = waiting(rig.command(loaded()), &["use:0", "alloc:0x2000000"]);
    let other = waiting(rig.bare_command(loaded()), &["use:0", "alloc:0x2000000"]);
    let script = python::script("nvml_quota.py");
    let text = child::run(with(rig.command(&python), &[&script]), PATIENCE).ok().stdout;
    assert_memory(&text, 300 * MIB, 268 * MIB);
    for list in [COMPUTE[0], COMPUTE[1]] {
        assert_eq!(listed(&text, list), [holder.pid()], "{list}");
    }
    let Ended { stdout, .. } = child::run(with(rig.bare_command(&python), &[&script]), PATIENCE).ok();
    assert_memory(&stdout, CARD, CARD - 64 * MIB);
    for running in [holder, other] {
        running.end().ok();
    }
}
