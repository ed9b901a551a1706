//! Life of a limit: until the last process that it covers has ended, whatever becomes of `radrm-run` and of what it
//! left, and not longer.

use std::{
    fs,
    io::Read,
    os::fd::{AsRawFd, OwnedFd},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use radrm_os::Process;
use radrm_preload_tests::{
    artifacts,
    child::{self, Ended},
    programs,
    random::Random,
    rig::{PATIENCE, Rig},
};
use radrm_profile::Profile;

/// Output of a process that counts in the job: memory, none beyond the limit, and the limit as the card's size.
const COUNTED: &str = "granted refused 64";

/// A card on which contexts take nothing, and a directory of its own in memory for the segments of jobs.
struct Place {
    rig: Rig,
    card: tempfile::NamedTempFile,
    runtime: tempfile::TempDir,
    late: PathBuf,
}

impl Place {
    fn new() -> Self {
        let card = tempfile::Builder::new().suffix(".toml").tempfile().expect("temporary file");
        let text = "[[gpu]]\nmodel = \"H100-80GB\"\nmemory_mib = 4096\ncontext_mib = 0\n";
        fs::write(card.path(), text).expect("description");
        let rig = Rig::emulated(&card.path().display().to_string());
        let runtime =
            tempfile::Builder::new().prefix("radrm-life").tempdir_in("/dev/shm").expect("directory");
        Self { rig, card, runtime, late: programs::compile("late.c", &[]) }
    }

    /// `radrm-run` with these options, under 64 MiB.
    fn launcher(&self, options: &[&str]) -> Command {
        for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
            artifacts::file(library);
        }
        let mut command = self.rig.bare_command(artifacts::file("radrm-run"));
        command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
        command.env("XDG_RUNTIME_DIR", self.runtime.path()).env("TMPDIR", self.rig.path());
        command.env("XDG_CONFIG_HOME", self.rig.path().join("config"));
        command.args(["--mem-limit", "64MiB"]).args(options);
        command
    }

    /// The same around a shell that runs a script, in which `$LATE` is `late` with what it waits for.
    fn script(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.launcher(options);
        if !options.contains(&"--emulate") {
            command.arg("--machine").arg(self.rig.machine_path());
        }
        command.env("LATE", self.late_words()).args(["--", "bash", "-c", script]);
        command
    }

    fn late_words(&self) -> String {
        format!("{} {} {}", self.late.display(), self.go().display(), self.answer().display())
    }

    fn go(&self) -> PathBuf {
        self.rig.path().join("go")
    }

    fn answer(&self) -> PathBuf {
        self.rig.path().join("answer")
    }

    /// Runs a script that leaves `late` behind, to its end.
    fn leave(&self, script: &str) -> Ended {
        child::run(self.script(&["--no-profile", "--no-dataset"], script), PATIENCE).ok()
    }

    fn runs_late(&self) -> bool {
        let is_late = |process: Process| {
            process.exe().read_link().ok() == self.late.canonicalize().ok()
                && process.variable("XDG_RUNTIME_DIR").is_some_and(|path| path == self.runtime.path())
        };
        Process::all().any(is_late)
    }

    fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.runtime.path().join("radrm")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Lets what was left behind make its first call; gives what it got.
    #[track_caller]
    fn first_call(&self) -> String {
        fs::write(self.go(), "").expect("go");
        until("an answer", || self.answer().exists());
        let answer = fs::read_to_string(self.answer()).expect("answer");
        fs::remove_file(self.answer()).expect("answer");
        answer
    }

    /// Lets what was left behind end.
    fn end(&self) {
        let _ = fs::remove_file(self.go());
    }

    /// Checks that what was left behind gets its memory, and that nothing is there when it has ended.
    #[track_caller]
    fn counts_and_ends(&self) {
        assert_eq!(self.segments().len(), 1);
        assert_eq!(self.first_call(), COUNTED);
        assert_eq!(self.segments().len(), 1);
        self.end();
        until("nothing of the job", || self.segments().is_empty() && self.of_radrm().is_empty());
    }

    /// Processes of `radrm-run` on this place.
    fn of_radrm(&self) -> Vec<Process> {
        let is_here = |process: &Process| {
            process.name() == "radrm-run"
                && process.stat().is_some_and(|stat| !stat.is_dead())
                && process.variable("XDG_RUNTIME_DIR").is_some_and(|path| path == self.runtime.path())
        };
        Process::all().filter(is_here).collect()
    }

    /// A later start, which removes what is left.
    fn start_another(&self) {
        let mut command = self.script(&["--quiet", "--no-profile", "--no-dataset"], "true");
        command.stdout(Stdio::null());
        child::run(command, PATIENCE).ok();
    }

    /// A start removes the segments that no process can join any more. Processes of other tests that hide where they come
    /// from may keep one until they end.
    fn is_cleaned_by_a_start(&self) {
        until("a start that removes all segments", || {
            self.start_another();
            self.segments().is_empty()
        });
    }

    fn radrm(&self, words: &[&str]) -> Command {
        let mut command = self.rig.bare_command(artifacts::file("radrm"));
        command.env("XDG_RUNTIME_DIR", self.runtime.path()).env_remove("RADRM_EMULATED_MACHINE");
        command.args(words);
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
        for process in Process::all() {
            let is_left = |process: Process| {
                process.variable("XDG_RUNTIME_DIR").is_some_and(|path| path == self.runtime.path())
            };
            if is_left(process) {
                kill(process);
            }
        }
    }
}

