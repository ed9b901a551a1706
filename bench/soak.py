#!/usr/bin/env python3
"""Honest jobs beside hostile users, kills of radrmd, a full disk and clocks that jump.

usage: bench/soak.py FOLDER_OF_PROGRAMS [SECONDS]     (3600 by default; needs root)

radrmd runs on two emulated GPUs with its state on a file system of 256 MiB. Three honest users submit jobs that take GPU
memory, ask for more than their limit, and write a line each. Three hostile ones hold connections and send what is not a
request, fill the disk and the queue, and attack their own jobs' launchers, segments and folders. Meanwhile radrmd is killed
and started again, its disk is filled, and the clock that it has written down is set 40 days back and forth. At the end each
honest job must have written its line once and have ended well; the program ends with 1 otherwise.
"""

import json
import os
import pwd
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

# Accounts that every distribution has, since radrmd takes jobs of accounts only.
USERS = [entry.pw_uid for entry in pwd.getpwall() if 0 < entry.pw_uid < 1000]
HONEST, HOSTILE = USERS[:3], USERS[3:6]
# Unfinished jobs of an honest user beyond which he waits.
BACKLOG = 20
HELLO = b"RADRMD\0\x03"

GPU_PROGRAM = r"""
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(200 << 20)) == 0
held = cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(2 << 30)) == 2
time.sleep(float(sys.argv[2]))
with open(sys.argv[1], "a") as file:
    file.write("limit held\n" if held else "limit broken\n")
print("done", sum(range(100000)), flush=True)
"""

ATTACKS = [
    "kill -9 $PPID; sleep 1",
    # Not the file of the emulated GPUs, which stands for hardware.
    "for f in /proc/$PPID/fd/*; do case $(readlink $f) in */machine) ;; *) : > $f ;; esac; done; sleep 1",
    ": > $RADRM_SEGMENT; sleep 1",
    "truncate -s 1T $RADRM_SEGMENT; sleep 1",
    "head -c 100000 /dev/urandom > $RADRM_SEGMENT; sleep 1",
    "rm -f $RADRM_SEGMENT; mkfifo $RADRM_SEGMENT; sleep 1",
    "yes | head -c 50000000",
    "cd $(ls -d $STATE/jobs/*/ | tail -1); rm -f *; ln -s /etc/shadow output; mkfifo x.radrm; truncate -s 1T y.radrm; sleep 1",
    "cd $(ls -d $STATE/jobs/*/ | tail -1); i=0; while [ $i -lt 500 ]; do mkdir d && cd d; i=$((i+1)); done; sleep 1",
    "cd $(ls -d $STATE/jobs/*/ | tail -1); i=0; while [ $i -lt 5000 ]; do : > f$i; i=$((i+1)); done; sleep 1",
    "python3 -c 'import time; x = [b\"\\0\" * 100000] * 20; time.sleep(2)' $(head -c 100000 /dev/zero | tr '\\0' y)",
    "trap '' TERM INT HUP; sleep 30",
    "(setsid sleep 20 &) ; exit 1",
    "for p in $(ls /proc | grep '^[0-9]*$'); do kill -9 $p 2>/dev/null; done",
]


