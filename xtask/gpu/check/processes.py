"""Processes with a time limit: each leads a group of its own, which is killed when its time is up."""

import os
import selectors
import signal
import subprocess
import time


# Where is kept what processes said that did not end with 0, and how much there is room for.
log, room = None, 4 << 20


def keep(command, ended):
    """Keeps what a process printed, to find the reason afterwards."""
    global room
    if log is None or ended.good:
        return
    text = "\n$ %s\n%s\n" % (" ".join(map(str, command)), ended.why())
    text += "".join("--- %s\n%s\n" % (name, said[-6000:]) for name, said in (("out", ended.out), ("err", ended.err)) if said)
    if len(text) <= room:
        room -= len(text)
        with open(log, "a") as file:
            file.write(text)


class Ended:
    """A process that has ended; code is None where it was stopped for being too late."""

    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @property
    def good(self):
        return self.code == 0

    def why(self):
        """Why it failed, in a line."""
        if self.code is None:
            how = "not done after %.0f s" % self.seconds
        elif self.code < 0:
            how = "killed by signal %d" % -self.code
        else:
            how = "exit code %d" % self.code
        lines = [line for line in self.err.strip().splitlines() if line.strip()]
        return how + (": " + lines[-1].strip()[:300] if lines else "")


class Running:
    """A process under way, with pipes at its standard streams."""

    everything = []

    def __init__(self, command, env=None, cwd=None, stdin=subprocess.PIPE):
        self.began, self.command = time.monotonic(), command
        self.out, self.err, self.taken, self.silent = b"", b"", 0, None
        self.process = subprocess.Popen(
            command, env=env, cwd=cwd, start_new_session=True,
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.process.pid
        self.selector = selectors.DefaultSelector()
        for name in ("stdout", "stderr"):
            stream = getattr(self.process, name)
            os.set_blocking(stream.fileno(), False)
            self.selector.register(stream, selectors.EVENT_READ, name)
        Running.everything.append(self)

    def _read(self, seconds):
        """Takes what is there; False once both streams have ended."""
        if not self.selector.get_map():
            return False
        for key, _ in self.selector.select(max(0, seconds)):
            data = key.fileobj.read(1 << 16)
            if data:
                if key.data == "stdout":
                    self.out += data
                else:
                    self.err += data
            elif data == b"":
                self.selector.unregister(key.fileobj)
                self.silent = time.monotonic()
        return bool(self.selector.get_map())

    def say(self, text):
        try:
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def line(self, seconds):
        """The next line of its output; raises Late, or Gone where it ends before."""
        end = time.monotonic() + seconds
        while b"\n" not in self.out[self.taken:]:
            left = end - time.monotonic()
            if left <= 0:
                raise Late("no answer after %.0f s" % seconds)
            if not self._read(left) and b"\n" not in self.out[self.taken:]:
                raise Gone(self.end(5).why())
        at = self.out.index(b"\n", self.taken)
        line = self.out[self.taken:at].decode(errors="replace")
        self.taken = at + 1
        return line

    def end(self, seconds):
        """Waits for its end."""
        deadline = time.monotonic() + seconds
        if self.process.stdin:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        late = False
        while self._read(deadline - time.monotonic()):
            if time.monotonic() >= deadline:
                late = True
                break
        try:
            self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
        self.kill()
        code = None if late else self.process.returncode
        ended = Ended(code, self.out.decode(errors="replace"), self.err.decode(errors="replace"),
                      (time.monotonic() if late else self.silent or time.monotonic()) - self.began)
        keep(self.command, ended)
        return ended

    def kill(self):
        """Ends its whole group."""
        if self in Running.everything:
            Running.everything.remove(self)
        if self.process.poll() is None or group_lives(self.pid):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


def group_lives(group):
    try:
        os.killpg(group, 0)
        return True
    except (ProcessLookupError, PermissionError):
        return False


class Late(Exception):
    pass


class Gone(Exception):
    pass


def run(command, seconds, env=None, cwd=None):
    """Runs a command to its end, with nothing to read."""
    try:
        return Running(command, env, cwd, subprocess.DEVNULL).end(seconds)
    except OSError as error:
        return Ended(127, "", str(error), 0.0)


def run_together(commands, seconds):
    """Runs (command, env) pairs at the same time, with nothing to read, to their ends, in their order."""
    running = [Running(command, env, None, subprocess.DEVNULL) for command, env in commands]
    deadline = time.monotonic() + seconds
    # All pipes are kept empty while any runs, or one that writes much would wait for its turn.
    while time.monotonic() < deadline and any(r.selector.get_map() for r in running):
        for one in running:
            if one.selector.get_map():
                one._read(0.02)
    return [one.end(max(0.2, deadline - time.monotonic())) for one in running]
