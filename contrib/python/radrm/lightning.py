"""A callback of PyTorch Lightning that writes a checkpoint when radrmd asks for one.

    from radrm.lightning import Checkpoint

    checkpoint = Checkpoint("last.ckpt")
    trainer = Trainer(callbacks=[checkpoint])
    trainer.fit(model, ckpt_path=checkpoint.found())
"""

import os
import sys

from ._checkpoint import REQUEUE, should_checkpoint

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback

__all__ = ["Checkpoint"]


class Checkpoint(Callback):
    """Saves to ``path`` at the first optimizer step after the request, on all ranks at the same one.

    Then the program ends with 75, so that radrmd runs it again; with ``stop=False`` it goes on, until radrmd ends it. With
    several ranks each step in ``every`` has one collective operation, by which they agree.
    """

    def __init__(self, path, stop=True, every=1):
        super().__init__()
        self.path, self.stop, self.every = os.fspath(path), stop, max(1, int(every))
        self._step, self._saved = 0, False

    def found(self):
        """The path, if a checkpoint is there: for ``ckpt_path``. None otherwise."""
        return self.path if os.path.exists(self.path) else None

    def on_train_start(self, trainer, pl_module):
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        # Between two optimizer steps gradients are accumulated, which no checkpoint has.
        if self._saved or trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if self._step % self.every:
            return
        if not trainer.strategy.reduce_boolean_decision(should_checkpoint(), all=False):
            return
        trainer.save_checkpoint(self.path)
        self._saved = True
        if self.stop:
            raise SystemExit(REQUEUE)
