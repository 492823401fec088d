"""Compilers and builds."""

import packages
from program import MIB, Failed, Program, Words, digest, run_quietly

LIBC = {"/usr/include/stdio.h": "libc6-dev"}


class Gcc(Program):
    name = "gcc"
    about = "gcc -O2, one large generated C file; the object compared"
    needs = {"gcc": "gcc", **LIBC}
    short = True

    def prepare(self, job):
        draw, lines = Words(11), ["#include <stdint.h>", "extern int64_t outside(int64_t);"]
        for n in range(job.pick(800, 3500)):
            lines += [
                f"int64_t f{n}(int64_t *a, int64_t x, int64_t y) {{",
                f"  int64_t t = x * {draw.next(1000)} + y;",
                f"  for (int64_t i = 0; i < (x & 63); i++) {{",
                f"    a[i] += (t ^ a[(i * {draw.next(50)}) & 63]) >> {1 + draw.next(20)};",
                f"    if (a[i] > {draw.next(100000)}) t += a[i] * {draw.next(999)};",
                f"    else if (a[i] & {1 << draw.next(12)}) t -= outside(a[i] + {draw.next(999)});",
                f"    switch (t & 7) {{",
                *(f"      case {c}: t = t * {3 + draw.next(99)} + a[{draw.next(64)}]; break;" for c in range(6)),
                f"      default: t = outside(t) {f'+ f{n - 1}(a, t & 15, y)' if n else ''}; }}",
                "  }",
                f"  return t + {draw.next(9999)};",
                "}",
            ]
        (job.inputs / "big.c").write_text("\n".join(lines) + "\n")

    def command(self, job):
        return ["gcc", "-O2", "-c", job.inputs / "big.c", "-o", job.dir / "big.o"]

    def check(self, job):
        return digest(job.dir / "big.o", job.stdout)


class Gxx(Gcc):
    name = "g++"
    about = "g++ -O2, generated templates over the standard library; the object compared"
    needs = {"g++": "g++", **LIBC}
    short = False

    def prepare(self, job):
        lines = [
            "#include <algorithm>", "#include <map>", "#include <memory>", "#include <string>",
            "#include <tuple>", "#include <unordered_map>", "#include <vector>",
            "template <int N> struct Item { long id = N; std::string name; std::vector<long> values;",
            "  bool operator<(const Item &o) const { return std::tie(id, name) < std::tie(o.id, o.name); } };",
            "template <int N> long work(std::map<std::string, Item<N>> &m, std::vector<std::shared_ptr<Item<N>>> &v) {",
            "  std::unordered_map<long, std::vector<Item<N>>> groups;",
            "  for (auto &e : m) { groups[e.second.id % (N + 3)].push_back(e.second);",
            "    v.push_back(std::make_shared<Item<N>>(e.second)); }",
            "  std::sort(v.begin(), v.end(), [](auto &a, auto &b) { return *a < *b; });",
            "  long t = 0; for (auto &g : groups) { std::sort(g.second.begin(), g.second.end());",
            "    for (auto &i : g.second) t += i.id * N + std::count(i.values.begin(), i.values.end(), N); }",
            "  return t; }",
        ]
        for n in range(job.pick(6, 25)):
            lines.append(f"long call{n}(std::map<std::string, Item<{n}>> &m, "
                         f"std::vector<std::shared_ptr<Item<{n}>>> &v) {{ return work<{n}>(m, v); }}")
        (job.inputs / "big.cc").write_text("\n".join(lines) + "\n")

    def command(self, job):
        return ["g++", "-std=c++17", "-O2", "-c", job.inputs / "big.cc", "-o", job.dir / "big.o"]


class Make(Program):
    name = "make"
    about = "make -j4 of a Debian source (zlib; in full zstd's library); all objects compared"
    # Each compiler is small; below this one does nothing but wait.
    high_least = 24 * MIB
    needs = {"make": "make", "gcc": "gcc", "dpkg-source": "dpkg-dev", **LIBC}

    def prepare(self, job):
        source = packages.source(job.pick("zlib", "libzstd"), job.inputs)
        source.rename(job.inputs / "source")
        if (job.inputs / "source" / "configure").exists():
            run_quietly(["./configure", "--static"], cwd=job.inputs / "source")

    def command(self, job):
        """A copy at one place for both runs: paths must not differ in the objects."""
        place = job.inputs / "build"
        run_quietly(["rm", "-rf", place])
        run_quietly(["cp", "-a", job.inputs / "source", place])
        return ["make", "-j4", "-C", *job.pick([place], [place / "lib", "libzstd.a", "V=1"])]

    def check(self, job):
        place = job.inputs / "build"
        built = [p for kind in ("*.o", "*.a") for p in sorted(place.rglob(kind)) if p.is_file()]
        if len(built) < 15:
            raise Failed(f"only {len(built)} files were built")
        return f"{len(built)} files {digest(*built)}"


PROGRAMS = [Gcc, Gxx, Make]
