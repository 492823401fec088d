"""What a program of the matrix is, and what it is given for one run."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

MIB = 1 << 20


class Failed(Exception):
    """The program ran and did something wrong; the text is the row's result."""


class Skip(Exception):
    """The program cannot be run here; the text says why."""


class Program:
    """A row of the matrix. Subclasses set the names and write `command`, and
    where they need it the other functions. See README.md."""

    name = ""
    about = ""
    needs = {}  # command, or a path that may hold `*` -> the Debian package that has it
    short = False  # part of `--short`
    unmanaged = False  # that zfolio runs it unmanaged is what is to be seen
    high_least = 8 * MIB  # zfolio's own minimum
    # Put before everything, `zfolio run` included: a change of user, say.
    outer = []

    def prepare(self, job):
        """Makes the inputs in `job.inputs`. Runs once, before both runs."""

    def command(self, job):
        """The words of the command. Its directory is `job.dir`, empty and new."""
        raise NotImplementedError

    def drive(self, job):
        """Called while the command runs: what a server's client does."""

    def check(self, job):
        """A text that must be the same both times. Raises Failed if it is wrong
        by itself. By default what the command printed."""
        return digest(job.stdout)


class Job:
    """One run of one program: its directories, size, environment, deadline."""

    def __init__(self, inputs, directory, size, limit):
        self.inputs, self.dir, self.size = inputs, directory, size
        self.stdout, self.stderr = directory / "stdout", directory / "stderr"
        self.environment = dict(os.environ, LC_ALL="C.UTF-8", HOME=str(directory))
        self.deadline = time.monotonic() + limit
        self.notes = []  # of `drive`, for `check`

    def pick(self, small, full):
        return full if self.size == "full" else small

    def remaining(self):
        return max(self.deadline - time.monotonic(), 1.0)


WORKLOADS = Path(__file__).parent / "workloads"


def python():
    """Debian's own interpreter where there is one: a shim in PATH is a script,
    and Debian's modules are not for another version."""
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def digest(*paths):
    """One digest over files, and over all files below directories, by name."""
    total = hashlib.sha256()
    for path in map(Path, paths):
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            total.update(file.name.encode() + b"\0")
            with open(file, "rb") as data:
                while block := data.read(1 << 20):
                    total.update(block)
    return total.hexdigest()[:16]


def run_quietly(command, **options):
    """A step of a preparation or a check; Failed, with its last line, if it fails."""
    done = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options
    )
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [""]
        raise Failed(f"{Path(str(command[0])).name} ended with {done.returncode}: {lines[-1][:200]}")
    return done.stdout


class Words:
    """Deterministic numbers, the same on every machine and Python version."""

    def __init__(self, seed):
        self.state = seed & 0xFFFFFFFFFFFFFFFF

    def next(self, below):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        return (self.state >> 33) % below
