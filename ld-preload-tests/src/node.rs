//! A node daemon with a state of its own, which can be killed and started again, and its clients.

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use radrm_os::Process;
use radrm_telemetry::process::Stat;
use serde_json::Value;
use tempfile::TempDir;

use crate::{artifacts, rig::PATIENCE};

/// A daemon.
pub struct Daemon {
    place: TempDir,
    child: Option<Child>,
    /// Shell words that run before it, in a mount namespace of its own.
    before: String,
    /// A process whose mount namespace it enters.
    inside: Option<u32>,
}

impl Daemon {
    /// One that runs, with these lines of configuration.
    ///
    /// # Panics
    /// If it does not start.
    pub fn new(config: &str) -> Self {
        Self::with(config, "")
    }

    /// One that runs behind shell words, in a mount namespace of its own.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with(config: &str, before: &str) -> Self {
        let mut daemon = Self::prepare(config);
        before.clone_into(&mut daemon.before);
        daemon.start();
        daemon
    }

    /// One that is not started yet.
    ///
    /// # Panics
    /// If its place cannot be made.
    pub fn prepare(config: &str) -> Self {
        for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
            artifacts::file(library);
        }
        let parent = artifacts::directory().join("../tmp");
        fs::create_dir_all(&parent).expect("directory");
        let place = tempfile::tempdir_in(parent).expect("directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        // A daemon emulates only what it is asked for by name.
        let gpus = if config.contains("emulate = ") { "" } else { "emulate = \"2xA100-40GB\"\n" };
        let text = format!("metrics = \"\"\npoll_ms = 100\naudit_s = 0\n{gpus}{config}");
        fs::write(place.path().join("config.toml"), text).expect("configuration");
        let daemon = Self { place, child: None, before: String::new(), inside: None };
        let marks = daemon.mark("");
        fs::create_dir(&marks).expect("directory");
        fs::set_permissions(marks, fs::Permissions::from_mode(0o777)).expect("mode");
        daemon
    }

    /// From now on it is started behind these shell words, in a mount namespace of its own.
    pub fn behind(&mut self, before: &str) {
        before.clone_into(&mut self.before);
    }

    /// Waits until an attempt's supervisor has written down how it ended, also while no daemon is there.
    ///
    /// # Panics
    /// If it does not for too long.
    #[track_caller]
    pub fn until_kept(&self, job: u64, attempt: u32) {
        let file = self.path(&format!("state/attempts/{job}.{attempt}"));
        self.until("its end is written down", |_| {
            fs::read(&file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("\"code\""))
        });
    }

    /// The supervisor of a running job.
    ///
    /// # Panics
    /// If it has none.
    pub fn supervisor(&self, job: u64) -> libc::pid_t {
        self.until("its launcher is known", |daemon| daemon.show(job)["job"]["pid"].is_u64());
        let launcher = self.show(job)["job"]["pid"].as_u64().expect("pid");
        let stat = Stat::now(u32::try_from(launcher).expect("pid")).expect("it runs");
        stat.ppid.cast_signed()
    }

    /// From now on it is started in the mount namespace of this process.
    pub fn enter(&mut self, pid: u32) {
        self.inside = Some(pid);
    }

    /// Its directory, `$PLACE` for it and for jobs.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// A file there.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A file in `$MARKS`, which programs of dry runs write too: what they write elsewhere is thrown away.
    pub fn mark(&self, name: &str) -> PathBuf {
        let place = self.place.path().file_name().unwrap_or_default().to_string_lossy();
        Path::new("/dev/shm").join(format!("marks-of{place}")).join(name)
    }

    /// Starts it (again) and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(&mut self) {
        self.spawn();
        self.until("the daemon answers", |daemon| {
            daemon.client(&["nodes", "--json"]).output().is_ok_and(|out| out.status.success())
        });
    }

    /// Output when it is started (again) and has to end with 1 by itself.
    ///
    /// # Panics
    /// If it ends otherwise.
    #[track_caller]
    pub fn refuses_to_start(&mut self) -> String {
        let before = self.log().len();
        self.spawn();
        let status = self.child.take().and_then(|mut child| child.wait().ok());
        let said = self.log().split_off(before);
        assert_eq!(status.and_then(|status| status.code()), Some(1), "{said}");
        said
    }

    /// Starts it (again), and waits until it answers or has ended with 1.
    ///
    /// # Errors
    /// Its output, where it has ended.
    ///
    /// # Panics
    /// If it ends otherwise, or does neither for too long.
    #[track_caller]
    pub fn tries_to_start(&mut self) -> Result<(), String> {
        let before = self.log().len();
        self.spawn();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(PATIENCE) {
            let child = self.child.as_mut().expect("a daemon that runs");
            if let Some(status) = child.try_wait().expect("wait") {
                self.child = None;
                let said = self.log().split_off(before);
                assert_eq!(status.code(), Some(1), "{said}");
                return Err(said);
            }
            if self.output(&["nodes", "--json"]).status.success() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("it neither answers nor ends\n{}", self.log());
    }

    fn spawn(&mut self) {
        // Builds radrmd too: they are of one package.
        artifacts::file("radrm-run");
        let mut command =
            if self.before.is_empty() { Command::new("/bin/sh") } else { Command::new("unshare") };
        if !self.before.is_empty() {
            command.args(["--mount", "/bin/sh"]);
        }
        let enter =
            self.inside.map_or(String::new(), |pid| format!("nsenter --mount --target {pid} --wd=$PLACE"));
        command.args(["-c", &format!("{}\nexec {enter} \"$@\"", self.before), "sh"]);
        command.arg(artifacts::directory().join("radrmd"));
        command.arg("--config").arg(self.path("config.toml"));
        command.arg("--socket").arg(self.path("socket")).arg("--state").arg(self.path("state"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("PLACE", self.place.path())
            .env("MARKS", self.mark(""));
        command.current_dir(self.place.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).expect("log");
        command.stderr(log).process_group(0);
        self.child = Some(command.spawn().expect("radrmd"));
    }

    /// Its number.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a daemon that runs").id()
    }

    /// As `kill -9` does it.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
    }

    /// As a service manager does it.
    ///
    /// # Panics
    /// If it does not end.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // SAFETY: a plain system call; the process was not waited for.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
            child.wait().expect("wait");
        }
    }

    /// A command of `radrm`.
    pub fn client(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(artifacts::directory().join("radrm"));
        command.arg("--socket").arg(self.path("socket")).args(arguments);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.place.path());
        command.env("PLACE", self.place.path()).env("MARKS", self.mark("")).current_dir(self.place.path());
        command
    }

    /// The same by another user; needs root.
    pub fn client_of(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={user}")]).arg("--clear-groups");
        command.arg(artifacts::directory().join("radrm"));
        command.arg("--socket").arg(self.path("socket")).args(arguments);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/");
        command.env("PLACE", self.place.path()).env("MARKS", self.mark("")).current_dir(self.place.path());
        command
    }

    /// Output of a command.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.client(arguments).output().expect("radrm")
    }

    /// Standard output of a command that has to succeed.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let done = self.output(arguments);
        assert!(
            done.status.success(),
            "{arguments:?}: {}{}",
            self.log(),
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8(done.stdout).expect("text")
    }

    /// Standard error of a command that has to fail, as one sentence.
    ///
    /// # Panics
    /// If it succeeds, or says more.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let done = self.output(arguments);
        let text = String::from_utf8(done.stderr).expect("text");
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }

    /// The number of a new job.
    ///
    /// # Panics
    /// If it is refused.
    #[track_caller]
    pub fn submit(&self, options: &[&str], command: &[&str]) -> u64 {
        let all = [&["submit", "--quiet"], options, &["--"], command].concat();
        self.ok(&all).trim().parse().expect("a number")
    }

    /// Everything about a job.
    ///
    /// # Panics
    /// If it is not known.
    pub fn show(&self, job: u64) -> Value {
        let text = self.ok(&["show", "--json", &job.to_string()]);
        serde_json::from_str(&text).expect("JSON")
    }

    /// State of a job.
    ///
    /// # Panics
    /// If it is not known.
    pub fn state(&self, job: u64) -> String {
        self.show(job)["job"]["state"].as_str().expect("state").to_owned()
    }

    /// Waits until something holds.
    ///
    /// # Panics
    /// If it does not for too long.
    #[track_caller]
    pub fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            let late = begun.elapsed() > Duration::from_secs(PATIENCE);
            assert!(!late, "waited in vain until {what}\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a job is in a state.
    ///
    /// # Panics
    /// If it is not for too long.
    #[track_caller]
    pub fn until_state(&self, job: u64, state: &str) {
        self.until(&format!("job {job} is {state}: {:?}", self.show(job)), |daemon| {
            daemon.state(job) == state
        });
    }

    /// A job's row after its end.
    ///
    /// # Panics
    /// If it does not end.
    #[track_caller]
    pub fn end(&self, job: u64) -> Value {
        self.until_state(job, "ended");
        self.show(job)["job"].clone()
    }

    /// Log of the daemon.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Lines of a file in its place.
    pub fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing outlives its test: the daemon first, which would start what waits, then all whose environment names its
        // place, as that of each of its jobs does.
        self.kill();
        let _ = fs::remove_dir_all(self.mark(""));
        let place = self.place().as_os_str().as_bytes();
        let names_it = |text: &[u8]| text.windows(place.len()).any(|part| part == place);
        let is_ours = |process: &Process| {
            process.environment().is_some_and(|environment| names_it(environment.bytes()))
        };
        for _ in 0..1000 {
            let left: Vec<Process> = Process::all().filter(is_ours).collect();
            if left.is_empty() {
                break;
            }
            for process in left {
                // SAFETY: a plain system call on a process of this test.
                unsafe { libc::kill(process.0.cast_signed(), libc::SIGKILL) };
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Does something as another user, which only root can.
///
/// # Panics
/// If this is not root, or if the work does.
pub fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let changed = scope.spawn(move || {
            // SAFETY: a plain system call, which changes this thread alone; it ends after the work.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
            assert_eq!(done, 0, "user {uid}");
            work()
        });
        changed.join().expect("thread")
    })
}

/// Returns true if this test may do what it needs to; prints a line if not.
pub fn may(test: &[&str]) -> bool {
    let done = Command::new(test[0]).args(&test[1..]).output().is_ok_and(|output| output.status.success());
    if !done {
        eprintln!("skipped: `{}` does not work here", test.join(" "));
    }
    done
}
