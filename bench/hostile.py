#!/usr/bin/env python3
"""Time by the clock and of the processor, memory and output of root's commands for hostile files, as a table.

usage: bench/hostile.py FOLDER_OF_PROGRAMS     (needs root, 3 GiB below /tmp and a C compiler)

Each object is made by an ordinary user: a profile, a dataset, a trace, a log of events, a job file, a segment, a file that a
process has mapped, and a command line. "slow" is a pipe whose writer writes a byte each tenth of a second: a user has no
slower file that root can open. The rows "honest" are the same commands with what they are made for.
"""

import os
import pwd
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

PROGRAMS = os.path.abspath(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
USER = next(entry.pw_uid for entry in pwd.getpwall() if 0 < entry.pw_uid < 1000)
HUGE = 1 << 30
PATIENCE = 60

JOB = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#define CALL(name) ((int (*)())dlsym(lib, name))
int main(int argc, char **argv) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context;
    unsigned long long block;
    if (CALL("cuInit")(0) || CALL("cuDevicePrimaryCtxRetain")(&context, 0) || CALL("cuCtxSetCurrent")(context)) return 1;
    if (CALL("cuMemAlloc_v2")(&block, (size_t)64 << 20)) return 2;
    sleep(atoi(argv[1]));
    return 0;
}
"""
# Takes GPU memory, maps a file and then puts another object in its place; or makes its command line as long as it likes.
MAPS = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#define CALL(name) ((int (*)())dlsym(lib, name))
int main(int argc, char **argv) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context;
    unsigned long long block;
    if (CALL("cuInit")(0) || CALL("cuDevicePrimaryCtxRetain")(&context, 0) || CALL("cuCtxSetCurrent")(context)) return 1;
    if (CALL("cuMemAlloc_v2")(&block, (size_t)2 << 30)) return 2;
    if (!strcmp(argv[1], "words")) {
        size_t size = (size_t)2 << 30;
        char *words = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        unsigned long first = (unsigned long)words, last = first + size;
        prctl(PR_SET_MM, PR_SET_MM_ARG_END, last, 0, 0) ;
        prctl(PR_SET_MM, PR_SET_MM_ARG_START, first, 0, 0);
        prctl(PR_SET_MM, PR_SET_MM_ARG_END, last, 0, 0);
    } else {
        int file = open(argv[1], O_RDONLY);
        mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        unlink(argv[1]);
    }
    puts("ready");
    fflush(stdout);
    pause();
}
"""


class Place:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="radrm-hostile-")
        os.chmod(self.folder, 0o755)
        self.own = os.path.join(self.folder, "user")
        os.mkdir(self.own)
        os.chown(self.own, USER, USER)
        self.state = os.path.join(self.folder, "state")
        self.machine = os.path.join(self.state, "machine")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("RADRM")}
        self.env |= {"RADRM_LIB_DIR": PROGRAMS, "HOME": self.folder, "XDG_DATA_HOME": self.folder}
        self.env.pop("XDG_RUNTIME_DIR", None)
        for name, text in [("job", JOB), ("maps", MAPS)]:
            subprocess.run(["cc", "-O1", "-w", "-x", "c", "-", "-o", self.at(name), "-ldl"], input=text, text=True, check=True)

        self.env["RADRM_SOCKET"] = self.at("socket")
        with open(self.at("config.toml"), "w") as file:
            file.write(f'emulate = "A100-40GB"\nstate = "{self.state}"\nmetrics = ""\n')
        daemon = [program("radrmd"), "--config", self.at("config.toml"), "--socket", self.at("socket")]
        self.daemon = subprocess.Popen(daemon, env=self.env, stderr=open(self.at("log"), "w"))
        while not os.path.exists(self.at("socket")):
            assert self.daemon.poll() is None, open(self.at("log")).read()
            time.sleep(0.1)

    def close(self):
        self.daemon.terminate()
        self.daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def at(self, name):
        return os.path.join(self.folder, name)

    def path(self, name):
        return os.path.join(self.own, name)


def program(name):
    return os.path.join(PROGRAMS, name)


