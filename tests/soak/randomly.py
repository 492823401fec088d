"""Random programs under `zfolio run`, with random options, and how one that fails shrinks.

A seed says what the program does and how it is run; see random_program.c. What fails is
repeated from a list of its operations, of which parts are left out as long as it still
fails (delta debugging), threads and processes first.
"""
import concurrent.futures
import json
import os
import pathlib
import random
import shlex
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Ways of telling faults, and what differs from bare in those without privilege (docs/in-thread.md).
WAYS = ["message", "in-thread", "guard", "protect"]
COMPRESSORS = ["auto", "lz4", "zstd", "zstd:-3", "deflate-iaa", "deflate-iaa:fixed", "deflate-iaa:canned", "none"]
# Operations that are known to fail, and why (docs/soak.md): left out unless asked for.
BY_MESSAGE = {
    "attach": "SHM_REMAP sends no event: a child forked at once may read old bytes",
    "forkwise": "memory wiped on fork is noted by address, and for few ranges",
}
BY_THE_THREAD = {"peek": "memory of another process that is out cannot be read from outside"}
KNOWN_TO_FAIL = {way: BY_MESSAGE if way == "message" else BY_THE_THREAD for way in WAYS}
MEANS = {1: "a wrong byte", 2: "could not be set up", 3: "a call refused, or not", 4: "a crash, of itself or a child", 70: "the manager gave up"}


def compiled(into):
    """Compiles the program; returns where it is."""
    at = pathlib.Path(into) / "random_program"
    command = ["cc", "-O2", "-g", "-Wall", "-Wextra", "-Wno-clobbered", "-pthread", "-o", at, HERE / "random_program.c"]
    subprocess.run(command, check=True)
    return at


