"""Three training steps of one of a few models. With --count: FLOP of one step by PyTorch's own counter, on tensors without memory.

Usage: dry_run_work.py MODEL [--count]
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def perceptron(device):
    model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(device)
    images, labels = torch.zeros(256, 784, device=device), torch.zeros(256, dtype=torch.long, device=device)
    return model, lambda: F.cross_entropy(model(images), labels)


def resnet50(device):
    import torchvision

    model = torchvision.models.resnet50().to(device)
    images, labels = torch.zeros(4, 3, 224, 224, device=device), torch.zeros(4, dtype=torch.long, device=device)
    return model, lambda: F.cross_entropy(model(images), labels)


def gpt2(device):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, attn_implementation="eager")).to(device)
    tokens = torch.zeros(2, 256, dtype=torch.long, device=device)
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


MODELS = {"perceptron": perceptron, "resnet50": resnet50, "gpt2": gpt2}

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=MODELS)
parser.add_argument("--count", action="store_true")
arguments = parser.parse_args()

if arguments.count:
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        model, loss = MODELS[arguments.model]("meta")
    with FlopCounterMode(display=False) as counter:
        loss().backward()
    print(counter.get_total_flops())
else:
    model, loss = MODELS[arguments.model]("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
