"""What the blocks of PyTorch's allocator hold, and whose they are.

The program's own objects show where parameters, buffers, gradients and states of optimizers lie. Of the rest the label under
which it was requested shows whether that was in a forward pass, in a step of an optimizer or elsewhere.
"""

import os
import sys

import radrm_backward
import radrm_devices
import radrm_imports
import radrm_modules
import radrm_replay
import radrm_rows

PARAMETERS, GRADIENTS, OPTIMIZER_STATE, BUFFERS = "parameters", "gradients", "optimizer_state", "buffers"
ACTIVATIONS, BACKWARD, OPTIMIZER_STEP, WORKSPACE = "activations", "backward", "optimizer_step", "workspace"
OTHER, UNKNOWN = "other", "unknown"

# Frames of radrm-run's own Python side are none of the program's.
OWN = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, radrm_imports.__file__))


def pointer(tensor):
    """Address of a tensor's memory on the GPU; 0 if it has none."""
    tensor = getattr(tensor, "_local_tensor", tensor)
    try:
        return tensor.data_ptr() if tensor.is_cuda else 0
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return 0


def parameters_of(optimizer):
    for group in optimizer.param_groups:
        yield from group["params"]


def _tensors(torch, value, depth=0):
    """All tensors of a state of an optimizer."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(torch, part, depth + 1)


def of_model(module, number, prefix=""):
    """Parameters and buffers of a model, or of a part of one at this path: each with its role and owner."""
    for role, named in ((PARAMETERS, module.named_parameters), (BUFFERS, module.named_buffers)):
        for name, tensor in named(prefix=prefix):
            yield tensor, role, (number, name.rpartition(".")[0])


class Objects:
    """The program's own objects at this moment: by address what lies there and whose it is."""

    def __init__(self, torch, models, optimizers):
        self.roles = {}
        # Number of the model and path of the module, by the id of a parameter.
        self.owners = {}
        parameters = []
        for number, model in models.items():
            for name, parameter in model.named_parameters():
                self.owners[id(parameter)] = (number, name.rpartition(".")[0])
                parameters.append(parameter)
        for optimizer in optimizers:
            parameters.extend(parameters_of(optimizer))
        for parameter in parameters:
            self.add(parameter, PARAMETERS, self.owner(parameter))
        for number, model in models.items():
            for name, buffer in model.named_buffers():
                self.add(buffer, BUFFERS, (number, name.rpartition(".")[0]))
        for optimizer in optimizers:
            for parameter, state in list(optimizer.state.items()):
                for tensor in _tensors(torch, state):
                    self.add(tensor, OPTIMIZER_STATE, self.owner(parameter))
        for parameter in parameters:
            if parameter.is_leaf and parameter.grad is not None:
                self.add(parameter.grad, GRADIENTS, self.owner(parameter))

    def owner(self, parameter):
        return self.owners.get(id(parameter))

    def add(self, tensor, role, owner):
        address = pointer(tensor)
        if address:
            self.roles.setdefault(address, (role, owner))

    def gradients(self, by_address):
        """Roles of gradients that lay at these addresses, each with the id of its parameter."""
        return {address: (GRADIENTS, self.owners.get(parameter)) for address, parameter in by_address.items()}


def _workspaces(torch):
    """Sizes of the memory that PyTorch keeps for cuBLAS."""
    ask = [getattr(torch._C, name, None) for name in ("_cuda_getCublasWorkspaceSize", "_cuda_getCublasLtWorkspaceSize")]
    return {size() for size in ask if size}


def _kind(block, place, is_within):
    """Category of a block, and whose it is. `place` and `is_within`: what its frames say."""
    if block.role:
        return block.role, block.owner
    if block.stack == radrm_replay.NOT_RECORDED:
        return UNKNOWN, None
    if is_within and block.backward is None:
        # No backward pass ran: a thread that is not Python's own.
        return OTHER, None
    label = block.event.get("user_metadata") or ""
    owner = radrm_modules.owner_of(label)
    if place == radrm_backward.BACKWARD:
        return BACKWARD, None
    if place != radrm_backward.FORWARD:
        # A label stays on the thread if the computation ends early, so only a module's own frames show that it is true.
        return ACTIVATIONS, owner if place == radrm_backward.AGAIN_IN_MODULE else None
    if owner or label == radrm_modules.LOSS:
        return ACTIVATIONS, owner
    if label == radrm_modules.OPTIMIZER:
        return OPTIMIZER_STEP, None
    return OTHER, None


def program_stack():
    """The program's stack at this moment, innermost frame first."""
    frames, frame = [], sys._getframe(1)
    while frame is not None and len(frames) < radrm_rows.FRAMES:
        if not frame.f_code.co_filename.startswith(OWN):
            frames.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return tuple(frames)


def _program_frames(frames):
    for frame in frames:
        if not frame["filename"].startswith(OWN):
            yield frame["filename"], frame["name"], frame["line"]


def _may_be_workspace(block, sizes):
    return block.requested in sizes and block.end == radrm_replay.ALIVE and not block.role


def _hangs(block, hanging):
    """Whether a block hangs on the value that the program keeps of each step."""
    return hanging and not block.role and hanging[1] < block.number <= hanging[2]


def _rows(blocks, sizes, hanging):
    """Bytes and number of blocks by category, owner, stack, innermost frame first, and whose stack it is. A stack of a thread of
    a backward pass goes on with the one that began the pass; what hangs on a value that is kept has that value's. And the blocks
    that may be workspaces, which have these sizes, with their rows."""
    rows, candidates = {}, []
    for block in blocks:
        frames = tuple(_program_frames(block.event.get("frames") or ()))
        place, is_within = radrm_backward.place(frames)
        category, owner = _kind(block, place, is_within)
        backward = block.backward
        if _hangs(block, hanging):
            frames = tuple(_program_frames(hanging[0].event.get("frames") or ()))
            is_within, backward = radrm_backward.place(frames)[1], hanging[0].backward
        if is_within:
            frames += backward or ()
        key = category, owner, frames[:radrm_rows.FRAMES], block.stack
        if _may_be_workspace(block, sizes):
            candidates.append((block, key))
        row = rows.setdefault(key, [0, 0])
        row[0] += block.size
        row[1] += 1
    return radrm_rows.largest(rows), candidates


class Peak:
    """What held a device's memory at a peak."""

    def __init__(self, torch, number, device, models, hanging):
        self.rows, self.candidates = _rows(device.at_peak(), _workspaces(torch), hanging)
        figures = device.peak, device.reserved_at_peak
        self.packed = lambda: radrm_rows.packed(radrm_devices.of_torch(torch, number), *figures, self.rows, models)

    def settle(self, is_workspace):
        """Moves the blocks that are workspaces to their category."""
        for block, key in self.candidates:
            row = self.rows.get(key)
            if row and is_workspace(block):
                own = self.rows.setdefault((WORKSPACE, *key[1:]), [0, 0])
                for at, part in enumerate((block.size, 1)):
                    row[at] -= part
                    own[at] += part
                if not row[1]:
                    del self.rows[key]
        self.candidates.clear()


def unknown(torch, number, peak):
    """A peak to which no history reaches."""
    return radrm_rows.packed(radrm_devices.of_torch(torch, number), peak, peak, {(UNKNOWN, None, (), radrm_replay.NOT_RECORDED): [peak, 0]}, {})
