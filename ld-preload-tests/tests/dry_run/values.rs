//! Programs whose course depends on values that a dry run does not compute.

use super::harness::{plain_dry_run, python};

const RESUMED: &str = "import io, sys, torch
m = torch.nn.Linear(64, 64).cuda()
o = torch.optim.AdamW(m.parameters(), **eval(sys.argv[1]))
for _ in range(3):
    m(torch.randn(8, 64, device='cuda')).sum().backward()
    o.step()
    o.zero_grad()
f = io.BytesIO()
torch.save(o.state_dict(), f)
f.seek(0)
o.load_state_dict(torch.load(f, map_location='cuda'))
assert [state['step'].item() for state in o.state.values()] == [3.0, 3.0]
m(torch.randn(8, 64, device='cuda')).sum().backward()
o.step()
print('goes on')
";

#[test]
fn an_optimizer_that_was_loaded_onto_the_gpu_goes_on() {
    let Some(python) = python() else { return };
    for options in ["{}", "{'foreach': False}", "{'foreach': True}"] {
        let run = plain_dry_run(&python, &[], &["-c", RESUMED, options]).ok();
        assert_eq!(run.ended.stdout, "goes on\n", "{options}");
    }
}

const GENERATES: &str = "import torch
from transformers import LlamaConfig, LlamaForCausalLM
m = LlamaForCausalLM(LlamaConfig(vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
    num_attention_heads=2, eos_token_id=2, pad_token_id=2)).cuda().eval()
ids = torch.randint(3, 1000, (2, 8), device='cuda')
mask = torch.ones_like(ids)
for _ in range(2):
    print(*m.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False).shape)
print(*m.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=True).shape)
";

#[test]
fn generation_ends_at_its_maximum_length() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &[], &["-c", GENERATES]).ok();
    assert_eq!(run.ended.stdout, "2 16\n2 16\n2 12\n");
}

const COPIED: &str = "import resource, torch
state = [torch.empty(2**28, device='cuda') for _ in range(4)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
host = [tensor.cpu() for tensor in state]
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, bool((host[3] == 0).all()))
";

const ENDLESS: &str = "import time, torch
block = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')
print('there', flush=True)
while True:
    time.sleep(0.01)
";

#[test]
fn a_program_whose_time_is_up_ends_with_figures() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &["--timeout=60"], &["-c", ENDLESS]);
    assert_eq!(run.ended.status.code(), Some(124), "{}", run.ended.stderr);
    assert_eq!(run.peak(), (1024.0, 1024.0));
    assert!(run.report["dry_run"]["remarks"].to_string().contains("stopped when its time was up"));
    let ended = plain_dry_run(std::path::Path::new("/bin/sleep"), &["--timeout=1"], &["600"]);
    assert!(!ended.ended.status.success() && ended.report["dry_run"].is_object(), "{}", ended.ended.stderr);
    assert!(
        ended.report["dry_run"]["remarks"].to_string().contains("stopped by SIGTERM when its time was up")
    );
}

/// Four GiB; the comparison takes a quarter of one for its result.
#[test]
fn tensors_that_are_copied_to_the_host_take_none_of_its_memory() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &[], &["-c", COPIED]).ok();
    let (mib, is_zero) = run.ended.stdout.trim().split_once(' ').expect("two words");
    assert!(mib.parse::<u64>().unwrap() < 100 && is_zero == "True", "{}", run.ended.stdout);
}

/// Each line prints what a program would decide by it; the last ones are of facts that have ended.
const ASKED: &str = "import torch
x = torch.randn(4, device='cuda')
labels = torch.randint(0, 10, (64,), device='cuda')
loss = (x * 2).mean()
assert torch.isfinite(loss), 'loss is not finite'
assert not torch.isnan(loss) and (torch.isfinite(x) & ~torch.isinf(x)).all()
assert (labels >= 0).all() and labels.max() < 10 and not (labels == 3).any()
finite = torch.isfinite(x)
print(finite.tolist(), finite[2].item(), finite.cpu().sum().item(), finite.to('cpu', torch.float32).max().item())
print(torch.equal(x, x.clone()), bool((x != x).any()), int(torch.isfinite(loss)))
finite.zero_()
print(finite.tolist())
del finite
print(torch.zeros(4, dtype=torch.bool, device='cuda').tolist())
";

