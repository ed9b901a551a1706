"""Pretraining of Llama 3 8B as torchtitan did it in January 2025: FSDP2, bf16 parameters, fp32 reduction, eager.

Usage: fsdp_llama.py {none,selective,full} TOKENS BATCH: checkpointing of no block, of every second, of all.
"""

import functools
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

import figures

WIDTH, BLOCKS, HEADS, KEYS, HIDDEN, VOCABULARY = 4096, 32, 32, 8, 14336, 128_256
HEAD = WIDTH // HEADS
linear = functools.partial(nn.Linear, bias=False)


def rotated(states, rotation):
    pairs = torch.view_as_complex(states.float().reshape(*states.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation).flatten(3).type_as(states)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = linear(WIDTH, WIDTH), linear(WIDTH, KEYS * HEAD), linear(WIDTH, KEYS * HEAD)
        self.output = linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)
        self.before, self.after = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)

    def attention(self, states, rotation):
        batch, length, _ = states.shape
        query = self.query(states).view(batch, length, HEADS, HEAD)
        key = self.key(states).view(batch, length, KEYS, HEAD)
        value = self.value(states).view(batch, length, KEYS, HEAD)
        query, key = rotated(query, rotation), rotated(key, rotation)
        key, value = (
            one[:, :, :, None, :].expand(batch, length, KEYS, HEADS // KEYS, HEAD).reshape(batch, length, HEADS, HEAD)
            for one in (key, value)
        )
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).contiguous().view(batch, length, -1))

    def forward(self, states, rotation):
        states = states + self.attention(self.before(states), rotation)
        normed = self.after(states)
        return states + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.output = nn.RMSNorm(WIDTH, eps=1e-5), linear(WIDTH, VOCABULARY)
        self.register_buffer("rotation", torch.zeros(1, length, 1, HEAD // 2, dtype=torch.complex64))

    def forward(self, tokens):
        states = self.embedding(tokens)
        for block in self.blocks:
            states = block(states, self.rotation)
        return self.output(self.norm(states))


def main():
    checkpointing, length, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("nccl")
    torch.cuda.set_device(0 if torch.cuda.device_count() == 1 else dist.get_rank() % torch.cuda.device_count())
    with torch.device("meta"):
        model = Llama(length)
    for index, block in enumerate(model.blocks):
        if checkpointing == "full" or (checkpointing == "selective" and index % 2 == 0):
            model.blocks[index] = checkpoint_wrapper(block, preserve_rng_state=False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for index, block in enumerate(model.blocks):
        fully_shard(block, mp_policy=policy, reshard_after_forward=index < BLOCKS - 1)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
    for _ in range(3):
        optimizer.zero_grad()
        sample = torch.randint(0, VOCABULARY, (batch, length + 1))
        tokens, labels = sample[:, :-1].cuda(), sample[:, 1:].cuda()
        predicted = model(tokens)
        loss = functional.cross_entropy(predicted.flatten(0, 1).float(), labels.flatten(0, 1))
        # Freed before the backward pass, where the peak would be.
        del predicted
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
    figures.show("end")


main()
