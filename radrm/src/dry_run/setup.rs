//! What the program finds on its way: stand-ins, the Python side, the environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use radrm_emulator_facade::{Toolkit, libraries, write};
use radrm_emulator_machine::Machine;
use tempfile::TempDir;

use super::flags::DryRun;
use super::notes::{self, Note};
use super::outcome::Outcome;
use crate::run::emulated::Emulated;
use crate::run::environment::Environment;
use crate::run::libraries as files;

/// The emulated toolkit.
const TOOLKIT: &str = "libradrm_emulated_toolkit.so";
/// Names the file of notes to the program's processes.
const NOTES: &str = "RADRM_DRY_RUN_NOTES";
const STEPS: &str = "RADRM_DRY_RUN_STEPS";
const FAKE_DATA: &str = "RADRM_DRY_RUN_FAKE_DATA";
const FILL: &str = "RADRM_DRY_RUN_FILL";

/// Libraries that need no driver: the genuine ones are better where they are installed, so theirs is the first
/// say, and the stand-ins are only found where there are none.
const GENUINE_FIRST: [&str; 3] = ["libnvrtc", "libnvJitLink", "libnvtx3interop"];

/// The Python modules that are loaded with the interpreter.
const PYTHON: [(&str, &str); 4] = [
    ("sitecustomize.py", include_str!("hook/sitecustomize.py")),
    ("radrm_dry_run.py", include_str!("hook/radrm_dry_run.py")),
    ("radrm_fake_data.py", include_str!("hook/radrm_fake_data.py")),
    ("radrm_objects.py", include_str!("hook/radrm_objects.py")),
];

/// A dry run, ready to start.
pub struct Setup {
    directory: TempDir,
    stand_ins: Vec<PathBuf>,
    machine: PathBuf,
    wanted: DryRun,
    started: Instant,
}

impl Setup {
    /// Writes stand-ins and Python modules into a directory of their own.
    ///
    /// # Errors
    /// One sentence: the toolkit is missing, or there is no room.
    pub fn prepare(wanted: &DryRun, emulated: &Emulated) -> Result<Self, String> {
        let library = files::find(TOOLKIT)?;
        files::check(&library)?;
        let toolkit = Toolkit::read(&library).map_err(|error| error.to_string())?;
        let directory = tempfile::Builder::new()
            .prefix("radrm-dry-run-")
            .tempdir()
            .map_err(|error| format!("no directory for the dry run: {error}"))?;
        let place = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut stand_ins = Vec::new();
        for library in libraries() {
            let path = write(library, &toolkit, directory.path()).map_err(|error| error.to_string())?;
            if !GENUINE_FIRST.contains(&library.stem.as_str()) {
                stand_ins.push(path);
            }
        }
        for (name, content) in PYTHON {
            place(name, content.as_bytes())?;
        }
        place("notes", b"")?;
        let machine = emulated.machine_file().to_owned();
        Ok(Self { directory, stand_ins, machine, wanted: wanted.clone(), started: Instant::now() })
    }

    /// Lets a program with this environment find all of it.
    pub fn enter(&self, environment: &mut Environment) {
        // Programs whose run path names the genuine libraries' folders would find those first: what is
        // preloaded is there before them.
        for path in self.stand_ins.iter().rev() {
            environment.prepend_path("LD_PRELOAD", path);
        }
        environment.prepend_path("LD_LIBRARY_PATH", self.directory.path());
        environment.prepend_path("PYTHONPATH", self.directory.path());
        environment.set(NOTES, self.directory.path().join("notes").as_os_str().as_encoded_bytes());
        match self.wanted.steps {
            Some(steps) => environment.set(STEPS, steps.to_string().as_bytes()),
            None => environment.remove(STEPS),
        }
        if self.wanted.fake_data {
            environment.set(FAKE_DATA, b"1");
        } else {
            environment.remove(FAKE_DATA);
        }
        environment.set(FILL, self.wanted.fill.to_string().as_bytes());
        // Triton looks for the driver among the system's libraries unless it is told where it is.
        if let Some(folder) = self.machine.parent() {
            environment.set("TRITON_LIBCUDA_PATH", folder.as_os_str().as_encoded_bytes());
        }
        // Modules that are loaded late cost nothing before; eager loading would read gigabytes of code.
        if environment.get("CUDA_MODULE_LOADING").is_none() {
            environment.set("CUDA_MODULE_LOADING", b"LAZY");
        }
    }

    /// Reads what the program left behind, before the machine goes.
    #[must_use]
    pub fn collect(self) -> Outcome {
        let notes: Vec<Note> = notes::read(&self.notes());
        let machine = Machine::open(&self.machine).ok();
        Outcome::new(&self.wanted, machine.as_ref(), &notes, self.started.elapsed())
    }

    fn notes(&self) -> PathBuf {
        self.directory.path().join("notes")
    }

    /// Where everything lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.directory.path()
    }
}
