//! Running programs as `radrm top` shows them without a daemon: its figures are those of the profiles.

use std::{
    ffi::OsString,
    fs::File,
    io::{Read, Write},
    os::fd::{FromRawFd, OwnedFd},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_profile::{Bytes, Profile, model::Kind};
use serde_json::Value;

/// Steps of each of five runs before it waits.
const LOADS: [&[&str]; 5] = [
    &["use:0", "alloc:a:512m", "alloc:b:256m", "free:b", "launch:40", "pause"],
    &["use:0", "alloc:a:1g", "managed:m:64m", "launch:7", "pause"],
    &["use:0", "async:a:96m", "launch:300", "pause"],
    &["use:0", "alloc:a:3m", "toomuch:x:900g", "toomuch:y:900g", "pause"],
    &["use:1", "alloc:a:2g", "hostalloc:h:32m", "launch:1", "pause"],
];

/// A program as a run of its own on the machine of `rig`.
fn command(rig: &Rig, number: usize, options: &[&str], program: &[OsString]) -> Command {
    for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
        artifacts::file(library);
    }
    let mut command = rig.bare_command(artifacts::file("radrm-run"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
    command.args(["--quiet", "--no-dataset", "-o"]).arg(rig.path().join(format!("{number}.radrm")));
    command.arg("--machine").arg(rig.machine_path()).args(options);
    command.arg("--").args(program);
    command
}

/// `steps.c` and what it does.
fn program(steps: &[&str]) -> Vec<OsString> {
    let program = programs::compile("steps.c", &[]).into_os_string();
    std::iter::once(program).chain(steps.iter().map(OsString::from)).collect()
}

/// `steps.c` as a run, waiting at its first `pause`.
fn run(rig: &Rig, number: usize, options: &[&str], steps: &[&str]) -> Running {
    let mut run = Running::start(command(rig, number, options, &program(steps)), 5 * PATIENCE);
    run.until_ready();
    run
}

fn top(rig: &Rig, words: &[&str]) -> Command {
    let mut command = rig.bare_command(artifacts::file("radrm"));
    command.arg("top").args(words);
    command
}

fn readings(rig: &Rig, words: &[&str]) -> Vec<Value> {
    let shown = child::run(top(rig, words), PATIENCE).ok().stdout;
    serde_json::from_str(&shown).expect("a list")
}

fn of<'r>(readings: &'r [Value], run: &Running) -> &'r Value {
    let found = readings.iter().find(|reading| reading["run"].as_u64() == Some(run.pid().into()));
    found.unwrap_or_else(|| panic!("no run {} in {readings:#?}", run.pid()))
}

#[test]
fn a_live_view_has_the_figures_that_profiles_have_at_the_end() {
    let rig = Rig::emulated("2xH200");
    let mut runs: Vec<Running> =
        LOADS.iter().enumerate().map(|(number, steps)| run(&rig, number, &[], steps)).collect();
    let shown = readings(&rig, &["--json"]);
    let shown: Vec<Value> = runs.iter().map(|run| of(&shown, run).clone()).collect();
    // Each by its number, by that of its process and by its profile.
    for (number, run) in runs.iter().enumerate() {
        let file = rig.path().join(format!("{number}.radrm")).display().to_string();
        let process = shown[number]["processes"][0]["pid"].as_u64().expect("a process").to_string();
        for word in [run.pid().to_string(), process, file] {
            let one = readings(&rig, &["--json", &word]);
            assert_eq!((one.len(), &one[0]["run"]), (1, &shown[number]["run"]), "{word}");
        }
    }
    for run in &mut runs {
        run.go_on();
    }
    runs.into_iter().for_each(|run| _ = run.end().ok());
    for (number, shown) in shown.iter().enumerate() {
        let profile = Profile::open(&rig.path().join(format!("{number}.radrm"))).expect("a profile");
        let state = &profile.processes[0].state;
        let accounts = &state.accounts;
        assert_eq!(shown["launches"], state.launches + state.graph_launches, "{shown:#}");
        assert_eq!(shown["refused"], accounts.iter().map(|account| account.failed).sum::<u64>(), "{shown:#}");
        for gpu in shown["gpus"].as_array().expect("GPUs") {
            let account = accounts.iter().find(|account| gpu["index"] == account.gpu.0).expect("an account");
            assert_eq!(
                (&gpu["held_bytes"], &gpu["peak_bytes"]),
                (&account.now.0.into(), &account.peak.0.into())
            );
            for kind in Kind::ALL {
                let held = gpu["kinds"].get(kind.key()).and_then(Value::as_u64).unwrap_or(0);
                assert_eq!(held, account.kinds[kind.index()].now.0, "{} in {gpu:#}", kind.key());
            }
        }
        let held: u64 = accounts.iter().map(|account| account.now.0).sum();
        assert!(held > 0, "{accounts:#?}");
    }
}

