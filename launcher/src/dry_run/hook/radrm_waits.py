"""Loops that wait for a value of the GPU, which a dry run does not compute: they would never end.

Counted are readings of what is not known, in a `while` loop (a `for` loop ends by itself), without a step of an optimizer and without
a collective in between. A loop is ended when one of its statements has read

* the same tensor 1,000 times, and no function of PyTorch has written to it: nothing else can change its value either;
* 5,000 times whether something is true, such as whether all sequences have their end token.
"""

import dis
import os
import sys

SAME = 1000
TRUTHS = 5000
# Frames from the reading one outwards that are searched for a loop.
DEPTH = 12


class _Loop:
    """What a statement of a loop has read."""

    __slots__ = ("state", "same", "truths")

    def __init__(self):
        self.state = None
        self.same = self.truths = 0


def loops(code):
    """The loops of a function: first and last offset, and whether it is a `while` loop."""
    names = {own.offset: own.opname for own in dis.get_instructions(code)}
    found = []
    for own in dis.get_instructions(code):
        is_jump = own.opcode in dis.hasjrel or own.opcode in dis.hasjabs
        # The other kind of jump back waits for a coroutine.
        if is_jump and own.argval <= own.offset and names.get(own.argval) != "SEND":
            found.append((own.argval, own.offset, names.get(own.argval) != "FOR_ITER"))
    return found


class Waits:
    """The readings of this process. `end` is called with the place of a loop that waits, and may return."""

    def __init__(self, end):
        self.end = end
        self.by_code = {}
        self.seen = {}

    def forget(self):
        """The program goes on."""
        self.seen.clear()

    def place(self, frame):
        """The innermost frame that is in a loop, if that is a `while` loop."""
        for _ in range(DEPTH):
            if frame is None:
                return None
            code = frame.f_code
            if code not in self.by_code:
                self.by_code[code] = loops(code)
            around = [loop for loop in self.by_code[code] if loop[0] <= frame.f_lasti <= loop[1]]
            if around:
                return frame if min(around, key=lambda loop: loop[1] - loop[0])[2] else None
            frame = frame.f_back
        return None

    def read(self, which, out):
        """Called with what the program reads of a tensor whose value is not known, and which tensor in which state that is."""
        frame = self.place(sys._getframe(2))
        if frame is None:
            return
        loop = self.seen.setdefault((frame.f_code, frame.f_lasti), _Loop())
        state = which, out if isinstance(out, (bool, int, float)) else None
        loop.same = loop.same + 1 if state == loop.state else 1
        loop.state = state
        loop.truths += isinstance(out, bool)
        if loop.same >= SAME or loop.truths >= TRUTHS:
            self.forget()
            self.end("%s (%s:%d)" % (frame.f_code.co_name, os.path.basename(frame.f_code.co_filename), frame.f_lineno))
