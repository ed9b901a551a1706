"""Which values Python's objects refer to, and what hangs on these: graphs, and nodes of graphs that a program keeps alone."""

import functools
import gc
import sys
import types

import radrm_lines

# Nodes of a graph that are looked at for one tensor, and tensors whose graphs are.
NODES = 1 << 14
TENSORS = 1 << 8
# What a checkpoint keeps until it computes again: the module and the names of its classes.
CHECKPOINT = "torch.utils.checkpoint", ("_Holder", "_CheckpointFrame")
# Set when the program has given hooks of its own to saved tensors.
_HAS_HOOKS = []
# Objects that refer to no tensor of a step, or only to their own module's names.
PASSED_OVER = (type, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.ModuleType)


def install(torch):
    """Notes hooks of saved tensors: where a node is asked for what it saved, PyTorch calls them, and they are the program's."""
    hooks = getattr(getattr(torch.autograd, "graph", None), "saved_tensors_hooks", None)
    if hooks is None:
        return
    enter = hooks.__enter__

    @functools.wraps(enter)
    def noted(self):
        # Those of checkpoints are known by what these keep.
        if type(self).__module__ != CHECKPOINT[0] and not _HAS_HOOKS:
            _HAS_HOOKS.append(True)
        return enter(self)

    hooks.__enter__ = noted


def address(tensor):
    tensor = getattr(tensor, "_local_tensor", tensor)
    try:
        return tensor.untyped_storage().data_ptr() if tensor.is_cuda else 0
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return 0


def _locals():
    """Values of variables of the functions that run now, which are no objects of the collector's."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if radrm_lines.is_of_program(frame.f_code.co_filename):
                yield from frame.f_locals.values()
            frame = frame.f_back


def referred(tensors, is_wanted):
    """Those of the tensors that Python's objects refer to: PyTorch keeps the objects of others as long as a graph has them."""
    wanted = {id(tensor): tensor for tensor in tensors if is_wanted(tensor)}
    found = {id(value) for value in _locals() if id(value) in wanted}
    for owner in gc.get_objects():
        # The lists of this search refer to all of them.
        if owner is tensors or owner is wanted or id(owner) in wanted:
            continue
        if issubclass(type(owner), (*PASSED_OVER, types.FrameType)):
            continue
        found.update(id(part) for part in gc.get_referents(owner) if id(part) in wanted)
    return [wanted[number] for number in found]


class Graphs:
    """The graphs of this moment."""

    def __init__(self, torch):
        self.torch = torch
        # A checkpoint that is asked for what it saved computes it again, and hooks of the program may do anything.
        kinds = {type(own) for own in gc.get_objects()}
        self.may_unpack = not _HAS_HOOKS and not any(kind.__module__ == CHECKPOINT[0] and kind.__name__ in CHECKPOINT[1] for kind in kinds)

    def is_function(self, node):
        """Whether a node is of a function in Python, which is its `ctx`."""
        return issubclass(type(node), self.torch._C._FunctionBase)

    def kept(self, node):
        """Tensors that a node keeps, as far as Python sees them: attributes of a `ctx`, and what was saved."""
        found = list(getattr(node, "__dict__", {}).values()) if self.is_function(node) else []
        try:
            if self.may_unpack and self.is_function(node):
                found += node.saved_tensors
            elif self.may_unpack:
                found += [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        except RuntimeError:
            # A backward pass has given them back.
            pass
        flat = [part for own in found for part in (own if isinstance(own, (list, tuple)) else [own])]
        return [own for own in flat if issubclass(type(own), self.torch.Tensor)]

    def before(self, node):
        """Nodes from which a node's graph goes on: those of its inputs, and of a function in Python also those that only its `ctx`
        keeps, such as the state of a step before."""
        try:
            inputs = [before for before, _ in node.next_functions]
        except RuntimeError:
            # A `ctx` whose graph has gone.
            inputs = []
        if self.is_function(node):
            inputs += [own.grad_fn for own in self.kept(node)]
        return inputs

    def newer(self, node, boundary):
        """Nodes of a graph that are not older than the boundary, and whether there are older ones."""
        newer, is_older, waiting = set(), False, [node]
        while waiting and len(newer) < NODES:
            node = waiting.pop()
            if node is None or node in newer:
                continue
            if node._sequence_nr() < boundary:
                is_older = True
                continue
            newer.add(node)
            waiting.extend(self.before(node))
        return newer, is_older

    def chained(self, tensors, boundary):
        """Tensors whose graphs reach into earlier steps, without those that only reach there through another."""
        graphs = []
        for tensor in tensors[:TENSORS]:
            newer, is_older = self.newer(tensor.grad_fn, boundary)
            if is_older:
                graphs.append((tensor, newer))
        nodes = {tensor.grad_fn for tensor, _ in graphs}
        return [tensor for tensor, newer in graphs if not (nodes & newer) - {tensor.grad_fn}]

    def held(self, left):
        """Of each node that Python's objects refer to, the address of the largest tensor of `left` that is nearest to it. A program that
        keeps a `ctx` or a `grad_fn` keeps what that saved, without a tensor's own object."""
        is_node = {}
        nodes = []
        for own in gc.get_objects():
            kind = type(own)
            if kind not in is_node:
                is_node[kind] = all(hasattr(kind, name) for name in ("next_functions", "_sequence_nr"))
            if is_node[kind]:
                nodes.append(own)
        found = []
        for node in referred(nodes, lambda own: True)[:TENSORS]:
            seen, waiting = set(), [node]
            while waiting and len(seen) < NODES:
                node = waiting.pop(0)
                if node is None or node in seen:
                    continue
                seen.add(node)
                own = [at for at in map(address, self.kept(node)) if at in left]
                if own:
                    found.append(max(own, key=lambda at: left[at][0]))
                    break
                waiting.extend(self.before(node))
        return found
