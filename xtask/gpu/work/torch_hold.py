"""Holds memory with a pattern, and checks it when asked. usage: torch_hold.py MIB"""

import json
import os
import sys

import torch

mib = int(sys.argv[1])
held = torch.arange(mib << 18, device="cuda", dtype=torch.int32)
expected = int(held.sum())
stream = torch.cuda.Stream()
torch.cuda.synchronize()
print(json.dumps({"pid": os.getpid(), "mib": mib}), flush=True)
sys.stdin.readline()
same = int(held.sum()) == expected
with torch.cuda.stream(stream):
    x = torch.ones(512, 512, device="cuda")
    computes = float((x @ x).sum()) == 512.0**3
torch.cuda.synchronize()
print(json.dumps({"same": same, "computes": computes}), flush=True)
