"""One data loader for many trainings.

The process that loads::

    from radrm.share import Producer

    Producer(loader, name="imagenet", epochs=90, consumers=4).run()

Each training, in place of its own loader::

    from radrm.share import Consumer

    loader = Consumer("imagenet")
    for epoch in range(90):
        for batch in loader:
            ...

Batches lie in shared memory and are read in place. Only processes of the same user can attach, and nothing that one side
sends makes the other run code: there is no pickle.
"""

from ._consumer import Consumer
from ._core import (
    BatchGone,
    LoaderFailed,
    NameTaken,
    NoGpu,
    NoProducer,
    OrderChanged,
    ProducerDied,
    ProducerEnded,
    ProtocolError,
    Refused,
    ShareError,
)
from ._gpu import GpuArray
from ._producer import Producer
from ._resize import NotResizable
from ._tree import NotShareable

__all__ = [
    "BatchGone",
    "Consumer",
    "GpuArray",
    "LoaderFailed",
    "NameTaken",
    "NoGpu",
    "NoProducer",
    "NotResizable",
    "NotShareable",
    "OrderChanged",
    "Producer",
    "ProducerDied",
    "ProducerEnded",
    "ProtocolError",
    "Refused",
    "ShareError",
]
