"""A pool forked from a large parent: the children read what they inherited,
change some of it, and send back much. The parent's own stays as it was."""

import multiprocessing
import random
import sys
import zlib

count = int(sys.argv[1])
SLICES = 16
draw = random.Random(4)
records = {n: {"name": f"entry {n * 31 % 65521}", "values": [n, n * 2, draw.random()]} for n in range(count)}


def checksum(numbers):
    total = 0
    for n in numbers:
        entry = records[n]
        total = zlib.crc32(f"{n} {entry['name']} {entry['values']}".encode(), total)
    return total


def numbers_of(index):
    return range(index, count, SLICES)


def read(index):
    return checksum(numbers_of(index))


def change(index):
    """In this child only; a fresh one must not see it."""
    for n in numbers_of(index):
        records[n]["values"].append(index)
        records[n]["name"] = records[n]["name"].upper()
    return checksum(numbers_of(index))


def send(index):
    return [(n, records[n]["name"] * 4) for n in numbers_of(index)]


def main():
    multiprocessing.set_start_method("fork")
    print("parent", f"{checksum(range(count)):08x}", flush=True)
    with multiprocessing.Pool(2) as pool:
        print("read", pool.map(read, range(SLICES), chunksize=1), flush=True)
        sent = pool.map(send, range(SLICES), chunksize=1)
        print("sent", f"{zlib.crc32(repr(sent).encode()):08x}", flush=True)
    # A process for each task.
    with multiprocessing.Pool(2, maxtasksperchild=1) as pool:
        print("changed", pool.map(change, range(SLICES // 2), chunksize=1), flush=True)
    with multiprocessing.Pool(3) as pool:
        print("read again", pool.map(read, range(SLICES), chunksize=1), flush=True)
    print("parent again", f"{checksum(range(count)):08x}", flush=True)


if __name__ == "__main__":
    main()
