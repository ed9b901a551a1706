//! Dry runs of unmodified PyTorch programs: the allocator's figures, exactly, and nothing left behind.
//!
//! PyTorch comes from the environment that `cargo xtask venv` makes; without it these tests say that they are
//! skipped, and `cargo xtask test` fails.

use std::path::Path;
use std::process::Command;

use radrm_collector::dataset::{Dataset, Filter};
use radrm_preload_tests::{artifacts, child, python::script};
use serde_json::Value;

use super::harness::{DryRun, PATIENCE, dry_run, dry_run_with, fast, plain_dry_run, python};

#[test]
fn gpt2_small_takes_what_the_real_allocator_takes_and_little_of_the_host() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &[], &[&script("dry_run_gpt2.py")]).ok();
    assert_eq!(run.peak(), (5803.5, 6200.0));
    assert_eq!(run.ended.stdout.lines().last(), Some("5803.5 6200.0"), "the program sees the same");
    let resident = run.report["dry_run"]["host_memory"].as_u64().expect("host memory");
    assert!((100 << 20..1500 << 20).contains(&resident), "{} MiB of the host's memory", resident >> 20);
    assert_eq!(run.report["dry_run"]["steps"], 3);
    assert_eq!(run.report["dry_run"]["host_memory"], run.report["host"]["resident_peak_bytes"], "one figure");
    let (seconds, ns) = (&run.report["dry_run"]["seconds"], &run.report["outcome"]["duration_ns"]);
    assert_eq!(seconds.as_f64(), ns.as_u64().map(|ns| ns as f64 / 1e9), "one duration");
    let marks = |range: &&Value| range["name"] == "optimizer step [radrm-run]";
    let marks = run.report["ranges"]["names"].as_array().into_iter().flatten().find(marks);
    assert_eq!(marks.map(|range| range["marks"].clone()), Some(3.into()), "{:#}", run.report["ranges"]);
    assert_eq!(run.report["dry_run"]["missing"], Value::Array(Vec::new()), "{:#}", run.report["dry_run"]);
    let calls = run.report["dry_run"]["library_calls"].to_string();
    assert!(calls.contains(r#"["cuBLAS",100"#), "kernels that the stand-in does not launch: {calls}");
    assert!(run.report["emulated"].is_string(), "the report does not say that it is emulated");
    run.leaves_nothing();
}

/// Everything that a report has of memory and work; times, processes and the host are those of one run.
fn figures(run: &DryRun) -> Value {
    let (mut found, mut tensors) = (run.report["dry_run"].clone(), run.report["tensors"].clone());
    for of_one_run in ["host_memory", "seconds"] {
        found[of_one_run] = Value::Null;
    }
    // What limits a step depends on the host.
    for of_one_run in ["host_seconds", "cards"] {
        found["step"][of_one_run] = Value::Null;
    }
    for process in tensors.as_array_mut().into_iter().flatten() {
        process["pid"] = Value::Null;
        for line in process["gpus"][0]["lines"].as_array_mut().into_iter().flatten() {
            // The server is the outermost frame.
            let frames = line["stack"].as_array_mut().into_iter().flatten();
            let own = frames.filter(|frame| !frame.to_string().contains("torch_server.py"));
            line["stack"] = own.map(|frame| frame.take()).collect();
        }
    }
    let kernel = |kernel: &Value| format!("{} {}", kernel["name"], kernel["launches"]);
    let mut kernels: Vec<_> = run.report["kernels"].as_array().into_iter().flatten().map(kernel).collect();
    kernels.sort();
    serde_json::json!({ "dry_run": found, "kernels": kernels, "tensors": tensors })
}

/// Figures that other tests measure in processes that the server forks are those that a program by itself has.
#[test]
fn a_forked_start_has_all_figures_of_a_plain_one() {
    let Some(python) = python() else { return };
    let plain = plain_dry_run(&python, &["--stacks=tensors"], &[&script("dry_run_gpt2.py")]).ok();
    let forked = dry_run(&python, &["--stacks=tensors"], &[&script("dry_run_gpt2.py")]).ok();
    assert_eq!(forked.ended.stdout, plain.ended.stdout);
    assert_ne!(figures(&plain)["tensors"][0]["gpus"][0]["lines"], Value::Null, "nothing was compared");
    assert_eq!(figures(&forked), figures(&plain));
}

#[test]
fn a_program_that_looks_for_pytorch_before_it_loads_it_is_watched() {
    let Some(python) = python() else { return };
    // As vLLM and transformers do.
    let code = "import importlib.util; importlib.util.find_spec('torch'); import torch; torch.zeros(8 << 20, device='cuda')";
    let run = plain_dry_run(&python, &[], &["-c", code]).ok();
    assert_eq!(run.peak(), (32.0, 32.0));
}

#[test]
fn settings_of_the_allocator_count() {
    let Some(python) = python() else { return };
    let with = |setting: &str| {
        let variables = [("PYTORCH_CUDA_ALLOC_CONF", setting)];
        dry_run_with(&python, &[], &variables, &[&script("dry_run_gpt2.py")]).ok().peak()
    };
    assert_eq!(with("max_split_size_mb:128").1, 7204.0);
    // Segments that grow: blocks are cut otherwise, so both figures are others.
    assert_eq!(with("expandable_segments:True"), (5777.5, 6206.0));
}

#[test]
fn a_card_that_is_too_small_gives_pytorchs_own_message() {
    let Some(python) = python() else { return };
    let arguments = [&script("dry_run_gpt2.py"), "--batch-size", "32"];
    let run = dry_run(&python, &["--emulate", "T4"], &arguments);
    assert_eq!(run.ended.status.code(), Some(1), "{}", run.ended.stderr);
    assert!(run.ended.stderr.contains("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"));
    assert!(run.report["dry_run"]["out_of_memory"].as_u64() >= Some(1));
    assert_eq!(run.report["dry_run"]["fits"], Value::Array(Vec::new()), "its need is not known");
    run.leaves_nothing();
}

#[test]
fn a_program_whose_first_request_is_refused_is_not_told_to_fit() {
    let Some(python) = python() else { return };
    let code = "import torch; torch.empty(40 << 30, dtype=torch.uint8, device='cuda')";
    let run = dry_run(&python, &["--emulate", "T4"], &["-c", code]);
    assert_eq!(run.ended.status.code(), Some(1), "{}", run.ended.stderr);
    let told = &run.report["dry_run"];
    assert_eq!((&told["out_of_memory"], &told["fits"]), (&1.into(), &Value::Array(Vec::new())), "{told:#}");
    // Where the program goes on without it, only its allocator tells.
    let code = format!("try:\n    {code}\nexcept torch.OutOfMemoryError:\n    pass\n");
    let run = dry_run(&python, &["--emulate", "T4"], &["-c", &code]).ok();
    let told = &run.report["dry_run"];
    assert_eq!((&told["out_of_memory"], &told["fits"]), (&1.into(), &Value::Array(Vec::new())), "{told:#}");
}

#[test]
fn a_run_stops_after_the_steps_that_were_asked_for() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &["--steps", "2"], &[&script("dry_run_gpt2.py"), "--steps", "1000"]).ok();
    assert_eq!(run.report["dry_run"]["steps"], 2);
    assert!(run.figure("load", "allocated") < run.figure("first_step", "allocated"));
    assert!(run.figure("first_step", "allocated") < run.figure("whole", "allocated"));
}

