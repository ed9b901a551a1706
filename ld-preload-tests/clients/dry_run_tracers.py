"""Shows PyTorch's tracers a program whose large tensors of the host have no values yet: they see what it is without a dry run.

Functions of PyTorch are replaced meanwhile, until a graph or a compiler comes.
"""

import copy
import inspect
import pickle
import sys
import types

import torch

LARGE = 1 << 20
ZEROS, ONES, FILL = torch._C._VariableFunctions.zeros, torch._C._VariableFunctions.ones, torch._C.TensorBase.fill_

NAMES = ("__name__", "__qualname__", "__module__", "__doc__")


def is_replaced():
    return torch.ones is not ONES


def program(x):
    return x + torch.ones(1048576) + torch.zeros(1048576).fill_(2.0).clone()


def right(values):
    """Whether it is what the program makes of zeros."""
    assert values.shape == (LARGE,) and values.unique().tolist() == [3.0], values


class Module(torch.nn.Module):
    def forward(self, x):
        return program(x)


def functions():
    for own, original in ((torch.zeros, ZEROS), (torch.ones, ONES), (torch.Tensor.fill_, FILL)):
        assert own == original and original == own and hash(own) == hash(original)
        assert [getattr(own, name) for name in NAMES] == [getattr(original, name, None) for name in NAMES]
        assert isinstance(own, type(original)) and repr(own) == repr(original)
        assert original in {own: 1} and own in {original: 1}
        assert pickle.loads(pickle.dumps(own)) == own and copy.deepcopy(own) is own
    for function in (torch.nn.init.trunc_normal_, torch.load, torch.nn.Module._apply):
        assert isinstance(function, types.FunctionType) and function.__code__ and inspect.signature(function)
        assert inspect.getsource(function) and pickle.loads(pickle.dumps(function)) == function
    assert torch.load is torch.serialization.load
    # What PyTorch itself keeps in tables: which functions may be overridden, which a parameter without a shape has.
    assert torch.overrides.resolve_name(ONES) == torch.overrides.resolve_name(torch.ones) == "torch.ones"
    assert torch.overrides.is_tensor_method_or_property(FILL)
    assert torch.Tensor.copy_ in torch.nn.parameter.UninitializedTensorMixin._allowed_methods

    class Own(torch.Tensor):
        table = {FILL: "filled"}

        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            return cls.table.get(function) or super().__torch_function__(function, types, arguments, keywords or {})

    assert torch.zeros(4).as_subclass(Own).fill_(1) == "filled"

    class Maker:
        builtin, method = torch.ones, torch.Tensor.fill_

    assert Maker().builtin(3).tolist() == [1.0] * 3, "a builtin function is not a method"
    assert is_replaced()


def modes():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(function.__name__)
            return function(*arguments, **(keywords or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            seen.append(function.__name__)
            return function(*arguments, **(keywords or {}))

    with Dispatch():
        right(program(torch.zeros(LARGE)))
    assert [name for name in seen if "empty" in name] == [] and "fill_.Scalar" in seen and "clone.default" in seen, seen
    seen.clear()
    with Function():
        program(torch.zeros(LARGE))
    assert [name for name in seen if "empty" in name] == [] and {"zeros", "ones", "fill_", "clone"} <= set(seen), seen
    with FakeTensorMode() as mode:
        assert all(type(made) is torch._subclasses.FakeTensor for made in (torch.ones(LARGE), program(torch.zeros(LARGE))))
    x = torch.arange(2.0 * LARGE).reshape(2, LARGE)
    assert torch.equal(torch.vmap(lambda row: row.clone() + 1)(x), x + 1)
    assert torch.equal(torch.func.grad(lambda row: row.clone().sum())(x), x - x + 1)
    assert is_replaced()
    # Where a tensor is to be made is no matter of those who look.
    with torch.device("cpu"):
        assert torch.ones(LARGE).sum() == 0, "it has no values"


def script():
    right(torch.jit.script(program)(torch.zeros(LARGE)))
    assert is_replaced()
    # What it keeps holds when the functions are back.
    torch.fx.Graph()
    assert not is_replaced()
    right(torch.jit.script(Module())(torch.zeros(LARGE)))


def trace():
    right(torch.jit.trace(program, torch.empty(LARGE).zero_())(torch.zeros(LARGE)))
    assert not is_replaced()


def trace_module():
    right(torch.jit.trace(Module(), torch.empty(LARGE).zero_())(torch.zeros(LARGE)))
    assert not is_replaced()


def make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(program)(torch.zeros(LARGE))
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert names[0] == "aten.ones.default" and "aten.clone.default" in names and not any("empty" in name for name in names), names
    right(graph(torch.zeros(LARGE)))


def symbolic_trace():
    graph = torch.fx.symbolic_trace(lambda x: torch.normal(x, 0.0).clone())
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_function", "call_method", "output"]
    assert graph(torch.zeros(LARGE)).shape == (LARGE,)
    hand = torch.fx.Graph()
    hand.output(hand.call_function(torch.ones, (LARGE,)))
    assert torch.fx.GraphModule(torch.nn.Module(), hand)().sum() == LARGE


def export():
    right(torch.export.export(Module(), (torch.zeros(LARGE),)).module()(torch.zeros(LARGE)))


def export_strict():
    right(torch.export.export(Module(), (torch.zeros(LARGE),), strict=True).module()(torch.zeros(LARGE)))


def compiled():
    # What it looks functions up in is made while they are replaced.
    from torch._dynamo import trace_rules

    trace_rules.get_torch_obj_rule_map(), trace_rules.get_tensor_method()
    made = torch.ones
    call = torch.compile(lambda x: program(x) + made(LARGE), fullgraph=True, backend="eager")
    assert is_replaced()
    right(call(torch.zeros(LARGE)) - 1)
    assert not is_replaced()


def ahead():
    torch._dynamo.config.enable_aot_compile = True
    model = torch.nn.Linear(64, 64).cuda()
    x = torch.randn(4, 64, device="cuda")
    call = torch.compile(lambda x: model(x), fullgraph=True, backend="eager").aot_compile(((x,), {}))
    assert not torch.nn.modules.module._has_any_global_hook(), "hooks of ours"
    assert call(x).shape == (4, 64)


def ahead_values():
    """As vLLM compiles: ahead of time, before any module was called, with sizes that may change."""
    torch._dynamo.config.enable_aot_compile = True
    module = Module()
    x = torch.zeros(LARGE)
    torch._dynamo.mark_dynamic(x, 0)
    call = torch.compile(lambda x: module(x[:LARGE]), fullgraph=True, dynamic=True, backend="eager")
    assert is_replaced()
    call = call.aot_compile(((x,), {}))
    assert not is_replaced()
    right(call(x))
    right(call(torch.zeros(2 * LARGE)))


torch.cuda.init()
globals()[sys.argv[1]]()
torch.empty(1 << 20, device="cuda")
