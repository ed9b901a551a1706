"""Reads the peaks of PyTorch's allocator without the program's noticing.

The allocator keeps one set of peaks. The program may begin to count anew whenever it likes, which would hide a
peak from us; we do at each phase of a dry run, which must not hide one from the program. So what a new count drops is
kept: for us what the program's drops, and for the program what ours drops.
"""


def _with_peaks_of(figures, earlier):
    """Figures of the allocator, with those peaks of an earlier moment that were higher."""
    merged = dict(figures)
    for name, value in figures.items():
        before = earlier.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            merged[name] = _with_peaks_of(value, before)
        elif name == "peak" and before is not None:
            merged[name] = max(value, before)
    return merged


class Peaks:
    """The allocator's peaks: of the phase, and of the whole run."""

    # How to ask for a device's figures and how to begin anew, in both interfaces that PyTorch has for it.
    INTERFACES = (
        ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats"),
        ("_accelerator_getDeviceStats", "_accelerator_resetPeakStats"),
    )

    def __init__(self, torch):
        self.torch = torch
        self.own = {}
        self.highest = {}
        self.programs = {}
        # Versions have the first, the second or both.
        there = [names for names in self.INTERFACES if all(hasattr(torch._C, name) for name in names)]
        self.stats, self.reset = (getattr(torch._C, name) for name in there[0])
        for stats, reset in there:
            setattr(torch._C, stats, self.since_own_reset(getattr(torch._C, stats)))
            setattr(torch._C, reset, self.programs_reset)

    def since_own_reset(self, stats):
        """The program's query: peaks since its own last reset."""
        return lambda device: _with_peaks_of(stats(device), self.programs.get(device, {}))

    def programs_reset(self, device):
        """The program resets its peaks."""
        self.read(device)
        self.programs.pop(device, None)
        self.reset(device)

    def read(self, device):
        """Bytes allocated and reserved at the peaks of this phase so far; and the figures of now."""
        stats = self.stats(device)
        now = [stats[name]["all"]["peak"] for name in ("allocated_bytes", "reserved_bytes")]
        self.own[device] = list(map(max, now, self.own.get(device, [0, 0])))
        self.highest[device] = max(now[0], self.highest.get(device, 0))
        return self.own[device], stats

    def next_phase(self):
        """Resets the peaks for the next phase; the program's own are kept."""
        for device in range(self.torch.cuda.device_count()):
            _, stats = self.read(device)
            self.programs[device] = _with_peaks_of(stats, self.programs.get(device, {}))
            self.reset(device)
        self.own.clear()


_PEAKS = []


def of(torch):
    """The one reader of this process."""
    if not _PEAKS:
        _PEAKS.append(Peaks(torch))
    return _PEAKS[0]
