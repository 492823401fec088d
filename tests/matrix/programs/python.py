"""CPython: objects, buffers, numpy, forks, children."""

from program import WORKLOADS, Program, python


class Workload(Program):
    """A script of workloads/ that prints its own checksums."""

    needs = {"/usr/bin/python3": "python3"}
    script = ""
    sizes = (0, 0)

    def command(self, job):
        return [python(), WORKLOADS / self.script, job.pick(*self.sizes)]


class Objects(Workload):
    name = "py-objects"
    about = "CPython, a graph of dicts, lists and strings, changed and walked"
    script, sizes = "objects.py", (250_000, 500_000)


class Arrays(Workload):
    name = "py-arrays"
    about = "CPython, array, bytearray, struct and memoryview"
    script, sizes = "arrays.py", (24, 48)
    short = True


class Numpy(Workload):
    name = "numpy"
    about = "numpy, sorts, gathers and matrix products over large arrays"
    script, sizes = "numeric.py", (6, 12)
    needs = {**Workload.needs, "/usr/lib/python3/dist-packages/numpy": "python3-numpy"}


class ForkedPool(Workload):
    name = "py-pool"
    about = "CPython multiprocessing, a pool forked from a large parent"
    script, sizes = "pool.py", (200_000, 400_000)
    short = True


class Children(Workload):
    name = "py-children"
    about = "CPython subprocess, a large parent, many children and pipes"
    script, sizes = "children.py", (250_000, 500_000)


PROGRAMS = [Objects, Arrays, Numpy, ForkedPool, Children]
