"""Replays the history of PyTorch's caching allocator, so that it is known block by block what was held at a peak.

The history has the bytes that were requested, while the allocator counts those of its blocks: rounded, and larger where
the rest of a block was too small to be cut off. Which block a request got follows from the addresses, so the layout of
all segments is kept: it begins as a snapshot has it, and each event changes it as the allocator did.
"""

import bisect

# Of PyTorch's allocator: sizes are multiples of UNIT; blocks up to SMALL come from segments of their own, in which, as in
# segments that grow, every rest of a UNIT is cut off. In others the rest must be larger than SMALL.
UNIT = 512
SMALL = 1 << 20

# Marks of a block's life: before the first event that is known, and not freed yet.
BEFORE, ALIVE = -1, 1 << 62

# Whose stack a block has: its own request's, that of a block of the same place and size in a recorded step, or none.
OWN, EQUAL_STEP, NOT_RECORDED = "own", "equal_step", "not_recorded"


class Block:
    """A block that was handed out."""

    __slots__ = ("address", "size", "requested", "begin", "end", "event", "role", "owner", "backward", "stack", "number")

    def __init__(self, address, size, requested, begin, event, stack=OWN):
        self.address = address
        self.size = size
        self.requested = requested
        self.begin = begin
        self.end = ALIVE
        # The entry of the history, or of the snapshot, with the stack of the request.
        self.event = event
        self.stack = stack
        # What it holds and whose that is, where the program's own objects show it.
        self.role = None
        self.owner = None
        # The stack that began the backward pass of that moment; () if it is not known, None if there was none.
        self.backward = ()
        # Number of the request on its device; 0 if it is not known.
        self.number = 0


