"""Trains a small model on batches that a side stream copies ahead from pinned memory."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).cuda()
optimizer = torch.optim.Adam(model.parameters())
side = torch.cuda.Stream()


def batch():
    host = torch.empty(2048, 4096, pin_memory=True)
    with torch.cuda.stream(side):
        return host.to("cuda", non_blocking=True)


ahead = batch()
for _ in range(6):
    now, ahead = ahead, batch()
    torch.cuda.current_stream().wait_stream(side)
    now.record_stream(torch.cuda.current_stream())
    model(now).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
