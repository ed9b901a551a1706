"""A Llama trained under FSDP2, one rank: dry_run_llama.py [405b | 8b | tiny] [TOKENS].

Started by `radrm-run --ranks` or by torchrun. Made on `meta`, parameters, gradients and optimizer states in bfloat16,
blocks recomputed in the backward pass. Each rank prints what was held after each part, and at the peak.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

# Layers, width, heads, heads of keys and values, width of the feed-forward part, words.
SIZES = {
    "405b": (126, 16384, 128, 8, 53248, 128256),
    "8b": (32, 4096, 32, 8, 14336, 128256),
    "tiny": (2, 512, 8, 2, 1024, 4096),
}


class Block(nn.Module):
    def __init__(self, width, heads, key_heads, inner):
        super().__init__()
        self.head, self.key_heads = width // heads, key_heads
        of_keys = self.head * key_heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(width, of_keys, bias=False), nn.Linear(width, of_keys, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def heads(self, x):
        return x.unflatten(-1, (-1, self.head)).transpose(1, 2)

    def forward(self, x):
        y = self.before(x)
        q, k, v = self.heads(self.q(y)), self.heads(self.k(y)), self.heads(self.v(y))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, key_heads, inner, words):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, key_heads, inner) for _ in range(layers))
        self.norm, self.out = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.out(self.norm(x))


def requested():
    """Bytes of tensors, without the allocator's rounding."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


def main(size="405b", tokens="8192"):
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    with torch.device("meta"):
        model = Llama(*SIZES[size]).bfloat16()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cuda")
    held = [requested()]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(2):
        text = torch.zeros(1, int(tokens), dtype=torch.long, device="cuda")
        loss = F.cross_entropy(model(text).flatten(0, 1), text.flatten())
        loss.backward()
        del text, loss
        held.append(requested())
        optimizer.step()
        held.append(requested())
        optimizer.zero_grad()
    loaded, backward, step = held[:3]
    figures = dist.get_rank(), loaded, backward - loaded, step - backward, torch.cuda.max_memory_allocated()
    # One write for each process, so that lines do not mix.
    os.write(1, b"rank %d parameters %d gradients %d states %d peak %d\n" % figures)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
