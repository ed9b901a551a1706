#!/usr/bin/env python3
"""Tables of dry runs: causes of running out of memory, verdicts that agree, and scripts that run.

usage: bench/dry_runs.py causes FOLDER_OF_PROGRAMS PYTHON
       bench/dry_runs.py verdicts FOLDER_OF_PROGRAMS PYTHON [CARDS]
       bench/dry_runs.py scripts FOLDER_OF_PROGRAMS LIST

causes    15 programs that run out of memory on a T4, and their repaired twins: the line that is named, and no remark on the twin
verdicts  60 scripts on 5 cards: --fits, the plain run, and --find-batch at its answer and one above say the same
scripts   each line of LIST (name, folder, command; with tabs between): ran, figure, verdict, seconds, host memory

PYTHON is an interpreter with PyTorch. The exit code is 1 where a row is wrong. Nothing needs a GPU.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
CARDS = "T4,A10,V100-32GB,A100-40GB,H100-80GB"

# What all programs of `CAUSES` begin with. FIXED: the repaired twin.
HEAD = "import os, sys\nFIXED = '--fixed' in sys.argv\nimport torch\nimport torch.nn.functional as F\n"
TRAIN = """model = torch.nn.Linear(4096, 4096).cuda()
opt = torch.optim.SGD(model.parameters(), 0.1)
kept, total = [], 0
for step in range(120):
    out = model(torch.empty(16384, 4096, device='cuda'))  # out
    loss = out.square().mean()  # loss
    loss.backward(retain_graph=RETAIN)
    opt.step()
    opt.zero_grad()
    KEEP
"""


def train(keep, retain="False"):
    return TRAIN.replace("RETAIN", retain).replace("KEEP", keep)


# Name, the comment of the line that is to be named, a part of what the report says of it, and the program.
CAUSES = [
    ("outputs", "out", "the program keeps what", train("kept.append(out.mean().item() if FIXED else out)")),
    ("losses", "loss", "the program keeps what", train("kept.append(loss.item() if FIXED else loss)", "True")),
    ("sum_of_losses", "sum", "the program keeps what", train("total = total + (loss.item() if FIXED else loss)  # sum", "True")),
    ("copies", "copy", "the program keeps what", train("kept.append(0 if FIXED else out.detach().clone())  # copy")),
    (
        "evaluation_with_gradients",
        "sum",
        "with each call of the model",
        """model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096)).cuda().eval()
kept = []
with torch.set_grad_enabled(not FIXED):
    for batch in range(60):
        out = model(torch.empty(16384, 4096, device='cuda'))
        kept.append(out.sum())  # sum
""",
    ),
    (
        "predictions",
        "call",
        "with each call of the model",
        """model = torch.nn.Linear(4096, 4096).cuda().eval()
kept = []
with torch.no_grad():
    for batch in range(120):
        out = model(torch.empty(16384, 4096, device='cuda'))  # call
        kept.append(out.argmax(1) if FIXED else out)
""",
    ),
    (
        "recurrent_state",
        "cell",
        "the program keeps what",
        """cell, head = torch.nn.GRUCell(1024, 1024).cuda(), torch.nn.Linear(1024, 1).cuda()
opt = torch.optim.SGD(head.parameters(), 0.1)
h = torch.zeros(16384, 1024, device='cuda')
for step in range(80):
    h = cell(torch.empty(16384, 1024, device='cuda'), h.detach() if FIXED else h)  # cell
    head(h).mean().backward(retain_graph=True)
    opt.step()
    opt.zero_grad()
""",
    ),
    (
        "long_sequence",
        "scores",
        "",
        """lin = torch.nn.Linear(512, 512).cuda()
opt = torch.optim.SGD(lin.parameters(), 0.1)
for length in (512, 1024, 512, 2048 if FIXED else 24576):
    q = lin(torch.empty(8, length, 512, device='cuda'))
    scores = q @ q.transpose(1, 2)  # scores
    scores.softmax(-1).mean().backward()
    opt.step()
    opt.zero_grad()
""",
    ),
    (
        "first_step_of_adam",
        "step",
        "",
        """model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, bias=False) for _ in range(18)]).cuda()
opt = (torch.optim.SGD if FIXED else torch.optim.AdamW)(model.parameters(), 0.1)
for step in range(3):
    model(torch.empty(8, 8192, device='cuda')).sum().backward()
    opt.step()  # step
    opt.zero_grad()
""",
    ),
    (
        "state_dict",
        "clone",
        "",
        """model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, bias=False) for _ in range(32)]).cuda()
