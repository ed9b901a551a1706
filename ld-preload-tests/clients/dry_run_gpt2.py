"""Training steps of a GPT-2-small class model: 12 layers of width 768, vocabulary 50304, 163.1 million parameters.

Bfloat16 autocast, fused AdamW, batches of 4 x 1024 tokens. Prints peak allocated and peak reserved in MiB after
each step; --steps N makes N of them (3), --batch-size B has B sequences each.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, LAYERS, HEADS, CONTEXT = 50304, 768, 12, 12, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.before_mlp = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.query_key_value(self.before_attention(x)).split(WIDTH, 2)
        query, key, value = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        attention = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attention.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=4)
arguments = parser.parse_args()

torch.manual_seed(0)
torch.backends.cuda.enable_cudnn_sdp(False)
model = Model().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for _ in range(arguments.steps):
    shape = (arguments.batch_size, CONTEXT)
    tokens = torch.randint(0, VOCABULARY, shape, device="cuda")
    targets = torch.randint(0, VOCABULARY, shape, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(tokens)
        loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss.item()
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    print("%.1f %.1f" % tuple(peak / 2**20 for peak in peaks), flush=True)
