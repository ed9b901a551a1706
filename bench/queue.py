#!/usr/bin/env python3
"""How quick radrmd answers beside a queue of equal jobs.

usage: bench/queue.py FOLDER_OF_PROGRAMS [JOBS...]     (100 1000 10000 100000 by default)

Arrays of equal jobs, 10,000 each at most, wait for 8 emulated GPUs. For 30 s a client asks for the queue, shows the last job and submits a
job without a GPU, in turns, each turn in another order; at the end it asks once for all jobs (--json). Between them it starts `radrm
--version`, which asks nothing: what that takes is no time of radrmd. Prints a row for each size: times of the requests
(median, 99th percentile and longest), jobs that ended, and the part of a core that radrmd took.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS = 30
# Most jobs of an array.
ARRAY = 10_000
# A program that takes GPU memory, such as "hold 500 5", lets the daemon learn from each end.
JOB = os.environ.get("QUEUE_JOB", "sleep 5").split()


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1]


def measure(folder, jobs):
    place = tempfile.mkdtemp()
    socket = os.path.join(place, "socket")
    # The daemon keeps each job's environment.
    environment = {"PATH": os.environ["PATH"], "HOME": place, "RADRM_SOCKET": socket}
    settings = os.path.join(place, "radrmd.toml")
    with open(settings, "w") as file:
        file.write(f"jobs_per_user = {jobs + 1000}\nbytes_per_user = {1 << 32}\n")
    daemon = subprocess.Popen(
        [os.path.join(folder, "radrmd"), "--config", settings, "--emulate", "8xA100-40GB", "--socket", socket, "--state", os.path.join(place, "state"),
         "--no-metrics"], stderr=subprocess.DEVNULL)

    def radrm(*words):
        begun = time.monotonic()
        done = subprocess.run([os.path.join(folder, "radrm"), *words], env=environment, cwd=place, capture_output=True, text=True)
        return time.monotonic() - begun, done

    def cpu():
        with open(f"/proc/{daemon.pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    try:
        while radrm("queue")[1].returncode != 0:
            time.sleep(0.05)
        took, arrays = 0, []
        for size in [ARRAY] * (jobs // ARRAY) + [jobs % ARRAY] * (jobs % ARRAY > 0):
            more, done = radrm("submit", "-q", "--gpu-mem", "4GiB", "--time", "1m", "--array", f"0-{size - 1}", "--", *JOB)
            took += more
            arrays.append(int(done.stdout))
        times = {"queue": [], "all": [], "show": [], "submit": [], "start": []}
        requests = [("queue", ["queue"]), ("show", ["show", str(arrays[0] + jobs - 1)]), ("submit", ["submit", "-q", "--gpus", "0", "--", "true"]),
                    ("start", ["--version"])]
        begun, used = time.monotonic(), cpu()
        while time.monotonic() - begun < SECONDS:
            for name, words in requests:
                times[name].append(radrm(*words)[0])
            # What comes first finds the jobs that were submitted last at their ends.
            requests.append(requests.pop(0))
            time.sleep(0.1)
        used, passed = cpu() - used, time.monotonic() - begun
        times["all"].append(radrm("queue", "--json")[0])
        ended = json.loads(radrm("stats", "--json")[1].stdout)["succeeded"] - len(times["submit"])
        cells = [" / ".join(f"{seconds * 1e3:.0f}" for seconds in (statistics.median(all), percentile(all, 99), max(all))) for all in times.values()]
        print(f"| {jobs} | {took * 1e3:.0f} | {' | '.join(cells)} | {ended} | {used / passed * 100:.0f} % |", flush=True)
    finally:
        radrm("cancel", *map(str, arrays))
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(place, ignore_errors=True)


print("| jobs | submission, ms | queue, ms | queue --json, ms | show, ms | submit, ms | start of radrm, ms | ended in 30 s | radrmd, of a core |")
print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
for number in map(int, sys.argv[2:] or [100, 1000, 10000, 100000]):
    measure(sys.argv[1], number)
