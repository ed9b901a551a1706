//! `--stacks=tensors`: what held PyTorch's memory at its peak, to the byte.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use radrm_preload_tests::{artifacts, child, python::script};
use serde_json::Value;

use super::harness::{DryRun, PATIENCE, dry_run, dry_run_with, fast, plain_dry_run, python};

/// Tensors that a run recorded of its only process and GPU.
#[track_caller]
fn tensors(run: &DryRun) -> &Value {
    let of = &run.report["tensors"];
    assert_eq!(of.as_array().map(Vec::len), Some(1), "{of:#}");
    assert_eq!(of[0]["missing"], Value::Null, "{of:#}");
    &of[0]["gpus"][0]
}

fn sum(list: &Value) -> u64 {
    list.as_array().expect("a list").iter().filter_map(|of| of["bytes"].as_u64()).sum()
}

fn categories(gpu: &Value) -> BTreeMap<String, u64> {
    let of = |of: &Value| (of["category"].as_str().unwrap().to_owned(), of["bytes"].as_u64().unwrap());
    gpu["categories"].as_array().expect("categories").iter().map(of).collect()
}

/// Each way to add up gives the peak that the allocator itself counts.
#[track_caller]
fn adds_up(run: &DryRun) {
    let gpu = tensors(run);
    let peak = run.report["dry_run"]["gpus"][0]["phases"]["whole"]["allocated"].as_u64();
    assert_eq!(gpu["allocated_bytes"].as_u64(), peak, "{:#}", run.report["dry_run"]);
    for list in ["categories", "modules", "lines"] {
        assert_eq!(Some(sum(&gpu[list])), peak, "{list} of {gpu:#}");
    }
    assert_eq!(categories(gpu).get("unknown"), None);
}

#[test]
fn categories_modules_and_lines_of_gpt2_add_up_to_its_peak() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &["--stacks=tensors"], &[&script("dry_run_gpt2.py")]).ok();
    assert_eq!(run.peak(), (5803.5, 6200.0), "the recorder takes no memory of the GPU");
    adds_up(&run);
    let gpu = tensors(&run);
    let found: Vec<&str> =
        gpu["modules"].as_array().unwrap().iter().filter_map(|of| of["module"].as_str()).collect();
    for path in ["head", "token", "blocks.0.query_key_value", "blocks.11.mlp.0", "blocks.11.mlp.1"] {
        assert!(found.contains(&path), "{path} in {found:?}");
    }
    let of = categories(gpu);
    // Two states of four bytes for each of 163.1 million parameters; blocks round up.
    let parameters = 163_087_872 * 4;
    assert!((parameters..parameters + (4 << 20)).contains(&of["parameters"]), "{of:?}");
    assert!((2 * parameters..2 * parameters + (24 << 20)).contains(&of["optimizer_state"]), "{of:?}");
    run.leaves_nothing();
}

/// Two models of one class and one of another, each with a layer of the same path.
const TEACHER_AND_STUDENT: &str = "import torch
class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = torch.nn.Linear(size, size, bias=False)
    def forward(self, x):
        return self.layer(x)
class Critic(Net):
    pass
with torch.device('cuda'):
    teacher, student, critic = Net(2048), Net(1024), Critic(512)
opt = torch.optim.SGD(student.parameters())
for _ in range(2):
    with torch.no_grad():
        wanted = teacher(torch.randn(1, 2048, device='cuda'))
    loss = torch.nn.MSELoss()(student(torch.randn(1, 1024, device='cuda')), wanted[:, :1024])
    (loss + critic(torch.randn(1, 512, device='cuda')).mean()).backward()
    opt.step()
    opt.zero_grad()
";

#[test]
fn models_of_one_program_keep_their_own_trees() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &["--stacks=tensors"], &["-c", TEACHER_AND_STUDENT]).ok();
    let modules = tensors(&run)["modules"].as_array().expect("modules");
    let of = |model: &str| {
        let own = modules.iter().find(|of| of["model"] == model && of["module"] == "layer");
        let own = own.unwrap_or_else(|| panic!("{model} in {modules:#?}"));
        own["categories"]["parameters"].as_u64().unwrap() >> 20
    };
    assert_eq!((of("Net"), of("Net #2"), of("Critic")), (16, 4, 1));
}

