"""Training steps on demand: reads commands, one in a line, and answers each with a line of JSON.

load WORK    makes a model and warms it up: resnet50, gpt2, small-kernels
run N        makes N steps and waits for them: {"seconds": S}
profile N    the same under PyTorch's profiler
drop         gives the model's memory back: {"reserved": the most bytes so far}
quit
"""

import gc
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LAYERS, HEADS, TOKENS, VOCABULARY = 768, 12, 12, 1024, 50304


class Layer(nn.Module):
    """A block of a decoder, normalised before attention and before the MLP."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        qkv = self.qkv(self.norms[0](x)).chunk(3, dim=2)
        heads = F.scaled_dot_product_attention(*(part.view(shape).transpose(1, 2) for part in qkv), is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.layers(x)))


def gpt2():
    model = Decoder().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(0, VOCABULARY, (2, 4, TOKENS), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(ids[0]).flatten(0, 1), ids[1].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def resnet50():
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(weights=None).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def small_kernels():
    """5,000 launches that take no time on the GPU: what is left is the cost of a launch."""
    x = torch.zeros(32, device="cuda")

    def step():
        for _ in range(5000):
            x.add_(1.0)

    return step


WORKS = {"gpt2": gpt2, "resnet50": resnet50, "small-kernels": small_kernels}


def timed(step, count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - start}


def main():
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    # Answers go where the harness reads; whatever else is printed must not be taken for one.
    answers, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=answers, flush=True)
    step = None
    for line in sys.stdin:
        words = line.split()
        answer = {}
        try:
            if words[0] == "quit":
                break
            if words[0] == "load":
                step = WORKS[words[1]]()
                timed(step, 3)
            elif words[0] == "run":
                answer = timed(step, int(words[1]))
            elif words[0] == "profile":
                from torch.profiler import ProfilerActivity, profile

                with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
                    answer = timed(step, int(words[1]))
            elif words[0] == "drop":
                answer = {"reserved": torch.cuda.max_memory_reserved()}
                step = None
                gc.collect()
                torch.cuda.empty_cache()
        except Exception as error:
            answer = {"error": "%s: %s" % (type(error).__name__, str(error)[:200])}
        print(json.dumps(answer), file=answers, flush=True)


main()
