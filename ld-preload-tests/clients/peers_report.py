"""A plugin of pytest: one line for each test, written as soon as the test is over, so that what a crash leaves counts.

The file is named by PEERS_REPORT. Fields are separated by tabs: test, outcome, last line of the reason. Tests that the file
has from an earlier process are left out. A test that takes longer than PEERS_TEST_SECONDS ends the process.
"""

import faulthandler
import os

import pytest

_seconds = float(os.environ["PEERS_TEST_SECONDS"])
_earlier = set()
if os.path.exists(os.environ["PEERS_REPORT"]):
    with open(os.environ["PEERS_REPORT"], encoding="utf-8") as earlier:
        _earlier = {line.split("\t")[0] for line in earlier}
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


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        reason = ""
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash else str(report.longrepr)
        expected = hasattr(report, "wasxfail")
        outcome = "expected-failure" if expected and report.outcome == "skipped" else report.outcome
        _write(report.nodeid, outcome, reason)


def pytest_collectreport(report):
    if report.failed:
        _write(report.nodeid, "failed", "collection: " + str(report.longrepr))


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """Fixture of numba-cuda's own configuration, which its wheel lacks."""
    request.cls._dump_failed_filechecks = False
