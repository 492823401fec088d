"""Looking at a tree of processes through /proc: who is in it, what each of
them holds, where each thread waits. Nothing here fails because a process has
gone meanwhile."""

import os
import signal
import threading
import time
from pathlib import Path


def read(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def threads(pid):
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def descendants(root):
    """All processes below `root`, without it. A child belongs to the thread
    that forked it, so every thread is asked."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        for tid in threads(pid):
            below = [int(word) for word in read(f"/proc/{pid}/task/{tid}/children").split()]
            found += below
            todo += below
    return found


def stat_fields(pid, tid=None):
    """The fields of /proc/PID/stat from the state on; empty if it has gone."""
    path = f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat"
    return read(path).rpartition(")")[2].split()


def memory(pid):
    """(comm, {field: bytes}) of /proc/PID/status, or None (a zombie has no memory)."""
    name, fields = "", {}
    for line in read(f"/proc/{pid}/status").splitlines():
        key, _, value = line.partition(":")
        if key == "Name":
            name = value.strip()
        elif key.startswith(("Vm", "Rss")) and value.endswith("kB"):
            fields[key] = int(value.split()[0]) * 1024
    return (name, fields) if "VmRSS" in fields else None


def cpu_seconds(root):
    """What the processes below `root` have used of the processor so far."""
    ticks = 0
    for pid in descendants(root):
        stat = stat_fields(pid)
        if len(stat) > 12:
            ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def describe(root):
    """One line for each thread below `root`: where it waits, in the kernel's words."""
    lines = []
    for pid in descendants(root):
        command = read(f"/proc/{pid}/cmdline").replace("\0", " ")[:120]
        lines.append(f"process {pid}: {command}")
        for tid in threads(pid):
            state = (stat_fields(pid, tid) or ["?"])[0]
            call = read(f"/proc/{pid}/task/{tid}/syscall").split()
            lines.append(
                f"  {tid} {read(f'/proc/{pid}/task/{tid}/comm').strip():16} {state}"
                f" wchan={read(f'/proc/{pid}/task/{tid}/wchan') or '-'}"
                f" syscall={' '.join(call[:3]) or '-'}"
            )
    return lines


def terminate(root, grace):
    """Asks everything below `root` to end, and waits for that, `grace` seconds."""
    for pid in descendants(root):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    deadline = time.monotonic() + grace
    while descendants(root) and time.monotonic() < deadline:
        time.sleep(0.05)


def kill(root, itself=True):
    """Ends everything below `root` (and `root`). Stopped first, so that nobody
    forks on while the others are being listed."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in descendants(root):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
    if itself:
        try:
            os.kill(root, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Sampler(threading.Thread):
    """Follows the memory of everything below `root` until told to stop, and
    calls `late` once if that takes longer than `limit` seconds.

    Peaks are of single processes; `sum_peak` is the peak of the sum of resident
    sets at one instant (pages shared after a fork count in each of them)."""

    def __init__(self, root, limit, late, interval=0.02):
        super().__init__(daemon=True)
        self.root, self.limit, self.late, self.interval = root, limit, late, interval
        self.processes = {}  # (pid, start time) -> peaks
        self.sum_peak = 0
        self.done = threading.Event()

    def run(self):
        begin, called = time.monotonic(), False
        while not self.done.wait(self.interval):
            self.sample()
            if not called and time.monotonic() - begin > self.limit:
                called = True
                self.late()

    def sample(self):
        total = 0
        for pid in descendants(self.root):
            stat, found = stat_fields(pid), memory(pid)
            if len(stat) < 20 or not found:
                continue
            comm, fields = found
            if comm == "zfolio":  # our own command, waiting for the program
                continue
            total += fields["VmRSS"]
            peaks = self.processes.setdefault(
                (pid, stat[19]), {"comm": comm, "rss": 0, "anonymous": 0}
            )
            peaks["comm"] = comm
            peaks["rss"] = max(peaks["rss"], fields["VmRSS"], fields.get("VmHWM", 0))
            peaks["anonymous"] = max(peaks["anonymous"], fields.get("RssAnon", 0))
        self.sum_peak = max(self.sum_peak, total)

    def stop(self):
        self.done.set()
        self.join()

    def peak(self, kind):
        return max((peaks[kind] for peaks in self.processes.values()), default=0)

    def largest(self, count):
        return sorted(self.processes.values(), key=lambda peaks: -peaks["rss"])[:count]
