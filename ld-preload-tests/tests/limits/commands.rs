//! Limits as people set, see and change them: `radrm-run --mem-limit`, configuration files, `radrm quota`.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use radrm_preload_tests::{
    artifacts,
    child::{self, Ended, Running},
    programs,
    rig::{PATIENCE, Rig},
};

use super::users::{ALICE, BOB, GROUP, OUTSIDER, as_user, open_to_others};

const MIB: u64 = 1 << 20;

/// GPUs of 4 GiB on which a context takes nothing, so that figures are round.
pub(super) struct Node {
    pub(super) rig: Rig,
}

impl Node {
    pub(super) fn new(gpus: u32) -> Self {
        Self::with_context(gpus, 0)
    }

    /// The same where a context takes so many MiB.
    fn with_context(gpus: u32, context: u32) -> Self {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("temporary file");
        let text = format!(
            "[[gpu]]\nmodel = \"H100-80GB\"\ncount = {gpus}\nmemory_mib = 4096\ncontext_mib = {context}\n"
        );
        fs::write(file.path(), text).expect("toml");
        Self { rig: Rig::emulated(&file.path().display().to_string()) }
    }

    fn prepare(&self, command: &mut Command) {
        command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
        command.env("XDG_CONFIG_HOME", self.rig.path().join("config"));
    }

    /// `steps.c` under `radrm-run` with these options.
    pub(super) fn run(&self, options: &[&str], steps: &[&str]) -> Command {
        self.run_aloud(&[&["--quiet"], options].concat(), steps)
    }

    /// The same with remarks and a report.
    pub(super) fn run_aloud(&self, options: &[&str], steps: &[&str]) -> Command {
        for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
            artifacts::file(library);
        }
        let mut command = self.rig.bare_command(artifacts::file("radrm-run"));
        self.prepare(&mut command);
        command.args(["--no-dataset", "--no-profile", "--machine"]).arg(self.rig.machine_path());
        command.args(options).arg("--").arg(programs::compile("steps.c", &[])).args(steps);
        command
    }

    /// A job that stops at its first `pause`: the launcher and its process's id.
    fn start(&self, options: &[&str], steps: &[&str]) -> (Running, u32) {
        self.start_with(options, steps, None)
    }

    fn start_with(&self, options: &[&str], steps: &[&str], config: Option<&str>) -> (Running, u32) {
        let mut command = self.run(options, steps);
        if let Some(text) = config {
            command.env("RADRM_CONFIG", self.config(text));
        }
        let mut running = Running::start(command, PATIENCE);
        let pid = running.until_ready();
        (running, pid)
    }

    /// A file of limits.
    pub(super) fn config(&self, text: &str) -> PathBuf {
        let file = self.rig.path().join("node.toml");
        fs::write(&file, text).expect("file");
        file
    }

    /// Set-up by root before users' jobs count against a group's limit: the system's tables know neither.
    pub(super) fn set_up(&self, config: &Path, users: &[u32]) -> Ended {
        let mut command = self.rig.bare_command(artifacts::file("radrm"));
        self.prepare(&mut command);
        command.env("RADRM_CONFIG", config).args(["quota", "init", "--machine"]).arg(self.rig.machine_path());
        command.arg(format!("group:{GROUP}")).args(users.iter().map(|user| format!("user:{user}")));
        child::run(command, PATIENCE)
    }

    /// `radrm quota` with these words.
    pub(super) fn quota(&self, words: &[&str]) -> Ended {
        let mut command = self.rig.bare_command(artifacts::file("radrm"));
        self.prepare(&mut command);
        command.arg("quota").args(words);
        child::run(command, PATIENCE)
    }

    /// `radrm quota show --json`, on this machine.
    pub(super) fn shown(&self, words: &[&str]) -> serde_json::Value {
        let machine = self.rig.machine_path().display().to_string();
        let words = [&["show", "--json", "--machine", &machine], words].concat();
        serde_json::from_str(&self.quota(&words).ok().stdout).expect("JSON")
    }

    fn set(&self, words: &[&str]) -> Ended {
        let machine = self.rig.machine_path().display().to_string();
        self.quota(&[&["set", "--machine", &machine], words].concat())
    }
}

