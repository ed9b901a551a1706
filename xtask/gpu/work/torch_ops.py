"""Operations of PyTorch with results that do not depend on the run: prints them."""

import os

# cuBLAS gives the same result each time only with a workspace of its own.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


def say(name, value):
    print(name, value if isinstance(value, (int, bool, str)) else "%.6g" % float(value))


x = torch.arange(1 << 20, device="cuda", dtype=torch.float32).remainder(17)
say("sum", x.sum())
say("sorted", x.sort().values[1 << 19])
a = (torch.arange(512 * 512, device="cuda").remainder(7) - 3).reshape(512, 512).float()
say("product", (a @ a).abs().sum())
with torch.autocast("cuda", dtype=torch.bfloat16):
    say("bf16", (a @ a).float().abs().max())
image = (torch.arange(8 * 3 * 32 * 32, device="cuda").remainder(5) - 2).reshape(8, 3, 32, 32).float()
weight = (torch.arange(4 * 3 * 3 * 3, device="cuda").remainder(3) - 1).reshape(4, 3, 3, 3).float()
torch.backends.cudnn.deterministic = True
say("convolution", torch.nn.functional.conv2d(image, weight, padding=1).abs().sum())

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_((torch.arange(parameter.numel(), device="cuda").remainder(5) - 2).reshape(parameter.shape) / 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = (torch.arange(64 * 256, device="cuda").remainder(9) - 4).reshape(64, 256) / 8
for _ in range(3):
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
say("gradient", round(float(loss), 3) if float(loss) == float(loss) else "nan")

# Streams, events, a captured graph.
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    y = x * 2
side.synchronize()
say("stream", y.sum())
static = torch.zeros(1024, device="cuda")
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    static += 1
for _ in range(5):
    graph.replay()
torch.cuda.synchronize()
say("graph", static.sum())
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
x.mul_(1.0)
end.record()
end.synchronize()
say("timed", start.elapsed_time(end) >= 0)

# A thread of its own, pinned memory, a copy that does not wait.
pinned = torch.arange(1024, dtype=torch.float32).pin_memory()
say("pinned", pinned.cuda(non_blocking=True).sum())
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    say("refused", type(error).__name__)
say("after", torch.ones(10, device="cuda").sum())
say("allocated", torch.cuda.max_memory_allocated() > 0)