/// Takes 1000 MiB while it loads, 3000 in the first step, and 2000 in later ones. After the second it counts anew.
const PHASES: &str = "import torch
MIB = 1 << 20
def take(mib):
    torch.empty(mib * MIB, dtype=torch.uint8, device='cuda')
def told(module):
    return module.max_memory_allocated() // MIB // 1000
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
take(1000)
for step in range(4):
    model(torch.randn(4, 8, device='cuda')).sum().backward()
    take(2000 if step else 3000)
    optimizer.step()
    if step == 1:
        print(told(torch.cuda), told(torch.accelerator))
        torch.cuda.reset_peak_memory_stats()
        print(told(torch.cuda), told(torch.accelerator))
print(told(torch.cuda), told(torch.accelerator), torch.cuda.memory_stats()['num_alloc_retries'])
";

#[test]
fn each_phase_has_its_own_peak_and_the_program_does_not_notice() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &[], &["-c", PHASES]).ok();
    let peaks = ["load", "first_step", "steady", "whole"].map(|phase| run.figure(phase, "allocated"));
    for (peak, taken) in peaks.into_iter().zip([1000.0, 3000.0, 2000.0, 3000.0]) {
        assert!((taken..taken + 100.0).contains(&peak), "{peaks:?}");
    }
    assert_eq!(run.ended.stdout, "3 3\n0 0\n2 2 0\n");
}