fn kill(process: Process) {
    // SAFETY: a plain system call on a process of this test.
    unsafe { libc::kill(process.0.cast_signed(), libc::SIGKILL) };
}

/// Waits for something that comes by itself.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(PATIENCE), "{what}: not within {PATIENCE} s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_in_the_background_keeps_the_limit_of_its_script() {
    let place = Place::new();
    let ended = place.leave("nohup $LATE > /dev/null 2>&1 & echo started");
    assert_eq!(ended.stdout, "started\n");
    let said: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("radrm-run:")).collect();
    let [said] = said[..] else { panic!("one sentence: {said:?}") };
    for part in ["1 process of the job still runs", "the limit of 64MiB stays in force", "--wait-all"] {
        assert!(said.contains(part), "{said}");
    }
    // There is no profile that could go on.
    assert!(said.contains("the report ends with the program") && !said.contains("recording"), "{said}");
    place.counts_and_ends();
}

/// End of the run in a profile's report: the JSON, and the line of the text.
fn end_of(place: &Place, profile: &Path) -> (serde_json::Value, String) {
    let report = |options: &[&str]| {
        let mut command = place.radrm(&["report"]);
        command.args(options).arg(profile);
        child::run(command, PATIENCE).ok().stdout
    };
    let page: serde_json::Value = serde_json::from_str(&report(&["--json"])).expect("JSON");
    let text = report(&[]);
    let line = text.lines().find(|line| line.contains("exit code")).unwrap_or_default().to_owned();
    (page["outcome"].clone(), line)
}

#[test]
fn a_report_tells_the_programs_time_from_its_jobs() {
    let place = Place::new();
    let profile = place.rig.path().join("p.radrm");
    let (file, wait) = (profile.display().to_string(), "sleep 1 > /dev/null 2>&1 &");
    for options in [&["--no-dataset", "-o", &file][..], &["--no-dataset", "--wait-all", "-o", &file]] {
        let ended = child::run(place.script(options, wait), PATIENCE).ok();
        assert!(!ended.stderr.contains("ran until") || options.len() == 4, "{}", ended.stderr);
        until("the end of the recording", || {
            Profile::open(&profile).is_ok_and(|profile| {
                profile.outcome.is_some() && profile.program_ended.is_some() && place.of_radrm().is_empty()
            })
        });
        let (outcome, line) = end_of(&place, &profile);
        let ns = |key: &str| outcome[key].as_u64().unwrap_or_else(|| panic!("{key}: {outcome}"));
        assert!(ns("duration_ns") >= ns("program_duration_ns") + 500_000_000, "{outcome}");
        assert!(line.contains("exit code 0 after") && line.contains("ran until"), "{line}");
    }
}

#[test]
fn a_title_in_another_job_keeps_no_folder_of_a_machine() {
    let place = Place::new();
    place.leave("$LATE overwrite > /dev/null 2>&1 & until grep -aq titled /proc/$!/cmdline; do :; done");
    let options = ["--no-profile", "--no-dataset", "--emulate", "1xA100-40GB"];
    let ended = child::run(place.script(&options, "true"), PATIENCE).ok();
    assert!(!ended.stderr.contains("still use"), "{}", ended.stderr);
    place.counts_and_ends();
}

