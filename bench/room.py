#!/usr/bin/env python3
"""Times of others' requests while one user holds all that radrmd gives him.

usage: bench/room.py FOLDER_OF_PROGRAMS [ROUNDS]     (100 by default; needs root)

One user submits two arrays of 10,000 jobs, follows the output of a job 100 times and opens 200 connections, each with half a
request. Meanwhile root and a third user ask for the queue, submit jobs and read the metrics. The first line is the same
without him.
"""

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

PROGRAMS = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else sys.exit(__doc__)
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 100
HOSTILE, HONEST = [entry.pw_uid for entry in pwd.getpwall() if 0 < entry.pw_uid < 1000][:2]
HELLO = b"RADRMD\0\x03"
PORT = 21990


def main():
    folder = tempfile.mkdtemp(prefix="radrm-room-")
    os.chmod(folder, 0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RADRM")}
    path = os.path.join(folder, "socket")
    env |= {"RADRM_LIB_DIR": PROGRAMS, "RADRM_SOCKET": path, "HOME": "/"}
    with open(os.path.join(folder, "config.toml"), "w") as file:
        file.write(f'emulate = "A100-40GB"\nstate = "{folder}/state"\nmetrics = "127.0.0.1:{PORT}"\n')
    radrm = os.path.join(PROGRAMS, "radrm")
    daemon = subprocess.Popen(
        [os.path.join(PROGRAMS, "radrmd"), "--config", os.path.join(folder, "config.toml"), "--socket", path],
        env=env, stderr=open(os.path.join(folder, "log"), "w"),
    )
    while not os.path.exists(path):
        time.sleep(0.1)

    def run(user, *words):
        began = time.monotonic()
        done = subprocess.run([radrm, *words], env=env, cwd="/", user=user, group=user, capture_output=True, text=True)
        return (time.monotonic() - began) * 1000, done

    def metrics():
        began = time.monotonic()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60).read()
        except OSError as error:
            return (time.monotonic() - began) * 1000, error
        return (time.monotonic() - began) * 1000, None

    asks = {
        "root: `queue`": lambda: run(0, "queue"),
        "third user: `queue`": lambda: run(HONEST, "queue"),
        "root: `submit`": lambda: run(0, "submit", "--gpus", "0", "--hold", "--", "true"),
        "third user: `submit`": lambda: run(HONEST, "submit", "--gpus", "0", "--hold", "--", "true"),
        "`/metrics`": metrics,
        "no request: `radrm --version`": lambda: run(0, "--version"),
    }

    def times(rounds):
        for name, ask in asks.items():
            answers = [ask() for _ in range(rounds)]
            failed = sum(1 for _, done in answers if isinstance(done, Exception) or getattr(done, "returncode", 0))
            ms = sorted(time for time, _ in answers)
            yield name, ms[len(ms) // 2], ms[min(len(ms) - 1, len(ms) * 99 // 100)], ms[-1], failed

    def table(title, rounds):
        print(f"\n{title}\n\n| request | median, ms | 99th percentile | highest | failed of {rounds} |\n|---|--:|--:|--:|--:|")
        for name, median, high, highest, failed in times(rounds):
            print(f"| {name} | {median:.0f} | {high:.0f} | {highest:.0f} | {failed} |", flush=True)

    held, followers = [], []
    try:
        table("Without him", ROUNDS)
        number = "".join(filter(str.isdigit, run(HOSTILE, "submit", "--gpus", "0", "--", "sleep", "1000")[1].stdout.split("\n")[0]))
        arrays = [
            threading.Thread(target=run, args=(HOSTILE, "submit", "--gpus", "1", "--hold", "--array", "0-9999", "--", "true"))
            for _ in range(2)
        ]
        for array in arrays:
            array.start()
        time.sleep(0.2)
        table("While two arrays of 10,000 jobs arrive", max(10, ROUNDS // 10))
        for array in arrays:
            array.join()
        for _ in range(100):
            followers.append(subprocess.Popen([radrm, "logs", "--follow", number], env=env, cwd="/", user=HOSTILE, group=HOSTILE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        def hold():
            while True:
                held[:] = held[-200:]
                try:
                    stream = socket.socket(socket.AF_UNIX)
                    stream.settimeout(1)
                    stream.connect(path)
                    stream.sendall(HELLO + (60_000).to_bytes(4, "little") + b"[")
                    held.append(stream)
                except OSError:
                    pass
                time.sleep(0.02)

        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(HOSTILE)
                os.setuid(HOSTILE)
                hold()
            finally:
                os._exit(1)
        time.sleep(3)
        table("While he has 20,000 jobs, 100 followers and all connections that he gets", ROUNDS)
        os.kill(child, 9)
        os.waitpid(child, 0)
        with open(f"/proc/{daemon.pid}/status") as status:
            print("\nradrmd's highest resident memory:", next(line.split(":")[1].strip() for line in status if line.startswith("VmHWM")))
    finally:
        for follower in followers:
            follower.kill()
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


main()
