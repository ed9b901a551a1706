"""Loaded by every Python interpreter under `radrm share`, before the program's own modules."""

import importlib.machinery
import importlib.util
import os
import sys


def _load_next():
    """Runs the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


try:
    from radrm.share import _unmodified

    _unmodified.install()
except Exception as error:  # the program comes first, whatever happens here
    print("radrm share: nothing is shared:", error, file=sys.stderr)

_load_next()
