//! Set-up of what the program finds on its way: stand-ins, the Python side, the environment.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use radrm_emulator_facade::{Toolkit, libraries, write};
use radrm_emulator_machine::Machine;
use radrm_limits::LimitError;
use radrm_limits::program::environment::Environment;
use radrm_limits::program::libraries as files;
use radrm_profile::model::dry_run::Phase;
use radrm_profile::model::{DryRunFigures, DryRunRanks, PredictedStep};
use tempfile::TempDir;
use thiserror::Error;

use super::caches;
use super::files::{Confinement, Files, FilesError};
use super::flags::DryRun;
use super::installed;
use super::notes::{self, Note};
use super::outcome;
use super::ranks::{self, Placed, RanksError};
use super::{trackers, work};
use crate::emulated::Emulated;
use crate::hook::{self, PythonFile};
use crate::leftovers;
use crate::temporary;

/// The emulated toolkit.
const TOOLKIT: &str = "libradrm_emulated_toolkit.so";
/// Names the file of notes to the program's processes.
const NOTES: &str = "RADRM_DRY_RUN_NOTES";
const STEPS: &str = "RADRM_DRY_RUN_STEPS";
/// Variable with the time at which a program stops itself, seconds of the monotonic clock.
const END: &str = "RADRM_DRY_RUN_END";
const SHORT_EPOCHS: &str = "RADRM_DRY_RUN_SHORT_EPOCHS";
const FAKE_DATA: &str = "RADRM_DRY_RUN_FAKE_DATA";
const HOST_VALUES: &str = "RADRM_DRY_RUN_HOST_VALUES";
const FILL: &str = "RADRM_DRY_RUN_FILL";
/// Frameworks that take most of a card at their start, and the variable with the value that keeps each from it.
const PREALLOCATE: [(&str, &str, &str); 2] =
    [("JAX", "XLA_PYTHON_CLIENT_PREALLOCATE", "false"), ("TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH", "true")];
/// Variable with those of them that this program kept from it, with commas.
const NO_PREALLOCATION: &str = "RADRM_DRY_RUN_NO_PREALLOCATION";

/// Libraries that need no driver: the genuine ones are better where they are installed, so the stand-ins are only
/// found where there are none: they are not preloaded, and their folder is the last of the loader's list.
const GENUINE_FIRST: [&str; 3] = ["libnvrtc", "libnvJitLink", "libnvtx3interop"];

const LAST_RESORT: &str = "last-resort";
/// Folder of programs that stand in for others.
const PROGRAMS: &str = "bin";
const NVIDIA_SMI: &str = include_str!("hook/nvidia_smi.py");

/// The Python modules of a dry run.
const PYTHON: [PythonFile; 19] = [
    ("radrm_choices.py", include_str!("hook/radrm_choices.py")),
    ("radrm_dry_run.py", include_str!("hook/radrm_dry_run.py")),
    ("radrm_facts.py", include_str!("hook/radrm_facts.py")),
    ("radrm_fake_data.py", include_str!("hook/radrm_fake_data.py")),
    ("radrm_host_models.py", include_str!("hook/radrm_host_models.py")),
    ("radrm_files.py", include_str!("hook/radrm_files.py")),
    ("radrm_followed.py", include_str!("hook/radrm_followed.py")),
    ("radrm_frameworks.py", include_str!("hook/radrm_frameworks.py")),
    ("radrm_graphs.py", include_str!("hook/radrm_graphs.py")),
    ("radrm_growth.py", include_str!("hook/radrm_growth.py")),
    ("radrm_kept.py", include_str!("hook/radrm_kept.py")),
    ("radrm_objects.py", include_str!("hook/radrm_objects.py")),
    ("radrm_passes.py", include_str!("hook/radrm_passes.py")),
    ("radrm_phases.py", include_str!("hook/radrm_phases.py")),
    ("radrm_ranks.py", include_str!("hook/radrm_ranks.py")),
    ("radrm_values.py", include_str!("hook/radrm_values.py")),
    ("radrm_waits.py", include_str!("hook/radrm_waits.py")),
    ("radrm_store.py", include_str!("hook/radrm_store.py")),
    ("radrm_work.py", include_str!("hook/radrm_work.py")),
];

