"""Cases of radrm.share about the memory of batches: share_memory_cases.py CASE..."""

import ctypes
import gc
import sys
import threading
import time
import warnings

import numpy
from radrm.share import Consumer
from share_rig import Numbers, Running, raises

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def memory_is_that_of_the_ring_and_of_a_batch_for_each_consumer():
    ring, slows = 4, ("wait", "wait", "drop", "spill", "wait")
    with Running(Numbers(200), epochs=1, consumers=len(slows), ring=ring) as running:
        loaders = [Consumer("case", slow=slow) for slow in slows]
        most, failed = [0], []

        def iterate(loader, pause):
            try:
                got = 0
                for batch in loader:
                    got += 1
                    time.sleep(pause)
                    if got + loader.dropped <= 100:
                        # Later it may have delivered everything, and have ended: a slow one misses most batches.
                        most[0] = max(most[0], running.producer.stats()["slots"])
                assert got + loader.dropped == 200, (got, loader.dropped)
            except BaseException as error:  # noqa: BLE001
                failed.append(error)
            finally:
                loader.close()

        threads = [threading.Thread(target=iterate, args=of) for of in zip(loaders, (0, 0.001, 0.004, 0.004, 0))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        assert ring <= most[0] <= ring + len(slows), most


@case
def what_is_made_before_its_batch_comes_is_that_batch():
    class Changing:
        def __iter__(self):
            for index in range(90):
                # Most batches are described alike, others not.
                yield [numpy.full(3 + index // 20 % 2, index), {"n": index // 30}]

    with Running(Changing(), epochs=1, ring=3):
        loader = Consumer("case", keep=3)
        batches, kept, made, taken = iter(loader), [], set(), 0
        for index in range(90):
            array, rest = batch = next(batches)
            assert array.tolist() == [index] * (3 + index // 20 % 2) and rest == {"n": index // 30}, index
            taken += id(batch) in made
            # Its own from now on: another batch of the same memory has other objects.
            array[:] = -1
            rest["n"] = None
            kept = [*kept[-1:], batch]
            loader._prepare()
            made = {id(loader._ready[2])} if loader._ready else set()
            assert not made or loader._ready[1].lease is None, "leased before it has come"
            assert loader._core.welcome().leases == len(kept), "what is only made is not leased"
        assert taken > 40, taken
        assert list(batches) == []
        del array, rest, batch, kept
        loader.close()
        assert loader._ready is None


@case
def pinned_batches_are_known_to_the_driver_until_they_go():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()

    def done(code):
        assert code == 0, code

    def kind(address):
        found = ctypes.c_uint()
        # CU_POINTER_ATTRIBUTE_MEMORY_TYPE; 1 is host memory that the driver knows.
        code = cuda.cuPointerGetAttribute(ctypes.byref(found), 2, ctypes.c_uint64(address))
        return found.value if code == 0 else None

    raises(ValueError, lambda: Consumer("case", pin=True, writable=True))
    with Running(Numbers(20), epochs=1, ring=3):
        loader = Consumer("case", pin=True)
        batches = iter(loader)
        first = next(batches)
        address = first.__array_interface__["data"][0]
        assert not first.flags.writeable
        # The program uses CUDA from now on.
        done(cuda.cuInit(0))
        assert kind(address) is None
        done(cuda.cuDeviceGet(ctypes.byref(device), 0))
        done(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        done(cuda.cuCtxSetCurrent(context))
        addresses = set()
        for number, batch in enumerate(batches, 1):
            addresses.add(batch.__array_interface__["data"][0])
            assert kind(max(addresses)) == 1 and batch[0] == 4 * number
        assert len(addresses) > 1, "slots"
        del first, batch, batches
        loader.close()
        del loader
        gc.collect()
        assert not any(map(kind, addresses)), "registered after its end"


if __name__ == "__main__":
    warnings.simplefilter("error", ResourceWarning)
    for name in sys.argv[1:] or CASES:
        CASES[name]()
        print("ok", name, flush=True)
