#!/usr/bin/env python3
"""AEGIS's published run of 60 jobs on 3 A100-40GB beside replays of it.

usage: bench/aegis.py RADRM [DATA] [SEEDS]     (../shared/data and 20 by default)

The trace (saturn) has no arrivals: all jobs are there at once, in their order. Run times are those of each job alone, memory and activity
those of the solo profiles. A cell has makespan and mean completion time in per cent against exclusive, each against its own.
"""

import csv
import os
import re
import subprocess
import sys
import tempfile

RADRM = os.path.abspath(sys.argv[1])
DATA = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "../shared/data")
SEEDS = sys.argv[3] if len(sys.argv) > 3 else "20"
PROFILES = os.path.join(DATA, "workloads_a100/workloads.csv")
# Mean of Horus's estimates of memory over the measured peaks, as published for AEGIS's workloads.
HORUS = 3.30
# What the replay gives a policy of another system beyond what AEGIS's server did, taken away one after the other.
IN_ORDER = 'policy = "{}"\n[order]\nshortest = 0\n'
NO_PASSING = IN_ORDER + "backfill = false\n"
PACED = NO_PASSING + 'pace = "36s"\npace_shared = "30s"\n'
SETTINGS = {
    "as replayed": "",
    "in the order of the trace": IN_ORDER,
    "the same, and no job passes a blocked one": NO_PASSING,
    "the same, and 36 or 66 s a decision": PACED,
}


def rows(path):
    with open(os.path.join(DATA, path)) as file:
        return list(csv.DictReader(file))


def trace(folder):
    peaks = {}
    for row in rows("workloads_a100/workloads.csv"):
        peaks[row["workload"]] = max(peaks.get(row["workload"], 0), float(row["mem_peak_mib"]))
    path = os.path.join(folder, "saturn.csv")
    lacking = set()
    with open(path, "w") as file:
        print("arrival_s,task,rad,model,batch,dataset,n_gpus,mem_mib,duration_min,est_horus_mib", file=file)
        for row in rows("traces/aegis_saturn_60_order.csv"):
            name = row["workload"]
            if name not in peaks:
                lacking.add(name)
            dataset, batch = name.split("_")[1], re.search(r"_bs(\d+)", name)
            print(0, row["order"], name, name, batch[1] if batch else 0, dataset, row["n_gpus"], round(peaks.get(name, 28712)),
                  float(row["solo_total_s"]) / 60, round(HORUS * peaks.get(name, 28712)), sep=",", file=file)
    if lacking:
        print(f"no profile of {', '.join(sorted(lacking))}: 28,712 MiB, activity of the others on its data", file=sys.stderr)
    return path


def replay(trace, policy, settings, folder, more=()):
    path = os.path.join(folder, "settings.toml")
    with open(path, "w") as file:
        file.write(settings.format(policy))
    # A file of settings is that of `aware`, and may name another policy.
    policy = "aware" if settings else policy
    words = [RADRM, "replay", trace, "--gpus", "3xA100-40GB", "--policy", policy, "--seeds", SEEDS, "--profiles", PROFILES, *more]
    words += ["--settings", path] if settings else []
    done = subprocess.run(words, capture_output=True, text=True)
    line = next((line for line in done.stdout.splitlines() if line.split()[:1] == [policy]), None)
    if done.returncode != 0 or line is None:
        sys.exit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    numbers = [float(number) for number in re.sub(r" ±\S+", "", line).split()[1:7]]
    return numbers[0], numbers[1], numbers[4], numbers[5]


def main():
    published = {row["policy"]: row for row in rows("workloads_a100/published_policies.csv") if row["trace"] == "saturn"}
    alone = published["exclusive"]
    with tempfile.TemporaryDirectory() as folder:
        jobs = trace(folder)
        base = replay(jobs, "exclusive", "", folder)
        print(f"exclusive: published {float(alone['makespan_s']) / 3600:.2f} h / {float(alone['jct_mean_s']) / 3600:.2f} h, "
              f"replayed {base[0]:.2f} h / {base[1]:.2f} h")
        less = lambda own, base: 100 * (own / base - 1)
        for policy, name in [("lucid", "lucid_baseline"), ("horus", "horus_baseline"), ("magm", "oracle_upper_bound")]:
            theirs = [less(float(published[name][column]), float(alone[column])) for column in ("makespan_s", "jct_mean_s", "exec_mean_s")]
            print(f"{policy}: published {theirs[0]:+.1f} / {theirs[1]:+.1f}, execution {theirs[2]:+.1f}")
            cases = [(what, settings, []) for what, settings in SETTINGS.items() if policy != "magm" or not settings]
            if policy == "horus":
                cases.append(("the same, and needs by Horus's estimates", PACED, ["--estimator", "horus"]))
            for what, settings, more in cases:
                hours, completion, ran, ooms = replay(jobs, policy, settings, folder, more)
                print(f"  {what}: {less(hours, base[0]):+.1f} / {less(completion, base[1]):+.1f}, execution {less(ran, base[2]):+.1f}, {ooms:g} out of memory")


main()
