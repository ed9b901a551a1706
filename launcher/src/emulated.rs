//! Setting up an emulated machine: its file, and a directory from which the program takes the
//! emulated libraries under the real ones' names.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use radrm_emulator_machine::{
    ENV_FAULTS, ENV_MACHINE, FaultError, FaultPlan, MACHINE_FILE, Machine, MachineError, MachineSpec,
};
use radrm_limits::LimitError;
use radrm_limits::carriers::Processes;
use radrm_limits::program::environment::Environment;
use radrm_limits::program::libraries;
use radrm_profile::model::WITH_FAULTS;
use tempfile::TempDir;
use thiserror::Error;

use super::cli::Emulate;
use super::leftovers;
use super::temporary;

/// The names under which programs load the driver and NVML.
const NAMES: [(&str, &[&str]); 2] = [
    (libraries::EMULATED_CUDA, &["libcuda.so.1", "libcuda.so"]),
    (libraries::EMULATED_NVML, &["libnvidia-ml.so.1", "libnvidia-ml.so"]),
];

/// Reason that there is no emulated machine, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum EmulationError {
    #[error("{0}")]
    Machine(#[from] MachineError),
    #[error("{0}")]
    Faults(#[from] FaultError),
    #[error(transparent)]
    Library(#[from] LimitError),
    #[error("no directory for the emulated libraries: {0}")]
    Directory(io::Error),
    #[error("no link to {}: {source}", library.display())]
    Link { library: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
    #[error(
        "the machine {} is {there}, not {wanted}: leave --emulate out to use it as it is, or name another file",
        path.display()
    )]
    Another { path: PathBuf, there: String, wanted: String },
}

/// An emulated machine, ready to be used by a program.
pub struct Emulated {
    directory: TempDir,
    machine_file: PathBuf,
    nvml: PathBuf,
    faults: Option<String>,
    label: String,
    spec: MachineSpec,
}

impl Emulated {
    /// Makes or joins the machine and links the libraries.
    ///
    /// # Errors
    /// [`EmulationError`]; nothing is left behind.
    pub fn prepare(wanted: &Emulate) -> Result<Self, EmulationError> {
        if let Some(text) = &wanted.faults {
            FaultPlan::parse(text)?;
        }
        // The description first: a wrong word on the command line is reported before anything else.
        let spec = wanted.spec.as_deref().map(MachineSpec::parse).transpose()?;
        leftovers::sweep(&temporary::place());
        let directory = temporary::directory(&leftovers::prefix(leftovers::EMULATED))
            .map_err(EmulationError::Directory)?;
        let machine_file = match &wanted.machine {
            Some(file) => std::path::absolute(file)
                .map_err(|source| EmulationError::Path { path: file.clone(), source })?,
            None => directory.path().join(MACHINE_FILE),
        };
        let machine = make_or_join(spec.as_ref(), &machine_file)?;
        if wanted.machine.is_some() {
            // By it a process that has lost its environment finds the machine.
            let link = directory.path().join(MACHINE_FILE);
            symlink(&machine_file, &link)
                .map_err(|source| EmulationError::Path { path: link.clone(), source })?;
        }
        for (library, names) in NAMES {
            let file = libraries::find(library)?;
            libraries::check(&file)?;
            for name in names {
                symlink(&file, directory.path().join(name))
                    .map_err(|source| EmulationError::Link { library: file.clone(), source })?;
            }
        }
        let mut label = wanted.spec.clone().unwrap_or_else(|| describe(machine.spec()));
        if let Some(faults) = &wanted.faults {
            label.push_str(&format!("{WITH_FAULTS}{faults}"));
        }
        let nvml = directory.path().join("libnvidia-ml.so.1");
        let spec = machine.spec().clone();
        Ok(Self { directory, machine_file, nvml, faults: wanted.faults.clone(), label, spec })
    }

    /// Lets a program with this environment find the machine.
    pub fn enter(&self, environment: &mut Environment) {
        environment.prepend_path("LD_LIBRARY_PATH", self.directory.path());
        environment.set(ENV_MACHINE, self.machine_file.as_os_str().as_bytes());
        match &self.faults {
            Some(text) => environment.set(ENV_FAULTS, text.as_bytes()),
            None => environment.remove(ENV_FAULTS),
        }
    }

    /// Lets libraries in this process find the machine too.
    pub fn enter_self(&self) {
        // SAFETY: called while this process has one thread.
        unsafe { std::env::set_var(ENV_MACHINE, &self.machine_file) };
    }

    /// The emulated NVML.
    #[must_use]
    pub fn nvml(&self) -> &Path {
        &self.nvml
    }

    /// The machine's file.
    #[must_use]
    pub fn machine_file(&self) -> &Path {
        &self.machine_file
    }

    /// Specification of the emulated machine.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// Description of what is emulated, in words.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns true if processes use its folder.
    #[must_use]
    pub fn is_used(&self, owner: u32) -> bool {
        Processes::now().use_folder(self.directory.path(), owner)
    }

    /// Leaves everything in place for processes that are still running; says where.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }
}

fn make_or_join(spec: Option<&MachineSpec>, file: &Path) -> Result<Machine, EmulationError> {
    if let Some(spec) = spec {
        match Machine::create(spec, file) {
            Err(MachineError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
            other => return Ok(other?),
        }
    }
    let machine = Machine::open(file)?;
    if let Some(spec) = spec.filter(|spec| *spec != machine.spec()) {
        let (there, wanted) = (described(machine.spec()), described(spec));
        return Err(EmulationError::Another { path: file.to_owned(), there, wanted });
    }
    Ok(machine)
}

/// A machine that is there, in words.
#[must_use]
pub fn label_of(file: &Path) -> Option<String> {
    Machine::open(file).ok().map(|machine| describe(machine.spec()))
}

/// Specification of a machine that is there.
pub(crate) fn spec_of(file: &Path) -> Option<MachineSpec> {
    Machine::open(file).ok().map(|machine| machine.spec().clone())
}

/// A machine in words that distinguish it from others of the same models.
fn described(spec: &MachineSpec) -> String {
    let memory: Vec<_> = spec.gpu.iter().map(|gpu| format!("{} MiB", gpu.memory_mib)).collect();
    format!("{} ({})", describe(spec), memory.join(", "))
}

/// `2xH200+T4` for a machine that was made elsewhere.
fn describe(spec: &MachineSpec) -> String {
    let mut groups: Vec<(usize, &str)> = Vec::new();
    for gpu in &spec.gpu {
        match groups.last_mut() {
            Some((count, id)) if *id == gpu.id => *count += 1,
            _ => groups.push((1, &gpu.id)),
        }
    }
    let texts: Vec<_> = groups.iter().map(|(count, id)| format!("{count}x{id}")).collect();
    texts.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_made_once_and_joined_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m");
        assert!(make_or_join(None, &file).is_err(), "there is nothing to join yet");
        let spec = |text| MachineSpec::parse(text).unwrap();
        let made = make_or_join(Some(&spec("2xA100-40GB")), &file).unwrap();
        let joined = make_or_join(Some(&spec("2xA100-40GB")), &file).unwrap();
        assert_eq!(joined.gpu_count(), 2);
        assert_eq!(make_or_join(None, &file).unwrap().gpu_count(), 2);
        assert_eq!(describe(made.spec()), "2xA100-40GB");
    }

    #[test]
    fn a_machine_is_not_taken_for_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m");
        let spec = |text| MachineSpec::parse(text).unwrap();
        make_or_join(Some(&spec("2xA100-40GB")), &file).unwrap();
        for other in ["T4", "A100-40GB", "2xA100-80GB"] {
            let Err(error) = make_or_join(Some(&spec(other)), &file) else { panic!("{other} was accepted") };
            let text = error.to_string();
            assert!(text.contains("is 2xA100-40GB") && text.contains(other), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn a_file_that_is_no_machine_is_reported_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m");
        std::fs::write(&file, "text").unwrap();
        let Err(error) = make_or_join(None, &file) else { panic!("accepted") };
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(std::fs::read(&file).unwrap(), b"text");
    }
}
