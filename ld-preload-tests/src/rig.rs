//! One machine to run programs on, and the environment that joins a program to it.
//!
//! A rig stands on the emulator or on the instant driver. Programs run on it bare, under
//! `radrm-run`, or beside other programs in one *session*: a `radrm-run` that holds its segment open
//! while the test starts programs under that segment itself. A session gives tests a live segment
//! exactly as the launcher makes it, without the launcher's own start-up in what is measured.

use std::{
    cell::OnceCell,
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::MetadataExt, fs::symlink},
    path::{Path, PathBuf},
    process::Command,
};

use radrm_emulator_facade::{Toolkit, write_all};
use radrm_emulator_machine::{MACHINE_FILE, Machine, MachineSpec, ProcessLedger};
use radrm_profile::Profile;
use tempfile::TempDir;

use crate::{
    artifacts,
    child::{self, Ended, Running},
    figures::Outcome,
    genuine::Generation,
};

/// Seconds that a program has where a test does not say otherwise.
pub const PATIENCE: u64 = 60;

/// A machine, its directory, and the session on it if there is one.
pub struct Rig {
    directory: TempDir,
    machine: Option<Machine>,
    limit: Option<String>,
    session: OnceCell<Session>,
}

struct Session {
    launcher: Running,
    segment: OsString,
    preload: OsString,
    quota: OsString,
}

impl Rig {
    /// A rig on emulated GPUs, such as `2xH200`.
    ///
    /// # Panics
    /// If the machine cannot be made.
    pub fn emulated(spec: &str) -> Self {
        let rig = Self::with_driver(&[
            ("libcuda.so.1", "libradrm_emulated_cuda.so"),
            ("libnvidia-ml.so.1", "libradrm_emulated_nvml.so"),
        ]);
        let spec = MachineSpec::parse(spec).expect("description of the machine");
        let machine = Machine::create(&spec, &rig.machine_path()).expect("emulated machine");
        // By it a program that has emptied its environment finds the machine, as under radrm-run.
        symlink(rig.machine_path(), rig.libraries().join(MACHINE_FILE)).expect("link to the machine");
        Self { machine: Some(machine), ..rig }
    }

    /// Limits what jobs on this rig may take, as `radrm-run --mem-limit` says it. Before the session starts.
    pub fn limited(self, limit: &str) -> Self {
        Self { limit: Some(limit.to_owned()), ..self }
    }

    /// A rig on the instant driver.
    pub fn instant() -> Self {
        Self::with_driver(&[("libcuda.so.1", "libradrm_instant_cuda.so")])
    }

    /// A rig on the libraries of the genuine driver, on which no GPU is found.
    pub fn genuine(generation: &Generation) -> Self {
        let file = |name: &str| generation.libraries().join(name).display().to_string();
        let [cuda, nvml] = ["libcuda.so.1", "libnvidia-ml.so.1"].map(file);
        Self::with_driver(&[("libcuda.so.1", &cuda), ("libnvidia-ml.so.1", &nvml)])
    }

    /// A rig without any driver.
    pub fn empty() -> Self {
        Self::with_driver(&[])
    }

    fn with_driver(libraries: &[(&str, &str)]) -> Self {
        let directory = tempfile::Builder::new().prefix("radrm-rig").tempdir().expect("temporary directory");
        let lib = directory.path().join("lib");
        fs::create_dir(&lib).expect("lib");
        for (name, file) in libraries {
            symlink(artifacts::file(file), lib.join(name)).expect("link to the driver");
        }
        Self { directory, machine: None, limit: None, session: OnceCell::new() }
    }

    /// The rig's own directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Directory of the driver's libraries.
    pub fn libraries(&self) -> PathBuf {
        self.path().join("lib")
    }

    /// Puts all files of a folder beside the driver's libraries, but for those that are there.
    ///
    /// # Panics
    /// If the folder cannot be read.
    pub fn add_libraries(&self, folder: &Path) {
        for file in fs::read_dir(folder).expect("libraries").flatten() {
            let link = self.libraries().join(file.file_name());
            if !link.exists() {
                symlink(file.path(), link).expect("link to a library");
            }
        }
    }

