"""A graph of ordinary objects and a large array, some 500 MB; it knows its own sums.

Prints "right" at the end, or ends with what is wrong. Killed bare in a container with 300 MiB,
which is what packaging/test shows.
"""

import random
from array import array

COUNT = 600_000
LINKS = 97

draw = random.Random(5)
people = {}
for number in range(COUNT):
    people[number] = {
        "number": number,
        "name": "person %d" % number,
        "words": [str(number % LINKS), "x", "y"],
        "weight": number / 4,
    }
series = array("q", range(5_000_000)) * 4


def check(what, found, expected):
    if found != expected:
        raise SystemExit("%s: %r, not %r" % (what, found, expected))


# All of it in order, then some of it anywhere.
check("weights", sum(one["weight"] for one in people.values()), COUNT * (COUNT - 1) / 8)
for number in draw.choices(range(COUNT), k=20_000):
    one = people[number]
    check("a name", one["name"], "person %d" % number)
    check("a word", one["words"][0], str(number % LINKS))
check("the series", sum(series), 4 * sum(range(5_000_000)))
# Changed, and looked at again.
for number in range(0, COUNT, 10):
    people[number]["weight"] += 1
total = COUNT * (COUNT - 1) / 8 + COUNT / 10
check("weights after", sum(one["weight"] for one in people.values()), total)
print("right")
