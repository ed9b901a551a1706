"""A small training on the host with transformers' Trainer, which saves when radrmd asks, and resumes.

An attempt that resumes takes three more steps. $PLACE/marks has the step at which each begins.
"""

import os

import torch
from radrm.transformers import Checkpoint
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

PLACE = os.environ["PLACE"]
OUTPUT = os.path.join(PLACE, "trained")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, values, labels):
        found = self.layer(values).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, at):
        return {"values": torch.ones(4), "labels": torch.tensor(1.0)}


class Notes(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if not hasattr(self, "begun"):
            self.begun = state.global_step
            with open(os.path.join(PLACE, "marks"), "a") as file:
                print("begins at", self.begun, file=file, flush=True)
        if self.begun and state.global_step >= self.begun + 3:
            control.should_training_stop = True
        return control


last = get_last_checkpoint(OUTPUT) if os.path.isdir(OUTPUT) else None
arguments = TrainingArguments(
    OUTPUT, use_cpu=True, report_to=[], save_strategy="no", per_device_train_batch_size=2, disable_tqdm=True
)
trainer = Trainer(Model(), arguments, train_dataset=Data(), callbacks=[Checkpoint(), Notes()])
trainer.train(resume_from_checkpoint=last)
