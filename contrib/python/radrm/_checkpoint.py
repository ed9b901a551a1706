"""Whether radrmd asks this job to write a checkpoint and stop.

radrmd makes the file that ``RADRM_CHECKPOINT`` names, before it sends any signal. A file serves every process of the job
alike: ranks, threads, forked and spawned workers, and signal handlers, without a handler of its own.
"""

import os

#: Exit code of a program that wrote a checkpoint and is to run again (``EX_TEMPFAIL``). radrmd takes 0 for a job that is done.
REQUEUE = 75

_file = os.fsencode(os.environ.get("RADRM_CHECKPOINT", ""))


def should_checkpoint():
    """Returns True once radrmd has asked this attempt of the job to stop: for a job of higher priority, at its time
    limit, or because it was cancelled. False before, and outside of radrmd. Never raises.

    It costs one system call in a job, and none elsewhere. Processes of one job may see the request at different steps: where
    they must act at the same one, let them agree, as the callbacks of ``radrm.lightning`` and ``radrm.transformers`` do.
    """
    return _file != b"" and os.access(_file, os.F_OK)


def _any_rank(asked, device):
    """Whether any rank of torch.distributed was asked: all get the same answer, or they would wait for each other."""
    import torch
    import torch.distributed as dist

    flag = torch.tensor([int(asked)], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())
