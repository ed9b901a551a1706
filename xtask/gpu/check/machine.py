"""What the programs run on: the GPU of this machine, or an emulated one."""

import json
import os
import shutil
import sys
import tempfile

import processes


class Machine:
    def __init__(self, bundle, emulate=None, libraries=None):
        self.bundle = bundle
        self.bin = os.path.join(bundle, "bin")
        self.work = os.path.join(bundle, "work")
        self.scratch = tempfile.mkdtemp(prefix="radrm-gpu-")
        self.emulate, self.libraries = emulate, libraries
        self.python = sys.executable
        # On a machine with a GPU one Python has them all; elsewhere each framework may have its own.
        self.pythons = {name: os.environ.get("RADRM_GPU_%s_PYTHON" % name.upper(), self.python)
                        for name in ("torch", "jax", "cupy")}
        self.profiles = 0
        if emulate:
            self._prepare_emulation()

    def _prepare_emulation(self):
        self.machine_file = os.path.join(self.scratch, "machine")
        self.driver = os.path.join(self.scratch, "lib")
        os.mkdir(self.driver)
        # Copies: the run must not mix builds, should a build run meanwhile.
        emulator = os.path.join(self.scratch, "emulator")
        os.mkdir(emulator)
        for file in ("libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so", "libradrm_emulated_toolkit.so"):
            shutil.copy(os.path.join(self.libraries, file), emulator)
        os.symlink(self.tool("libradrm.so"), os.path.join(emulator, "libradrm.so"))
        self.libraries = emulator
        for name, file in (("libcuda.so.1", "libradrm_emulated_cuda.so"),
                           ("libnvidia-ml.so.1", "libradrm_emulated_nvml.so")):
            os.symlink(os.path.join(self.libraries, file), os.path.join(self.driver, name))
        made = processes.run([self.tool("radrm-run"), "--emulate", self.emulate, "--machine", self.machine_file,
                              "--quiet", "--no-dataset", "--no-profile", "--", "true"], 30, self.environment())
        if not made.good:
            raise SystemExit("no emulated machine: %s" % made.why())

    def tool(self, name):
        return os.path.join(self.bin, name)

    def environment(self, extra=None):
        """What every program has: without traces of an outer radrm-run, with files in the scratch directory."""
        env = {key: value for key, value in os.environ.items()
               if not key.startswith("RADRM_") and key != "LD_PRELOAD"}
        env["XDG_DATA_HOME"] = os.path.join(self.scratch, "data")
        env["XDG_CONFIG_HOME"] = os.path.join(self.scratch, "config")
        env["RADRM_LIB_DIR"] = self.libraries if self.emulate else self.bin
        if self.emulate:
            # Waiting takes as long as the modelled work.
            env["RADRM_EMULATOR_TIME"] = "real"
        nvrtc = self.nvrtc()
        if nvrtc:
            env["RADRM_NVRTC"] = nvrtc
        env.update(extra or {})
        return env

    def bare(self, command, extra=None):
        """A program without the shim: (command, environment)."""
        env = self.environment()
        if self.emulate:
            env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [self.driver, env.get("LD_LIBRARY_PATH")]))
            env["RADRM_EMULATED_MACHINE"] = self.machine_file
        env.update(extra or {})
        return list(command), env

    def watched(self, command, options=(), extra=None):
        """A program under radrm-run: (command, environment, file of its report)."""
        self.profiles += 1
        stem = os.path.join(self.scratch, "run%d" % self.profiles)
        launcher = [self.tool("radrm-run"), "--quiet", "--no-dataset", "-o", stem + ".radrm",
                    "--json=" + stem + ".json"]
        if self.emulate:
            launcher += ["--machine", self.machine_file]
        return launcher + list(options) + ["--"] + list(command), self.environment(extra), stem + ".json"

    def framework(self, name, script, arguments=(), options=None, extra=None):
        """A program of a framework, as `watched` or, where options is None, as `bare`, with no report. On emulated
        GPUs it runs on stand-ins for CUDA's libraries, in both cases."""
        command = [self.pythons[name], os.path.join(self.work, script), *map(str, arguments)]
        if not self.emulate:
            if options is None:
                return (*self.bare(command, extra), None)
            return self.watched(command, options, extra)
        extra = dict(extra or {})
        if options is None:
            extra["RADRM_DISABLE"] = "1"
        # A machine of its own: the dry run judges what it finds on it at the end.
        launched, env, report = self.watched(command, ["--dry-run", "--emulate", self.emulate, *(options or [])], extra)
        at = launched.index("--machine")
        del launched[at:at + 2]
        return launched, env, None if options is None else report

    def nvrtc(self):
        """An NVRTC that belongs to an installed Python package, or to the toolkit."""
        if not hasattr(self, "_nvrtc"):
            self._nvrtc = None
            code = ("import glob,os,sys\n"
                    "for p in sys.path:\n"
                    "    for f in sorted(glob.glob(p+'/nvidia/c*/lib/libnvrtc.so.1[0-9]')):\n"
                    "        print(f)\n")
            found = processes.run([self.python, "-c", code], 20)
            candidates = found.out.split() + ["/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.12"]
            self._nvrtc = next((file for file in candidates if os.path.exists(file)), None)
        return self._nvrtc

    def nvcc(self):
        return next((path for path in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc")
                     if path and os.path.exists(path)), None)

    def has(self, python, *modules):
        """The first of these modules that a Python does not have; None if it has all."""
        code = "import importlib.util as u,sys\nprint(*[m for m in sys.argv[1:] if u.find_spec(m) is None])"
        asked = processes.run([python, "-c", code, *modules], 30, self.environment())
        if not asked.good:
            return "python3"
        return (asked.out.split() or [None])[0]

    def close(self):
        for running in list(processes.Running.everything):
            running.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)


def read(file):
    """A report of radrm-run; None if there is none."""
    try:
        with open(file) as text:
            return json.load(text)
    except (OSError, ValueError, TypeError):
        return None
