"""Why PyTorch's allocator refused a request, by its segments at that moment."""

import radrm_lines

MIB = 1 << 20
# Lines that are named.
LINES = 3


def explain(segments, requested):
    """What tensors held, what the allocator held for none, and where that is in pieces, whose blocks lie between."""
    allocated = reserved = hole = 0
    between, held = {}, {}
    for segment in segments:
        allocated += segment["allocated_size"]
        reserved += segment["total_size"]
        blocks = segment["blocks"]
        hole = max([hole, *(block["size"] for block in blocks if block["state"] == "inactive")])
        is_mostly_free = segment["allocated_size"] * 2 < segment["total_size"]
        for block in blocks:
            found = radrm_lines.line(block.get("frames", ())) if block["state"].startswith("active") else None
            if found:
                held[found] = held.get(found, 0) + block["size"]
                if is_mostly_free:
                    between[found] = between.get(found, 0) + block["size"]
    free = reserved - allocated
    text = "the last refused request, of %d MiB: tensors held %d MiB, and the allocator %d MiB for none, in pieces of up to %d MiB" % (
        requested // MIB,
        allocated // MIB,
        free // MIB,
        hole // MIB,
    )
    # Of what is given back to the driver nothing is in the way.
    if free * 2 >= requested > hole and between:
        text += ": between them lie blocks that were allocated in %s" % max(between, key=between.get)
    largest = sorted(held.items(), key=lambda line: -line[1])[:LINES]
    if largest:
        text += "; of the tensors " + ", ".join("%d MiB in %s" % (size // MIB, line) for line, size in largest)
    return text
