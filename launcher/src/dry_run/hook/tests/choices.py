"""Shares of a training's choices, with stand-ins for PyTorch's tensors and optimizers."""

import os
import sys
import types

sys.path[:0] = sys.argv[1:]
import radrm_choices

MIB = 1 << 20
AT = [0]


class Tensor:
    is_cuda = is_leaf = True
    grad = None

    def __init__(self, mib, dtype, is_cuda=True):
        AT[0] += 1
        self.at, self.mib, self.dtype, self.is_cuda = AT[0], mib, "torch." + dtype, is_cuda

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.at, nbytes=lambda: self.mib * MIB)


class AdamW:
    def __init__(self, parameters):
        self.param_groups = [{"params": parameters}]
        self.state = {}


STATS = {"allocated_bytes.all.peak": 1000 * MIB, "reserved_bytes.all.peak": 1250 * MIB}
torch = types.SimpleNamespace(
    Tensor=Tensor, cuda=types.SimpleNamespace(device_count=lambda: 1, memory_stats=lambda device: STATS)
)
weight, embedding = Tensor(100, "bfloat16"), Tensor(50, "float32")
optimizer = AdamW([weight, embedding])
choices = radrm_choices.Choices(torch)
weight.grad = Tensor(100, "bfloat16")
optimizer.state = {embedding: {}, weight: {"step": Tensor(0, "float32", is_cuda=False), "exp_avg": Tensor(200, "float32"), "all": [Tensor(200, "float32")]}}
# A parameter of two optimizers counts once.
choices.see([optimizer, AdamW([weight])], 2)
optimizer.state = {}
choices.see([optimizer], 3)
os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None), os.environ.pop("PYTORCH_ALLOC_CONF", None)
expected = [
    "of the peak, 400 MiB (40 %) are states of AdamW",
    "of the peak, 100 MiB (10 %) are parameters in bfloat16",
    "of the peak, 100 MiB (10 %) are gradients in bfloat16",
    "of the peak, 50 MiB (5 %) are parameters in float32",
    "beside tensors, the allocator holds 250 MiB (20 % of all that it holds) with its usual settings",
]
found = list(choices.remarks(1000 * MIB))
assert found == expected, found

# A model whose layers are unfrozen later: they have no states yet.
frozen = Tensor(300, "bfloat16")
optimizer = AdamW([weight, embedding, frozen])
optimizer.state = {weight: {"exp_avg": Tensor(200, "float32")}, embedding: {}}
choices = radrm_choices.Choices(torch)
choices.see([optimizer], 1)
found = list(choices.remarks(1000 * MIB))
expected_of_frozen = "300 MiB of an optimizer's parameters got no gradient in the first steps: training them later takes more"
assert expected_of_frozen in found, found
# One that has a gradient is trained: its state is in another process.
frozen.grad = Tensor(300, "bfloat16")
choices.see([optimizer], 1)
assert not any("no gradient" in remark for remark in choices.remarks(1000 * MIB))
frozen.grad = None
# One that keeps no states shows nothing of that, nor one whose parameters all have some.
optimizer.state = {}
choices.see([optimizer], 1)
assert not any("no gradient" in remark for remark in choices.remarks(1000 * MIB))
# L-BFGS keeps all that it has in the state of the first parameter.
optimizer.state = {weight: {"old_dirs": [Tensor(200, "float32")]}}
choices.see([optimizer], 1)
assert not any("no gradient" in remark for remark in choices.remarks(1000 * MIB))


# A failure is none of the allocator's figures.
class Strange(Tensor):
    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: -1, nbytes=lambda: 1 // 0)


choices.see([AdamW([weight, Strange(1, "float32")])], 1)
assert list(choices.remarks(1000 * MIB)) == expected[-1:], list(choices.remarks(1000 * MIB))
choices = radrm_choices.Choices(torch)
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
found = list(choices.remarks(100_000 * MIB))
assert found == [expected[-1].replace("its usual settings", "the settings expandable_segments:True")], found