/// 128 MiB in small blocks keep 11 GiB of the allocator's cache from the next large request.
const FRAGMENTS: &str = "import torch
MiB, keep = 2**20, []
for step in range(3):
    big = torch.empty(11 * 1024 * MiB, dtype=torch.uint8, device='cuda')
    del big
    keep.append([torch.empty(16 * MiB, dtype=torch.uint8, device='cuda') for _ in range(8)])
";

#[test]
fn oom_has_the_allocators_state_at_the_refusal() {
    let Some(python) = python() else { return };
    let place = tempfile::tempdir().unwrap();
    let (profile, file) = (place.path().join("a.radrm"), place.path().join("fragments.py"));
    std::fs::write(&file, FRAGMENTS).unwrap();
    let mut command = Command::new(artifacts::file("radrm-run"));
    command.args(["--dry-run", "--emulate=T4", "--stacks=tensors", "--no-dataset", "-o"]).arg(&profile);
    command.arg("--").arg(fast(&python)).arg(&file);
    assert_eq!(child::run(command, PATIENCE).status.code(), Some(1));
    let mut command = Command::new(artifacts::file("radrm"));
    command.args(["report", "--oom"]).arg(&profile);
    let text = child::run(command, PATIENCE).ok().stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "the last refused request, of 11264 MiB: tensors held 128 MiB, and the allocator 11136 MiB for none",
        "in pieces of up to 11136 MiB",
        "of the tensors 128 MiB in <listcomp> (fragments.py:6)",
        "held then, as the driver counts, of 11.0 GiB: 11.0 GiB at <module> (fragments.py:4)",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn settings_of_the_allocator_change_no_sum() {
    let Some(python) = python() else { return };
    for setting in
        ["expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:[64:8,256:4,>:2]"]
    {
        let variables = [("PYTORCH_CUDA_ALLOC_CONF", setting)];
        let run =
            dry_run_with(&python, &["--stacks=tensors"], &variables, &[&script("dry_run_gpt2.py")]).ok();
        adds_up(&run);
    }
}

/// The client prints what PyTorch's snapshot has at the moment of the peak.
#[track_caller]
fn agrees_with_the_snapshot(run: &DryRun) {
    adds_up(run);
    let own: Value = serde_json::from_str(run.ended.stdout.trim()).expect("the client's figures");
    let gpu = tensors(run);
    assert_eq!(gpu["allocated_bytes"], own["allocated"]);
    let mut found = categories(gpu);
    let mut rest = 0;
    for category in ["activations", "backward", "optimizer_step", "workspace", "other"] {
        rest += found.remove(category).unwrap_or(0);
    }
    found.insert("rest".into(), rest);
    let expected: BTreeMap<String, u64> = serde_json::from_value(own["categories"].clone()).unwrap();
    assert_eq!(found, expected);
    let modules = gpu["modules"].as_array().unwrap();
    let names: Vec<&str> = own["modules"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for module in modules.iter().filter_map(|of| of["module"].as_str()) {
        assert!(names.contains(&module), "{module} is none of named_modules: {names:?}");
    }
    let parameters: BTreeMap<String, u64> =
        serde_json::from_value(own["parameters_by_module"].clone()).unwrap();
    let of = |of: &Value| Some((of["module"].as_str()?.to_owned(), of["categories"]["parameters"].as_u64()?));
    assert_eq!(modules.iter().filter_map(of).collect::<BTreeMap<_, _>>(), parameters);
    // The snapshot has no frames of what the threads of the backward pass asked for.
    let expected: BTreeMap<u64, u64> = serde_json::from_value(own["lines"].clone()).unwrap();
    let line = |of: &Value| {
        let site = of["site"].as_str()?;
        let line = site.strip_suffix(')')?.rsplit_once("dry_run_tensors.py:")?.1.parse().ok()?;
        let backward: u64 =
            ["gradients", "backward"].iter().filter_map(|part| of["categories"][part].as_u64()).sum();
        let bytes = of["bytes"].as_u64()? - backward;
        (bytes > 0).then_some((line, bytes))
    };
    let found: BTreeMap<u64, u64> = gpu["lines"].as_array().unwrap().iter().filter_map(line).collect();
    assert_eq!(found, expected, "{gpu:#}");
}

#[test]
fn tensors_are_those_of_pytorchs_own_snapshot() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &["--stacks=tensors"], &[&script("dry_run_tensors.py")]).ok();
    agrees_with_the_snapshot(&run);
    let of = categories(tensors(&run));
    assert!(of["gradients"] > 0 && of["optimizer_state"] > of["parameters"], "{of:?}");
}

