"""A graph of ordinary objects: built, walked at random, changed, half of it
dropped and built anew. Prints a checksum after each step."""

import gc
import random
import sys
import zlib

count = int(sys.argv[1])
draw = random.Random(1)


def record(number):
    return {
        "id": number,
        "name": f"record {number * 7919 % 1000003}",
        "tags": [f"tag{(number + i) % 97}" for i in range(3)],
        "next": draw.randrange(count),
        "score": number * 0.5,
    }


def checksum(records):
    total = 0
    for number, entry in enumerate(records):
        words = f"{number} {entry['id']} {entry['name']} {entry['tags']} {entry['next']} {entry['score']}"
        total = zlib.crc32(words.encode(), total)
    return f"{total:08x}"


def walk(records, steps):
    at, total = 0, 0
    for _ in range(steps):
        entry = records[at]
        total = (total * 31 + entry["id"] + len(entry["name"])) % (1 << 61)
        at = (entry["next"] + total) % count
    return total


records = [record(number) for number in range(count)]
print("built", checksum(records))
print("walked", walk(records, count // 20))
for number in range(0, count, 3):
    records[number]["tags"].append(records[number]["name"].upper())
    records[number]["score"] += 1
print("changed", checksum(records))
for number in range(0, count, 2):
    records[number] = record(number + 1)
print("collected", gc.collect() >= 0, checksum(records))
index = {entry["name"]: entry for entry in records}
print("indexed", len(index), sum(entry["next"] for entry in index.values()))
print("again", checksum(records))
