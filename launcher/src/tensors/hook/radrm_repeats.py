"""Which steps of a training repeat, so that the recording of a step like one that was recorded can rest.

A step is what lies between two steps of optimizers. It is recognised by what the program has asked for since its beginning at
each backward pass, at the first call of a model after it began or after a pass did, and at its end.
"""

# Steps in a row that were known, behind which the recording rests.
ENOUGH = 2
# States of steps that are kept: of a program whose steps never repeat only the newest count.
STATES = 1 << 16
# Places of a step by which it is known.
PLACES = 1 << 10


class Steps:
    """The steps that were recorded, and the one of now."""

    def __init__(self):
        self.known = set()
        self.repeated = 0
        self.begin({}, False)

    def begin(self, counts, is_recorded):
        """A step begins. `counts`: requests and bytes so far by device. `is_recorded`: all of it will be."""
        self.start = counts
        self.states = [0]
        self.is_recorded = is_recorded

    def passes(self, place, counts):
        """The step comes to a place. Whether a recorded step came there after the same requests."""
        state = hash((self.states[-1], place))
        for device, (requests, size) in counts.items():
            before = self.start.get(device, (0, 0))
            state = hash((state, device, requests - before[0], size - before[1]))
        self.states.append(state)
        return state in self.known

    def is_long(self):
        """Whether the step has come to more places than are looked at."""
        return len(self.states) > PLACES

    def end(self, counts):
        """The step ends. Whether it is like a recorded one."""
        is_known = self.passes("end", counts)
        self.repeated = self.repeated + 1 if is_known else 0
        if self.is_recorded:
            if len(self.known) > STATES:
                self.known.clear()
            self.known.update(self.states)
        return is_known

    def repeat(self):
        """Whether the last steps were all known."""
        return self.repeated >= ENOUGH
