"""Memory of batches: what keeps it, and what gives it back."""

import ctypes
import os
import sys
import threading
import time

from ._core import NoProducer, ProducerDied, Welcome, checked, library
from ._gpu import KeptCopy

# How long a call may wait, in milliseconds, before Python looks for signals; and while copies to a GPU are under way.
_SLICE, _COPYING = 200, 1


class Core:
    """The library's handle. It lives as long as memory of a batch does."""

    def __init__(self, config, timeout):
        self._handle = ctypes.c_void_p()
        self._pid = os.getpid()
        self._call = library.radrm_share_next
        self._kinds = {}
        self._lock = threading.Lock()
        # Leases of batches whose memory is in use here. Changed by calls that hold the interpreter's lock throughout.
        self._held = set()
        self._copying = []
        self.streams = set()
        self._private = config.access == 1
        self._waiting(timeout, lambda slice: library.radrm_share_consumer(config, slice, ctypes.byref(self._handle)))

    @staticmethod
    def _waiting(timeout, call):
        until = time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            try:
                return checked(call(max(0, min(1000, int(left * 1000)))))
            except (NoProducer, ProducerDied):
                if left <= 0:
                    raise
                time.sleep(0.01)

    def attach(self, timeout):
        self._waiting(timeout, lambda slice: library.radrm_share_attach(self._handle, slice))

    def welcome(self):
        welcome = Welcome()
        checked(library.radrm_share_welcome(self._handle, ctypes.byref(welcome)))
        return welcome

    def skip(self, epoch):
        checked(library.radrm_share_skip(self._handle, epoch))

    def next(self, found):
        slice = _SLICE
        if self._copying:
            self._copied()
            slice = _COPYING if self._copying else _SLICE
        code = self._call(self._handle, slice, found)
        return code if code == 0 else checked(code)

    def memory(self, found, keep):
        """An object with the batch's bytes, which releases it when it goes; a copy if many batches are kept."""
        if len(self._held) >= keep:
            copy = _Copy(found.data)
            ctypes.memmove(copy.address, found.address, found.data)
            if found.gpu_data:
                copy.memory.on_gpu = KeptCopy(self._handle, found)
                copy.memory.gpu, copy.memory.gpu_device = copy.memory.on_gpu.address, found.gpu_device
                copy.memory.streams = set()
            library.radrm_share_release(self._handle, found.lease)
            return copy.memory
        if found.region not in self._kinds:
            members = {"__del__": _released, "read_only": not self._private, "lease": None}
            if len(self._kinds) >= 256:
                self._kinds.clear()
            self._kinds[found.region] = type("Memory", (ctypes.c_char * found.bytes,), members), found.address
        memory = self.blank(found.region)
        memory.lease = found.lease
        if found.gpu_data:
            memory.gpu, memory.gpu_device, memory.streams = found.gpu, found.gpu_device, set()
        self._held.add(found.lease)
        return memory

    def blank(self, region):
        """An object for memory that was leased before, and is not now; None if it is not known."""
        kind, address = self._kinds.get(region, (None, 0))
        if kind is None:
            return None
        memory = kind.from_address(address)
        memory.core = self
        return memory

    def take(self, memory, lease, keep):
        """The memory of such an object is leased; False if so many batches are kept that this one is to be copied."""
        if len(self._held) >= keep:
            return False
        memory.lease = lease
        self._held.add(lease)
        return True

    def release(self, memory):
        """Releases a batch once the GPU has read it."""
        if os.getpid() != self._pid:
            return
        lease = memory.lease
        self._held.discard(lease)
        streams = getattr(memory, "streams", None)
        if streams is not None:
            streams |= self.streams
            cuda = getattr(sys.modules.get("torch"), "cuda", None)
            if cuda is not None and cuda.is_initialized():
                streams.add(cuda.current_stream(memory.gpu_device).cuda_stream)
            numbers = (ctypes.c_size_t * (len(streams) or 1))(*streams)
            library.radrm_share_release_after(self._handle, lease, numbers, len(streams))
            return
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        if cuda is not None and cuda.is_initialized():
            events = [cuda.Event()]
            events[0].record()
            for stream in self.streams:
                events.append(cuda.ExternalStream(stream).record_event())
            if not all(event.query() for event in events):
                with self._lock:
                    self._copying.append((events, lease))
                return
        library.radrm_share_release(self._handle, lease)

    def _copied(self):
        with self._lock:
            copying, self._copying = self._copying, []
        for events, lease in copying:
            if all(event.query() for event in events):
                library.radrm_share_release(self._handle, lease)
            else:
                with self._lock:
                    self._copying.append((events, lease))

    def close(self):
        library.radrm_share_close(self._handle)

    def __del__(self):
        if self._handle:
            library.radrm_share_consumer_free(self._handle)


class _Copy:
    """A batch's bytes in memory of its own, aligned as in a slot."""

    def __init__(self, size):
        raw = (ctypes.c_char * (size + 64))()
        self.address = -(-ctypes.addressof(raw) // 64) * 64
        kind = type("Memory", (ctypes.c_char * size,), {"read_only": False})
        self.memory = kind.from_address(self.address)
        self.memory.backing = raw


def _released(memory):
    try:
        if memory.lease is not None:
            memory.core.release(memory)
    except Exception:  # noqa: BLE001
        # While the interpreter ends, modules may be gone, and the memory goes with the process.
        pass
