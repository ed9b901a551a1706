"""Batches on a GPU, in processes of their own.

share_gpu.py produce NAME EPOCHS BATCHES CONSUMERS SECONDS: a producer on cuda:0, which waits so long before each batch.
share_gpu.py consume NAME EPOCHS [paced]: prints "epoch NUMBER DIGEST" for each epoch that it gets whole, waits for a line after
each if it is paced, and prints "died" if the producer dies.
share_gpu.py case...: one of the functions below.
"""

import ctypes
import gc
import hashlib
import os
import sys
import threading
import time

import numpy
from radrm.share import Consumer, GpuArray, NoGpu, NotResizable, Producer, ProducerDied, Refused, ShareError
from share_rig import Running, raises

# Half a megabyte each, so that a slot takes its 2 MiB on the GPU.
SIZE = 1 << 19


def value(epoch, index):
    """What the array of a batch is."""
    return (numpy.arange(SIZE // 4, dtype="u4") * 2654435761 + epoch * 1000 + index).astype("u4").reshape(4, -1)


class Loader:
    def __init__(self, batches, pause=0.0):
        self.batches, self.pause, self.epoch = batches, pause, 0

    def __len__(self):
        return self.batches

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for index in range(self.batches):
            time.sleep(self.pause)
            yield {"data": value(self.epoch, index), "name": f"{self.epoch}-{index}", "label": numpy.arange(4) + index}


class Cuda:
    """The driver, with a context."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.done(self.library.cuInit(0))
        self.done(self.library.cuDeviceGet(ctypes.byref(device), 0))
        self.done(self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self.done(self.library.cuCtxSetCurrent(context))
        self.kept = []

    def done(self, code):
        assert code == 0, code

    def read(self, array):
        """The bytes of an array on the GPU."""
        if not isinstance(array, GpuArray):
            return array.cpu().numpy().tobytes()
        size = array.size
        for length in array.shape:
            size *= length
        buffer = ctypes.create_string_buffer(size)
        self.done(self.library.cuMemcpyDtoH_v2(buffer, ctypes.c_uint64(array.address), ctypes.c_size_t(size)))
        return buffer.raw

    def free(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.done(self.library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value

    def blocked_stream(self, gate):
        """A stream that does not get on before an event of Python's is set."""
        stream = ctypes.c_void_p()
        self.done(self.library.cuStreamCreate(ctypes.byref(stream), 1))
        self.block(stream.value, gate)
        return stream.value

    def block(self, stream, gate):
        kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait())
        self.kept.append(kept)
        self.done(self.library.cuLaunchHostFunc(ctypes.c_void_p(stream), kept, None))

    def is_mapped(self, address):
        found = ctypes.c_uint()
        # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        return self.library.cuPointerGetAttribute(ctypes.byref(found), 2, ctypes.c_uint64(address)) == 0


def produce(name, epochs, batches, consumers, seconds):
    loader = Loader(int(batches), float(seconds))
    producer = Producer(loader, name, epochs=int(epochs), consumers=int(consumers), ring=4, device="cuda:0", resume=False)
    print("ready", os.getpid(), flush=True)
    producer.run()


def consume(name, epochs, paced=None):
    cuda = None
    loader = Consumer(name)
    print("ready", os.getpid(), flush=True)
    got = 0
    try:
        for epoch in loader.epochs():
            digest, count = hashlib.sha256(), 0
            for batch in loader:
                cuda = cuda or Cuda()
                index = int(batch["name"].split("-")[1])
                data = cuda.read(batch["data"])
                assert data == value(epoch, index).tobytes(), "another batch's bytes"
                assert cuda.read(batch["label"]) == (numpy.arange(4) + index).tobytes()
                digest.update(data)
                count += 1
            if count == len(loader):
                print("epoch", epoch, digest.hexdigest(), flush=True)
            got += 1
            if paced:
                sys.stdin.readline()
            if got == int(epochs):
                break
    except ProducerDied:
        print("died", flush=True)
        # What it holds stays valid until it goes.
        assert cuda.read(batch["data"]) == data
        address = batch["data"].address
        del batch
        gc.collect()
        assert not cuda.is_mapped(address), "still mapped"


def arrays_by_dlpack():
    cuda = Cuda()
    with Running(Loader(12), epochs=1, ring=3, device="cuda"):
        loader = Consumer("case")
        batches = iter(loader)
        first = next(batches)
        array = first["data"]
        assert array.shape == (4, SIZE // 16) and array.__dlpack_device__() == (2, 0)
        assert repr(array) == f"GpuArray(shape=(4, {SIZE // 16}), dtype=uint32, device=cuda:0)"
        assert cuda.read(array[1:3]) == value(0, 0)[1:3].tobytes()
        raises(BufferError, lambda: array.__dlpack__(copy=True))
        raises(TypeError, lambda: array[0])
        # A capsule keeps the batch, also when it goes without a framework.
        capsule = array.__dlpack__(stream=None)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = (ctypes.c_uint64 * 6).from_address(pointer(capsule, b"dltensor"))
        address = array.address
        assert tensor[0] == address
        # kDLCUDA and the GPU's number; two dimensions, unsigned, of 32 bits, one lane.
        assert (tensor[1], tensor[2]) == (2, 2 | 1 << 32 | 32 << 40 | 1 << 48), list(tensor)
        shape = (ctypes.c_int64 * 2).from_address(tensor[3])
        strides = (ctypes.c_int64 * 2).from_address(tensor[4])
        assert (list(shape), list(strides)) == ([4, SIZE // 16], [SIZE // 16, 1])
        del first, array
        gc.collect()
        held = loader._core.welcome().leases
        del capsule, tensor, shape, strides
        gc.collect()
        # Its stream's event is asked for with the next batch.
        second = next(batches)
        assert loader._core.welcome().leases == held, "the capsule's batch is released, the second one is not"
        # A batch that a stream has yet to read is not given back, although the program has let it go.
        gate = threading.Event()
        stream = cuda.blocked_stream(gate)
        second["data"].__dlpack__(stream=stream)
        del second
        third = next(batches)
        assert loader._core.welcome().leases == 2, "the second one was released before its stream came there"
        gate.set()
        cuda.done(cuda.library.cuStreamSynchronize(ctypes.c_void_p(stream)))
        del third
        second = next(batches)
        assert loader._core.welcome().leases == 1
        # What is kept longer than allowed is copied.
        kept = [second, *batches]
        assert len(kept) == 9
        for index, batch in enumerate(kept, 3):
            assert cuda.read(batch["data"]) == value(0, index).tobytes(), index
        del batch, kept, second
        loader.close()


def what_a_gpu_does_not_have():
    class Texts:
        def __iter__(self):
            for index in range(4):
                names = numpy.array([f"n{index}", "x"])
                yield names, numpy.array(["2026-01-02"], "M8[ns]"), numpy.zeros((0, 3)), numpy.arange(4.0) + index

    cuda = Cuda()
    raises(ShareError, lambda: Producer(Texts(), "case", device=0, slow="spill"))
    raises(ValueError, lambda: Producer(Texts(), "case", device="cpu"))
    assert "cuda:7" in str(raises(NoGpu, lambda: Producer(Texts(), "case", device="cuda:7")))
    with Running(Texts(), epochs=1, device=0) as running:
        assert "numpy" in str(raises(ShareError, lambda: Consumer("case", framework="numpy")))
        assert "read-only" in str(raises(ShareError, lambda: Consumer("case", writable=True)))
        assert "disk" in str(raises(Refused, lambda: Consumer("case", slow="spill")))
        loader = Consumer("case")
        for index, (names, moments, empty, numbers) in enumerate(loader):
            assert names.tolist() == [f"n{index}", "x"] and moments.tolist() == numpy.array(["2026-01-02"], "M8[ns]").tolist()
            assert empty.shape == (0, 3)
            # The producer ends once the last batch is delivered.
            assert index > 0 or running.producer.stats()["gpu_bytes"] >= 2 << 20
            assert cuda.read(numbers) == (numpy.arange(4.0) + index).tobytes()
        del names, moments, empty, numbers


def other_sizes():
    cuda = Cuda()
    with Running(Loader(5), epochs=1, device=0):
        loader = Consumer("case", batch_size=2)
        for number, batch in enumerate(loader):
            rows = value(0, number // 2)[number % 2 * 2 :][:2]
            assert cuda.read(batch["data"]) == rows.tobytes()
        assert number == 9
        del batch
        loader.close()
    # Two batches are published, which the ring has room for.
    with Running(Loader(2), epochs=1, device=0):
        loader = Consumer("case", batch_size=3)
        assert "framework" in str(raises(NotResizable, lambda: list(loader)))
        loader.close()


def a_gpu_that_a_program_does_not_see():
    """Prints what a consumer and a producer get."""
    print(raises(NoGpu, lambda: Consumer("gpu")), flush=True)
    try:
        Producer(Loader(1), "other", device="cuda:0").close()
        print("none", flush=True)
    except NoGpu as error:
        print(error, flush=True)


def tensors():
    """In PyTorch, whose runtime and driver are emulated."""
    import torch

    cuda, gate = Cuda(), threading.Event()
    slow = torch.cuda.Stream()

    class Tensors(Loader):
        def __iter__(self):
            for index in range(self.batches):
                # The last batch is complete on the GPU some time after the loader has given it.
                if index == self.batches - 1:
                    torch.cuda.set_stream(slow)
                    cuda.block(slow.cuda_stream, gate)
                    threading.Timer(0.5, gate.set).start()
                there = torch.arange(6, device="cuda").reshape(2, 3).t() + index
                mask = torch.tensor([True, False, True])
                yield there, mask, torch.arange(3, dtype=torch.bfloat16), {"n": index}

    with Running(Tensors(6), epochs=1, consumers=1, device="cuda:0"):
        loader = Consumer("case")
        for index, (there, mask, half, rest) in enumerate(loader):
            assert gate.is_set() or index < 5, "offered before its copies were complete"
            assert there.device == mask.device == torch.device("cuda", 0)
            assert (mask.dtype, half.dtype, rest) == (torch.bool, torch.bfloat16, {"n": index})
            assert there.shape == (3, 2) and there.stride() == (1, 3)
            if os.environ.get("RADRM_EMULATOR_BACKED"):
                assert mask.cpu().tolist() == [True, False, True] and half.cpu().tolist() == [0, 1, 2]
        assert index == 5
        del there, mask, half


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print("ok", sys.argv[1], flush=True)
