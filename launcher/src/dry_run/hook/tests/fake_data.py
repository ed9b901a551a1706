"""A made-up data set goes to workers that are spawned, or that a server forks, with a stand-in for torchvision."""

import os
import pathlib
import subprocess
import sys
import tempfile

TORCHVISION = """
class VisionDataset:
    def __init__(self, root, transforms=None, transform=None, target_transform=None):
        self.root, self.transforms = root, transforms or transform

class MNIST(VisionDataset):
    def __init__(self, *arguments, **keywords):
        raise RuntimeError("Dataset not found")
"""

PROGRAM = """
import multiprocessing
import sys

import torchvision.datasets


def double(image):
    return 2 * image


def worker(data, out):
    out.put((len(data), data.transforms(21), type(data) is torchvision.datasets.MNIST, type(data).__module__))


if __name__ == "__main__":
    data = torchvision.datasets.MNIST("data", train=True, transform=double)
    context = multiprocessing.get_context(sys.argv[1])
    out = context.Queue()
    process = context.Process(target=worker, args=(data, out))
    process.start()
    found = out.get(timeout=120)
    process.join()
    assert found == (60000, 42, True, "radrm_fake_data"), found
"""

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    (folder / "torchvision").mkdir()
    (folder / "torchvision" / "__init__.py").write_text("")
    (folder / "torchvision" / "datasets.py").write_text(TORCHVISION)
    (folder / "notes").write_text("")
    (folder / "program.py").write_text(PROGRAM)
    own = {
        "PYTHONPATH": os.pathsep.join([*sys.argv[1:], str(folder)]),
        "RADRM_DRY_RUN_NOTES": str(folder / "notes"),
        "RADRM_DRY_RUN_FAKE_DATA": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for start in ("fork", "spawn", "forkserver"):
        subprocess.run([sys.executable, str(folder / "program.py"), start], env={**os.environ, **own}, check=True, timeout=300)
    assert (folder / "notes").read_text() == "", (folder / "notes").read_text()
