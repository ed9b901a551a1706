"""Calls PyTorch's operations that reach CUDA's libraries, and names those that fail: dry_run_operations.py [NAME...]."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

D = "cuda"


def rand(*shape, **keywords):
    return torch.randn(*shape, device=D, **keywords)


def train(module, x, **autocast):
    module = module.to(D)
    with torch.autocast(D, torch.bfloat16, enabled=bool(autocast)):
        out = module(x)
    out = out[0] if isinstance(out, tuple) else out
    out.sum().backward()


def attention(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    query = rand(2, 8, 128, 64, dtype=torch.half, requires_grad=True)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        F.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()


def optimizers():
    for optimizer, keywords in (
        (torch.optim.Adam, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.AdamW, {"capturable": True}),
        (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
        (torch.optim.Adagrad, {}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adafactor, {}),
    ):
        module = nn.Linear(64, 64).to(D)
        own = optimizer(module.parameters(), **keywords)
        module(rand(4, 64)).sum().backward()
        own.step()


def scaler():
    module, scale = nn.Linear(8, 8).to(D), torch.amp.GradScaler(D)
    own = torch.optim.SGD(module.parameters(), 0.1)
    with torch.autocast(D, torch.half):
        loss = module(rand(4, 8)).sum()
    scale.scale(loss).backward()
    scale.step(own)
    scale.update()


def checkpointing():
    from torch.utils.checkpoint import checkpoint

    block = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).to(D)
    checkpoint(block, rand(8, 64, requires_grad=True), use_reentrant=False).sum().backward()


def cuda_graph():
    x, module, graph, side = torch.zeros(10, device=D), nn.ReLU(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        module(x)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        module(x)
    graph.replay()
    torch.cuda.synchronize()


def events():
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    rand(10)
    last.record()
    torch.cuda.synchronize()
    assert first.elapsed_time(last) >= 0


def memory_history():
    torch.cuda.memory._record_memory_history()
    keep = rand(1000)
    snapshot = torch.cuda.memory._snapshot()
    assert snapshot["segments"] and torch.cuda.memory_summary()
    torch.cuda.memory._record_memory_history(enabled=None)
    del keep


def loader():
    data = torch.utils.data.TensorDataset(torch.randn(64, 8))
    for (x,) in torch.utils.data.DataLoader(data, 8, num_workers=2, pin_memory=True):
        x.to(D, non_blocking=True)


def connectionist_loss():
    scores = rand(50, 4, 20).log_softmax(2).requires_grad_()
    targets = torch.randint(1, 20, (4, 10), device=D)
    F.ctc_loss(scores, targets, torch.full((4,), 50), torch.full((4,), 10)).backward()


def profiler():
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]):
        rand(10).sum()


def data_dependent():
    """Half of the elements are kept, unless RADRM_DRY_RUN_FILL says otherwise."""
    x, whole = torch.ones(1000, device=D), torch.randint(0, 10, (3_000_000,), device=D)
    sizes = [len(torch.nonzero(x)), len(x[x > 0]), len(torch.unique(whole)), len(torch.unique_consecutive(whole))]
    print("data-dependent", *sizes)
    assert len(torch.repeat_interleave(torch.arange(10, device=D), torch.ones(10, device=D, dtype=torch.long))) == 10


def half_sparse():
    """2:4 sparsity: 9/16 of the bytes are stored."""
    from torch.sparse import SparseSemiStructuredTensorCUSPARSELT as Kind

    dense = torch.tensor([0, 0, 1, 1], dtype=torch.half).tile((1024, 256)).to(D)
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    kept = Kind.from_dense(dense)
    taken = torch.cuda.memory_stats()["requested_bytes.all.current"] - before
    assert taken == dense.numel() * 2 * 9 // 16, taken
    assert torch.mm(kept, rand(1024, 64, dtype=torch.half)).shape == (1024, 64)


def sparse_in_capture():
    """Products of cuSPARSE in a graph's capture, whose workspaces come from the graph's pool."""
    whole, dense = torch.eye(100), rand(100, 8)
    for sparse in (whole.to_sparse().to(D), whole.to_sparse_csr().to(D)):
        sparse @ dense
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product = sparse @ dense
        graph.replay()
        assert product.shape == (100, 8)


def read_back():
    assert torch.tensor([7, 8], device=D).tolist() == [7, 8]
    assert rand(10).sum().item() == 0.0


def eight_bit_floats():
    a, one = rand(64, 64).to(torch.float8_e4m3fn), torch.ones((), device=D)
    torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


OPERATIONS = {
    "fft": lambda: torch.fft.fft2(rand(4, 64, 64)),
    "solve": lambda: torch.linalg.solve(rand(8, 8), rand(8, 8)),
    "svd": lambda: torch.linalg.svd(rand(32, 16)),
    "eigh": lambda: torch.linalg.eigh(rand(32, 32)),
    "qr": lambda: torch.linalg.qr(rand(32, 16)),
    "cholesky": lambda: torch.linalg.cholesky_ex(rand(16, 16)),
    "inverse": lambda: torch.linalg.inv_ex(rand(4, 16, 16)),
    "least squares": lambda: torch.linalg.lstsq(rand(16, 8), rand(16, 2)),
    "sparse coo": lambda: torch.sparse.mm(torch.eye(100).to_sparse().to(D), rand(100, 8)),
    "sparse csr": lambda: torch.eye(100).to_sparse_csr().to(D) @ rand(100, 8),
    "sparse in capture": sparse_in_capture,
    "lstm": lambda: train(nn.LSTM(32, 64, 2, bidirectional=True, dropout=0.5), rand(20, 8, 32)),
    "gru": lambda: train(nn.GRU(32, 64, 2), rand(20, 8, 32)),
    "conv1d": lambda: train(nn.Conv1d(8, 16, 3), rand(4, 8, 50)),
    "conv3d": lambda: train(nn.Conv3d(4, 8, 3), rand(2, 4, 16, 16, 16)),
    "transposed conv": lambda: train(nn.ConvTranspose2d(8, 4, 4, 2, 1), rand(2, 8, 16, 16)),
    "grouped conv": lambda: train(nn.Conv2d(8, 8, 3, groups=8), rand(2, 8, 16, 16)),
    "conv autocast": lambda: train(nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)), rand(2, 8, 16, 16), amp=1),
    "batch norm inference": lambda: nn.BatchNorm2d(8).to(D).eval()(rand(2, 8, 16, 16)),
    "group norm": lambda: train(nn.GroupNorm(4, 8), rand(2, 8, 16, 16)),
    "flash attention": lambda: attention("FLASH_ATTENTION"),
    "efficient attention": lambda: attention("EFFICIENT_ATTENTION"),
    "cudnn attention": lambda: attention("CUDNN_ATTENTION"),
    "plain attention": lambda: attention("MATH"),
    "top k": lambda: torch.topk(rand(1000), 10),
    "sort": lambda: torch.sort(rand(100, 1000)),
    "multinomial": lambda: torch.multinomial(torch.ones(100, device=D), 10),
    "cumulative sum": lambda: torch.cumsum(rand(100000), 0),
    "embedding bag": lambda: nn.EmbeddingBag(100, 8).to(D)(torch.randint(0, 100, (16, 4), device=D)).sum().backward(),
    "interpolate": lambda: F.interpolate(rand(2, 3, 16, 16), scale_factor=2, mode="bilinear"),
    "distances": lambda: torch.cdist(rand(50, 8), rand(50, 8)),
    "8-bit integers": lambda: torch._int_mm(*(torch.ones(64, 64, dtype=torch.int8, device=D) for _ in range(2))),
    "8-bit floats": eight_bit_floats,
    "pinned memory": lambda: torch.randn(100).pin_memory().to(D, non_blocking=True),
    "clip": lambda: nn.utils.clip_grad_norm_([nn.Parameter(rand(4, 8))], 1.0),
    "ranges": lambda: (torch.cuda.nvtx.range_push("x"), torch.cuda.nvtx.range_pop()),
    "optimizers": optimizers,
    "scaler": scaler,
    "checkpointing": checkpointing,
    "cuda graph": cuda_graph,
    "events": events,
    "memory history": memory_history,
    "loader": loader,
    "connectionist loss": connectionist_loss,
    "profiler": profiler,
    "2:4 sparsity": half_sparse,
    "data-dependent": data_dependent,
    "read back": read_back,
}

failed = 0
for name in sys.argv[1:] or OPERATIONS:
    try:
        OPERATIONS[name]()
    except Exception as error:
        failed += 1
        print("failed", name, type(error).__name__, str(error).splitlines()[0][:200])
print("done", len(sys.argv[1:] or OPERATIONS), "failed", failed)
