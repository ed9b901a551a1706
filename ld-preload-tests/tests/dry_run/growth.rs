//! Reports of what a short run does not see: memory that grows with each step, and optimizers that have not made theirs.

use std::process::Command;

use radrm_preload_tests::{artifacts, child};

use super::harness::{PATIENCE, plain_dry_run, python};

/// A list keeps the output of each step: 64 MiB.
const LEAKS: &str = "import torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
kept = []
def train():
    for _ in range(8):
        out = model(torch.empty(16384, 1024, device='cuda'))
        out.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(out)
train()
";

fn remarks(python: &std::path::Path, options: &[&str], program: &str) -> (String, super::harness::DryRun) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("train.py");
    std::fs::write(&file, program).unwrap();
    let run = plain_dry_run(python, options, &[&file.display().to_string()]).ok();
    (run.report["dry_run"]["remarks"].to_string(), run)
}

#[test]
fn memory_that_grows_with_each_step_is_named_with_its_line() {
    let Some(python) = python() else { return };
    let (found, run) = remarks(&python, &[], LEAKS);
    let expected =
        "no bound: memory grows by 64.0 MiB with each step: the program keeps what train (train.py:7) makes";
    assert!(found.contains(expected), "{found}");
    assert!(run.report["dry_run"]["expected"]["upper"].is_null(), "{found}");
    let (found, _) =
        remarks(&python, &[], &LEAKS.replace("kept.append(out)", "kept.append(out.sum().item())"));
    assert!(!found.contains("no bound"), "{found}");
}

/// The generator makes one step for five of the critic, and has most of the parameters.
const RARE: &str = "import torch
large, small = torch.nn.Linear(8192, 8192).cuda(), torch.nn.Linear(8192, 1).cuda()
rare, usual = torch.optim.Adam(large.parameters()), torch.optim.Adam(small.parameters())
for _ in range(4):
    for _ in range(5):
        small(torch.empty(8, 8192, device='cuda')).sum().backward()
        usual.step()
        usual.zero_grad()
    small(large(torch.empty(8, 8192, device='cuda'))).sum().backward()
    rare.step()
    rare.zero_grad()
print(torch.cuda.max_memory_allocated() >> 20)
";

/// An optimizer for each parameter, whose step is part of the backward pass.
const IN_BACKWARD: &str = "import torch
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, bias=False) for _ in range(4)]).cuda()
own = {p: torch.optim.AdamW([p], foreach=False) for p in model.parameters()}
def hook(p):
    own[p].step()
    own[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(hook)
for _ in range(3):
    model(torch.empty(8, 4096, device='cuda')).sum().backward()
";

/// Adam takes parameters, gradients, two states, and one more for the update: five times 256 MiB, with one layer at a time
/// where the step is part of the backward pass: three times 256 MiB and three times 64.
#[test]
fn a_run_of_few_steps_waits_for_each_optimizer() {
    let Some(python) = python() else { return };
    let (_, run) = remarks(&python, &["--steps", "3"], RARE);
    assert!(run.peak().0 >= 1280.0, "{:?}", run.peak());
    let (_, run) = remarks(&python, &["--steps", "1"], IN_BACKWARD);
    assert!(run.peak().0 >= 3.0 * 256.0 + 128.0, "{:?}", run.peak());
}

/// A training whose step ends with `BACKWARD` and whose list gets something by `KEEP`.
const TRAINS: &str = "import torch
import torch.nn.functional as F
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)
    def forward(self, x):
        return self.down(F.gelu(self.up(x)))
def train():
    model = Net().cuda()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    kept, total = [], 0
    for _ in range(16):
        x = torch.empty(4096, 1024, device='cuda')
        out = model(x)
        loss = F.l1_loss(out, x)
        BACKWARD
        opt.step()
        opt.zero_grad()
        KEEP
train()
";

/// The head alone is trained: the state of the cell goes on from step to step, with its graph.
const RECURRENT: &str = "import torch
def train():
    cell, head = torch.nn.GRUCell(1024, 1024).cuda(), torch.nn.Linear(1024, 1).cuda()
    opt = torch.optim.SGD(head.parameters(), 0.1)
    h = torch.zeros(4096, 1024, device='cuda')
    for _ in range(8):
        x = torch.empty(4096, 1024, device='cuda')
        h = cell(x, hSTATE)
        head(h).mean().backward(retain_graph=True)
        opt.step()
        opt.zero_grad()
