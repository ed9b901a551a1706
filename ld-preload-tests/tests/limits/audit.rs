//! `radrm audit`: programs that take GPU memory past the shim have to be named, others not.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
};

use radrm_os::Process;
use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    programs,
    rig::{PATIENCE, Rig},
};

const MIB: u64 = 1 << 20;

/// An emulated machine, and what was measured of its contexts.
struct Node {
    rig: Rig,
}

impl Node {
    fn new() -> Self {
        Self { rig: Rig::emulated("1xA100-40GB") }
    }

    fn launcher(&self, options: &[&str]) -> Command {
        for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
            artifacts::file(library);
        }
        let mut command = self.rig.bare_command(artifacts::file("radrm-run"));
        command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
        command.args(["--no-dataset", "--no-profile", "--quiet", "--machine"]).arg(self.rig.machine_path());
        command.args(options).arg("--");
        command
    }

    fn job(&self, program: &Path, arguments: &[&str]) -> (Running, u32) {
        let mut command = self.launcher(&[]);
        command.arg(program).args(arguments);
        started(command)
    }

    /// Page of the audit, and its exit code.
    fn audit(&self, words: &[&str]) -> (i32, serde_json::Value) {
        let mut command = self.rig.bare_command(artifacts::file("radrm"));
        command.env("RADRM_LIB_DIR", artifacts::directory());
        command.args(["audit", "--json", "--machine"]).arg(self.rig.machine_path()).args(words);
        let ended = child::run(command, PATIENCE);
        let code = ended.status.code().expect("an exit code");
        let page = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        (code, page)
    }

    /// The same as text.
    fn text(&self) -> String {
        let mut command = self.rig.bare_command(artifacts::file("radrm"));
        command.env("RADRM_LIB_DIR", artifacts::directory());
        command.args(["audit", "--machine"]).arg(self.rig.machine_path());
        child::run(command, PATIENCE).stdout
    }

    /// A job under a limit runs long enough for its context to be measured.
    fn measure_context(&self) {
        let mut command = self.launcher(&["--mem-limit", "100%"]);
        command.arg(steps()).args(["use:0", "alloc:a:10m", "sleep:2500"]);
        child::run(command, PATIENCE).ok();
    }
}

fn steps() -> std::path::PathBuf {
    programs::compile("steps.c", &[])
}

#[track_caller]
fn started(command: Command) -> (Running, u32) {
    let mut running = Running::start(command, PATIENCE);
    let pid = running.until_ready();
    (running, pid)
}

fn finish(mut running: Running) {
    running.go_on();
    running.end().ok();
}

/// The row of a process.
#[track_caller]
fn row(page: &serde_json::Value, pid: u32) -> serde_json::Value {
    let rows = page["processes"].as_array().expect("processes");
    rows.iter()
        .find(|row| row["pid"].as_u64() == Some(pid.into()))
        .unwrap_or_else(|| panic!("{pid}: {page}"))
        .clone()
}

#[test]
fn what_is_counted_is_no_finding() {
    let node = Node::new();
    assert_eq!(node.audit(&[]).0, 0, "an idle machine");
    assert!(node.text().starts_with("no process holds GPU memory"));
    let (one, pid) = node.job(
        &steps(),
        &["use:0", "alloc:a:500m", "async:b:300m", "managed:c:200m", "create:d:100m:0", "load", "pause"],
    );
    let (two, _) = node.job(&steps(), &["use:0", "alloc:a:10g", "pause"]);
    let (code, page) = node.audit(&[]);
    assert_eq!((code, page["found"].as_bool()), (0, Some(false)), "{page}");
    let row = row(&page, pid);
    assert_eq!(row["job"].as_u64(), Some(one.pid().into()));
    assert!(row["counted_bytes"].as_u64() >= Some(1100 * MIB) && row["reason"].is_null(), "{row}");
    assert!(node.text().starts_with("nothing found: what 2 processes hold"), "{}", node.text());
    finish(one);
    finish(two);
}

#[test]
fn case_23_a_library_opened_with_deepbind_is_named() {
    let node = Node::new();
    node.measure_context();
    let library =
        programs::compile("deepbind_library.c", &["-fPIC", "-shared", "-lcuda"]).display().to_string();
    let (job, pid) = node.job(&programs::compile("deepbind.c", &[]), &[&library]);
    let (honest, other) = node.job(&steps(), &["use:0", "alloc:a:101m", "pause"]);
    let (code, page) = node.audit(&[]);
    assert_eq!(code, 3, "{page}");
    let found = row(&page, pid);
    assert_eq!(found["reason"], "deepbind", "{found}");
    assert!(found["explanation"].as_str().is_some_and(|text| text.contains(&library)), "{found}");
    // 100 MiB pass by the shim; code and steps of the driver blur that a little.
    let unexplained = found["unexplained_bytes"].as_u64().expect("bytes");
    assert!(unexplained.abs_diff(100 * MIB) < 16 * MIB, "{found}");
    assert!(row(&page, other)["reason"].is_null(), "{page}");
    assert!(node.text().contains("RTLD_DEEPBIND"));
    assert_eq!(node.audit(&["--tolerance", "500MiB"]).0, 0, "tolerated when told to");
    finish(job);
    finish(honest);
}

