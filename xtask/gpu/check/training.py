"""Whole training steps, with and without the shim."""

import json
import statistics

import processes
import setting
from costs import MODES
from machine import read

PROFILED = "PyTorch's profiler (CUPTI), no shim"
# Work, steps in a round, steps in a brief run.
WORKS = [("resnet50", 20, 1), ("gpt2", 10, 1), ("small-kernels", 3, 1)]


def steps(context):
    """Training steps of ResNet-50 and of a GPT-2-small class model, and steps of many small kernels: one process
    without the shim and one for each mode of it, all loaded, of which one works at a time, in turns."""
    step, machine = context.step, context.machine
    lacks = machine.has(machine.pythons["torch"], "torch")
    if lacks:
        raise setting.Missing("%s is not installed" % lacks)
    modes = ["no shim", "sample"] if context.short else list(MODES)
    # CUPTI stays in a process that was profiled once: it has one of its own, beside the others.
    others = [] if context.short else [PROFILED]
    works = WORKS if not machine.has(machine.pythons["torch"], "torchvision") else WORKS[1:]
    if context.short:
        works = works[-1:]
    running, reports, reserved = {}, {}, {}
    for mode in modes + others:
        launched, env, reports[mode] = machine.framework("torch", "torch_steps.py", options=MODES.get(mode))
        running[mode] = processes.Running(launched, env)
    for mode, process in running.items():
        ready = process.line(min(90, context.left() - 2))
        if ready != "ready":
            raise RuntimeError("%s: %s" % (mode, ready))

    def ask(mode, words):
        running[mode].say(words + "\n")
        answer = json.loads(running[mode].line(max(1, context.left() - 1)))
        if "error" in answer:
            raise RuntimeError("%s: %s" % (words, answer["error"]))
        reserved[mode] = max(reserved.get(mode, 0), answer.get("reserved", 0))
        return answer

    for number, (work, many, few) in enumerate(works):
        try:
            _measure(context, ask, work, few if context.short else many, modes, others, len(works) - number)
        except RuntimeError as error:
            step.check("%s was measured" % work, False, str(error))
            for mode in modes + others:
                ask(mode, "drop")
    for mode, process in running.items():
        process.say("quit\n")
    for mode, process in running.items():
        ended = process.end(max(1, min(20, context.left() - 1)))
        step.check("ends well: %s" % mode, ended.good, None if ended.good else ended.why())
    rows = []
    for mode, report in reports.items():
        seen = read(report) if report else None
        if seen and seen["gpus"]:
            gpu = seen["gpus"][0]
            nvml = gpu["nvml"] or {}
            told = nvml.get("job_peak_bytes"), nvml.get("remainder_bytes")
            rows.append({"mode": mode, "reserved by PyTorch, MiB": reserved[mode] >> 20,
                         "by the shim, MiB": gpu["peak_bytes"] >> 20, "by NVML, MiB": told[0] and told[0] >> 20,
                         "remainder, MiB": told[1] and told[1] >> 20, "launches": seen["launches"],
                         "kernels": len(seen["kernels"])})
            step.check("the shim's peak holds what PyTorch reserved: %s" % mode, gpu["peak_bytes"] >= reserved[mode],
                       "%d and %d bytes" % (gpu["peak_bytes"], reserved[mode]))
    step.figure("memory", rows)


def _measure(context, ask, work, count, modes, others, works_left):
    """Rounds of steps of one work, each mode in turn, for this work's part of the time that is left."""
    step = context.step
    # Loaded and warmed one after the other: compilers and autotuners must not disturb each other.
    for mode in modes + others:
        ask(mode, "load %s" % work)
    for mode in others:
        # Setting CUPTI up takes seconds.
        ask(mode, "profile 1")
    until = context.left() - (context.left() - 12) / works_left
    found, rounds = {mode: [] for mode in modes + others}, 0
    while rounds < (1 if context.short else 40) and (context.left() > until or rounds == 0):
        # The order turns, so that no mode always follows the same other.
        for mode in modes[rounds % len(modes):] + modes[:rounds % len(modes)]:
            found[mode].append(ask(mode, "run %d" % count)["seconds"] / count)
        rounds += 1
        for mode in others if rounds <= 3 else []:
            found[mode].append(ask(mode, "profile %d" % count)["seconds"] / count)
    base = found["no shim"]
    rows = []
    for mode, taken in found.items():
        ratios = [one / other for one, other in zip(taken, base)]
        rows.append({
            "mode": mode, "ms per step": statistics.median(taken) * 1e3,
            "over no shim, %": 100 * (statistics.median(ratios) - 1),
            "quartiles, %": " to ".join("%+.2f" % (100 * (q - 1)) for q in quartiles(ratios)),
        })
    step.figure("%s, %d rounds of %d steps" % (work, rounds, count), rows)
    step.check("%s was measured" % work, True, "%d rounds" % rounds)
    for mode in modes + others:
        ask(mode, "drop")


def quartiles(values):
    if len(values) < 2:
        return values * 2
    cut = statistics.quantiles(values, n=4)
    return cut[0], cut[2]
