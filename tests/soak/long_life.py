#!/usr/bin/env python3
"""A long life: what a server and `zfolio run` have at its start and at its end, and how long a step takes.

    tests/soak/long_life.py                        # 20,000 forks, and 100 GiB of malloc
    tests/soak/long_life.py --forks 500 --gib 2    # short
    tests/soak/long_life.py --way guard            # by another way of telling faults

`tests/programs/long_life.c` does the work and says after each tenth what it has; meanwhile
`zfolio run` is looked at from outside. The start is after the first tenth, in which all is set
up. Exit status: 1 if at the end there is more than at the start, or a step takes longer, beyond
what is tolerated; 71 if nothing can be run.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "programs" / "long_life.c"
HIGH = "64M"
# Above what was there at the start: MiB resident, mappings, descriptors.
TOLERATED = {"server": (16, 100, 0), "zfolio run": (8, 10, 2)}
# Times the median step of the first tenth, that of the last. (Others use the machine too.)
SLOWER = 2


def of(pid):
    """MiB resident, mappings and descriptors of a process."""
    base = pathlib.Path("/proc") / str(pid)
    status = (base / "status").read_text()
    kib = next(int(l.split()[1]) for l in status.splitlines() if l.startswith("VmRSS:"))
    maps = (base / "maps").read_text().count("\n")
    return kib / 1024, maps, len(os.listdir(base / "fd"))


def live(zfolio, program, way, kind, amount, limit):
    """Runs one life; returns its rows (who, start, end), how much was done (%), the seconds, and what a
    step took at the start and at the end (us, the median and what 99 of 100 do not exceed)."""
    command = [zfolio, "run", "--quiet", "--faults", way, "--high", HIGH, "--", program, kind]
    begin = time.monotonic()
    run = subprocess.Popen(command + [str(amount)], stdout=subprocess.PIPE, text=True)
    own, lines, supervisor = [], 0, []
    for line in run.stdout:
        fields = [float(field) for field in line.split()]
        lines += 1
        # The first line is before the first tenth.
        if lines > 1:
            own.append((fields[0], fields[3], int(fields[4]), int(fields[5]), *fields[6:8]))
            supervisor.append(of(run.pid))
        if limit and time.monotonic() - begin > limit:
            run.terminate()
            break
    status = run.wait()
    done = own[-1][0] if own else 0
    ended = status == 0 or (limit and status == -15)
    if len(own) < 2 or not ended:
        sys.exit(f"{way} {kind}: status {status} after {done} %")
    rows = [("server", own[0][1:4], own[-1][1:4]), ("zfolio run", supervisor[0], supervisor[-1])]
    seconds = time.monotonic() - begin
    return rows, done, seconds, (own[0][4:], own[-1][4:])


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--way", action="append", help="of telling faults (message, guard, ...)")
    parse.add_argument("--forks", type=int, default=20000)
    parse.add_argument("--gib", type=float, default=100)
    parse.add_argument("--limit", type=float, default=0, help="seconds for each life; 0: none")
    parse.add_argument("--zfolio", default=ROOT / "target" / "release" / "zfolio")
    args = parse.parse_args()
    if not pathlib.Path(args.zfolio).exists():
        print(f"{args.zfolio} is not there: build it, or name another", file=sys.stderr)
        return 71
    well = True
    with tempfile.TemporaryDirectory() as into:
        program = pathlib.Path(into) / "long_life"
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, PROGRAM], check=True)
        print("| way | life | s | who | MiB resident | mappings | descriptors | a step, us | of 100, 99, us |")
        print("|---|---|---|---|---|---|---|---|---|")
        for way in args.way or ["message", "guard"]:
            for kind, amount in (("forks", args.forks), ("heap", args.gib)):
                if not amount:
                    continue
                rows, done, seconds, steps = live(args.zfolio, program, way, kind, amount, args.limit)
                unit = "forks" if kind == "forks" else "GiB"
                what = f"{amount * done / 100:,.0f} {unit}"
                for who, start, end in rows:
                    pairs = zip(start, end, TOLERATED[who])
                    well &= all(last <= first + more for first, last, more in pairs)
                    cells = [f"{a:.0f} -> {b:.0f}" for a, b in zip(start, end)]
                    # (What the server does is measured; `zfolio run` waits.)
                    of_steps = [f"{a:.4g} -> {b:.4g}" for a, b in zip(*steps)]
                    cells += of_steps if who == "server" else [""] * 2
                    print(f"| {way} | {what} | {seconds:.0f} | {who} |", " | ".join(cells), "|")
                well &= steps[1][0] <= steps[0][0] * SLOWER
                sys.stdout.flush()
    if not well:
        print("more, or slower, at the end than at the start", file=sys.stderr)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
