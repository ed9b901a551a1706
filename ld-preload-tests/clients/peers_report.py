"""A plugin of pytest: one line for each test, written as soon as the test is over, so that what a crash leaves counts.

The file is named by PEERS_REPORT. Fields are separated by tabs: test, outcome, last line of the reason. Tests that the file
has from an earlier process are left out. A test that takes longer than PEERS_TEST_SECONDS ends the process. So does a failure
behind which the process is not what it was, with RESTART as its code: the tests that are left get a new process.
"""

import faulthandler
import os

import pytest

RESTART = 86
# Parts of reasons behind which a capture or PyTorch's allocator is left half done.
_SPOILED = ("CUDA error: ", "INTERNAL ASSERT FAILED")

_seconds = float(os.environ["PEERS_TEST_SECONDS"])
_earlier = set()
if os.path.exists(os.environ["PEERS_REPORT"]):
    with open(os.environ["PEERS_REPORT"], encoding="utf-8") as earlier:
        _earlier = {line.split("\t")[0] for line in earlier}
_spoiled = False
_report = open(os.environ["PEERS_REPORT"], "a", encoding="utf-8", errors="replace")


def _write(test, outcome, reason=""):
    words = " ".join(reason.split())
    if len(words) > 400:
        words = words[:200] + " ... " + words[-195:]
    _report.write(f"{test}\t{outcome}\t{words}\n")
    _report.flush()


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.nodeid not in _earlier]


def pytest_runtest_logstart(nodeid, location):
    _write(nodeid, "started")
    faulthandler.dump_traceback_later(_seconds, exit=True)


def pytest_runtest_logfinish(nodeid, location):
    faulthandler.cancel_dump_traceback_later()
    if _spoiled:
        os._exit(RESTART)


def pytest_runtest_logreport(report):
    global _spoiled
    if report.when == "call" or report.outcome != "passed":
        reason = ""
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash else str(report.longrepr)
            _spoiled = _spoiled or any(part in reason for part in _SPOILED)
        expected = hasattr(report, "wasxfail")
        outcome = "expected-failure" if expected and report.outcome == "skipped" else report.outcome
        _write(report.nodeid, outcome, reason)


def pytest_collectreport(report):
    if report.failed:
        _write(report.nodeid, "failed", "collection: " + str(report.longrepr))
    elif report.skipped:
        _write(report.nodeid, "skipped")


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """Fixture of numba-cuda's own configuration, which its wheel lacks."""
    request.cls._dump_failed_filechecks = False
