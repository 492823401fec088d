"""Chromium without a screen."""

from program import WORKLOADS, Failed, Program, digest


class Chromium(Program):
    name = "chromium"
    about = "Chromium, a screenshot of a heavy local page; the image compared"
    needs = {"chromium": "chromium"}

    def prepare(self, job):
        text = (WORKLOADS / "page.html").read_text()
        (job.inputs / "page.html").write_text(text.replace("@COUNT@", str(job.pick(6000, 40_000))))

    def command(self, job):
        # As root there is no sandbox; the zygote stays.
        return [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=1200,1600",
            f"--user-data-dir={job.dir / 'profile'}", "--timeout=200000",
            "--virtual-time-budget=20000", f"--screenshot={job.dir / 'page.png'}",
            f"file://{job.inputs / 'page.html'}",
        ]

    def check(self, job):
        image = job.dir / "page.png"
        if not image.exists():
            raise Failed("no screenshot")
        # The page writes what it computed into itself; a picture of an error page
        # would be the same both times.
        if image.stat().st_size < 20_000:
            raise Failed(f"the screenshot has {image.stat().st_size} bytes only")
        return digest(image)


class ChromiumNoZygote(Chromium):
    name = "chromium-exec"
    about = "the same without a zygote: each process is exec'ed"

    def command(self, job):
        words = super().command(job)
        return [words[0], "--no-zygote", *words[1:]]


PROGRAMS = [Chromium, ChromiumNoZygote]
