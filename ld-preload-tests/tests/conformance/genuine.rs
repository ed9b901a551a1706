//! The genuine driver as an oracle: the shim changes none of its answers, and the emulator gives the same ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use radrm_cuda_abi::table::rows;
use radrm_preload_tests::{
    artifacts, child,
    genuine::{Generation, generations, oracles},
    programs, python,
    rig::Rig,
};

const PATIENCE: u64 = 240;
const NVML: &str = include_str!("../../../emulator/nvml/data/functions.tsv");
const DIFFERENCES: &str = include_str!("../../data/genuine_differences.tsv");

/// Every name of the driver and NVML that is known here, one a line.
fn names(rig: &Rig) -> PathBuf {
    let nvml = NVML
        .lines()
        .filter(|line| line.starts_with("nvml"))
        .map(|line| line.split('\t').next().unwrap_or(line).to_owned());
    let all: BTreeSet<String> = rows().into_iter().map(|row| row.symbol).chain(nvml).collect();
    let file = rig.path().join("names");
    std::fs::write(&file, all.into_iter().collect::<Vec<_>>().join("\n")).expect("names");
    file
}

/// Lines that the oracle prints of one kind of question, a line for each.
fn said(rig: &Rig, mut command: Command, kind: &str) -> Vec<String> {
    command.arg(kind).arg(names(rig));
    child::run(command, PATIENCE).ok().stdout.lines().map(str::to_owned).collect()
}

/// Answers by question.
fn answers(said: &[String]) -> BTreeMap<String, String> {
    let answers: BTreeMap<_, _> = said
        .iter()
        .map(|line| line.split_once(": ").or_else(|| line.split_once(' ')).unwrap_or((line, "")))
        .map(|(question, answer)| (question.to_owned(), answer.to_owned()))
        .collect();
    assert_eq!(answers.len(), said.len(), "a question was asked twice");
    answers
}

fn ask(rig: &Rig, command: Command, kind: &str) -> BTreeMap<String, String> {
    answers(&said(rig, command, kind))
}

fn oracle() -> PathBuf {
    programs::compile("oracle.c", &[])
}

