"""The shim's sums beside NVML's figure of the process."""

import json
import os

import processes
import setting
from machine import read


def ladder(context):
    """Memory of each family, step by step: what was asked for, what the shim says, what NVML says."""
    step, machine = context.step, context.machine
    if machine.has(machine.python, "pynvml"):
        raise setting.Missing("nvidia-ml-py is not installed")
    command = [machine.python, os.path.join(machine.work, "memory_ladder.py"), "1" if context.short else "8"]
    launched, env, report = machine.watched(command)
    ended = processes.run(launched, context.left() - 2, env)
    if not step.check("the ladder runs", ended.good, None if ended.good else ended.why()):
        return
    rungs = [json.loads(line) for line in ended.out.splitlines()]
    step.figure("rungs", [{key: rung[key] for key in ("rung", "asked_mib", "nvml_mib", "used_mib")} for rung in rungs])
    listed = [rung for rung in rungs if rung["nvml_mib"] is not None]
    if listed:
        first = next(rung for rung in listed if rung["asked_mib"] == 0)
        step.figure("context and code, MiB by NVML", first["nvml_mib"])
        worst = max(abs(rung["nvml_mib"] - first["nvml_mib"] - rung["asked_mib"]) /
                    max(1.0, rung["nvml_mib"]) for rung in listed)
        step.figure("largest difference between NVML's growth and what was asked for, share of NVML's figure", worst)
        step.check("NVML's growth is what was asked for, within 2 %", worst <= 0.02, "%.4f" % worst)
    else:
        step.check("NVML tells the memory of the process", None, "it lists no process of this one's id")
    seen = read(report)
    asked = max(rung["asked_mib"] for rung in rungs) * (1 << 20)
    gpu = seen["gpus"][0]
    for kind, call in (("device", "cuMemAlloc"), ("vmm", "cuMemCreate"), ("pool_used", "cuMemAllocAsync")):
        of_kind = sum(rung["grown_mib"] for rung in rungs if rung["rung"] == call) * (1 << 20)
        told = gpu["kinds"][kind]["peak_bytes"]
        step.check("the shim's peak of %s is what was asked for" % call, told == of_kind,
                   "%d bytes asked, %d by the shim" % (of_kind, told))
    # What a pool keeps is the driver's to say; it takes memory in chunks.
    step.check("the shim's peak of all is what was asked for, and at most a pool's chunk more",
               0 <= gpu["peak_bytes"] - asked <= 64 << 20, "%d bytes asked, %d by the shim" % (asked, gpu["peak_bytes"]))
    left = {kind: gpu["kinds"][kind]["now_bytes"] + gpu["kinds"][kind]["unfreed_bytes"] for kind in gpu["kinds"]}
    step.check("nothing is left at the end", not any(left.values()), {k: v for k, v in left.items() if v} or None)
    told = gpu["nvml"] or {}
    if told.get("job_peak_bytes") is not None and listed:
        top = max(rung["nvml_mib"] for rung in listed)
        step.check("radrm-run read the same from NVML, within 2 %",
                   abs(told["job_peak_bytes"] / (1 << 20) - top) <= 0.02 * top,
                   "%.0f MiB, the program itself %.0f MiB" % (told["job_peak_bytes"] / (1 << 20), top))
        step.figure("remainder by radrm-run, MiB", (told["remainder_bytes"] or 0) / (1 << 20))
        share = (gpu["peak_bytes"] + (told["remainder_bytes"] or 0)) / told["job_peak_bytes"]
        step.figure("sum of the shim and remainder, share of NVML's figure", share)
        step.check("the shim's sum and the remainder are NVML's figure, within 2 %", abs(share - 1) <= 0.02, "%.4f" % share)
