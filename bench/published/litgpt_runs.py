"""Finetuning and generation with LitGPT's models, as its scripts do it, with random weights and tokens.

Usage: litgpt_runs.py {lora,adapter,adapter_v2,generate} MODEL [--quantize bnb.nf4] [--batch N] [--length TOKENS] [--new TOKENS]
"""

import argparse
import importlib

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import BitsandbytesPrecision
from litgpt.utils import chunked_cross_entropy

import figures

MODULES = {"lora": "litgpt.lora", "adapter": "litgpt.adapter", "adapter_v2": "litgpt.adapter_v2", "generate": "litgpt.model"}
LORA = {"lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "lora_query": True, "lora_value": True}
# Tokens of the script's own prompt.
PROMPT = 6
# Tokens of the batches after the first one, which holds the longest sample.
LATER = 256


def checkpoint(config):
    """A checkpoint of the base model on the host, whose pages are never touched."""
    from litgpt.config import Config
    from litgpt.model import GPT

    with torch.device("meta"):
        shapes = GPT(Config(**{key: value for key, value in vars(config).items() if key in Config.__dataclass_fields__}))
    return {name: torch.empty(value.shape, dtype=torch.bfloat16) for name, value in shapes.state_dict().items()}


def finetune(fabric, module, arguments, config):
    with fabric.init_module(empty_init=False):
        model = module.GPT(config)
    getattr(module, f"mark_only_{arguments.method}_as_trainable")(model)
    model = fabric.setup_module(model)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    print("trainable parameters", sum(parameter.numel() for parameter in trainable))
    if arguments.quantize:
        import bitsandbytes

        optimizer = bitsandbytes.optim.PagedAdamW(trainable, lr=3e-4, weight_decay=0.01)
    else:
        optimizer = torch.optim.AdamW(trainable, lr=3e-4, weight_decay=0.01)
    optimizer = fabric.setup_optimizers(optimizer)
    model.load_state_dict(checkpoint(config), strict=False)
    model.max_seq_length = arguments.length
    model.train()
    for batch, length in enumerate((arguments.length, LATER, LATER, LATER)):
        for block in model.transformer.h if "adapter" in arguments.method else ():
            # The cache is for inference; it would keep the graph of the step before.
            block.attn.adapter_kv_cache = None
        tokens = torch.randint(0, config.vocab_size, (arguments.batch, length), device=fabric.device)
        logits = model(tokens, lm_head_chunk_size=128)
        logits[-1] = logits[-1][..., :-1, :]
        loss = chunked_cross_entropy(logits, tokens[..., 1:])
        fabric.backward(loss / 128)
        if batch % 2:
            optimizer.step()
            optimizer.zero_grad()


@torch.inference_mode()
def generate(fabric, module, arguments, config):
    from litgpt.generate.base import generate as tokens_of

    length = PROMPT + arguments.new
    with fabric.init_module(empty_init=True):
        model = module.GPT(config)
    with fabric.init_tensor():
        model.max_seq_length = length
        model.set_kv_cache(batch_size=1)
    model.eval()
    model = fabric.setup_module(model)
    model.load_state_dict(checkpoint(config))
    prompt = torch.randint(0, config.vocab_size, (PROMPT,), device=fabric.device)
    tokens_of(model, prompt, length, temperature=0.8, top_k=50)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=MODULES)
    parser.add_argument("model")
    parser.add_argument("--quantize")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=0)
    parser.add_argument("--new", type=int, default=50)
    arguments = parser.parse_args()
    module = importlib.import_module(MODULES[arguments.method])
    quantized = arguments.quantize and BitsandbytesPrecision(arguments.quantize[4:], torch.bfloat16)
    fabric = Fabric(devices=1, precision=None if quantized else "bf16-true", plugins=quantized or None)
    fabric.launch()
    config = module.Config.from_name(arguments.model, **(LORA if arguments.method == "lora" else {}))
    (generate if arguments.method == "generate" else finetune)(fabric, module, arguments, config)
    figures.show("end")


main()