/// Reason that what a dry run needs cannot be laid out, as one sentence.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The emulated toolkit is missing or will not load.
    #[error(transparent)]
    Library(#[from] LimitError),
    /// The stand-ins cannot be made from it.
    #[error("{0}")]
    StandIns(radrm_emulator_facade::Error),
    /// The machine cannot hold the ranks.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// The user's files cannot be protected.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// There is no room for them.
    #[error("no directory for the dry run: {0}")]
    Directory(io::Error),
    /// A file or folder in there cannot be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Results of a dry run.
pub struct Found {
    /// The figures.
    pub figures: DryRunFigures,
    /// The ranks that ran, of a large job.
    pub ranks: Option<DryRunRanks>,
    /// Work and predicted time of a step, if one was traced.
    pub step: Option<PredictedStep>,
}

/// A dry run, ready to start.
pub struct Setup {
    directory: TempDir,
    stand_ins: Vec<PathBuf>,
    machine: PathBuf,
    /// The folder of the emulated driver; a machine that is shared has its file elsewhere.
    driver: Option<PathBuf>,
    wanted: DryRun,
    /// The ranks of a large job that run; none: the program runs once.
    placed: Vec<Placed>,
    started: Instant,
    /// `None`: the program writes its files as in any other run.
    files: Option<Files>,
}

impl Setup {
    /// Writes stand-ins and Python modules into a directory of their own.
    ///
    /// # Errors
    /// [`SetupError`]; nothing is left behind.
    pub fn prepare(wanted: &DryRun, emulated: &Emulated) -> Result<Self, SetupError> {
        let placed = match &wanted.ranks {
            Some(ranks) => ranks.place(emulated.spec())?,
            None => Vec::new(),
        };
        let library = files::find(TOOLKIT)?;
        files::check(&library)?;
        let toolkit = Toolkit::read(&library).map_err(SetupError::StandIns)?;
        let directory =
            temporary::directory(&leftovers::prefix(leftovers::STAND_INS)).map_err(SetupError::Directory)?;
        let failed = |path: &Path, source| SetupError::Write { path: path.to_owned(), source };
        let place = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, content).map_err(|source| failed(&path, source))
        };
        let last_resort = directory.path().join(LAST_RESORT);
        fs::create_dir(&last_resort).map_err(|source| failed(&last_resort, source))?;
        let mut stand_ins = Vec::new();
        for library in libraries() {
            let genuine_first = GENUINE_FIRST.contains(&library.stem.as_str());
            if genuine_first && installed::on_this_system(&library.soname) {
                continue;
            }
            let folder = if genuine_first { &last_resort } else { directory.path() };
            let path = write(library, &toolkit, folder).map_err(SetupError::StandIns)?;
            if !genuine_first {
                stand_ins.push(path);
            }
        }
        hook::write(directory.path(), &[&hook::COMMON[..], &PYTHON].concat())
            .map_err(|(path, source)| SetupError::Write { path, source })?;
        place("notes", b"")?;
        let programs = directory.path().join(PROGRAMS);
        fs::create_dir(&programs).map_err(|source| failed(&programs, source))?;
        place("bin/nvidia-smi", NVIDIA_SMI.as_bytes())?;
        fs::set_permissions(programs.join("nvidia-smi"), Permissions::from_mode(0o755))
            .map_err(|source| failed(&programs, source))?;
        let machine = emulated.machine_file().to_owned();
        let driver = emulated.nvml().parent().map(Path::to_owned);
        let (wanted, started) = (wanted.clone(), Instant::now());
        Ok(Self { directory, stand_ins, machine, driver, wanted, placed, started, files: None })
    }

    /// Protects the user's files. `shared` are files and folders that the program shares with this process.
    ///
    /// # Errors
    /// [`FilesError`].
    pub fn protect(&mut self, shared: &[&Path], environment: &mut Environment) -> Result<(), FilesError> {
        if self.wanted.writes.all_real {
            return Ok(());
        }
        let mut own: Vec<PathBuf> = shared.iter().map(|path| (*path).to_owned()).collect();
        own.extend([self.directory.path().to_owned(), self.machine.clone()]);
        own.extend(self.driver.clone());
        own.extend(caches::enter(environment));
        let files = Files::protect(&self.wanted.writes, &own)?;
        files.enter(environment);
        self.files = Some(files);
        Ok(())
    }

    /// Confinement that the program enters before it is executed.
    pub(crate) fn confinement(&self) -> Option<&Confinement> {
        self.files.as_ref().map(Files::confinement)
    }

    /// The environments in which the program is started, each once: one, or one for each rank.
    #[must_use]
    pub fn environments(&self, environment: &Environment) -> Vec<Environment> {
        let Some(ranks) = &self.wanted.ranks else { return vec![environment.clone()] };
        let port = ranks::free_port();
        let of = |placed: &Placed| {
            let mut own = environment.clone();
            placed.enter(ranks, port, &mut own);
            own
        };
        self.placed.iter().map(of).collect()
    }

    /// Lets a program with this environment find all of it.
    pub fn enter(&self, environment: &mut Environment) {
        // Programs whose run path names the genuine libraries' folders would find those first: what is
        // preloaded is there before them.
        for path in self.stand_ins.iter().rev() {
            environment.preload(path);
        }
        environment.prepend_path("LD_LIBRARY_PATH", self.directory.path());
        let last_resort = self.directory.path().join(LAST_RESORT);
        let list = [
            environment.get("LD_LIBRARY_PATH").unwrap_or_default(),
            last_resort.as_os_str().as_encoded_bytes(),
        ];
        environment.set("LD_LIBRARY_PATH", &list.join(&b':'));
        environment.prepend_path("PYTHONPATH", self.directory.path());
        // Without a list the system searches one of its own.
        if environment.get("PATH").is_some() {
            environment.prepend_path("PATH", &self.directory.path().join(PROGRAMS));
        }
        environment.set(NOTES, self.directory.path().join("notes").as_os_str().as_encoded_bytes());
        match self.wanted.steps {
            Some(steps) => environment.set(STEPS, steps.to_string().as_bytes()),
            None => environment.remove(STEPS),
        }
        match self.wanted.timeout {
            Some(seconds) => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
                environment.set(END, now.saturating_add_unsigned(seconds).to_string().as_bytes());
            }
            None => environment.remove(END),
        }
        for (name, wanted) in [
            (FAKE_DATA, self.wanted.fake_data),
            (HOST_VALUES, self.wanted.host_values),
            (SHORT_EPOCHS, self.wanted.short_epochs),
        ] {
            if wanted {
                environment.set(name, b"1");
            } else {
                environment.remove(name);
            }
        }
        trackers::silence(environment);
        environment.set(FILL, self.wanted.fill.to_string().as_bytes());
        // Triton searches for the driver among the system's libraries unless this names its folder.
        if let Some(folder) = &self.driver {
            environment.set("TRITON_LIBCUDA_PATH", folder.as_os_str().as_encoded_bytes());
        }
        // A pool of most of the card would hide what the program needs.
        let mut kept = Vec::new();
        for (framework, variable, value) in PREALLOCATE {
            if environment.get(variable).is_none() {
                environment.set(variable, value.as_bytes());
                kept.push(framework);
            }
        }
        environment.set(NO_PREALLOCATION, kept.join(",").as_bytes());
        // Modules that are loaded late cost nothing before; eager loading would read gigabytes of code.
        if environment.get("CUDA_MODULE_LOADING").is_none() {
            environment.set("CUDA_MODULE_LOADING", b"LAZY");
        }
    }

    /// Reads what the program left behind, before the machine goes. All stays in place until this is dropped.
    /// `stopped_by` is the signal that the program got when its time was up.
    #[must_use]
    pub fn collect(&mut self, stopped_by: Option<i32>) -> Found {
        let notes: Vec<Note> = notes::read(&self.notes());
        let machine = Machine::open(&self.machine).ok();
        let ranks = self.wanted.ranks.as_ref().zip(machine.as_ref());
        let ranks = ranks.map(|(ranks, machine)| outcome::ranks(ranks, &self.placed, machine, &notes));
        let mut figures = outcome::figures(&self.wanted, machine.as_ref(), &notes, self.started.elapsed());
        figures.remarks.extend(self.files.iter_mut().flat_map(Files::collect));
        figures.remarks.extend(stopped_by.map(outcome::stopped_by));
        if let Some(ranks) = &ranks {
            figures.host_memory = ranks.ran.iter().filter_map(|ran| ran.host_memory).sum();
        }
        let whole = figures.gpus.iter().filter_map(|gpu| gpu.phases.get(&Phase::Whole));
        let peak = whole.map(|peak| peak.allocated).max().unwrap_or(0);
        let (step, remarks) = work::step(&notes, self.directory.path(), machine.as_ref(), peak);
        figures.remarks.extend(remarks);
        Found { figures, ranks, step }
    }

    /// Leaves all of it in place for processes that are still running.
    pub fn leave(self) {
        let _ = self.directory.keep();
        self.files.into_iter().for_each(Files::leave);
    }

    fn notes(&self) -> PathBuf {
        self.directory.path().join("notes")
    }

    /// Folder in which everything lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.directory.path()
    }
}
