#!/usr/bin/env bash
# What a program takes more than is counted (`inline_ns`), in pairs of runs at once, each on one processor of two, in turn
# on either:
#
#   PAIRS=6 ZFOLIO=path/to/zfolio tests/bench/more_than_counted.sh '--slowdown 5%' sqlite3 :memory: "$(cat statements.sql)"
set -euo pipefail
options=$1
shift
here=$(mktemp -d)
trap 'rm -r "$here"' EXIT
cd "$here"
for pair in $(seq "${PAIRS:-6}"); do
	/usr/bin/time -o bare.time -f '%U %S' taskset -c $((pair % 2)) "$@" >bare.out 2>/dev/null &
	# shellcheck disable=SC2086 # options are words
	/usr/bin/time -o run.time -f '%U %S' taskset -c $(((pair + 1) % 2)) "${ZFOLIO:-zfolio}" run --quiet --faults in-thread \
		$options --stats stats.json -- /usr/bin/time -o program.time -f '%U %S' "$@" >program.out 2>/dev/null
	wait $!
	cmp -s bare.out program.out || echo 'other results'
	python3 -c '
import json
bare, run, program = (sum(map(float, open(name + ".time").read().split())) for name in ("bare", "run", "program"))
counters = json.load(open("stats.json"))["total"]["counters"]
inline = counters["inline_ns"] / 1e9
ratio = f"{(program - bare) / inline:.2f} times" if inline else "nothing counted"
moved = "{pages_in} pages in, {pages_out} out".format(**counters)
print(f"bare {bare:.2f} s, the program {program - bare:+.2f} s, zfolio run {run - program:.2f} s, counted {inline:.2f} s: {ratio}; {moved}")'
done
