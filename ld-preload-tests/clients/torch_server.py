"""Imports PyTorch once and forks a process for each program that a test starts: half of a dry run's time is the import.

Started as a dry run without the hook, by `cargo xtask test`: the emulated libraries are loaded here, and neither they
nor the recorder are used before a fork. `torch_start.c` stands in the place of Python; its standard streams come with
the connection, and its arguments, environment and directory from /proc. A forked process begins as Python does: its
environment, search path and `sitecustomize`, then the program.

Usage: torch_server.py SOCKET; ends at the end of its standard input.
"""

import atexit
import ctypes
import importlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
import types


class Program:
    """A program as it was started: arguments of the interpreter, environment, directory."""

    def __init__(self, pid):
        def listed(name):
            with open("/proc/%d/%s" % (pid, name), "rb") as file:
                return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]

        self.arguments = listed("cmdline")[1:]
        self.environment = dict(entry.split("=", 1) for entry in listed("environ") if "=" in entry)
        self.directory = os.readlink("/proc/%d/cwd" % pid)
        self.group = os.getpgid(pid)

    def enter(self, streams):
        """Makes this process the one that was started."""
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        try:
            os.setpgid(0, self.group)
        except PermissionError:
            pass  # another session: the connection ends this process with the program that stands for it
        os.chdir(self.directory)
        # This process was started without the recorder's variables, which would count before these.
        os.environ.clear()
        os.environ.update(self.environment)

    def begin(self):
        """What Python does before it runs a program; gives its code."""
        first, *rest = self.arguments
        if first == "-c":
            text, name, folder = rest[0], "<string>", ""
            sys.argv = ["-c", *rest[1:]]
        else:
            with open(first, "rb") as file:
                text = file.read()
            name, folder = first, os.path.dirname(os.path.abspath(first))
            sys.argv = [first, *rest]
        searched = [path for path in self.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:1] = [folder, *searched]
        # A start has its own.
        main = types.ModuleType("__main__")
        main.__builtins__ = __builtins__
        if first != "-c":
            main.__file__ = first
        sys.modules["__main__"] = main
        self.hook()
        return compile(text, name, "exec", dont_inherit=True), main.__dict__

    def hook(self):
        """Runs `sitecustomize`. What is to be called after a module was loaded is called after all of the hook."""
        importlib.invalidate_caches()
        sys.modules.pop("sitecustomize", None)
        late = []
        try:
            imports = importlib.import_module("radrm_imports")
        except ImportError:
            imports = None
        else:
            wait = imports.after

            def after(name, call):
                if name in sys.modules:
                    late.append((name, call))
                else:
                    wait(name, call)

            imports.after = after
        try:
            importlib.import_module("sitecustomize")
        except ImportError:
            pass
        for name, call in late:
            try:
                call(sys.modules[name])
            except Exception as error:
                imports._AROUND.failed(name, error)
        if imports is not None:
            imports.after = wait


def serve(connection):
    """Forks the program, awaits it, and reports how it ended. Gives the program, in its process."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    peer, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    program = Program(peer)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    forked = os.fork()
    if forked == 0:
        connection.close()
        program.enter(streams)
        return program
    for stream in streams:
        os.close(stream)
    # One that is killed takes the program with it.
    ended = os.pidfd_open(forked)
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.register(connection, select.POLLIN | select.POLLHUP)
    if ended not in (number for number, _ in waiting.poll()):
        os.kill(forked, signal.SIGKILL)
    _, status = os.waitpid(forked, 0)
    try:
        connection.send(struct.pack("i", status))
    except OSError:
        pass
    os._exit(0)


def programs():
    """Waits for programs to start; returns in the process of each."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(0, select.POLLIN | select.POLLHUP)
    while True:
        if 0 in (number for number, _ in waiting.poll()):
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return serve(connection)
        connection.close()


def end_of(ended):
    """Exit code that Python makes of `SystemExit`."""
    if ended.code is None or isinstance(ended.code, int):
        return (ended.code or 0) & 0xFF
    print(ended.code, file=sys.stderr)
    return 1


def end(status):
    """Ends as Python does, but for the release of all modules: that would copy each page that the server shares."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        sys.exit(status)  # its threads end with its modules
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.PyDLL(None).exit(status)  # objects of PyTorch that go with the process need the interpreter


import torch
import torch._dynamo

try:
    code, names = programs().begin()
    exec(code, names)
    status = 0
except SystemExit as ended:
    status = end_of(ended)
except BaseException:
    traceback.print_exc()
    status = 1
end(status)
