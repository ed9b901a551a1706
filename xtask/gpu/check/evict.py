"""Taking a running program off the GPU and putting it back."""

import json
import os

import processes
import setting


def checkpoint(context):
    """A PyTorch process under the shim, checkpointed by the driver and restored: it goes on with the same memory."""
    step, machine = context.step, context.machine
    if machine.has(machine.pythons["torch"], "torch"):
        raise setting.Missing("torch is not installed")
    if machine.emulate:
        # On stand-ins a dry run has a machine of its own, which no other process can reach.
        command = [machine.python, os.path.join(machine.work, "hold.py"), "256"]
        launched, env, _ = machine.watched(command)
    else:
        launched, env, _ = machine.framework("torch", "torch_hold.py", ["2048" if not context.short else "256"], options=[])
    program = processes.Running(launched, env)
    held = json.loads(program.line(min(30, context.left() - 5)))
    helper = [machine.python, os.path.join(machine.work, "checkpoint.py"), str(held["pid"])]
    ended = processes.run(*_with(machine.bare(helper), min(25, context.left() - 5)))
    lines = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    answer = lines[-1] if lines else {"error": ended.why()}
    if answer.get("missing"):
        raise setting.Missing(answer["missing"])
    step.figure("by the driver", answer)
    step.check("locked, checkpointed, restored and unlocked", "error" not in answer, answer.get("error"))
    if answer.get("freed_mib") is not None:
        step.check("the GPU's memory was given back meanwhile", answer["freed_mib"] >= 0.9 * held["mib"],
                   "%.0f MiB of %d" % (answer["freed_mib"], held["mib"]))
    program.say("check\n")
    try:
        after = json.loads(program.line(min(15, max(1, context.left() - 2))))
        step.check("its memory is what it was, and it computes", after["same"] and after["computes"], after)
    except (processes.Late, processes.Gone) as error:
        step.check("its memory is what it was, and it computes", False, str(error))
    last = program.end(min(10, max(1, context.left() - 1)))
    step.check("it ends well", last.good, None if last.good else last.why())


def _with(pair, seconds):
    return pair[0], seconds, pair[1]
