"""A callback of transformers' Trainer that writes a checkpoint when radrmd asks for one.

    from radrm.transformers import Checkpoint
    from transformers.trainer_utils import get_last_checkpoint

    trainer = Trainer(..., callbacks=[Checkpoint()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(trainer.args.output_dir))
"""

from transformers import TrainerCallback

from ._checkpoint import REQUEUE, _any_rank, should_checkpoint

__all__ = ["Checkpoint"]


class Checkpoint(TrainerCallback):
    """Has the Trainer save at the first optimizer step after the request, on all ranks at the same one.

    Then the program ends with 75, so that radrmd runs it again; with ``stop=False`` it goes on, until radrmd ends it. With
    several ranks each step in ``every`` has one collective operation, by which they agree.
    """

    def __init__(self, stop=True, every=1):
        self.stop, self.every = stop, max(1, int(every))
        self._asked = self._saved = False

    def on_step_end(self, args, state, control, **_):
        if not self._asked and state.global_step % self.every == 0:
            self._asked = self._agreed(args, should_checkpoint())
        if self._asked and not self._saved:
            control.should_save = True
            if self.stop:
                # Its time is better spent on the checkpoint.
                control.should_evaluate = False
        return control

    def on_save(self, args, state, control, **_):
        self._saved = self._asked
        if self._saved and self.stop:
            # No rank ends while another one writes.
            self._agreed(args, True)
            raise SystemExit(REQUEUE)
        return control

    @staticmethod
    def _agreed(args, asked):
        return _any_rank(asked, args.device) if args.world_size > 1 else asked
