"""``python -m docs.site.pictures``: draw docs/pictures/*.svg. Each picture has a ground of its own, light or dark."""

from __future__ import annotations

import tempfile
from html import escape
from pathlib import Path

import numpy as np

import penstock as ps
from docs.site.pages import ROOT
from penstock.data.loading.report import COLOURS
from penstock.data.tokens.packing import lay_out

FOLDER = ROOT / "docs" / "pictures"
# Grounds of boxes, and what is written and drawn on them, by scheme.
PALETTES = {
    "light": {
        "page": "#ffffff",
        "plain": "#f1f3f5",
        "data": "#d8ecff",
        "work": "#dcf5e3",
        "state": "#fdf0c4",
        "lost": "#ffe3e0",
        "ink": "#1f2328",
        "soft": "#545d68",
        "line": "#7b8591",
    },
    "dark": {
        "page": "#14171c",
        "plain": "#262b33",
        "data": "#12304f",
        "work": "#123a20",
        "state": "#40340c",
        "lost": "#51201d",
        "ink": "#e6edf3",
        "soft": "#a7b0ba",
        "line": "#7b8591",
    },
}
INKS = ("ink", "soft")


def _style() -> str:
    """Return the rules of both schemes."""

    def rules(scheme: str) -> str:
        return "".join(
            f".{name}{{{'stroke' if name == 'line' else 'fill'}:{colour}}}" for name, colour in PALETTES[scheme].items()
        )

    common = (
        "text{font:12px system-ui,sans-serif}.bold{font-size:13px;font-weight:600}.line{fill:none;stroke-width:1.5}"
    )
    return f"<style>{common}{rules('light')}@media(prefers-color-scheme:dark){{{rules('dark')}}}</style>"