#[test]
fn gradients_that_are_gone_when_the_history_is_read_are_known() {
    let Some(python) = python() else { return };
    let run = dry_run(&python, &["--stacks=tensors"], &[&script("dry_run_tensors.py"), "late"]).ok();
    agrees_with_the_snapshot(&run);
    assert!(categories(tensors(&run))["gradients"] > 0);
}

#[test]
fn a_card_that_is_too_small_shows_what_fills_it() {
    let Some(python) = python() else { return };
    let arguments = [&script("dry_run_gpt2.py"), "--batch-size", "32"];
    let run = dry_run(&python, &["--emulate", "T4", "--stacks=tensors"], &arguments);
    assert_eq!(run.ended.status.code(), Some(1), "{}", run.ended.stderr);
    adds_up(&run);
    let gpu = tensors(&run);
    let of = categories(gpu);
    assert!(of["activations"] > of["parameters"], "{of:?}");
    assert!(
        gpu["lines"][0]["site"].as_str().is_some_and(|site| site.contains("dry_run_gpt2.py:")),
        "{gpu:#}"
    );
}

#[test]
fn compiled_code_runs_as_without_the_recorder() {
    let Some(python) = python() else { return };
    let client = script("dry_run_compiled.py");
    for how in ["module", "in place", "function"] {
        let plain = plain_dry_run(&python, &[], &[&client, how]).ok();
        // The compiler refuses what it cannot trace, such as hooks.
        let run = plain_dry_run(&python, &["--stacks=tensors"], &[&client, how]).ok();
        assert_eq!((&run.ended.stdout, run.peak()), (&plain.ended.stdout, plain.peak()), "{how}");
        adds_up(&run);
        let remarks = run.report["tensors"][0]["remarks"].to_string();
        assert!(
            remarks.contains("modules are not known from the first call of compiled code on"),
            "{remarks}"
        );
    }
}

/// Takes 64 MiB in a first part, then records the history itself.
const OWN_HISTORY: &str = "import torch
kept = torch.empty(64 << 20, dtype=torch.uint8, device='cuda')
torch.cuda.memory._record_memory_history(max_entries=100)
more = torch.empty(64 << 20, dtype=torch.uint8, device='cuda')
trace = torch.cuda.memory._snapshot()['device_traces'][0]
print([entry['action'] for entry in trace])
";

#[test]
fn a_program_that_records_the_history_itself_has_it_to_itself() {
    let Some(python) = python() else { return };
    let plain = dry_run(&python, &[], &["-c", OWN_HISTORY]).ok();
    let run = dry_run(&python, &["--stacks=tensors"], &["-c", OWN_HISTORY]).ok();
    assert_eq!(run.ended.stdout, plain.ended.stdout);
    let of = &run.report["tensors"][0];
    assert!(of["remarks"][0].as_str().is_some_and(|why| why.contains("history itself")), "{of:#}");
    assert_eq!(of["gpus"][0]["allocated_bytes"], 64 << 20, "what was the peak until then");
}

#[test]
fn an_allocator_without_a_history_is_named() {
    let Some(python) = python() else { return };
    let code = "import torch; x = torch.empty(1 << 20, device='cuda'); print(x.numel())";
    let variables = [("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")];
    let run = dry_run_with(&python, &["--stacks=tensors"], &variables, &["-c", code]).ok();
    assert_eq!(run.ended.stdout, "1048576\n");
    let why = run.report["tensors"][0]["missing"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("cudaMallocAsync"), "{:#}", run.report["tensors"]);
}

/// A program of `dry_run_lines.py` with the recorder.
fn lines_client(python: &Path, name: &str) -> DryRun {
    dry_run(python, &["--stacks=tensors"], &[&script("dry_run_lines.py"), name]).ok()
}

