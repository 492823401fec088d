"""Runs the whole test session, and what it starts, under zfolio run.

In the conftest.py of the directory in which pytest is started.
"""

import os
import sys


def pytest_configure(config):
    if "ZFOLIO_CONTROL" in os.environ:  # under it already
        return
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:  # standard output as it was before pytest took it
        capture.stop_global_capturing()
    command = ["zfolio", "run", "--", sys.executable, "-m", "pytest", *sys.argv[1:]]
    os.execvp(command[0], command)
