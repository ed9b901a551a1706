"""Trainings whose steps repeat, and what comes after that: the first argument names it, the second is a number of steps more."""

import sys

import torch
from torch import nn

# Bytes of a row, which is a multiple of what the allocator rounds to; a layer of this width.
ROW, WIDTH = 8192, 2048
STEPS = 12


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH, bias=False)
        self.times = 1

    def forward(self, x):
        if self.times > 1:
            x = again(x, self.times)
        return squared(self.inner(x))


def squared(x):
    return x * x


def again(x, times):
    return x.repeat(times, 1)


def batch(rows):
    return torch.zeros(rows, WIDTH, device="cuda")


model = nn.Sequential(Layer(), Layer()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(rows):
    model(batch(rows)).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=sys.argv[1] != "kept")


def repeated():
    """Nothing else."""


def longer():
    """A batch of twice the size: seen before the model is called."""
    step(4096)


def longer_twice():
    """The same once more after others."""
    longer()
    for _ in range(4):
        step(2048)
    longer()


def longer_inside():
    """The same, of which nothing is seen before the backward pass."""
    model[0].times = 4
    step(2048)


def evaluated():
    """What is computed without gradients is larger than a step."""
    with torch.no_grad():
        model(batch(16384))


def kept():
    """The same, while gradients of the steps are there."""
    evaluated()


def in_no_model():
    """Memory of no step and no model."""
    return torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")


def freed():
    """The same, of which nothing is left at the end."""
    in_no_model()


programs = {of.__name__: of for of in (repeated, longer, longer_twice, longer_inside, evaluated, kept, in_no_model, freed)}
for _ in range(STEPS):
    step(2048)
left = programs[sys.argv[1]]()
for _ in range(int(sys.argv[2])):
    step(2048)