/// Bytes of a category by the function of the program that asked for them; other sites stand as a whole.
fn functions(gpu: &Value, category: &str) -> BTreeMap<String, u64> {
    functions_of(gpu, "dry_run_lines.py", category)
}

fn functions_of(gpu: &Value, file: &str, category: &str) -> BTreeMap<String, u64> {
    let (mut found, file) = (BTreeMap::new(), format!(" ({file}:"));
    for line in gpu["lines"].as_array().expect("lines") {
        let site = line["site"].as_str().expect("a site");
        let name = site.split_once(&file).map_or(site, |(function, _)| function);
        let bytes = line["categories"][category].as_u64().unwrap_or(0);
        if bytes > 0 {
            *found.entry(name.to_owned()).or_default() += bytes;
        }
    }
    found
}

fn names(functions: &BTreeMap<String, u64>) -> Vec<&str> {
    functions.keys().map(String::as_str).collect()
}

const MIB: u64 = 1 << 20;

#[test]
fn checkpoints_in_a_backward_pass_are_activations_at_the_line_that_is_run_again() {
    let Some(python) = python() else { return };
    for how in ["checkpointed", "checkpointed by reentry"] {
        let run = lines_client(&python, how);
        adds_up(&run);
        let gpu = tensors(&run);
        let backward = functions(gpu, "backward");
        assert_eq!(names(&backward), ["first_backward"], "{how}: {gpu:#}");
        assert!(backward["first_backward"] >= 128 * MIB, "{how}: {backward:?}");
        let activations = functions(gpu, "activations");
        assert!(activations["forward"] >= 256 * MIB, "{how}: {activations:?}");
        assert!(activations.keys().all(|site| !site.contains("torch/")), "{how}: {activations:?}");
        let other = functions(gpu, "other");
        assert!(other.values().sum::<u64>() < 33 * MIB, "only the input: {how}: {other:?}");
    }
}

#[test]
fn a_pass_after_a_checkpoint_of_pytorchs_modules_is_no_part_of_a_module() {
    let Some(python) = python() else { return };
    let run = lines_client(&python, "whole");
    adds_up(&run);
    let gpu = tensors(&run);
    let backward = functions(gpu, "backward");
    assert_eq!(names(&backward), ["first_backward"], "{gpu:#}");
    assert!(backward["first_backward"] >= 64 * MIB, "{gpu:#}");
    let of_modules = |of: &&Value| !of["module"].is_null();
    for module in gpu["modules"].as_array().unwrap().iter().filter(of_modules) {
        assert_eq!(module["categories"]["backward"], Value::Null, "{module:#}");
    }
    let again = functions(gpu, "activations");
    assert!(again["first_backward"] >= 64 * MIB, "the modules have no line of the program: {again:?}");
}

#[test]
fn memory_of_a_backward_pass_has_the_line_of_its_own_pass() {
    let Some(python) = python() else { return };
    let run = lines_client(&python, "accumulated");
    adds_up(&run);
    let backward = functions(tensors(&run), "backward");
    assert_eq!(names(&backward), ["first_backward"], "{:#}", tensors(&run));
}

#[test]
fn parameters_of_a_model_that_is_gone_at_the_end_are_parameters() {
    let Some(python) = python() else { return };
    let run = lines_client(&python, "gone");
    adds_up(&run);
    let gpu = tensors(&run);
    assert_eq!(
        functions(gpu, "parameters"),
        BTreeMap::from([("gone".to_owned(), 64 * MIB + 32768)]),
        "{gpu:#}"
    );
    assert_eq!(categories(gpu)["buffers"], 2 * 16384 + 512, "{gpu:#}");
    let of = |of: &Value| Some((of["module"].as_str()?.to_owned(), of["categories"]["parameters"].as_u64()?));
    let modules: BTreeMap<String, u64> = gpu["modules"].as_array().unwrap().iter().filter_map(of).collect();
    assert_eq!(modules, BTreeMap::from([("0".to_owned(), 64 * MIB), ("1".to_owned(), 32768)]), "{gpu:#}");
}

