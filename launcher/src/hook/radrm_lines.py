"""Lines of the program among frames of PyTorch's history."""

import os

_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))


def line(frames):
    """The innermost frame that is the program's own, as `function (file:line)`; None if there is none."""
    for frame in frames:
        name = frame["filename"]
        if name.startswith((_LIBRARY, _HERE)) or "site-packages" in name or name.startswith("??"):
            continue
        # Hooks of this program lie in several folders.
        if os.path.basename(name).startswith("radrm_"):
            continue
        return "%s (%s:%d)" % (frame["name"], os.path.basename(name), frame["line"])
    return None
