#!/usr/bin/env python3
"""Settings of radrmd against traces in which nothing is known of any job at first.

usage: bench/defaults.py RADRM [DATA] [SEEDS]     (../shared/data and 60 by default)

Prints two tables for each sharing mode: nothing learned, and learned over the trace. A cell has hours, attempts that ran out of
memory, and those of them in which another job held memory that was reserved for theirs, means over the seeds.

Two traces are made here, as what was published has no memory needs:
- openb: the pods of one GPU with 1 min to 10 h, in their order. A pod needs the part of the GPU that it requested, of its memory and of
  its SMs; equal requests are equal programs. 300 pods, the first 2,000 left out, come at random at 1.3 times what 4 GPUs can do.
- Philly: its run times of 1 min to 10 h at random, 300 of them, each with the program, memory and GPUs of a random row of the thesis's
  traces, at the same load.
"""

import csv
import gzip
import os
import random
import re
import subprocess
import sys
import tempfile

RADRM = os.path.abspath(sys.argv[1])
DATA = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "../shared/data")
SEEDS = sys.argv[3] if len(sys.argv) > 3 else "60"
GPUS, MEMORY_MIB, LOAD, JOBS = 4, 40 << 10, 1.3, 300
COLUMNS = ["arrival_s", "task", "rad", "model", "batch", "dataset", "epochs", "n_gpus", "mem_mib", "duration_min"]
WORKLOADS = os.path.join(DATA, "workloads_a100/workloads.csv")
ASSUMED = "[assumed]\nsmact = 400\nsmocc = 185\ndrama = 246\n"
MIN_FREE = 'unknown = "min-free"\n{}[preconditions]\nmin_free = "{}GiB"\n'
EXCLUSIVE = 'unknown = "exclusive"\n'
SETTINGS = {
    "mps": {
        '`unknown = "exclusive"`': EXCLUSIVE,
        "5 GiB, usual `assumed`": MIN_FREE.format("", 5),
        "14 GiB, usual `assumed`": MIN_FREE.format("", 14),
        "5 GiB, `assumed` of 40 % SM": MIN_FREE.format(ASSUMED, 5),
        "8 GiB, the same": MIN_FREE.format(ASSUMED, 8),
        "defaults: 14 GiB, the same": MIN_FREE.format(ASSUMED, 14),
        "defaults with `most_jobs = 8`": MIN_FREE.format(ASSUMED, 14) + "most_jobs = 8\n",
    },
    "streams": {
        "defaults": EXCLUSIVE,
        "`min_gain = 1000` (no job shares)": EXCLUSIVE + "min_gain = 1000\n",
        "first come, first served": EXCLUSIVE + "[order]\nshortest = 0\n",
        '`unknown = "min-free"`, 5 GiB': MIN_FREE.format("", 5),
    },
}


def rows(path):
    with (gzip.open if path.endswith(".gz") else open)(os.path.join(DATA, path), "rt") as file:
        return list(csv.DictReader(file))


def write(path, jobs):
    """Writes jobs of (row, seconds), with arrivals at random for the load."""
    chance = random.Random(1)
    work = sum(seconds * int(row["n_gpus"]) for row, seconds in jobs) / len(jobs)
    at = 0.0
    with open(path, "w") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for number, (row, seconds) in enumerate(jobs):
            table.writerow({**row, "task": number + 1, "arrival_s": round(at), "duration_min": seconds / 60})
            at += chance.expovariate(GPUS * LOAD / work)


def openb(folder):
    pods = [pod for pod in rows("openb/openb_pod_list_default.csv") if pod["num_gpu"] == "1" and pod["scheduled_time"]]
    ran = lambda pod: float(pod["deletion_time"]) - float(pod["scheduled_time"])
    pods = [pod for pod in pods if 60 <= ran(pod) <= 36000][2000:2000 + JOBS]
    jobs, parts = [], set()
    for pod in pods:
        part = int(pod["gpu_milli"])
        parts.add(part)
        name = f"{pod['cpu_milli']}m{pod['memory_mib']}"
        jobs.append(({"rad": f"pod_{name}_{part}", "model": f"pod{name}", "batch": 1, "dataset": f"part{part}", "epochs": 1, "n_gpus": 1,
                      "mem_mib": min(part * MEMORY_MIB // 1000, MEMORY_MIB - 1024)}, ran(pod)))
    write(os.path.join(folder, "openb.csv"), jobs)
    profiles = os.path.join(folder, "parts.csv")
    with open(profiles, "w") as file:
        print("workload,smact_mean,smocc_mean,drama_mean", file=file)
        for part in sorted(parts):
            # Occupancy and DRAM activity as radrmd assumes them for this SM activity.
            print(f"pod_part{part}_bs1_1gpu,{part / 1000:.3f},{part / 1000 * .4625:.4f},{part / 1000 * .615:.4f}", file=file)
    return os.path.join(folder, "openb.csv"), profiles


def philly(folder):
    chance = random.Random(2)
    times = [float(row["runtime"]) for row in rows("openb/philly_runtime.csv.gz")]
    times = [seconds for seconds in times if 60 <= seconds <= 36000]
    programs = [row for name in ["thesis_60", "thesis_90"] for row in rows(f"traces/{name}.csv")]
    kept = [name for name in COLUMNS if name not in ("arrival_s", "task", "duration_min")]
    jobs = [({name: row[name] for name in kept}, chance.choice(times)) for row in chance.choices(programs, k=JOBS)]
    write(os.path.join(folder, "philly.csv"), jobs)
    return os.path.join(folder, "philly.csv"), WORKLOADS


def replay(trace, profiles, mode, settings, learned, folder):
    path = os.path.join(folder, "settings.toml")
    with open(path, "w") as file:
        file.write(settings)
    known = ["--estimator", "history", "--known", "learned"] if learned else ["--estimator", "none", "--known", "none"]
    words = [RADRM, "replay", trace, "--policy", "aware", "--mode", mode, "--settings", path, "--seeds", SEEDS, "--profiles", profiles, *known]
    done = subprocess.run(words, capture_output=True, text=True)
    line = next((line for line in done.stdout.splitlines() if line.split()[:1] == ["aware"]), None)
    if done.returncode != 0 or line is None:
        sys.exit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    # Hours, then mean and 95th percentile of completion, wait, execution, out-of-memory and harmed attempts.
    numbers = re.sub(r" ±\S+", "", line).split()[1:]
    return float(numbers[0]), float(numbers[1]), float(numbers[5]), float(numbers[6])


with tempfile.TemporaryDirectory() as folder:
    traces = {name: (os.path.join(DATA, f"traces/{name}.csv"), WORKLOADS) for name in ["thesis_60", "thesis_90", "carma_t1_60"]}
    traces |= {"openb": openb(folder), "Philly": philly(folder)}
    for mode, settings in SETTINGS.items():
        for learned in (False, True):
            print(f"\n{mode}, {'learned over the trace' if learned else 'nothing learned'}: makespan h / mean completion h, retries, harmed\n")
            print("| setting | " + " | ".join(traces) + " |")
            print("|---|" + "---|" * len(traces))
            for name, text in settings.items():
                cells = [replay(*trace, mode, text, learned, folder) for trace in traces.values()]
                print(f"| {name} | " + " | ".join(f"{h:.2f} / {jct:.2f}, {ooms:g}, {harmed:g}" for h, jct, ooms, harmed in cells) + " |", flush=True)
