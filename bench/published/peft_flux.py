"""Training of FLUX.2-klein-base-4B's transformer with a PEFT method: 512 x 512, batch 2, bf16, checkpointing, AdamW.

Usage: peft_flux.py METHOD... Prompts and latents are random tensors of the size that the published program caches.
"""

import gc
import sys

import peft
import torch
from diffusers import Flux2Transformer2DModel
from torch import nn
from transformers import Dinov2Config, Dinov2Model

DEVICE = "cuda"
BF16 = torch.bfloat16
# Images for training, tokens of a prompt, latent channels and side.
IMAGES, TOKENS, CHANNELS, SIDE, BATCH = 14, 512, 128, 32, 2
WIDTH = 7680
MODEL = {
    "in_channels": CHANNELS,
    "num_layers": 5,
    "num_single_layers": 20,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": WIDTH,
    "guidance_embeds": False,
}
LINEARS = [
    "to_out.0", "to_add_out", "to_qkv_mlp_proj", "add_k_proj", "add_q_proj", "add_v_proj", "to_k", "to_q", "to_v",
    "linear_in", "linear_out",
]  # fmt: skip
METHODS = {
    "full": None,
    "lora": ("LoraConfig", {"r": 32, "lora_alpha": 32}),
    "lora-64": ("LoraConfig", {"r": 64, "lora_alpha": 64}),
    "dora-64": ("LoraConfig", {"r": 64, "lora_alpha": 64, "use_dora": True}),
    # A single factor is trained without PEFT's extension, which needs a CUDA compiler: the published count of trainable
    # parameters says that it was so there.
    "boft": ("BOFTConfig", {"boft_block_size": 4, "boft_n_butterfly_factor": 2}),
    "oft": ("OFTConfig", {"oft_block_size": 32}),
    "ia3": ("IA3Config", {"feedforward_modules": LINEARS}),
    "ln": ("LNTuningConfig", {"target_modules": ["norm_q", "norm_k"]}),
    "loha": ("LoHaConfig", {"r": 32, "alpha": 32}),
    "lokr": ("LoKrConfig", {"r": 32, "alpha": 32}),
    "vera": ("VeraConfig", {"r": 32}),
    "road": ("RoadConfig", {"group_size": 64}),
    "fourierft": ("FourierFTConfig", {"n_frequency": 2000, "scaling": 150.0}),
    "hra": ("HRAConfig", {"r": 32}),
    "randlora": ("RandLoraConfig", {"r": 32, "randlora_alpha": 640}),
    "gralora": ("GraloraConfig", {"r": 32, "alpha": 32, "gralora_k": 2}),
    "delora": ("DeloraConfig", {"r": 32, "delora_lambda": 15}),
    "miss": ("MissConfig", {"r": 32}),
    "c3a": ("C3AConfig", {"block_size": 256}),
}


def positions(count, side=None):
    """Coordinates (time, row, column, token) of tokens."""
    index = torch.arange(count)
    zero = torch.zeros_like(index)
    columns = (zero, zero, zero, index) if side is None else (zero, index // side, index % side, zero)
    return torch.stack(columns, dim=1)


def train(name, before):
    with torch.device(DEVICE):
        torch.set_default_dtype(BF16)
        model = Flux2Transformer2DModel(**MODEL)
        torch.set_default_dtype(torch.float32)
    print("parameters", sum(parameter.numel() for parameter in model.parameters()))
    model.enable_gradient_checkpointing()
    method = METHODS[name]
    if method is None:
        model.requires_grad_(True)
    else:
        configuration, settings = method
        model = peft.get_peft_model(model, getattr(peft, configuration)(**{"target_modules": LINEARS, **settings}))
    # As in the published program: a method's buffers go to the device with the rest. BOFT's are 5.6 GiB.
    model.to(DEVICE)
    model.train()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    print("trainable", sum(parameter.numel() for parameter in trainable))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)

    all_prompts = torch.zeros(IMAGES, TOKENS, WIDTH, dtype=BF16, device=DEVICE)
    all_latents = torch.zeros(IMAGES, CHANNELS, SIDE, SIDE, dtype=BF16, device=DEVICE)
    text_positions = positions(TOKENS).repeat(IMAGES, 1, 1).to(DEVICE)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for step in range(4):
        chosen = torch.arange(BATCH, device=DEVICE)
        latents = all_latents.index_select(0, chosen)
        prompts = all_prompts.index_select(0, chosen)
        text = text_positions.index_select(0, chosen)
        image = positions(SIDE * SIDE, SIDE).expand(BATCH, -1, -1).to(DEVICE)
        noise = torch.randn_like(latents)
        sigmas = torch.full((BATCH, 1, 1, 1), 0.5, dtype=BF16, device=DEVICE)
        noisy = (1.0 - sigmas) * latents + sigmas * noise
        optimizer.zero_grad(set_to_none=True)
        predicted = model(
            hidden_states=noisy.flatten(2).permute(0, 2, 1),
            timestep=torch.full((BATCH,), 0.5, device=DEVICE),
            guidance=None,
            encoder_hidden_states=prompts,
            txt_ids=text,
            img_ids=image,
            return_dict=False,
        )[0]
        predicted = predicted.permute(0, 2, 1).reshape(BATCH, CHANNELS, SIDE, SIDE)
        target = noise - latents
        weighting = torch.ones_like(sigmas)
        loss = torch.mean((weighting.float() * (predicted.float() - target.float()) ** 2).reshape(BATCH, -1), 1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print("step", step, loss.detach().item())
    print(f"figure {name} reserved {torch.cuda.max_memory_reserved() - before}", flush=True)


def main():
    nn.Linear(1, 1).to(DEVICE)
    before = torch.cuda.max_memory_reserved()
    # The encoder of the evaluation stays on the device while the transformer is trained.
    encoder = Dinov2Model(Dinov2Config()).to(DEVICE).eval()
    for name in sys.argv[1:]:
        train(name, before)
        gc.collect()
        torch.cuda.empty_cache()
    print("encoder", encoder.device)


main()
