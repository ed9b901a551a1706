//! The checks, in the order in which a program that is started meets what they check.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use radrm_base::Bytes;
use radrm_collector::dataset;
use radrm_launcher::init_failure::{DRIVER_MISMATCH, init_failure};
use radrm_limits::LimitError;
use radrm_limits::files;
use radrm_limits::ledgers::{Ledgers, SCOPES};
use radrm_limits::mps::control::{Control, DEFAULT_PIPE, PIPE_VARIABLE};
use radrm_limits::mps::warnings::answers;
use radrm_limits::program::libraries;
use radrm_os::host::is_in_first_pid_namespace;
use radrm_os::nvml::{Inventory, Nvml, NvmlError, NvmlSource};
use radrm_protocol::connection::Connection;
use rustix::fs::{Access, access};

use super::Finding;
use super::Status::{Failure, Info, Ok as Fine, Warning};

/// All checks.
pub fn all() -> Vec<Finding> {
    let nvml = Nvml::open(&NvmlSource::System);
    let inventory = nvml.as_ref().ok().and_then(|nvml| nvml.inventory().ok()).unwrap_or_default();
    let shim = shim();
    let mut findings = vec![shim_finding(&shim), c_library(shim.as_deref().ok()), emulator(), driver(&nvml)];
    findings.extend(gpus(nvml.is_ok(), &inventory));
    findings.push(devices(&DeviceFiles::find(Path::new("/dev")), inventory.gpus.is_empty()));
    findings.push(sm_activity(meter(&nvml, &inventory).as_ref()));
    findings.push(host_counters(perf_event_paranoid(), rustix::process::geteuid().is_root()));
    findings.push(profiles(&std::env::current_dir().unwrap_or_default()));
    findings.push(past_runs(dataset::default_path().as_deref()));
    findings.push(limits());
    findings.push(shared_limits(Path::new(SCOPES).is_dir()));
    let control_is_installed = Control::new(Path::new(DEFAULT_PIPE), None).is_ok();
    findings.push(mps(&mps_pipes(), control_is_installed));
    findings.push(daemon(Connection::open(None).is_ok()));
    findings.push(namespaces(Surroundings::find()));
    findings.push(programs());
    findings
}

/// The library that is preloaded: without it nothing is counted.
fn shim() -> Result<PathBuf, LimitError> {
    let path = libraries::find(libraries::SHIM)?;
    libraries::check_preload(&path)?;
    Ok(path)
}

fn shim_finding(shim: &Result<PathBuf, LimitError>) -> Finding {
    let subject = "shim";
    match shim {
        Ok(path) => Finding::new(subject, Fine, path.display().to_string()),
        Err(LimitError::NoLibrary { name, directories, remedy }) => {
            Finding::new(subject, Failure, format!("{name} is not in {directories}")).remedy(*remedy)
        }
        Err(why) => Finding::new(subject, Failure, why.to_string()).remedy(
            "install a package of this version for this machine, or let RADRM_LIB_DIR name another build",
        ),
    }
}

/// The glibc of this system, and the one that the shim was built for.
fn c_library(shim: Option<&Path>) -> Finding {
    let subject = "C library";
    let Some((major, minor)) = libraries::running_glibc() else {
        return Finding::new(subject, Failure, "this is not glibc")
            .remedy("run in a system with glibc: the shim cannot be loaded by another C library");
    };
    match shim.and_then(libraries::needed_glibc) {
        Some((needs, least)) => Finding::new(
            subject,
            Fine,
            format!("glibc {major}.{minor}; programs of containers need {needs}.{least} or newer"),
        ),
        None => Finding::new(subject, Info, format!("glibc {major}.{minor}")),
    }
}

fn emulator() -> Finding {
    let missing = [libraries::EMULATED_CUDA, libraries::EMULATED_NVML]
        .into_iter()
        .find_map(|name| libraries::find(name).err());
    match missing {
        None => Finding::new("emulated GPUs", Fine, "radrm-run --emulate A100-40GB -- PROGRAM needs no GPU"),
        Some(why) => Finding::new("emulated GPUs", Info, why.to_string()),
    }
}