#[test]
fn a_live_view_has_the_rate_of_the_steps_that_a_program_names() {
    let rig = Rig::emulated("1xA100-40GB");
    let program = programs::compile("ranges.c", &["-Wno-unused-variable"]);
    // More steps of 2 ms than it has time for.
    let program = [program.into_os_string(), "steps".into(), "1000000".into()];
    let run = Running::start(command(&rig, 0, &[], &program), 5 * PATIENCE);
    let until = Instant::now() + Duration::from_secs(PATIENCE);
    let shown = loop {
        let shown = readings(&rig, &["--json"]);
        let own = shown.iter().find(|reading| reading["run"].as_u64() == Some(run.pid().into()));
        match own {
            Some(own) if own["steps"].as_u64() >= Some(50) => break own.clone(),
            own => assert!(Instant::now() < until, "no steps in {own:#?}"),
        }
    };
    let rate = shown["steps_per_second"].as_f64().expect("a rate");
    assert!(rate > 1.0 && rate < 500.0, "{shown:#}");
    assert_eq!(shown["steps_source"], "program");
    let listed = child::run(top(&rig, &["--once"]), PATIENCE).ok().stdout;
    assert!(listed.contains("STEPS/S"), "{listed}");
    run.signal(libc::SIGTERM);
    run.end();
    let profile = Profile::open(&rig.path().join("0.radrm")).expect("a profile");
    let ranges = profile.processes[0].ranges.as_ref().expect("ranges");
    let step = ranges.names.iter().find(|name| name.name == "step").expect("steps");
    assert!(Some(step.ranges) >= shown["steps"].as_u64(), "{step:?}");
}

#[test]
fn a_live_view_shows_quotas_and_says_what_has_ended() {
    let rig = Rig::emulated("1xA100-40GB");
    let mut job = run(&rig, 0, &["--mem-limit", "6GiB"], &["use:0", "alloc:a:1g", "!alloc:b:7g", "pause"]);
    let shown = readings(&rig, &["--json", &job.pid().to_string()]);
    assert_eq!(
        (&shown[0]["gpus"][0]["quota_bytes"], &shown[0]["refused"]),
        (&(6u64 << 30).into(), &1.into())
    );
    job.go_on();
    job.end().ok();
    let file = rig.path().join("0.radrm").display().to_string();
    for (word, part) in [(file.as_str(), "radrm report"), ("4000000000", "no running program")] {
        let ended = child::run(top(&rig, &[word]), PATIENCE);
        assert!(ended.status.code() == Some(1) && ended.stderr.contains(part), "{ended:?}");
    }
}

#[test]
fn a_followed_report_ends_with_the_run_and_is_then_the_usual_one() {
    let rig = Rig::emulated("1xA100-40GB");
    let mut job = run(&rig, 0, &[], &["use:0", "alloc:a:1g", "pause", "alloc:b:2g"]);
    let file = rig.path().join("0.radrm").display().to_string();
    let report = |words: &[&str]| {
        let mut command = rig.bare_command(artifacts::file("radrm"));
        command.arg("report").arg(&file).args(words);
        command
    };
    let mut terminal = Terminal::start(report(&["--follow"]));
    terminal.until("running for");
    terminal.until("1.00 GiB");
    job.go_on();
    job.end().ok();
    terminal.until("3.00 GiB");
    assert!(terminal.child.wait().expect("it ends").success());
    let usual = child::run(report(&[]), PATIENCE).ok().stdout;
    assert_eq!(child::run(report(&["--follow"]), PATIENCE).ok().stdout, usual);
}

/// A terminal with a program in it.
struct Terminal {
    child: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let (mut near, mut far) = (0, 0);
        let size = libc::winsize { ws_row: 40, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };
        let none = std::ptr::null_mut();
        // SAFETY: both descriptors and the size live here, and the name is not asked for.
        assert_eq!(unsafe { libc::openpty(&mut near, &mut far, none, none.cast(), &size) }, 0);
        // SAFETY: just opened, and owned by nothing else.
        let (near, far) = unsafe { (OwnedFd::from_raw_fd(near), OwnedFd::from_raw_fd(far)) };
        let end = || Stdio::from(far.try_clone().expect("a descriptor"));
        // The terminal's foreground is the program, as under a shell.
        // SAFETY: two system calls of the child, on its own session and standard input.
        unsafe {
            command.pre_exec(|| match libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
        drop((command, far));
        let keys = File::from(near);
        let mut screen = keys.try_clone().expect("a descriptor");
        let (to, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if to.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, shown, text: String::new() }
    }

    /// Waits until the program has shown this since the last call.
    #[track_caller]
    fn until(&mut self, part: &str) {
        let until = Instant::now() + Duration::from_secs(PATIENCE);
        while !self.text.contains(part) {
            let left = until.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no {part:?} in {:?}", self.text),
            }
        }
        self.text.clear();
    }