#[test]
fn questions_about_values_have_the_answer_of_finite_numbers() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &[], &["-c", ASKED]).ok();
    let expected = "[True, True, True, True] True 4 1.0\nTrue False 1\n[False, False, False, False]\n\
                    [False, False, False, False]\n";
    assert_eq!(run.ended.stdout, expected);
}

/// Counters, positions, masks and parts of tensors; at the end what unknown values were written to or used for.
const FOLLOWED: &str = "import torch
gpu = {'device': 'cuda'}
step = torch.zeros((), **gpu)
for _ in range(3):
    step += 1
steps = [torch.zeros((), **gpu) for _ in range(3)]
torch._foreach_add_(steps, 1)
torch._foreach_add_(steps, torch.tensor(1.0, **gpu), alpha=1.0)
print(step.item(), [int(one) for one in steps], step.cpu().item(), float(step * 2 - 1))
position = torch.arange(5, **gpu)
position = position[-1:] + 1
lengths = torch.tensor([3, 1, 2], **gpu)
print(position.tolist(), lengths.cumsum(0).tolist(), (lengths > 1).tolist(), lengths.max().item(), torch.where(lengths > 1, lengths, 0).tolist())
unfinished = torch.ones(2, dtype=torch.long, **gpu)
unfinished = unfinished & ~torch.tensor([True, False], **gpu)
print(unfinished.tolist(), bool(unfinished.max() == 0), bool((unfinished == 0).all()), bool((unfinished == 0).any()))
buffer = torch.zeros(4, **gpu)
buffer[2] = 7
buffer[:1].fill_(3)
buffer[3:].copy_(torch.tensor([5.0]))
host = torch.zeros(4)
host.copy_(buffer)
print(buffer.tolist(), host.tolist(), buffer[2].item(), buffer.to(torch.int32).cpu().tolist(), torch.equal(buffer, buffer.clone()))
while step < 10:
    step += 1
print(step.item())
step.normal_()
buffer[1] = torch.randn((), **gpu)
print(step.item(), buffer.tolist(), (lengths * torch.randn(3, **gpu)).tolist())
w = torch.nn.Parameter(torch.zeros(8, **gpu))
o = torch.optim.AdamW([w], fused=True)
for _ in range(3):
    w.sum().backward()
    o.step()
print(o.state[w]['step'].item())
";

#[test]
fn values_of_small_tensors_follow_known_functions() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &[], &["-c", FOLLOWED]).ok();
    let expected = "3.0 [2, 2, 2] 3.0 5.0\n\
                    [5] [3, 4, 6] [True, False, True] 3 [3, 0, 2]\n\
                    [0, 1] False False True\n\
                    [3.0, 0.0, 7.0, 5.0] [3.0, 0.0, 7.0, 5.0] 7.0 [3, 0, 7, 5] True\n\
                    10.0\n0.0 [0.0, 0.0, 0.0, 0.0] [0.0, 0.0, 0.0]\n3.0\n";
    assert_eq!(run.ended.stdout, expected);
}

/// A loop over one tensor that nothing writes, behind three loops that end by themselves.
const ONE_FLAG: &str = "import torch
flag = torch.empty(2, device='cuda')
def wait():
    while not flag[1].item():
        pass
for _ in range(2000):
    flag[0].item()
n = 0
while n < 1500:
    torch.randn(1, device='cuda').item()
    n += 1
while n < 1510:
    for _ in range(500):
        flag[0].item()
    n += 1