def _rounding(settings):
    """The allocator's function from a requested size to a block's."""
    # Divisions between two powers of two, by the lower of them in MiB; the first and the last also for all beyond.
    divisions = settings.get("roundup_power2_divisions") or {}
    divisions = {int(power): int(number) for power, number in divisions.items()}
    last = max(divisions, default=1)

    def rounded(size):
        if size < UNIT:
            return UNIT
        power = 1 << size.bit_length() - 1
        number = divisions.get(min(max(power >> 20, 1), last), 0)
        step = UNIT
        if number > 1 and size > UNIT * number:
            step = power >> number.bit_length() - 1
        return -(-size // step) * step

    return rounded


def _block(block, known, has_rested):
    """A block of a snapshot. `known`: what lay there in an earlier layout."""
    address, size, frames = block["address"], block["size"], block.get("frames")
    requested = block.get("requested_size", size)
    is_same = known is not None and known.size == size and known.requested == requested
    if is_same and (not frames or frames == known.event.get("frames")):
        # Without frames it may be another block, of a step that was not recorded.
        stack = EQUAL_STEP if has_rested and not frames and known.stack == OWN else known.stack
        own = Block(address, size, requested, BEFORE, known.event, stack)
        own.role, own.owner, own.backward, own.number = known.role, known.owner, known.backward, known.number
        return own
    return Block(address, size, requested, BEFORE, block, NOT_RECORDED if has_rested and not frames else OWN)


class Device:
    """The allocator's layout on one device, and what was handed out since a moment."""

    def __init__(self, settings):
        self.settle(settings)
        self.free = {}
        self.free_end = {}
        self.borders = set()
        self.live = {}
        self.pending = {}
        self.blocks = []
        self.event = BEFORE
        self.allocated = 0
        self.reserved = 0
        self.peak = 0
        self.peak_at = BEFORE
        self.reserved_at_peak = 0
        # Events that do not fit the layout: sizes since then are those of the request.
        self.unknown = 0
        # Requests before the layout of now, since then, and at the peak, and which backward pass ran at each.
        self.first = self.requests = self.request_at_peak = 0
        self.timeline = None

    def settle(self, settings):
        """Takes over the allocator's settings."""
        self.rounded = _rounding(settings)
        self.max_split = settings.get("max_split_size", -1)
        if not isinstance(self.max_split, int) or self.max_split <= 0:
            self.max_split = 1 << 62
        self.grows = bool(settings.get("expandable_segments", False))

    @classmethod
    def of_segments(cls, segments, settings, known, has_rested):
        """The layout of a snapshot. `known`: blocks by address, from an earlier layout. `has_rested`: not all requests were
        recorded."""
        self = cls(settings)
        for segment in segments:
            # What a growing segment maps later continues it.
            if not segment.get("is_expandable"):
                self.borders.add(segment["address"])
            self.reserved += segment["total_size"]
            for block in segment["blocks"]:
                address, size, state = block["address"], block["size"], block["state"]
                if state == "inactive":
                    self._put(address, size)
                elif state == "active_allocated":
                    own = _block(block, known.get(address), has_rested)
                    self.live[address] = own
                    self.blocks.append(own)
                    self.allocated += size
                else:
                    self.pending[address] = size
        self.peak, self.reserved_at_peak = self.allocated, self.reserved
        return self

    def _put(self, address, size):
        """Adds a free block; neighbours in the segment become one with it."""
        end = address + size
        if end in self.free and end not in self.borders:
            size += self._take(end)
        if address not in self.borders and address in self.free_end:
            before = self.free_end[address]
            size += self._take(before)
            address = before
        self.free[address] = size
        self.free_end[address + size] = address

    def _take(self, address):
        size = self.free.pop(address)
        del self.free_end[address + size]
        return size

    def _cut(self, address, size):
        """Takes a part out of the free block that it lies in."""
        for start, whole in self.free.items():
            if start <= address and address + size <= start + whole:
                break
        else:
            self.unknown += 1
            return
        self._take(start)
        if start < address:
            self.free[start] = address - start
            self.free_end[address] = start
        if address + size < start + whole:
            self.free[address + size] = start + whole - address - size
            self.free_end[start + whole] = address + size

    def alloc(self, entry):
        address, requested = entry["addr"], entry["size"]
        size = self.rounded(requested)
        if address in self.free:
            whole = self._take(address)
            rest = whole - size
            if self.grows or size <= SMALL:
                is_cut = rest >= UNIT
            else:
                is_cut = size < self.max_split and rest > SMALL
            if rest < 0:
                self.unknown += 1
            elif is_cut:
                self.free[address + size] = rest
                self.free_end[address + whole] = address + size
            else:
                size = whole
        else:
            self.unknown += 1
        block = Block(address, size, requested, self.event, entry)
        if self.timeline:
            block.backward = self.timeline.at(self.requests)
        self.requests += 1
        block.number = self.first + self.requests
        self.live[address] = block
        self.blocks.append(block)
        self.allocated += size
        if self.allocated > self.peak:
            self.peak, self.peak_at, self.reserved_at_peak = self.allocated, self.event, self.reserved
            self.request_at_peak = block.number

    def apply(self, entry):
        """Takes over one event of the history."""
        self.event += 1
        action = entry["action"]
        if action == "alloc":
            self.alloc(entry)
        elif action == "free_requested":
            block = self.live.pop(entry["addr"], None)
            if block is None:
                self.unknown += 1
                return
            block.end = self.event
            self.allocated -= block.size
            self.pending[block.address] = block.size
        elif action == "free_completed":
            size = self.pending.pop(entry["addr"], None)
            if size is None:
                self.unknown += 1
            else:
                self._put(entry["addr"], size)
        elif action == "segment_alloc":
            self.borders.add(entry["addr"])
            self.reserved += entry["size"]
            self._put(entry["addr"], entry["size"])
        elif action == "segment_map":
            self.reserved += entry["size"]
            self._put(entry["addr"], entry["size"])
        elif action in ("segment_free", "segment_unmap"):
            self.reserved -= entry["size"]
            self._cut(entry["addr"], entry["size"])
            self.borders.discard(entry["addr"])

    def assign(self, addresses):
        """Gives the blocks that are live now their roles: by address (role, owner). The first role of a block stays."""
        starts = None
        for address, (role, owner) in addresses.items():
            block = self.live.get(address)
            if block is None:
                if starts is None:
                    starts = sorted(self.live)
                at = bisect.bisect_right(starts, address) - 1
                block = self.live[starts[at]] if at >= 0 else None
                if block is None or address >= block.address + block.size:
                    continue
            if block.role is None:
                block.role, block.owner = role, owner

    def at_peak(self):
        """The blocks that were handed out at the peak; their sizes add up to it."""
        return [block for block in self.blocks if block.begin <= self.peak_at < block.end]

    def agrees_with(self, segments):
        """Whether the layout is that of a snapshot."""
        blocks = (block for segment in segments for block in segment["blocks"])
        return {block["address"]: block["size"] for block in blocks if block["state"] == "active_allocated"} == {
            block.address: block.size for block in self.live.values()
        }
