"""An object graph and a long array, as Python programs have them: built, walked
in order, and followed at random. Or, with a number of steps: built, and then a
tenth of it worked on, one step of 10000 anywhere. Takes the number of objects;
prints a JSON line a phase."""

import json
import sys
import time
from array import array


class Customer:
    def __init__(self, key):
        self.key = key
        self.name = "customer %d" % key
        self.orders = [key * 3 + i for i in range(4)]
        self.address = {"street": "street %d" % (key % 1000), "city": key % 89, "v": key * 0.5}
        self.friend = None


def phase(name, begin):
    print(json.dumps({"phase": name, "value": time.time() - begin, "unit": "s"}), flush=True)


count = int(sys.argv[1])

begin = time.time()
customers = {key: Customer(key) for key in range(count)}
for key, customer in customers.items():
    customer.friend = customers[key * 7919 % count]
series = array("q", (key // 5 for key in range(count * 10))) * 5
phase("build", begin)

begin = time.time()
at, seen, total = 0, 0, 0
if len(sys.argv) > 2:
    for step in range(int(sys.argv[2])):
        at = (at * 31 + step * 104729 + 7) % (count if step % 10000 == 0 else count // 10)
        customer = customers[at]
        seen += len(customer.name) + customer.orders[step & 3]
        customer.address["v"] += 1
    phase("part", begin)
else:
    total = sum(customer.address["v"] + len(customer.orders) for customer in customers.values())
    total += sum(series[:: 64])
    phase("walk", begin)

    begin = time.time()
    for step in range(count // 4):
        customer = customers[(at * 31 + step * 104729) % count]
        at = customer.friend.key
        seen += len(customer.friend.name)
    phase("follow", begin)

print(json.dumps({"check": "%r %d %d" % (total, at, seen)}), flush=True)
