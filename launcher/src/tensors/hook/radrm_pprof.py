"""Reads profiles in the format of pprof (profile.proto), as far as stacks, values and labels go."""

import zlib

# What is believed of a profile's size once it is unpacked.
MAX_BYTES = 256 << 20


def _number(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data):
    """Numbers of a message's fields, each with its number or its bytes."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        if key & 7 == 0:
            value, at = _number(data, at)
        else:
            if key & 7 == 2:
                size, at = _number(data, at)
            else:
                size = {1: 8, 5: 4}[key & 7]
            value = data[at : at + size]
            at += size
        yield key >> 3, value


def _numbers(value):
    """A field of numbers that stand one after the other, or of one."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = _number(value, at)
        found.append(number)
    return found


def _unpacked(data):
    if data[:2] != b"\x1f\x8b":
        return data
    unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
    data = unpack.decompress(data, MAX_BYTES)
    if not unpack.eof:
        raise ValueError("the profile is cut off or too large")
    return data


def read(data):
    """Samples of a profile, packed by gzip or not: stack (file, function, line; innermost first), values by their type,
    labels."""
    data = _unpacked(data)
    parts = {}
    for number, value in _fields(data):
        parts.setdefault(number, []).append(value)
    texts = [value.decode("utf-8", "replace") for value in parts.get(6, ())]
    types = [texts[dict(_fields(value)).get(1, 0)] for value in parts.get(1, ())]
    functions = {}
    for value in parts.get(5, ()):
        of = dict(_fields(value))
        functions[of.get(1, 0)] = texts[of.get(4, 0)], texts[of.get(2, 0)]
    # A place stands for several frames where functions are inlined: the last is the outermost.
    places = {}
    for value in parts.get(4, ()):
        of, frames = 0, []
        for number, field in _fields(value):
            if number == 1:
                of = field
            elif number == 4:
                line = dict(_fields(field))
                frames.append(functions.get(line.get(1, 0), ("", "")) + (line.get(2, 0),))
        places[of] = frames
    for value in parts.get(2, ()):
        stack, values, labels = [], [], {}
        for number, field in _fields(value):
            if number == 1:
                for place in _numbers(field):
                    stack.extend(places.get(place, ()))
            elif number == 2:
                values.extend(_numbers(field))
            elif number == 3:
                label = dict(_fields(field))
                labels[texts[label.get(1, 0)]] = texts[label.get(2, 0)]
        yield tuple(stack), dict(zip(types, values)), labels
