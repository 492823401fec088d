"""Managed runtimes: the JVM with two collectors, node, Go."""

import shutil

from program import WORKLOADS, Program, Skip, run_quietly


class Java(Program):
    """Compiled bare; the heap may grow to what the program needs, not further."""

    needs = {"javac": "default-jdk-headless", "java": "default-jre-headless"}
    options = []

    def prepare(self, job):
        if self.options:
            try:
                run_quietly(["java", *self.options, "-version"])
            except Exception as why:
                raise Skip(f"this java does not take {' '.join(self.options)}: {why}") from None
        run_quietly(["javac", "-d", job.inputs, WORKLOADS / "Graph.java"])

    def command(self, job):
        return [
            "java", *self.options, f"-Xmx{job.pick(320, 700)}m", "-cp", job.inputs,
            "Graph", job.pick(300_000, 700_000),
        ]


class JavaG1(Java):
    name = "java-g1"
    about = "the JVM with G1, a graph of objects from four threads"
    options = ["-XX:+UseG1GC"]


class JavaZ(Java):
    name = "java-zgc"
    about = "the same with ZGC"
    options = ["-XX:+UseZGC"]


class Node(Program):
    name = "node"
    about = "node, Maps, objects, strings and Buffers"
    needs = {"node": "nodejs"}

    def command(self, job):
        return ["node", WORKLOADS / "graph.js", job.pick(150_000, 400_000)]


class Go(Program):
    name = "go"
    about = "Go, maps, slices and goroutines with the collector's defaults"
    # cgo makes it a dynamic program, the only kind zfolio manages.
    needs = {"go": "golang-go", "gcc": "gcc", "/usr/include/stdio.h": "libc6-dev"}

    def prepare(self, job):
        shutil.copy(WORKLOADS / "graph.go.txt", job.inputs / "graph.go")
        environment = dict(
            job.environment, CGO_ENABLED="1", GO111MODULE="off", GOFLAGS="",
            GOCACHE=str(job.inputs / "cache"), GOPATH=str(job.inputs / "path"),
        )
        run_quietly(["go", "build", "-o", "graph", "graph.go"], cwd=job.inputs, env=environment)

    def command(self, job):
        return [job.inputs / "graph", job.pick(500_000, 1_200_000)]


PROGRAMS = [JavaG1, JavaZ, Node, Go]
