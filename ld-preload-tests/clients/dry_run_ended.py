"""Children that take memory and end as the arguments say, one after the other; then this process takes 64 MiB."""

import multiprocessing
import os
import signal
import subprocess
import sys

import torch

kept = []


def take(mib):
    kept.append(torch.zeros(mib << 20, dtype=torch.uint8, device="cuda"))


def idle():
    """Has a context and no tensor."""
    torch.cuda.synchronize()
    os._exit(0)


def exits():
    take(300)
    os._exit(0)


def killed(by):
    take(300)
    os.kill(os.getpid(), by)


def refused():
    """What memory ended has no exit handlers either."""
    try:
        take(1 << 20)
    except torch.cuda.OutOfMemoryError:
        os._exit(0)


def forked():
    """Multiprocessing ends its children without exit handlers."""
    child = multiprocessing.get_context("fork").Process(target=take, args=(32,))
    child.start()
    child.join()
    assert child.exitcode == 0, child.exitcode


children = {
    "idle": idle,
    "exit": exits,
    "kill": lambda: killed(signal.SIGKILL),
    "term": lambda: killed(signal.SIGTERM),
    "refused": refused,
    "forked": forked,
}

if sys.argv[1] == "--child":
    children[sys.argv[2]]()
else:
    for how in sys.argv[1:]:
        if how == "forked":
            forked()
        else:
            subprocess.run([sys.executable, __file__, "--child", how])
    take(64)
