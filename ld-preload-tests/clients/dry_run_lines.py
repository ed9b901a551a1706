"""Programs of which it is known what holds their memory, and whose line asked for it. The argument names one of them."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

# Rows of an input of 32 MiB.
ROWS, WIDTH = 16384, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.narrow(nn.functional.gelu(self.wide(x)))


def first_backward(loss):
    loss.backward()


def second_backward(loss):
    loss.backward()


def checkpointed(is_reentrant):
    """Each block computes its activations again in the backward pass."""
    blocks = nn.ModuleList(Block() for _ in range(3)).cuda()
    optimizer = torch.optim.SGD(blocks.parameters())
    for _ in range(2):
        y = torch.zeros(ROWS, WIDTH, device="cuda", requires_grad=is_reentrant)
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=is_reentrant)
        loss = (y * y).sum()
        del y
        first_backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        del loss


def whole():
    """The same in PyTorch's modules only, as a whole: the peak is in what the backward pass computes after that."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.GELU(), nn.Linear(WIDTH, WIDTH, bias=False)).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    x = torch.zeros(ROWS, WIDTH, device="cuda")
    for _ in range(2):
        first_backward(checkpoint(model, x, use_reentrant=False).pow(2).sum())
        optimizer.step()
        optimizer.zero_grad()


def accumulated():
    """Two backward passes before a step, of which the first has the peak."""
    model = nn.Linear(2048, 2048).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    x = torch.zeros(ROWS, 2048, device="cuda")
    first_backward((model(x) ** 2).sum())
    second_backward((model(x[:8]) ** 2).sum())
    optimizer.step()


def gone():
    """At the end of the program there is no model any more."""
    part = nn.Linear(4096, 4096, bias=False).cuda()
    with torch.no_grad():
        part(torch.zeros(16, 4096, device="cuda"))
        nn.Sequential(part, nn.BatchNorm1d(4096).cuda()).eval()(torch.zeros(16, 4096, device="cuda"))


kept = []


def sized():
    """A tensor that has the size of a workspace of cuBLAS, and such a workspace."""
    size = torch._C._cuda_getCublasWorkspaceSize()
    print(size)

    def tensor():
        kept.append(torch.zeros(size // 4, device="cuda"))

    def product(factor):
        kept.append(factor @ factor)

    tensor()
    product(torch.zeros(64, 64, device="cuda"))


programs = {
    "checkpointed": lambda: checkpointed(False),
    "checkpointed by reentry": lambda: checkpointed(True),
    "whole": whole,
    "accumulated": accumulated,
    "gone": gone,
    "sized": sized,
}
programs[sys.argv[1]]()
