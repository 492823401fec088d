"""Tools that hold much at once: sort, git, ImageMagick, ffmpeg."""

import subprocess

import packages
from program import MIB, Failed, Program, Words, digest, run_quietly


class Sort(Program):
    name = "sort"
    about = "GNU sort with a buffer for the whole file"
    needs = {"sort": "coreutils"}

    def prepare(self, job):
        draw = Words(21)
        words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
        with open(job.inputs / "lines", "w") as out:
            for n in range(job.pick(1_500_000, 3_000_000)):
                number = draw.next(1 << 30)
                out.write(f"{number:010} {words[number % 8]} {words[number // 8 % 8]} line {n}\n")

    def command(self, job):
        size = job.pick("200M", "900M")
        return ["sort", "-S", size, "--parallel=2", "-k2,3", "-k1,1n",
                "-o", job.dir / "sorted", job.inputs / "lines"]

    def check(self, job):
        return digest(job.dir / "sorted")


class GitRepack(Program):
    name = "git-repack"
    about = "git repack -adf of a source tree and a growing large file; fsck and all objects compared"
    needs = {"git": "git", "dpkg-source": "dpkg-dev"}

    def prepare(self, job):
        source = packages.source(job.pick("zlib", "redis"), job.inputs)
        repository = job.inputs / "repository"
        run_quietly(["git", "init", "-q", "--bare", repository])
        stream = job.inputs / "stream"
        with open(stream, "wb") as out:
            for command in self.stream(source, job.pick(25, 45), job.pick(1, 4) * MIB):
                out.write(command)
        with open(stream, "rb") as data:
            subprocess.run(["git", "-C", repository, "fast-import", "--quiet"], stdin=data, check=True)
        stream.unlink()

    def stream(self, source, commits, size):
        """Commits in fast-import's words: the tree first, then edits of every
        tenth file and of one large one."""
        files = sorted(p for p in source.rglob("*") if p.is_file() and not p.is_symlink())
        draw = Words(22)
        large = bytearray().join(b"%07d %016x\n" % (n, draw.next(1 << 31)) for n in range(size // 25))
        for number in range(commits):
            message = b"commit %d" % number
            yield b"commit refs/heads/main\ncommitter A U Thor <author@example.org> %d +0000\n" % (
                1_600_000_000 + number * 3600)
            yield b"data %d\n%s\n" % (len(message), message)
            for file in files if number == 0 else files[number % 10 :: 10]:
                data = file.read_bytes() + (b"\nedit %d\n" % number if number else b"")
                name = str(file.relative_to(source)).encode()
                yield b"M 100644 inline %s\ndata %d\n" % (name, len(data)) + data + b"\n"
            for _ in range(2000):
                at = draw.next(len(large) - 8)
                large[at : at + 7] = b"%07d" % draw.next(10_000_000)
            yield b"M 100644 inline large.txt\ndata %d\n" % len(large) + bytes(large) + b"\n"

    def command(self, job):
        repository = job.dir / "repository"
        run_quietly(["cp", "-a", job.inputs / "repository", repository])
        return ["git", "-C", repository, "-c", "pack.threads=1", "-c", "gc.auto=0",
                "repack", "-a", "-d", "-f", "-q", "--window=40", "--depth=40"]

    def check(self, job):
        git = ["git", "-C", job.dir / "repository"]
        run_quietly([*git, "fsck", "--full", "--strict", "--no-progress"])
        (job.dir / "objects").write_text(run_quietly([*git, "rev-list", "--objects", "--all"]))
        packs = list((job.dir / "repository").rglob("*.pack"))
        if len(packs) != 1:
            raise Failed(f"{len(packs)} packs")
        # With one thread the pack itself is the same, byte for byte.
        return digest(job.dir / "objects", packs[0])


class ImageMagick(Program):
    name = "imagemagick"
    about = "ImageMagick, resize and blur of a generated image; pixels compared"
    needs = {"convert": "imagemagick"}

    def prepare(self, job):
        width, height = self.size(job)
        draw = Words(23)
        with open(job.inputs / "in.ppm", "wb") as out:
            out.write(b"P6 %d %d 255\n" % (width, height))
            for y in range(height):
                step, base = 1 + draw.next(5), draw.next(256)
                out.write(bytes((base + x * step + (y >> 2)) & 255 for x in range(width * 3)))

    def size(self, job):
        return job.pick((2000, 1400), (2600, 1800))

    def command(self, job):
        # Limits of the package's policy would send the pixels to a file.
        return ["convert", "-limit", "thread", "2", job.inputs / "in.ppm", "-blur", "0x3",
                "-resize", "90%", "-rotate", "90", "-unsharp", "0x1", job.dir / "out.ppm"]

    def check(self, job):
        return digest(job.dir / "out.ppm")


class Ffmpeg(Program):
    name = "ffmpeg"
    about = "ffmpeg, generated frames blurred and reversed, which holds them all; frames compared"
    needs = {"ffmpeg": "ffmpeg"}

    def command(self, job):
        seconds = job.pick(5, 14)
        return ["ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi",
                "-i", f"testsrc2=size=1280x720:rate=25:duration={seconds}",
                "-vf", "format=yuv420p,gblur=sigma=2,reverse", "-f", "framemd5", "-"]

    def check(self, job):
        frames = [line for line in job.stdout.read_text().splitlines() if not line.startswith("#")]
        if len(frames) != job.pick(5, 14) * 25:
            raise Failed(f"{len(frames)} frames")
        return digest(job.stdout)


PROGRAMS = [Sort, GitRepack, ImageMagick, Ffmpeg]