fn driver(nvml: &Result<Nvml, NvmlError>) -> Finding {
    match nvml {
        Ok(nvml) => {
            let cuda = nvml.cuda().map_or(String::new(), |version| {
                format!(", CUDA up to {}.{}", version / 1000, version % 1000 / 10)
            });
            let driver = nvml.driver().unwrap_or_else(|| "of an unknown version".to_owned());
            Finding::new("driver", Fine, format!("{driver}{cuda}"))
        }
        Err(why) => {
            let remedy = match why {
                NvmlError::NoLibrary => "install NVIDIA's driver, or use --emulate",
                NvmlError::NoDriver => "load the kernel module (modprobe nvidia), or use --emulate",
                NvmlError::VersionMismatch => init_failure(DRIVER_MISMATCH).remedy,
                NvmlError::NoPermission => "ask the administrator for access to /dev/nvidia*",
                _ => "update NVIDIA's driver, or use --emulate",
            };
            Finding::new("driver", Warning, format!("NVML does not answer: {why}")).remedy(remedy)
        }
    }
}

fn gpus(answers: bool, inventory: &Inventory) -> Vec<Finding> {
    let described = |gpu: &radrm_os::nvml::Gpu| {
        let index = gpu.index.map_or_else(|| gpu.uuid.clone(), |index| format!("GPU {index}"));
        let divided = if gpu.divided { ", divided into MIG instances" } else { "" };
        Finding::new("GPU", Fine, format!("{index}: {}, {}{divided}", gpu.name, Bytes(gpu.total)))
    };
    match inventory.gpus.as_slice() {
        [] if answers => {
            vec![
                Finding::new("GPU", Warning, "the driver lists none")
                    .remedy("see the kernel's log for NVRM, or use --emulate"),
            ]
        }
        gpus => gpus.iter().map(described).collect(),
    }
}

/// The device files of the driver.
#[derive(Default)]
struct DeviceFiles {
    count: usize,
    /// Device files that this user cannot open.
    closed: Vec<String>,
}

impl DeviceFiles {
    fn find(folder: &Path) -> Self {
        let named = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_gpu = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name == "nvidiactl" || name == "nvidia-uvm" || name.strip_prefix("nvidia").is_some_and(is_number)
        };
        let files: Vec<_> = named.filter(is_gpu).collect();
        let is_closed = |path: &&PathBuf| OpenOptions::new().read(true).write(true).open(path).is_err();
        let closed = files.iter().filter(is_closed).map(|path| path.display().to_string()).collect();
        Self { count: files.len(), closed }
    }
}

