"""The result: one JSON and one page, written anew after each step, so that nothing is lost when time runs out."""

import json
import os
import time

VERSION = 1

# How a step can end. `failed`: something is not as it should be. `missing`: what it needs is not on this machine.
# `late`: it was stopped at its limit; what it had found is there. `not_run`: no time was left.
STATUSES = ("passed", "failed", "missing", "late", "not_run")


class Step:
    """One step: checks that hold or not, figures, and remarks."""

    def __init__(self, name, about, limit):
        self.name, self.about, self.limit = name, " ".join(about.split()), limit
        self.checks, self.figures, self.remarks = [], {}, []
        self.status, self.seconds, self.reason = "not_run", 0.0, None

    def check(self, what, holds, detail=None):
        """Notes whether something holds. A check that is None could not be made: it says why in `detail`."""
        self.checks.append({"what": what, "holds": None if holds is None else bool(holds), "detail": detail})
        return holds

    def figure(self, name, value):
        self.figures[name] = value

    def remark(self, text):
        self.remarks.append(text)

    def as_json(self):
        return {
            "name": self.name, "about": self.about, "status": self.status, "reason": self.reason,
            "seconds": round(self.seconds, 2), "limit_seconds": self.limit,
            "checks": self.checks, "figures": self.figures, "remarks": self.remarks,
        }


class Report:
    def __init__(self, out, head, steps):
        self.out, self.head, self.steps = out, head, steps
        self.began = time.time()
        os.makedirs(out, exist_ok=True)

    def as_json(self):
        return dict(
            {"version": VERSION}, **self.head,
            date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.began)),
            seconds=round(time.time() - self.began, 1),
            steps=[step.as_json() for step in self.steps])

    def write(self):
        self._place("result.json", json.dumps(self.as_json(), indent=1, sort_keys=False, default=str) + "\n")
        self._place("summary.md", self.page())

    def _place(self, name, text):
        path = os.path.join(self.out, name)
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def page(self):
        head = self.head
        lines = ["# RADRM on %s" % (head.get("gpu") or "no GPU"), ""]
        if head.get("emulated"):
            lines += ["EMULATED on %s: no figure below was measured on a GPU." % head["emulated"], ""]
        for key in ("gpu", "driver", "cuda_driver", "commit", "host"):
            if head.get(key):
                lines.append("- %s: %s" % (key.replace("_", " "), head[key]))
        lines.append("- date: %s" % time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.began)))
        lines += ["", "| step | result | checks | seconds |", "|---|---|---|---|"]
        for step in self.steps:
            made = [check for check in step.checks if check["holds"] is not None]
            good = sum(check["holds"] for check in made)
            status = step.status + (": " + step.reason if step.reason else "")
            lines.append("| %s | %s | %d of %d | %.1f |" % (step.name, cell(status), good, len(made), step.seconds))
        for step in self.steps:
            if not (step.checks or step.figures or step.remarks):
                continue
            lines += ["", "## %s" % step.name, "", step.about, ""]
            for check in step.checks:
                mark = {True: "yes", False: "**NO**", None: "not checked"}[check["holds"]]
                detail = " (%s)" % str(check["detail"])[:400] if check["detail"] is not None else ""
                lines.append("- %s: %s%s" % (mark, check["what"], detail))
            for remark in step.remarks:
                lines.append("- %s" % remark)
            for name, value in step.figures.items():
                lines += table(name, value)
        return "\n".join(lines) + "\n"


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")[:200]


def shown(value):
    if isinstance(value, float):
        return "%.4g" % value if abs(value) < 1000 else "{:,.0f}".format(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return "{:,}".format(value)
    return cell("-" if value is None else value)


def table(name, value):
    """A figure as lines: a list of objects with the same keys is a table."""
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        keys = list(value[0])
        lines = ["", "%s:" % name, "", "| %s |" % " | ".join(keys), "|%s" % ("---|" * len(keys))]
        return lines + ["| %s |" % " | ".join(shown(row.get(key)) for key in keys) for row in value] + [""]
    if isinstance(value, dict):
        return ["- %s: %s" % (name, ", ".join("%s %s" % (key, shown(one)) for key, one in value.items()))]
    return ["- %s: %s" % (name, shown(value))]
