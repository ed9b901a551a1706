"""Three training steps of a well-known model with random weights: dry_run_models.py MODEL BATCH [OPTION...].

Options: sgd, adamw (default: Adam), amp (bfloat16), channels_last, checkpoint, eval (no training), cifar (images of
32 x 32 in 100 classes), parallel (DataParallel over all GPUs).
Prints the allocator's figures at the end: allocated now, peak allocated, peak reserved, in MiB.
"""

import sys

import torch

SEQUENCE = 512


def torchvision_model(name, size=224):
    def make(batch):
        import torchvision

        keywords = {"init_weights": False} if name == "inception_v3" else {}
        side, classes = (32, 100) if "cifar" in OPTIONS else (size, 1000)
        model = getattr(torchvision.models, name)(weights=None, num_classes=classes, **keywords)

        def loss(model):
            images = torch.randn(batch, 3, side, side, device="cuda")
            if FORMAT is not None:
                images = images.to(memory_format=FORMAT)
            labels = torch.randint(0, classes, (batch,), device="cuda")
            out = model(images)
            out = out if torch.is_tensor(out) else out.logits
            return torch.nn.functional.cross_entropy(out, labels)

        return model, loss

    return make


def text_model(config, head, labels=None, sequence=SEQUENCE, **settings):
    def make(batch):
        import transformers

        own = getattr(transformers, config)(**settings)
        model = getattr(transformers, head)(own)

        def loss(model):
            tokens = torch.randint(0, own.vocab_size, (batch, sequence), device="cuda")
            target = tokens if labels is None else torch.randint(0, labels, (batch,), device="cuda")
            return model(input_ids=tokens, labels=target).loss.mean()

        return model, loss

    return make