class Soak:
    def __init__(self, folder, seconds):
        self.folder, self.seconds = os.path.abspath(folder), seconds
        self.place = tempfile.mkdtemp(prefix="radrm-soak-")
        os.chmod(self.place, 0o755)
        self.state = os.path.join(self.place, "state")
        self.socket = os.path.join(self.place, "socket")
        os.mkdir(self.state)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m,mode=711", "none", self.state], check=True)
        with open(os.path.join(self.place, "gpu.py"), "w") as file:
            file.write(GPU_PROGRAM)
        with open(os.path.join(self.place, "config.toml"), "w") as file:
            file.write('metrics = ""\nemulate = "2xA100-40GB"\nmax_output = "8MiB"\ndisk_per_user = "32MiB"\npoll_ms = 500\naudit_s = 20\n')
        for uid in HONEST:
            os.mkdir(self.marks(uid))
            os.chown(self.marks(uid), uid, uid)
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.jobs, self.refusals, self.latencies, self.largest = {}, {}, {"queue": [], "submit": []}, [0] * 10
        self.events, self.odd = {"kill": 0, "disk": 0, "clock": 0}, []
        self.sent = 0
        self.daemon = None

    def marks(self, uid):
        return os.path.join(self.place, str(uid))

    def start(self):
        log = open(os.path.join(self.place, "log"), "a")
        self.daemon = subprocess.Popen(
            [os.path.join(self.folder, "radrmd"), "--config", os.path.join(self.place, "config.toml"), "--socket", self.socket, "--state", self.state],
            stderr=log, stdout=log, stdin=subprocess.DEVNULL, start_new_session=True)
        while self.radrm(0, "queue").returncode != 0:
            if self.daemon.poll() is not None:
                self.odd.append(f"radrmd does not start: {self.daemon.returncode}")
                time.sleep(5)
                return self.start()
            time.sleep(0.2)
        # The file of the emulated GPUs stands for hardware, which a full disk does not take away.
        with open(os.path.join(self.state, "machine"), "r+b") as machine:
            os.posix_fallocate(machine.fileno(), 0, os.fstat(machine.fileno()).st_size)

    def radrm(self, uid, *words, timeout=120):
        become = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "RADRM_SOCKET": self.socket, "STATE": self.state}
        try:
            return subprocess.run([os.path.join(self.folder, "radrm"), *words], env=environment, cwd="/", text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, **become)
        except subprocess.TimeoutExpired:
            # Hostile users' processes may be given next to no CPU; no other user waits so long.
            if uid not in HOSTILE:
                raise
            return subprocess.CompletedProcess(words, 1, "", "")

    def honest(self, uid):
        number = 0
        while not self.over.is_set():
            # No more than the machine runs: what waits at the end would say nothing.
            if number % 10 == 9 and sum(row["ended_ms"] is None for row in self.rows(uid)) > BACKLOG:
                time.sleep(2)
                continue
            number += 1
            mark = os.path.join(self.marks(uid), str(number))
            seconds = str(round(random.uniform(0.5, 6), 1))
            while not self.over.is_set():
                done = self.radrm(uid, "submit", "-q", "--gpu-mem", "1GiB", "--", "python3", os.path.join(self.place, "gpu.py"), mark, seconds)
                if done.returncode == 0:
                    with self.lock:
                        self.jobs[(uid, mark)] = int(done.stdout)
                    break
                why = done.stderr.strip()
                with self.lock:
                    if "\n" in why:
                        self.odd.append(f"a refusal of several lines: {why!r}")
                    key = "".join(c for c in why if not c.isdigit())[:100]
                    self.refusals[key] = self.refusals.get(key, 0) + 1
                time.sleep(2)
            time.sleep(random.uniform(1, 4))

    def attack_jobs(self, uid):
        while not self.over.is_set():
            self.radrm(uid, "submit", "-q", "--gpu-mem", "512MiB", "--time", "1m", "--", "sh", "-c", random.choice(ATTACKS))
            time.sleep(random.uniform(1, 3))

    def attack_queue(self, uid):
        while not self.over.is_set():
            done = self.radrm(uid, "submit", "-q", "--hold", "--array", "0-1999", "--gpu-mem", "1GiB", "--", "true")
            self.radrm(uid, "queue", "--json")
            time.sleep(random.uniform(1, 5))
            if done.returncode == 0:
                self.radrm(uid, "cancel", done.stdout.split()[0])
            self.radrm(uid, "submit", "-q", "--", "x" * 100_000)
            self.radrm(uid, "submit", "-q", "--gpu-mem", "1GiB", "--", "yes")
            self.sent += 1

    def attack_connections(self, uid):
        """In a process of its own, which is this user's: the daemon asks the kernel whose a connection is."""
        while not self.over.is_set():
            child = os.fork()
            if child == 0:
                os.setgroups([]), os.setgid(uid), os.setuid(uid)
                try:
                    hold(self.socket, random.choice(["idle", "hello", "frame", "slow", "garbage"]))
                finally:
                    os._exit(0)
            os.waitpid(child, 0)

    def watch(self):
        while not self.over.is_set():
            for name, words in {"queue": ["queue"], "submit": ["submit", "-q", "--gpus", "0", "--", "true"]}.items():
                begun = time.monotonic()
                done = self.radrm(0, *words)
                if done.returncode == 0:
                    self.latencies[name].append(time.monotonic() - begun)
            try:
                with open(f"/proc/{self.daemon.pid}/status") as file:
                    high = [line for line in file if line.startswith("VmHWM")]
                tenth = min(9, int((time.monotonic() - self.begun) * 10 / self.seconds))
                self.largest[tenth] = max(self.largest[tenth], int(high[0].split()[1]) // 1024 if high else 0)
            except OSError:
                pass
            time.sleep(1)

    def trouble(self):
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            time.sleep(min(random.uniform(10, 40), max(0, end - time.monotonic())))
            kind = random.choice(list(self.events))
            self.events[kind] += 1
            if kind == "disk":
                self.fill()
                continue
            self.daemon.send_signal(signal.SIGKILL)
            self.daemon.wait()
            if kind == "clock":
                self.jump(random.choice([-1, 1]) * 40 * 86_400_000)
            self.start()

    def fill(self):
        path = os.path.join(self.state, "filler")
        try:
            with open(path, "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
        except OSError:
            time.sleep(random.uniform(3, 15))
        finally:
            os.unlink(path)

    def jump(self, ms):
        path = os.path.join(self.state, "wall-clock")
        try:
            with open(path) as file:
                wall, jump = map(int, file.read().split())
        except (OSError, ValueError):
            return
        with open(path, "w") as file:
            file.write(f"{wall + ms} {jump}\n")

    def run(self):
        self.start()
        self.begun = time.monotonic()
        threads = [threading.Thread(target=self.honest, args=[uid]) for uid in HONEST]
        attacks = [self.attack_jobs, self.attack_queue, self.attack_connections]
        threads += [threading.Thread(target=attack, args=[uid]) for attack, uid in zip(attacks, HOSTILE)]
        threads.append(threading.Thread(target=self.watch))
        for thread in threads:
            thread.start()
        self.trouble()
        self.over.set()
        for thread in threads:
            thread.join()
        for uid in HOSTILE:
            live = [str(row["job"]) for row in self.rows(uid) if row["ended_ms"] is None]
            for begin in range(0, len(live), 200):
                self.radrm(uid, "cancel", *live[begin:begin + 200])
        end = time.monotonic() + 600
        while time.monotonic() < end and self.unfinished():
            time.sleep(2)
        return self.tell()

    def rows(self, uid):
        done = self.radrm(uid, "queue", "--json")
        if done.returncode != 0:
            return []
        answer = json.loads(done.stdout)
        return answer["jobs"] if isinstance(answer, dict) else answer

    def unfinished(self):
        return [job for job in self.jobs.values() if self.show(job).get("state") not in ("ended", "not known")]

    def show(self, job):
        done = self.radrm(0, "show", "--json", str(job))
        return json.loads(done.stdout).get("job", {}) if done.returncode == 0 else {"state": "not known"}

    def tell(self):
        unfinished = lost = doubled = broken = failed = 0
        for (uid, mark), job in self.jobs.items():
            lines = open(mark).read().split("\n")[:-1] if os.path.exists(mark) else []
            doubled += len(lines) > 1
            broken += "limit broken" in lines
            state = self.show(job)
            is_in_queue = state.get("state") not in ("ended", "not known")
            unfinished += is_in_queue
            lost += not lines and not is_in_queue
            if state.get("end") != "succeeded":
                failed += not is_in_queue
                self.odd.append(f"job {job} of user {uid}: {state.get('state')}: {state.get('end') or state.get('why')}")
        print(f"| seconds | honest jobs | not yet run | lost | twice | not succeeded | limits broken | kills | full disks | clocks | radrmd, most MiB |")
        print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
        print(f"| {self.seconds:.0f} | {len(self.jobs)} | {unfinished} | {lost} | {doubled} | {failed} | {broken} | {self.events['kill']} | {self.events['disk']} | "
              f"{self.events['clock']} | {max(self.largest)} |\n")
        print("radrmd, most MiB in each tenth of the time:", *self.largest)
        for name, seen in self.latencies.items():
            seen = sorted(seen)
            print(f"root's {name}, ms: median {statistics.median(seen) * 1e3:.0f}, 99 of 100 within {seen[len(seen) * 99 // 100] * 1e3:.0f}, "
                  f"longest {seen[-1] * 1e3:.0f} ({len(seen)} times)")
        for why, times in sorted(self.refusals.items()):
            print(f"refused {times} times: {why}")
        for line in self.odd:
            print(f"odd: {line}")
        with open(os.path.join(self.place, "log"), errors="replace") as file:
            panics = [line for line in file if "panicked" in line]
        for line in panics:
            print(f"odd: {line.strip()}")
        self.daemon.terminate()
        self.daemon.wait()
        return 1 if unfinished or lost or doubled or broken or failed or panics else 0


def hold(path, mode):
    held = []
    for _ in range(150):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(3)
        try:
            one.connect(path)
            if mode != "idle":
                one.sendall(HELLO)
                one.recv(8)
            if mode == "frame":
                one.sendall(struct.pack("<I", 16 << 20) + b'"' + b"x" * (1 << 20))
            if mode == "garbage":
                one.sendall(random.randbytes(random.randrange(1, 100_000)))
            if mode == "slow":
                body = json.dumps({"queue": {"all": True, "ended": 100000, "merge": False}}).encode()
                one.sendall((struct.pack("<I", len(body)) + body) * 50)
        except OSError:
            pass
        held.append(one)
    time.sleep(random.uniform(1, 15))


if __name__ == "__main__":
    if "RADRM_SOAK" not in os.environ:
        os.execvpe("unshare", ["unshare", "--mount", sys.executable, *sys.argv], dict(os.environ, RADRM_SOAK="1"))
    sys.exit(Soak(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 3600).run())