/// A training without a module: there is nothing that tells where loading ends.
const BARE: &str = "import torch
weight = torch.ones(250 << 18, device='cuda', requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(3):
    (weight * 2).sum().backward()
    optimizer.step()
";

#[test]
fn the_first_step_of_a_training_without_modules_is_not_taken_for_loading() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &[], &["-c", BARE]).ok();
    assert_eq!(run.report["dry_run"]["gpus"][0]["phases"]["load"], Value::Null, "{}", run.report);
    assert!(run.figure("first_step", "allocated") >= 500.0 && run.figure("steady", "allocated") >= 500.0);
}

#[test]
fn the_largest_batch_is_found() {
    let Some(python) = python() else { return };
    let options = ["--emulate", "T4", "--find-batch", "--batch-size=6..14"];
    let mut command = Command::new(artifacts::file("radrm-run"));
    let place = tempfile::tempdir().unwrap();
    let profile = place.path().join("a.radrm");
    command.arg("--dry-run").args(options).arg("--stacks=tensors").arg("-o").arg(&profile);
    command.arg("--").arg(fast(&python)).arg(script("dry_run_gpt2.py")).env("TMPDIR", place.path());
    let ended = child::run(command, 2 * PATIENCE).ok();
    let said = &ended.stderr;
    let found = said.lines().find_map(|line| line.split("that fits is ").nth(1)?.parse::<u64>().ok());
    let found = found.unwrap_or_else(|| panic!("{said}"));
    assert!(said.contains(&format!("--batch-size {found}: fits")), "{said}");
    let beyond = format!("--batch-size {}: ", found + 1);
    let judged = said.lines().find_map(|line| line.split_once(&beyond)).unwrap_or_else(|| panic!("{said}"));
    assert!(judged.1.starts_with("does not fit") || judged.1.starts_with("tight"), "{said}");
    // The profile is that of the largest value that fits, with what its tensors held.
    assert!(said.contains(&format!("the profile of --batch-size {found} is ")), "{said}");
    let kept = radrm_profile::Profile::open(&profile).unwrap();
    assert!(kept.job.command.ends_with(&["--batch-size".to_owned(), found.to_string()]), "{:?}", kept.job);
    let held = |process: &radrm_profile::model::Process| Some(process.tensors.as_ref()?.gpus.first()?.held());
    assert!(kept.processes.iter().find_map(held) > Some(radrm_profile::Bytes::from_gib(1)));
    let left = std::fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.file_name());
    let ours = left.filter(|name| !name.to_string_lossy().starts_with("torchinductor"));
    assert_eq!(ours.collect::<Vec<_>>(), ["a.radrm"], "nothing else is left");
}

/// Models whose figures do not depend on how a library chooses, but only on PyTorch.
#[test]
fn models_of_transformers_and_torchvision_run_and_repeat_exactly() {
    let Some(python) = python() else { return };
    let models = script("dry_run_models.py");
    for (model, kind) in [
        (&["bert_base", "4"][..], "other"),
        (&["resnet50", "8", "channels_last", "amp"], "cudnn"),
        (&["llama_1b_lora", "1"], "other"),
    ] {
        let arguments: Vec<&str> = std::iter::once(models.as_str()).chain(model.iter().copied()).collect();
        let first = dry_run(&python, &["--emulate", "A100-40GB"], &arguments).ok();
        assert_eq!(first.report["dry_run"]["withheld"], Value::Null, "{model:?}");
        let calls = &first.report["dry_run"]["library_calls"];
        assert_eq!(first.report["dry_run"]["kind"], kind, "{model:?}: {calls}");
        let (allocated, reserved) = first.peak();
        assert!(reserved >= allocated && allocated > 200.0, "{model:?}: {allocated} {reserved}");
        let again = dry_run(&python, &["--emulate", "A100-40GB"], &arguments).ok();
        assert_eq!(again.peak(), (allocated, reserved), "{model:?}");
    }
}

#[test]
fn operations_that_reach_cudas_libraries_run() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &[], &[&script("dry_run_operations.py")]).ok();
    let out = &run.ended.stdout;
    assert!(out.lines().last().is_some_and(|line| line.ends_with("failed 0")), "{out}");
    assert!(out.contains("data-dependent 500 500 1500000 1500000"), "{out}");
    run.leaves_nothing();
}

