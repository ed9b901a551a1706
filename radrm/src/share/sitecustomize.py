"""Loaded by every Python interpreter under `radrm share`, before the program's own modules."""

import importlib.machinery
import importlib.util
import os
import sys


# Folders whose sitecustomize has run: one that looks for the next may find this one again.
_SEEN = sys.__dict__.setdefault("_radrm_share_seen", [])


def _load_next():
    """Runs the sitecustomize that this one hides, if there is one."""
    rest = [path for path in sys.path if os.path.abspath(path or ".") not in _SEEN]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        _SEEN.append(os.path.dirname(os.path.abspath(spec.origin)))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if not _SEEN:
    _SEEN.append(os.path.dirname(os.path.abspath(__file__)))
    try:
        from radrm.share import _unmodified

        _unmodified.install()
    except Exception as error:  # the program comes first, whatever happens here
        print("radrm share: nothing is shared:", error, file=sys.stderr)

_load_next()
