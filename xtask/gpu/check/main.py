"""Runs the steps one after the other, each with a time limit, and writes what they found."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import accounting
import conformance
import costs
import evict
import limits
import processes
import report
import setting
import smact
import training
from machine import Machine

# Name, function, limit in seconds. Together the limits are more than there is; what is not used is there for
# the steps after it, and training takes what is left, for as many rounds as fit.
STEPS = [
    ("setting", setting.look, 20),
    ("build", setting.build, 60),
    ("kernels", conformance.kernels, 40),
    ("conformance-driver", conformance.driver, 60),
    ("conformance-runtime", conformance.runtime, 40),
    ("conformance-frameworks", conformance.frameworks, 110),
    ("accounting", accounting.ladder, 40),
    ("calls", costs.calls, 45),
    ("quota", limits.frameworks, 60),
    ("user-quota", limits.user, 25),
    ("checkpoint", evict.checkpoint, 45),
    ("budget", limits.budget, 60),
    ("sm-activity", smact.grid, 75),
    ("training", training.steps, 220),
    ("mps", limits.mps, 25),
]


class OutOfTime(BaseException):
    """Not an Exception: a step that catches its own failures must not catch this."""


def alarm(_signal, _frame):
    raise OutOfTime


class Context:
    """What a step has: the machine, its own record, whether to be brief, and what earlier steps left."""

    def __init__(self, machine, step, short, left, shared):
        self.machine, self.step, self.short, self.shared = machine, step, short, shared
        self.end = time.monotonic() + left

    def left(self):
        """Seconds until its limit."""
        return self.end - time.monotonic()



def warm_up(machine):
    """Reads the frameworks' files in the background: the first import on a fresh machine takes a minute."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    imports = ("import torch, torchvision", "import jax, jaxlib", "import cupy, numba", "import triton, numpy")
    return [subprocess.Popen([machine.python, "-c", one], env=machine.environment(), **quiet) for one in imports]


def perform(step, function, machine, short, left, shared):
    began = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, left)
    try:
        function(Context(machine, step, short, left, shared))
        step.status = "failed" if any(c["holds"] is False for c in step.checks) else "passed"
        if step.status == "passed" and not any(c["holds"] for c in step.checks) and not step.figures:
            step.status, step.reason = "missing", "nothing could be checked"
    except OutOfTime:
        step.status, step.reason = "late", "stopped after %.0f s" % left
    except setting.Missing as error:
        step.status, step.reason = "missing", str(error)
    except Exception as error:
        step.status, step.reason = "failed", "%s: %s" % (type(error).__name__, str(error)[:300])
        step.remark(traceback.format_exc().strip().replace("\n", " / ")[-600:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        # What was still running is ended, and what it had said is kept.
        for running in list(processes.Running.everything):
            running.end(0.2)
        step.seconds = time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    parser.add_argument("out", metavar="OUT", help="folder for result.json and summary.md")
    parser.add_argument("--only", default="", help="these steps only, by name, with commas")
    parser.add_argument("--budget", type=float, default=520, help="seconds for all steps together")
    parser.add_argument("--emulate", help="run on emulated GPUs")
    parser.add_argument("--libraries", help="folder of the emulated libraries")
    parser.add_argument("--short", action="store_true", help="less of everything")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.only.split(",") if name]
    unknown = sorted(set(wanted) - {name for name, _, _ in STEPS})
    if unknown:
        parser.error("there is no step %s; there are %s" % (", ".join(unknown), ", ".join(n for n, _, _ in STEPS)))

    began = time.monotonic()
    bundle = os.path.dirname(HERE)
    with open(os.path.join(bundle, "manifest.json")) as file:
        manifest = json.load(file)
    machine = Machine(bundle, arguments.emulate, arguments.libraries and os.path.abspath(arguments.libraries))
    head = {"gpu": None, "driver": None, "cuda_driver": None, "emulated": arguments.emulate,
            "commit": manifest.get("commit"), "short": arguments.short, "bundle": manifest}
    functions = {name: function for name, function, _ in STEPS}
    steps = [report.Step(name, (function.__doc__ or "").strip(), limit) for name, function, limit in STEPS
             if not wanted or name in wanted]
    page = report.Report(arguments.out, head, steps)
    processes.log = os.path.join(arguments.out, "log.txt")
    with open(processes.log, "w") as file:
        file.write("What programs said that did not end with 0; some are meant to.\n")
    signal.signal(signal.SIGALRM, alarm)
    shared = {"head": head}
    warming = [] if machine.emulate else warm_up(machine)
    try:
        for step in steps:
            left = arguments.budget - (time.monotonic() - began)
            if step.name == "training":
                left -= sum(later.limit for later in steps[steps.index(step) + 1:])
            # On emulated GPUs nothing is measured, and a slow machine may take its time.
            left = min(step.limit * (3 if machine.emulate else 1), left)
            if left < 5:
                step.reason = "no time was left"
                continue
            print("%6.1f s  %s ..." % (time.monotonic() - began, step.name), flush=True)
            perform(step, functions[step.name], machine, arguments.short, left, shared)
            print("%6.1f s  %s: %s%s" % (time.monotonic() - began, step.name, step.status,
                                         " (%s)" % step.reason if step.reason else ""), flush=True)
            for check in step.checks:
                if check["holds"] is False:
                    print("            NO: %s (%s)" % (check["what"], str(check["detail"])[:300]), flush=True)
            page.write()
    finally:
        for process in warming:
            process.kill()
            process.wait()
        machine.close()
        page.write()
    print(page.page().split("\n## ")[0], flush=True)
    bad = [step.name for step in steps if step.status in ("failed", "late")]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