    /// Puts a dry run's stand-ins for CUDA's libraries beside the driver's, for clients without NVIDIA's own.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn add_stand_ins(&self) {
        let toolkit = Toolkit::read(&artifacts::file("libradrm_emulated_toolkit.so")).expect("toolkit");
        write_all(&toolkit, &self.libraries()).expect("stand-ins");
    }

    /// File of the emulated machine.
    pub fn machine_path(&self) -> PathBuf {
        self.path().join("machine")
    }

    /// The emulated machine.
    ///
    /// # Panics
    /// On a rig without one.
    pub fn machine(&self) -> &Machine {
        self.machine.as_ref().expect("an emulated rig")
    }

    /// The emulator's ledgers of all processes.
    pub fn ledgers(&self) -> Vec<ProcessLedger> {
        self.machine().ledgers()
    }

    /// A program on this machine, without a shim.
    pub fn bare_command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if (name_text.starts_with("RADRM_") && name_text != "RADRM_NVRTC")
                || name_text.starts_with("CUDA_")
            {
                command.env_remove(&name);
            }
        }
        command
            .env_remove("LD_PRELOAD")
            .env("LD_LIBRARY_PATH", self.libraries())
            .env("XDG_DATA_HOME", self.path().join("data"))
            .current_dir(self.path());
        if self.machine.is_some() {
            command.env("RADRM_EMULATED_MACHINE", self.machine_path());
        }
        command
    }

    /// `radrm-run` with its own options, without a program yet. The profile goes to
    /// [`Rig::profile_path`].
    pub fn launcher(&self) -> Command {
        for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
            artifacts::file(library);
        }
        let mut command = self.bare_command(artifacts::file("radrm-run"));
        command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
        command.args(["--quiet", "--no-dataset", "--wait-all", "-o"]).arg(self.profile_path());
        if self.machine.is_some() {
            command.arg("--machine").arg(self.machine_path());
        }
        if let Some(limit) = &self.limit {
            command.arg("--mem-limit").arg(limit);
        }
        command
    }

    /// Path at which [`Rig::launcher`] puts the profile.
    pub fn profile_path(&self) -> PathBuf {
        self.path().join("profile.radrm")
    }

    /// Output of `radrm report` for that profile.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn report(&self, options: &[&str]) -> Ended {
        let mut command = Command::new(artifacts::file("radrm"));
        command.arg("report").args(options).arg(self.profile_path());
        child::run(command, PATIENCE).ok()
    }

    /// A program under `radrm-run`.
    pub fn launched(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.launcher();
        command.arg("--").arg(program.as_ref());
        command
    }

    /// Runs a program under `radrm-run` to its end and reads what is left of it.
    ///
    /// # Panics
    /// If it hangs, or leaves no profile.
    #[track_caller]
    pub fn run(&self, program: impl AsRef<Path>, args: &[&str]) -> Outcome {
        let mut command = self.launched(program);
        command.args(args);
        self.outcome(child::run(command, PATIENCE))
    }

    /// Results of a run under `radrm-run` that has ended.
    ///
    /// # Panics
    /// If there is no profile.
    #[track_caller]
    pub fn outcome(&self, ended: Ended) -> Outcome {
        let profile = Profile::open(&self.profile_path())
            .unwrap_or_else(|e| panic!("the run left no profile: {e}\n{ended:?}"));
        let spec = self.machine.as_ref().map(|m| m.spec().clone());
        let ledgers = self.machine.as_ref().map(Machine::ledgers).unwrap_or_default();
        Outcome { ended, profile, ledgers, spec }
    }

    fn session(&self) -> &Session {
        self.session.get_or_init(|| {
            let mut command = self.launched("/bin/sh");
            command.args([
                "-c",
                "echo \"$RADRM_SEGMENT\"; echo \"$LD_PRELOAD\"; echo \"$RADRM_QUOTA\"; read -r end",
            ]);
            let mut launcher = Running::start(command, 900);
            let mut line = || OsString::from_vec(launcher.line().trim_end().as_bytes().to_vec());
            let (segment, preload, quota) = (line(), line(), line());
            assert!(!segment.is_empty(), "the launcher made no segment");
            Session { launcher, segment, preload, quota }
        })
    }

    /// A program in the rig's session, started by the test itself.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let session = self.session();
        let mut command = self.bare_command(program);
        command.env("RADRM_SEGMENT", &session.segment).env("LD_PRELOAD", &session.preload);
        if !session.quota.is_empty() {
            command.env("RADRM_QUOTA", &session.quota);
        }
        command
    }

    /// Value of `LD_PRELOAD` in a program in the rig's session.
    pub fn preload(&self) -> OsString {
        self.session().preload.clone()
    }

    /// The session's segment, as a program finds it in its environment.
    pub fn segment(&self) -> OsString {
        self.session().segment.clone()
    }

    /// Disk or memory that the session's segment takes, in blocks of 512 bytes; 0 without a session.
    pub fn segment_disk_blocks(&self) -> u64 {
        let path = self.session.get().map(|s| PathBuf::from(&s.segment));
        path.and_then(|p| fs::metadata(p).ok()).map_or(0, |m| m.blocks())
    }

    /// Kills the session's launcher as the kernel would.
    ///
    /// # Panics
    /// If there was no session.
    pub fn kill_launcher(&mut self) {
        let session = self.session.take().expect("a session");
        session.launcher.signal(libc::SIGKILL);
        let status = session.launcher.end().status;
        assert!(!status.success());
    }

    /// Ends the session and reads what its programs left.
    ///
    /// # Panics
    /// If there was no session.
    #[track_caller]
    pub fn end_session(&mut self) -> Outcome {
        let mut session = self.session.take().expect("a session");
        session.launcher.go_on();
        let ended = session.launcher.end();
        self.outcome(ended)
    }
}
