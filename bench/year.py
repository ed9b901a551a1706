#!/usr/bin/env python3
"""How long radrmd takes to answer over a year, and whether others wait meanwhile.

usage: bench/year.py FOLDER_OF_PROGRAMS [JOBS]     (200000 jobs by default)

Fills the queue's file of a daemon with a year: figures of 8 GPUs in buckets of 5 minutes, and ended jobs with an attempt each.
Then asks for all of it, while a second client asks for its own queue again and again. Prints a row for each question: its time,
and the longest time of the second client's requests meanwhile.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

YEAR_S = 365 * 86_400
BUCKET_S = 300
GPUS = 8


def fill(path, jobs):
    now = int(time.time())
    file = sqlite3.connect(path)
    file.execute("INSERT INTO jobs (uid, gid, user, spec, environment, stage, held, cancelled, attempt, ooms, floor, devices, submitted_ms, "
                 "ran_ms, boot, why) VALUES (0, 0, 'root', '{\"command\":[\"true\"]}', '[]', 'ended', 0, 0, 1, 0, 0, '[]', 0, 0, '', '')")
    first = file.execute("SELECT max(id) FROM jobs").fetchone()[0] + 1
    file.execute("DELETE FROM jobs WHERE id = ?", (first - 1,))
    file.executemany("INSERT INTO curve_gpus VALUES (?, ?)", [(gpu + 100, f"GPU-{gpu}") for gpu in range(GPUS)])
    begin = (now - YEAR_S) // BUCKET_S * BUCKET_S
    file.executemany(
        "INSERT INTO curves VALUES (?, ?, 60, 6e11, 1e10, 24, 60, 15000, 60, 0.075)",
        ((begin + at * BUCKET_S, gpu + 100) for at in range(YEAR_S // BUCKET_S) for gpu in range(GPUS)))
    ends = [(now - YEAR_S + at * YEAR_S // jobs) * 1000 for at in range(jobs)]
    verdict = '{"ended":{"exited":{"code":0}}}'
    file.executemany(
        "INSERT INTO jobs (id, uid, gid, user, spec, environment, stage, held, cancelled, attempt, ooms, floor, devices, submitted_ms, "
        "first_start_ms, started_ms, ended_ms, ran_ms, boot, verdict, why) VALUES (?, 0, 0, 'root', ?, '[]', 'ended', 0, 0, 1, 0, 0, '[]', "
        "?, ?, ?, ?, 60000, '', ?, 'its program ended')",
        ((first + at, '{"command":["python3","train.py"],"gpus":1}', end - 120_000, end - 60_000, end - 60_000, end, verdict)
         for at, end in enumerate(ends)))
    file.executemany("INSERT INTO attempts VALUES (?, 1, 0, 'root', ?, ?, 60000, 1, 500, 0)",
                     ((first + at, end - 60_000, end) for at, end in enumerate(ends)))
    file.commit()
    file.close()


def measure(folder, jobs):
    place = tempfile.mkdtemp()
    path = os.path.join(place, "socket")
    environment = {**os.environ, "HOME": place, "RADRM_SOCKET": path}
    settings = os.path.join(place, "radrmd.toml")
    with open(settings, "w") as file:
        file.write("keep_days = 0\n")

    def radrm(*words):
        begun = time.monotonic()
        done = subprocess.run([os.path.join(folder, "radrm"), *words], env=environment, cwd=place, capture_output=True, text=True)
        return time.monotonic() - begun, done

    def start():
        begun = time.monotonic()
        daemon = subprocess.Popen(
            [os.path.join(folder, "radrmd"), "--config", settings, "--emulate", "8xA100-40GB", "--socket", path, "--state",
             os.path.join(place, "state"), "--no-metrics"], stderr=subprocess.DEVNULL)
        while radrm("queue")[1].returncode != 0:
            if daemon.poll() is not None:
                raise SystemExit(f"radrmd ended with {daemon.returncode}")
            time.sleep(0.05)
        return daemon, time.monotonic() - begun

    daemon = None
    try:
        daemon, _ = start()
        daemon.terminate()
        daemon.wait()
        fill(os.path.join(place, "state", "queue.db"), jobs)
        daemon, took = start()
        print(f"first start with that file: {took * 1e3:.0f} ms")
        print("| question | answered in, ms | longest other request meanwhile, ms |\n|---|--:|--:|")
        for words in [("queue",), ("stats", "--all", "--html", "page.html"), ("stats", "--all", "--since", "365d"),
                      ("stats", "--all", "--since", "365d", "--html", "page.html"), ("stats", "--all", "--since", "7d"),
                      ("usage",), ("top", "--at", "364d"), ("top", "--at", "2h")]:
            longest, ends = [0.0], threading.Event()

            def other():
                while not ends.is_set():
                    longest[0] = max(longest[0], radrm("queue")[0])

            thread = threading.Thread(target=other)
            thread.start()
            time.sleep(0.3)
            longest[0] = 0.0
            took, done = radrm(*words)
            time.sleep(0.2)
            ends.set()
            thread.join()
            state = "" if done.returncode == 0 else f" (failed: {done.stderr.strip()[:80]})"
            print(f"| `{' '.join(words)}`{state} | {took * 1e3:.0f} | {longest[0] * 1e3:.0f} |", flush=True)
    finally:
        if daemon is not None:
            daemon.terminate()
            daemon.wait()
        shutil.rmtree(place, ignore_errors=True)


measure(os.path.abspath(sys.argv[1]), int((sys.argv[2:] or ["200000"])[0]))
