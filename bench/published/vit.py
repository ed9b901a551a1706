"""Finetuning of timm's ViT-H/14 on 224 x 224 images: bf16 autocast, compiled, batch 8, 45 classes.

Usage: vit.py {fused,bitsandbytes}
"""

import sys

import timm
import torch
from torch.nn import functional

DEVICE = "cuda"


def main():
    model = timm.create_model("vit_huge_patch14_224.orig_in21k", pretrained=False, num_classes=45)
    model.to(DEVICE)
    model.compile(fullgraph=True)
    if sys.argv[1] == "fused":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True)
    else:
        import bitsandbytes

        optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4, weight_decay=0)
    model.train()
    for _ in range(3):
        images = torch.zeros(8, 3, 224, 224)
        labels = torch.randint(0, 45, (8,))
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = functional.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


main()
