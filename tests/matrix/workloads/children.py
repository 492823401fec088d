"""A large parent that starts many children and talks to them through pipes,
by subprocess (vfork or posix_spawn, then exec) and by plain fork."""

import hashlib
import os
import random
import subprocess
import sys
import threading

count = int(sys.argv[1])
draw = random.Random(5)
records = [f"record {n} " + "x" * draw.randrange(60) + str(draw.random()) for n in range(count)]
lookup = {record: n for n, record in enumerate(records)}


def text(index):
    start = index * 7919 % (count - 2000)
    return "\n".join(records[start : start + 2000]).encode()


def through(command, index):
    return subprocess.run(command, input=text(index), stdout=subprocess.PIPE, check=True).stdout


def forked(index):
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        answer = hashlib.sha256(text(index)).hexdigest().encode()
        os.write(send, answer)
        os._exit(0)
    os.close(send)
    answer = b""
    while part := os.read(receive, 4096):
        answer += part
    os.close(receive)
    _, status = os.waitpid(child, 0)
    return f"{status} {answer.decode()}"


total = hashlib.sha256()
for index in range(60):
    total.update(through(["sort"], index))
    total.update(through(["sh", "-c", "tr a-z A-Z | cat"], index))
    # preexec_fn makes subprocess use fork, and run Python in the child.
    total.update(subprocess.run(["cat"], input=text(index), stdout=subprocess.PIPE,
                                preexec_fn=lambda: os.setsid(), check=True).stdout)
print("pipes", total.hexdigest(), flush=True)

total = hashlib.sha256()
for index in range(60):
    total.update(forked(index).encode())
print("forks", total.hexdigest(), flush=True)

answers = [None] * 40


def work(first):
    for index in range(first, len(answers), 4):
        answers[index] = hashlib.sha256(through(["cat"], index)).hexdigest()


threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads", hashlib.sha256("".join(answers).encode()).hexdigest(), flush=True)
print("lookup", sum(lookup[record] == n for n, record in enumerate(records)))