train()
";

#[test]
fn a_leak_is_of_the_line_whose_value_is_kept() {
    let Some(python) = python() else { return };
    let training = |backward: &str, keep: &str| TRAINS.replace("BACKWARD", backward).replace("KEEP", keep);
    let state = |state: &str| RECURRENT.replace("STATE", state);
    let retain = "loss.backward(retain_graph=True)";
    let leaks = [
        (training("loss.backward()", "kept.append(out)"), "forward (train.py:8)"),
        (training(retain, "kept.append(loss)"), "train (train.py:16)"),
        (training(retain, "total = total + loss"), "train (train.py:20)"),
        (training("loss.backward()", "kept.append(out.detach().clone())"), "train (train.py:20)"),
        (state(""), "train (train.py:8)"),
    ];
    for (program, line) in leaks {
        let (found, _) = remarks(&python, &[], &program);
        assert!(found.contains(&format!("the program keeps what {line} makes")), "{line}: {found}");
        let (found, run) = remarks(&python, &["--stacks=tensors"], &program);
        assert!(found.contains(&format!("the program keeps what {line} makes")), "recorded: {line}: {found}");
        let lines = run.report["tensors"][0]["gpus"][0]["lines"].as_array().expect("lines");
        assert_eq!(lines[0]["site"], line, "{lines:#?}");
    }
}

/// The state of the step before is in a list, so that it is no input of the function: only the `ctx` keeps it, with its graph.
const BY_CTX: &str = "import torch
class Remember(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, states):
        ctx.save_for_backward(states[0])
        return x + states[0]
    @staticmethod
    def backward(ctx, gradient):
        return gradient, None
def train():
    up, head = torch.nn.Linear(1024, 1024).cuda(), torch.nn.Linear(1024, 1).cuda()
    opt = torch.optim.SGD(head.parameters(), 0.1)
    h = torch.zeros(4096, 1024, device='cuda')
    for _ in range(8):
        h = Remember.apply(up(torch.empty(4096, 1024, device='cuda')), [hSTATE])
        head(h).mean().backward(retain_graph=True)
        opt.step()
        opt.zero_grad()
train()
";

#[test]
fn a_leak_that_only_the_ctx_of_a_function_keeps_has_its_line() {
    let Some(python) = python() else { return };
    let (found, _) = remarks(&python, &[], &BY_CTX.replace("STATE", ""));
    assert!(found.contains("the program keeps what forward (train.py:6) makes"), "{found}");
    let (found, _) = remarks(&python, &[], &BY_CTX.replace("STATE", ".detach()"));
    assert!(!found.contains("no bound"), "{found}");
}

/// Calls a model without a step of an optimizer; `MODE` is a context, `KEEP` follows each call.
const SERVES: &str = "import contextlib, torch
up, down = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)
model = torch.nn.Sequential(up, torch.nn.ReLU(), down).cuda().eval()
def serve():
    kept = []
    with MODE:
        for _ in range(24):
            out = model(torch.empty(4096, 1024, device='cuda'))
            KEEP
serve()
";

/// As [`SERVES`], after three steps of a training.
const EVALUATES: &str = "import torch
model = torch.nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.empty(4096, 1024, device='cuda')).sum().backward()
    opt.step()
    opt.zero_grad()
def evaluate():
    kept = []
    model.eval()
    with torch.no_grad():
        for _ in range(24):
            out = model(torch.empty(4096, 1024, device='cuda'))
            KEEP
evaluate()
";

