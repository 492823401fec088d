"""Debian packages: what a program needs, and sources to work on."""

import functools
import glob
import os
import re
import shutil
import subprocess
from pathlib import Path

from program import Skip


def missing(needs):
    return sorted({package for what, package in needs.items() if not present(what)})


def present(what):
    return bool(glob.glob(what)) if "/" in what else shutil.which(what) is not None


def can_install():
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


@functools.cache
def update():
    apt(["update", "-qq"])


def apt(words, **options):
    done = subprocess.run(
        ["apt-get", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
        env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"), **options
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.startswith("E:")]
        raise Skip(f"apt-get {words[0]} failed: {(lines or ['no reason given'])[0]}")


def install(needs):
    """Installs what is missing; Skip if that cannot be done."""
    packages = missing(needs)
    if not packages:
        return
    if not can_install():
        raise Skip(f"missing: {' '.join(packages)}; as root: apt-get install {' '.join(packages)}")
    update()
    apt(["install", "-y", "-qq", "--no-install-recommends", *packages])
    if left := [what for what in needs if not present(what)]:
        raise Skip(f"{left[0]} is missing although {needs[left[0]]} is installed")


def source(package, into):
    """The unpacked source of a Debian package, below `into`. The system's apt
    configuration is left alone: the entry for sources lives in `into`, made from
    the mirrors that the system uses for its packages."""
    if shutil.which("dpkg-source") is None:
        raise Skip("missing: dpkg-dev; as root: apt-get install dpkg-dev")
    base = into / "apt"
    (base / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    entries = base / "sources.list"
    entries.write_text("".join(source_entries()))
    options = [
        f"-oDir::Etc::SourceList={entries}", "-oDir::Etc::SourceParts=/dev/null",
        f"-oDir::State::Lists={base / 'lists'}", f"-oDir::Cache={base}",
        "-oAPT::Sandbox::User=root",
    ]
    if not any((base / "lists").glob("*Sources*")):
        apt([*options, "update", "-qq"])
    apt([*options, "source", "-qq", package], cwd=into)
    found = [path for path in into.iterdir() if path.is_dir() and path != base]
    if len(found) != 1:
        raise Skip(f"apt-get source {package} left {len(found)} directories")
    return found[0]


def source_entries():
    """deb-src lines for the Debian mirrors configured here, in either format."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in files:
        if not file.is_file():
            continue
        text = file.read_text()
        if file.suffix == ".sources":
            for block in re.split(r"\n\s*\n", text):
                fields = dict(re.findall(r"^(\w[\w-]*):[ \t]*(.*)$", block, re.M))
                if "main" not in fields.get("Components", "").split():
                    continue
                signed = f"[signed-by={fields['Signed-By']}] " if "Signed-By" in fields else ""
                for uri in fields.get("URIs", "").split():
                    for suite in fields.get("Suites", "").split():
                        if plain(suite):
                            yield f"deb-src {signed}{uri} {suite} main\n"
        elif file.suffix == ".list":
            for line in text.splitlines():
                entry = re.match(r"deb\s+(\[.*?\]\s+)?(\S+)\s+(\S+)\s+(.*)", line)
                if entry and plain(entry[3]) and "main" in entry[4].split() and "debian" in entry[2]:
                    yield f"deb-src {entry[1] or ''}{entry[2]} {entry[3]} main\n"


def plain(suite):
    """The release itself: updates and security would fetch more lists for nothing,
    and change the input from week to week."""
    return "-" not in suite
