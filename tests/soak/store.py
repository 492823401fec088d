#!/usr/bin/env python3
"""Random faults of a store behind a run, a seed after the other.

    tests/soak/store.py --runs 100
    tests/soak/store.py --seed 17 --runs 1 --verbose
    tests/soak/store.py --seconds 20 --faults guard

Each run fills memory, and looks at all of it and at pages at random, while nodes are killed,
stopped, cut off, filled up and lied for, and pagers are killed. What docs/network-backing.md
promises is what must come out: a run whose faults are survivable ends with 0; one that may have
lost pages with 0 or with 70 and a line. A wrong byte, another status, and a step that takes
longer than the deadline and some slack are failures, shown with their seed. Exit status: 1 if
there was one; 71: nothing can be managed here, or there is no redis-server.
"""
import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from store_nodes import Proxy, Server, cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE, SLACK = 10, 50
# What a run survives by promise, and what it may end for (with 70).
SURVIVED = ["stop", "silent", "cut", "late", "pager", "full"]
LOSING = ["flush", "change", "mix", "expire", "garble", "kill"]


class Failure(Exception):
    """What must not be."""


class Run:
    """One run with its nodes."""

    def __init__(self, seed, args, where):
        self.random, self.args, self.where = random.Random(seed), args, where
        self.kind = self.random.choice(["one", "three", "three", "cluster", "cluster"])
        self.log, self.may_lose, self.killed, self.proxies = [], False, 0, []
        if self.kind == "cluster":
            self.nodes = cluster()
            hosts, choice = [node.port for node in self.nodes[:2]], \
                self.random.choice(["copies=2", "wait=1"])
        else:
            self.nodes = [Server() for _ in range(1 if self.kind == "one" else 3)]
            self.proxies = [Proxy(node.port) for node in self.nodes]
            hosts = [proxy.port for proxy in self.proxies]
            choice = "copies=1" if self.kind == "one" else "copies=2"
        url = "redis://" + ",".join(f"127.0.0.1:{port}" for port in hosts)
        self.url = f"{url},{choice},deadline={DEADLINE},ttl=30,size=1G"
        self.errors = tempfile.TemporaryFile("w+", dir=where)
        command = [args.zfolio, "run", "--high", "8M", "--max-pool", "20",
                   "--faults", args.faults, "--backing", self.url, "--", where / "stepped", "24"]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.say(f"{self.kind} {self.url}")

    def say(self, line):
        self.log.append(line)
        if self.args.verbose:
            print("   ", line, flush=True)

    def step(self, step):
        """Asks for a step; whether the program went on."""
        self.say(step)
        try:
            self.process.stdin.write(step + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        answer = []
        reader = threading.Thread(target=lambda: answer.append(self.process.stdout.readline()),
                                  daemon=True)
        reader.start()
        reader.join(DEADLINE + SLACK)
        if reader.is_alive():
            raise Failure(f"{step}: no end in {DEADLINE + SLACK} s")
        return answer == ["done\n"]

    def pager(self):
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = (entry / "stat").read_text().rsplit(") ", 1)[1].split()[1]
                if int(parent) == self.process.pid and \
                        (entry / "cmdline").read_bytes() == b"zfolio\0pager\0":
                    return int(entry.name)
            except (OSError, IndexError):
                pass
        return None

    def fault(self):
        """One fault, and its end some time later."""
        pick = self.random
        what = pick.choice(SURVIVED + SURVIVED + LOSING)
        node = pick.randrange(len(self.nodes))
        server, long = self.nodes[node], pick.uniform(0.05, 2.5)
        proxy = self.proxies[node] if self.proxies else None
        if not server.lives() or what in ("silent", "cut", "late", "garble") and not proxy:
            what = "pager"
        if what == "kill" and self.killed == 0 and self.kind != "one":
            # (Promised: any one node.)
            pass
        elif what in LOSING:
            self.may_lose = True
        self.say(f"{what} {node} {long:.2f}")
        if what == "pager":
            if pid := self.pager():
                os.kill(pid, signal.SIGKILL)
        elif what == "stop":
            server.stop()
            time.sleep(long)
            server.go_on()
        elif what == "kill":
            server.kill()
            self.killed += 1
        elif what == "silent":
            proxy.silent = True
            time.sleep(long)
            proxy.silent = False
        elif what == "cut":
            proxy.cut()
        elif what == "late":
            proxy.late = 0.005
            time.sleep(long)
            proxy.late = 0.0
        elif what == "garble":
            proxy.changes = 0.02
            time.sleep(long)
            proxy.changes = 0.0
        elif what == "full":
            server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
            server.cli("CONFIG", "SET", "maxmemory", "1mb")
            time.sleep(long)
            server.cli("CONFIG", "SET", "maxmemory", "0")
        elif what == "flush":
            server.cli("FLUSHALL")
        else:
            # Of some values: a byte changed; another's; what a clock that jumps a year does.
            script = {
                "change": "redis.call('SETRANGE',k,redis.call('STRLEN',k)/2,'?')",
                "mix": "redis.call('SET',k,string.sub(redis.call('GET',all[1]),1,"
                       "redis.call('STRLEN',k)))",
                "expire": "redis.call('PEXPIRE',k,1)",
            }[what]
            server.cli("EVAL", "local all=redis.call('KEYS','zf:*') for i,k in ipairs(all) do "
                       f"if i%4==1 then {script} end end", "0")

    def live(self):
        steps, goes_on = self.random.randint(4, 8), self.step("fill 1")
        for turn in range(steps):
            # (A step is under way while it happens, now and then.)
            beside = None
            if self.random.random() < 0.8:
                beside = threading.Thread(target=self.fault)
                beside.start()
                if self.random.random() < 0.5:
                    beside.join()
            step = self.random.choice([f"fill {turn + 2}", "check", "check", "random 2000"])
            goes_on = goes_on and self.step(step)
            if beside:
                beside.join()
            if not goes_on:
                break
        goes_on = goes_on and self.step("check")
        if self.process.poll() is None:
            self.process.stdin.close()
        try:
            status = self.process.wait(DEADLINE + SLACK)
        except subprocess.TimeoutExpired:
            raise Failure("it does not end") from None
        self.errors.seek(0)
        told = self.errors.read()
        # What a pager has of standard error must end as well; it is a file here: by its pid.
        right = status == 0 and goes_on
        lost = status == 70 and self.may_lose and "zfolio: " in told
        if not right and not lost:
            raise Failure(f"status {status}, may lose pages: {self.may_lose}\n{told}")
        return status

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for of in (*self.proxies, *self.nodes):
            of.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--faults", default="auto", help="how faults are told")
    parser.add_argument("--zfolio", type=pathlib.Path, default=ROOT / "target/release/zfolio")
    args = parser.parse_args()
    doctor = subprocess.run([args.zfolio, "doctor"], capture_output=True, check=False)
    if doctor.returncode or not shutil.which("redis-server"):
        print("SKIPPED: nothing can be managed here, or there is no redis-server")
        return 71
    runs = args.runs or (10**9 if args.seconds else 100)
    begin, failures, statuses = time.monotonic(), 0, {}
    with tempfile.TemporaryDirectory() as where:
        where = pathlib.Path(where)
        source = ROOT / "tests/programs/stepped.c"
        subprocess.run(["cc", "-O2", "-pthread", "-o", where / "stepped", source], check=True)
        done = 0
        for seed in range(args.seed, args.seed + runs):
            if args.seconds and time.monotonic() - begin > args.seconds:
                break
            run = Run(seed, args, where)
            try:
                status = run.live()
                statuses[status] = statuses.get(status, 0) + 1
            except Failure as failure:
                failures += 1
                print(f"FAILED: seed {seed}: {failure}\n  " + "\n  ".join(run.log), flush=True)
            finally:
                run.end()
            done += 1
    print(f"{done} seeds, {failures} failures; by status: {statuses}; "
          f"{time.monotonic() - begin:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
