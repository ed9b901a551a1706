"""Lines of the program among frames of PyTorch's history."""

import os

_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))


def is_of_program(file):
    """Whether a file is the program's own."""
    if file.startswith((_LIBRARY, _HERE)) or "site-packages" in file or file.startswith("??"):
        return False
    # Hooks of this program lie in several folders.
    return not os.path.basename(file).startswith("radrm_")


def frame(own):
    """A frame as the history has it, of its file, function and line."""
    return dict(zip(("filename", "name", "line"), own))


def line(frames):
    """The innermost frame that is the program's own, as `function (file:line)`; None if there is none."""
    for own in frames:
        if is_of_program(own["filename"]):
            return "%s (%s:%d)" % (own["name"], os.path.basename(own["filename"]), own["line"])
    return None
