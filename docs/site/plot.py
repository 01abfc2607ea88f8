"""Picture of the benchmark for the landing page, drawn from benchmarks/results.json."""

from __future__ import annotations

import io
import json
from statistics import median

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from docs.site.pages import ROOT

# Conditions whose rates are compared, with their titles.
CONDITIONS = {"small": "100 KiB objects", "late": "100 KiB objects, 30 ms to the first byte"}
COLOURS = {"penstock": "#1f6fb4", "floor": "#8a8a8a"}
OTHERS = "#d98032"


def benchmark() -> str:
    """Return an SVG: objects per second of each library, on a white ground that dark pages show too."""
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text("utf-8"))
    found = {each["name"]: each["rows"] for each in results["conditions"]}
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    FigureCanvasSVG(figure)
    for axis, (name, title) in zip(figure.subplots(1, len(CONDITIONS)), CONDITIONS.items(), strict=True):
        rows = found[name][::-1]
        rates = [median(each["objects"] / each["wall_s"] for each in row["rounds"]) for row in rows]
        colours = [COLOURS.get(row["script"].partition("_")[0], OTHERS) for row in rows]
        bars = axis.barh([row["name"] for row in rows], rates, color=colours)
        axis.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=3, fontsize=8)
        axis.set_title(f"{title}: objects/s", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.margins(x=0.2)
        axis.spines[["top", "right"]].set_visible(False)
    circumstances = f"{results['date'][:10]}, commit {results['commit']}, two cores shared with the server"
    figure.supxlabel(circumstances, fontsize=8)
    picture = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "penstock"}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()
