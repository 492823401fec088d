"""Runs a command and everything it starts below itself, orphans included, so
that the tree is complete whoever forks twice. Writes how it ended as JSON.

    python3 reaper.py REPORT COMMAND [ARGUMENT...]
"""

import ctypes
import json
import os
import subprocess
import sys
import time

import tree

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 5.0


def main():
    report, command = sys.argv[1], sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("reaper: the system refused PR_SET_CHILD_SUBREAPER")
    begin = time.monotonic()
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    result = {
        "status": os.waitstatus_to_exitcode(status),
        "wall": time.monotonic() - begin,
        "user": usage.ru_utime,
        "system": usage.ru_stime,
    }
    # Helpers that outlive the program get a moment to follow it.
    deadline = time.monotonic() + GRACE_SECONDS
    left = tree.descendants(os.getpid())
    while left and time.monotonic() < deadline:
        reap()
        time.sleep(0.01)
        left = tree.descendants(os.getpid())
    result["left_behind"] = [tree.read(f"/proc/{pid}/comm").strip() for pid in left]
    tree.kill(os.getpid(), itself=False)
    with open(report, "w") as out:
        json.dump(result, out)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main()
