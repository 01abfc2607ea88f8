"""Values in notebooks and on pages: tables in HTML, pictures of samples, and axes of matplotlib.

Names of objects, labels and columns are chosen by other people: all text is escaped, and secrets in it are hidden.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING, Final

from penstock.errors import Unusable, discreet, printable, public_url, require_extras

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes

_KIB: Final = 1024
_LONGEST: Final = 300  # characters of a text
# By the first bytes. SVG is left out: it can hold scripts.
_PICTURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
_PICTURE_BYTES: Final = 512 << 10  # a notebook keeps what it shows
# Notebooks align cells to the right unless a cell has a style of its own.
_STYLES: Final = {
    "l": "padding:0 1em .15em 0;text-align:left;overflow-wrap:anywhere",
    "r": "padding:0 1em .15em 0;text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums",
}
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 760px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
"""


def safe(value: object) -> str:
    """Return a value as text for HTML: escaped, without control characters and secrets, and not longer than a line."""
    text = printable(discreet(public_url(str(value))))
    return escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def table(rows: Iterable[Sequence[object]], head: Sequence[object] = (), *, align: str = "") -> str:
    """Return a table in HTML: values as escaped text, integers with separators of thousands.

    ``align`` has a letter for each column, ``l`` or ``r``; columns without a letter are aligned to the left.
    """
    lines = [("th", head)] if head else []
    lines += [("td", row) for row in rows]
    styles = [*map(_STYLES.__getitem__, align)]
    return f"<table>{''.join(_row(tag, row, styles) for tag, row in lines)}</table>"


def _row(tag: str, row: Sequence[object], styles: Sequence[str]) -> str:
    cells = [f"{each:,}" if type(each) is int else safe(each) for each in row]
    given = [*styles, *[_STYLES["l"]] * (len(cells) - len(styles))]
    shown = (f'<{tag} style="{style}">{cell}</{tag}>' for cell, style in zip(cells, given, strict=False))
    return f"<tr>{''.join(shown)}</tr>"


def panel(title: str, *parts: str) -> str:
    """Return a value for a notebook: its title, and parts already in HTML."""
    apart = "".join(f'<div style="margin-bottom:.6em">{part}</div>' for part in parts)
    return f"<div><p><strong>{safe(title)}</strong></p>{apart}</div>"


def html_page(title: str, body: str, style: str = "") -> str:
    """Return a page that loads nothing from elsewhere; ``body`` is HTML already, and ``style`` CSS for it."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += f"<title>{safe(title)}</title><style>{_STYLE}{style}</style>"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body><h1>{safe(title)}</h1>{body}</body></html>\n'


def picture(data: bytes | memoryview) -> str:
    """Return an image element that holds the data, if these are a small image of a common kind; else ""."""
    start = bytes(data[:8])
    kind = next((kind for mark, kind in _PICTURES.items() if start.startswith(mark)), "")
    if not kind or len(data) > _PICTURE_BYTES:
        return ""
    style = "max-width:256px;max-height:256px;min-width:64px;image-rendering:pixelated"
    return f'<img alt="" style="{style}" src="data:{kind};base64,{b64encode(data).decode()}">'


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 object``, ``1,000 objects``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _KIB:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= _KIB
    return f"{value:,.1f} TiB"


def axes(ax: Axes | None, inches: tuple[float, float]) -> Axes:
    """Return ``ax``, or the axes of a new figure of ``inches``; ``MissingExtra`` if matplotlib is not installed."""
    with require_extras("plot() needs matplotlib", matplotlib="plot"):
        import matplotlib.pyplot as plt
        from matplotlib.axes import Axes
    if ax is None:
        _, ax = plt.subplots(figsize=inches, layout="constrained")
    if not isinstance(ax, Axes):
        raise Unusable(f"ax must be Axes of matplotlib, got {ax!r}")
    return ax