/// Questions whose answers differ, with both answers.
fn differing(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<[String; 3]> {
    let all: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let answer = |of: &BTreeMap<String, String>, question: &String| {
        of.get(question).cloned().unwrap_or_else(|| "-".into())
    };
    all.into_iter().map(|q| [q.clone(), answer(a, q), answer(b, q)]).filter(|[_, a, b]| a != b).collect()
}

#[test]
fn shim_changes_no_answer_of_the_genuine_driver() {
    let program = oracle();
    for generation in generations() {
        let rig = Rig::genuine(&generation);
        for kind in ["lookups", "before", "after", "errors", "nvml", "nvml-after", "ways"] {
            let bare = ask(&rig, rig.bare_command(&program), kind);
            let shimmed = ask(&rig, rig.launched(&program), kind);
            println!("{}: {kind}: {} answers", generation.name, bare.len());
            assert!(bare.len() > 6, "{kind}: {bare:?}");
            assert_eq!(differing(&bare, &shimmed), [[""; 3]; 0], "{}: {kind}", generation.name);
        }
    }
}

/// Runs a program of a Python client without the shim, with it, and under a limit: all three print and end the same. Gives
/// what the first printed.
#[track_caller]
fn client(generation: &Generation, rig: &Rig, python: &Path, code: &str) -> String {
    let run = |mut command: Command| {
        command.args(["-c", code]).env("NUMBA_CACHE_DIR", rig.path().join("numba"));
        let ended = child::run(command, PATIENCE);
        (ended.status.code(), ended.stdout, ended.stderr)
    };
    let bare = run(rig.bare_command(python));
    assert_eq!(run(rig.launched(python)), bare, "{}: {code}", generation.name);
    let mut limited = rig.launcher();
    limited.args(["--mem-limit", "1GiB", "--"]).arg(python);
    assert_eq!(run(limited), bare, "{}: under a limit: {code}", generation.name);
    bare.1
}

#[test]
fn clients_see_the_genuine_driver_as_without_the_shim() {
    let Some(python) = python::interpreter() else { return };
    for generation in generations() {
        let rig = Rig::genuine(&generation);
        for code in [
            "from numba import cuda; print(cuda.is_available()); cuda.detect()",
            "from cuda.bindings import driver as d; print(d.cuInit(0), d.cuDriverGetVersion(), d.cuDeviceGetCount())",
            "from cuda.bindings import runtime as r; print(r.cudaGetDeviceCount(), r.cudaDriverGetVersion(), r.cudaMalloc(1))",
            "import pynvml as n; print(n.nvmlErrorString(9)); n.nvmlInit()",
        ] {
            client(&generation, &rig, &python, code);
        }
    }
}

/// CUDA's libraries are those of a dry run: PyTorch's environment has none of NVIDIA's.
#[test]
fn pytorch_sees_the_genuine_driver_as_without_the_shim() {
    let Some(python) = python::torch() else { return };
    for generation in generations() {
        let rig = Rig::genuine(&generation);
        rig.add_stand_ins();
        let code = "import torch\n\
                    print(torch.cuda.is_available(), torch.cuda.device_count())\n\
                    try: torch.ones(1, device='cuda')\n\
                    except Exception as error: print(str(error).splitlines()[0])\n\
                    print(torch.ones(2).sum())";
        let said = client(&generation, &rig, &python, code);
        assert!(said.starts_with("False 0\n") && said.ends_with("tensor(2.)\n"), "{said}");
    }
}

/// The emulated driver of the same version.
fn emulated(generation: &str) -> (Rig, u32) {
    let version = match generation {
        "535" => 12020,
        "550" => 12040,
        "555" => 12050,
        other => panic!("which version of CUDA has driver {other}?"),
    };
    (Rig::emulated(&format!("1xT4,driver={version}")), version)
}

/// A line of the list of known differences. `*` at the end of a field stands for any rest.
struct Known {
    fields: [&'static str; 5],
    reason: &'static str,
    /// Answers that differ so.
    found: usize,
}

impl Known {
    fn fits(&self, found: [&str; 5]) -> bool {
        self.fields.iter().zip(found).all(|(known, found)| match known.strip_suffix('*') {
            Some(start) => found.starts_with(start),
            None => *known == found,
        })
    }
}

#[test]
fn emulator_answers_as_the_genuine_driver_of_its_version() {
    let program = oracle();
    let mut known: Vec<Known> = DIFFERENCES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let [fields @ .., reason] = cells.as_slice() else { panic!("{line}") };
            assert!(reason.contains(' '), "no reason: {line}");
            Known { fields: fields.try_into().expect(line), reason, found: 0 }
        })
        .collect();
    let oracles = oracles();
    let mut unknown = Vec::new();
    for oracle in &oracles {
        let (emulated, version) = emulated(oracle.name);
        for kind in ["lookups", "before", "errors", "nvml"] {
            let expected = answers(&oracle.answers(kind, |generation| {
                let genuine = Rig::genuine(generation);
                said(&genuine, genuine.bare_command(&program), kind)
            }));
            let mut command = emulated.bare_command(&program);
            command.env("RADRM_EMULATOR_FAULTS", format!("driver={version}"));
            let differing = differing(&expected, &ask(&emulated, command, kind));
            println!("{}: {kind}: {} answers, {} differ", oracle.name, expected.len(), differing.len());
            for [question, a, b] in &differing {
                let found = [oracle.name, kind, question, a, b];
                match known.iter_mut().find(|known| known.fits(found)) {
                    Some(known) => known.found += 1,
                    None => unknown.push(found.join("\t")),
                }
            }
        }
    }
    for known in known.iter().filter(|known| known.found > 0) {
        let [driver, kind, question, genuine, emulated] = known.fields;
        let (found, reason) = (known.found, known.reason);
        println!("{driver}: {kind}: {question}: {genuine}, emulated {emulated}: {found} times: {reason}");
    }
    assert!(unknown.is_empty(), "{} differ:\n{}", unknown.len(), unknown.join("\n"));
    let here = |known: &Known| oracles.iter().any(|o| known.fields[0] == "*" || known.fields[0] == o.name);
    let stale: Vec<_> =
        known.iter().filter(|known| known.found == 0 && here(known)).map(|known| known.fields).collect();
    assert!(stale.is_empty(), "no longer differ: {stale:?}");
}

