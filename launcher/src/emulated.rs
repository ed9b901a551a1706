//! Setting up an emulated machine: its file, and a directory from which the program takes the
//! emulated libraries under the real ones' names.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use radrm_emulator_machine::{ENV_FAULTS, ENV_MACHINE, FaultPlan, Machine, MachineError, MachineSpec};
use radrm_limits::program::environment::Environment;
use radrm_limits::program::libraries;
use tempfile::TempDir;

use super::cli::Emulate;
use super::leftovers;

/// The names under which programs look for the driver and for NVML.
const NAMES: [(&str, &[&str]); 2] = [
    (libraries::EMULATED_CUDA, &["libcuda.so.1", "libcuda.so"]),
    (libraries::EMULATED_NVML, &["libnvidia-ml.so.1", "libnvidia-ml.so"]),
];

/// An emulated machine, ready to be used by a program.
pub struct Emulated {
    directory: TempDir,
    machine_file: PathBuf,
    nvml: PathBuf,
    faults: Option<String>,
    label: String,
}

impl Emulated {
    /// Makes or joins the machine and links the libraries.
    ///
    /// # Errors
    /// One sentence: the description, the faults or the machine's file are not understood, or a
    /// library is missing.
    pub fn prepare(wanted: &Emulate) -> Result<Self, String> {
        if let Some(text) = &wanted.faults {
            FaultPlan::parse(text).map_err(|error| error.to_string())?;
        }
        // The description first: a wrong word on the command line is told before anything else.
        let spec =
            wanted.spec.as_deref().map(MachineSpec::parse).transpose().map_err(|error| error.to_string())?;
        leftovers::sweep(&std::env::temp_dir());
        let directory = tempfile::Builder::new()
            .prefix(&leftovers::prefix())
            .tempdir()
            .map_err(|error| format!("no directory for the emulated libraries: {error}"))?;
        let machine_file = match &wanted.machine {
            Some(file) => {
                std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?
            }
            None => directory.path().join("machine"),
        };
        let machine = make_or_join(spec.as_ref(), &machine_file)?;
        for (library, names) in NAMES {
            let file = libraries::find(library)?;
            libraries::check(&file)?;
            for name in names {
                symlink(&file, directory.path().join(name))
                    .map_err(|error| format!("no link to {}: {error}", file.display()))?;
            }
        }
        let label = wanted.spec.clone().unwrap_or_else(|| describe(machine.spec()));
        let nvml = directory.path().join("libnvidia-ml.so.1");
        Ok(Self { directory, machine_file, nvml, faults: wanted.faults.clone(), label })
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

    /// What is emulated, in words.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Leaves everything in place for processes that are still running; says where.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }
}

fn make_or_join(spec: Option<&MachineSpec>, file: &Path) -> Result<Machine, String> {
    if let Some(spec) = spec {
        match Machine::create(spec, file) {
            Err(MachineError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map_err(|error| error.to_string()),
        }
    }
    let machine = Machine::open(file).map_err(|error| error.to_string())?;
    if let Some(spec) = spec.filter(|spec| *spec != machine.spec()) {
        return Err(format!(
            "the machine {} is {}, not {}: leave --emulate out to use it as it is, or name another file",
            file.display(),
            described(machine.spec()),
            described(spec)
        ));
    }
    Ok(machine)
}

/// A machine that is there, in words.
#[must_use]
pub fn label_of(file: &Path) -> Option<String> {
    Machine::open(file).ok().map(|machine| describe(machine.spec()))
}

/// A machine in words that tell it from others of the same models.
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
            let Err(text) = make_or_join(Some(&spec(other)), &file) else { panic!("{other} was accepted") };
            assert!(text.contains("is 2xA100-40GB") && text.contains(other), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn a_file_that_is_no_machine_is_told_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m");
        std::fs::write(&file, "text").unwrap();
        let Err(text) = make_or_join(None, &file) else { panic!("accepted") };
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(std::fs::read(&file).unwrap(), b"text");
    }
}
