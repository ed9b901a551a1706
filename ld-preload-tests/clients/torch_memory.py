"""What PyTorch's allocators and graphs promise, a function each: a line with its name and the figures that it saw.

A broken promise is an AssertionError. Figures are compared between runs. Needs two GPUs; kernels may compute nothing.
"""

import gc
import os

import torch

MIB = 1 << 20
SETTINGS = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
OWN = "cudaMallocAsync" not in SETTINGS
PLAIN = SETTINGS == ""


def taken(mib, device="cuda"):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=device)


def stat(name):
    return torch.cuda.memory_stats()[name]


def figures():
    return torch.cuda.memory_allocated() / MIB, torch.cuda.memory_reserved() / MIB


def counters():
    taken(1)
    before = stat("allocation.all.allocated"), stat("allocation.all.freed")
    blocks = [taken(n) for n in (1, 2, 3, 30)]
    peak = torch.cuda.max_memory_allocated()
    del blocks[1:]
    assert torch.cuda.max_memory_allocated() == peak
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() == MIB
    after = stat("allocation.all.allocated"), stat("allocation.all.freed")
    return after[0] - before[0], after[1] - before[1], peak // MIB


def cached_blocks_are_reused():
    if not OWN:
        return None
    first = taken(40)
    at = first.data_ptr()
    del first
    assert figures()[0] == 0 and figures()[1] >= 40
    second = taken(39)
    assert second.data_ptr() == at
    reserved = figures()[1]
    del second
    torch.cuda.empty_cache()
    assert figures() == (0, 0)
    return reserved


