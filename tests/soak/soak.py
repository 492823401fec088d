#!/usr/bin/env python3
"""Many runs of self-checking programs under `zfolio run`, in slices.

    tests/soak/soak.py short --runs 10000
    tests/soak/soak.py mix --seconds 1200 --seed 7
    tests/soak/soak.py random --seconds 3600 --jobs 2

`short` is small and short-lived processes, some of them large enough to be managed;
`mix` is the stressors of tests/programs; `random` is random programs with random options
(docs/soak.md), of which one that fails is shrunk to a short list of calls. Every program checks its own bytes. A run that
fails or takes too long is shown with its command (and, if it hangs, what each thread
waits for), and the soak goes on; the exit status is 1 then. 2: wrong usage; 71: nothing
can be managed here.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import randomly

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"

SHORT = [
    (8, ["/bin/true"], ["8M"]),
    (4, ["/bin/sh", "-c", "true; true | true; (true)"], ["8M", "64M"]),
    (2, ["@plain", "16", "1"], ["8M", "12M", "256M"]),
    (2, ["@plain", "24", "5"], ["10M", "16M"]),
    (1, ["/usr/bin/env", "python3", "-c", "print(sum(range(10**5)))"], ["8M", "16M"]),
]
MIX = [
    (8, ["@stress", "3", "SEED", "4"], ["32M", "48M", "64M", "96M"]),
    (2, ["@stress", "3", "SEED", "4", "libc"], ["48M", "64M"]),
    (2, ["@stress", "3", "SEED", "4", "move"], ["48M", "64M"]),
    (2, ["@churn", "2"], ["40M", "64M"]),
    (1, ["@remap"], ["40M"]),
    (1, ["@faults"], ["40M"]),
    (1, ["@stacks"], ["40M"]),
]


def compiled(into):
    """Compiles what the lists name; returns where each is."""
    names = {c[0][1:] for _, c, _ in SHORT + MIX if c[0].startswith("@")}
    for name in sorted(names):
        command = ["cc", "-O1", "-g", "-pthread", "-o", into / name, PROGRAMS / f"{name}.c"]
        subprocess.run(command, check=True)


def waits(session):
    """What every thread of a session waits for."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            if int(fields[3]) != session:
                continue
            for tid in os.listdir(f"/proc/{pid}/task"):
                where = open(f"/proc/{pid}/task/{tid}/wchan").read()
                yield f"{pid}/{tid} {where}"
        except (OSError, IndexError):
            continue


def run(command, limit, log):
    """Runs a command; None if it succeeded, else why not."""
    log.seek(0)
    log.truncate()
    child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        status = child.wait(limit)
    except subprocess.TimeoutExpired:
        stuck = list(waits(child.pid))
        members = {int(line.split("/")[0]) for line in stuck}
        for pid in members | {child.pid}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait()
        return "no end after %d s:\n  %s" % (limit, "\n  ".join(stuck))
    if status == 0:
        return None
    log.seek(0)
    return f"status {status}: {log.read()[-2000:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["short", "mix", "random"])
    parser.add_argument("--runs", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=90, help="seconds a run may take")
    parser.add_argument("--zfolio", type=pathlib.Path, default=ROOT / "target/release/zfolio")
    parser.add_argument("--json", type=pathlib.Path, help="the result (not of random)")
    parser.add_argument("--jobs", type=int, default=1, help="random: runs at a time")
    parser.add_argument("--shrink", type=float, default=120, help="random: seconds a seed is shrunk for; 0: not")
    parser.add_argument("--bare", action="store_true", help="random: without zfolio, to try the programs")
    parser.add_argument("--without", help="random: operations to leave out, a,b,c, or nothing; default: what is known to fail")
    parser.add_argument("--faults", default="message", help="random: ways of telling faults, taken in turn: a,b,c, or all")
    parser.add_argument("--verbose", action="store_true", help="random: a line for each seed")
    args = parser.parse_args()
    args.faults = randomly.WAYS if args.faults == "all" else args.faults.split(",")
    if not set(args.faults) <= set(randomly.WAYS):
        parser.error(f"--faults: {', '.join(randomly.WAYS)}, or all")
    if args.runs == 10**9 and args.seconds == float("inf"):
        parser.error("give --runs or --seconds")
    if not args.bare and not args.zfolio.exists():
        parser.error(f"{args.zfolio} is not there: cargo build --release, or --zfolio")
    if not args.bare and subprocess.run([args.zfolio, "doctor"], capture_output=True).returncode:
        print("soak: nothing can be managed here: see `zfolio doctor`", file=sys.stderr)
        return 71
    if args.what == "random":
        with tempfile.TemporaryDirectory() as folder:
            return 1 if randomly.soak(args, waits, folder) else 0
    draw = random.Random(args.seed)
    table = SHORT if args.what == "short" else MIX
    counts, failures, begin = {}, [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        folder = pathlib.Path(folder)
        compiled(folder)
        done = 0
        while done < args.runs and time.monotonic() - begin < args.seconds:
            _, program, highs = draw.choices(table, [weight for weight, _, _ in table])[0]
            real = [str(folder / program[0][1:]) if program[0][0] == "@" else program[0]]
            real += [str(draw.randrange(10**6)) if a == "SEED" else a for a in program[1:]]
            high = draw.choice(highs)
            command = [str(args.zfolio), "run", "--quiet", "--per-process", "--high", high, "--", *real]
            why = run(command, args.limit, log)
            done += 1
            name = os.path.basename(program[0]).lstrip("@")
            counts[name] = counts.get(name, 0) + 1
            if why:
                failures.append({"command": command, "why": why})
                print(f"FAILED {' '.join(command)}\n  {why}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{done} runs, {len(failures)} failed", end="", file=sys.stderr)
    seconds = time.monotonic() - begin
    print(f"{done} runs in {seconds:.0f} s, {len(failures)} failed: {counts}")
    if args.json:
        result = {"runs": done, "seconds": seconds, "counts": counts, "failures": failures}
        args.json.write_text(json.dumps(result, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