#[test]
fn launches_go_straight_to_the_genuine_driver() {
    // The shim forwards a launch without a guard where the driver does not call its own launches by exported names.
    for generation in generations() {
        let library = generation.libraries().join("libcuda.so.1");
        let output = Command::new("readelf").arg("-rW").arg(library).output().expect("readelf");
        let relocations = String::from_utf8_lossy(&output.stdout);
        assert!(relocations.lines().count() > 1000, "{}", generation.name);
        assert!(!relocations.contains("cuLaunch"), "{}", generation.name);
    }
}

/// A check of `radrm doctor`: status, what was found, and what to do.
fn check_of(findings: &serde_json::Value, subject: &str) -> Option<[String; 3]> {
    let check = findings["checks"].as_array()?.iter().find(|check| check["subject"] == subject)?;
    Some(["status", "found", "remedy"].map(|part| check[part].as_str().unwrap_or_default().to_owned()))
}

/// A user who installed the driver's libraries, and whose kernel module is not loaded.
#[test]
fn doctor_names_the_missing_kernel_module_under_the_genuine_driver() {
    let doctor = |rig: &Rig, path: &Path| {
        let mut command = rig.bare_command(artifacts::file("radrm"));
        command.args(["doctor", "--json"]).env("RADRM_LIB_DIR", artifacts::directory()).env("PATH", path);
        let ended = child::run(command, PATIENCE).ok();
        serde_json::from_str::<serde_json::Value>(&ended.stdout).expect("JSON")
    };
    for generation in generations() {
        let rig = Rig::genuine(&generation);
        let findings = doctor(&rig, &generation.programs());
        let check =
            |subject: &str| check_of(&findings, subject).unwrap_or_else(|| panic!("{subject}: {findings:#}"));
        let [status, found, remedy] = check("driver");
        assert_eq!(status, "warning", "{found}");
        assert!(found.starts_with("NVML does not answer: "), "{found}");
        assert_eq!(remedy, "load the kernel module (modprobe nvidia), or use --emulate", "{found}");
        assert_eq!(check_of(&findings, "GPU"), None, "the driver's line says it");
        assert_eq!(check("SM activity"), ["info", "there is no GPU to measure", ""]);
        if !Path::new("/dev/nvidiactl").exists() {
            assert_eq!(check("device files"), ["info", "there is no /dev/nvidia*", ""]);
        }
        for subject in ["shim", "C library", "emulated GPUs"] {
            assert_eq!(check(subject)[0], "ok", "{subject}: {findings:#}");
        }
        let [status, found, remedy] = check("MPS");
        assert_eq!((status.as_str(), remedy.as_str()), ("info", ""));
        assert!(found.contains("--mps starts it"), "{}: {found}", generation.name);
        // Without the driver's packages the remarks are others.
        let none = doctor(&Rig::empty(), rig.path());
        let [_, _, remedy] = check_of(&none, "driver").expect("a line of the driver");
        assert_eq!(remedy, "install NVIDIA's driver, or use --emulate", "{none:#}");
        let [_, found, _] = check_of(&none, "MPS").expect("a line of MPS");
        assert!(found.contains("is not installed"), "{found}");
    }
}