def segments_have_their_sizes():
    if not PLAIN:
        return None
    sizes = []
    for size in (512, MIB, MIB + 1, 9 * MIB, 10 * MIB, 11 * MIB + 1):
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        sizes.append(torch.cuda.memory_reserved() // MIB)
        del block
        torch.cuda.empty_cache()
    assert sizes == [2, 2, 20, 20, 10, 12], sizes
    return sizes


def the_device_holds_what_is_reserved():
    free = torch.cuda.mem_get_info()[0]
    blocks = [taken(n) for n in (1, 7, 64)]
    torch.cuda.synchronize()
    held = free - torch.cuda.mem_get_info()[0]
    if OWN:
        assert held == torch.cuda.memory_reserved(), held
    del blocks
    torch.cuda.empty_cache()
    return held


def out_of_memory_leaves_the_program_going():
    total = torch.cuda.mem_get_info()[1] // MIB
    block = taken(total // 2)
    ooms, retries = stat("num_ooms"), stat("num_alloc_retries")
    try:
        taken(total)
        raise AssertionError("more than there is")
    except torch.OutOfMemoryError as error:
        text = str(error)
    assert "CUDA out of memory" in text or "Allocation on device" in text, text
    after = stat("num_ooms") - ooms, stat("num_alloc_retries") - retries
    del block
    # What is cached is given back before the driver's refusal becomes an error.
    small = [taken(total // 8) for _ in range(4)]
    del small
    large = taken(total * 3 // 4)
    del large
    torch.cuda.empty_cache()
    return after, stat("num_alloc_retries") - retries


def a_fraction_is_a_limit():
    if not OWN:
        return None
    total = torch.cuda.mem_get_info()[1] // MIB
    torch.cuda.set_per_process_memory_fraction(0.25)
    try:
        block = taken(total // 5)
        try:
            taken(total // 5)
            raise AssertionError("above the fraction")
        except torch.OutOfMemoryError:
            pass
        del block
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    taken(total // 2)
    return total


def snapshots_add_up():
    if not OWN:
        return None
    blocks = [taken(n) for n in (1, 3, 5, 40)]
    del blocks[1]
    segments = torch.cuda.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == torch.cuda.memory_reserved()
    assert sum(segment["allocated_size"] for segment in segments) == torch.cuda.memory_allocated()
    for segment in segments:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    return [(segment["segment_type"], segment["total_size"] // MIB, len(segment["blocks"])) for segment in segments]


def streams_have_blocks_of_their_own():
    if not OWN:
        return None
    stream = torch.cuda.Stream()
    here = taken(32)
    at = here.data_ptr()
    del here
    with torch.cuda.stream(stream):
        there = taken(32)
    assert there.data_ptr() != at
    assert taken(32).data_ptr() == at
    return figures()


def a_recorded_stream_holds_its_blocks():
    if not OWN:
        return None
    stream, block = torch.cuda.Stream(), taken(32)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
    block.record_stream(stream)
    at = block.data_ptr()
    del block
    during = taken(32)
    assert during.data_ptr() != at, "reused under a busy stream"
    stream.synchronize()
    assert taken(32).data_ptr() == at
    return figures()


def pinned_memory_is_cached():
    block = torch.empty(8 * MIB, dtype=torch.uint8, pin_memory=True)
    at = block.data_ptr()
    assert block.is_pinned()
    del block
    again = torch.empty(8 * MIB, dtype=torch.uint8, pin_memory=True)
    assert again.data_ptr() == at
    return None


def pools_are_private():
    if not OWN or "expandable" in SETTINGS:
        return None
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = taken(40)
    at = inside.data_ptr()
    del inside
    outside = taken(40)
    assert outside.data_ptr() != at
    with torch.cuda.use_mem_pool(pool):
        assert taken(40).data_ptr() == at
    both = figures()
    del outside, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert figures() == (0, 0)
    return both


def captured(work, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        out = work()
    return graph, out


def a_graph_keeps_its_memory():
    torch.cuda.synchronize()
    x = torch.ones(4 * MIB, device="cuda")
    graph, y = captured(lambda: (x + 1) * 2)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    with_graph = figures()
    at = y.data_ptr()
    del y
    assert torch.empty_like(x).data_ptr() != at, "a graph's memory is its own"
    graph.reset()
    del graph, x
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if OWN:
        assert figures() == (0, 0), figures()
    return with_graph


def graphs_share_a_pool():
    x = torch.ones(4 * MIB, device="cuda")
    first, one_out = captured(lambda: (x + 1).sum())
    one = figures()[1]
    second, two_out = captured(lambda: (x + 2).sum(), pool=first.pool())
    two = figures()[1]
    for graph in (first, second):
        graph.replay()
    torch.cuda.synchronize()
    assert one_out.data_ptr() != two_out.data_ptr()
    if OWN:
        assert two - one < 16, (one, two)
    return one, two


def a_side_stream_joins_a_capture():
    if not OWN:
        return None  # What it frees at the end of the work would be in the side stream again.
    side, x = torch.cuda.Stream(), torch.ones(MIB, device="cuda")

    def work():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 3
        z = x + 1
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        return y + z

    graph, out = captured(work)
    graph.replay()
    torch.cuda.synchronize()
    return out.numel(), figures()


def what_a_capture_forbids_ends_it():
    if not OWN:
        return None  # The driver refuses to free what the broken capture took, which ends the process.
    x = torch.ones(MIB, device="cuda")
    try:
        captured(lambda: (x + 1).sum().item())
        raise AssertionError("a capture cannot wait")
    except (RuntimeError, torch.AcceleratorError) as error:
        kind = type(error).__name__
    torch.cuda.synchronize()
    graph, out = captured(lambda: x + 1)
    graph.replay()
    torch.cuda.synchronize()
    return kind, out.numel()


def a_capture_may_run_out_of_memory():
    if not OWN:
        return None  # Memory of a graph is taken when it is launched.
    total = torch.cuda.mem_get_info()[1] // MIB
    x = torch.ones(MIB, device="cuda")
    try:
        captured(lambda: (x + 1, taken(2 * total)))
        raise AssertionError("more than there is")
    except torch.OutOfMemoryError:
        pass
    torch.cuda.synchronize()
    graph, out = captured(lambda: x + 1)
    graph.replay()
    torch.cuda.synchronize()
    return total, out.numel()


def callables_become_graphs():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    x = torch.randn(16, 64, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    for _ in range(3):
        graphed(torch.randn_like(x)).sum().backward()
    torch.cuda.synchronize()
    return figures() if PLAIN else None


def devices_count_apart():
    here, there = taken(8, "cuda:0"), taken(24, "cuda:1")
    there[: 8 * MIB].copy_(here)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated(0) == 8 * MIB and torch.cuda.memory_allocated(1) == 24 * MIB
    return torch.cuda.memory_reserved(0) // MIB, torch.cuda.memory_reserved(1) // MIB


def a_storage_that_shrinks_frees():
    block = taken(40)
    block.untyped_storage().resize_(0)
    assert torch.cuda.memory_allocated() == 0
    block.untyped_storage().resize_(20 * MIB)
    return figures()


def history_is_recorded():
    if not OWN:
        return None
    torch.cuda.memory._record_memory_history(max_entries=1000)
    block = taken(40)
    del block
    torch.cuda.empty_cache()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    actions = [entry["action"] for entry in trace]
    for action in ("alloc", "free_requested", "free_completed"):
        assert action in actions, actions
    return actions


def raw_memory_is_counted():
    at = torch.cuda.caching_allocator_alloc(5 * MIB)
    held = torch.cuda.memory_allocated()
    torch.cuda.caching_allocator_delete(at)
    assert held == 5 * MIB and torch.cuda.memory_allocated() == 0
    return None


def events_order_streams():
    stream, begin, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        begin.record()
        torch.cuda._sleep(20_000_000)
        end.record()
    assert not end.query(), "work that was just queued is done"
    torch.cuda.current_stream().wait_event(end)
    torch.cuda.current_stream().synchronize()
    assert end.query() and begin.elapsed_time(end) > 0
    return None


for promise in (
    counters,
    cached_blocks_are_reused,
    segments_have_their_sizes,
    the_device_holds_what_is_reserved,
    out_of_memory_leaves_the_program_going,
    a_fraction_is_a_limit,
    snapshots_add_up,
    streams_have_blocks_of_their_own,
    a_recorded_stream_holds_its_blocks,
    pinned_memory_is_cached,
    pools_are_private,
    a_graph_keeps_its_memory,
    graphs_share_a_pool,
    a_side_stream_joins_a_capture,
    what_a_capture_forbids_ends_it,
    a_capture_may_run_out_of_memory,
    callables_become_graphs,
    devices_count_apart,
    a_storage_that_shrinks_frees,
    history_is_recorded,
    raw_memory_is_counted,
    events_order_streams,
):
    try:
        print(promise.__name__, promise(), flush=True)
    except Exception as error:  # The others are worth knowing too.
        print(promise.__name__, "FAILED", type(error).__name__, str(error).splitlines()[:1], flush=True)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