#[test]
fn a_job_below_one_with_a_limit_has_no_limit_of_its_own() {
    let place = Place::new();
    let (run, steps) = (artifacts::file("radrm-run"), programs::compile("steps.c", &[]));
    let (run, steps) = (run.display(), steps.display());
    let machine = place.rig.machine_path();
    let machine = machine.display();
    let kept = "RADRM_LIB_DIR=$RADRM_LIB_DIR XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR";
    let lost = ["env -u RADRM_SEGMENT", "env -u RADRM_SEGMENT -u RADRM_QUOTA", &format!("env -i {kept}")];
    for lost in lost.map(|lost| format!("{lost} {run} --no-dataset --no-profile --machine {machine}")) {
        let wider = format!("{lost} --mem-limit 2GiB -- {steps} use:0");
        let ended = child::run(place.script(&["--no-profile", "--no-dataset"], &wider), PATIENCE);
        assert_eq!(ended.status.code(), Some(125), "{lost}: {ended:?}");
        assert!(ended.stderr.contains("already inside a job with a limit"), "{ended:?}");
        let inside = format!("{lost} -- {steps} use:0 alloc:a:64m !alloc:b:1m");
        let ended = child::run(place.script(&["--no-profile", "--no-dataset"], &inside), PATIENCE).ok();
        assert!(ended.stderr.contains("part of a job with a limit"), "{lost}: {ended:?}");
    }
}

#[test]
fn sessions_daemons_and_titles_keep_the_limit() {
    for script in [
        "setsid $LATE > /dev/null 2>&1 & true",
        "(($LATE > /dev/null 2>&1 &) &)",
        "setsid sh -c '$LATE > /dev/null 2>&1 & exit 0'",
        "$LATE overwrite > /dev/null 2>&1 & until grep -aq titled /proc/$!/cmdline; do :; done",
        "(sh -c 'exec sh -c \"exec $LATE\"' > /dev/null 2>&1 &)",
    ] {
        let place = Place::new();
        place.leave(script);
        place.counts_and_ends();
    }
}

