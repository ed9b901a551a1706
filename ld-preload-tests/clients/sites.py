"""Asks for memory in known lines: functions, nested calls, generators, coroutines, comprehensions, a class body, handlers of
exceptions, a thread, code made at run time, a callback from native code. Prints "LINE BYTES" for each request that stands at the
peak."""
import asyncio
import contextlib
import ctypes
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
MIB = 1 << 20


def start():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0


class Model:
    def __init__(self):
        at = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(at), 40 * MIB) == 0; said(40)

    def forward(self, depth):
        if depth:
            return self.forward(depth - 1)
        at = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(at), 7 * MIB) == 0; said(7)
        return at


def said(mib):
    print(sys._getframe(1).f_lineno, mib * MIB, flush=True)


def batches():
    for mib in (3, 5):
        at = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(at), mib * MIB) == 0; said(mib)
        yield at


def in_thread():
    start()
    at = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), 11 * MIB) == 0; said(11)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def compare(a, b):
    if not compare.done:
        compare.done = True
        at = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(at), 13 * MIB) == 0; said(13)
    return 0


compare.done = False


def above(n):
    # Each of these is gone when the next one is made, perhaps at the same address.
    made = {}
    exec(compile("\n" * 1000 * n + "def made%d(ask): return ask()" % n, "made_%d.py" % n, "exec"), made)
    def ask():
        at = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(at), 2 * MIB) == 0; said(2)
    made["made%d" % n](ask)


def through(generator):
    yield from generator


async def awaited(depth):
    if depth:
        await asyncio.sleep(0)
        return await awaited(depth - 1)
    at = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), 17 * MIB) == 0; said(17)


async def tasks():
    await asyncio.gather(awaited(0), awaited(3))


@contextlib.contextmanager
def managed():
    at = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), 19 * MIB) == 0; said(19)
    try:
        yield at
    finally:
        assert cuda.cuMemAlloc_v2(ctypes.byref(at), 23 * MIB) == 0; said(23)


def handled():
    try:
        raise ValueError
    except ValueError:
        at = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(at), 29 * MIB) == 0; said(29)


def comprehended():
    places = [ctypes.c_uint64() for _ in range(3)]
    return [(cuda.cuMemAlloc_v2(ctypes.byref(at), 1 * MIB), said(1)) for at in places]


start()
model = Model()


class Body:
    at = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), 31 * MIB) == 0; said(31)


for depth in (0, 30, 90):
    model.forward(depth)
kept = list(batches())
kept.extend(through(through(batches())))
asyncio.run(tasks())
with managed():
    handled()
comprehended()
(lambda at: [cuda.cuMemAlloc_v2(ctypes.byref(at), 37 * MIB), said(37)])(ctypes.c_uint64())
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
numbers = (ctypes.c_int * 2)(2, 1)
ctypes.CDLL(None).qsort(numbers, ctypes.c_size_t(2), ctypes.c_size_t(4), compare)
for number in range(1, 4):
    above(number)
