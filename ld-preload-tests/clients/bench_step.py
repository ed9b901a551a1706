"""Processor time of a PyTorch training step without and with recorded call stacks, in turn.

usage: bench_step.py RADRM_RUN ROUNDS STEPS
       radrm-run --dry-run --stacks=tensors -- bench_step.py one-process ROUNDS
The second compares steps of one process, in which the recorder of tensors is off, rests or records.
"""

import gc
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


def training(torch):
    """A step of a transformer of the size of GPT-2-small."""
    nn = torch.nn
    layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True) for _ in range(LAYERS))
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *layers, nn.Linear(WIDTH, VOCABULARY)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(0, VOCABULARY, (4, CONTEXT), device="cuda")

    def step():
        loss = nn.functional.cross_entropy(model(tokens).view(-1, VOCABULARY), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step


def timed(step):
    """Processor time of a step in ms."""
    begin = time.process_time_ns()
    step()
    return (time.process_time_ns() - begin) / 1e6


def median_with_interval(values):
    """Median, and a rank interval of it of 95 %, roughly."""
    values = sorted(values)
    off = max(0, int(len(values) / 2 - len(values) ** 0.5))
    return statistics.median(values), values[off], values[-1 - off]


def one_process(rounds):
    import torch

    step = training(torch)
    # As many as it takes until the recording rests.
    for _ in range(8):
        step()
    recorders = (of for of in gc.get_objects() if type(of).__module__ == "radrm_tensors")
    recorder = next(of for of in recorders if type(of).__name__ == "Recorder")
    assert recorder.is_resting, "run it with radrm-run --stacks=tensors"

    def off():
        recorder.rest()
        recorder.modules.stop()
        recorder.owner = None

    def rests():
        recorder.rest()

    def records():
        recorder.wake()
        # It rests after so many steps that it knows.
        recorder.steps.repeated = -4

    modes = {of.__name__: of for of in (off, rests, records)}
    times = {mode: [] for mode in modes}
    for number in range(rounds):
        for mode in random.Random(number).sample(list(modes), len(modes)):
            recorder.owner = os.getpid()
            recorder.modules.is_stopped = False
            recorder.wake()
            modes[mode]()
            recorder.steps.begin(recorder.counts(recorder.devices), False)
            recorder.modules.await_call()
            step()
            times[mode].append(timed(step))
            assert recorder.is_resting == (mode != "records")
    print("ms of processor time per step, %d rounds; load %.1f" % (rounds, os.getloadavg()[0]))
    for mode, found in times.items():
        ratios = [with_ / without for with_, without in zip(found, times["off"])]
        figures = statistics.median(found), *median_with_interval(ratios), sum(found) / sum(times["off"])
        print("| %s | %.2f | %.3f | %.3f to %.3f | %.3f |" % (mode, *figures))


def steps(count, with_history):
    """Prints the median and the mean of the steps in ms of processor time."""
    import torch

    if with_history:
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=1 << 17)

    step = training(torch)
    times = []
    for _ in range(count + 3):
        times.append(timed(step))
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
            ratio, low, high = median_with_interval(with_[which] / without[which] for with_, without in pairs)
            middle = statistics.median(run[which] for run in found)
            print("| %s | %s | %.2f | %.4f | %.4f to %.4f |" % (mode, name, middle, ratio, low, high))


if sys.argv[1] == "one-process":
    one_process(int(sys.argv[2]))
elif sys.argv[1] == "steps":
    steps(int(sys.argv[2]), "history" in sys.argv[3:])
else:
    compare(sys.argv[1], int(sys.argv[2]), sys.argv[3])
