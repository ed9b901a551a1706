#!/usr/bin/env python3
"""Settings of radrmd against traces in which nothing is known of any job at first.

usage: bench/defaults.py RADRM [DATA] [SEEDS]     (../shared/data and 60 by default)

Prints two tables for each sharing mode: nothing learned, and learned over the trace; and one of jobs whose load is known late. A cell
has hours, attempts that ran out of memory, and those of them in which another job held memory that was reserved for theirs, means over
the seeds. "-": there are no dry runs of the trace's jobs.

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
# Recorded dry runs of the programs of the thesis's and CARMA's traces.
DRY_RUNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../scheduler-core/tests/data/thesis_dry_runs.csv")
ASSUMED = "[assumed]\nsmact = 400\nsmocc = 185\ndrama = 246\n"
MIN_FREE = 'unknown = "min-free"\n{}[preconditions]\nmin_free = "{}GiB"\n'
EXCLUSIVE = 'unknown = "exclusive"\n'
# The replay has the wait for a dry run in no job's time.
DRY_RUN = {False: ["--estimator", "dry", "--known", "none", "--estimates", DRY_RUNS],
           True: ["--estimator", "combined", "--known", "learned", "--estimates", DRY_RUNS]}
# No activity is read, so none is learned; the replay then learns no run times either.
NO_KERNELS = {False: ["--estimator", "none", "--known", "none", "--model", "read = 0"],
              True: ["--estimator", "history", "--known", "none", "--model", "read = 0"]}
KNOWN = {False: ["--estimator", "none", "--known", "none"], True: ["--estimator", "history", "--known", "learned"]}
# Each setting with what the replay knows, where nothing and where programs are learned.
SETTINGS = {
    "mps": {
        '`unknown = "exclusive"`': EXCLUSIVE,
        "5 GiB, usual `assumed`": MIN_FREE.format("", 5),
        "14 GiB, usual `assumed`": MIN_FREE.format("", 14),
        "5 GiB, `assumed` of 40 % SM": MIN_FREE.format(ASSUMED, 5),
        "8 GiB, the same": MIN_FREE.format(ASSUMED, 8),
        "defaults: 14 GiB, the same": MIN_FREE.format(ASSUMED, 14),
        "defaults with `most_jobs = 8`": MIN_FREE.format(ASSUMED, 14) + "most_jobs = 8\n",
        "defaults with `[dry_run] on`": (MIN_FREE.format(ASSUMED, 14), DRY_RUN),
        '`kernels = "off"`, no counters': (MIN_FREE.format(ASSUMED, 14), NO_KERNELS),
    },
    "streams": {
        "defaults": EXCLUSIVE,
        "`min_gain = 1000` (no job shares)": EXCLUSIVE + "min_gain = 1000\n",
        "first come, first served": EXCLUSIVE + "[order]\nshortest = 0\n",
        '`unknown = "min-free"`, 5 GiB': MIN_FREE.format("", 5),
        "defaults with `[dry_run] on`": (EXCLUSIVE, DRY_RUN),
        '`kernels = "off"`, no counters': (EXCLUSIVE, NO_KERNELS),
    },
}


# Jobs whose needs are known, and of which the load is known at once, after 10 s, or never: the last are taken for light ones all the time.
LIGHT = "[assumed]\nsmact = 10\nsmocc = 5\ndrama = 6\n"
NEEDS = ["--estimator", "measured", "--known"]
LATE = {
    "known at once": (MIN_FREE.format(ASSUMED, 14), [*NEEDS, "all"]),
    "read after 10 s": (MIN_FREE.format(ASSUMED, 14), [*NEEDS, "none", "--model", "read = 10000"]),
    "never: taken for 1 % SM": (MIN_FREE.format(LIGHT, 14), [*NEEDS, "none", "--model", "read = 0"]),
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


def plain(name, folder):
    """A trace without the estimates of other systems, which radrmd does not have."""
    path = os.path.join(folder, f"{name}.csv")
    with open(path, "w") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows(f"traces/{name}.csv"))
    return path, WORKLOADS


def replay(trace, profiles, mode, text, known, folder):
    path, model = os.path.join(folder, "settings.toml"), os.path.join(folder, "model.toml")
    with open(path, "w") as file:
        file.write(text)
    with open(model, "w") as file:
        file.writelines(f"{word}\n" for word in [f'mode = "{mode}"', *known] if " = " in word)
    known = [model if " = " in word else word for word in known]
    words = [RADRM, "replay", trace, "--policy", "aware", "--mode", mode, "--settings", path, "--seeds", SEEDS, "--profiles", profiles, *known]
    done = subprocess.run(words, capture_output=True, text=True)
    if "no estimates of the trace's jobs" in done.stderr:
        return None
    line = next((line for line in done.stdout.splitlines() if line.split()[:1] == ["aware"]), None)
    if done.returncode != 0 or line is None:
        sys.exit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    # Hours, then mean and 95th percentile of completion, wait, execution, out-of-memory and harmed attempts.
    numbers = re.sub(r" ±\S+", "", line).split()[1:]
    return float(numbers[0]), float(numbers[1]), float(numbers[5]), float(numbers[6])


def print_table(title, mode, traces, settings, folder):
    print(f"\n{title}: makespan h / mean completion h, retries, harmed\n")
    print("| setting | " + " | ".join(traces) + " |")
    print("|---|" + "---|" * len(traces))
    for name, (text, known) in settings.items():
        cells = [replay(*trace, mode, text, known, folder) for trace in traces.values()]
        print(f"| {name} | " + " | ".join("{:.2f} / {:.2f}, {:g}, {:g}".format(*cell) if cell else "-" for cell in cells) + " |", flush=True)


with tempfile.TemporaryDirectory() as folder:
    traces = {name: plain(name, folder) for name in ["thesis_60", "thesis_90", "carma_t1_60"]}
    traces |= {"openb": openb(folder), "Philly": philly(folder)}
    for mode, settings in SETTINGS.items():
        for learned in (False, True):
            all_known = {name: of if isinstance(of, tuple) else (of, KNOWN) for name, of in settings.items()}
            print_table(f"{mode}, {'learned over the trace' if learned else 'nothing learned'}", mode, traces,
                        {name: (text, known[learned]) for name, (text, known) in all_known.items()}, folder)
    print_table("mps, load of a job", "mps", traces, LATE, folder)