/// A child that a job starts by `env` evades the shim: the audit has to name it by `code`, with a remedy.
#[track_caller]
fn assert_named(node: &Node, program: &[&str], code: &str) {
    let (job, pid) = node.job(Path::new("env"), program);
    let (exit, page) = node.audit(&[]);
    let row = row(&page, pid);
    assert_eq!((exit, row["reason"].as_str()), (3, Some(code)), "{program:?}: {page}");
    assert!(row["unexplained_bytes"].as_u64() >= Some(50 * MIB), "{row}");
    let text = node.text();
    let words = ["explanation", "remedy"].map(|key| row[key].as_str().expect("a sentence").to_owned());
    assert!(words.iter().all(|words| text.contains(words)), "{words:?}: {text}");
    finish(job);
}

#[test]
fn children_that_lost_part_of_their_environment_are_named() {
    let node = Node::new();
    let program = steps().display().to_string();
    let takes = [&*program, "use:0", "alloc:a:50m", "pause"];
    let machine = format!("RADRM_EMULATED_MACHINE={}", node.rig.machine_path().display());
    let libraries = format!("LD_LIBRARY_PATH={}", node.rig.path().join("lib").display());
    for (environment, code) in [
        // As the loader does it to setuid programs: the preload is gone, the rest of the environment is not.
        (&["-u", "LD_PRELOAD"][..], "lost-preload"),
        (&["LD_PRELOAD=/nowhere/libradrm.so"], "not-loaded"),
        (&["-u", "RADRM_SEGMENT"], "no-segment"),
        (&["RADRM_SEGMENT="], "empty-segment"),
        (&["RADRM_DISABLE=1"], "disabled"),
        (&["-i", &machine, &libraries], "left-job"),
    ] {
        assert_named(&node, &[environment, &takes].concat(), code);
    }
}

#[test]
fn a_static_child_is_named() {
    let node = Node::new();
    // The emulated driver does not work in glibc's static programs. A loader under another name is a static program
    // that can run it; other than those it would follow LD_PRELOAD.
    let program = node.rig.path().join("static");
    fs::copy("/lib64/ld-linux-x86-64.so.2", &program).expect("copy");
    let (program, steps) = (program.display().to_string(), steps().display().to_string());
    let takes = [&*program, &*steps, "use:0", "alloc:a:50m", "pause"];
    assert_named(&node, &[&["-u", "LD_PRELOAD"][..], &takes].concat(), "static");
}

#[test]
fn drivers_that_a_program_loads_past_the_shim_are_named() {
    let node = Node::new();
    let program = programs::compile("evades.c", &[]).display().to_string();
    let genuine = node.rig.path().join("lib/libcuda.so.1").display().to_string();
    assert_named(&node, &[&program, "dlmopen", &genuine], "dlmopen");
    let copy = node.rig.path().join("libown.so");
    fs::copy(artifacts::file("libradrm_emulated_cuda.so"), &copy).expect("copy");
    assert_named(&node, &[&program, "second", &copy.display().to_string()], "other-driver");
}

#[test]
fn a_driver_opened_by_its_path_is_counted() {
    let node = Node::new();
    let program = programs::compile("evades.c", &[]);
    let genuine = node.rig.path().join("lib/libcuda.so.1").display().to_string();
    let (job, pid) = node.job(&program, &["dlopen", &genuine]);
    let (code, page) = node.audit(&[]);
    assert_eq!(code, 0, "{page}");
    assert!(row(&page, pid)["counted_bytes"].as_u64() >= Some(50 * MIB), "{page}");
    finish(job);
}

#[test]
fn programs_that_gain_rights_are_named() {
    // SAFETY: always works.
    if unsafe { libc::getuid() } != 0 {
        eprintln!("skipped: only root can make programs of other users");
        return;
    }
    let node = Node::new();
    for (path, mode) in [(node.rig.path().to_owned(), 0o755), (node.rig.machine_path(), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    }
    let program = node.rig.path().join("evades");
    fs::copy(programs::compile("evades.c", &[]), &program).expect("copy");
    std::os::unix::fs::chown(&program, Some(64_004), None).expect("owner");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("mode");
    // The loader ignores LD_LIBRARY_PATH as well.
    let genuine = node.rig.path().join("libcuda.so.1");
    fs::copy(artifacts::file("libradrm_emulated_cuda.so"), &genuine).expect("copy");
    let (program, genuine) = (program.display().to_string(), genuine.display().to_string());
    assert_named(&node, &[&program, "dlopen", &genuine], "setuid");
}

#[test]
fn a_program_in_namespaces_of_its_own_is_named() {
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mount namespace can be made here");
        return;
    }
    let node = Node::new();
    let mut command = node.rig.bare_command("unshare");
    command.arg("--mount").arg(steps()).args(["use:0", "alloc:a:50m", "pause"]);
    let (running, pid) = started(command);
    let (code, page) = node.audit(&[]);
    assert_eq!((code, row(&page, pid)["reason"].as_str()), (3, Some("container")), "{page}");
    finish(running);
}

