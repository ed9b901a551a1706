"""Compiles a model in the three ways that there are, with the compiler that refuses what it cannot trace."""

import sys
import warnings

import torch

warnings.filterwarnings("error", message="Using `torch.compile")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
how = sys.argv[1]
if how == "module":
    call = torch.compile(model, fullgraph=True, backend="eager")
elif how == "in place":
    model.compile(fullgraph=True, backend="eager")
    call = model
else:
    call = torch.compile(lambda x: model(x), fullgraph=True, backend="eager")
for _ in range(2):
    call(torch.randn(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
