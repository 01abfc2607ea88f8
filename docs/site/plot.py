"""Pictures of benchmarks, drawn from their results.json: one for the landing page, and one for each condition."""

from __future__ import annotations

import io
import json
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from docs.site.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

# Conditions whose rates are compared, with their titles.
CONDITIONS = {"small": "100 KiB objects", "late": "100 KiB objects, 30 ms to the first byte"}
COLOURS = {"penstock": "#1f6fb4", "floor": "#8a8a8a"}
OTHERS = "#d98032"


def benchmark() -> str:
    """Return an SVG: objects per second of each library, on a white ground that dark pages show too."""
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text("utf-8"))
    found = {each["name"]: each["rows"] for each in results["conditions"]}
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axis, (name, title) in zip(figure.subplots(1, len(CONDITIONS)), CONDITIONS.items(), strict=True):
        _bars(axis, f"{title}\nobjects/s", found[name], lambda each: each["objects"] / each["wall_s"])
    circumstances = f"{results['date'][:10]}, commit {results['commit']}, two cores shared with the server"
    figure.supxlabel(circumstances, fontsize=8)
    return _svg(figure)


def conditions(folder: str) -> dict[str, str]:
    """Return an SVG for each condition of a folder's results.json, by its name: rates and CPU, with their spread."""
    results = json.loads((ROOT / folder / "results.json").read_text("utf-8"))
    return {each["name"]: _condition(each) for each in results["conditions"]}


def _condition(condition: dict[str, Any]) -> str:
    one = condition["load"]["count"] == 1
    panels = {
        "seconds" if one else "objects/s": lambda each: each["wall_s"] if one else each["objects"] / each["wall_s"],
        "CPU s" if one else "CPU µs/object": lambda each: (
            (each["cpu_s"] - each["compute_s"]) * (1 if one else 1e6 / each["objects"])
        ),
    }
    figure = Figure(figsize=(10, 0.9 + 0.36 * len(condition["rows"])), layout="constrained")
    for axis, (title, value) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        _bars(axis, title, condition["rows"], value)
    figure.suptitle(condition["title"], fontsize=10)
    return _svg(figure)


def _bars(axis: Axes, title: str, rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> None:
    """Draw the median of each row's rounds, with the least and the most, the first row at the top."""
    ordered = rows[::-1]
    rounds = [[value(each) for each in row["rounds"]] for row in ordered]
    middles = [median(each) for each in rounds]
    spread = [[m - min(each) for m, each in zip(middles, rounds, strict=True)]]
    spread.append([max(each) - m for m, each in zip(middles, rounds, strict=True)])
    colours = [COLOURS.get(row["script"].partition("_")[0], OTHERS) for row in ordered]
    bars = axis.barh([row["name"] for row in ordered], middles, xerr=spread, color=colours)
    axis.bar_label(bars, [f"{float(f'{each:.3g}'):,g}" for each in middles], padding=3, fontsize=8)
    axis.set_title(title, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.margins(x=0.2)
    axis.spines[["top", "right"]].set_visible(False)


def _svg(figure: Figure) -> str:
    FigureCanvasSVG(figure)
    picture = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "penstock"}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()