state = {}
for name, tensor in model.state_dict().items():
    state[name] = tensor.cpu() if FIXED else tensor.clone()  # clone
""",
    ),
    (
        "parameters_in_float32",
        "move",
        "",
        """layers = []
for _ in range(80):
    layer = torch.nn.Linear(8192, 8192, bias=False)
    layers.append(layer.half().cuda() if FIXED else layer.cuda())  # move
""",
    ),
    (
        "cache_of_keys",
        "cat",
        "",
        """cache = torch.empty(64, 32, 0, 128, device='cuda')
for token in range(64):
    new = torch.empty(64, 32, 256, 128, device='cuda')
    cache = torch.cat((cache, new), 2)[:, :, -2048 if FIXED else 0:]  # cat
""",
    ),
    (
        "batches_in_advance",
        "load",
        "",
        """model = torch.nn.Linear(4096, 8).cuda()
def load(number):
    return torch.empty(16384, 4096, device='cuda')  # load
batches = range(80) if FIXED else [load(number) for number in range(80)]
for batch in batches:
    model(load(batch) if FIXED else batch)
""",
    ),
    (
        "logits_in_float32",
        "float",
        "",
        """head = torch.nn.Linear(1024, 50000, bias=False).cuda().bfloat16()
opt = torch.optim.SGD(head.parameters(), 0.1)
for step in range(2):
    hidden = torch.empty(32768, 1024, device='cuda', dtype=torch.bfloat16)
    labels = torch.zeros(32768, dtype=torch.long, device='cuda')
    for part in range(0, 32768, 2048 if FIXED else 32768):
        logits = head(hidden[part:part + (2048 if FIXED else 32768)])
        F.cross_entropy(logits.float(), labels[part:part + (2048 if FIXED else 32768)]).backward()  # float
    opt.step()
    opt.zero_grad()
""",
    ),
    (
        "fragments",
        "small",
        "tensors held",
        """keep = []
for step in range(2):
    big = torch.empty((4 if FIXED else 11) << 30, dtype=torch.uint8, device='cuda')
    del big
    keep.append([torch.empty(16 << 20, dtype=torch.uint8, device='cuda') for _ in range(8)])  # small