#[test]
fn tmux_keeps_the_limit_of_the_login_that_started_it() {
    if Command::new("tmux").arg("-V").output().is_err() {
        eprintln!("skipped: tmux is not installed");
        return;
    }
    let place = Place::new();
    let tmux = format!("tmux -S {}", place.rig.path().join("tmux").display());
    let words = place.late_words();
    place.leave(&format!("{tmux} -f /dev/null new-session -d 'sh'; {tmux} send-keys '{words}' Enter"));
    assert_eq!(place.first_call(), COUNTED);
    place.end();
    until("its end", || !place.runs_late());
    // The next login finds the same session, and starts another program.
    let run = |words: &str| child::run(shell(&format!("{tmux} {words}")), PATIENCE);
    run(&format!("send-keys '{words}' Enter")).ok();
    assert_eq!(place.first_call(), COUNTED);
    place.end();
    assert_eq!(place.segments().len(), 1);
    run("kill-server").ok();
    until("nothing of the job", || place.segments().is_empty() && place.of_radrm().is_empty());
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn a_killed_launcher_leaves_what_an_ended_one_leaves() {
    let place = Place::new();
    let mut command = place
        .script(&["--quiet", "--no-profile", "--no-dataset"], "$LATE > /dev/null & echo ready; read -r end");
    let mut launcher = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("radrm-run");
    let mut line = [0; 6];
    launcher.stdout.as_mut().expect("piped").read_exact(&mut line).expect("ready");
    launcher.kill().expect("kill");
    launcher.wait().expect("wait");
    place.start_another();
    assert_eq!(place.segments().len(), 1, "a process can still join");
    assert_eq!(place.first_call(), COUNTED);
    place.end();
    until("its end", || carriers(&place) == 0);
    place.is_cleaned_by_a_start();
}

/// Processes that have the place's segments in their environment.
fn carriers(place: &Place) -> usize {
    let is_one = |process: &Process| {
        process.stat().is_some_and(|stat| !stat.is_dead())
            && process
                .variable("RADRM_SEGMENT")
                .is_some_and(|path| Path::new(&path).starts_with(place.runtime.path()))
    };
    Process::all().filter(is_one).count()
}

#[test]
fn without_its_recorder_the_limit_holds_and_a_later_start_cleans_up() {
    let place = Place::new();
    place.leave("$LATE > /dev/null 2>&1 &");
    let [recorder] = place.of_radrm()[..] else { panic!("one recorder") };
    kill(recorder);
    until("its end", || place.of_radrm().is_empty());
    place.start_another();
    assert_eq!(place.segments().len(), 1);
    assert_eq!(place.first_call(), COUNTED);
    place.end();
    until("its end", || carriers(&place) == 0);
    place.is_cleaned_by_a_start();
}

#[test]
fn the_recorder_holds_nothing_of_its_caller() {
    let place = Place::new();
    let mut command = place.script(
        &["--quiet", "--no-profile", "--no-dataset"],
        "exec 9>&-; $LATE > /dev/null 2>&1 < /dev/null & echo $$",
    );
    let (reader, writer) = std::io::pipe().expect("pipe");
    // A descriptor beyond the standard streams, as a script's lock file is.
    let inherited = OwnedFd::from(writer);
    let number = inherited.as_raw_fd();
    // SAFETY: between fork and exec, plain system calls only.
    unsafe {
        command.pre_exec(move || {
            (libc::dup2(number, 9) == 9).then_some(()).ok_or_else(std::io::Error::last_os_error)
        });
    }
    // Reads to the end of standard output: a pipe that the recorder had would keep it open.
    let output = command.stdin(Stdio::null()).output().expect("radrm-run");
    assert!(output.status.success() && !output.stdout.is_empty());
    drop((command, inherited));
    let mut rest = Vec::new();
    (&reader).read_to_end(&mut rest).expect("the end of the pipe");
    let [recorder] = place.of_radrm()[..] else { panic!("one recorder") };
    let stat = recorder.stat().expect("it runs");
    assert_eq!((stat.session, stat.group), (recorder.0, recorder.0));
    place.counts_and_ends();
}

#[test]
fn the_profile_goes_on_with_what_lives_on() {
    let place = Place::new();
    let profile = place.rig.path().join("left.radrm");
    let named = profile.display().to_string();
    let dataset = place.rig.path().join("left.db");
    let options = ["-o", &named, "--dataset", &dataset.display().to_string()];
    let ended = child::run(place.script(&options, "$LATE > /dev/null 2>&1 & exit 3"), PATIENCE);
    assert_eq!(ended.status.code(), Some(3));
    assert!(ended.stderr.contains("the recording goes on"), "{}", ended.stderr);
    let early = Profile::open(&profile).expect("a profile");
    assert!(early.processes.is_empty() && early.outcome.is_some(), "how the program ended is in it");
    assert!(!dataset.exists());
    place.counts_and_ends();
    let late = Profile::open(&profile).expect("a profile");
    assert_eq!(late.processes.len(), 1);
    let outcome = |profile: &Profile| profile.outcome.clone().expect("outcome");
    assert_eq!(outcome(&late).exit, outcome(&early).exit);
    assert!(outcome(&late).duration > outcome(&early).duration);
    assert!(dataset.exists(), "one row");
}

#[test]
fn a_left_job_is_shown_and_changed_by_its_launchers_number() {
    let place = Place::new();
    let mut launcher = place
        .script(&["--quiet", "--no-profile", "--no-dataset"], "$LATE > /dev/null 2>&1 &")
        .spawn()
        .expect("radrm-run");
    let number = launcher.id();
    assert!(launcher.wait().expect("wait").success());
    let machine = place.rig.machine_path().display().to_string();
    let show = || {
        let shown =
            child::run(place.radrm(&["quota", "show", "--json", "--machine", &machine]), PATIENCE).ok();
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
        shown["jobs"].as_array().expect("jobs").clone()
    };
    let jobs = show();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!((&jobs[0]["job"], &jobs[0]["launcher_running"]), (&number.into(), &false.into()));
    assert!(jobs[0]["command"].as_str().is_some_and(|command| command.starts_with("bash -c")), "{jobs:?}");
    // Once more without the recorder.
    place.of_radrm().into_iter().for_each(kill);
    until("its end", || place.of_radrm().is_empty());
    assert_eq!(show()[0]["job"], number);
    let words = ["quota", "set", "--machine", &machine, &number.to_string(), "32MiB"];
    child::run(place.radrm(&words), PATIENCE).ok();
    assert_eq!(place.first_call(), "granted refused 32");
    place.end();
}

#[test]
fn a_job_inside_an_ended_one_is_a_job_of_its_own() {
    let place = Place::new();
    let inner = artifacts::file("radrm-run").display().to_string();
    let options = ["--quiet", "--no-profile", "--no-dataset"];
    let living = format!("{inner} --no-dataset --no-profile true");
    let ended = child::run(place.script(&options, &living), PATIENCE).ok();
    assert!(ended.stderr.contains("is counted there"), "{}", ended.stderr);
    // As when the directory of segments was unmounted.
    let script = format!(
        "rm $RADRM_SEGMENT; {inner} --no-dataset --no-profile --mem-limit 1GiB sh -c \
         'test -e $RADRM_SEGMENT && echo anew'"
    );
    let ended = child::run(place.script(&options, &script), PATIENCE).ok();
    assert_eq!(ended.stdout, "anew\n");
    assert!(
        !ended.stderr.contains("is counted there") && ended.stderr.contains("has ended"),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_emulated_machine_stays_with_its_programs() {
    let place = Place::new();
    let folders = || {
        let entries = fs::read_dir(place.rig.path()).expect("directory").flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("radrm-emulated-")).count()
    };
    let card = place.card.path().display().to_string();
    let options = ["--quiet", "--no-profile", "--no-dataset", "--emulate", &card];
    child::run(place.script(&options, "$LATE > /dev/null 2>&1 &"), PATIENCE).ok();
    assert_eq!(folders(), 1);
    place.counts_and_ends();
    until("no folder", || folders() == 0);
    // Without the recorder the next emulated run removes it.
    child::run(place.script(&options, "$LATE > /dev/null 2>&1 &"), PATIENCE).ok();
    place.of_radrm().into_iter().for_each(kill);
    let another = || child::run(place.script(&options, "true"), PATIENCE).ok();
    another();
    until("its own folder's end", || folders() <= 1);
    assert_eq!((folders(), place.first_call().as_str()), (1, COUNTED));
    place.end();
    until("its end", || carriers(&place) == 0);
    until("a start that removes it", || {
        another();
        folders() == 0 && place.segments().is_empty()
    });
}

#[test]
fn a_job_that_leaves_nothing_leaves_no_recorder() {
    let place = Place::new();
    let ended = place.leave("sleep 0 & wait");
    assert!(!ended.stderr.contains("still run"), "{}", ended.stderr);
    assert!(place.segments().is_empty() && place.of_radrm().is_empty());
}

/// Trees of a run in the suite: `RADRM_TEST_TREES` states another number.
const TREES: u64 = 60;
/// Trees that run at once.
const AT_ONCE: usize = 8;

/// Fate of a tree's `radrm-run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Ends,
    Killed,
    RecorderKilled,
}

struct Tree {
    seed: u64,
    fate: Fate,
    launcher: Child,
    /// Its end comes when the last process of the tree has ended.
    alive: std::io::PipeReader,
}

impl Tree {
    fn plant(place: &Place, seed: u64, random: &mut Random) -> Self {
        let fate = random.one_of(&[Fate::Ends, Fate::Ends, Fate::Ends, Fate::Killed, Fate::RecorderKilled]);
        let mut command = place.launcher(&["--quiet", "--no-profile", "--no-dataset", "--machine"]);
        command.arg(place.rig.machine_path()).arg("--").arg(&place.late).args(["tree", &seed.to_string()]);
        let (alive, writer) = std::io::pipe().expect("pipe");
        // Lines of what does not hold, too.
        let launcher = command.stdin(Stdio::null()).stderr(writer).spawn().expect("radrm-run");
        Self { seed, fate, launcher, alive }
    }

    /// Lets it live and end.
    fn watch(mut self, place: &Place, random: &mut Random) {
        let (seed, fate) = (self.seed, self.fate);
        if fate == Fate::Killed {
            std::thread::sleep(Duration::from_millis(40 + random.below(60)));
            let _ = self.launcher.kill();
        }
        let number = self.launcher.id();
        let _ = self.launcher.wait();
        if fate == Fate::RecorderKilled {
            let argument = seed.to_string();
            let is_its = |process: &Process| process.command().ends_with(&format!("tree {argument}"));
            place.of_radrm().into_iter().filter(is_its).filter(|process| process.0 != number).for_each(kill);
        }
        let mut said = String::new();
        self.alive.read_to_string(&mut said).expect("what its processes say");
        assert!(said.is_empty(), "tree {seed}, {fate:?}: {said}");
    }
}

#[test]
fn a_limit_lives_as_long_as_random_trees_of_processes() {
    let count = std::env::var("RADRM_TEST_TREES").ok().and_then(|text| text.parse().ok()).unwrap_or(TREES);
    let place = Place::new();
    let mut random = Random(0x11fe_5eed);
    let mut seeds = (1..=count).collect::<Vec<u64>>();
    while !seeds.is_empty() {
        let few = seeds.split_off(seeds.len().saturating_sub(AT_ONCE));
        let trees: Vec<Tree> = few.into_iter().map(|seed| Tree::plant(&place, seed, &mut random)).collect();
        trees.into_iter().for_each(|tree| tree.watch(&place, &mut random));
    }
    until("no recorder", || place.of_radrm().is_empty());
    place.is_cleaned_by_a_start();
}
