"""Calls functions before a module is loaded and when it has been."""

import importlib.abc
import importlib.machinery
import sys


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


def _now_or_after(name, call):
    """Calls it with the module of that name, which may be loaded already."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        after(name, call)


def _before_first(call):
    """Lets functions be replaced by some that call it first, and puts all of them back when it has been called."""
    replaced, calls = [], [call]

    def restore():
        while replaced:
            owner, name, original = replaced.pop()
            setattr(owner, name, original)
        while calls:
            calls.pop()()

    def replace(owner, name, make):
        original = getattr(owner, name, None)
        if calls and original is not None:
            replaced.append((owner, name, original))
            setattr(owner, name, make(original))

    def first(original):
        def begin(*arguments, **keywords):
            restore()
            return original(*arguments, **keywords)

        return begin

    return restore, replace, first


def before_compiled(first_pass):
    """Calls it before the compiler sees the program for the first time, also where it compiles ahead of time.

    The compiler would find hooks of modules: it warns of them, and traces them.
    """
    _, replace, first = _before_first(first_pass)

    # A compiled module warns of hooks before anything of it is compiled.
    _now_or_after("torch._dynamo.eval_frame", lambda module: replace(module.OptimizedModule, "__call__", first))
    # Compilation ahead of time and export choose by the hooks what of a module they trace.
    _now_or_after("torch._dynamo.convert_frame", lambda module: replace(module, "_get_frame", first))
    # Whatever is compiled passes one of these.
    _now_or_after("torch._dynamo.symbolic_convert", lambda module: replace(module.InstructionTranslator, "__init__", first))


def before_traced(call):
    """Calls it before a tracer records functions of PyTorch for the first time: a graph keeps them."""
    restore, replace, first = _before_first(call)

    def lookup(original):
        def begin(frames_up=1):
            restore()
            # This one is a frame more.
            return original(frames_up + 1)

        return begin

    # Compilers, export, make_fx and symbolic_trace make a graph first.
    _now_or_after("torch.fx.graph", lambda module: replace(module.Graph, "__init__", first))
    # torch.jit.trace compares what the program computes with and without it.
    _now_or_after("torch.jit._trace", lambda module: replace(module, "_create_interpreter_name_lookup_fn", lookup))
