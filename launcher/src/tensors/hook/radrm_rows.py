"""Who holds memory, as radrm-run reads it: rows of category, owner, stack and whose stack it is."""

# Rows of a device: what is smaller is added up by category.
ROWS = 4096
# Frames of a stack.
FRAMES = 64


def largest(rows):
    """The largest rows; all others are added up by category. A row is [bytes, blocks] by (category, owner, frames, stack)."""
    kept = dict(sorted(rows.items(), key=lambda row: -row[1][0])[:ROWS])
    for key, (size, number) in rows.items():
        if key not in kept:
            row = kept.setdefault((key[0], None, (), key[3]), [0, 0])
            row[0] += size
            row[1] += number
    return kept


def packed(uuid, allocated, reserved, rows, models):
    """The figures of a device: names by number. `models`: the class of each model by number."""
    codes, owners, lines = {}, {}, []
    for (category, owner, frames, whose), (size, blocks) in sorted(rows.items(), key=lambda row: -row[1][0]):
        at = -1
        if owner:
            at = owners.setdefault((models.get(owner[0], ""), owner[1]), len(owners))
        stack = [[codes.setdefault((file, name), len(codes)), line] for file, name, line in frames]
        lines.append([category, at, stack, size, blocks, whose])
    return {
        "uuid": uuid,
        "allocated": allocated,
        "reserved": reserved,
        "codes": list(codes),
        "modules": list(owners),
        "rows": lines,
    }
