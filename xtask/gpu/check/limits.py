"""Limits on memory and on launches."""

import json
import os
import shutil
import signal
import statistics
import tempfile
import time

import processes
import setting
from machine import read

GIB = 1 << 30


def frameworks(context):
    """PyTorch and JAX under a quota: more than it is an out-of-memory error, after which they go on."""
    step, machine = context.step, context.machine
    commands, names = [], []
    if machine.has(machine.pythons["torch"], "torch"):
        step.check("PyTorch under a quota", None, "torch is not installed")
    else:
        launched, env, report = machine.framework("torch", "torch_quota.py", options=["--mem-limit", "4GiB"])
        commands.append((launched, env))
        names.append(("PyTorch", report))
    if context.short:
        step.remark("JAX is left out of a short run")
    elif machine.has(machine.pythons["jax"], "jax"):
        step.check("JAX under a quota", None, "jax is not installed")
    else:
        # Preallocation as it is by default: three quarters of what JAX takes for the card.
        launched, env, report = machine.framework("jax", "jax_quota.py", options=["--mem-limit", "6GiB"])
        commands.append((launched, env))
        names.append(("JAX", report))
    if not names:
        raise setting.Missing("neither PyTorch nor JAX is installed")
    for (name, report), ended in zip(names, processes.run_together(commands, context.left() - 2)):
        if not step.check("%s goes on after it was refused" % name, ended.good, None if ended.good else ended.why()):
            continue
        said = json.loads(ended.out.splitlines()[-1])
        limit = said.pop("limit")
        step.check("%s sees the quota as the card" % name, said["seen_total"] == limit, "%d bytes" % said["seen_total"])
        # What it computes after it was refused; an emulated GPU gives zeros.
        right = said.pop("right")
        step.check("%s computes after it was refused" % name, machine.emulate or said["after"] == right, said["after"])
        seen = read(report)
        peak = seen["gpus"][0]["peak_bytes"]
        step.check("%s never held more than the quota" % name, peak <= limit, "%.2f of %.2f GiB" % (peak / GIB, limit / GIB))
        step.check("%s was refused by its own exception" % name, said["refused"], said)
        if name == "PyTorch":
            # JAX has all that it may take from the beginning, and refuses by itself.
            step.check("%s: the refusals are in the report" % name, seen["failed_requests_total"] > 0,
                       seen["failed_requests_total"])
        step.figure(name, said)


def user(context):
    """Two processes of one user under the user's quota: together they never hold more."""
    step, machine = context.step, context.machine
    if machine.emulate is None and os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        raise setting.Missing("no GPU is visible")
    config = os.path.join(machine.scratch, "radrm.toml")
    limit = 3 * GIB
    with open(config, "w") as file:
        file.write('[default]\nmem-limit = "3GiB"\n')
    script = os.path.join(machine.work, "greedy.py")
    running, reports = [], []
    for _ in range(2):
        launched, env, report = machine.watched([machine.python, script], [], {"RADRM_CONFIG": config})
        running.append(processes.Running(launched, env))
        reports.append(report)
    ready = [one.line(min(15, context.left() - 2)) for one in running]
    step.check("both start under the limit", ready == ["ready"] * 2, ready)
    for one in running:
        one.say("go\n")
    lines = [json.loads(one.line(min(15, context.left() - 2))) for one in running]
    together = sum(line["held"] for line in lines)
    block = lines[0]["block"]
    step.check("together they hold no more than the limit", together <= limit, "%d of %d bytes" % (together, limit))
    # Each context is charged too, where its size is known.
    overhead = sum(line.get("context", 0) for line in lines)
    step.figure("bytes", {"limit": limit, "held by each": str([line["held"] for line in lines]), "block": block,
                          "left over": limit - together, "contexts": overhead})
    step.check("both were refused in the end", all(line["refused"] == 2 for line in lines), [l["refused"] for l in lines])
    for one in running:
        one.say("end\n")
    ended = [one.end(10) for one in running]
    step.check("both end well", all(e.good for e in ended), [e.why() for e in ended if not e.good] or None)


# Tries of each comparison of throughputs.
TRIES = 3


