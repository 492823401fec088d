#!/usr/bin/env python3
"""What zfolio costs where there is nothing for it to do.

    tests/bench/small.py [ZFOLIO] [PAIRS]

Runs each command bare and under `zfolio run` with `high` far above its need, in
turns, and prints medians: elapsed time, and CPU time of all its processes. The
first is a shell that starts /bin/true 200 times; the others compute, or go over
memory. Needs python3, and gcc for one of them (left out without).
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HIGH = "8G"
LOOP = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done"
COMPUTE = "s=0\nfor i in range(4000000): s = (s * 31 + i) % 1000003\nprint(s)"
MEMORY = (
    "import array\na = array.array('Q', bytes(192 << 20))\n"
    "for _ in range(12):\n    for k in range(0, len(a), 4096): a[k] += 1\n"
    "    b = a[:len(a) // 2]\nprint(sum(a[::4096]))"
)


def source(path, functions):
    with open(path, "w") as out:
        for n in range(functions):
            out.write(f"int f{n}(int a, int b) {{ int s = 0; for (int i = 0; i < b; i++)"
                      f" s += (a ^ i) * {n + 3} + (s >> 3); return s; }}\n")


def once(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def main():
    zfolio = sys.argv[1] if len(sys.argv) > 1 else "target/release/zfolio"
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    if not os.access(zfolio, os.X_OK):
        sys.exit(f"small.py: {zfolio}: not a program; name zfolio's executable")
    under = [zfolio, "run", "--quiet", "--high", HIGH, "--"]
    with tempfile.TemporaryDirectory() as directory:
        unit = os.path.join(directory, "unit.c")
        source(unit, 400)
        commands = [
            ("200 x /bin/true", ["sh", "-c", LOOP]),
            ("python, computing", ["python3", "-c", COMPUTE]),
            ("python, 288 MiB", ["python3", "-c", MEMORY]),
        ]
        if shutil.which("gcc"):
            commands.append(("gcc -O2", ["gcc", "-O2", "-c", "-o", "/dev/null", unit]))
        print(f"{'median of ' + str(pairs) + ' pairs':20} {'bare':>9} {'zfolio':>9} {'more':>8} {'CPU more':>9}")
        for name, command in commands:
            bare, managed = [], []
            for _ in range(pairs):
                bare.append(once(command))
                managed.append(once(under + command))
            wall = [statistics.median(run[0] for run in runs) for runs in (bare, managed)]
            cpu = [statistics.median(run[1] for run in runs) for runs in (bare, managed)]
            print(f"{name:20} {wall[0]:7.3f} s {wall[1]:7.3f} s {wall[1] / wall[0] - 1:8.1%}"
                  f" {cpu[1] / cpu[0] - 1:9.1%}")
            if command[-1] == LOOP:
                each = (wall[1] - wall[0]) / 201 * 1e6
                print(f"{'':20} {each:.0f} us for each process")


if __name__ == "__main__":
    main()
