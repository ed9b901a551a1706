"""What calls of the driver cost, with and without the shim."""

import json
import statistics

import processes
import setting

# Options of radrm-run; None is without the shim.
MODES = {
    "no shim": None,
    "off": ["--kernels", "off"],
    "count": ["--kernels", "count"],
    "sample": ["--kernels", "sample"],
    "all": ["--kernels", "all"],
}


def calls(context):
    """Calls of the driver on the host, in nanoseconds: without the shim and with it, in turn, medians of rounds."""
    step, machine, built = context.step, context.machine, context.shared.get("built", {})
    if "costs" not in built:
        raise setting.Missing("the measuring program was not built")
    command = [built["costs"], "5" if context.short else "60"]
    rounds, found = 1 if context.short else 7, {mode: [] for mode in MODES}
    for done in range(rounds):
        for mode, options in MODES.items():
            if options is None:
                run = machine.bare(command)
            else:
                run = machine.watched(command, options)[:2]
            ended = processes.run(run[0], max(1, min(15, context.left() - 1)), run[1])
            if ended.good:
                found[mode].append(json.loads(ended.out))
            elif done == 0:
                step.check("the measuring program runs: %s" % mode, False, ended.why())
        if context.left() < 12:
            break
    if not found["no shim"]:
        return
    rows = []
    for call in found["no shim"][0]:
        row = {"call": call}
        for mode, runs in found.items():
            row[mode] = statistics.median(run[call] for run in runs) if runs else None
        rows.append(row)
    step.figure("nanoseconds per call", rows)
    step.figure("rounds", len(found["no shim"]))
    step.check("measured with and without the shim", all(found.values()))
