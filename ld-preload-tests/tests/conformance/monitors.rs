//! Monitors from PyPI, unmodified, beside a program that holds memory: they run clean, and show what the report shows.

use std::path::{Path, PathBuf};
use std::process::Command;

use radrm_preload_tests::{
    child::{self, Running},
    programs,
    python::interpreter,
    rig::{PATIENCE, Rig},
};

const MIB: u64 = 1 << 20;
const CARD: u64 = 1024 * MIB;

/// Program for each of them that prints its figures of GPU 0: total and used bytes, and those of the process `PID`.
const FIGURES: [(&str, &str); 3] = [
    (
        "nvitop",
        "from nvitop import Device\n\
         d = Device.all()[0]\n\
         print(d.memory_total(), d.memory_used(), d.processes()[PID].gpu_memory())",
    ),
    (
        "gpustat",
        "import gpustat\n\
         g = gpustat.new_query().gpus[0]\n\
         own = [p['gpu_memory_usage'] for p in g.processes if p['pid'] == PID]\n\
         print(g.memory_total << 20, g.memory_used << 20, own[0] << 20)",
    ),
    (
        "py3nvml",
        "from py3nvml import py3nvml as n\n\
         n.nvmlInit()\n\
         d = n.nvmlDeviceGetHandleByIndex(0)\n\
         m = n.nvmlDeviceGetMemoryInfo(d)\n\
         own = [p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(d) if p.pid == PID]\n\
         print(m.total, m.used, own[0])",
    ),
];

fn monitors() -> Option<PathBuf> {
    let python = interpreter()?;
    let found = Command::new(&python).args(["-c", "import nvitop, gpustat, py3nvml"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: {} has no nvitop, gpustat, py3nvml (cargo xtask venv)", python.display());
    None
}

fn run(mut command: Command, arguments: &[&str]) -> String {
    command.args(arguments).env("TERM", "xterm").env("COLUMNS", "100").env("LINES", "50");
    let ended = child::run(command, PATIENCE).ok();
    let all = format!("{}\n{}", ended.stdout, ended.stderr);
    assert!(!all.contains("Traceback") && !all.contains("Error"), "{arguments:?}: {all}");
    ended.stdout
}

/// Runs all monitors in the session of a rig with a program that holds 64 MiB; gives the figures that they agree on.
#[track_caller]
fn agree(rig: &Rig, python: &Path, quota: Option<u64>) {
    let mut holder = rig.command(programs::compile("quota_told.c", &[]));
    holder.args(["use:0", "alloc:0x4000000", "pause"]);
    let mut holder = Running::start(holder, 4 * PATIENCE);
    assert_eq!(holder.line().trim(), "granted");
    holder.until_ready();
    let total = quota.unwrap_or(CARD);
    for (name, code) in FIGURES {
        let code = code.replace("PID", &holder.pid().to_string());
        let text = run(rig.command(python), &["-c", &code]);
        let figures: Vec<u64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        assert_eq!(figures, [total, 64 * MIB, 64 * MIB], "{name}");
    }
    for (name, arguments, expected) in [
        ("nvitop", &["-1"][..], "A100-SXM4"),
        ("gpustat", &["--show-all"], "64 /"),
        ("py3smi", &[], "64MiB /"),
    ] {
        let text = run(rig.command(python.with_file_name(name)), arguments);
        assert!(text.contains(expected), "{name}: {text}");
    }
    holder.go_on();
    holder.end().ok();
}

/// A card of 1 GiB on which contexts take nothing, so that figures come out to the byte.
fn rig() -> Rig {
    rig_with("")
}

/// The same with further lines in its description.
fn rig_with(lines: &str) -> Rig {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("description");
    let text = "[[gpu]]\nmodel = \"A100-40GB\"\nmemory_mib = 1024\ncontext_mib = 0\n";
    std::fs::write(file.path(), [text, lines].concat()).expect("description");
    Rig::emulated(file.path().to_str().expect("text"))
}

#[test]
fn monitors_show_the_memory_of_the_card() {
    let Some(python) = monitors() else { return };
    agree(&rig(), &python, None);
}

#[test]
fn monitors_show_the_memory_of_the_quota() {
    let Some(python) = monitors() else { return };
    agree(&rig().limited("300MiB"), &python, Some(300 * MIB));
}

#[test]
fn monitors_show_an_emulated_instance_of_mig_as_a_gpu() {
    let Some(python) = monitors() else { return };
    agree(&rig_with("mig_profile = \"1g.5gb\"\n"), &python, None);
}
