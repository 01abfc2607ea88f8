"""``plots.py results.json FOLDER``: one picture of all conditions, drawn where matplotlib is installed."""

import json
import sys
from pathlib import Path
from statistics import median

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "penstock"  # the same picture for the same numbers
import matplotlib.pyplot as plt  # noqa: E402  after the backend is chosen

COLOURS = {"penstock": "#1f6fb4", "floor": "#9a9a9a"}
OTHERS = "#d98032"


def draw(condition, folder):
    """Bars of rate and CPU for one condition, with the spread over rounds."""
    rows = condition["rows"][::-1]
    large = condition["load"]["count"] == 1
    panels = {
        "seconds" if large else "objects/s": lambda each: each["wall_s"] if large else each["objects"] / each["wall_s"],
        "CPU s" if large else "CPU µs/object": lambda each: (
            (each["cpu_s"] - each["compute_s"]) * (1 if large else 1e6 / each["objects"])
        ),
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(10, 0.9 + 0.36 * len(rows)), sharey=True, layout="constrained")
    for axis, (title, value) in zip(axes, panels.items(), strict=True):
        for place, row in enumerate(rows):
            values = [value(each) for each in row["rounds"]]
            middle = median(values)
            spread = [[middle - min(values)], [max(values) - middle]]
            axis.barh(place, middle, xerr=spread, color=COLOURS.get(row["script"].partition("_")[0], OTHERS))
            axis.annotate(f" {middle:,.3g}" if middle < 100 else f" {middle:,.0f}", (max(values), place), va="center")
        axis.set_title(title, fontsize=10)
        axis.margins(x=0.18)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(rows)), [row["name"] for row in rows])
    figure.suptitle(condition["title"], fontsize=10)
    figure.savefig(folder / f"{condition['name']}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    for each in json.loads(Path(sys.argv[1]).read_text())["conditions"]:
        draw(each, Path(sys.argv[2]))
