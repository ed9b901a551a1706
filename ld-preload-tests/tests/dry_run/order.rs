//! Blocks that the allocators hold back until work in another stream is done.

use radrm_preload_tests::python::script;

use super::harness::{dry_run, dry_run_with, python};

/// Runs some lines after `import torch`; gives the last line that they print.
fn printed(lines: &str, variables: &[(&str, &str)]) -> Option<String> {
    let python = python()?;
    let code = format!("import torch\nMIB = 1 << 20\n{lines}");
    let run = dry_run_with(&python, &[], variables, &["-c", &code]).ok();
    Some(run.ended.stdout.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn a_block_that_a_busy_stream_uses_is_not_reused() {
    let lines = "def run(wait):
    s, x = torch.cuda.Stream(), torch.empty(64 * MIB, dtype=torch.uint8, device='cuda')
    with torch.cuda.stream(s):
        torch.cuda._sleep(2_000_000_000)
    x.record_stream(s)
    p = x.data_ptr()
    del x
    if wait:
        torch.cuda.synchronize()
    y = torch.empty(64 * MIB, dtype=torch.uint8, device='cuda')
    return y.data_ptr() == p, torch.cuda.memory_reserved() // MIB
busy = run(False)
torch.cuda.empty_cache()
print(busy, run(True))";
    let Some(text) = printed(lines, &[]) else { return };
    assert_eq!(text, "(False, 128) (True, 64)");
}

#[test]
fn pinned_memory_that_a_copy_reads_is_not_reused() {
    let lines = "def pinned():
    return torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=True)
def run(wait):
    x = pinned()
    p = x.data_ptr()
    y = x.to('cuda', non_blocking=True)
    del x
    if wait:
        torch.cuda.synchronize()
    return pinned().data_ptr() == p
print(run(False), run(True))";
    let Some(text) = printed(lines, &[]) else { return };
    assert_eq!(text, "False True");
}

#[test]
fn segments_grow_while_a_graph_is_captured() {
    let lines = "x, g = torch.randn(1024, device='cuda'), torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.cuda.graph(g):
    z, y = x + 1, torch.empty(30 * MIB, dtype=torch.uint8, device='cuda')
g.replay()
torch.cuda.synchronize()
print(torch.cuda.memory_reserved() // MIB)";
    let Some(text) = printed(lines, &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")]) else {
        return;
    };
    // Large segments grow by 20 MiB; the two small blocks have one of 2 MiB each.
    assert_eq!(text, "44");
}

/// Steps with a side stream, as a loader that copies ahead has it: the same figures in every run.
#[test]
fn figures_with_a_side_stream_repeat() {
    let Some(python) = python() else { return };
    let peaks: Vec<(f64, f64)> =
        (0..2).map(|_| dry_run(&python, &[], &[&script("dry_run_streams.py")]).ok().peak()).collect();
    assert_eq!(peaks[0], peaks[1]);
    assert!(peaks[0].1 > peaks[0].0);
}
