"""Calls the functions of a user's file for `radrm replay`. A request is a line of JSON, and so is its answer."""

import json
import math
import os
import random
import signal
import sys
import types

path, role = sys.argv[1:3]
requests = os.fdopen(os.dup(0), encoding="utf-8")
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
# What the file reads and prints is no part of that.
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
sys.stdout.reconfigure(line_buffering=True)
signal.signal(signal.SIGINT, signal.SIG_DFL)
# Two replays are to be equal.
random.seed(0)


class Job:
    """A job that waits or runs. Memory is in bytes on each of its GPUs, time in seconds; None is not known."""

    def fits(self, gpu):
        """True if the job may start on this GPU now."""
        if gpu.jobs:
            if not gpu.shared or self.alone or any(job.alone for job in gpu.jobs):
                return False
            if self.half_empty and gpu.free < gpu.total // 2:
                return False
        is_model = self.model is None or self.model == gpu.model
        return is_model and self.reserves <= gpu.free and (self.share or 0) + gpu.share <= 1

    def __repr__(self):
        return f"<job {self.number} {self.name}>"


class Gpu:
    """A GPU: total and free memory in bytes, where free is what no job has reserved, and the jobs on it."""

    def __repr__(self):
        return f"<GPU {self.index}>"


class Event:
    """Something that happened since the last call: submitted, started, ended, failed or out-of-memory."""

    def __init__(self, at, kind, job):
        self.at, self.kind, self.job = at, kind, job

    def __repr__(self):
        return f"<{self.kind} {self.job} at {self.at}>"


class View:
    """What a policy decides on."""


class Sharer:
    """A job on a GPU with others: its activity alone there, from 0 to 1."""

    def __init__(self, name, sm_activity, sm_occupancy, dram_activity):
        self.name, self.sm_activity = name, sm_activity
        self.sm_occupancy, self.dram_activity = sm_occupancy, dram_activity

    def __repr__(self):
        return f"<{self.name}>"


class WrongAnswer(Exception):
    """The file's function answered what it may not."""


jobs, gpus = {}, {}


def viewed(request):
    for found in request["jobs"]:
        jobs.setdefault(found["number"], Job()).__dict__.update(found)
    for found in request["gpus"]:
        gpu = gpus.setdefault(found["index"], Gpu())
        gpu.__dict__.update(found)
        gpu.jobs = [jobs[number] for number in found["jobs"]]
    view = View()
    view.now = request["now"]
    view.waiting = [jobs[number] for number in request["waiting"]]
    view.gpus = list(gpus.values())
    view.events = [Event(at, kind, jobs[number]) for at, kind, number in request["events"] if number in jobs]
    return view


def number(of, kind, field):
    found = getattr(of, field) if isinstance(of, kind) else of
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise WrongAnswer(f"place() answered {of!r} where a {kind.__name__.lower()} belongs")
    return found


def placed(answer, waiting):
    start, wait = [], []
    if isinstance(answer, str):
        wait = [[job.number, answer] for job in waiting]
    elif isinstance(answer, (list, tuple)):
        for item in answer:
            if not isinstance(item, (list, tuple)) or len(item) not in (2, 3):
                raise WrongAnswer(f"place() answered {item!r} in its list, and not (job, gpu) or (job, gpu, reason)")
            job, where = number(item[0], Job, "number"), item[1]
            why = str(item[2]) if len(item) == 3 else ""
            if where is None:
                wait.append([job, why])
            else:
                where = where if isinstance(where, (list, tuple)) else [where]
                start.append([job, [number(gpu, Gpu, "index") for gpu in where], why])
    elif answer is not None:
        raise WrongAnswer(f"place() answered {answer!r}, and not a list, a sentence or None")
    return {"start": start, "wait": wait}


def predicted(answer):
    speeds = list(answer) if isinstance(answer, (list, tuple)) else None
    if speeds is None or not all(isinstance(one, (int, float)) and math.isfinite(one) for one in speeds):
        raise WrongAnswer(f"speeds() answered {answer!r}, and not a list of numbers")
    return {"speeds": [float(one) for one in speeds]}


def problem(error, function):
    """Where the file went wrong, and how."""
    file, line, text = path, None, f"{type(error).__name__}: {error}"
    if isinstance(error, WrongAnswer):
        line, text = function.__code__.co_firstlineno if hasattr(function, "__code__") else None, str(error)
    elif isinstance(error, SyntaxError) and error.filename:
        file, line, text = error.filename, error.lineno, f"{type(error).__name__}: {error.msg}"
    else:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == path:
                line = trace.tb_lineno
            trace = trace.tb_next
    return {"error": {"file": file, "line": line, "text": " ".join(text.split())}}


def answer_to(request, function):
    if role == "policy":
        view = viewed(request)
        return placed(function(view), view.waiting)
    return predicted(function([Sharer(*job) for job in request["jobs"]]))


def main():
    name = {"policy": "place", "predictor": "speeds"}[role]
    function = None
    try:
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        module = types.ModuleType(os.path.splitext(os.path.basename(path))[0])
        module.__file__ = path
        sys.modules.setdefault(module.__name__, module)
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)
        function = getattr(module, name, None)
        if not callable(function):
            raise WrongAnswer(f"it defines no function {name}()")
        answer = {}
    except BaseException as error:  # also SystemExit: radrm prints it in one sentence
        answer = problem(error, function)
    while True:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        line = requests.readline()
        if not line or "error" in answer:
            return
        try:
            answer = answer_to(json.loads(line), function)
        except BaseException as error:
            answer = problem(error, function)


main()