#[test]
fn a_tensor_of_the_size_of_a_workspace_is_none() {
    let Some(python) = python() else { return };
    for cache in ["0", "1"] {
        let variables = [("TORCH_CUBLAS_WORKSPACE_CACHE", cache)];
        let arguments = [&script("dry_run_lines.py"), "sized"];
        let run = dry_run_with(&python, &["--stacks=tensors"], &variables, &arguments).ok();
        adds_up(&run);
        let gpu = tensors(&run);
        let size: u64 = run.ended.stdout.trim().parse().expect("the size of a workspace");
        assert_eq!(functions(gpu, "other")["tensor"], size, "{gpu:#}");
        // PyTorch keeps one of them where it is set to.
        let expected =
            if cache == "1" { BTreeMap::from([("product".to_owned(), size)]) } else { BTreeMap::new() };
        assert_eq!(functions(gpu, "workspace"), expected, "{gpu:#}");
    }
}

/// A training of `dry_run_steps.py` whose steps repeat, with what comes after that and so many steps more.
fn steps_client(python: &Path, name: &str, more: &str) -> DryRun {
    dry_run(python, &["--stacks=tensors"], &[&script("dry_run_steps.py"), name, more]).ok()
}

/// Bytes by whose stack they have. Each way to add up gives the allocator's own peak, with what is not known.
#[track_caller]
fn stacks(run: &DryRun) -> BTreeMap<String, u64> {
    let gpu = tensors(run);
    let stacks: BTreeMap<String, u64> = serde_json::from_value(gpu["stacks"].clone()).expect("stacks");
    let peak = run.report["dry_run"]["gpus"][0]["phases"]["whole"]["allocated"].as_u64();
    assert_eq!(gpu["allocated_bytes"].as_u64(), peak, "{gpu:#}");
    for list in ["categories", "modules", "lines"] {
        assert_eq!(Some(sum(&gpu[list])), peak, "{list} of {gpu:#}");
    }
    assert_eq!(Some(stacks.values().sum()), peak, "{gpu:#}");
    stacks
}

fn remarks(run: &DryRun) -> String {
    run.report["tensors"][0]["remarks"].to_string()
}

#[test]
fn recording_rests_while_steps_repeat() {
    let Some(python) = python() else { return };
    let run = steps_client(&python, "repeated", "0");
    adds_up(&run);
    assert_eq!(stacks(&run).keys().collect::<Vec<_>>(), ["own"]);
    assert!(remarks(&run).contains("rested in 8 of 12 steps"), "{}", remarks(&run));
}

#[test]
fn a_step_that_differs_is_recorded_from_the_call_of_its_model_on() {
    let Some(python) = python() else { return };
    for (name, batch) in [("longer", 32 * MIB), ("evaluated", 128 * MIB)] {
        let run = steps_client(&python, name, "0");
        let gpu = tensors(&run);
        assert_eq!(stacks(&run)["not_recorded"], batch, "only the batch, made before: {gpu:#}");
        assert_eq!(categories(gpu)["unknown"], batch, "{gpu:#}");
        let activations = functions_of(gpu, "dry_run_steps.py", "activations");
        assert!(activations["forward"] >= batch && activations["squared"] >= batch, "{gpu:#}");
        let stacks_of = |of: &Value| of["stack"].to_string().contains(name);
        assert!(gpu["lines"].as_array().unwrap().iter().any(stacks_of), "{name}: {gpu:#}");
    }
}

#[test]
fn recording_rests_again_after_a_step_that_differs() {
    let Some(python) = python() else { return };
    let run = steps_client(&python, "longer", "20");
    stacks(&run);
    // The step that differs is noticed in it; two are recorded after it.
    assert!(remarks(&run).contains("rested in 26 of 33 steps"), "{}", remarks(&run));
}

#[test]
fn a_step_of_which_only_a_part_was_recorded_is_not_known() {
    let Some(python) = python() else { return };
    let run = steps_client(&python, "longer_twice", "0");
    // Eight of the first twelve, and two of the four between those that differ.
    assert!(remarks(&run).contains("rested in 10 of 18 steps"), "{}", remarks(&run));
}