/// The device files: what a container or a cgroup takes away first.
fn devices(files: &DeviceFiles, no_gpus: bool) -> Finding {
    let subject = "device files";
    match (files.count, files.closed.is_empty()) {
        (0, _) if no_gpus => Finding::new(subject, Info, "there is no /dev/nvidia*"),
        // An emulated driver has none.
        (0, _) => Finding::new(subject, Info, "there is no /dev/nvidia*: the GPUs are emulated"),
        (count, true) => Finding::new(subject, Fine, format!("{count} can be opened")),
        (_, false) => Finding::new(subject, Warning, format!("{} cannot be opened", files.closed.join(", ")))
            .remedy("ask the administrator for access to the GPUs"),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A meter of SM activity.
enum Meter {
    /// The GPU itself, from Hopper on.
    Gpm,
    Dcgm(PathBuf),
    /// There is a GPU, and none of the two.
    None,
}

fn meter(nvml: &Result<Nvml, NvmlError>, inventory: &Inventory) -> Option<Meter> {
    let (nvml, gpu) = (nvml.as_ref().ok()?, inventory.usable().next()?);
    if nvml.device(&gpu.uuid).is_ok_and(|device| device.monitor().is_ok()) {
        return Some(Meter::Gpm);
    }
    Some(in_path("dcgmi").map_or(Meter::None, Meter::Dcgm))
}

/// Finding on whether the share of busy multiprocessors is measured.
fn sm_activity(meter: Option<&Meter>) -> Finding {
    let subject = "SM activity";
    match meter {
        None => Finding::new(subject, Info, "there is no GPU to measure"),
        Some(Meter::Gpm) => Finding::new(subject, Fine, "measured by NVML's GPM"),
        Some(Meter::Dcgm(path)) => {
            Finding::new(subject, Fine, format!("measured by DCGM ({})", path.display()))
        }
        Some(Meter::None) => {
            Finding::new(subject, Warning, "not measured: the GPU has no GPM, and dcgmi is not installed")
                .remedy("install DCGM; without a meter, --kernels sample estimates it from timed launches")
        }
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

fn perf_event_paranoid() -> Option<i32> {
    fs::read_to_string(PARANOID).ok()?.trim().parse().ok()
}

/// Performance counters of the host: which events the kernel lets this user count.
fn host_counters(level: Option<i32>, is_root: bool) -> Finding {
    let subject = "host counters";
    match level {
        None => Finding::new(subject, Warning, "not measured: the kernel has no performance counters")
            .remedy("nothing to do: processor time comes from /proc, without instructions and cache misses"),
        Some(level) if level <= 2 || is_root => {
            Finding::new(subject, Fine, format!("perf_event_paranoid is {level}"))
        }
        Some(level) => {
            Finding::new(subject, Warning, format!("not measured: perf_event_paranoid is {level}"))
                .remedy(format!("echo 2 > {PARANOID} as root; until then processor time comes from /proc"))
        }
    }
}

fn profiles(here: &Path) -> Finding {
    let subject = "profiles";
    match access(here, Access::WRITE_OK) {
        Ok(_) => Finding::new(subject, Fine, format!("go to the current folder, {}", here.display())),
        Err(_) => Finding::new(
            subject,
            Info,
            format!("{} cannot be written: profiles go to $XDG_DATA_HOME/radrm/profiles", here.display()),
        ),
    }
}

fn past_runs(path: Option<&Path>) -> Finding {
    let subject = "dataset";
    let Some(path) = path else {
        return Finding::new(subject, Warning, "neither HOME nor XDG_DATA_HOME is set: runs are not kept")
            .remedy("set XDG_DATA_HOME, or name a file by --dataset");
    };
    if !path.exists() {
        return Finding::new(subject, Info, format!("no run was recorded yet ({})", path.display()));
    }
    match dataset::Dataset::open_existing(path).and_then(|dataset| dataset.check()) {
        Ok(rows) => Finding::new(subject, Fine, format!("{rows} runs in {}", path.display())),
        Err(why) => Finding::new(subject, Warning, format!("{}: {why}", path.display()))
            .remedy("move it away; the next run makes a new one"),
    }
}

/// Configuration files: a wrong one keeps every limited program from starting.
fn limits() -> Finding {
    let subject = "limits";
    match files::all() {
        Ok(read) if read.is_empty() => Finding::new(subject, Info, "no configuration limits this user"),
        Ok(read) => {
            let paths: Vec<_> = read.iter().map(|file| file.path.display().to_string()).collect();
            Finding::new(subject, Fine, format!("from {}", paths.join(", ")))
        }
        Err(why) => Finding::new(subject, Failure, why.to_string())
            .remedy("correct the file: no program starts under limits that cannot be read"),
    }
}

fn shared_limits(are_set_up: bool) -> Finding {
    let subject = "shared limits";
    match are_set_up {
        true => Finding::new(subject, Fine, format!("{SCOPES} is set up")),
        false => Finding::new(subject, Info, "limits of users and groups are not set up")
            .remedy("for a node that several users share: radrm quota init, as root"),
    }
}

/// Pipe directories in which control daemons may answer, the one that a program uses first: a daemon that the
/// environment or the configuration names, else the one that `--mps` starts for this user, and that of programs
/// without any word.
fn mps_pipes() -> Vec<PathBuf> {
    let of_environment = std::env::var_os(PIPE_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_configuration = || files::all().ok()?.into_iter().find_map(|read| read.config.mps.pipe_directory);
    match of_environment.or_else(of_configuration) {
        Some(named) => vec![named],
        None => {
            let own = Ledgers::System.private_directory(rustix::process::getuid().as_raw()).join("mps");
            vec![own, PathBuf::from(DEFAULT_PIPE)]
        }
    }
}

fn mps(pipes: &[PathBuf], control_is_installed: bool) -> Finding {
    match (pipes.iter().find(|pipe| answers(pipe)), control_is_installed) {
        (Some(pipe), _) => {
            Finding::new("MPS", Fine, format!("a control daemon answers at {}", pipe.display()))
        }
        (None, true) => Finding::new("MPS", Info, "not running; --mps starts it where a program asks for it"),
        (None, false) => {
            Finding::new("MPS", Info, "nvidia-cuda-mps-control is not installed: --mps starts no program")
        }
    }
}

fn daemon(answers: bool) -> Finding {
    match answers {
        true => Finding::new("radrmd", Fine, "answers: radrm submit places jobs"),
        false => Finding::new("radrmd", Info, "not running here: radrm-run works without it"),
    }
}

/// Surroundings of this process: its pid namespace and container.
#[derive(Clone, Copy)]
struct Surroundings {
    own_pids: bool,
    container: bool,
}

impl Surroundings {
    fn find() -> Self {
        Self {
            own_pids: !is_in_first_pid_namespace(),
            container: Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists(),
        }
    }
}

/// In a pid namespace of its own, a container sees neither other processes nor what they hold: NVML reports the pids of
/// the first one.
fn namespaces(surroundings: Surroundings) -> Finding {
    let subject = "namespaces";
    match surroundings {
        Surroundings { own_pids: true, .. } => Finding::new(
            subject,
            Info,
            "in a pid namespace of its own: what a context takes is not measured, and processes outside have no names",
        )
        .remedy("start the container with --pid=host, or set `context` in the node's radrm.toml"),
        Surroundings { container: true, .. } => {
            Finding::new(subject, Fine, "in a container that sees all processes of the machine")
        }
        _ => Finding::new(subject, Fine, "all processes of the machine are visible"),
    }
}

/// Finding on programs that no machine changes.
fn programs() -> Finding {
    Finding::new(
        "programs",
        Info,
        "counted: programs with glibc and what they start; not counted: static, setuid, 32-bit ones, and those with musl",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, and parts of what was found and of the remedy.
    #[track_caller]
    fn check(finding: &Finding, status: super::super::Status, found: &str, remedy: &str) {
        assert_eq!(finding.status, status, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?}");
        assert!(finding.remedy.as_deref().unwrap_or_default().contains(remedy), "{finding:?}");
        assert_eq!(remedy.is_empty(), finding.remedy.is_none(), "{finding:?}");
    }

    #[test]
    fn a_missing_shim_fails_and_says_where_to_get_it() {
        let missing = LimitError::NoLibrary {
            name: "libradrm.so".into(),
            directories: "/a or /b".into(),
            remedy: "put it there",
        };
        check(&shim_finding(&Err(missing)), Failure, "libradrm.so is not in /a or /b", "put it there");
        let broken = LimitError::Unloadable { library: "/a/libradrm.so".into(), what: "is cut".into() };
        check(&shim_finding(&Err(broken)), Failure, "/a/libradrm.so is cut", "install a package");
        check(&shim_finding(&Ok("/a/libradrm.so".into())), Fine, "/a/libradrm.so", "");
    }

    #[test]
    fn the_c_library_is_named() {
        check(&c_library(None), Info, "glibc 2.", "");
        let own = std::env::current_exe().unwrap();
        check(&c_library(Some(&own)), Fine, "programs of containers need 2.", "");
    }

    #[test]
    fn why_the_driver_does_not_answer_decides_what_to_do() {
        for (why, remedy) in [
            (NvmlError::NoLibrary, "install NVIDIA's driver"),
            (NvmlError::NoDriver, "modprobe nvidia"),
            (NvmlError::NoPermission, "access to /dev/nvidia*"),
            (NvmlError::VersionMismatch, "reload the kernel modules"),
            (NvmlError::NotSupported, "update"),
        ] {
            check(&driver(&Err(why)), Warning, "NVML does not answer", remedy);
        }
        check(&gpus(true, &Inventory::default())[0], Warning, "lists none", "NVRM");
        assert!(gpus(false, &Inventory::default()).is_empty(), "the driver's line says it");
    }

    #[test]
    fn device_files_that_cannot_be_opened_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let find = || DeviceFiles::find(folder.path());
        check(&devices(&find(), true), Info, "no /dev/nvidia*", "");
        check(&devices(&find(), false), Info, "emulated", "");
        for name in ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        check(&devices(&find(), false), Fine, "3 can be opened", "");
        // No user can open a folder for writing, not even root.
        fs::create_dir(folder.path().join("nvidia1")).unwrap();
        check(&devices(&find(), false), Warning, "nvidia1 cannot be opened", "administrator");
    }

    #[test]
    fn what_is_not_measured_says_so() {
        check(&sm_activity(None), Info, "no GPU", "");
        check(&sm_activity(Some(&Meter::Gpm)), Fine, "GPM", "");
        check(&sm_activity(Some(&Meter::Dcgm("/usr/bin/dcgmi".into()))), Fine, "/usr/bin/dcgmi", "");
        check(&sm_activity(Some(&Meter::None)), Warning, "not measured", "install DCGM");
        check(&host_counters(None, true), Warning, "not measured", "/proc");
        check(&host_counters(Some(3), false), Warning, "not measured", "echo 2");
        check(&host_counters(Some(3), true), Fine, "is 3", "");
        check(&host_counters(Some(2), false), Fine, "is 2", "");
        check(&programs(), Info, "not counted", "");
    }

    #[test]
    fn files_of_runs_are_found_or_their_place_is_named() {
        let folder = tempfile::tempdir().unwrap();
        check(&profiles(folder.path()), Fine, "current folder", "");
        check(&profiles(&folder.path().join("none")), Info, "XDG_DATA_HOME", "");
        let file = folder.path().join("dataset.db");
        check(&past_runs(None), Warning, "neither HOME", "--dataset");
        check(&past_runs(Some(&file)), Info, "no run was recorded", "");
        fs::write(&file, "no database").unwrap();
        check(&past_runs(Some(&file)), Warning, "dataset.db", "move it away");
    }

    #[test]
    fn what_a_shared_node_has_is_listed() {
        check(&shared_limits(true), Fine, "/run/radrm/limits", "");
        check(&shared_limits(false), Info, "not set up", "radrm quota init");
        check(&mps(&["/nonexistent".into()], true), Info, "--mps starts it", "");
        check(&daemon(true), Fine, "radrm submit", "");
        check(&daemon(false), Info, "works without", "");
    }

    #[test]
    fn mps_is_promised_only_where_its_control_program_is_installed() {
        check(&mps(&["/nonexistent".into()], false), Info, "--mps starts no program", "");
        let folder = tempfile::tempdir().unwrap();
        let pid = std::process::id().to_string();
        fs::write(folder.path().join("nvidia-cuda-mps-control.pid"), pid).unwrap();
        if Control::new(folder.path(), None).is_ok() {
            return; // the real program is installed and answers itself
        }
        let pipes = ["/nonexistent".into(), folder.path().to_owned()];
        check(&mps(&pipes, false), Fine, &folder.path().display().to_string(), "");
    }

    #[test]
    fn a_pid_namespace_of_its_own_says_what_is_lost() {
        let of = |own_pids, container| namespaces(Surroundings { own_pids, container });
        check(&of(true, true), Info, "not measured", "--pid=host");
        check(&of(false, true), Fine, "container", "");
        check(&of(false, false), Fine, "all processes", "");
    }
}
