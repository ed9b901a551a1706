//! The checks, in the order in which a program that is started meets what they check.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use radrm_base::Bytes;
use radrm_collector::dataset;
use radrm_limits::files;
use radrm_limits::mps::control::has_living_daemon;
use radrm_limits::program::libraries;
use radrm_os::Process;
use radrm_os::nvml::{Inventory, Nvml, NvmlError, NvmlSource};
use radrm_protocol::connection::Connection;
use rustix::fs::{Access, access};

use super::Finding;
use super::Status::{Failure, Info, Ok as Fine, Warning};

/// All checks.
pub fn all() -> Vec<Finding> {
    let nvml = Nvml::open(&NvmlSource::System);
    let inventory = nvml.as_ref().ok().and_then(|nvml| nvml.inventory().ok()).unwrap_or_default();
    let mut findings = vec![shim(), emulator(), driver(&nvml)];
    findings.extend(gpus(&nvml, &inventory));
    findings.push(devices(&inventory));
    findings.push(sm_activity(&nvml, &inventory));
    findings.push(host_counters());
    findings.push(profiles());
    findings.push(past_runs());
    findings.push(limits());
    findings.push(shared_limits());
    findings.push(mps());
    findings.push(daemon());
    findings.push(namespaces());
    findings
}

/// The library that is preloaded: without it nothing is counted.
fn shim() -> Finding {
    let found = libraries::find(libraries::SHIM).map_err(|error| error.to_string());
    let checked = found.and_then(|path| {
        libraries::check_preload(&path).map_err(|error| error.to_string())?;
        Ok(path)
    });
    match checked {
        Ok(path) => Finding::new("shim", Fine, path.display().to_string()),
        Err(why) => Finding::new("shim", Failure, why).remedy(
            "keep bin/ and lib/radrm/ of the package together, or let RADRM_LIB_DIR name the folder with libradrm.so",
        ),
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
                NvmlError::NoPermission => "ask the administrator for access to /dev/nvidia*",
                _ => "update NVIDIA's driver, or use --emulate",
            };
            Finding::new("driver", Warning, format!("NVML does not answer: {why}")).remedy(remedy)
        }
    }
}

fn gpus(nvml: &Result<Nvml, NvmlError>, inventory: &Inventory) -> Vec<Finding> {
    let described = |gpu: &radrm_os::nvml::Gpu| {
        let index = gpu.index.map_or_else(|| gpu.uuid.clone(), |index| format!("GPU {index}"));
        let divided = if gpu.divided { ", divided into MIG instances" } else { "" };
        Finding::new("GPU", Fine, format!("{index}: {}, {}{divided}", gpu.name, Bytes(gpu.total)))
    };
    match inventory.gpus.as_slice() {
        [] if nvml.is_ok() => {
            vec![
                Finding::new("GPU", Warning, "the driver lists none")
                    .remedy("see the kernel's log for NVRM, or use --emulate"),
            ]
        }
        gpus => gpus.iter().map(described).collect(),
    }
}