print('waits', flush=True)
wait()
";
/// A loop that computes something new each time.
const ALL_DONE: &str = "import torch
block = torch.empty(1 << 28, dtype=torch.uint8, device='cuda')
done = torch.zeros(2, dtype=torch.bool, device='cuda')
print('waits', flush=True)
while True:
    done = done | (torch.randn(2, 8, device='cuda').argmax(1) == 3)
    if done.all():
        break
";

#[test]
fn a_loop_that_waits_for_the_gpu_ends_with_its_line_and_figures() {
    let Some(python) = python() else { return };
    for (text, place) in [(ONE_FLAG, "wait (<string>:4)"), (ALL_DONE, "<module> (<string>:7)")] {
        let run = plain_dry_run(&python, &[], &["-c", text]);
        assert_eq!(run.ended.status.code(), Some(124), "{}", run.ended.stderr);
        assert_eq!(run.ended.stdout, "waits\n");
        let remarks = run.report["dry_run"]["remarks"].to_string();
        let sentence = format!("stopped in {place}: its loop waits for a value of the GPU");
        assert!(remarks.contains(&sentence), "{remarks}");
        assert!(run.peak().1 >= 2.0, "figures up to then: {:#}", run.report["dry_run"]);
    }
}

/// Values that a collective wrote are not known, whatever was known before. An exchange of small messages is real.
const COLLECTED: &str = "import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, port):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group('nccl', rank=rank, world_size=2)
    flag = torch.isfinite(torch.zeros(1, device='cuda'))
    assert flag.item() is True
    dist.broadcast(flag, 0)
    assert flag.item() is False
    found = [None, None]
    dist.all_gather_object(found, {'rank': rank})
    assert found == [{'rank': 0}, {'rank': 1}], found
    dist.destroy_process_group()
if __name__ == '__main__':
    import socket
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    mp.spawn(work, (port,), nprocs=2)
    print('well')
";

#[test]
fn a_collective_ends_what_was_known_of_a_tensor() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("collected.py");
    std::fs::write(&file, COLLECTED).unwrap();
    let run = plain_dry_run(&python, &["--emulate", "2xA100-40GB"], &[&file.display().to_string()]).ok();
    assert_eq!(run.ended.stdout, "well\n");
}

/// Two properties in one process: a convolution without room for the fast plan's workspace, and a hook that fails.
const FALLS_BACK: &str = "import torch
conv = torch.nn.Conv2d(64, 64, 3, padding=1).cuda()
def fails(device=None):
    raise AttributeError('uuid')
torch.cuda.get_device_properties = fails
with torch.no_grad():
    print(*conv(torch.empty(560, 64, 224, 224, device='cuda')).shape)
";

#[test]
fn a_convolution_falls_back_to_a_plan_without_a_workspace() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &["--emulate", "A10"], &["-c", FALLS_BACK]).ok();
    assert_eq!(run.ended.stdout, "560 64 224 224\n", "{}", run.ended.stderr);
}

/// Half of 8,192 tokens for each of two experts, or all of them.
const ROUTED: &str = "import torch
x = torch.empty(8192, 64, device='cuda')
for expert in range(2):
    rows, _ = torch.where(torch.empty(8192, 2, device='cuda') == expert)
    x[rows]
";

#[test]
fn a_need_that_depends_on_routing_has_no_bound_unless_all_is_kept() {
    let Some(python) = python() else { return };
    let remarks = |options: &[&str], rows: &str| {
        let run = plain_dry_run(&python, options, &["-c", &ROUTED.replace("8192", rows)]).ok();
        run.report["dry_run"]["remarks"].to_string()
    };
    assert!(remarks(&[], "8192").contains("no bound: how many elements"));
    assert!(!remarks(&["--fill", "100"], "8192").contains("no bound"));
    assert!(!remarks(&[], "8").contains("no bound"), "a few elements decide nothing");
}
