"""Prints figures of PyTorch's memory statistics for `cargo xtask published`: `figure CASE QUANTITY BYTES`."""

import torch

PEAKS = {
    "allocated": "allocated_bytes.all.peak",
    "reserved": "reserved_bytes.all.peak",
    "active": "active_bytes.all.peak",
}


def show(case, statistics=None):
    """Prints the peaks since the last reset, or of the given `torch.cuda.memory_stats()`."""
    statistics = statistics or torch.cuda.memory_stats()
    for quantity, name in PEAKS.items():
        print(f"figure {case} {quantity} {statistics[name]}", flush=True)