fn uid() -> u32 {
    // SAFETY: always works.
    unsafe { libc::getuid() }
}

fn gid() -> u32 {
    // SAFETY: always works.
    unsafe { libc::getgid() }
}

/// Ends a job whose remaining steps must all hold.
#[track_caller]
pub(super) fn finish(mut running: Running) {
    running.go_on();
    running.end().ok();
}

#[test]
fn a_job_is_shown_with_its_limit_its_use_and_what_was_refused() {
    let node = Node::new(2);
    let (one, pid) =
        node.start(&["--mem-limit", "0=1GiB,1=25%"], &["use:0", "alloc:a:600m", "toomuch:b:600m", "pause"]);
    let all = node.shown(&[]);
    let jobs = all["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 1, "only those of this machine");
    let job = &jobs[0];
    assert_eq!((job["job"].as_u64(), job["limited"].as_bool()), (Some(one.pid().into()), Some(true)));
    assert_eq!(job["processes"][0]["pid"].as_u64(), Some(pid.into()));
    let gpu = |index: &str| {
        let gpus = job["gpus"].as_array().expect("gpus");
        gpus.iter().find(|gpu| gpu["label"] == index).expect("the GPU").clone()
    };
    let figures = |gpu: &serde_json::Value| {
        ["limit_bytes", "used_bytes", "refused", "processes"]
            .map(|name| gpu[name].as_u64().expect("a number"))
    };
    assert_eq!(figures(&gpu("0")), [1024 * MIB, 600 * MIB, 1, 1]);
    assert_eq!(gpu("1")["limit"], "25%");
    // The same for people; by the launcher or by the process.
    for pid in [one.pid(), pid] {
        let text = node.quota(&["show", &pid.to_string()]).ok().stdout;
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("a row")
            .split("  ")
            .filter(|c| !c.is_empty())
            .map(str::trim)
            .collect();
        assert_eq!(row[0], one.pid().to_string());
        assert_eq!(row[2..], ["job", "0", "1.00 GiB", "600.0 MiB", "1", "1"], "{text}");
    }
    finish(one);
    let ended = node.quota(&["show", &pid.to_string()]);
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(ended.stderr, format!("radrm: there is no job {pid}, as far as you can see\n"));
}

#[test]
fn case_15_a_limit_below_what_is_in_use_refuses_growth_and_says_so() {
    let node = Node::new(1);
    let (mut job, _) = node.start(
        &["--mem-limit", "2GiB"],
        &[
            "use:0",
            "alloc:a:1g",
            "pause",
            "toomuch:b:1m",
            "free:a",
            "alloc:c:100m",
            "pause",
            "alloc:d:2g",
            "toomuch:e:1g",
            "pause",
        ],
    );
    let name = job.pid().to_string();
    let said = node.quota(&["set", &name, "512MiB"]).ok().stdout;
    assert!(
        said.contains(
            "1.00 GiB in use: nothing is taken away, and nothing more is given until 512.0 MiB are free"
        ),
        "{said}"
    );
    job.go_on();
    job.until_ready();
    let said = node.quota(&["set", &name, "0=3GiB"]).ok().stdout;
    assert_eq!(said, format!("job {name}, GPU 0: limit 3.00 GiB, 100.0 MiB in use\n"));
    job.go_on();
    job.until_ready();
    let said = node.quota(&["set", &name, "none"]).ok().stdout;
    assert!(said.contains("no limit"), "{said}");
    finish(job);
}

#[test]
fn a_job_without_a_limit_cannot_be_limited_and_the_hint_works() {
    let node = Node::new(1);
    let (job, pid) = node.start(&[], &["use:0", "alloc:a:10m", "pause"]);
    let ended = node.quota(&["set", &pid.to_string(), "1GiB"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("start it with --mem-limit 100%"), "{}", ended.stderr);
    let shown = node.shown(&[]);
    assert_eq!(shown["jobs"][0]["limited"], false);
    assert_eq!(shown["jobs"][0]["gpus"][0]["used_bytes"].as_u64(), Some(10 * MIB));
    finish(job);
    let (job, pid) = node.start(&["--mem-limit", "100%"], &["use:0", "alloc:a:10m", "pause", "toomuch:b:1g"]);
    node.quota(&["set", &pid.to_string(), "1GiB"]).ok();
    finish(job);
}

#[test]
fn limits_that_make_no_sense_change_nothing() {
    let node = Node::new(1);
    let (job, pid) = node.start(&["--mem-limit", "1GiB"], &["use:0", "pause", "toomuch:b:1100m"]);
    let pid = pid.to_string();
    for (words, code, part) in [
        (vec!["set", &pid, "10G"], 2, "can mean two things"),
        (vec!["set", &pid, "3=1GiB"], 1, "there is no GPU 3"),
        (vec!["set", &pid, "config"], 1, "has no configured limit"),
        (vec!["set", "4194305", "1GiB"], 1, "there is no job 4194305"),
        (vec!["set", "user:no-such-name", "1GiB"], 1, "there is no user"),
        (vec!["set", "group:none-of-this-name", "1GiB"], 1, "there is no group"),
        (vec!["set", "job", "1GiB"], 2, "is neither a job"),
    ] {
        let ended = node.quota(&words);
        assert_eq!(ended.status.code(), Some(code), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(part) && ended.stderr.lines().count() == 1, "{ended:?}");
    }
    finish(job);
}

#[test]
fn two_jobs_of_a_user_share_the_users_limit() {
    let node = Node::new(1);
    let config = format!("[user.{}]\nmem-limit = \"1GiB\"\n", uid());
    let (one, _) = node.start_with(&[], &["use:0", "alloc:a:600m", "pause"], Some(&config));
    let steps = ["use:0", "toomuch:a:600m", "alloc:a:400m", "pause", "alloc:b:600m"];
    let (two, _) = node.start_with(&[], &steps, Some(&config));
    let shown = node.shown(&[]);
    let user = &shown["shared"][0];
    assert!(user["scope"].as_str().is_some_and(|scope| scope.starts_with("user ")), "{user}");
    assert_eq!(user["gpus"][0]["used_bytes"].as_u64(), Some(1000 * MIB));
    assert_eq!(user["gpus"][0]["processes"].as_u64(), Some(2));
    finish(one);
    // What the first job held is back.
    finish(two);
}

#[test]
fn the_strictest_of_job_user_and_group_holds() {
    let node = Node::new(1);
    for (job, user, group, fits, over) in [
        ("1GiB", "2GiB", "3GiB", 900, 1100),
        ("3GiB", "1GiB", "2GiB", 900, 1100),
        ("3GiB", "2GiB", "25%", 900, 1100),
    ] {
        let config =
            format!("[user.{}]\nmem-limit = \"{user}\"\n[group.{}]\nmem-limit = \"{group}\"\n", uid(), gid());
        let (fits, over) = (format!("alloc:a:{fits}m"), format!("toomuch:b:{over}m"));
        let mut command = node.run(&["--mem-limit", job], &["use:0", &over, &fits]);
        command.env("RADRM_CONFIG", node.config(&config));
        child::run(command, PATIENCE).ok();
    }
}

#[test]
fn a_changed_user_limit_holds_for_running_and_later_jobs() {
    let node = Node::new(1);
    let user = format!("user:{}", uid());
    let config = format!("[user.{}]\nmem-limit = \"1GiB\"\n", uid());
    let file = node.config(&config);
    let steps = ["use:0", "alloc:a:100m", "pause", "alloc:b:1500m", "pause", "toomuch:c:1g"];
    let (mut job, _) = node.start_with(&[], &steps, Some(&config));
    // Root, as whom the tests may run, may give more than the configuration; others only less.
    let root = uid() == 0;
    let change = |limit: &str| {
        let machine = node.rig.machine_path().display().to_string();
        let mut command = node.rig.bare_command(artifacts::file("radrm"));
        node.prepare(&mut command);
        command.env("RADRM_CONFIG", &file).args(["quota", "set", "--machine", &machine, &user, limit]);
        child::run(command, PATIENCE)
    };
    let ended = change("2GiB");
    if !root {
        assert!(ended.stderr.contains("only root may give"), "{ended:?}");
        return;
    }
    assert!(ended.ok().stdout.contains("limit 2.00 GiB"), "it holds at once");
    job.go_on();
    job.until_ready();
    finish(job);
    // Kept for the next job, though its configuration says 1 GiB.
    let (job, _) = node.start_with(&[], &["use:0", "alloc:a:1500m", "pause", "toomuch:b:1g"], Some(&config));
    assert!(change("config").ok().stdout.contains("limit 1.00 GiB, 1.46 GiB in use"), "taken back");
    finish(job);
    let (job, _) =
        node.start_with(&[], &["use:0", "toomuch:a:1500m", "alloc:a:900m", "pause"], Some(&config));
    finish(job);
}

#[test]
fn a_limit_for_a_user_says_which_running_jobs_it_does_not_reach() {
    let node = Node::new(1);
    let (job, _) = node.start(&[], &["use:0", "alloc:a:10m", "pause"]);
    let said = node.set(&[&format!("user:{}", uid()), "1GiB"]).ok().stdout;
    assert!(said.contains("from the next job on"), "{said}");
    assert!(said.contains("1 job that runs was started without this limit"), "{said}");
    finish(job);
    let (job, _) = node.start(&[], &["use:0", "toomuch:a:1100m", "pause"]);
    finish(job);
}

#[test]
fn limits_are_shown_before_a_job_counts_against_them() {
    let node = Node::new(2);
    let machine = node.rig.machine_path().display().to_string();
    // The machine's file is there from its first program on.
    node.run(&[], &["use:0"]).status().expect("radrm-run");
    let config = format!(
        "[default]\nmem-limit = \"9GiB\"\n[user.{}]\nmem-limit = \"0=3GiB,50%\"\n[group.{}]\nmem-limit = \"7GiB\"\n\
         [user.4000000001]\nmem-limit = \"5GiB\"\n[group.lab]\nmem-limit-each = \"8GiB\"\n",
        uid(),
        gid()
    );
    let file = node.config(&config);
    let shown = |more: &[&str]| {
        let mut command = node.rig.bare_command(artifacts::file("radrm"));
        node.prepare(&mut command);
        command.env("RADRM_CONFIG", &file).args(["quota", "show", "--machine", &machine]).args(more);
        child::run(command, PATIENCE).ok().stdout
    };
    let text = shown(&[]);
    let row = |text: &str, scope: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains(scope));
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let own = row(&text, "3.00 GiB").first().cloned().unwrap_or_default();
    assert!(own.starts_with("- - user") && own.ends_with("0 3.00 GiB 0 B 0 0"), "{text}");
    assert!(row(&text, "others")[0].ends_with("others 50% 0 B 0 0"), "{text}");
    for (scope, limit) in [
        ("group ", "any 7GiB 0 B 0 0"),
        ("user 4000000001", "any 5GiB 0 B 0 0"),
        ("each user not named", "any 9GiB 0 B 0 0"),
        ("each user of group lab", "any 8GiB 0 B 0 0"),
    ] {
        assert!(row(&text, scope)[0].ends_with(limit), "{scope}: {text}");
    }
    // What is set by hand before the first job counts too; root may say anything, others only less.
    let limit = if uid() == 0 { "2GiB" } else { "1GiB" };
    assert!(node.set(&[&format!("user:{}", uid()), limit]).ok().stdout.contains("from the next job on"));
    let view: serde_json::Value = serde_json::from_str(&shown(&["--json"])).expect("JSON");
    let of_own = view["shared"]
        .as_array()
        .expect("list")
        .iter()
        .find(|one| one["file"].as_str().is_some_and(|file| file.ends_with(&format!(".user-{}", uid()))));
    let of_own = of_own.expect("its own");
    assert_eq!((&of_own["awaits_first_job"], of_own["gpus"].is_array()), (&true.into(), true), "{view}");
    if uid() == 0 {
        assert_eq!(of_own["other_gpus"], limit, "{view}");
    }
    // With a job it is the ledger's, once.
    let (job, _) = node.start_with(&[], &["use:0", "alloc:a:10m", "pause"], Some(&config));
    let view: serde_json::Value = serde_json::from_str(&shown(&["--json"])).expect("JSON");
    let awaits = |scope: &str| -> Vec<bool> {
        let all = view["shared"].as_array().expect("list").iter();
        let same = all.filter(|one| one["file"].as_str().is_some_and(|file| file.ends_with(scope)));
        same.map(|one| one["awaits_first_job"] == true).collect()
    };
    assert_eq!(awaits(&format!(".user-{}", uid())), [false], "{view}");
    finish(job);
}

#[test]
fn the_children_of_a_job_share_its_limit_and_a_percentage_is_of_each_gpu() {
    let node = Node::new(2);
    let steps = programs::compile("steps.c", &[]).display().to_string();
    // 25 % of 4 GiB: the child's 600 MiB fit beside nothing else of that size.
    let script = format!(
        "{steps} use:0 alloc:a:600m sleep:1500 & sleep 0.5; {steps} use:0 toomuch:b:600m alloc:b:300m use:1 alloc:c:900m; code=$?; wait; exit $code"
    );
    let mut command = node.rig.bare_command(artifacts::file("radrm-run"));
    node.prepare(&mut command);
    command.args(["--no-dataset", "--no-profile", "--quiet", "--mem-limit", "25%", "--machine"]);
    command.arg(node.rig.machine_path()).args(["--", "sh", "-c", &script]);
    child::run(command, PATIENCE).ok();
}

#[test]
fn a_job_may_not_be_given_more_than_the_node_allows() {
    let node = Node::new(1);
    let config = "[job]\nmem-limit-max = \"1GiB\"\n";
    let (job, _) =
        node.start_with(&["--mem-limit", "3GiB"], &["use:0", "toomuch:a:1100m", "pause"], Some(config));
    assert_eq!(node.shown(&[])["jobs"][0]["gpus"][0]["limit_bytes"].as_u64(), Some(1024 * MIB));
    finish(job);
    let (job, _) =
        node.start_with(&["--mem-limit", "512MiB"], &["use:0", "toomuch:a:600m", "pause"], Some(config));
    finish(job);
}

/// The context that is charged to the only process of the only job, and all that is charged to it, in MiB.
fn charged(node: &Node) -> (u64, u64) {
    let job = node.shown(&[])["jobs"][0].clone();
    let of = |name: &str| job["processes"][0][name][0].as_u64().expect("bytes") / MIB;
    (of("context_bytes"), of("bytes"))
}

#[test]
fn case_05_the_context_is_measured_charged_and_remembered() {
    let node = Node::with_context(1, 300);
    let measured =
        ["use:0", "alloc:a:10m", "sleep:2500", "alloc:b:10m", "pause", "toomuch:c:720m", "alloc:d:600m"];
    let (job, _) = node.start(&["--mem-limit", "1GiB"], &measured);
    let (context, all) = charged(&node);
    assert!((300..310).contains(&context), "{context} MiB");
    assert_eq!(all, context + 20);
    finish(job);
    // The next job is charged from its first request on.
    let (job, _) =
        node.start(&["--mem-limit", "1GiB"], &["use:0", "toomuch:a:730m", "alloc:a:700m", "pause"]);
    let (estimate, all) = charged(&node);
    assert!(context.abs_diff(estimate) <= 2 && all.abs_diff(estimate + 700) <= 1, "{estimate} of {all} MiB");
    finish(job);
}

#[test]
fn a_configured_context_is_charged_as_it_stands() {
    for (context, charge) in [("200MiB", 200), ("0", 0)] {
        let node = Node::with_context(1, 300);
        let config = format!("context = \"{context}\"\n");
        let steps = ["use:0", "alloc:a:10m", "sleep:2500", "alloc:b:10m", "pause"];
        let (job, _) = node.start_with(&["--mem-limit", "1GiB"], &steps, Some(&config));
        assert_eq!(charged(&node), (charge, charge + 20), "{context}");
        finish(job);
    }
}

#[test]
fn case_14_group_members_share_a_limit_and_no_access() {
    let node = Node::new(1);
    if !open_to_others(&node) {
        return;
    }
    let config = node.config(&format!("[group.{GROUP}]\nmem-limit = \"1GiB\"\n"));
    node.set_up(&config, &[ALICE, BOB]).ok();
    let start = |user: u32, group: u32, steps: &[&str]| {
        let mut command = node.run(&[], steps);
        command.env("RADRM_CONFIG", &config);
        let mut running = Running::start(as_user(command, user, group), PATIENCE);
        running.until_ready();
        running
    };
    let alice = start(ALICE, GROUP, &["use:0", "alloc:a:600m", "pause"]);
    let bob = start(BOB, GROUP, &["use:0", "toomuch:a:600m", "alloc:b:300m", "pause", "alloc:c:600m"]);
    // Another user is not in the group, neither in its limit nor in its file.
    let outsider = start(OUTSIDER, OUTSIDER, &["use:0", "alloc:a:2g", "pause"]);
    let directory = PathBuf::from(format!("{}.group-{GROUP}", node.rig.machine_path().display()));
    for user in [ALICE, BOB] {
        let found = fs::metadata(directory.join(format!("member-{user}"))).expect("the member's ledger");
        assert_eq!((found.mode() & 0o777, found.uid(), found.gid()), (0o640, user, GROUP));
    }
    for path in [directory.clone(), directory.join("limits")] {
        let found = fs::metadata(&path).expect("the scope");
        assert_eq!((found.mode() & 0o022, found.uid()), (0, 0), "{}", path.display());
    }
    let asked = |user: u32, words: &[&str]| {
        let mut command = node.rig.bare_command(artifacts::file("radrm"));
        node.prepare(&mut command);
        command.arg("quota").args(words).env("RADRM_CONFIG", &config);
        child::run(as_user(command, user, GROUP), PATIENCE)
    };
    let job = alice.pid().to_string();
    let ended = asked(BOB, &["set", &job, "1MiB"]);
    assert_eq!((ended.status.code(), ended.stderr.contains("there is no job")), (Some(1), true), "{ended:?}");
    let ended = asked(BOB, &["set", &format!("user:{ALICE}"), "1MiB"]);
    assert!(ended.stderr.contains("only root may change the limit of user"), "{ended:?}");
    let ended = asked(BOB, &["set", &format!("group:{GROUP}"), "9GiB"]);
    assert!(ended.stderr.contains("only root may change the limit of group"), "{ended:?}");
    let machine = node.rig.machine_path().display().to_string();
    let text = asked(BOB, &["show", "--json", "--machine", &machine]).ok().stdout;
    let shown: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let jobs = shown["jobs"].as_array().expect("jobs");
    assert_eq!((jobs.len(), jobs[0]["job"].as_u64()), (1, Some(bob.pid().into())), "one's own jobs: {text}");
    assert_eq!(shown["shared"][0]["gpus"][0]["used_bytes"].as_u64(), Some(900 * MIB), "{text}");
    finish(alice);
    finish(bob);
    finish(outsider);
    for user in [ALICE, BOB, OUTSIDER] {
        // Directories of segments stay for a user's next job; these users have none.
        let _ = fs::remove_dir(format!("/dev/shm/radrm-{user}"));
    }
}

#[test]
fn case_14_a_directory_of_another_user_is_not_used() {
    let node = Node::new(1);
    if !open_to_others(&node) {
        return;
    }
    let taken = PathBuf::from(format!("{}.user-{ALICE}", node.rig.machine_path().display()));
    fs::create_dir(&taken).expect("directory");
    fs::set_permissions(&taken, fs::Permissions::from_mode(0o777)).expect("mode");
    let mut command = node.run(&[], &["use:0", "alloc:a:1m"]);
    command.env("RADRM_CONFIG", node.config("[default]\nmem-limit = \"1GiB\"\n"));
    let ended = child::run(as_user(command, ALICE, ALICE), PATIENCE);
    assert_eq!(ended.status.code(), Some(125));
    assert!(ended.stderr.contains("belongs to another user or is open to others"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}
