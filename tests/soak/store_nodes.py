"""Redis servers for the soak of --backing: alone, or six as a cluster; and a proxy before a
server, which is a network that can be told to fail."""
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

CLUSTER = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
           "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"]


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Server:
    """A redis-server on loopback, in a directory of its own."""

    def __init__(self, options=()):
        self.port, self.dir = free_port(), pathlib.Path(tempfile.mkdtemp(prefix="store-"))
        command = ["redis-server", "--bind", "127.0.0.1", "--port", self.port, "--save", "",
                   "--cluster-port", free_port(), "--dir", self.dir, *options]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while self.cli("PING").strip() != "PONG":
            assert time.monotonic() < until, "redis-server does not begin"
            time.sleep(0.02)

    def cli(self, *words):
        command = ["redis-cli", "-h", "127.0.0.1", "-p", self.port, *words]
        ran = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                             timeout=60, check=False)
        return ran.stdout

    def lives(self):
        return self.process.poll() is None

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        if self.lives():
            self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def cluster():
    """Three primaries and a replica of each."""
    nodes = [Server(CLUSTER) for _ in range(6)]
    command = ["redis-cli", "--cluster", "create", *(f"127.0.0.1:{node.port}" for node in nodes),
               "--cluster-replicas", "1", "--cluster-yes"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    until = time.monotonic() + 30
    while True:
        told = [node.cli("INFO", "replication") for node in nodes]
        joined = all("master_link_status:up" in of or "connected_slaves:1" in of for of in told)
        if joined and all("cluster_state:ok" in node.cli("CLUSTER", "INFO") for node in nodes):
            return nodes
        assert time.monotonic() < until, "no cluster"
        time.sleep(0.1)


class Proxy:
    """Passes bytes on to a port, unless it is told to lose, to cut or to change them."""

    def __init__(self, port):
        self.to, self.silent, self.changes, self.late = port, False, 0.0, 0.0
        self.random, self.open, self.seen = random.Random(port), set(), None
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
                server = socket.create_connection(("127.0.0.1", self.to), timeout=5)
            except OSError:
                if self.socket.fileno() < 0:
                    return
                client.close()
                continue
            server.settimeout(None)
            for of in (client, server):
                of.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.open.add(of)
            for pair in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, come, go, answers):
        try:
            while data := come.recv(1 << 16):
                while self.silent:
                    time.sleep(0.02)
                if self.late:
                    time.sleep(self.late)
                if self.seen is not None:
                    self.seen += data
                if answers and self.random.random() < self.changes:
                    at = self.random.randrange(len(data))
                    data = data[:at] + bytes([data[at] ^ 0x5a]) + data[at + 1:]
                go.sendall(data)
        except OSError:
            pass
        for of in (come, go):
            self.open.discard(of)
            of.close()

    def cut(self):
        """Resets what is open."""
        for of in list(self.open):
            try:
                of.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def end(self):
        self.silent = False
        self.socket.close()
        self.cut()
