"""Finetuning of Llama 3.2 3B with torchtune's models as its recipes for one device do it: batch 2, 4,096 tokens, bf16.

Usage: tune_runs.py {init,packed,chunked,checkpointing,adamw8bit,lora,qlora}...: each of the first four on top of the one
before. All but the first are compiled; the last three move activations to the host.
"""

import gc
import sys
import types

import torch

# Only files of settings need this package, and none is read; it has no wheel.
sys.modules["omegaconf"] = types.SimpleNamespace(DictConfig=dict, ListConfig=list, OmegaConf=object)

from torchtune import training
from torchtune.models.llama3_2 import llama3_2_3b, lora_llama3_2_3b
from torchtune.modules import TransformerSelfAttentionLayer
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params

import figures

BATCH, LENGTH, VOCABULARY = 2, 4096, 128_256
ORDER = ["packed", "chunked", "checkpointing", "adamw8bit"]


def model_of(kind):
    adapters = {"lora_attn_modules": ["q_proj", "v_proj", "output_proj"], "apply_lora_to_mlp": True}
    with training.set_default_dtype(torch.bfloat16), torch.device("cuda"):
        if kind in ORDER:
            return llama3_2_3b()
        model = lora_llama3_2_3b(**adapters, lora_rank=64, lora_alpha=128, quantize_base=kind == "qlora")
    set_trainable_params(model, get_adapter_params(model))
    return model


def run(kind):
    torch.cuda.reset_peak_memory_stats()
    has = set(ORDER[: ORDER.index(kind) + 1]) if kind in ORDER else {"packed", "chunked", "checkpointing"}
    model = model_of(kind)
    figures.show(f"{kind}-init")
    if "checkpointing" in has:
        training.set_activation_checkpointing(model, auto_wrap_policy={TransformerSelfAttentionLayer})
    offloading = training.get_act_offloading_ctx_manager(model, kind in ("adamw8bit", "lora", "qlora"))
    if kind != "packed":
        training.compile_model(model, verbose=False)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if "adamw8bit" in has:
        import bitsandbytes

        # The step of the optimizer is part of the backward pass.
        optimizers = {parameter: bitsandbytes.optim.AdamW8bit([parameter], lr=2e-5) for parameter in trainable}

        def step_of(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in trainable:
            parameter.register_post_accumulate_grad_hook(step_of)
        optimizer = None
    else:
        optimizer = torch.optim.AdamW(trainable, lr=2e-5, fused=True)
    if "chunked" in has:
        loss_of = CEWithChunkedOutputLoss()
        model.set_num_output_chunks(loss_of.num_output_chunks)
    else:
        loss_of = torch.nn.CrossEntropyLoss(ignore_index=-100)
    if kind != "packed":
        loss_of = training.compile_loss(loss_of, verbose=False)
    ignored = torch.full((BATCH, 1), -100, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device="cuda")
        labels = torch.hstack((tokens[..., 1:], ignored))
        with offloading:
            logits = model(tokens)
        if not isinstance(logits, list):
            labels, logits = labels.reshape(-1), logits.reshape(-1, logits.size(-1))
        loss = loss_of(logits, labels)
        del logits
        loss.backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    figures.show(kind)


def main():
    if sys.argv[1:] == ["init"]:
        model_of("lora")
        figures.show("lora-init")
        return
    for kind in sys.argv[1:]:
        run(kind)
        gc.collect()
        torch.cuda.empty_cache()


main()