#[test]
fn the_share_of_data_dependent_shapes_can_be_set() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &["--fill", "20"], &[&script("dry_run_operations.py"), "data-dependent"]).ok();
    assert!(run.ended.stdout.contains("data-dependent 200 200 600000 600000"), "{}", run.ended.stdout);
    assert_eq!(run.report["dry_run"]["fill"], 20);
    assert!(run.report["dry_run"]["filled"].as_array().is_some_and(|filled| !filled.is_empty()));
}

/// All functions are bound at load: one that PyTorch asks for and no stand-in has would keep it from loading.
#[test]
fn stand_ins_have_everything_that_pytorch_asks_for() {
    let Some(python) = python() else { return };
    let code = "import torch, ctypes, glob, os\n\
                for file in glob.glob(os.path.dirname(torch.__file__) + '/lib/*.so'):\n    \
                    ctypes.CDLL(file, os.RTLD_NOW)\n";
    dry_run_with(&python, &[], &[("LD_BIND_NOW", "1")], &["-c", code]).ok();
}

#[test]
fn figures_that_cannot_be_trusted_are_withheld() {
    let Some(python) = python() else { return };
    let code = "import torch, ctypes\n\
                x = torch.ones(1 << 20, device='cuda')\n\
                print(ctypes.CDLL('libcufft.so.12').cufftXtMalloc(0, 0, 0))\n";
    let run = dry_run(&python, &[], &["-c", code]).ok();
    assert_eq!(run.ended.stdout.trim(), "16", "not supported");
    let told = &run.report["dry_run"];
    assert!(told["withheld"].as_str().is_some_and(|why| why.contains("cufftXtMalloc")), "{told:#}");
    assert_eq!(told["gpus"], Value::Null);
}

#[test]
fn two_processes_train_one_model_on_two_gpus() {
    let Some(python) = python() else { return };
    for sharded in [&[][..], &["fsdp"]] {
        let ddp = script("dry_run_ddp.py");
        let arguments: Vec<&str> = std::iter::once(ddp.as_str()).chain(sharded.iter().copied()).collect();
        let run = dry_run(&python, &["--emulate", "2xA100-40GB"], &arguments).ok();
        let peaks: Vec<&str> =
            run.ended.stdout.lines().filter_map(|line| line.split("peak ").nth(1)).collect();
        assert_eq!(peaks.len(), 2, "{}", run.ended.stdout);
        assert_eq!(peaks[0], peaks[1], "both have the same share");
        assert_eq!(run.report["dry_run"]["gpus"].as_array().map(Vec::len), Some(2));
        run.leaves_nothing();
    }
}

/// PyTorch's symmetric memory by the driver's virtual memory. NVSHMEM's is not there, and says so.
#[test]
fn memory_that_all_gpus_see_is_counted_or_the_figure_withheld() {
    let Some(python) = python() else { return };
    let arguments = [&script("dry_run_ddp.py"), "symmetric"];
    let run = dry_run(&python, &["--emulate", "2xH100"], &arguments).ok();
    assert_eq!(run.ended.stdout.matches("shares").count(), 2, "{}", run.ended.stdout);
    let told = &run.report["dry_run"];
    assert_eq!(told["withheld"], Value::Null, "{told:#}");
    let taken = told["gpus"][1]["requested_peak"].as_u64().expect("peak");
    // The buffer with what signals need, and NCCL's own 64 MiB.
    assert!((68 << 20..96 << 20).contains(&taken), "{told:#}");
    run.leaves_nothing();

    let code = "import ctypes\n\
                library = ctypes.CDLL('libnvshmem_host.so.3')\n\
                import torch; torch.ones(1, device='cuda')\n\
                print(library.nvshmemx_get_uniqueid(0))\n";
    let run = dry_run(&python, &[], &["-c", code]).ok();
    let why = &run.report["dry_run"]["withheld"];
    assert!(why.as_str().is_some_and(|why| why.contains("nvshmemx_get_uniqueid")), "{why}");
}

#[test]
fn objects_that_processes_send_each_other_arrive() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &["--emulate", "3xA100-40GB"], &[&script("dry_run_objects.py")]).ok();
    // Whatever did not arrive has a line of its own.
    assert!(run.ended.stdout.starts_with("peak "), "{}", run.ended.stdout);
    assert_eq!(run.ended.stdout.lines().count(), 1, "{}", run.ended.stdout);
    assert_eq!(run.report["dry_run"]["withheld"], Value::Null);
    run.leaves_nothing();
}