#[test]
fn a_program_outside_any_job_and_one_that_switched_the_shim_off_are_named() {
    let node = Node::new();
    let mut bare = node.rig.bare_command(steps());
    bare.args(["use:0", "alloc:a:50m", "pause"]);
    let (bare, unmanaged) = started(bare);
    let mut off = node.launcher(&[]);
    off.arg(steps()).args(["use:0", "alloc:a:50m", "pause"]).env("RADRM_DISABLE", "1");
    let (off, disabled) = started(off);
    let (code, page) = node.audit(&[]);
    assert_eq!(code, 3);
    assert_eq!(row(&page, unmanaged)["reason"], "no-shim", "{page}");
    assert_eq!(row(&page, disabled)["reason"], "disabled", "{page}");
    let text = node.text();
    assert!(
        text.contains("was not started under radrm-run") && text.contains("has RADRM_DISABLE set"),
        "{text}"
    );
    assert!(text.contains("2 processes to check"), "{text}");
    finish(bare);
    finish(off);
}

#[test]
fn a_job_without_its_launcher_is_not_taken_for_unmanaged() {
    let node = Node::new();
    let (job, pid) = node.job(&steps(), &["use:0", "alloc:a:50m", "pause"]);
    job.signal(libc::SIGKILL);
    let (_, page) = node.audit(&[]);
    let reason = row(&page, pid)["reason"].clone();
    // Where the segment has a name it is found; one without went out of sight with its launcher.
    assert!(reason.is_null() || reason == "counts-elsewhere", "{page}");
    child::kill_group(job.pid());
}

#[test]
fn a_job_whose_program_shows_a_title_of_its_own_is_found() {
    let node = Node::new();
    let mut command = node.launcher(&["--mem-limit", "1GiB"]);
    command.arg(steps()).args(["title:server of models", "use:0", "alloc:a:50m", "pause"]);
    let (job, pid) = started(command);
    let (code, page) = node.audit(&[]);
    assert_eq!((code, row(&page, pid)["job"].as_u64()), (0, Some(job.pid().into())), "{page}");
    let mut command = node.rig.bare_command(artifacts::file("radrm"));
    command.env("RADRM_LIB_DIR", artifacts::directory());
    command.args(["quota", "show", "--machine"]).arg(node.rig.machine_path());
    let shown = child::run(command, PATIENCE).ok().stdout;
    assert!(shown.contains(&job.pid().to_string()), "{shown}");
    // A segment that cannot be read any more is mapped all the same.
    let mapped = Process(pid).mappings().expect("its mappings");
    let segment = mapped.iter().find(|map| map.path.to_string_lossy().contains("/segment-"));
    job.signal(libc::SIGKILL);
    if let Some(segment) = segment {
        fs::remove_file(&segment.path).expect("segment");
        let (_, page) = node.audit(&[]);
        let reason = row(&page, pid)["reason"].clone();
        assert!(reason.is_null() || reason == "counts-elsewhere", "{page}");
    }
    child::kill_group(job.pid());
}

#[test]
fn what_a_user_may_not_look_at_is_no_finding_of_that_user() {
    // SAFETY: always works.
    if unsafe { libc::getuid() } != 0 {
        eprintln!("skipped: only root can start programs of other users");
        return;
    }
    let node = Node::new();
    for (path, mode) in [(node.rig.path().to_owned(), 0o755), (node.rig.machine_path(), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    }
    let (job, _) = node.job(&steps(), &["use:0", "alloc:a:50m", "pause"]);
    let mut command = node.rig.bare_command(artifacts::file("radrm"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).env("XDG_CONFIG_HOME", node.rig.path());
    command.args(["audit", "--machine"]).arg(node.rig.machine_path()).uid(64_004).gid(64_004);
    let ended = child::run(command, PATIENCE).ok();
    assert!(ended.stdout.starts_with("not checked: 1 process of other users"), "{ended:?}");
    finish(job);
}

#[test]
fn without_nvml_nothing_is_claimed() {
    let node = Node::new();
    let mut command = node.rig.bare_command(artifacts::file("radrm"));
    command.env("LD_LIBRARY_PATH", node.rig.path()).args(["audit"]);
    let ended = child::run(command, PATIENCE);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.starts_with("radrm: NVML does not work: "), "{ended:?}");
    let mut command = node.rig.bare_command(artifacts::file("radrm"));
    command.args(["audit", "--machine", "/no/such/machine"]);
    assert_eq!(child::run(command, PATIENCE).status.code(), Some(1));
}
