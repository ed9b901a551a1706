"""A program puts a function of its own in the place of one that the hook has replaced, as a patch of `torch.Tensor.erfinv_` does."""
import sys
import types

sys.path[:0] = sys.argv[1:]
sys.modules["radrm_imports"] = types.ModuleType("radrm_imports")
import radrm_host_models, radrm_work

class Tensor:
    def erfinv_(self): return "erfinv"
    def fill_(self): return "fill"

plain = dict(vars(Tensor))
torch = types.SimpleNamespace(Tensor=Tensor, nn=types.SimpleNamespace(Parameter=Tensor), _C=types.SimpleNamespace())
skipper = radrm_host_models.Skipper(torch)
skipper.is_large = skipper.may_change = lambda tensor: True
for name in ("erfinv_", "fill_"):
    skipper.replace(name, skipper.fill, Tensor)
tensor = Tensor()
assert tensor.erfinv_() is tensor and tensor.fill_() is tensor, "nothing is filled before the first step"
replaced = Tensor.erfinv_
own = Tensor.erfinv_ = lambda self: "own, then " + str(replaced(self))
skipper.restore()
assert Tensor.erfinv_ is own and tensor.erfinv_() == "own, then erfinv", tensor.erfinv_()
assert vars(Tensor)["fill_"] is plain["fill_"]

cuda = types.ModuleType("cuda")
cuda.set_stream = stream = lambda: "stream"
cuda.replay = replay = lambda: "replay"
recorder = radrm_work.Recorder.__new__(radrm_work.Recorder)
recorder.replaced, recorder.opaque = [], {"streams": 0, "graphs": 0}
recorder.count(cuda, "set_stream", "streams")
recorder.count(cuda, "replay", "graphs")
assert cuda.set_stream() == "stream" and recorder.opaque["streams"] == 1
own = cuda.set_stream = lambda: "own"
recorder.restore()
assert cuda.set_stream is own and cuda.replay is replay