class Picture:
    """An SVG under construction."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self._parts = [f"<title>{escape(title)}</title>", _style()]
        head = 'id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
        self._parts.append(f'<marker {head}><path d="M0 0 8 4 0 8z" class="soft"/></marker>')
        self._parts.append(f'<rect width="{width}" height="{height}" rx="8" class="page"/>')

    def box(self, x: int, y: int, size: tuple[int, int], kind: str, *lines: str) -> None:
        """Draw a box with lines of text in its middle, the first in bold."""
        width, height = size
        self._parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>')
        first = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            style = "ink bold" if number == 0 else "ink"
            self.text(x + width / 2, first + 18 * number, line, style, anchor="middle")

    def text(self, x: float, y: float, text: str, style: str = "soft", anchor: str = "start") -> None:
        """Write a line."""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>')

    def arrow(self, *points: int) -> None:
        """Draw an arrow along points x, y, x, y."""
        pairs = " ".join(f"{x},{y}" for x, y in zip(points[::2], points[1::2], strict=True))
        self._parts.append(f'<polyline points="{pairs}" class="line" marker-end="url(#head)"/>')

    def bar(self, x: float, y: float, size: tuple[float, float], colour: str) -> None:
        """Draw a part of a bar in a colour that both schemes share."""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{size[0]:g}" height="{size[1]:g}" fill="{colour}"/>')

    def __str__(self) -> str:
        """Return the SVG."""
        lines = "\n".join(self._parts)
        return f'<svg xmlns="http://www.w3.org/2000/svg" {self._size} role="img">\n{lines}\n</svg>\n'


def training() -> Picture:
    """Return the way of samples from a bucket to the training loop."""
    drawn = Picture(720, 250, "From the bucket to the training loop")
    drawn.box(20, 90, (130, 70), "data", "bucket", "objects, shards,", "arrays")
    drawn.box(200, 90, (130, 70), "work", "I/O thread", "parallel requests,", "verified, retried")
    drawn.box(380, 90, (130, 70), "work", "decode threads", "or processes:", "transform, collate")
    drawn.box(560, 90, (140, 70), "plain", "training loop", "for batch in loader", "GPU")
    for x in (150, 330, 510):
        drawn.arrow(x, 125, x + 48, 125)
    drawn.text(355, 80, "bytes", anchor="middle")
    drawn.text(535, 80, "batches", anchor="middle")
    drawn.box(200, 12, (130, 48), "plain", "catalog, order", "which sample, when")
    drawn.arrow(265, 60, 265, 88)
    drawn.box(380, 195, (130, 40), "state", "position", "seed, epoch, batch")
    drawn.arrow(630, 160, 630, 215, 512, 215)
    drawn.arrow(380, 215, 85, 215, 85, 162)
    drawn.text(230, 208, "saved with the model: exact resume", anchor="middle")
    return drawn


def checkpoint() -> Picture:
    """Return the way of a state into a bucket and back."""
    drawn = Picture(720, 235, "A checkpoint: saved in parallel parts, committed by its manifest, verified when loaded")
    drawn.text(20, 30, "save", "ink bold")
    drawn.box(20, 45, (140, 60), "plain", "state", "model, optimizer,", "loader, generators")
    drawn.box(210, 45, (130, 60), "work", "digests", "XXH3 of each MiB,", "as it is written")
    drawn.box(390, 45, (130, 60), "work", "parts", "uploaded while", "you write")
    drawn.box(570, 45, (130, 60), "data", "bucket", "1. data", "2. manifest, last")
    for x in (160, 340, 520):
        drawn.arrow(x, 75, x + 48, 75)
    drawn.text(20, 145, "load", "ink bold")
    drawn.box(570, 160, (130, 60), "data", "bucket", "manifest names", "data and digests")
    drawn.box(390, 160, (130, 60), "work", "parallel ranges", "into the tensors'", "own memory")
    drawn.box(210, 160, (130, 60), "work", "verify", "each block before", "it is used")
    drawn.box(20, 160, (140, 60), "plain", "state", "complete,", "or an error")
    for x in (570, 390, 210):
        drawn.arrow(x, 190, x - 48, 190)
    return drawn


def batches(world: int) -> list[list[list[int]]]:
    """Return the numbers of 16 samples in global batches of four: for each step those of each rank."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(16):
            (Path(folder) / f"{number:02}").write_bytes(b"x")
        dataset = ps.MapDataset.from_prefix(f"{folder}/", transform=lambda sample: int(sample.key[-2:]))
        loaders = [
            ps.DataLoader(dataset, 4 // world, shuffle=True, seed=0, collate_fn=list, place=ps.Place(rank, world))
            for rank in range(world)
        ]
        return [list(step) for step in zip(*loaders, strict=True)]


def order() -> Picture:
    """Return an epoch on two ranks that is resumed on four."""
    drawn = Picture(
        720, 215, "An epoch of 16 samples on two ranks, resumed on four: each sample once, the same global batches"
    )
    two, four = batches(2)[:2], batches(4)[2:]
    drawn.text(20, 30, "One permutation of all samples for an epoch, cut into global batches", "ink bold")
    for step, ranks in enumerate([*two, *four]):
        left = 20 + step * 165 + (20 if step >= len(two) else 0)
        drawn.text(left, 62, f"global batch {step}", "soft")
        slot = 0
        for rank, numbers in enumerate(ranks):
            width = 36 * len(numbers) - 4
            kind = "data" if step < len(two) else "work"
            for each in numbers:
                drawn.box(left + 36 * slot, 72, (32, 36), kind, str(each))
                slot += 1
            drawn.text(left + 36 * (slot - len(numbers)) + width / 2, 128, f"r{rank}", "soft", anchor="middle")
    drawn.box(222, 155, (246, 44), "state", "state_dict()", "epoch 0, after batch 1; any rank's")
    drawn.arrow(345, 136, 345, 153)
    drawn.text(110, 182, "two ranks (r0, r1), killed", anchor="middle")
    drawn.text(590, 182, "resumed by four ranks", anchor="middle")
    return drawn


def commit() -> Picture:
    """Return what a save writes, in order, and what a crash leaves."""
    drawn = Picture(720, 265, "A commit: data below a new id first, then the manifest with one conditional request")
    steps = [
        ("plain", "HEAD", "manifest of", "step 4?"),
        ("data", "PUT parts", "3f0c…/", "state.pt"),
        ("plain", "HEAD", "still the same", "manifest?"),
        ("state", "PUT", "checkpoint.json", "If-None-Match: *"),
        ("plain", "HEAD", "our write id?", "size, ETag"),
        ("plain", "DELETE", "superseded", "steps"),
    ]
    for number, (kind, *lines) in enumerate(steps):
        drawn.box(14 + 118 * number, 45, (102, 70), kind, *lines)
        if number:
            drawn.arrow(118 * number - 1, 80, 118 * number + 12, 80)
    drawn.text(14, 30, "Saving step 4", "ink bold")
    drawn.arrow(420, 200, 420, 122)
    drawn.text(430, 140, "the commit")
    drawn.box(14, 160, (396, 40), "lost", "killed here: restore() returns the older step")
    drawn.box(430, 160, (276, 40), "work", "killed here: it returns step 4")
    drawn.text(
        14,
        228,
        "At every moment a reader finds one complete checkpoint. What a killed save leaves is invisible to readers,",
    )
    drawn.text(14, 246, "and clean() deletes it.")
    return drawn


# Seconds of a loop, as loader.report() divides them: an example.
EXAMPLE = {"computing": 52, "first byte": 24, "bandwidth": 11, "decode": 9, "collate": 4}


def report() -> Picture:
    """Return a loader's report as a bar."""
    drawn = Picture(720, 190, "A report of a loader: computing, and waiting by cause")
    drawn.text(20, 30, "loader.report(): where 100 s of a loop went (example)", "ink bold")
    x = 20.0
    for number, (cause, seconds) in enumerate(EXAMPLE.items()):
        width = 6.8 * seconds
        drawn.bar(x, 50, (width - 1, 40), COLOURS[cause])
        drawn.bar(20 + 140 * number, 112, (12, 12), COLOURS[cause])
        drawn.text(38 + 140 * number, 123, f"{cause}: {seconds} s", "ink")
        x += width
    drawn.text(20, 158, "Cause: first byte. Advice: raise TransportOptions(connections=…).")
    drawn.text(20, 176, "The loop waited 48 % of the time, half of that for the store to begin its answers.")
    return drawn


# Tokens of documents in the order of a file, and the length of the rows that they are packed into.
DOCUMENTS, ROW = (30, 70, 230, 18, 46, 12, 54, 28, 9), 100


def packing() -> Picture:
    """Return documents of a file as rows of neighbours, and as rows by best-fit."""
    drawn = Picture(720, 330, "Documents in rows of 100 tokens: neighbours are cut; best-fit cuts what fits no row")
    lengths = np.array(DOCUMENTS)
    drawn.text(20, 30, "Documents of a file, by their tokens; rows of 100", "ink bold")
    left = 20
    for number, size in enumerate(DOCUMENTS):
        width = size * 680 // sum(DOCUMENTS)
        drawn.box(left, 42, (width - 2, 28), "data", chr(65 + number))
        left += width
    for at, (pack, title) in enumerate((("cut", 'pack="cut"'), ("best-fit", 'pack="best-fit"'))):
        layout = lay_out(lengths, ROW, pack, 0)
        drawn.text(20 + 350 * at, 108, title, "ink bold")
        for row in range(int(layout.rows[-1]) + 1):
            drawn.box(20 + 350 * at, 120 + 34 * row, (330, 28), "plain")
        for document, first, size, row, place in zip(*(each.tolist() for each in layout), strict=True):
            cut = size < lengths[document]
            part = f"{chr(65 + document)} from {first}" if cut and size > ROW // 5 else chr(65 + document)
            box = 20 + 350 * at + 33 * place // 10, 120 + 34 * row
            drawn.box(*box, (33 * size // 10 - 2, 28), "lost" if cut else "data", part)
    drawn.text(20, 320, "Red: pieces of a document that is cut. Grey: padding. Each piece is a sequence for attention.")
    return drawn


def llm() -> Picture:
    """Return the way from text to a trained model, with its two kills."""
    drawn = Picture(720, 270, "From text to a language model, killed twice and resumed on other numbers of ranks")
    steps = (("data", "text", "JSON lines"), ("work", "ps.map", "tokens"), ("work", "rows", "packed, 256"))
    steps += (("plain", "ps.Mix", "3 sources"), ("state", "checkpoints", "every 10 steps"))
    for number, (kind, *lines) in enumerate(steps):
        drawn.box(20 + 140 * number, 20, (120, 54), kind, *lines)
        if number:
            drawn.arrow(140 * number, 47, 18 + 140 * number, 47)
    drawn.text(20, 112, "undisturbed: 2 ranks", "ink bold")
    drawn.box(20, 122, (680, 26), "work", "steps 1 to 120")
    drawn.text(20, 178, "killed after steps 45 and 85, resumed from the checkpoints of steps 40 and 80", "ink bold")
    for part, name in enumerate(("2 ranks", "3 ranks", "1 rank")):
        drawn.box(20 + 680 * part // 3, 188, (680 // 3 - 2, 26), "work", name)
        if part:
            drawn.box(20 + 680 * part // 3, 218, (26, 22), "lost", "5")
    drawn.text(20, 258, "Red: steps that were lost, and are done again with the same rows.")
    return drawn


def video() -> Picture:
    """Return a file with its index, the range of a clip, and a block of neighbouring clips."""
    drawn = Picture(720, 300, "Clips of an MP4 file: the index in one request, each clip by its range, blocks of clips")
    drawn.text(20, 30, "An MP4 file: its index, and frames with a key frame every 4", "ink bold")
    drawn.box(20, 42, (84, 34), "state", "moov")
    for frame in range(20):
        drawn.box(108 + 30 * frame, 42, (27, 34), "plain" if frame % 4 else "data", "key" if frame % 4 == 0 else "")
    drawn.arrow(62, 78, 62, 118)
    drawn.box(20, 120, (150, 44), "state", "1 request a file", "frames to bytes")
    drawn.text(198, 134, "shuffle=True: a clip is one range, from a key frame", "ink bold")
    for number, first in enumerate((5, 14)):
        begin = first // 4 * 4
        drawn.box(198 + 200 * number, 144, (30 * (first - begin) + 90, 26), "lost")
        drawn.box(198 + 200 * number + 30 * (first - begin), 144, (88, 26), "work", f"clip {first}")
    drawn.text(198, 208, "ps.order.Lanes(): a block of neighbouring clips is one range", "ink bold")
    drawn.box(198, 218, (482, 34), "data")
    for number in range(5):
        drawn.box(201 + 96 * number, 222, (92, 26), "work", f"clip {3 * number}")
    drawn.text(20, 284, "Red: bytes that are read for the clip, decoded and thrown away.")
    return drawn


PICTURES = {each.__name__: each for each in (training, checkpoint, order, commit, report, packing, llm, video)}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(str(draw()), "utf-8")