#[test]
fn memory_of_requests_that_were_not_recorded_is_counted_as_such() {
    let Some(python) = python() else { return };
    let run = steps_client(&python, "longer_inside", "0");
    let of = stacks(&run);
    assert!(of["not_recorded"] >= 128 * MIB && of["own"] >= 128 * MIB, "{:#}", tensors(&run));
    let run = steps_client(&python, "in_no_model", "0");
    assert_eq!(stacks(&run)["not_recorded"], 1 << 30, "{:#}", tensors(&run));
    let unknown = tensors(&run)["lines"].as_array().unwrap().iter().find(|of| of["bytes"] == 1 << 30);
    assert_eq!(unknown.map(|of| &of["site"]), Some(&"[stack not recorded]".into()));
}

#[test]
fn blocks_that_may_be_of_an_earlier_step_are_told_apart() {
    let Some(python) = python() else { return };
    let run = steps_client(&python, "kept", "0");
    // What the threads of a backward pass ask for has no frames by which it could be known again.
    assert_eq!(stacks(&run)["equal_step"], 32 * MIB, "the gradients: {:#}", tensors(&run));
    assert_eq!(categories(tensors(&run))["gradients"], 32 * MIB);
}

#[test]
fn a_peak_that_was_not_recorded_is_named_beside_the_highest_that_was() {
    let Some(python) = python() else { return };
    let run = steps_client(&python, "freed", "0");
    let gpu = tensors(&run);
    let peak = run.report["dry_run"]["gpus"][0]["phases"]["whole"]["allocated"].as_u64();
    assert_eq!((gpu["moment"].as_str(), gpu["peak_bytes"].as_u64()), (Some("largest_read"), peak), "{gpu:#}");
    let recorded = gpu["allocated_bytes"].as_u64().unwrap();
    assert!(recorded < 1 << 30 && sum(&gpu["lines"]) == recorded, "{gpu:#}");
    assert!(remarks(&run).contains("the peak was in a step that was not recorded"), "{}", remarks(&run));
}

/// Inference, with more requests than the history holds.
const INFERENCE: &str = "import torch
model = torch.nn.Linear(1024, 1024).cuda().eval()
with torch.no_grad():
    for number in range(50000):
        model(torch.empty(4096 if number == 0 else 8, 1024, device='cuda'))
";

/// A list keeps the output of each of thirty steps: 64 MiB.
const LEAKS: &str = "import torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
kept = []
for _ in range(30):
    out = model(torch.empty(16384, 1024, device='cuda'))
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(out)
";

/// Small blocks lie in what was one large block; then a request is refused.
const FRAGMENTED: &str = "import torch
keep = []
try:
    for step in range(2):
        big = torch.empty(11 << 30, dtype=torch.uint8, device='cuda')
        del big
        keep.append([torch.empty(16 << 20, dtype=torch.uint8, device='cuda') for _ in range(8)])
except torch.OutOfMemoryError:
    pass
";

fn recorded(python: &Path, program: &str) -> (tempfile::TempDir, DryRun) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.py");
    std::fs::write(&file, program).unwrap();
    let options = ["--stacks=tensors", "--emulate", "T4"];
    let run = plain_dry_run(python, &options, &[&file.display().to_string()]).ok();
    (folder, run)
}

#[test]
fn programs_without_an_optimizer_are_recorded_to_their_end() {
    let Some(python) = python() else { return };
    let (_folder, run) = recorded(&python, INFERENCE);
    assert_eq!(stacks(&run).get("not_recorded"), None, "{:#}", tensors(&run));
}

#[test]
fn a_leak_is_of_the_line_that_asked_for_the_memory() {
    let Some(python) = python() else { return };
    let (_folder, run) = recorded(&python, LEAKS);
    adds_up(&run);
    let lines = tensors(&run)["lines"].as_array().unwrap();
    let line = lines.iter().find(|of| of["site"].as_str().is_some_and(|site| site.contains("program.py:6")));
    assert!(line.is_some_and(|of| of["bytes"].as_u64() >= Some(30 * 64 * MIB)), "{lines:#?}");
    assert!(categories(tensors(&run)).get("gradients").is_none_or(|bytes| *bytes < 64 * MIB));
}

#[test]
fn fragmentation_is_named_with_the_blocks_between() {
    let Some(python) = python() else { return };
    let (_folder, run) = recorded(&python, FRAGMENTED);
    let expected = "tensors held 128 MiB, and the allocator 11136 MiB for none";
    let found = remarks(&run);
    assert!(found.contains(expected) && found.contains("(program.py:7)"), "{found}");
}
