"""Random content for data sets that are not there.

Image classification sets of torchvision have fixed shapes and numbers of classes: those are known here. A set
is as long as it really is, its samples are made when they are asked for, and the program's own transforms work
on them. load_dataset of the package `datasets` gives texts and labels.
"""

import sys

# Height, width, mode, classes, samples for training and for testing.
IMAGES = {
    "MNIST": (28, 28, "L", 10, 60000, 10000),
    "FashionMNIST": (28, 28, "L", 10, 60000, 10000),
    "KMNIST": (28, 28, "L", 10, 60000, 10000),
    "EMNIST": (28, 28, "L", 47, 112800, 18800),
    "CIFAR10": (32, 32, "RGB", 10, 50000, 10000),
    "CIFAR100": (32, 32, "RGB", 100, 50000, 10000),
    "SVHN": (32, 32, "RGB", 10, 73257, 26032),
    "STL10": (96, 96, "RGB", 10, 5000, 8000),
    "Food101": (512, 512, "RGB", 101, 75750, 25250),
    "Flowers102": (500, 625, "RGB", 102, 1020, 6149),
    "OxfordIIITPet": (375, 500, "RGB", 37, 3680, 3669),
    "ImageNet": (375, 500, "RGB", 1000, 1281167, 50000),
    "ImageFolder": (375, 500, "RGB", 1000, 1281167, 50000),
}


def __getattr__(name):
    """The class of a set in a process that has not loaded torchvision yet."""
    if name in IMAGES:
        import torchvision.datasets

        return vars(torchvision.datasets)[name]
    raise AttributeError(name)


def _is_test(arguments, keywords):
    words = [str(value) for value in list(arguments) + list(keywords.values())]
    return keywords.get("train") is False or any(word in ("test", "val", "valid", "validation") for word in words)


def _images(datasets, shape):
    height, width, mode, classes, train, test = shape

    class Images(datasets.VisionDataset):
        def __init__(self, root=".", *arguments, transform=None, target_transform=None, transforms=None, **keywords):
            super().__init__(root, transforms, transform, target_transform)
            folder = str(root).rstrip("/").rsplit("/", 1)[-1]
            self._count = test if _is_test(arguments, keywords) or folder in ("val", "test") else train
            self.classes = [str(number) for number in range(classes)]
            self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
            self.targets = [number % classes for number in range(self._count)]

        def __len__(self):
            return self._count

        def __getitem__(self, index):
            if index >= self._count:
                raise IndexError(index)
            import numpy
            from PIL import Image

            planes = (height, width, 3) if mode == "RGB" else (height, width)
            noise = numpy.random.default_rng(index).integers(0, 256, planes, dtype=numpy.uint8)
            image, target = Image.fromarray(noise, mode=None), self.targets[index]
            if self.transforms is not None:
                image, target = self.transforms(image, target)
            return image, target

    return Images


def _torchvision(module):
    for name, shape in IMAGES.items():
        if hasattr(module, name):
            fake = _images(module, shape)
            fake.__name__ = fake.__qualname__ = name
            # Processes that are spawned find a set's class here.
            globals()[name] = fake
            setattr(module, name, fake)


def _load_dataset(module):
    def load_dataset(path, *arguments, split=None, **keywords):
        texts = ["the quick brown fox jumps over the lazy dog " * 64] * 1000
        whole = module.Dataset.from_dict({"text": texts, "label": [number % 2 for number in range(1000)]})
        if split is not None:
            return whole
        return module.DatasetDict({"train": whole, "validation": whole, "test": whole})

    module.load_dataset = load_dataset
    print("radrm-run: load_dataset gives 1000 made-up texts with labels", file=sys.stderr)


CALLS = {"torchvision.datasets": _torchvision, "datasets": _load_dataset}
