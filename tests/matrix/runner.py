"""One program: prepared, run bare, run limited, compared."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import packages
import tree
from program import MIB, Failed, Job, Skip

# How long a run may take before it counts as a hang.
LIMIT_LEAST_SECONDS = 300.0
LIMIT_TIMES_BARE = 20.0
# Over which time a hang is told from a crawl.
LOOK_SECONDS = 5.0
GRACE_SECONDS = 5.0
# CPU time in that time of a program that crawls.
CRAWL_SECONDS = 0.5
HERE = Path(__file__).parent


def say(text):
    print(text, file=sys.stderr, flush=True)


def mib(count):
    return count / MIB


class Run:
    """What one run came to: times, memory, how it ended, what `check` said."""

    def __init__(self):
        self.ended = None  # None: well; else the text for the table
        self.late = None  # HANG or CRAWL
        self.status = None
        self.wall = self.cpu = 0.0
        self.rss = self.anonymous = self.rss_sum = self.seen = 0
        self.largest = []
        self.result = None
        self.messages = []
        self.threads = []  # of a hang: where each one waits
        self.stats = {}

    def moved(self, counter):
        return self.stats.get("total", {}).get(counter, 0)


class Runner:
    def __init__(self, zfolio, library, scratch, size, share, limit, ways):
        self.zfolio, self.library = zfolio, library
        self.scratch, self.size, self.share = scratch, size, share
        self.limit = limit
        self.ways = ways

    def rows(self, program, repeat):
        """Runs the program and says what came of it: a row of the table for each way
        of serving faults."""
        rows = [
            {"program": program.name, "about": program.about, "faults": way, "result": "same", "notes": []}
            for way in self.ways
        ]
        inputs = Path(tempfile.mkdtemp(prefix=program.name + "-", dir=self.scratch))
        inputs.chmod(0o755)
        try:
            packages.install(program.needs)
            say(f"{program.name}: preparing")
            program.prepare(Job(inputs, inputs, self.size, self.limit or LIMIT_LEAST_SECONDS))
            self.pairs(program, inputs, repeat, rows)
        except Skip as why:
            for row in rows:
                row["result"] = f"skipped: {why}"
        except Failed as why:
            for row in rows:
                row["result"] = f"not prepared: {why}"
        finally:
            shutil.rmtree(inputs, ignore_errors=True)
        good = "same, unmanaged" if program.unmanaged else "same"
        for row in rows:
            row["good"] = row["result"] == good or row["result"].startswith("skipped")
            say(f"{program.name}: {row['faults']}: {row['result']}")
        return rows

    def pairs(self, program, inputs, repeat, rows):
        """Bare, then in each way of serving faults, in turn; a way in which something was
        wrong once is not run again."""
        bares, high = [], None
        limiteds = {way: [] for way in self.ways}
        for _ in range(repeat):
            bare = self.run(program, inputs, None, None, self.limit or LIMIT_LEAST_SECONDS)
            bares.append(bare)
            if bare.ended:
                for row in rows:
                    row["result"] = f"bare: {bare.ended}"
                break
            if high is None:
                high = self.high(bare, program.high_least)
            limit = self.limit or max(LIMIT_LEAST_SECONDS, LIMIT_TIMES_BARE * bare.wall)
            for row in (row for row in rows if row["result"] == "same"):
                limited = self.run(program, inputs, high, row["faults"], limit)
                limiteds[row["faults"]].append(limited)
                if limited.ended:
                    row["result"] = limited.ended
                elif limited.result != bare.result:
                    row["result"] = "DIFFERS"
                    row["notes"].append(f"bare {bare.result}, limited {limited.result}")
        for row in rows:
            self.fill(row, bares, limiteds[row["faults"]], high)

    def high(self, bare, least):
        """A share of the natural peak. `high` is for each process, so the peak is
        that of the largest one, and of its private anonymous memory alone: that is
        what can be moved out, and of resident file pages zfolio counts an eighth of
        `high` at most, so for programs that are mostly files (a browser, a virtual
        machine's code) a share of the whole would not be reached at all."""
        return max(int(bare.anonymous * self.share / 100), least) // MIB * MIB

    def run(self, program, inputs, high, way, limit):
        kind = "bare" if high is None else f"limited to {mib(high):.0f} MiB, faults {way}"
        run = Run()
        directory = Path(tempfile.mkdtemp(prefix=f"{program.name}-", dir=self.scratch))
        directory.chmod(0o777)  # a program may change its user
        job = Job(inputs, directory, self.size, limit)
        stats, report = directory / "stats.json", directory / "reaper.json"
        try:
            words = [str(word) for word in program.command(job)]
            if high is not None:
                words = [
                    str(self.zfolio), "run", "--quiet", "--per-process", "--faults", way, "--high", str(high),
                    "--stats", str(stats), "--", *words,
                ]
                job.environment["ZFOLIO_PRELOAD"] = str(self.library)
            self.watch(program, job, run, [*program.outer, *words], report, limit)
            self.judge(program, job, run, stats, report)
            say(f"{program.name}: {kind}: {run.wall:.1f} s, {mib(run.rss):.0f} MiB"
                f"{', ' + run.ended if run.ended else ''}")
            for message in run.messages:
                say(f"  {message}")
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return run

    def watch(self, program, job, run, words, report, limit):
        with open(job.stdout, "wb") as out, open(job.stderr, "wb") as err:
            reaper = subprocess.Popen(
                [sys.executable, HERE / "reaper.py", report, *words], cwd=job.dir,
                env=job.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )

        def late():
            run.late = "HANG"
            say(f"{program.name}: no end after {limit:.0f} s; its threads wait here:")
            before = tree.cpu_seconds(reaper.pid)
            lines = tree.describe(reaper.pid)
            time.sleep(LOOK_SECONDS)
            used = tree.cpu_seconds(reaper.pid) - before
            if used >= CRAWL_SECONDS:
                run.late = "CRAWL"
            for line in lines:
                say(f"  {line}")
            run.threads = lines
            run.messages += self.held(reaper.pid)
            run.messages.append(
                f"no end after {limit:.0f} s; in the last {LOOK_SECONDS:.0f} s it used {used:.1f} s of CPU"
            )
            # A program that can still end does, and zfolio writes its statistics.
            tree.terminate(reaper.pid, GRACE_SECONDS)
            # The reaper has the rest to itself, and reports.
            tree.kill(reaper.pid, itself=False)

        sampler = tree.Sampler(reaper.pid, limit, late)
        sampler.start()
        try:
            program.drive(job)
        except (Failed, OSError, subprocess.SubprocessError) as why:
            run.ended = f"client: {why}"
            tree.kill(reaper.pid, itself=False)
        except BaseException:  # an interrupt ends the program as well
            tree.kill(reaper.pid)
            raise
        finally:
            try:
                reaper.wait()
            except BaseException:
                tree.kill(reaper.pid)
                raise
            finally:
                sampler.stop()
        run.rss, run.anonymous = sampler.peak("rss"), sampler.peak("anonymous")
        run.rss_sum, run.seen = sampler.sum_peak, len(sampler.processes)
        run.largest = sampler.largest(5)

    def held(self, root):
        """What the managed processes of a tree hold, now."""
        for pid in tree.descendants(root):
            done = subprocess.run(
                [self.zfolio, "stat", str(pid)], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )
            if done.returncode == 0:
                return done.stdout.splitlines()[1:]
        return []

    def judge(self, program, job, run, stats, report):
        errors = job.stderr.read_text(errors="replace").splitlines()
        said = [line for line in errors if line.startswith("zfolio")]
        run.messages += said[:20]
        if stats.exists() and (text := stats.read_text()):
            run.stats = json.loads(text)
            for process in run.stats["processes"]:
                if process["message"] or process["state"] in ("failed", "unmanaged"):
                    run.messages.append(
                        f"process {process['pid']} {process['comm']}: "
                        f"{process['state']}: {process['message']}"
                    )
        if report.exists():
            result = json.loads(report.read_text())
            run.status, run.wall = result["status"], result["wall"]
            run.cpu = result["user"] + result["system"]
            if result["left_behind"]:
                run.messages.append(f"left behind: {' '.join(result['left_behind'])}")
        if run.late:
            run.ended = run.late
        elif run.ended:
            run.messages += errors[-5:]
        elif run.status != 0:
            last = errors[-1][:160] if errors else "nothing on stderr"
            run.ended = f"{'signal' if run.status and run.status < 0 else 'status'} " \
                        f"{abs(run.status) if run.status is not None else '?'}: {last}"
            run.messages += errors[-5:]
        else:
            try:
                run.result = program.check(job)
            except Failed as why:
                run.ended = f"WRONG: {why}"
            except OSError as why:
                run.ended = f"no result: {why}"

    def fill(self, row, bares, limiteds, high):
        def middle(runs, value):
            return statistics.median(map(value, runs)) if runs else None

        row["bare"] = [vars(run) for run in bares]
        row["limited"] = [vars(run) for run in limiteds]
        row["high"] = high
        row["peak_bare"] = middle(bares, lambda run: run.rss)
        row["anonymous_bare"] = middle(bares, lambda run: run.anonymous)
        row["sum_bare"] = middle(bares, lambda run: run.rss_sum)
        row["peak_limited"] = max((run.rss for run in limiteds), default=None)
        row["sum_limited"] = max((run.rss_sum for run in limiteds), default=None)
        row["time_bare"] = middle(bares, lambda run: run.wall)
        row["time_limited"] = middle(limiteds, lambda run: run.wall)
        row["pages_out"] = middle(limiteds, lambda run: run.moved("pages_out"))
        row["pages_in"] = middle(limiteds, lambda run: run.moved("pages_in"))
        row["managed"] = middle(limiteds, lambda run: run.stats.get("processes_managed", 0))
        row["processes"] = middle(limiteds, lambda run: run.stats.get("processes_loaded", 0))
        for run in limiteds:
            row["notes"] += [line for line in run.messages if line not in row["notes"]]
        if row["result"] == "same" and not row["pages_out"]:
            row["result"] = "same, unmanaged"


def find_zfolio(named, root):
    """(zfolio, library): the named one, or this checkout's, built if it is not there."""
    if named:
        zfolio = Path(named).absolute()
    else:
        target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
        zfolio = target.absolute() / "release" / "zfolio"
        if not zfolio.exists():
            if shutil.which("cargo") is None:
                raise Skip(f"no {zfolio} and no cargo to build it; install Rust, or name one with --zfolio")
            say("matrix: building zfolio")
            command = ["cargo", "build", "--release", "--locked", "-p", "zfolio-cli", "-p", "zfolio-preload"]
            if subprocess.run(command, cwd=root).returncode != 0:
                raise Skip("cargo build failed")
    library = Path(os.environ.get("ZFOLIO_PRELOAD", zfolio.parent / "libzfolio_preload.so"))
    for file in (zfolio, library):
        if not file.is_file():
            raise Skip(f"{file} is not there")
    return zfolio, library


def borrow(zfolio, library, scratch):
    """Copies of the two, which other users can reach and no build replaces."""
    place = scratch / "bin"
    place.mkdir()
    return shutil.copy2(zfolio, place / "zfolio"), shutil.copy2(library, place / library.name)


def doctor(zfolio, library):
    """What `zfolio doctor` ended with; its complaints go to stderr."""
    done = subprocess.run(
        [zfolio, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=dict(os.environ, ZFOLIO_PRELOAD=str(library)),
    )
    if done.returncode != 0:
        for line in done.stdout.splitlines():
            if not line.startswith("ok"):
                say(line)
    return done.returncode
