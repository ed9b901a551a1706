"""With the shim and without it: the same output, the same exit code."""

import json
import os
import re

import processes
import setting
from machine import read


# How the C programs end when a call of the driver did not do what they need.
OWN_FAILURES = (40, 41, 42, 43, 44)


def _same(step, what, without, again, under):
    """Compares a run under the shim with two without it. What differs between those two is the program's own."""
    if without.code in OWN_FAILURES and under.code == without.code:
        return step.check(what, None, "it fails without the shim too: %s" % without.why())
    if without.code != again.code:
        return step.check(what, None, "it ends differently each time: %s and %s" % (without.code, again.code))
    if under.code != without.code:
        return step.check(what, False, "exit code %s, without the shim %s: %s" % (
            under.code, without.code, under.why()))
    if _plain(without.out) != _plain(again.out):
        return step.check(what, True, "exit code %s; its output differs each time" % under.code)
    if _plain(under.out) != _plain(without.out):
        return step.check(what, False, _difference(_plain(without.out), _plain(under.out)))
    return step.check(what, True, "exit code %s, %d bytes of output" % (under.code, len(under.out)))


def _plain(text):
    """Output without process ids and the folders of libraries."""
    return re.sub(r"/\S*/(lib\S+\.so)", r"\1", re.sub(r"\bready \d+", "ready PID", text))


def _difference(one, other):
    for number, (a, b) in enumerate(zip(one.splitlines(), other.splitlines()), 1):
        if a != b:
            return "line %d: %r without the shim, %r with it" % (number, a[:150], b[:150])
    return "%d lines without the shim, %d with it" % (len(one.splitlines()), len(other.splitlines()))


def kernels(context):
    """Small programs of known work: their results are right, and what the shim counts is what they did."""
    step, machine = context.step, context.machine
    execute = [] if machine.emulate else ["--must-execute"]
    rounds = "20" if context.short else "200"
    command = [machine.tool("radrm-kernels"), "run", "all", "--json", "--mib", "96", "--rounds", rounds, *execute]
    plain, env = machine.bare(command)
    without = processes.run(plain, 30, env)
    step.check("all programs run without the shim, results right", without.good, None if without.good else without.why())
    launched, env, report = machine.watched(command, ["--kernels", "all"])
    under = processes.run(launched, 30, env)
    step.check("all programs run under the shim, results right", under.good, None if under.good else under.why())
    lines = [json.loads(line) for line in under.out.splitlines() if line.startswith("{")]
    works, seen = lines[1:], read(report) or {}
    step.figure("kernels_from", lines[0]["kernels_from"] if lines else None)
    expected = {}
    for work in works:
        for name, known in work["kernels"].items():
            row = expected.setdefault(name, [0, 0, 0])
            for place, key in enumerate(("launches", "graph_launches", "blocks")):
                row[place] += known[key]
    counted = {k["name"]: [k["launches"], k["graph_launches"], k["blocks"]] for k in seen.get("kernels", [])}
    for name, known in expected.items():
        step.check("launches, graph launches and blocks of %s" % name, counted.get(name) == known,
                   "known %s, counted %s" % (known, counted.get(name)))
    rows = []
    times = {k["name"]: k.get("gpu_time") for k in seen.get("kernels", [])}
    for work in works:
        seconds = work["gpu_seconds"]
        own = [times[name] for name in work["kernels"] if times.get(name)]
        rows.append({
            "program": work["program"], "checked": work["checked"], "GPU ms": seconds and seconds * 1e3,
            "GPU ms by the shim": sum(t["total_ns"] for t in own) / 1e6 if own else None,
            "GB/s": seconds and work["bytes"] / seconds / 1e9, "GFLOP/s": seconds and work["flops"] / seconds / 1e9,
        })
    step.figure("known work", rows)
    plain, env = machine.bare(command)
    shipped = processes.run(plain, 30, dict(env, RADRM_NVRTC=""))
    step.check("the shipped PTX runs too", shipped.good, None if shipped.good else shipped.why())


def driver(context):
    """C programs against the driver, by dlsym and by cuGetProcAddress: forks, threads, captures, ways to end."""
    step, machine, built = context.step, context.machine, context.shared.get("built", {})
    runs = []
    for name, variants in setting.DRIVER_PROGRAMS.items():
        if name not in built:
            step.check(name, None, "it was not built")
            continue
        for arguments in variants if not context.short else variants[:1]:
            for route in ("dlsym", "proc"):
                runs.append((name, route, [built[name], *arguments]))
    # Few at a time: they are many processes each with a context of its own.
    for start in range(0, len(runs), 4):
        together, commands = runs[start:start + 4], []
        for _, route, command in together:
            for extra in ({"ROUTE": route},) * 2:
                commands.append(machine.bare(command, extra))
            commands.append(machine.watched(command, [], {"ROUTE": route})[:2])
        ended = processes.run_together(commands, min(20, context.left() - 1))
        for place, (name, route, command) in enumerate(together):
            what = " ".join([name, *command[1:], "by", route])
            _same(step, what, *ended[3 * place:3 * place + 3])


