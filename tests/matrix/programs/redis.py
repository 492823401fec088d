"""A small redis client: pipelined RESP over a UNIX socket."""

import hashlib
import socket
import time

from program import Failed

PIPELINE = 1000


class Client:
    def __init__(self, path, timeout):
        deadline = time.monotonic() + min(timeout, 60.0)
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(str(path))
                self.socket.settimeout(timeout)
                self.stream = self.socket.makefile("rb")
                if self.call(b"PING") == b"PONG":
                    return
            except (FileNotFoundError, ConnectionRefusedError):
                pass
            except Failed as why:  # still loading
                if not str(why).startswith("LOADING"):
                    raise
            self.socket.close()
            if time.monotonic() > deadline:
                raise Failed("the server does not answer")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    @staticmethod
    def key(n):
        return b"key:%d" % n

    @staticmethod
    def value(n, version):
        """Lengths differ, and one part in four does not compress."""
        random = hashlib.sha256(b"%d %d" % (n, version)).digest()
        return b"%d.%d " % (n, version) + b"the same words again; " * (3 + n % 7) + random

    def send(self, *words):
        self.socket.sendall(self.pack(*words))

    @staticmethod
    def pack(*words):
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)

    def reply(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise Failed("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Failed(rest.decode(errors="replace"))
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if int(rest) < 0:
                return None
            data = self.stream.read(int(rest) + 2)
            if len(data) != int(rest) + 2:
                raise Failed("the server closed the connection")
            return data[:-2]
        raise Failed(f"not an answer: {line[:60]!r}")

    def call(self, *words):
        self.send(*words)
        return self.reply()

    def many(self, commands):
        """Sends in batches, and gives the answers in order."""
        batch = []
        for command in commands:
            batch.append(self.pack(*command))
            if len(batch) == PIPELINE:
                yield from self.answers(batch)
                batch = []
        yield from self.answers(batch)

    def answers(self, batch):
        self.socket.sendall(b"".join(batch))
        for _ in batch:
            yield self.reply()

    def write(self, numbers, version):
        for answer in self.many((b"SET", self.key(n), self.value(n, version)) for n in numbers):
            if answer != b"OK":
                raise Failed(f"SET was answered {answer!r}")

    def read(self, numbers):
        return zip(numbers, self.many((b"GET", self.key(n)) for n in numbers))

    def delete(self, numbers):
        if sum(self.many((b"DEL", self.key(n)) for n in numbers)) != len(numbers):
            raise Failed("not every key was there to be deleted")

    def wait_for_save(self, timeout):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            info = dict(
                line.split(b":", 1)
                for line in self.call(b"INFO", b"persistence").splitlines() if b":" in line
            )
            if info[b"rdb_bgsave_in_progress"] == b"0":
                if info[b"rdb_last_bgsave_status"] != b"ok":
                    raise Failed("BGSAVE failed")
                return
            time.sleep(0.05)
        raise Failed("BGSAVE did not end")

    def quit(self):
        """SHUTDOWN has no answer but the end of the connection."""
        self.send(b"SHUTDOWN", b"NOSAVE")
        self.stream.read()