""",
    ),
]

# Scripts whose need grows with --batch-size, each at five sizes: 12 kinds.
SIZED = """import argparse, torch
p = argparse.ArgumentParser()
p.add_argument('--batch-size', type=int, default=8)
p.add_argument('--size', type=int)
p.add_argument('--kind', type=int)
a = p.parse_args()
net = torch.nn.Sequential(torch.nn.Linear(a.size, 4 * a.size), torch.nn.GELU(), torch.nn.Linear(4 * a.size, a.size)).cuda()
Kind = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad][a.kind % 4]
opt = Kind(net.parameters(), 0.01)
data = torch.utils.data.DataLoader([torch.zeros(1)] * 64 * a.batch_size, a.batch_size)
for epoch in range(4):
    net.train()
    for number, _ in enumerate(data):
        x = torch.empty(a.batch_size << 10, a.size, device='cuda')
        try:
            net(x).sum().backward()
        except torch.OutOfMemoryError:
            if a.kind // 4 != 1:
                raise
            continue
        opt.step()
        opt.zero_grad()
    net.eval()
    with torch.no_grad():
        for _ in torch.utils.data.DataLoader([torch.zeros(1)] * 4, 1):
            net(torch.empty((a.batch_size << 10) * (4 if a.kind // 4 == 2 else 1), a.size, device='cuda'))
"""
KINDS, SIZES = range(12), (512, 1024, 1536, 2048, 3072)


def dry_run(programs, options, command, folder=None):
    """The end of a dry run, its report, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as place:
        report = os.path.join(place, "report.json")
        words = [os.path.join(programs, "radrm-run"), "--dry-run", "--quiet", "--no-profile", "--no-dataset", "--json=" + report]
        began = time.monotonic()
        ended = subprocess.run([*words, *options, "--", *command], cwd=folder, capture_output=True, text=True)
        took = time.monotonic() - began
        try:
            with open(report) as file:
                return ended, json.load(file), took
        except (OSError, ValueError):
            return ended, {}, took


def table(titles, rows):
    widths = [max(len(str(row[at])) for row in [titles, *rows]) for at in range(len(titles))]
    for row in [titles, *rows]:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())


def causes(programs, python):
    rows, wrong = [], 0
    for name, mark, says, source in CAUSES:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name + ".py")
            text = HEAD + source
            with open(path, "w") as file:
                file.write(text)
            line = next(at for at, own in enumerate(text.splitlines(), 1) if own.endswith("# " + mark))
            options = ["--emulate", "T4", "--stacks=tensors"]
            ended, report, _ = dry_run(programs, options, [python, path])
            figures = report.get("dry_run") or {}
            gpus = [gpu for process in report.get("tensors") or [] for gpu in process.get("gpus", [])]
            sites = [own["site"] for gpu in gpus for own in gpu["lines"]]
            remarks = [*figures.get("remarks", []), *(note for process in report.get("tensors") or [] for note in process.get("remarks", []))]
            is_out = figures.get("out_of_memory", 0) > 0
            is_named = "(%s.py:%d)" % (name, line) in (sites or [""])[0] or any("(%s.py:%d)" % (name, line) in note for note in remarks)
            is_said = any(says in note for note in remarks) if says else True
            ended, report, _ = dry_run(programs, options, [python, path, "--fixed"])
            figures = report.get("dry_run") or {}
            alarms = [note for note in figures.get("remarks", []) if note.startswith("no bound: memory grows")]
            is_fine = ended.returncode == 0 and figures.get("out_of_memory") == 0 and not alarms
            is_right = is_out and is_named and is_said and is_fine
            wrong += not is_right
            rows.append((name, "yes" if is_out else "NO", (sites or ["none"])[0], "yes" if is_named else "NO, line %d" % line, "yes" if is_said else "NO", "yes" if is_fine else "NO " + "; ".join(alarms)))
    table(("program", "out of memory", "first line", "named", "said", "twin is fine"), rows)
    return wrong


def verdict_of(report, card):
    fits = (report.get("dry_run") or {}).get("fits") or []
    return next((fit["verdict"] for fit in fits if fit["card"] == card), "no" if report.get("dry_run", {}).get("out_of_memory") else "unknown")


def verdicts(programs, python, cards=CARDS):
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sized.py")
        with open(path, "w") as file:
            file.write(SIZED)
        for kind in KINDS:
            for size in SIZES:
                command = [python, path, "--kind", str(kind), "--size", str(size)]
                _, fits, _ = dry_run(programs, ["--fits", cards], [*command, "--batch-size", "8"])
                by_card = {fit["card"]: fit["verdict"] for fit in fits.get("fits") or []}
                for card in cards.split(","):
                    plain = lambda batch: verdict_of(dry_run(programs, ["--emulate", card, "--short-epochs"], [*command, "--batch-size", str(batch)])[1], card)
                    _, found, _ = dry_run(programs, ["--emulate", card, "--find-batch", "--batch-size=1..512"], command)
                    found = found.get("find_batch") or {}
                    largest, own = found.get("largest"), plain(8)
                    at = plain(largest) if largest else "none"
                    above = plain(largest + 1) if largest and largest < 512 else "no"
                    is_right = by_card.get(card) == own and at in ("yes", "partly", "tight", "none") and above not in ("yes", "partly")
                    wrong += not is_right
                    rows.append((kind, size, card, by_card.get(card), own, largest, len(found.get("trials") or []), at, above, "" if is_right else "WRONG"))
    table(("kind", "size", "card", "--fits", "plain", "--find-batch", "runs", "there", "above", ""), rows)
    print("%d of %d wrong" % (wrong, len(rows)))
    return wrong


def scripts(programs, path):
    rows, failed = [], 0
    with open(path) as file:
        listed = [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]
    for name, folder, command in listed:
        ended, report, took = dry_run(programs, ["--timeout", "600"], shlex.split(command), folder)
        figures = report.get("dry_run") or {}
        need = max((gpu["held_peak"] for gpu in figures.get("gpus") or []), default=0)
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        ran = ended.returncode == 0 and need > 0 and not figures.get("withheld")
        failed += not ran
        verdict = next((fit["card"] for fit in figures.get("fits") or [] if fit["verdict"] in ("yes", "partly")), "none")
        why = "" if ran else (figures.get("withheld") or last)[:80]
        rows.append((name, "yes" if ran else "NO", "%.0f MiB" % (need / MIB), verdict, "%.1f s" % took, "%.0f MiB" % (figures.get("host_memory", 0) / MIB), why))
    table(("script", "ran", "figure", "fits first", "time", "host memory", ""), rows)
    print("%d of %d failed" % (failed, len(rows)))
    return failed


WAYS = {"causes": causes, "verdicts": verdicts, "scripts": scripts}

if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in WAYS:
        sys.exit(__doc__)
    sys.exit(1 if WAYS[sys.argv[1]](os.path.abspath(sys.argv[2]), *sys.argv[3:]) else 0)
