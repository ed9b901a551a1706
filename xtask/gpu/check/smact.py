"""SM activity by the shapes of launches beside what the GPU counts."""

import json
import os
import statistics

import processes
import setting
from machine import read

# Kernel, blocks, threads per block, operations for each element. `spin` keeps its blocks busy for some 10 us for every
# 4096 of them; `square` is over at once, so that the GPU idles between launches, as in the thesis that used it.
SHORT, LONG, LONGEST = 4096, 65536, 524288
GRID = [("spin", blocks, threads, SHORT) for blocks in (1, 33, 66, 200, 528, 2112) for threads in (32, 256, 1024)]
GRID += [("spin", blocks, 1024, spins) for blocks in (33, 132, 300) for spins in (LONG, LONGEST)]
GRID += [("square", blocks, threads, SHORT) for blocks in (128, 8192, 131072) for threads in (32, 1024)]
BRIEF = [("spin", 66, 256, SHORT), ("spin", 66, 256, LONG), ("spin", 300, 1024, LONG), ("square", 8192, 256, SHORT)]

# The shape of a launch tells what it has at work while its blocks run, and the time between its events is longer than
# that by what the GPU takes to begin and to end it, 1 to 3 us. So for kernels of at least so many us the two have to
# agree within so many points; how far apart they are for others is told and not judged.
LEAST_US, POINTS = 50.0, 5.0
LENGTHS = (10.0, LEAST_US, 500.0)

# What an operation of `spin` takes a block on an emulated GPU, which executes none: as on a real one, 4 cycles.
EMULATED_NS = 2.3


def by_length(rows):
    """Differences in SM activity by how long the kernels take: from, to (us), how many, median, largest."""
    bounds = (0.0, *LENGTHS, float("inf"))
    told = []
    for least, most in zip(bounds, bounds[1:]):
        points = [row["difference, points"] for row in rows if least <= row["us per launch"] < most]
        if points:
            told.append({"us from": least, "us to": None if most == float("inf") else most, "cells": len(points),
                         "median, points": statistics.median(points), "largest, points": max(points)})
    return told


def judge(step, rows):
    """Says how far the estimate is from what the GPU counted, and checks it where it has to fit."""
    known = [row for row in rows if None not in (row["SM activity, %"], row["GPM's"])]
    for row in known:
        row["difference, points"] = abs(row["SM activity, %"] - row["GPM's"])
    what = "kernels of %g us and more: SM activity is within %g points of GPM's" % (LEAST_US, POINTS)
    if not known:
        step.check(what, False, "GPM or the estimate is missing in all cells")
        return
    points = [row["difference, points"] for row in known]
    step.figure("difference in SM activity, points", {"median": statistics.median(points), "largest": max(points),
                                                      "cells": len(known)})
    step.figure("difference by length of the kernels", by_length(known))
    judged = [row for row in known if row["us per launch"] >= LEAST_US]
    far = ["%s %d x %d, %.0f us: %.1f, GPM %.1f" % (row["kernel"], row["blocks"], row["threads"], row["us per launch"],
                                                  row["SM activity, %"], row["GPM's"])
           for row in judged if row["difference, points"] > POINTS]
    step.check(what, judged and not far, "; ".join(far) or "%d cells" % len(judged))


def emulated(machine, spins):
    """Kernels of an emulated GPU take as long as a table says, blocks and waves or not."""
    if not machine.emulate:
        return None
    table = os.path.join(machine.scratch, "kernel-times")
    with open(table, "w") as file:
        file.write("spin %d\n" % (spins * EMULATED_NS))
    return {"RADRM_EMULATOR_KERNEL_TIMES": table}


def grid(context):
    """SM activity and occupancy over a grid of blocks and threads: estimated by the shim, and GPM's."""
    step, machine = context.step, context.machine
    if machine.has(machine.python, "pynvml"):
        raise setting.Missing("nvidia-ml-py is not installed")
    watch = processes.Running(*machine.bare([machine.python, os.path.join(machine.work, "gpm_watch.py")]))
    first = watch.line(15)
    if first != "ready":
        raise setting.Missing("no GPM: %s" % first)
    rows = []
    for kernel, blocks, threads, spins in BRIEF if context.short else GRID:
        if context.left() < 6:
            step.remark("no time for the rest of the grid from %s, %d x %d on" % (kernel, blocks, threads))
            break
        command = [machine.tool("radrm-kernels"), "run", kernel, "--json", "--seconds", "1.3",
                   "--blocks", str(blocks), "--threads", str(threads), "--spins", str(spins)]
        # Every launch, so that what is compared is the model of activity and not the sampling of times.
        launched, env, report = machine.watched(command, ["--kernels", "all"], emulated(machine, spins))
        ended = processes.run(launched, min(20, context.left() - 1), env)
        if not ended.good:
            step.check("%s with %d x %d runs" % (kernel, blocks, threads), False, ended.why())
            continue
        work = json.loads(ended.out.splitlines()[-1])
        watch.say("%d %d\n" % tuple(work["span_ns"]))
        gpm = json.loads(watch.line(5))
        seen = read(report)
        estimates = {f["name"]: f["value"] for p in seen["processes"] for f in p["features"]}
        activity, occupancy = (estimates.get("sm_%s_by_geometry" % what) for what in ("active", "occupancy"))
        count = work["kernels"][kernel]["launches"]
        rows.append({
            "kernel": kernel, "blocks": blocks, "threads": threads, "us per launch": work["gpu_seconds"] * 1e6 / count,
            "SM activity, %": activity, "GPM's": gpm["sm_util"], "occupancy, %": occupancy,
            "GPM's ": gpm["sm_occupancy"], "GPM samples": gpm["samples"],
        })
    step.figure("grid", rows)
    judge(step, rows)
    watch.kill()
