"""Processor time of a PyTorch training step without and with recorded call stacks, in turn.

usage: bench_step.py RADRM_RUN ROUNDS STEPS
"""

import os
import random
import statistics
import subprocess
import sys
import time

# Options of radrm-run, and whether the program itself switches PyTorch's history on, which is the floor of what is built on it.
MODES = {
    "without": ([], False),
    "--stacks": (["--stacks"], False),
    "--stacks=tensors": (["--stacks=tensors"], False),
    "PyTorch's history alone": ([], True),
}
WIDTH, LAYERS, HEADS, CONTEXT, VOCABULARY = 768, 12, 12, 1024, 50304


def steps(count, with_history):
    """A transformer of the size of GPT-2-small; prints the median of its steps in ms of processor time."""
    import torch
    from torch import nn

    if with_history:
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=1 << 17)

    layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True) for _ in range(LAYERS))
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *layers, nn.Linear(WIDTH, VOCABULARY)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(0, VOCABULARY, (4, CONTEXT), device="cuda")
    times = []
    for _ in range(count + 3):
        begin = time.process_time_ns()
        loss = nn.functional.cross_entropy(model(tokens).view(-1, VOCABULARY), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append((time.process_time_ns() - begin) / 1e6)
    # The first ones take memory from the driver and find their kernels.
    print("step", statistics.median(times[3:]), statistics.mean(times[3:]))


def compare(run, rounds, count):
    results = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in random.Random(number).sample(list(MODES), len(MODES)):
            options, with_history = MODES[mode]
            own = [sys.executable, __file__, "steps", count, *["history"] * with_history]
            command = [run, "--dry-run", "--no-profile", "--no-dataset", "--quiet", *options, "--", *own]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            line = next(line for line in ended.stdout.splitlines() if line.startswith("step "))
            results[mode].append([float(word) for word in line.split()[1:]])
            print(number, mode, line, file=sys.stderr, flush=True)
    print("ms of processor time per step, median of %d runs of %s steps each; load %.1f" % (rounds, count, os.getloadavg()[1]))
    for mode, found in results.items():
        for which, name in enumerate(("median step", "mean step")):
            pairs = zip(found, results["without"])
            ratios = sorted(with_[which] / without[which] for with_, without in pairs)
            # A rank interval of the median of 95 %, roughly.
            off = max(0, int(len(ratios) / 2 - len(ratios) ** 0.5))
            low, high = ratios[off], ratios[-1 - off]
            middle = statistics.median(run[which] for run in found)
            ratio = statistics.median(ratios)
            print("| %s | %s | %.2f | %.4f | %.4f to %.4f |" % (mode, name, middle, ratio, low, high))


if sys.argv[1] == "steps":
    steps(int(sys.argv[2]), "history" in sys.argv[3:])
else:
    compare(sys.argv[1], int(sys.argv[2]), sys.argv[3])