def drawn(seed, folder, zfolio, way):
    """The options of `zfolio run` and of the program, for a seed. What a way lacks is left out."""
    draw = random.Random(seed)
    high = draw.choice([16, 16, 24, 32, 48])
    threads = draw.choice([1, 1, 2, 3])
    pages = int(high * 256 * draw.uniform(1.6, 3.6) / threads)
    program = ["--seed", str(seed), "--threads", str(threads), "--pages", str(pages)]
    program += ["--ops", str(draw.choice([150, 300, 450]) // threads), "--touchers", str(draw.choice([0, 0, 1, 2]))]
    program += ["--raw", str(draw.choice([0, 0, 30, 100]))]
    run = [str(zfolio), "run", "--quiet", "--faults", way, "--high", f"{high}M"]
    compressor = draw.choice(COMPRESSORS)
    run += ["--compressor", compressor]
    folio = draw.choice(["4K", "16K", "64K", "64K", "256K", "2M"])
    if folio != "2M" or way == "message":
        run += ["--folio", folio]
    by_message = []
    if compressor == "auto" and draw.random() < 0.5:
        by_message += ["--tier", "auto"]
    if draw.random() < 0.3:
        run += ["--backing", f"file:{folder},size={draw.choice([64, 512])}M"]
    if draw.random() < 0.25:
        by_message += ["--engines", str(draw.choice([1, 2]))]
    if way == "message":
        run += by_message
    else:
        program += ["--vfork-copies"]
    if draw.random() < 0.3:
        run += ["--per-process"]
    elif draw.random() < 0.2:
        run += ["--group", "soak/random"]
    # (Drawn last: older seeds have the other options as they had them.)
    if "--per-process" not in run and draw.random() < 0.15:
        run += [draw.choice(["--swap-max", "--zswap-max"]), f"{draw.choice([2, 8, 24])}M"]
    # (There from the first page on, so that every operation meets it.)
    background = draw.choice(["eager", "eager", "auto", "off"])
    if way != "message":
        run += ["--background-reclaim", background]
    return run, program


class Result:
    """What became of one run."""

    def __init__(self, status, said, moved, seconds):
        self.status, self.said, self.moved, self.seconds = status, said, moved, seconds

    def why(self):
        """In words; None if all was right."""
        if self.status == 0:
            return None
        if self.status is None:
            return f"no end after {self.seconds:.0f} s; {self.said}"
        return f"status {self.status} ({MEANS.get(self.status, 'unknown')}): {self.said}"


def ended(command, folder, limit, waits, stats):
    """Runs a command in a session of its own, in `folder`; kills what is left of it."""
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            status = child.wait(limit)
            stuck = ""
        except subprocess.TimeoutExpired:
            status, stuck = None, "waiting: " + "; ".join(waits(child.pid))
        members = {int(line.split("/")[0]) for line in waits(child.pid)} | {child.pid}
        for pid in members:
            if status is None or pid != child.pid:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
        child.wait()
        log.seek(0)
        said = (log.read()[-1500:].strip() + " " + stuck).strip()
    moved = None
    try:
        moved = json.loads(pathlib.Path(stats).read_text())["total"]["pages_out"]
    except (OSError, ValueError, KeyError):
        pass
    return Result(status, said, moved, time.monotonic() - begin)


class Runner:
    """Runs the program of a seed, whole or from a list. Seeds take the ways in turn."""

    def __init__(self, zfolio, folder, limit, waits, bare, ways, without=None):
        self.zfolio, self.folder, self.limit, self.waits, self.bare = zfolio, pathlib.Path(folder), limit, waits, bare
        self.program, self.ways, self.without = compiled(folder), ways, without

    def of_seed(self, seed):
        """How a seed is run, and the program with its options."""
        way = self.ways[seed % len(self.ways)]
        run, program = drawn(seed, self.folder, self.zfolio, way)
        left_out = ",".join(KNOWN_TO_FAIL[way]) if self.without is None else self.without
        return run, [str(self.program), *program, *(["--without", left_out] if left_out else [])]

    def command(self, seed, options=()):
        run, words = self.of_seed(seed)
        return words if self.bare else [*run, *options, "--", *words]

    def run(self, seed):
        stats = self.folder / f"stats-{seed}"
        return ended(self.command(seed, ["--stats", str(stats)]), self.folder, self.limit, self.waits, stats)

    def operations(self, seed):
        done = subprocess.run([*self.of_seed(seed)[1], "--print"], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def fails(self, seed, lines, tries):
        """Whether the list fails in one of some runs."""
        path = self.folder / f"list-{seed}"
        path.write_text("\n".join(lines) + "\n")
        command = [*self.command(seed), "--replay", str(path)]
        for _ in range(tries):
            if ended(command, self.folder, self.limit, self.waits, self.folder / "none").status != 0:
                return True
        return False

    def shrunk(self, seed, seconds, tries=3):
        """A short list that still fails, or None if it did not fail again."""
        until = time.monotonic() + seconds
        lines = self.operations(seed)
        if not self.fails(seed, lines, 2 * tries):
            return None
        size = max(len(lines) // 2, 1)
        while time.monotonic() < until:
            begin, before = 0, len(lines)
            while begin < len(lines) and time.monotonic() < until:
                fewer = lines[:begin] + lines[begin + size:]
                if self.fails(seed, fewer, tries):
                    lines = fewer
                else:
                    begin += size
            if size == 1 and len(lines) == before:
                break
            size = max(size // 2, 1)
        return lines


def soak(args, waits, folder):
    """Runs seeds; returns how many failed."""
    without = "" if args.without == "nothing" else args.without
    for way in args.faults if args.without is None else []:
        for name, why in KNOWN_TO_FAIL[way].items():
            print(f"left out by {way}: {name}: {why}", flush=True)
    runner = Runner(args.zfolio.resolve(), folder, args.limit, waits, args.bare, args.faults, without)
    begin, failed, wasted, done = time.monotonic(), [], 0, 0

    def going_on(number):
        return number < args.runs and time.monotonic() - begin < args.seconds

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        number, under_way = 0, {}
        while under_way or going_on(number):
            while going_on(number) and len(under_way) < args.jobs:
                seed = args.seed + number
                under_way[pool.submit(runner.run, seed)] = seed
                number += 1
            ready, _ = concurrent.futures.wait(under_way, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ready:
                seed, result = under_way.pop(future), future.result()
                done += 1
                why, command = result.why(), shlex.join(runner.command(seed))
                if args.verbose:
                    print(f"seed {seed}: {result.status} in {result.seconds:.1f} s, {result.moved} pages out", flush=True)
                if why:
                    failed.append(seed)
                    print(f"FAILED seed {seed}: {command}\n  {why}", flush=True)
                elif not result.moved and not args.bare:
                    wasted += 1
                    print(f"wasted seed {seed}: nothing was moved out: {command}", flush=True)
    for seed in failed if args.shrink else []:
        lines = runner.shrunk(seed, args.shrink)
        if lines is None:
            print(f"seed {seed} did not fail again", flush=True)
        else:
            print(f"seed {seed}, {len(lines)} operations: {shlex.join(runner.command(seed))} --replay LIST", flush=True)
            print("\n".join("  " + line for line in lines), flush=True)
    print(f"{done} seeds in {time.monotonic() - begin:.0f} s, {len(failed)} failed, {wasted} wasted")
    return len(failed)