/// The device files: what a container or a cgroup takes away first.
fn devices(inventory: &Inventory) -> Finding {
    let subject = "device files";
    let named = fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_gpu = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name == "nvidiactl" || name == "nvidia-uvm" || name.strip_prefix("nvidia").is_some_and(is_number)
    };
    let files: Vec<_> = named.filter(is_gpu).collect();
    let closed: Vec<_> = files
        .iter()
        .filter(|path| OpenOptions::new().read(true).write(true).open(path).is_err())
        .map(|path| path.display().to_string())
        .collect();
    match (files.is_empty(), closed.is_empty()) {
        (true, _) if inventory.gpus.is_empty() => Finding::new(subject, Info, "there is no /dev/nvidia*"),
        // An emulated driver has none.
        (true, _) => Finding::new(subject, Info, "there is no /dev/nvidia*: the GPUs are emulated"),
        (false, true) => Finding::new(subject, Fine, format!("{} can be opened", files.len())),
        (false, false) => Finding::new(subject, Warning, format!("{} cannot be opened", closed.join(", ")))
            .remedy("ask the administrator for access to the GPUs"),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Meters of SM activity: GPM on Hopper and newer, DCGM elsewhere.
fn sm_activity(nvml: &Result<Nvml, NvmlError>, inventory: &Inventory) -> Finding {
    let subject = "SM activity";
    let estimate = "without a meter, --kernels sample estimates it from timed launches";
    let (Ok(nvml), Some(gpu)) = (nvml, inventory.usable().next()) else {
        return Finding::new(subject, Info, "there is no GPU to measure");
    };
    if nvml.device(&gpu.uuid).is_ok_and(|device| device.monitor().is_ok()) {
        return Finding::new(subject, Fine, "measured by NVML's GPM");
    }
    match in_path("dcgmi") {
        Some(path) => Finding::new(subject, Fine, format!("measured by DCGM ({})", path.display())),
        None => Finding::new(subject, Warning, "GPU without GPM, and dcgmi is not installed")
            .remedy(format!("install DCGM; {estimate}")),
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Performance counters of the host: which events the kernel lets this user count.
fn host_counters() -> Finding {
    let subject = "host counters";
    let file = "/proc/sys/kernel/perf_event_paranoid";
    let level = fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<i32>().ok());
    let is_root = rustix::process::geteuid().is_root();
    match level {
        None => Finding::new(subject, Warning, "the kernel has no performance counters")
            .remedy("processor time comes from /proc; instructions and cache misses are not measured"),
        Some(level) if level <= 2 || is_root => {
            Finding::new(subject, Fine, format!("perf_event_paranoid is {level}"))
        }
        Some(level) => {
            Finding::new(subject, Warning, format!("perf_event_paranoid is {level}: none are allowed"))
                .remedy(format!("echo 2 > {file} as root; until then processor time comes from /proc"))
        }
    }
}

fn profiles() -> Finding {
    let here = std::env::current_dir().unwrap_or_default();
    let subject = "profiles";
    match access(&here, Access::WRITE_OK) {
        Ok(_) => Finding::new(subject, Fine, format!("go to the current folder, {}", here.display())),
        Err(_) => Finding::new(
            subject,
            Info,
            format!("{} cannot be written: profiles go to $XDG_DATA_HOME/radrm/profiles", here.display()),
        ),
    }
}

fn past_runs() -> Finding {
    let subject = "dataset";
    let Some(path) = dataset::default_path() else {
        return Finding::new(subject, Warning, "neither HOME nor XDG_DATA_HOME is set: runs are not kept")
            .remedy("set XDG_DATA_HOME, or name a file by --dataset");
    };
    if !path.exists() {
        return Finding::new(subject, Info, format!("no run was recorded yet ({})", path.display()));
    }
    match dataset::Dataset::open_existing(&path).and_then(|dataset| dataset.check()) {
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

fn shared_limits() -> Finding {
    let subject = "shared limits";
    match Path::new("/run/radrm/limits").is_dir() {
        true => Finding::new(subject, Fine, "/run/radrm/limits is set up"),
        false => Finding::new(subject, Info, "limits of users and groups are not set up (radrm quota init)"),
    }
}

fn mps() -> Finding {
    let pipe = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY")
        .filter(|value| !value.is_empty())
        .map_or_else(|| PathBuf::from("/tmp/nvidia-mps"), PathBuf::from);
    match has_living_daemon(&pipe) {
        true => Finding::new("MPS", Fine, format!("a control daemon answers at {}", pipe.display())),
        false => Finding::new("MPS", Info, "not running; --mps starts it where a program asks for it"),
    }
}

fn daemon() -> Finding {
    match Connection::open(None) {
        Ok(_) => Finding::new("radrmd", Fine, "answers: radrm submit places jobs"),
        Err(_) => Finding::new("radrmd", Info, "not running here: radrm-run works without it"),
    }
}

/// In a process namespace of its own, a container sees neither other users' processes nor what they hold.
fn namespaces() -> Finding {
    let subject = "namespaces";
    let is_container = Process(std::process::id()).ids().len() > 1
        || Path::new("/.dockerenv").exists()
        || Path::new("/run/.containerenv").exists();
    match is_container {
        true => {
            Finding::new(subject, Info, "in a container: processes outside of it have no names in reports")
        }
        false => Finding::new(subject, Fine, "all processes of the machine are visible"),
    }
}
