"""A model that is made on the host in the ways in which programs do: initialised, copied, converted, loaded, moved.

Prints what of the host's memory making it took, MiB.
"""

import copy
import os
import resource
import sys

import torch


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20


WIDTH, LAYERS, WORDS = 1024, 6, 20000


def model():
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True)
    made = torch.nn.Sequential(torch.nn.Embedding(WORDS, WIDTH), torch.nn.TransformerEncoder(layer, LAYERS))
    made.scale = torch.nn.Parameter(torch.ones(WORDS, WIDTH))
    for parameter in made.parameters():
        if parameter.dim() > 1:
            torch.nn.init.trunc_normal_(parameter, std=0.02)
    return made


before = resident()
first = model()
average = copy.deepcopy(first)
file = os.path.join(sys.argv[1], "weights.pt")
torch.save(torch.nn.Linear(4 * WIDTH, 4 * WIDTH).state_dict(), file)
head = torch.nn.Linear(4 * WIDTH, 4 * WIDTH)
head.load_state_dict(torch.load(file))
average.load_state_dict(first.state_dict())
first.to(torch.bfloat16)
# What a program computes with small tensors of the host is right.
small = torch.full((4,), 2.5)
assert small.mul_(2).sum().item() == 20 and torch.ones(3).tolist() == [1.0] * 3
assert torch.zeros(1 << 20, dtype=torch.int64).fill_(3)[7].item() == 3
for _ in range(3):
    torch.empty(3 << 20, dtype=torch.uint8).fill_(7)
    assert torch.zeros(1 << 19)[::997].sum().item() == 0, "memory that was freed before"
print("made", resident() - before)
first.cuda(), head.cuda()
optimizer = torch.optim.AdamW(first.parameters(), lr=1e-3)
for _ in range(2):
    words = torch.randint(0, WORDS, (2, 128), device="cuda")
    (first(words).sum() + first.scale.sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
# From the first forward pass on everything is what it was.
after = torch.empty(1 << 20).fill_(1.5)
assert after[-1].item() == 1.5, after[-1]
assert torch.full((1 << 20,), 2.0)[5].item() == 2.0 and "normal_" not in vars(torch.Tensor)
