"""Calls functions before a module is loaded and when it has been."""

import importlib.abc
import importlib.machinery
import sys

# What runs compiled code of PyTorch.
EVALUATION = "torch._dynamo.eval_frame"


class _Around(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.before = {}
        self.after = {}
        self.failed = lambda name, error: None

    def find_spec(self, name, path, target=None):
        # Programs look for modules without loading them, as vLLM and transformers do for torch: what is to be called is
        # called, once, when one is loaded.
        if name not in self.after:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            self.before.pop(name, lambda: None)()
            run(module)
            for call in self.after.pop(name, ()):
                try:
                    call(module)
                except Exception as error:
                    self.failed(name, error)

        spec.loader.exec_module = exec_module
        return spec


_AROUND = _Around()


def before(name, call):
    """Calls it before the module of that name is loaded; one for each name that `after` was called for."""
    _AROUND.before[name] = call


def after(name, call):
    """Calls it with the module of that name when it has been loaded."""
    if _AROUND not in sys.meta_path:
        sys.meta_path.insert(0, _AROUND)
    _AROUND.after.setdefault(name, []).append(call)


def report_failures_to(function):
    """What is called with the name and the error where one of the calls failed."""
    _AROUND.failed = function


def before_compiled(first_pass):
    """Calls it before compiled code runs for the first time.

    The compiler would find hooks of modules: it warns of them, and traces them.
    """

    def watch(module):
        compiled, stance = module.OptimizedModule, module._callback_from_stance
        call = compiled.__call__

        def restore():
            compiled.__call__ = call
            module._callback_from_stance = stance
            first_pass()

        def before_module(self, *arguments, **keywords):
            restore()
            return call(self, *arguments, **keywords)

        def before_function(callback):
            # Without one nothing is compiled.
            if callback:
                restore()
            return stance(callback)

        compiled.__call__ = before_module
        module._callback_from_stance = before_function

    if EVALUATION in sys.modules:
        watch(sys.modules[EVALUATION])
    else:
        after(EVALUATION, watch)
