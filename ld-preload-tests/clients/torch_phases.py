"""Phases that radrm.watch_torch makes of PyTorch's own work."""
import torch

import radrm

model = torch.nn.Sequential(
    torch.nn.Linear(1024, 1024), torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU()), torch.nn.Linear(4096, 8)
).cuda()
optimizer = torch.optim.Adam(model.parameters())
remove = radrm.watch_torch(model)
for number in range(5):
    optimizer.zero_grad()
    model(torch.empty(64, 1024, device="cuda")).sum().backward()
    optimizer.step()
try:
    model(torch.empty(64, 7, device="cuda"))
except RuntimeError:
    pass
with radrm.phase("after"):
    pass
remove()
model(torch.empty(64, 1024, device="cuda"))
print(radrm.is_recording())
