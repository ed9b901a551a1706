"""A training whose peak is at a known moment, at which it prints what PyTorch's own snapshot has, in JSON.

The peak is after the backward pass of the third step; with `late` at the end of its forward pass, while the gradients of the
second step are still there.
"""

import json
import sys

import torch
from torch import nn

WIDTH, BATCH = 512, 256
HERE = __file__


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("scale", torch.ones(WIDTH, 4))

    def forward(self, x):
        return torch.relu(self.project(x)) * self.scale[:, 0]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attn(x)
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def own_snapshot(model, optimizer):
    """Bytes of blocks by what the program itself knows of them, and by line."""
    known = {}
    for name, parameter in model.named_parameters():
        known[parameter.data_ptr()] = ("parameters", name)
        if parameter.grad is not None:
            known[parameter.grad.data_ptr()] = ("gradients", name)
        for state in optimizer.state[parameter].values():
            known[state.data_ptr()] = ("optimizer_state", name)
    for name, buffer in model.named_buffers():
        known[buffer.data_ptr()] = ("buffers", name)
    sums, lines, modules = {}, {}, {}
    for segment in torch.cuda.memory._snapshot()["segments"]:
        for block in segment["blocks"]:
            if block["state"] != "active_allocated":
                continue
            category, name = known.get(block["address"], ("rest", None))
            sums[category] = sums.get(category, 0) + block["size"]
            if category == "parameters":
                module = name.rpartition(".")[0]
                modules[module] = modules.get(module, 0) + block["size"]
            own = next((frame["line"] for frame in block["frames"] if frame["filename"] == HERE), None)
            if own is not None:
                lines[own] = lines.get(own, 0) + block["size"]
    return {
        "allocated": torch.cuda.memory_allocated(),
        "categories": sums,
        "parameters_by_module": modules,
        "lines": lines,
        "modules": [name for name, _ in model.named_modules()],
    }


def peak(model, optimizer):
    kept = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    print(json.dumps(own_snapshot(model, optimizer)))
    del kept


late = sys.argv[1:] == ["late"]
model = Model().cuda()
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
for step in range(4):
    x = torch.randn(BATCH, WIDTH, device="cuda")
    loss = model(x).sum()
    if late and step == 2:
        peak(model, optimizer)
    optimizer.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    if not late and step == 2:
        peak(model, optimizer)
    optimizer.step()
    del loss
