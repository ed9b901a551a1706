#!/usr/bin/env python3
"""What radrmd takes of the node while nothing happens.

usage: bench/idle.py FOLDER_OF_PROGRAMS [JOBS [SECONDS]]     (0 jobs, 60 s by default)

JOBS programs sleep on 8 emulated GPUs under the configuration that radrmd has without a file. Prints processor time and wake-ups
(voluntary context switches of all threads) in a minute, system calls in a minute (of another SECONDS / 3 under strace, where that is
installed), resident memory and threads.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time


def status(pid, name):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(rf"^{name}:\s+(\d+)", file.read(), re.M)[1])


def wake_ups(pid):
    return sum(status(f"{pid}/task/{task}", "voluntary_ctxt_switches") for task in os.listdir(f"/proc/{pid}/task"))


def cpu(pid):
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def calls(pid, seconds):
    """System calls in a minute; none without strace."""
    if not shutil.which("strace"):
        return None
    trace = subprocess.Popen(["strace", "-c", "-f", "-p", str(pid)], stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    trace.send_signal(2)
    said = trace.communicate()[1]
    total = re.search(r"^100\.00\s+\S+\s+\S+\s+(\d+).*total$", said, re.M)
    return total and int(total[1]) * 60 / seconds


def measure(folder, jobs, seconds):
    place = tempfile.mkdtemp()
    socket = os.path.join(place, "socket")
    environment = {"PATH": os.environ["PATH"], "HOME": place, "RADRM_SOCKET": socket}
    daemon = subprocess.Popen(
        [os.path.join(folder, "radrmd"), "--emulate", "8xA100-40GB", "--socket", socket, "--state", os.path.join(place, "state"), "--no-metrics"],
        stderr=subprocess.DEVNULL)

    def radrm(*words):
        return subprocess.run([os.path.join(folder, "radrm"), *words], env=environment, cwd=place, capture_output=True, text=True)

    numbers = []
    try:
        while radrm("queue").returncode != 0:
            time.sleep(0.05)
        numbers = [radrm("submit", "-q", "--gpu-mem", "1GiB", "--", "sleep", "100000").stdout.strip() for _ in range(jobs)]
        time.sleep(15)
        pid = daemon.pid
        before = cpu(pid), wake_ups(pid), time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - before[2]
        minute = 60 / passed
        used, woken = (cpu(pid) - before[0]) * minute, (wake_ups(pid) - before[1]) * minute
        memory, threads = status(pid, "VmRSS") / 1024, status(pid, "Threads")
        asked = calls(pid, seconds / 3)
        print(f"| {jobs} | {used:.2f} | {woken:.0f} | {asked and round(asked)} | {memory:.1f} | {threads} |", flush=True)
    finally:
        if numbers:
            radrm("cancel", *numbers)
            time.sleep(3)
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(place, ignore_errors=True)


def main():
    folder, *numbers = sys.argv[1:]
    jobs, seconds = ([int(number) for number in numbers] + [0, 60][len(numbers):])[:2]
    print("| jobs | processor, s/min | wake-ups/min | system calls/min | resident, MiB | threads |\n|--:|--:|--:|--:|--:|--:|", flush=True)
    measure(os.path.abspath(folder), jobs, seconds)


if __name__ == "__main__":
    main()
