"""PyTorch under a quota: takes until it is refused, gives back, and goes on. Prints a line of JSON."""

import json
import os

import torch

total = torch.cuda.mem_get_info()[1]
kept, refused, largest = [], None, 0
try:
    while True:
        kept.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
        largest = torch.cuda.memory_reserved()
        if largest > 2 * total:
            break
except torch.OutOfMemoryError as error:
    refused = str(error)[:300]
kept.clear()
torch.cuda.empty_cache()
x = torch.ones(1024, 1024, device="cuda")
y = (x @ x).sum()
torch.cuda.synchronize()
print(json.dumps({
    "limit": 4 << 30, "seen_total": total, "refused": refused, "reserved_bytes_at_most": largest,
    "properties_total": torch.cuda.get_device_properties(0).total_memory, "after": float(y), "right": 1024.0**3,
}))
