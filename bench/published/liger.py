"""Operators of Liger-Kernel and their counterparts of PyTorch and transformers, forward and backward.

Usage: liger.py OPERATOR:SIZE,SIZE...; for each size and both providers the peak of a pass after the inputs are made.
"""

import gc
import sys

import torch
from torch import nn

import figures

DEVICE = "cuda"
BF16 = torch.bfloat16


def cross_entropy(provider, vocabulary):
    from liger_kernel.transformers.cross_entropy import LigerCrossEntropyLoss

    loss = LigerCrossEntropyLoss() if provider == "liger" else nn.CrossEntropyLoss()
    logits = torch.randn(8 * 2048, vocabulary, requires_grad=True, device=DEVICE)
    target = torch.randint(vocabulary, (8 * 2048,), device=DEVICE)
    return lambda: loss(logits, target).backward()


def fused_linear_cross_entropy(provider, tokens):
    from liger_kernel.transformers.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyLoss

    linears = [nn.Linear(4096, 128256, bias=False, dtype=BF16).to(DEVICE) for _ in range(2)]
    inputs = torch.randn(tokens, 4096, requires_grad=True, dtype=BF16, device=DEVICE)
    target = torch.randint(128256, (tokens,), dtype=torch.long, device=DEVICE)
    if provider == "liger":
        loss, linear = LigerFusedLinearCrossEntropyLoss(), linears[0]
        return lambda kept=linears: loss(linear.weight, inputs, target).backward()
    # Both heads stay on the device, as in the published measurement.
    loss, linear = nn.CrossEntropyLoss(), linears[1]
    return lambda kept=linears: loss(linear(inputs), target).backward()


def gated(provider, batch, length, activation, fused):
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    config = LlamaConfig(hidden_size=4096, intermediate_size=11008, hidden_act=activation)
    inputs = torch.randn(batch, length, 4096, device=DEVICE, dtype=BF16, requires_grad=True)
    layer = (fused if provider == "liger" else LlamaMLP)(config=config).to(DEVICE).to(BF16)

    def step():
        output = layer(inputs)
        output.backward(torch.randn_like(output), retain_graph=True)

    return step


def swiglu(provider, length):
    from liger_kernel.transformers.swiglu import LigerSwiGLUMLP

    return gated(provider, 4, length, "silu", LigerSwiGLUMLP)


def geglu(provider, length):
    from liger_kernel.transformers.geglu import LigerGEGLUMLP

    return gated(provider, 8, length, "gelu_pytorch_tanh", LigerGEGLUMLP)


def norm(layers, provider, rows, width, dtype):
    both = [layer.to(DEVICE) for layer in layers]
    layer = both[0 if provider == "liger" else 1]
    inputs = torch.randn(rows, width, dtype=dtype, device=DEVICE)
    gradient = torch.randn_like(inputs)
    inputs.requires_grad_(True)
    return lambda kept=both: layer(inputs).backward(gradient, retain_graph=True)


def rms_norm(provider, width):
    from liger_kernel.transformers.rms_norm import LigerRMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    layers = [LigerRMSNorm(hidden_size=width, eps=1e-6), LlamaRMSNorm(hidden_size=width, eps=1e-6)]
    return norm(layers, provider, 2048, width, BF16)


def layer_norm(provider, width):
    from liger_kernel.transformers.layer_norm import LigerLayerNorm

    layers = [LigerLayerNorm(hidden_size=width), nn.LayerNorm(width, eps=1e-6)]
    return norm(layers, provider, 4096, width, torch.float32)


def rope(provider, length):
    from liger_kernel.transformers.rope import liger_rotary_pos_emb
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=8192, num_attention_heads=32, num_key_value_heads=8)
    embedding = LlamaRotaryEmbedding(config, device=DEVICE)

    def heads(count):
        return torch.randn((1, length, count, 256), device=DEVICE, requires_grad=True, dtype=BF16).transpose(1, 2)

    query, key = heads(32), heads(8)
    gradients = torch.randn_like(query), torch.randn_like(key)
    positions = torch.arange(length, device=DEVICE, dtype=torch.long).unsqueeze(0)
    cosine, sine = embedding(key, positions)
    apply = liger_rotary_pos_emb if provider == "liger" else apply_rotary_pos_emb

    def step():
        rotated = apply(query, key, cosine, sine, positions)
        torch.autograd.grad(rotated, (query, key), gradients, allow_unused=True, retain_graph=True)

    return step


def kl_div(provider, vocabulary):
    from liger_kernel.transformers.kl_div import LigerKLDIVLoss

    loss = (LigerKLDIVLoss if provider == "liger" else nn.KLDivLoss)(reduction="batchmean")
    inputs = torch.randn(8 * 2048, vocabulary, requires_grad=True, device=DEVICE).log_softmax(dim=-1)
    target = torch.randn(8 * 2048, vocabulary, device=DEVICE).softmax(dim=-1)
    return lambda: loss(inputs, target).backward(retain_graph=True)


OPERATORS = {
    function.__name__: function
    for function in (
        cross_entropy,
        fused_linear_cross_entropy,
        swiglu,
        geglu,
        rms_norm,
        layer_norm,
        rope,
        kl_div,
    )
}


def main():
    for argument in sys.argv[1:]:
        name, sizes = argument.split(":")
        # Each operator had a process of its own: no workspace of an earlier one.
        torch._C._cuda_clearCublasWorkspaces()
        for size in sizes.split(","):
            for provider in ("liger", "torch"):
                step = OPERATORS[name](provider, int(size))
                for _ in range(3):
                    torch.cuda.reset_peak_memory_stats()
                    step()
                figures.show(f"{name}-{provider}-{size}")
                del step
                gc.collect()
                torch.cuda.empty_cache()


main()