def mnist(batch):
    """The network of PyTorch's example."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(9216, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10),
    )

    def loss(model):
        images = torch.randn(batch, 1, 28, 28, device="cuda")
        labels = torch.randint(0, 10, (batch,), device="cuda")
        return torch.nn.functional.cross_entropy(model(images), labels)

    return model, loss


def llm_with_lora(batch):
    import peft
    import transformers

    own = transformers.LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        vocab_size=32000,
    )
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.LlamaForCausalLM(own)
    torch.set_default_dtype(torch.float32)
    lora = peft.LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, lora)

    def loss(model):
        tokens = torch.randint(0, 32000, (batch, SEQUENCE), device="cuda")
        return model(input_ids=tokens, labels=tokens).loss

    return model, loss


class UNet(torch.nn.Module):
    """The U-Net of Ronneberger et al. 2015 with padded convolutions and batch normalisation."""

    def __init__(self, widths=(64, 128, 256, 512, 1024)):
        super().__init__()

        def twice(inputs, outputs):
            layers = []
            for first in (inputs, outputs):
                layers += [torch.nn.Conv2d(first, outputs, 3, padding=1), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU(True)]
            return torch.nn.Sequential(*layers)

        self.down = torch.nn.ModuleList(twice(a, b) for a, b in zip((3, *widths), widths))
        pairs = list(zip(widths[::-1], widths[-2::-1]))
        self.up = torch.nn.ModuleList(torch.nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.merge = torch.nn.ModuleList(twice(a, b) for a, b in pairs)
        self.head = torch.nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else torch.nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for up, merge, skipped in zip(self.up, self.merge, kept[-2::-1]):
            x = merge(torch.cat([skipped, up(x)], 1))
        return self.head(x)


class Separable(torch.nn.Sequential):
    """A convolution for each channel alone, then one across channels, both without bias."""

    def __init__(self, inputs, outputs):
        super().__init__(
            torch.nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
            torch.nn.Conv2d(inputs, outputs, 1, bias=False),
            torch.nn.BatchNorm2d(outputs),
        )


class Block(torch.nn.Module):
    """Separable convolutions beside a shortcut; where the image shrinks, the shortcut is a convolution."""

    def __init__(self, widths, shrinks=True, first_relu=True):
        super().__init__()
        layers = []
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [torch.nn.ReLU(), Separable(inputs, outputs)]
        layers = layers if first_relu else layers[1:]
        self.skip = None
        if shrinks:
            layers.append(torch.nn.MaxPool2d(3, 2, 1))
            self.skip = torch.nn.Sequential(
                torch.nn.Conv2d(widths[0], widths[-1], 1, 2, bias=False), torch.nn.BatchNorm2d(widths[-1])
            )
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x) + (x if self.skip is None else self.skip(x))


class Xception(torch.nn.Module):
    """Xception of Chollet 2017: 22.9 million parameters."""

    def __init__(self):
        super().__init__()

        def plain(inputs, outputs, stride):
            convolution = torch.nn.Conv2d(inputs, outputs, 3, stride, bias=False)
            return torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(outputs), torch.nn.ReLU(True))

        self.layers = torch.nn.Sequential(
            plain(3, 32, 2),
            plain(32, 64, 1),
            Block((64, 128, 128), first_relu=False),
            Block((128, 256, 256)),
            Block((256, 728, 728)),
            *(Block((728,) * 4, shrinks=False) for _ in range(8)),
            Block((728, 728, 1024)),
            Separable(1024, 1536),
            torch.nn.ReLU(True),
            Separable(1536, 2048),
            torch.nn.ReLU(True),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(2048, 1000),
        )

    def forward(self, x):
        return self.layers(x)


def xception(batch):
    def loss(model):
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        labels = torch.randint(0, 1000, (batch,), device="cuda")
        return torch.nn.functional.cross_entropy(model(images), labels)

    return Xception(), loss


def unet(batch):
    def loss(model):
        images = torch.randn(batch, 3, 256, 256, device="cuda")
        labels = torch.randint(0, 2, (batch, 256, 256), device="cuda")
        return torch.nn.functional.cross_entropy(model(images), labels)

    return UNet(), loss


BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
GPT2_LARGE = {"n_embd": 1280, "n_layer": 36, "n_head": 20}
GPT2_XL = {"n_embd": 1600, "n_layer": 48, "n_head": 25}
XLNET_LARGE = {"d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096}
XLNET_BASE = {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}

MODELS = {
    "mnist": mnist,
    "resnet18": torchvision_model("resnet18"),
    "resnet34": torchvision_model("resnet34"),
    "resnet50": torchvision_model("resnet50"),
    "vgg16": torchvision_model("vgg16"),
    "mobilenet_v2": torchvision_model("mobilenet_v2"),
    "mobilenet_v3_small": torchvision_model("mobilenet_v3_small"),
    "efficientnet_b0": torchvision_model("efficientnet_b0"),
    "inception_v3": torchvision_model("inception_v3", 299),
    "convnext_tiny": torchvision_model("convnext_tiny"),
    "vit_b_16": torchvision_model("vit_b_16"),
    "bert_base": text_model("BertConfig", "BertForSequenceClassification", labels=2),
    "bert_large": text_model("BertConfig", "BertForSequenceClassification", labels=2, **BERT_LARGE),
    "bert_base_mlm": text_model("BertConfig", "BertForMaskedLM", vocab_size=28996),
    "bert_large_mlm": text_model("BertConfig", "BertForMaskedLM", vocab_size=28996, **BERT_LARGE),
    "gpt2": text_model("GPT2Config", "GPT2LMHeadModel"),
    "gpt2_large": text_model("GPT2Config", "GPT2LMHeadModel", **GPT2_LARGE),
    "gpt2_xl": text_model("GPT2Config", "GPT2LMHeadModel", **GPT2_XL),
    "xlnet_base": text_model("XLNetConfig", "XLNetForSequenceClassification", labels=2, **XLNET_BASE),
    "xlnet_large": text_model("XLNetConfig", "XLNetForSequenceClassification", labels=2, **XLNET_LARGE),
    "t5_base": text_model(
        "T5Config", "T5ForConditionalGeneration", d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0
    ),
    "unet": unet,
    "xception": xception,
    "llama_1b_lora": llm_with_lora,
}

words = sys.argv[1:]
if len(words) < 2 or words[0] not in MODELS:
    sys.exit("dry_run_models.py MODEL BATCH [OPTION...], where MODEL is one of " + " ".join(MODELS))
OPTIONS = set(words[2:])
FORMAT = torch.channels_last if "channels_last" in OPTIONS else None

torch.manual_seed(0)
# Random weights cost the processor minutes for large models, and their values do not matter.
for name in ("uniform_", "normal_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_"):
    setattr(torch.nn.init, name, lambda tensor, *arguments, **keywords: tensor)
model, loss = MODELS[words[0]](int(words[1]))
model = model.cuda()
if FORMAT is not None:
    model = model.to(memory_format=FORMAT)
if "checkpoint" in OPTIONS:
    model.gradient_checkpointing_enable()
model.train("eval" not in OPTIONS)
if "parallel" in OPTIONS:
    model = torch.nn.DataParallel(model)
parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
if "sgd" in OPTIONS:
    optimizer = torch.optim.SGD(parameters, 1e-3, momentum=0.9)
elif "adamw" in OPTIONS:
    optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)
else:
    optimizer = torch.optim.Adam(parameters, 1e-4)
for step in range(3):
    with torch.autocast("cuda", torch.bfloat16, enabled="amp" in OPTIONS):
        value = loss(model)
    value.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    value.item()
figures = (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
print("%.1f %.1f %.1f" % tuple(value / 2**20 for value in figures))
