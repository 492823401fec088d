"""numpy: integers only where order could matter, so that results are exact.
The argument is millions of elements."""

import sys
import zlib

import numpy

count = int(sys.argv[1]) * 1_000_000


def show(what, values):
    print(what, f"{zlib.crc32(numpy.ascontiguousarray(values).view(numpy.uint8)):08x}", flush=True)


draw = numpy.random.Generator(numpy.random.PCG64(3))
keys = draw.integers(0, 1 << 20, count, dtype=numpy.int64)
values = numpy.arange(count, dtype=numpy.int64) * 3
show("keys", keys)
order = numpy.argsort(keys, kind="stable")
show("order", order)
show("gathered", values[order])
running = numpy.cumsum(keys)
show("running", running)
table = values.reshape(-1, 1000)
show("columns", table.sum(axis=0))
show("transposed", table.T.copy())
side = 600
matrix = keys[: side * side].reshape(side, side) % 1000
show("product", matrix @ matrix)
keys.sort()
show("sorted", keys)
show("unique", numpy.unique(keys))
values[::7] = -1
show("values", values)
show("running again", running)