def budget(context):
    """Two programs that only launch kernels, with 30 % and 70 % of the GPU's time: their throughput."""
    step, machine, built = context.step, context.machine, context.shared.get("built", {})
    helped = processes.run([machine.tool("radrm-run"), "--help"], 10, machine.environment())
    if "--sm-limit" not in helped.out:
        raise setting.Missing("this radrm-run has no --sm-limit")
    if "shares" not in built:
        raise setting.Missing("the measuring program was not built")
    seconds = 2

    def filled(kind, shares):
        """Kernels that each of these did in the same seconds."""
        command = [built["shares"], kind, str(seconds)]
        runs = [machine.bare(command) if share is None else machine.watched(command, ["--sm-limit", share])[:2]
                for share in shares]
        running = [processes.Running(*run) for run in runs]
        for one in running:
            one.line(min(15, context.left() - 2))
        for one in running:
            one.say("\n")
        ended = [one.end(max(1, min(10 + 3 * seconds, context.left() - 1))) for one in running]
        bad = [one.why() for one in ended if not one.good]
        if bad:
            raise RuntimeError("; ".join(bad))
        return [int(one.out.split()[-1]) for one in ended]

    def holds(what, shares):
        """The middle one of several tries has to fit; the result has all of them."""
        middle = statistics.median(shares)
        step.check("%s, within 10 %%" % what, abs(middle / 0.3 - 1) <= 0.1,
                   "%.3f in the middle of %s" % (middle, ", ".join("%.3f" % share for share in shares)))

    for kind in ("launches",) if context.short else ("launches", "graphs"):
        rows = []
        for _ in range(TRIES):
            if rows and context.left() < 15:
                step.remark("%s: no time for another try" % kind)
                break
            # Each beside its own measure: the machine's other work comes and goes.
            alone, limited = filled(kind, [None])[0], filled(kind, ["30%"])[0]
            first, second = filled(kind, ["30%", "70%"])
            rows.append({
                "kernels alone": alone, "alone with 30 %": limited, "30 % beside 70 %": first, "70 % beside 30 %": second,
                "alone, share": limited / max(1, alone), "beside, share of the first": first / max(1, first + second),
                "both together, % of alone": 100 * (first + second) / max(1, alone),
            })
            step.figure(kind, rows)
        holds("%s: alone with 30 %% it does 30 %% of what it does alone" % kind, [row["alone, share"] for row in rows])
        holds("%s: beside each other they do 30 to 70" % kind, [row["beside, share of the first"] for row in rows])


def mps(context):
    """NVIDIA's Multi-Process Service, started for this in a directory of its own, and ended."""
    step, machine = context.step, context.machine
    if machine.emulate:
        raise setting.Missing("not on emulated GPUs")
    found = [shutil.which("nvidia-cuda-mps-control"), "/usr/local/nvidia/bin/nvidia-cuda-mps-control"]
    control = next((path for path in found if path and os.path.exists(path)), None)
    if not control:
        raise setting.Missing("nvidia-cuda-mps-control is not here")
    # Names of sockets are short.
    pipes = tempfile.mkdtemp(prefix="rmps")
    own = {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": pipes,
           "PATH": os.path.dirname(control) + os.pathsep + os.environ.get("PATH", "")}
    env = machine.environment(own)
    try:
        started = processes.run(["sh", "-c", "nvidia-cuda-mps-control -d </dev/null >%s/said 2>&1" % pipes], 10, env)
        if not started.good:
            raise setting.Missing("its control daemon does not start: %s" % started.why())
        command = [machine.tool("radrm-kernels"), "run", "spin", "--seconds", "1", "--blocks", "32", "--must-execute"]
        plain = processes.run_together([(command, env)] * 2, 15)
        if not all(e.good for e in plain):
            raise setting.Missing("programs do not run under it: %s" % [e.why() for e in plain if not e.good])
        server = processes.run(["sh", "-c", "echo get_server_list | nvidia-cuda-mps-control"], 5, env)
        step.figure("server", server.out.strip())
        runs = [machine.watched(command, ["--mem-limit", "2GiB"], own) for _ in range(2)]
        ended = processes.run_together([run[:2] for run in runs], 15)
        step.check("two clients run under the shim with a quota", all(e.good for e in ended),
                   [e.why() for e in ended if not e.good] or None)
        for run in runs:
            seen = read(run[2])
            step.check("a client's launches are counted", seen and seen["launches"] > 0, seen and seen["launches"])
    finally:
        processes.run(["sh", "-c", "echo quit | timeout 5 nvidia-cuda-mps-control"], 8, env)
        time.sleep(0.3)
        _end(os.path.join(pipes, "nvidia-cuda-mps-control.pid"))
        shutil.rmtree(pipes, ignore_errors=True)


def _end(file):
    """Kills the daemon that wrote this file, should it not have ended as it was told."""
    try:
        with open(file) as text:
            os.kill(int(text.read()), signal.SIGKILL)
    except (OSError, ValueError):
        pass
