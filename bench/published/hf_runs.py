"""Programs of documents of Hugging Face, with transformers and diffusers, random weights and random tokens.

Usage: hf_runs.py {octocoder,sdxl}, hf_runs.py pixart BATCH..., or hf_runs.py bert [checkpointing] [fp16] [adafactor] [batch=N] [load]
"""

import sys

import torch

import figures

DEVICE = "cuda"


def made(make, dtype=torch.float32):
    """A model whose weights are made on the device."""
    torch.set_default_dtype(dtype)
    with torch.device(DEVICE):
        model = make()
    torch.set_default_dtype(torch.float32)
    return model


@torch.inference_mode()
def octocoder():
    from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

    config = GPTBigCodeConfig(
        vocab_size=49152, n_positions=8192, n_embd=6144, n_layer=40, n_head=48, n_inner=24576, multi_query=True
    )
    model = made(lambda: GPTBigCodeForCausalLM(config), torch.bfloat16).eval()
    torch.cuda.reset_peak_memory_stats()
    prompt = torch.randint(10, 49152, (1, 19), device=DEVICE)
    model.generate(prompt, max_new_tokens=60, min_new_tokens=60, do_sample=False, pad_token_id=0)
    figures.show("end")


def autoencoder():
    """The autoencoder of Stable Diffusion XL, which PixArt-Sigma shares, in fp16."""
    from diffusers import AutoencoderKL

    return made(
        lambda: AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4, sample_size=1024,
        ),
        torch.float16,
    )  # fmt: skip


@torch.inference_mode()
def pixart(batches):
    """PixArt-Sigma at 1024 x 1024 in fp16 without decoding; T5's output projections stay in fp32."""
    from diffusers import PixArtTransformer2DModel
    from transformers import T5Config, T5EncoderModel

    t5 = T5Config(
        d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64, vocab_size=32128,
        feed_forward_proj="gated-gelu", is_gated_act=True,
    )  # fmt: skip
    encoder = made(lambda: T5EncoderModel(t5), torch.float16).eval()
    for name, parameter in encoder.named_parameters():
        if name.endswith("wo.weight"):
            parameter.data = parameter.data.float()
    transformer = made(
        lambda: PixArtTransformer2DModel(
            num_attention_heads=16, attention_head_dim=72, in_channels=4, out_channels=8, num_layers=28,
            cross_attention_dim=1152, sample_size=128, patch_size=2, attention_bias=True, caption_channels=4096,
            use_additional_conditions=False,
        ),
        torch.float16,
    ).eval()  # fmt: skip
    vae = autoencoder()
    torch.cuda.empty_cache()
    for batch in batches:
        torch.cuda.reset_peak_memory_stats()
        tokens = torch.randint(0, 32128, (1, 300), device=DEVICE)
        mask = torch.ones_like(tokens)
        states = encoder(tokens, attention_mask=mask)[0].half().repeat(2 * batch, 1, 1)
        latents = torch.randn(batch, 4, 128, 128, device=DEVICE, dtype=torch.float16)
        for _ in range(2):
            noise = transformer(
                torch.cat([latents] * 2),
                encoder_hidden_states=states,
                encoder_attention_mask=mask.repeat(2 * batch, 1),
                timestep=torch.full((2 * batch,), 500, device=DEVICE),
                added_cond_kwargs={"resolution": None, "aspect_ratio": None},
                return_dict=False,
            )[0]
            unconditional, conditional = noise.chunk(2)[0], noise.chunk(2)[1]
            guided = unconditional + 4.5 * (conditional - unconditional)
            latents = latents - 0.05 * guided.chunk(2, dim=1)[0]
        figures.show(f"batch-{batch}")
    print("vae", next(vae.parameters()).device)


@torch.inference_mode()
def sdxl(images=4):
    """Stable Diffusion XL at 1024 x 1024 in fp16, whose decoder runs in fp32 but for its first part."""
    from diffusers import UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    encoders = [
        made(lambda: CLIPTextModel(CLIPTextConfig(
            hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, vocab_size=49408,
        )), torch.float16),
        made(lambda: CLIPTextModelWithProjection(CLIPTextConfig(
            hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20, vocab_size=49408,
            projection_dim=1280,
        )), torch.float16),
    ]  # fmt: skip
    unet = made(
        lambda: UNet2DConditionModel(
            sample_size=128, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            block_out_channels=(320, 640, 1280), layers_per_block=2, cross_attention_dim=2048,
            attention_head_dim=(5, 10, 20), transformer_layers_per_block=(1, 2, 10), use_linear_projection=True,
            addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816,
        ),
        torch.float16,
    ).eval()  # fmt: skip
    vae = autoencoder().eval()
    torch.cuda.reset_peak_memory_stats()
    half = {"device": DEVICE, "dtype": torch.float16}
    latents = torch.randn(images, 4, 128, 128, **half)
    states = torch.randn(2 * images, 77, 2048, **half)
    added = {"text_embeds": torch.randn(2 * images, 1280, **half), "time_ids": torch.zeros(2 * images, 6, **half)}
    for _ in range(2):
        noise = unet(
            torch.cat([latents] * 2),
            torch.tensor(500, device=DEVICE),
            encoder_hidden_states=states,
            added_cond_kwargs=added,
            return_dict=False,
        )[0]
        unconditional, conditional = noise.chunk(2)
        latents = latents - 0.05 * (unconditional + 5.0 * (conditional - unconditional))
    figures.show("denoising")
    vae.to(torch.float32)
    for part in (vae.post_quant_conv, vae.decoder.conv_in, vae.decoder.mid_block):
        part.to(torch.float16)
    decoder = vae.decoder
    picture = decoder.mid_block(decoder.conv_in(vae.post_quant_conv(latents))).float()
    for block in decoder.up_blocks:
        picture = block(picture)
    picture = decoder.conv_out(decoder.conv_act(decoder.conv_norm_out(picture)))
    print(len(encoders), picture.shape)
    figures.show("end")


def bert(options):
    """Training of bert-large-uncased for classification as transformers' Trainer did it in 2022: 512 tokens."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=30522, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        attn_implementation="eager",
    )  # fmt: skip
    model = BertForSequenceClassification(config).to(DEVICE)
    if "load" in options:
        return
    if "checkpointing" in options:
        model.gradient_checkpointing_enable()
    batch = next((int(option.split("=")[1]) for option in options if option.startswith("batch=")), 4)
    if "adafactor" in options:
        from transformers.optimization import Adafactor

        optimizer = Adafactor(model.parameters(), scale_parameter=False, relative_step=False, lr=5e-5)
    else:
        # The Trainer's own AdamW of that time updated one parameter after the other.
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=False)
    scaler = torch.amp.GradScaler(enabled="fp16" in options)
    model.train()
    for _ in range(3):
        for _ in range(4 // batch):
            tokens = torch.randint(100, 30000, (batch, 512), device=DEVICE)
            labels = torch.zeros(batch, dtype=torch.long, device=DEVICE)
            with torch.autocast(DEVICE, torch.float16, enabled="fp16" in options):
                loss = model(input_ids=tokens, labels=labels).loss / (4 // batch)
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        # PyTorch 1.10 kept gradients and set them to zero.
        model.zero_grad(set_to_none=False)


def main():
    name, *rest = sys.argv[1:]
    if name == "bert":
        bert(rest)
    elif name == "pixart":
        pixart([int(batch) for batch in rest])
    else:
        {"octocoder": octocoder, "sdxl": sdxl}[name]()


main()
