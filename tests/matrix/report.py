"""The table, as text and Markdown; the JSON; the plot, drawn by hand as SVG."""

import json
from xml.sax.saxutils import escape

from program import MIB

COLUMNS = [
    "program", "faults", "peak bare", "high", "peak limited", "time bare", "time limited",
    "ratio", "out MiB", "in MiB", "managed", "result",
]
PAGE = 4096


def cells(row):
    def size(key, unit=MIB):
        return "-" if row.get(key) is None else f"{row[key] / unit:.0f}"

    def seconds(key):
        return "-" if row.get(key) is None else f"{row[key]:.1f}"

    ratio, managed = "-", "-"
    if row.get("time_bare") and row.get("time_limited"):
        ratio = f"{row['time_limited'] / row['time_bare']:.1f}"
    if row.get("managed") is not None:
        managed = f"{row['managed']:.0f}/{row['processes']:.0f}"
    return [
        row["program"], row["faults"], size("peak_bare"), size("high"), size("peak_limited"),
        seconds("time_bare"), seconds("time_limited"), ratio,
        size("pages_out", MIB // PAGE), size("pages_in", MIB // PAGE), managed, row["result"],
    ]


def notes(rows):
    return [f"{row['program']} ({row['faults']}): {note}" for row in rows for note in row["notes"]]


def text(rows):
    lines = [COLUMNS, *map(cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    last = len(COLUMNS) - 1
    out = []
    for line in lines:
        parts = [
            word if i == last else word.ljust(widths[i]) if i < 2 else word.rjust(widths[i])
            for i, word in enumerate(line)
        ]
        out.append("  ".join(parts).rstrip())
    return "\n".join([*out, *(["", *notes(rows)] if notes(rows) else [])]) + "\n"


def markdown(rows):
    lines = [COLUMNS, ["---"] * 2 + ["---:"] * (len(COLUMNS) - 3) + ["---"], *map(cells, rows)]
    out = ["| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines]
    return "\n".join([*out, "", *[f"- {note}" for note in notes(rows)]]) + "\n"


def to_json(rows, head):
    return json.dumps({**head, "rows": rows}, indent=1, default=str) + "\n"


def svg(rows, title):
    """Two bars for each program (bare, limited) with a mark at `high`, and the ratio
    of times at the right. Widths are shares of each program's own bare peak."""
    rows = [row for row in rows if row.get("peak_bare") and row.get("peak_limited")]
    left, width, step = 210, 520, 38
    height = 60 + step * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 230}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
        f'<text x="10" y="38" fill="#555">peak resident of the largest process: bare (grey), '
        'under zfolio (blue), high (red line)</text>',
    ]
    for index, row in enumerate(rows):
        top = 50 + step * index
        scale = width / max(row["peak_bare"], row["peak_limited"])
        bare, limited, high = (row[key] * scale for key in ("peak_bare", "peak_limited", "high"))
        ratio = row["time_limited"] / row["time_bare"] if row["time_bare"] else 0
        out += [
            f'<text x="{left - 8}" y="{top + 19}" text-anchor="end">{escape(row["program"])} {escape(row["faults"])}</text>',
            f'<rect x="{left}" y="{top}" width="{bare:.1f}" height="13" fill="#bbb"/>',
            f'<rect x="{left}" y="{top + 14}" width="{limited:.1f}" height="13" fill="#36c"/>',
            f'<line x1="{left + high:.1f}" x2="{left + high:.1f}" y1="{top - 2}" y2="{top + 29}" '
            'stroke="#c22" stroke-width="2"/>',
            f'<text x="{left + width + 10}" y="{top + 11}" fill="#555">'
            f'{row["peak_bare"] / MIB:.0f} to {row["peak_limited"] / MIB:.0f} MiB</text>',
            f'<text x="{left + width + 10}" y="{top + 26}" fill="{"#000" if row["good"] else "#c22"}">'
            f'time x{ratio:.1f}, {escape(row["result"][:24])}</text>',
        ]
    return "\n".join([*out, "</svg>"]) + "\n"
