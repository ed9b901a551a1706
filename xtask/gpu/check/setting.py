"""What the machine has, and the programs that are built on it."""

import glob
import json
import os
import platform
import shutil

import processes


class Missing(Exception):
    """What a step needs is not on this machine."""


def look(context):
    """What this machine has: GPU, driver, tools, Python packages."""
    step, machine, head = context.step, context.machine, context.shared["head"]
    head["host"] = "%s, %d processors, %s, glibc %s" % (
        platform.platform(), os.cpu_count() or 0, processor(), platform.libc_ver()[1])
    asked = processes.run(*_first(machine.bare([machine.python, machine.work + "/gpu_facts.py"]), 20))
    facts = json.loads(asked.out) if asked.good else {}
    for key in ("gpu", "driver", "cuda_driver"):
        head[key] = facts.get(key)
    context.shared["facts"] = facts
    step.check("NVML answers", asked.good, None if asked.good else asked.why())
    for key, value in facts.items():
        step.figure(key, value)
    packages = {}
    code = ("import importlib.metadata as m,sys\nfor n in sys.argv[1:]:\n"
            "    try: print(n, m.version(n))\n    except m.PackageNotFoundError: pass\n")
    names = ["torch", "torchvision", "triton", "jax", "jaxlib", "cupy-cuda13x", "cupy-cuda12x", "numba-cuda",
             "cuda-bindings", "nvidia-ml-py", "nvidia-cuda-nvrtc", "numpy"]
    for python in {machine.python, *machine.pythons.values()}:
        for line in processes.run([python, "-c", code, *names], 20).out.splitlines():
            name, version = line.split()
            packages[name] = version
    step.figure("packages", packages)
    tools = {}
    for tool in ("nvcc", "gcc", "nsys", "ncu", "nvidia-cuda-mps-control", "dcgmi"):
        tools[tool] = machine.nvcc() if tool == "nvcc" else shutil.which(tool)
    step.figure("tools", tools)
    for tool in ("radrm-run", "radrm", "radrmd", "radrm-kernels"):
        ran = processes.run([machine.tool(tool), "--version"], 10, machine.environment())
        step.check("%s starts here" % tool, ran.good, ran.out.strip() if ran.good else ran.why())


def _first(pair, seconds):
    """Arguments for processes.run."""
    command, env = pair
    return command, seconds, env


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


# C programs that talk to the driver, with the arguments of each run.
DRIVER_PROGRAMS = {
    "captures": [[]],
    "copies": [[]],
    "default_handle": [[]],
    "destructors": [[]],
    "dlerrors": [[]],
    "ends": [["return"], ["exit"], ["_exit"], ["quick_exit"], ["abort"], ["pthread_exit"], ["signal"],
             ["thread_exits"]],
    "execs": [["3"]],
    "mixed_threads": [["7"]],
    "steps": [[]],
    "storm": [["2000", "64"]],
    "threads": [[]],
    "versions": [[]],
}
RUNTIME_BUILDS = {
    "static": ["-cudart", "static"],
    "shared": ["-cudart", "shared"],
    "per-thread-stream": ["-cudart", "static", "--default-stream", "per-thread"],
}


def build(context):
    """Programs that are compiled where they run: with gcc against the driver, with nvcc against the runtime."""
    step, machine = context.step, context.machine
    out = os.path.join(machine.scratch, "built")
    os.makedirs(out, exist_ok=True)
    built = context.shared["built"] = {}
    if not shutil.which("gcc"):
        raise Missing("gcc is not here")
    programs = os.path.join(machine.bundle, "programs")
    commands, names = [], []
    for name in [*DRIVER_PROGRAMS, "shares"]:
        source = os.path.join(programs, name + ".c")
        commands.append((["gcc", "-O2", "-std=gnu11", "-w", "-I", programs, "-o", os.path.join(out, name), source,
                          "-ldl", "-lpthread"], machine.environment()))
        names.append(name)
    commands.append((["gcc", "-O2", "-std=gnu11", "-Wall", "-I", programs, "-o", os.path.join(out, "costs"),
                      os.path.join(machine.work, "costs.c"), "-ldl"], machine.environment()))
    names.append("costs")
    nvcc = machine.nvcc()
    capability = context.shared.get("facts", {}).get("compute_capability", "9.0")
    architecture = "-arch=sm_" + capability.replace(".", "")
    for name, flags in RUNTIME_BUILDS.items():
        if nvcc:
            target = os.path.join(out, "runtime-" + name)
            commands.append(([nvcc, "-O2", architecture, *flags, "-o", target,
                              os.path.join(machine.work, "runtime.cu")], machine.environment()))
            names.append("runtime-" + name)
    for name, ended in zip(names, processes.run_together(commands, context.left() - 2)):
        if step.check("%s is built" % name, ended.good, None if ended.good else ended.why()):
            built[name] = os.path.join(out, name)
    if not nvcc:
        step.remark("nvcc is not here: nothing is built against the CUDA runtime")


def library_folders():
    """Folders of a shared CUDA runtime, for programs that were linked with it."""
    return [folder for folder in ["/usr/local/cuda/lib64", *glob.glob("/usr/local/cuda-1*/lib64")]
            if os.path.isdir(folder)]