def runtime(context):
    """A CUDA C++ program, built by nvcc against the static and the shared runtime."""
    step, machine, built = context.step, context.machine, context.shared.get("built", {})
    names = [name for name in built if name.startswith("runtime-")]
    if not names:
        raise setting.Missing("nothing was built against the CUDA runtime")
    if machine.emulate:
        raise setting.Missing("NVIDIA's runtime does not start on an emulated driver")
    extra = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [*setting.library_folders(),
                                                             os.environ.get("LD_LIBRARY_PATH")]))}
    for name in names:
        plain = machine.bare([built[name]], extra)
        under = machine.watched([built[name]], ["--kernels", "all"], extra)
        ended = processes.run_together([plain, plain, under[:2]], min(30, context.left() - 1))
        if not ended[0].good:
            step.check(name, None, "it fails without the shim: %s" % ended[0].why())
            continue
        _same(step, name, *ended)
        expected = re.search(r"^launched (\d+) allocated (\d+)$", ended[2].out, re.M)
        seen = read(under[2])
        if not expected or not seen:
            step.check("%s: what is recorded" % name, False, "no report, or no figures of the program's own")
            continue
        launches = sum(k["launches"] for k in seen["kernels"] if "radrm_check" in k["mangled_name"])
        step.check("%s: its launches are counted" % name, launches == int(expected[1]),
                   "%d launched, %d counted" % (int(expected[1]), launches))
        peaks = [g["kinds"]["device"]["peak_bytes"] for g in seen["gpus"]]
        step.check("%s: its device memory is counted" % name, peaks and peaks[0] == int(expected[2]),
                   "%s bytes at its peak, %s counted" % (expected[2], peaks))


# Program, modules that it needs, and the framework on whose stand-ins it runs where GPUs are emulated: numba-cuda
# talks to the driver and needs none.
FRAMEWORKS = [
    ("torch_ops.py", ["torch"], "torch"),
    ("triton_ops.py", ["torch", "triton"], "torch"),
    ("numba_ops.py", ["numba", "numba_cuda", "numpy"], None),
    ("cupy_ops.py", ["cupy"], "cupy"),
    ("jax_ops.py", ["jax"], "jax"),
]


def frameworks(context):
    """PyTorch, Triton, numba-cuda, CuPy and JAX."""
    step, machine = context.step, context.machine
    ready, commands, reports = [], [], []
    for script, modules, framework in FRAMEWORKS[:3] if context.short else FRAMEWORKS:
        python = machine.pythons.get(framework, machine.python)
        lacks = machine.has(python, *modules)
        if lacks:
            step.check(script, None, "%s is not installed" % lacks)
            continue
        # JAX takes three quarters of the card unless it is told not to, and several run at the same time.
        extra = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "CUPY_CACHE_DIR": machine.scratch + "/cupy"}
        if framework:
            runs = [machine.framework(framework, script, options=options, extra=extra) for options in (None, None, [])]
        else:
            command = [python, os.path.join(machine.work, script)]
            plain = machine.bare(command, extra)
            runs = [(*plain, None)] * 2 + [machine.watched(command, [], extra)]
        ready.append(script)
        commands += [run[:2] for run in runs]
        reports.append(runs[2][2])
    if not ready:
        raise setting.Missing("no framework is installed")
    ended = processes.run_together(commands, context.left() - 2)
    for place, (script, report) in enumerate(zip(ready, reports)):
        runs = ended[3 * place:3 * place + 3]
        if not runs[0].good:
            step.check(script, None, "it fails without the shim: %s" % runs[0].why())
            continue
        _same(step, script, *runs)
        seen = read(report) or {}
        total = seen.get("launches", 0) + seen.get("graph_launches", 0)
        step.check("%s: its launches are seen" % script, total > 0, "%d launches" % total)
        step.figure(script, {"seconds without": runs[0].seconds, "with": runs[2].seconds, "launches": total,
                             "kernels": len(seen.get("kernels", [])), "peak MiB": sum(
                                 g["peak_bytes"] for g in seen.get("gpus", [])) >> 20})