def measure(place, command):
    """Seconds by the clock and of the processor, MB, exit code and the first lines of a command."""
    began = time.monotonic()
    process = subprocess.Popen(
        command, env=place.env, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    peak, ended = [0], threading.Event()

    def poll():
        """The highest resident memory since the program began: the kernel's own figure for a child has its parent's."""
        while not ended.is_set():
            try:
                with open(f"/proc/{process.pid}/status") as status, open(f"/proc/{process.pid}/comm") as name:
                    kb = next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)
                    if name.read().startswith("radrm"):
                        peak[0] = max(peak[0], kb)
            except OSError:
                pass
            time.sleep(0.002)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    first = b""
    while piece := process.stdout.read1(1 << 20):
        first = first if len(first) > 4000 else first + piece
    lines = first[:4000].split(b"\n")
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    timer.cancel()
    ended.set()
    poller.join()
    return seconds, usage.ru_utime + usage.ru_stime, peak[0] / 1000, process.returncode, [line.decode(errors="replace").strip() for line in lines]


# Objects in the place of a file that a command is given.

def copy(honest, path):
    subprocess.run(["cp", "--sparse=always", honest, path], check=True)


def remove(path):
    if os.path.lexists(path):
        os.remove(path)


def fifo(path, _honest):
    os.mkfifo(path)


def device(path, _honest):
    os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))


def link(path, _honest):
    os.symlink("/etc/shadow", path)


def sparse(path, honest):
    copy(honest, path)
    os.truncate(path, 1 << 40)


def wrong_owner(path, honest):
    copy(honest, path)
    os.chown(path, 65534, 65534)
    os.chmod(path, 0o600)


def repeating(work, every):
    stop = threading.Event()

    def loop():
        while not stop.wait(every):
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    return lambda: (stop.set(), thread.join())


def vanishing(path, honest):
    copy(honest, path)
    there = [True]

    def toggle():
        os.rename(*((path, path + ".gone") if there[0] else (path + ".gone", path)))
        there[0] = not there[0]

    return repeating(toggle, 0.0005)


def growing(path, honest):
    copy(honest, path)
    piece = b"x" * (1 << 20)

    def grow():
        with open(path, "ab") as file:
            file.write(piece)

    return repeating(grow, 0.005)


def slow(path, honest):
    os.mkfifo(path)
    file = os.open(path, os.O_RDWR)
    rest = iter(open(honest, "rb").read(10_000))
    end = repeating(lambda: os.write(file, bytes([next(rest, 0)])), 0.1)
    return lambda: (end(), os.close(file))


