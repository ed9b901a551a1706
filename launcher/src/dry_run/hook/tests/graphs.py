"""Values that are kept by graphs, with stand-ins for PyTorch's tensors and nodes."""

import gc
import sys
import types

sys.path[:0] = sys.argv[1:]
import radrm_graphs
import radrm_kept

NUMBER = [0]
# What nodes saved, by their numbers: no attribute of theirs.
SAVED = {}


class Node:
    """A node of C++: an operator's."""

    next_functions = ()

    def __init__(self, *inputs, saved=()):
        self.next_functions = tuple((own, 0) for own in inputs)
        self.freed = False
        NUMBER[0] += 1
        self.number = NUMBER[0]
        SAVED[self.number] = list(saved)

    @property
    def own(self):
        return SAVED[self.number]

    def _sequence_nr(self):
        return self.number

    @property
    def _saved_self(self):
        if self.freed:
            raise RuntimeError("a backward pass has freed it")
        return self.own[0] if self.own else None


class Function(Node):
    """The `ctx` of a function in Python."""

    @property
    def saved_tensors(self):
        if self.freed:
            raise RuntimeError("a backward pass has freed it")
        return tuple(self.own)


class Tensor:
    is_cuda = True

    def __init__(self, address, grad_fn=None):
        self.at, self.grad_fn = address, grad_fn

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.at)


torch = types.SimpleNamespace(Tensor=Tensor, _C=types.SimpleNamespace(_FunctionBase=Function))
SIZES = {1: 64, 2: 8, 3: 500}


def block(at):
    return SIZES[at], "line %d" % at, at


def value(left, live=(), boundary=None):
    gc.collect()
    live = {at: block(at) for at in (*left, *live)}
    return radrm_kept.value(torch, {at: block(at) for at in left}, live, boundary)


# PyTorch keeps edges and saved tensors in C++, where Python's collector does not see them.
def without_edges(find):
    def referred(objects, is_wanted):
        nodes = [own for own in gc.get_objects() if isinstance(own, Node)]
        hidden = {id(own) for saved in SAVED.values() for own in saved}
        hidden |= {id(own) for node in nodes for own, _ in node.next_functions}
        return [own for own in find(objects, is_wanted) if id(own) not in hidden]

    return referred


radrm_kept.referred = radrm_graphs.referred = without_edges(radrm_graphs.referred)

# A list keeps the `ctx` of each step, which saved the small tensor; the large one hangs on the node before it.
large, small = Tensor(3), Tensor(2)
contexts = [Function(Node(saved=[large]), saved=[small])]
del large, small
assert value([2, 3])[1] == "line 2", value([2, 3])
# Where a backward pass has freed what was saved, the line that left most behind stands for it.
contexts[0].freed = contexts[0].next_functions[0][0].freed = True
assert value([2, 3])[1] == "line 3"
contexts.clear()
SAVED.clear()

# A `grad_fn` in a list.
nodes = [Node(Node(saved=[Tensor(1)]))]
assert value([1, 3])[1] == "line 1"
nodes.clear()
SAVED.clear()

# The state of the step before is no input of the function, and only its `ctx` saved it: the program keeps the state of now.
boundary_node = Node()
old = Tensor(3, Node())
boundary = NUMBER[0] + 1
state = Tensor(1, Function(saved=[old]))
del old, boundary_node
found = value([2, 3], live=[1], boundary=boundary)
assert found[1] == "line 1", found
# A state without its history is none that grows.
state.grad_fn.own.clear()
assert value([2], live=[1], boundary=boundary)[1] == "line 2"

# An attribute of a `ctx` is an object of Python's own.
state.grad_fn.before = Tensor(3, Node())
assert value([2, 3], live=[1], boundary=boundary)[1] == "line 3"


# A checkpoint is never asked for what it saved: it would compute it again.
class _Holder:
    pass


class Policy(_Holder):
    """Of the same module, and always there."""


_Holder.__module__ = Policy.__module__ = "torch.utils.checkpoint"
always = Policy()
assert radrm_graphs.Graphs(torch).may_unpack
held = _Holder()
assert not radrm_graphs.Graphs(torch).may_unpack
del held
assert radrm_graphs.Graphs(torch).may_unpack


# Hooks of the program's own are never called by a search. Those of a checkpoint are known by its holders.
class Hooks:
    def __enter__(self):
        return "entered"

    def __exit__(self, *_):
        pass


class OfCheckpoints(Hooks):
    pass


OfCheckpoints.__module__ = "torch.utils.checkpoint"
torch.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(saved_tensors_hooks=Hooks))
radrm_graphs.install(torch)
with OfCheckpoints():
    pass
assert radrm_graphs.Graphs(torch).may_unpack
with Hooks() as entered:
    assert entered == "entered"
graphs = radrm_graphs.Graphs(torch)
assert not graphs.may_unpack and graphs.kept(Node(saved=[Tensor(1)])) == []
