"""Lets Python objects arrive that processes send each other through GPU memory.

`all_gather_object` and its like put a pickled object into a tensor, agree on lengths with a few operations on the
GPU, and cut what arrives by these lengths. Nothing is computed in a dry run, so the lengths would be zero. While
one of these functions runs, each of its operations is done twice: on the emulated GPU, so that memory is what it
is, and on the host, where the values are. What is sent is written to the GPU's memory just before, and what was
received is read from it: the stand-in for NCCL moves such messages.
"""

import functools

import radrm_facts

NAMES = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
)
# Collectives that write their first argument. The others only read.
WRITE_FIRST = ("allgather_", "_allgather_base_", "gather_", "scatter_", "broadcast_", "allreduce_", "recv_", "recv_any_source_")


def _mode(torch):
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map

    def on_gpu(value):
        return isinstance(value, torch.Tensor) and value.is_cuda

    class Mirror(TorchDispatchMode):
        """Does each operation on the host as well."""

        def __init__(self):
            super().__init__()
            # By storage: a weak reference, so that its number stays its own and its memory does not; and its content.
            self.contents = {}
            self.stale = set()

        def view(self, tensor):
            """What a tensor of the GPU holds, as a tensor of the host that shares memory with its other views."""
            storage = tensor.untyped_storage()
            number = storage._cdata
            if number not in self.contents:
                self.contents[number] = (StorageWeakRef(storage), torch.UntypedStorage(storage.nbytes()).fill_(0))
                self.stale.add(number)
            content = self.contents[number][1]
            own = torch.empty(0, dtype=tensor.dtype)
            own.set_(content, tensor.storage_offset(), tensor.size(), tensor.stride())
            if number in self.stale:
                self.stale.discard(number)
                whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
                torch.empty(0, dtype=torch.uint8).set_(content).copy_(whole.cpu())
            return own

        def on_host(self, value):
            if on_gpu(value):
                return self.view(value)
            if isinstance(value, torch.device) and value.type == "cuda":
                return torch.device("cpu")
            return value

        def remember(self, value, content):
            """The result: on the GPU as it is there, else as it was computed on the host."""
            if not on_gpu(value):
                return content
            storage = value.untyped_storage()
            self.contents[storage._cdata] = (StorageWeakRef(storage), content.untyped_storage())
            self.stale.discard(storage._cdata)
            return value

        def collective(self, func, arguments, keywords):
            for tensor in filter(on_gpu, tree_flatten((arguments, keywords))[0]):
                tensor.copy_(self.view(tensor))
            out = func(*arguments, **keywords)
            if func._schema.name.split("::")[1] in WRITE_FIRST:
                for tensor in filter(on_gpu, tree_flatten(arguments[0])[0]):
                    self.stale.add(tensor.untyped_storage()._cdata)
            return out

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            leaves = tree_flatten((args, kwargs))[0]
            device = any(isinstance(leaf, torch.device) and leaf.type == "cuda" for leaf in leaves)
            if not device and not any(map(on_gpu, leaves)):
                return func(*args, **kwargs)
            if func.namespace == "c10d":
                return self.collective(func, args, kwargs)
            arguments, keywords = tree_map(self.on_host, (args, kwargs))
            out = func(*args, **kwargs)
            return tree_map(self.remember, out, func(*arguments, **keywords))

    return Mirror


def install(torch, note):
    """Wraps the functions that send objects."""
    if not torch.distributed.is_available():
        return
    made = []

    def wrap(function):
        @functools.wraps(function)
        def with_values(*arguments, **keywords):
            if not torch.cuda.is_initialized():
                return function(*arguments, **keywords)
            if not made:
                made.append(_mode(torch))
            with radrm_facts.resting(), made[0]():
                return function(*arguments, **keywords)

        return with_values

    package = torch.distributed
    for name in NAMES:
        function = getattr(package, name, None)
        if function is None:
            note("remark", "torch.distributed.%s is not there" % name)
            continue
        wrapped = wrap(function)
        setattr(package.distributed_c10d, name, wrapped)
        setattr(package, name, wrapped)