    /// Waits for a whole screen with all of these words; its lines.
    #[track_caller]
    fn screen_with(&mut self, words: &[String]) -> Vec<String> {
        let until = Instant::now() + Duration::from_secs(PATIENCE);
        loop {
            // A screen is drawn from its first line, and what is below it is wiped last.
            let whole = self.text.rsplit_once("\x1b[J").map_or("", |(before, _)| before);
            let screen = whole.rsplit_once("\x1b[H").map_or("", |(_, screen)| screen);
            if !screen.is_empty() && words.iter().all(|word| screen.contains(word)) {
                return screen.replace("\x1b[7m", "").lines().map(str::to_owned).collect();
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no screen with {words:?} in {:?}", self.text),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("keys");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_live_view_in_a_terminal_takes_keys_and_puts_it_back() {
    let rig = Rig::emulated("2xH200");
    // Sizes that programs of other tests do not have.
    let mut first = run(&rig, 0, &[], &["use:0", "alloc:a:1031m", "managed:m:64m", "pause"]);
    let mut second = run(&rig, 1, &[], &["use:0", "alloc:a:1033m", "pause"]);
    let mut terminal = Terminal::start(top(&rig, &["--runs", "--every", "0.1"]));
    terminal.until("\x1b[?1049h");
    terminal.press("/alloc:a:103\r");
    // The one that holds more stands first and is marked.
    let wide = first.pid().max(second.pid()).to_string().len().max("RUN".len());
    terminal.until(&format!("\x1b[7m{:>wide$} ", second.pid()));
    terminal.press("j");
    terminal.until(&format!("\x1b[7m{:>wide$} ", first.pid()));
    terminal.press("\r");
    terminal.until("(not in the total)");
    terminal.press("\x1b");
    terminal.until("LAUNCHES/S");
    terminal.press("h");
    terminal.until("sort by memory, time, number");
    terminal.press("q");
    terminal.until("\x1b[?1049l");
    assert!(terminal.child.wait().expect("it ends").success());
    for run in [&mut first, &mut second] {
        run.go_on();
    }
    first.end().ok();
    second.end().ok();
}

#[test]
fn five_runs_in_a_terminal_have_the_figures_of_their_profiles() {
    let rig = Rig::emulated("2xH200");
    let mut runs: Vec<Running> =
        LOADS.iter().enumerate().map(|(number, steps)| run(&rig, number, &[], steps)).collect();
    let mut terminal = Terminal::start(top(&rig, &["--runs", "--every", "0.1"]));
    let numbers: Vec<String> = runs.iter().map(|run| run.pid().to_string()).collect();
    // Other tests may have runs of this user on the screen too.
    let screen = terminal.screen_with(&numbers);
    terminal.press("q");
    assert!(terminal.child.wait().expect("it ends").success());
    for run in &mut runs {
        run.go_on();
    }
    runs.into_iter().for_each(|run| _ = run.end().ok());
    for (number, run) in numbers.iter().enumerate() {
        let profile = Profile::open(&rig.path().join(format!("{number}.radrm"))).expect("a profile");
        let accounts = &profile.processes[0].state.accounts;
        let row = screen.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = row.into_iter().find(|row| row.first() == Some(&run.as_str()));
        let row = row.unwrap_or_else(|| panic!("no run {run} in {screen:#?}"));
        let used: Vec<_> = accounts.iter().filter(|account| account.peak.0 > 0).collect();
        let gpus: Vec<String> = used.iter().map(|account| account.gpu.0.to_string()).collect();
        let held = Bytes(accounts.iter().map(|account| account.now.0).sum()).to_string();
        assert_eq!((row[2], row[3..5].join(" ")), (gpus.join(",").as_str(), held), "{row:?}");
        let peak = Bytes(accounts.iter().map(|account| account.peak.0).sum()).to_string();
        assert!(row[5..].join(" ").contains(&peak), "{peak} in {row:?}");
        let refused = accounts.iter().map(|account| account.failed).sum::<u64>().to_string();
        assert!(row[5..].contains(&refused.as_str()), "{refused} in {row:?}");
    }
}

#[test]
fn a_status_line_stands_below_the_programs_output_and_goes_at_the_end() {
    let rig = Rig::emulated("1xA100-40GB");
    let steps = ["use:0", "alloc:a:1035m", "launch:9", "pause"];
    let mut terminal = Terminal::start(command(&rig, 0, &["--live"], &program(&steps)));
    // Row 40 is out of the region that scrolls.
    terminal.until("\x1b[1;39r");
    terminal.until("\x1b[40;1H\x1b[K\x1b[7mradrm: 1.01 GiB of GPU memory");
    terminal.press("\n");
    terminal.until("\x1b[40;1H\x1b[K\x1b[r");
    assert!(terminal.child.wait().expect("it ends").success());
    // Where there is no terminal there is no line.
    let ended = child::run(command(&rig, 1, &["--live"], &program(&["use:0", "alloc:a:1m"])), PATIENCE).ok();
    assert!(!ended.stderr.contains('\x1b'), "{}", ended.stderr);
}
