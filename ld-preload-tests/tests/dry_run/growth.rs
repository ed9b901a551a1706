//! Reports of what a short run does not see: memory that grows with each step, and optimizers that have not made theirs.

use super::harness::{plain_dry_run, python};

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
    let expected = "no bound: memory that the program keeps grows by 64.0 MiB with each step, allocated in train (train.py:7)";
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
