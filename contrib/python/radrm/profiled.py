"""Runs a script under PyTorch's profiler: ``python3 -m radrm.profiled OUT SCRIPT [ARGUMENT ...]``.

The trace of the first steps of its optimizers, or of all of it where it makes fewer, is written to ``OUT.json`` for
ui.perfetto.dev and TensorBoard. A profile of a whole training would not fit into memory. Without PyTorch the script runs as it is.
"""

import os
import runpy
import sys

STEPS = 50


def _profile(out):
    """Starts the profiler; returns a function that ends it and writes the trace, once."""
    try:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        print("radrm: no profile is written: PyTorch is not installed", file=sys.stderr)
        return lambda: None
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    recorded = profile(activities=activities, record_shapes=True)
    left = [STEPS]

    def end():
        if left[0] is None:
            return
        left[0] = None
        hook.remove()
        recorded.stop()
        recorded.export_chrome_trace(out + ".json")

    def step(*_):
        left[0] -= 1
        if left[0] <= 0:
            end()

    hook = register_optimizer_step_post_hook(step)
    recorded.start()
    return end


def main():
    """Runs the script that the command line names, as Python itself would."""
    if len(sys.argv) < 3:
        sys.exit("usage: python3 -m radrm.profiled OUT SCRIPT [ARGUMENT ...]")
    out, script = sys.argv[1:3]
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    end = _profile(out)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        end()


if __name__ == "__main__":
    main()
