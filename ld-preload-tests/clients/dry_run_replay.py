"""Runs another program, and works out its peaks anew from what it asked for: dry_run_replay.py PROGRAM [ARGUMENT...].

PyTorch's memory history tells each request and each release. What a caching allocator makes of them is computed
here by the published rules (sizes in multiples of 512 bytes; segments of 2 MiB for up to 1 MiB, of 20 MiB for less
than 10 MiB, else of multiples of 2 MiB; the smallest free block that is large enough, at the lowest address; what
is left of it stays a block of its own unless too small; neighbours that are free become one). Prints peaks as the
allocator tells them and as they were worked out, and how many of the addresses are the same. Only the native
allocator without expandable segments; max_split_size_mb is read from PYTORCH_CUDA_ALLOC_CONF.
"""

import os
import re
import runpy
import sys

import torch

KIB, MIB = 1 << 10, 1 << 20


def rounded(size, unit):
    return -(-size // unit) * unit


class Allocator:
    def __init__(self, longest_split):
        self.longest_split = longest_split
        # By address: size, whether it is free, stream, pool, segment.
        self.blocks = {}
        # The block after each, and before it, in one segment.
        self.after, self.before = {}, {}
        self.free = {}
        self.now = [0, 0]
        self.peak = [0, 0]

    def count(self, which, size):
        self.now[which] += size
        self.peak[which] = max(self.peak[which], self.now[which])

    def segment_size(self, size):
        if size <= MIB:
            return 2 * MIB
        return 20 * MIB if size < 10 * MIB else rounded(size, 2 * MIB)

    def found(self, size, stream, pool):
        fitting = [(own[0], address) for address, own in self.free.items() if own[1:] == (stream, pool) and own[0] >= size]
        if not fitting:
            return None
        have, address = min(fitting)
        if size < self.longest_split <= have or size >= self.longest_split and have >= size + 20 * MIB:
            return None
        return address

    def take(self, wanted, stream, new_segment):
        size = rounded(max(wanted, 1), 512)
        pool = "small" if size <= MIB else "large"
        address = self.found(size, stream, pool)
        if address is None:
            address, have = new_segment(), self.segment_size(size)
            self.count(1, have)
        else:
            have = self.free.pop(address)[0]
        left = have - size
        if left >= 512 if pool == "small" else size < self.longest_split and left > MIB:
            rest, following = address + size, self.after.get(address)
            self.free[rest] = (left, stream, pool)
            self.link(address, rest)
            self.link(rest, following)
            have = size
        self.blocks[address] = (have, stream, pool)
        self.count(0, have)
        return address

    def link(self, first, second):
        if second is not None:
            self.after[first], self.before[second] = second, first

    def give_back(self, address):
        size, stream, pool = self.blocks.pop(address)
        self.count(0, -size)
        following = self.after.get(address)
        if following in self.free:
            size += self.free.pop(following)[0]
            self.unlink(address, following)
        preceding = self.before.get(address)
        if preceding in self.free:
            size += self.free.pop(preceding)[0]
            self.unlink(preceding, address)
            address = preceding
        self.free[address] = (size, stream, pool)

    def unlink(self, first, second):
        beyond = self.after.pop(second, None)
        del self.before[second]
        del self.after[first]
        self.link(first, beyond)


def replay(trace):
    setting = re.search(r"max_split_size_mb:(\d+)", os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""))
    allocator = Allocator(int(setting.group(1)) * MIB if setting else float("inf"))
    segments = iter([event["addr"] for event in trace if event["action"] == "segment_alloc"])
    # The program's addresses by those of here, should they differ.
    own, same, requests = {}, 0, 0
    for event in trace:
        if event["action"] == "alloc":
            address = allocator.take(event["size"], event["stream"], lambda: next(segments))
            own[event["addr"]] = address
            same += address == event["addr"]
            requests += 1
        elif event["action"] == "free_completed":
            allocator.give_back(own.pop(event["addr"]))
    return allocator.peak, same, requests


program, sys.argv = sys.argv[1], sys.argv[1:]
torch.cuda.init()
torch.cuda.memory._record_memory_history(context=None)
runpy.run_path(program, run_name="__main__")
told = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
trace = torch.cuda.memory._snapshot()["device_traces"][0]
worked_out, same, requests = replay(trace)
print("told %d %d worked out %d %d same addresses %d of %d" % (*told, *worked_out, same, requests))