def huge_text(path, honest):
    with open(honest, "rb") as file:
        text = file.read()
    body = text.split(b"\n", 1)[-1] or b"x" * 1000
    body *= max(1, (1 << 20) // len(body))
    with open(path, "wb") as file:
        file.write(text)
        while file.tell() < HUGE:
            file.write(body)


def huge_profile(path, honest):
    """Frames of a type that no version knows."""
    copy(honest, path)
    payload = b"\7" * (1 << 20)
    head = struct.pack("<II", len(payload), 0xFFFFFFFF)
    frame = head + struct.pack("<I", zlib.crc32(head + payload)) + payload
    with open(path, "ab") as file:
        while file.tell() < HUGE:
            file.write(frame)


def frames_profile(path, honest, kind, payload, count):
    copy(honest, path)
    head = struct.pack("<II", len(payload), kind)
    with open(path, "ab") as file:
        file.write((head + struct.pack("<I", zlib.crc32(head + payload)) + payload) * count)


def points(count):
    """A state whose timeline has so many points of one byte."""
    return bytes([0, 1, 0, 0, 0]) + bytes(11) + bytes([0, 0, 1, 0, 252]) + struct.pack("<I", count) + bytes(count + 3)


def points_profile(path, honest):
    """Twelve million points: more than a frame of another user's profile may have."""
    frames_profile(path, honest, 3, points(12_000_000), 1)


def points_within_profile(path, honest):
    """As many points as a frame may have, and as many frames as are read."""
    frames_profile(path, honest, 3, points(4_000_000), 8)


def damaged_profile(path, honest):
    """Two million frames that hold nothing."""
    frames_profile(path, honest, 3, b"", 2_000_000)


def remarks_profile(path, honest):
    """Two million remarks of one letter."""
    frames_profile(path, honest, 6, b"\x01x", 2_000_000)


def rows_trace(path, honest):
    """Five million jobs of three bytes each."""
    copy(honest, path)
    with open(path, "ab") as file:
        file.write(b"60\n" * 5_000_000)


def lines_events(path, honest):
    """Half a million events that all are right."""
    copy(honest, path)
    with open(path, "ab") as file:
        file.write(b'{"step":{"at":1,"event":{"event":"tick"},"decisions":[]}}\n' * 500_000)


def huge_dataset(path, honest):
    copy(honest, path)
    with sqlite3.connect(path) as dataset:
        dataset.execute("UPDATE runs SET command = CAST(zeroblob(900000000) AS TEXT)")


def huge_sparse(path, honest):
    with open(path, "wb") as file:
        file.truncate(1 << 45)


COMMON = {
    "sparse, 1 TiB": sparse, "FIFO": fifo, "device": device, "symbolic link": link, "vanishing": vanishing,
    "growing": growing, "slow": slow, "wrong owner": wrong_owner,
}


def rows_of_file(place, what, name, honest, huge, command):
    """A file that root names."""
    path = place.path(name)
    yield what, "honest", measure(place, command(honest))
    for state, make in {**huge, **COMMON}.items():
        remove(path)
        end = make(path, honest)
        try:
            if not os.path.islink(path) and os.path.exists(path) and make is not wrong_owner:
                os.chown(path, USER, USER)
            yield what, state, measure(place, command(path))
        finally:
            if end:
                end()
            for left in (path, path + ".gone"):
                remove(left)


def started(place, command, user=None):
    process = subprocess.Popen(command, env=place.env, cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, user=user, group=user)
    return process


def rows_of_segment(place):
    """Files in the folder of a user's segments, while a job of the user's runs."""
    folder = f"/dev/shm/radrm-{USER}"
    made = not os.path.isdir(folder)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chown(folder, USER, USER)
    job = started(place, [program("radrm-run"), "--quiet", "--no-dataset", "--no-profile", "--machine", place.machine, "--", place.at("job"), "300"], USER)
    time.sleep(2)
    honest = next((os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("segment-")), None)
    assert honest, "the job has no segment there"
    path = os.path.join(folder, f"segment-{job.pid}-1-copy-0")
    show = [program("radrm"), "quota", "show"]
    yield "segment (`quota show`)", "honest", measure(place, show)
    for state, make in {"huge, 32 TiB": huge_sparse, **COMMON}.items():
        remove(path)
        end = make(path, honest)
        try:
            if make is not wrong_owner and os.path.lexists(path):
                os.chown(path, USER, USER, follow_symlinks=False)
            yield "segment (`quota show`)", state, measure(place, show)
        finally:
            if end:
                end()
            for left in (path, path + ".gone"):
                remove(left)
    job.terminate()
    job.wait()
    if made:
        shutil.rmtree(folder, ignore_errors=True)


def rows_of_process(place):
    """What a process that holds GPU memory without a shim has mapped, and its command line."""
    audit = [program("radrm"), "audit", "--machine", place.machine]
    job = started(place, [program("radrm-run"), "--quiet", "--no-dataset", "--no-profile", "--machine", place.machine, "--", place.at("job"), "300"])
    time.sleep(2)
    yield "mapped file (`audit`)", "honest", measure(place, audit)
    path = place.path("mapped.so")
    for state, make in COMMON.items():
        remove(path)
        with open(path, "wb") as file:
            file.write(b"\x7fELF" + bytes(8192))
        os.chown(path, USER, USER)
        honest = place.at("elf")
        copy(path, honest)
        # The process has the GPU's library, too, and so is looked at.
        process = started(place, [program("radrm-run"), "--quiet", "--no-dataset", "--no-profile", "--machine", place.machine, "--", "env", "-u", "LD_PRELOAD", place.at("maps"), path])
        process.stdout.readline()
        remove(path)
        end = make(path, honest)
        try:
            yield "mapped file (`audit`)", state, measure(place, audit)
        finally:
            if end:
                end()
            for left in (path, path + ".gone"):
                remove(left)
            process.terminate()
            process.wait()
    process = started(place, [program("radrm-run"), "--quiet", "--no-dataset", "--no-profile", "--machine", place.machine, "--", "env", "-u", "LD_PRELOAD", place.at("maps"), "words"])
    process.stdout.readline()
    yield "command line (`audit`)", "huge, 2 GiB", measure(place, audit)
    process.terminate()
    process.wait()
    job.terminate()
    job.wait()


def rows_of_output(place):
    """The output of a job, which is its user's."""
    radrm = program("radrm")
    submit = [radrm, "submit", "--gpus", "0", "--", "echo", "done"]
    job = subprocess.run(submit, env=place.env, cwd="/", user=USER, group=USER, capture_output=True, text=True, check=True)
    number = "".join(filter(str.isdigit, job.stdout.split("\n")[0].split(":")[0]))
    path, honest = os.path.join(place.state, "jobs", number, "output"), place.at("output")
    while not (os.path.exists(path) and os.path.getsize(path)):
        time.sleep(0.1)
    time.sleep(1)
    copy(path, honest)
    logs = [radrm, "logs", number]
    yield "output (`logs`)", "honest", measure(place, logs)
    for state, make in {"huge, 1 GiB": huge_text, **COMMON}.items():
        remove(path)
        end = make(path, honest)
        try:
            if make is not wrong_owner:
                os.chown(path if os.path.lexists(path) else path + ".gone", USER, USER, follow_symlinks=False)
            yield "output (`logs`)", state, measure(place, logs)
        finally:
            if end:
                end()
            for left in (path, path + ".gone"):
                remove(left)


def all_rows(place):
    profile, dataset = place.at("honest.radrm"), place.at("honest.db")
    run = [program("radrm-run"), "--quiet", "--dataset", dataset, "-o", profile, "--machine", place.machine, "--", place.at("job"), "1"]
    subprocess.run(run, env=place.env, cwd=place.folder, check=True)
    with sqlite3.connect(dataset) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.execute("PRAGMA journal_mode = DELETE")
    trace, events, rad = place.at("t.csv"), place.at("events"), place.at("job.rad")
    with open(trace, "w") as file:
        file.write("runtime\n" + "60\n" * 20)
    with open(rad, "w") as file:
        file.write("#RADRM --gpus=1\n./job 1\n")
    with open(events, "w") as file:
        file.write('{"step":{"at":1,"event":{"event":"tick"},"decisions":[]}}\n')
    radrm = program("radrm")
    yield from rows_of_file(place, "profile (`report`)", "p.radrm", profile, {
        "huge, 1 GiB": huge_profile, "small, 12 million points": points_profile, "8 frames of 4 million points": points_within_profile,
        "2 million damaged frames": damaged_profile,
        "2 million remarks": remarks_profile,
    }, lambda path: [radrm, "report", path])
    yield from rows_of_file(place, "dataset (`dataset list`)", "d.db", dataset, {"huge, a row of 0.9 GB": huge_dataset}, lambda path: [radrm, "dataset", "list", "--dataset", path])
    yield from rows_of_file(place, "trace (`replay`)", "t.csv", trace, {"huge, 1 GiB": huge_text, "5 million rows": rows_trace}, lambda path: [radrm, "replay", "--policy", "exclusive", "--seeds", "0", path])
    yield from rows_of_file(place, "events (`replay --events`)", "e", events, {"huge, 1 GiB": huge_text, "500,000 events": lines_events}, lambda path: [radrm, "replay", "--events", path])
    yield from rows_of_file(place, "job file (`estimate`)", "j.rad", rad, {"huge, 1 GiB": huge_text}, lambda path: [radrm, "estimate", "--dataset", dataset, path])
    yield from rows_of_output(place)
    yield from rows_of_segment(place)
    yield from rows_of_process(place)


def main():
    place = Place()
    print("| object | state | s | processor, s | MB | exit | first line |\n|---|---|--:|--:|--:|--:|---|")
    try:
        for what, state, (seconds, processor, mb, code, lines) in all_rows(place):
            said = next((line for line in lines if line), "").replace("|", "\\|").replace(place.own, "…")
            print(f"| {what} | {state} | {seconds:.2f} | {processor:.2f} | {mb:.0f} | {code} | {said[:110]} |", flush=True)
    finally:
        place.close()


main()
