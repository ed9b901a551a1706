"""The end of a process: what is said where it comes without exit handlers, and handlers where multiprocessing skips them."""

import os
import sys

# Why figures are missing where a process wrote no last ones.
ENDED = "the process ended by a signal or without exit handlers"
# Stands beside figures until the last ones replace them.
NOT_LAST = "what came after the last reading is not known: " + ENDED

# A forked child has its parent's modules. Any other process loads its own.
_LOADED_BY = os.getpid()


def at_end_of_fork(function):
    """Calls it at the end of this process if multiprocessing forked it: such a process calls no exit handlers."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and os.getpid() != _LOADED_BY and process.parent_process() is not None:
        import multiprocessing.util

        multiprocessing.util.Finalize(None, function, exitpriority=-1)
