"""Loaded by every Python interpreter of a run whose Python side is recorded, before the program's own modules."""

import importlib
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


# By the variable that asks for it: a module, and what is missing without it.
HOOKS = (
    ("RADRM_DRY_RUN_NOTES", "radrm_dry_run", "the allocator's figures cannot be read"),
    ("RADRM_TENSORS", "radrm_tensors", "tensors are not recorded"),
    ("RADRM_DRY_RUN_NOTES", "radrm_steps", "steps are not marked"),
    ("RADRM_TENSORS", "radrm_steps", "steps are not marked"),
    ("RADRM_STEPS", "radrm_steps", "steps are not marked"),
)

for variable, name, missing in HOOKS:
    if os.environ.get(variable) and name not in sys.modules:
        try:
            importlib.import_module(name).install()
        except Exception as error:  # the program comes first, whatever happens here
            print("radrm-run: %s:" % missing, error, file=sys.stderr)

_load_next()