/// An output has 16 MiB; a graph of it saves the input, 16 MiB, and what ReLU returns, 64 MiB.
#[test]
fn memory_that_grows_with_each_call_is_named_where_no_optimizer_steps() {
    let Some(python) = python() else { return };
    let serving = |mode: &str, keep: &str| SERVES.replace("MODE", mode).replace("KEEP", keep);
    let (no_grad, grad) = ("torch.no_grad()", "contextlib.nullcontext()");
    let evaluating = |keep: &str| EVALUATES.replace("KEEP", keep);
    let leaks = [
        (serving(no_grad, "kept.append(out)"), 16, "serve (train.py:8)", "serve (train.py:8)"),
        (
            serving("torch.inference_mode()", "kept.append(out)"),
            16,
            "serve (train.py:8)",
            "serve (train.py:8)",
        ),
        (serving(grad, "kept.append(out.sum())"), 80, "serve (train.py:8)", "serve (train.py:9)"),
        (evaluating("kept.append(out)"), 16, "evaluate (train.py:13)", "evaluate (train.py:13)"),
    ];
    for (program, mib, place, line) in leaks {
        let expected = format!(
            "no bound: memory grows by {mib}.0 MiB with each call of the model in {place}: the program keeps what \
             {line} makes"
        );
        for options in [&[][..], &["--stacks=tensors"]] {
            let (found, run) = remarks(&python, options, &program);
            assert!(found.contains(&expected), "{options:?} {expected}: {found}");
            assert!(run.report["dry_run"]["expected"]["upper"].is_null(), "{found}");
        }
    }
    let fine = [
        serving(no_grad, "kept.append(out.cpu())"),
        serving(no_grad, "kept = [out]"),
        serving(no_grad, "kept = torch.cat([kept, out[:1024]]) if len(kept) else out[:1024].clone()"),
        serving(grad, "kept.append(out.sum().item())"),
        evaluating("kept.append(out.mean().item())"),
    ];
    for program in fine {
        let (found, _) = remarks(&python, &[], &program);
        assert!(!found.contains("no bound"), "{program}: {found}");
    }
}

#[test]
fn what_keeps_nothing_of_a_step_is_no_leak() {
    let Some(python) = python() else { return };
    let training = |keep: &str| TRAINS.replace("BACKWARD", "loss.backward()").replace("KEEP", keep);
    let programs = [
        training("kept.append(out.detach().cpu())"),
        training("kept.append(loss.item())"),
        training("total = total + loss.detach()"),
        training("kept = [out.detach().clone()]"),
        RECURRENT.replace("STATE", ".detach()"),
    ];
    for program in programs {
        let (found, run) = remarks(&python, &[], &program);
        assert!(!found.contains("no bound"), "{found}");
        assert!(run.report["dry_run"]["expected"]["upper"].is_u64(), "{found}");
    }
}

#[test]
fn a_comparison_with_the_mended_program_names_the_line_of_the_leak() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, backward: &str, keep: &str| {
        let (file, profile) = (folder.path().join("train.py"), folder.path().join(name));
        std::fs::write(&file, TRAINS.replace("BACKWARD", backward).replace("KEEP", keep)).unwrap();
        let mut command = Command::new(artifacts::file("radrm-run"));
        command.args(["--dry-run", "--quiet", "--stacks=tensors", "--no-dataset", "-o"]).arg(&profile);
        command.arg("--").arg(&python).arg(&file);
        child::run(command, PATIENCE).ok();
        profile
    };
    let leaky = of("a.radrm", "loss.backward(retain_graph=True)", "kept.append(loss)");
    let mended = of("b.radrm", "loss.backward()", "kept.append(loss.item())");
    let mut command = Command::new(artifacts::file("radrm"));
    command.arg("compare").arg(leaky).arg(mended);
    let text = child::run(command, PATIENCE).ok().stdout;
    assert!(text.contains("the program keeps what train (train.py:16) makes -> there is one"), "{text}");
    let mut lines = text.lines().skip_while(|line| !line.starts_with("lines that hold more or less"));
    let first = lines.nth(2).unwrap_or_default();
    assert!(first.ends_with("train (train.py:16)"), "{text}");
}

/// Keeps 256 KiB of each step beside so many MiB.
const LITTLE: &str = "import sys, torch
rest = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device='cuda')
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
kept = []
for _ in range(40):
    model(torch.empty(8, 8, device='cuda')).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(torch.empty(256 << 10, dtype=torch.uint8, device='cuda'))
";

#[test]
fn growth_of_less_than_a_two_hundredth_leaves_the_bound() {
    let Some(python) = python() else { return };
    let bound = |mib: &str| {
        let run = plain_dry_run(&python, &[], &["-c", LITTLE, mib]).ok();
        (run.report["dry_run"]["remarks"].to_string(), run.report["dry_run"]["expected"]["upper"].is_u64())
    };
    let (remarks, has_bound) = bound("1024");
    assert!(has_bound && !remarks.contains("no bound"), "{remarks}");
    let (remarks, has_bound) = bound("64");
    assert!(!has_bound && remarks.contains("no bound: reserved memory grew"), "{remarks}");
}
