"""Growth with each call of a model, by what was allocated before each call. PyTorch's history is stood in for."""

import sys
import types

sys.path[:0] = sys.argv[1:]

MIB = 1 << 20
HOOKS = []


class Handle:
    def __init__(self, hook):
        self.hook = hook

    def remove(self):
        HOOKS.remove(self.hook)


def register(hook):
    HOOKS.append(hook)
    return Handle(hook)


class Module:
    def __init__(self, *parts, parameters=1):
        self.parts, self.own, self.training = parts, parameters, False

    def modules(self):
        yield self
        for part in self.parts:
            yield from part.modules()

    def parameters(self):
        return iter(range(sum(module.own for module in self.modules())))



# PyTorch's own frames are none of the program's.
CALL = """
def call(self):
    for hook in list(HOOKS):
        hook(self, ())
    for part in self.parts:
        part()
"""
exec(compile(CALL, "/usr/lib/python3/site-packages/torch/nn/modules/module.py", "exec"))
Module.__call__ = call


class Watch:
    """The history of two parts: it says what the first left behind."""

    ended = 0

    def mark(self):
        self.marked = True

    def read(self):
        assert self.marked
        return LEFT, LEFT

    def end(self):
        Watch.ended += 1


LEFT = {1: (64 * MIB, "forward (model.py:8)", None)}
kept = types.ModuleType("radrm_kept")
kept.watch = lambda torch: Watch()
kept.sequence = lambda torch: None
kept.value = lambda torch, left, all_live, boundary: next(iter(left.values()), None)
sys.modules["radrm_kept"] = kept
import radrm_passes

STATE = types.SimpleNamespace(held=0, grad=False)
torch = types.SimpleNamespace(
    cuda=types.SimpleNamespace(is_initialized=lambda: True),
    is_grad_enabled=lambda: STATE.grad,
    nn=types.SimpleNamespace(modules=types.SimpleNamespace(module=types.SimpleNamespace(register_module_forward_pre_hook=register))),
)


def new(is_training=False):
    HOOKS.clear()
    STATE.held, STATE.grad = 1000 * MIB, False
    passes = radrm_passes.Passes(torch, lambda: STATE.held, lambda: True, lambda: is_training)
    passes.begin()
    return passes


def run(amounts, is_training=False, model=None):
    """The calls of a model before each of which so many MiB more than at the first are held."""
    passes, model = new(is_training), model or Module(Module())
    for amount in amounts:
        STATE.held = (1000 + amount) * MIB
        model()
    return passes


# An output of 64 MiB is kept of each call. The place is this file's line of the call.
found = run(range(0, 64 * 20, 64)).remark()
assert found.startswith("no bound: memory grows by 64.0 MiB with each call of the model in run (passes.py:"), found
assert found.endswith(": the program keeps what forward (model.py:8) makes"), found
assert Watch.ended == 1 and HOOKS, "the history is read once"

# Lengths of batches change, and each fourth call keeps something.
assert run([[0, 30, -20, 10][n % 4] + 100 * (n // 4) for n in range(48)]).remark(), "varying batches"
# Ten generations with a cache that grows with each token, of which each leaves its text's logits behind.
assert run([4 * token + 100 * request for request in range(10) for token in range(32)]).remark(), "a leak by request"

for name, amounts in {
    "as much each time": [0] * 40,
    "a buffer that is made later": [0] * 10 + [500] * 30,
    "lengths of batches": [[0, 300, 100, 200, 50][n % 5] for n in range(40)],
    "caches of ten generations": [4 * token for _ in range(10) for token in range(32)],
    "a list that is given back": [*range(0, 640, 64), *[0] * 30],
    "a few graphs that are captured first": [*range(0, 2000, 100), *[2000] * 60],
}.items():
    assert run(amounts).remark() is None, name

# A cache that is written anew leaves nothing of an earlier call.
LEFT, before = {}, LEFT
assert run(range(0, 640, 8)).remark() is None
LEFT = before

# Losses have no parameters, and parts of a model are no models: one call counts once.
loss = Module(parameters=0)
passes, model = new(), Module(Module(), Module(Module()))
for number in range(20):
    STATE.held = (1000 + 64 * number) * MIB
    model()
    loss()
assert len(passes.amounts) == 20 and "by 64.0 MiB" in passes.remark(), passes.remark()

# Passes with gradients before an optimizer's step belong to the step. Those of an evaluation do not.
model = Module()
model.training = True
passes = new(is_training=True)
STATE.grad = True
for number in range(20):
    STATE.held += 64 * MIB
    model()
assert not passes.amounts
model.training = False
for number in range(20):
    STATE.held += 64 * MIB
    model()
assert "with each call" in passes.remark()

# A step of an optimizer: no hook is left, what the evaluation kept is still known, and what it gave back is forgotten. A cache that
# was filled grows no further.
passes.rest()
assert not HOOKS and passes.remark() is None
assert passes.filled().startswith("only before an optimizer step, memory grows by 64.0 MiB with each call"), passes.filled()
STATE.held += 64 * MIB
assert passes.remark().startswith("no bound: memory grows") and passes.filled() is None
STATE.held -= 64 * MIB
# The next evaluation keeps as much.
passes.begin()
for number in range(20):
    STATE.held += 64 * MIB
    model()
passes.rest()
assert passes.remark().startswith("no bound: memory grows") and passes.filled() is None
passes = run(range(0, 64 * 20, 64))
STATE.held = 1000 * MIB
passes.rest()
assert passes.remark() is None and passes.filled() is None
passes.begin()
assert len(HOOKS) == 1
passes.begin()
assert len(HOOKS) == 1, "it is there once"
passes.stop()
passes.begin()
assert not HOOKS, "a compiler never meets it again"


# An allocator without figures ends the search, and not the program.
def fail():
    raise RuntimeError("no figures")


passes = new()
passes.allocated = fail
Module()()
assert not HOOKS and passes.remark() is None
