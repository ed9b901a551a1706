"""SM activity by the shapes of launches beside what the GPU counts."""

import json
import os
import statistics

import processes
import setting
from machine import read

# Kernel, blocks, threads per block. `spin` keeps its blocks busy for some 10 us; `square` is over at once, so that
# the GPU idles between launches, as in the thesis that used it.
GRID = [("spin", blocks, threads) for blocks in (1, 33, 66, 132, 200, 528, 2112) for threads in (32, 256, 1024)]
GRID += [("square", blocks, threads) for blocks in (128, 8192, 131072) for threads in (32, 256, 1024)]
BRIEF = [("spin", 66, 256), ("square", 8192, 256)]


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
    for kernel, blocks, threads in BRIEF if context.short else GRID:
        if context.left() < 6:
            step.remark("no time for the rest of the grid from %s, %d x %d on" % (kernel, blocks, threads))
            break
        command = [machine.tool("radrm-kernels"), "run", kernel, "--json", "--seconds", "1.3",
                   "--blocks", str(blocks), "--threads", str(threads)]
        # Every launch, so that what is compared is the model of activity and not the sampling of times.
        launched, env, report = machine.watched(command, ["--kernels", "all"])
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
    pairs = [(r["SM activity, %"], r["GPM's"]) for r in rows if None not in (r["SM activity, %"], r["GPM's"])]
    if pairs:
        differences = [abs(ours - theirs) for ours, theirs in pairs]
        step.figure("difference in SM activity, points", {"median": statistics.median(differences),
                                                          "largest": max(differences), "cells": len(pairs)})
        step.check("cells were compared", True, "%d" % len(pairs))
    else:
        step.check("cells were compared", False, "GPM or the estimate is missing in all of them")
    watch.kill()