#[test]
fn data_sets_that_are_not_there_are_made_up() {
    let Some(python) = python() else { return };
    let code = "import torch, torchvision\n\
                from torchvision import transforms\n\
                data = torchvision.datasets.CIFAR10('nowhere', transform=transforms.ToTensor())\n\
                loader = torch.utils.data.DataLoader(data, 64, shuffle=True, num_workers=2)\n\
                model = torchvision.models.resnet18(num_classes=10).cuda()\n\
                optimizer = torch.optim.SGD(model.parameters(), 0.1)\n\
                for images, labels in loader:\n    \
                    torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda()).backward()\n    \
                    optimizer.step()\n";
    let run = dry_run(&python, &["--fake-data", "--steps", "2"], &["-c", code]).ok();
    assert_eq!(run.report["dry_run"]["steps"], 2);
    run.leaves_nothing();
}

#[test]
fn compiled_models_run_with_triton() {
    let Some(python) = python() else { return };
    let code = "import torch\n\
                model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).cuda()\n\
                compiled = torch.compile(model)\n\
                optimizer = torch.optim.AdamW(model.parameters(), fused=True)\n\
                for _ in range(2):\n    \
                    compiled(torch.randn(32, 64, device='cuda')).sum().backward()\n    \
                    optimizer.step()\n";
    let run = plain_dry_run(&python, &["--emulate", "A100-40GB"], &["-c", code]).ok();
    let kernels = run.report["kernels"].as_array().expect("kernels");
    assert!(
        kernels.iter().any(|kernel| kernel["name"].as_str().is_some_and(|name| name.contains("triton_")))
    );
}

/// Takes 8 GiB after its first step, and ends in the way that its argument names.
const ENDS: &str = "import os, signal, sys, torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8, device='cuda')).sum().backward()
optimizer.step()
held = torch.empty(8 << 30, dtype=torch.uint8, device='cuda')
{'exit': lambda: os._exit(0), 'kill': lambda: os.kill(os.getpid(), signal.SIGKILL), 'fail': lambda: sys.exit(3)}[sys.argv[1]]()
";

#[test]
fn a_program_that_ends_without_handlers_gets_the_drivers_figures() {
    let Some(python) = python() else { return };
    for (how, fits) in [("exit", true), ("kill", false)] {
        let run = plain_dry_run(&python, &[], &["-c", ENDS, how]);
        let found = &run.report["dry_run"];
        assert!(found["gpus"][0]["held_peak"].as_u64() > Some(8 << 30), "{how}: {found:#}");
        assert_eq!(found["gpus"][0]["phases"], serde_json::json!({}), "{how}");
        let remark = found["remarks"][0].as_str().unwrap_or_default();
        assert!(remark.contains("figures are those of the driver"), "{how}: {found:#}");
        assert_eq!(!found["fits"].as_array().unwrap().is_empty(), fits, "{how}: {found:#}");
    }
}

#[test]
fn a_program_that_fails_fits_nowhere() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &[], &["-c", ENDS, "fail"]);
    assert_eq!(run.ended.status.code(), Some(3), "{}", run.ended.stderr);
    assert!(run.figure("whole", "allocated") >= 8192.0);
    assert_eq!(run.report["dry_run"]["fits"], Value::Array(Vec::new()));
}

#[test]
fn a_compiled_program_meets_no_hook_of_ours() {
    let Some(python) = python() else { return };
    for how in ["module", "in place", "function"] {
        let run = plain_dry_run(&python, &[], &[&script("dry_run_compiled.py"), how]).ok();
        assert!(run.peak().1 > 0.0, "{how}");
    }
}

/// [`dry_run`], or [`plain_dry_run`] where the compiler must be loaded behind the hook.
type Start = fn(&Path, &[&str], &[&str]) -> DryRun;

/// Each in a process of its own: the first graph of a process puts functions back that were replaced.
#[track_caller]
fn tracers_meet_pytorchs_own_functions(start: Start, cases: &[&str]) {
    let Some(python) = python() else { return };
    for case in cases {
        let run = start(&python, &[], &[&script("dry_run_tracers.py"), case]);
        assert!(run.ended.status.success(), "{case}: {}", run.ended.stderr);
        assert!(run.peak().0 > 0.0, "{case}: it was not a dry run");
    }
}

