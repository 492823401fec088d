"""stress-ng with --verify: bounded by operations, so that both runs do the same."""

from program import Failed, Program


class Stress(Program):
    needs = {"stress-ng": "stress-ng"}
    stressor = ""
    options = {}

    def command(self, job):
        words = ["stress-ng", "--verify", "--seed", "1", "--oomable", "--temp-path", job.dir,
                 "--timeout", "0"]
        for option, (small, full) in self.options.items():
            words += [f"--{option}", job.pick(small, full)]
        return words

    def check(self, job):
        """Its output has times in it. The exit status and its own complaints count."""
        text = job.stdout.read_text() + job.stderr.read_text()
        for line in text.splitlines():
            if "fail:" in line or "error:" in line or "unsuccessful run" in line:
                raise Failed(line.strip()[:160])
        if "successful run completed" not in text:
            raise Failed("no successful run")
        return "successful run"


class StressVm(Stress):
    name = "stress-vm"
    about = "stress-ng --vm: Gray codes written and verified"
    options = {"vm": (1, 1), "vm-bytes": ("128m", "384m"), "vm-ops": (20_000, 60_000), "vm-method": ("gray", "gray")}


class StressMmap(Stress):
    name = "stress-mmap"
    about = "stress-ng --mmap: mapped, unmapped, protected at random, verified"
    options = {"mmap": (2, 2), "mmap-bytes": ("64m", "256m"), "mmap-ops": (6, 20)}


class StressMremap(Stress):
    name = "stress-mremap"
    about = "stress-ng --mremap: grown, shrunk and moved, verified"
    options = {"mremap": (2, 2), "mremap-bytes": ("64m", "256m"), "mremap-ops": (60, 300)}


class StressMadvise(Stress):
    name = "stress-madvise"
    about = "stress-ng --madvise beside --vm: every advice there is"
    options = {"madvise": (1, 1), "madvise-ops": (40, 300), "vm": (1, 1),
               "vm-bytes": ("64m", "256m"), "vm-ops": (4000, 20_000),
               "vm-method": ("gray", "gray")}


class StressFork(Stress):
    name = "stress-fork"
    about = "stress-ng --fork and --vm-rw and --brk and --stack: many processes"
    options = {"fork": (1, 1), "fork-ops": (1500, 8000), "vm-rw": (1, 1), "vm-rw-bytes": ("32m", "128m"),
               "vm-rw-ops": (30, 150), "brk": (1, 1), "brk-ops": (20_000, 100_000)}


PROGRAMS = [StressVm, StressMmap, StressMremap, StressMadvise, StressFork]
