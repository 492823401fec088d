"""./matrix: the command line."""

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import programs
import report
import runner
from program import Skip

STATUSES = """\
exit status:
  0   every program that ran gave the same results
  1   a program differed, hung, failed, or could not be prepared
  2   the command line is wrong
  71  this machine or checkout cannot run the matrix
  78  zfolio doctor: this machine cannot run managed programs
  130 interrupted
"""
USAGE, ENVIRONMENT, INTERRUPTED = 2, 71, 130
WAYS = ["auto", "message", "in-thread", "guard", "protect"]
ROOT = Path(__file__).resolve().parent.parent.parent


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"matrix: {message} (--help tells more)", file=sys.stderr)
        sys.exit(USAGE)


def arguments():
    parser = Parser(
        prog="./matrix", epilog=STATUSES, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs real programs bare and under zfolio, and compares what they do.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs to run (default: all)")
    parser.add_argument("--list", action="store_true", help="list the programs and end")
    parser.add_argument("--short", action="store_true", help="a few programs, small inputs: for CI")
    parser.add_argument("--size", choices=["small", "full"], help="size of the inputs (default: full)")
    parser.add_argument("--share", type=int, default=40, metavar="PERCENT",
                        help="high, in percent of the natural peak (default: 40)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N",
                        help="pairs of runs; times are medians (default: 1)")
    parser.add_argument("--faults", default="auto", metavar="WAY[,WAY]",
                        help="how faults are served, as for `zfolio run`; a row for each (default: auto)")
    parser.add_argument("--limit", type=float, metavar="SECONDS",
                        help="a run that takes longer hangs (default: 300, or 20 times the bare run)")
    parser.add_argument("--zfolio", metavar="FILE",
                        help="the command to test (default: this checkout's release build)")
    parser.add_argument("--out", metavar="DIR", help="where the results go (default: target/matrix)")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON here too")
    options = parser.parse_args()
    if not 1 <= options.share <= 100:
        parser.error("--share is a percentage, 1 to 100")
    options.ways = options.faults.split(",")
    for way in options.ways:
        if way not in WAYS:
            parser.error(f"no way of serving faults {way!r}; there are {', '.join(WAYS)}")
    if options.repeat < 1:
        parser.error("--repeat is 1 or more")
    if options.short and options.names:
        parser.error("--short chooses the programs itself; use --size small with names")
    known = {program.name: program for program in programs.ALL}
    for name in options.names:
        if name not in known:
            parser.error(f"no program {name!r}; ./matrix --list names them")
    if options.names:
        options.chosen = [known[name] for name in options.names]
    else:
        options.chosen = [p for p in programs.ALL if p.short or not options.short]
    options.size = options.size or ("small" if options.short else "full")
    return options


def main():
    options = arguments()
    if options.list:
        for program in programs.ALL:
            print(f"{program.name:14} {'short' if program.short else '     '} {program.about}")
        return 0
    # A termination must end the programs too, as an interrupt does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise Skip(f"zfolio runs on Linux on x86-64, and this is {platform.system()} {platform.machine()}")
    out = Path(options.out) if options.out else ROOT / "target" / "matrix"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if options.json:
            open(options.json, "a").close()
    except OSError as why:
        raise Skip(f"cannot write results: {why}") from None
    zfolio, library = runner.find_zfolio(options.zfolio, ROOT)
    if status := runner.doctor(zfolio, library):
        print("matrix: zfolio cannot manage programs here; see `zfolio doctor`", file=sys.stderr)
        return status
    scratch = Path(tempfile.mkdtemp(prefix="zfolio-matrix-"))
    scratch.chmod(0o755)
    try:
        zfolio, library = runner.borrow(zfolio, library, scratch)
        rows = run_all(
            options, runner.Runner(zfolio, library, scratch, options.size, options.share, options.limit,
                                   options.ways), out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    good = all(row["good"] for row in rows)
    return 0 if good else 1


def run_all(options, runs, out):
    rows, begin = [], time.monotonic()
    head = {
        "kernel": platform.release(), "cpus": os.cpu_count(), "size": options.size,
        "share": options.share, "repeat": options.repeat, "load_at_start": os.getloadavg()[0],
    }
    for index, program in enumerate(options.chosen, 1):
        runner.say(f"[{index}/{len(options.chosen)}] {program.name}: {program.about}")
        rows += runs.rows(program, options.repeat)
        head["seconds"] = round(time.monotonic() - begin, 1)
        # After each, so that an interrupted matrix is not lost.
        write(rows, head, out, options)
    print(report.text(rows), end="")
    skipped = [row for row in rows if row["result"].startswith("skipped")]
    runner.say(f"matrix: {len(rows)} rows, {len(skipped)} skipped, {head['seconds']:.0f} s; "
               f"table, JSON and plot in {out}")
    for row in skipped:
        runner.say(f"matrix: {row['program']} ({row['faults']}) was {row['result']}")
    return rows


def write(rows, head, out, options):
    title = f"zfolio at {options.share} % of the natural peak, {options.size} inputs"
    (out / "matrix.txt").write_text(report.text(rows))
    (out / "matrix.md").write_text(report.markdown(rows))
    (out / "matrix.svg").write_text(report.svg(rows, title))
    data = report.to_json(rows, head)
    for path in [out / "matrix.json", *([Path(options.json)] if options.json else [])]:
        path.write_text(data)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skip as why:
        print(f"matrix: {why}", file=sys.stderr)
        sys.exit(ENVIRONMENT)
    except KeyboardInterrupt:
        print("matrix: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