#[test]
fn replaced_functions_equal_their_originals_and_rest_below_modes() {
    tracers_meet_pytorchs_own_functions(dry_run, &["functions", "modes"]);
}

#[test]
fn torchscript_meets_pytorchs_own_functions() {
    tracers_meet_pytorchs_own_functions(dry_run, &["script", "trace", "trace_module"]);
}

#[test]
fn graphs_and_exports_meet_pytorchs_own_functions() {
    tracers_meet_pytorchs_own_functions(
        plain_dry_run,
        &["make_fx", "symbolic_trace", "export", "export_strict"],
    );
}

#[test]
fn the_compiler_meets_pytorchs_own_functions_also_ahead_of_time() {
    tracers_meet_pytorchs_own_functions(plain_dry_run, &["compiled", "ahead", "ahead_values"]);
}

#[test]
fn a_model_of_the_host_costs_no_memory_there_and_as_much_on_the_gpu() {
    let Some(python) = python() else { return };
    let run = |options: &[&str]| {
        let place = tempfile::tempdir().unwrap();
        let arguments = [&script("dry_run_host_model.py"), place.path().to_str().unwrap()];
        let run = dry_run(&python, options, &arguments.map(|word| word as &str)).ok();
        let made = run.ended.stdout.split_once("made ").unwrap().1.trim().parse::<f64>().unwrap();
        (run.peak(), run.figure("load", "allocated"), made)
    };
    let (without, with) = (run(&[]), run(&["--host-values"]));
    assert_eq!((without.0, without.1), (with.0, with.1));
    assert!(with.2 > 600.0 && without.2 < 200.0, "{without:?} {with:?}");
}

/// Takes 20 GiB, and needs what the T4's architecture does not have.
const NEEDS_AMPERE: &str = "import sys, torch
if len(sys.argv) > 1 and torch.cuda.get_device_capability() < (8, 0):
    sys.exit(3)
torch.empty(20 << 30, dtype=torch.uint8, device='cuda')
";

#[test]
fn each_card_is_judged_by_a_run_on_it() {
    let Some(python) = python() else { return };
    let place = tempfile::tempdir().unwrap();
    let (profile, dataset) = (place.path().join("a.radrm"), place.path().join("d.db"));
    let fits = |cards: &str, arguments: &[&str]| {
        let mut command = Command::new(artifacts::file("radrm-run"));
        command.args(["--dry-run", "--quiet", "--json=-", "--fits", cards, "-o"]).arg(&profile);
        command.arg("--stacks=tensors").arg("--dataset").arg(&dataset).arg("--").arg(&python);
        command.args(["-c", NEEDS_AMPERE]).args(arguments);
        child::run(command, 3 * PATIENCE)
    };
    let verdicts = |text: &str| {
        let report: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let of = |fit: &Value| format!("{} {}", fit["card"], fit["verdict"]).replace('"', "");
        report["fits"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let ended = fits("T4,A100-40GB", &[]).ok();
    assert_eq!(verdicts(&ended.stdout), ["T4 no", "A100-40GB yes"], "{}", ended.stdout);
    // Profile and row are those of the run that succeeded, with both verdicts.
    let kept = radrm_profile::Profile::open(&profile).unwrap();
    assert_eq!(kept.job.emulated.as_deref(), Some("A100-40GB"));
    let tensors = kept.processes[0].tensors.as_ref().expect("what the tensors held");
    assert_eq!(tensors.gpus[0].held(), radrm_profile::Bytes::from_gib(20), "{tensors:?}");
    let shown = |fits: &[radrm_profile::model::Fit]| {
        let mut all: Vec<_> = fits.iter().map(|fit| format!("{} {}", fit.card, fit.verdict.word())).collect();
        all.sort();
        all
    };
    assert_eq!(shown(&kept.fits), ["A100-40GB yes", "T4 no"]);
    let rows = Dataset::open(&dataset).unwrap().rows(&Filter::default()).unwrap();
    assert_eq!(rows.iter().map(|row| shown(&row.fits)).collect::<Vec<_>>(), [["A100-40GB yes", "T4 no"]]);
    assert!(rows[0].footprint_bytes > Some(20 << 30), "{rows:?}");
    let ended = fits("T4", &["strict"]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(verdicts(&ended.stdout), ["T4 unknown"]);
    assert!(ended.stdout.contains("exit code 3, and not for lack of GPU memory"), "{}", ended.stdout);
}
