"""Values in notebooks and plots: what an object's name or a label holds cannot become markup, and no secret shows."""

import re
import subprocess
import sys
import uuid
from html.parser import HTMLParser

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import penstock as ps
from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.rows import Entry
from penstock.data.datasets.batched import SourceShare
from penstock.data.loading.group import GroupReport, RankReport
from penstock.data.reading.sample import FieldSample, Sample
from penstock.data.zarr.statistics.record import ArrayStatistics, Moments, ZarrStatistics
from penstock.display import panel, picture, safe, table
from penstock.errors import Unusable
from penstock.values import Span
from tests.data.loading.plants import changed
from tests.data.loading.test_report import REPORT

BAD = "<script>alert(1)</script>\"'&\x1b[2J\u202e"
SECRET = "https://bucket.s3.amazonaws.com/x?X-Amz-Signature=deadbeefdeadbeef"
PNG = bytes.fromhex("89504e470d0a1a0a") + bytes(60)


@pytest.fixture(autouse=True)
def _no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


class Markup(HTMLParser):
    """The elements of a text and the cells of its tables; raises where an element is not closed."""

    def __init__(self, text):
        super().__init__()
        self.names, self.cells, self._open = set(), [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("img", "rect"):
            self._open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self._open and self._open[-1] in ("td", "th"):
            self.cells[-1] += data

    def handle_endtag(self, tag):
        if tag not in ("img", "rect"):
            assert self._open.pop() == tag


def _catalog():
    entries = [Entry(f"a/{BAD}/{at}", 5 << 10, None, "x") for at in range(9)]
    catalog = Catalog.build(f"s3://{BAD}/", "a/", entries).with_labels([BAD, "b", "c"] * 3)
    return catalog.with_columns(**{BAD: [*range(9)]})


def _statistics():
    ones = np.ones(())
    moments = Moments(ones.astype(np.int64), ones.astype(np.int64), ones, ones, ones, ones)
    return ZarrStatistics({BAD: ArrayStatistics((), moments)}, {}, "", (0, 2), (1, 4))


def _fields():
    fields = {BAD: memoryview(PNG), "txt": BAD}
    return FieldSample("s3://b/", Span("s.tar", 0, 9, "e"), ("0001", fields), columns={BAD: BAD})


HOSTILE = {
    "catalog": _catalog,
    "sample": lambda: Sample(f"s3://b/{BAD}", Span(BAD, 0, 68, BAD), PNG, BAD, columns={BAD: BAD}, repeat=True),
    "fields": _fields,
    "report": lambda: changed(REPORT, recommendation=BAD, sources=(SourceShare(BAD, 0.5, 1, 0.1),)),
    "statistics": _statistics,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_names_stay_text_in_a_notebook(kind):
    shown = HOSTILE[kind]()._repr_html_()
    found = Markup(shown)
    assert found.names <= {"div", "p", "strong", "b", "table", "tr", "td", "th", "img"}
    assert "alert(1)" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_a_catalog_shows_its_sums_and_first_entries():
    cells = Markup(_catalog()._repr_html_()).cells
    assert cells[:2] == ["bytes", "45.0 KiB"]
    assert cells[2] == "classes"
    assert cells[3].startswith("3: ")
    rows = [cells[at : at + 3] for at in range(cells.index("label") + 1, len(cells), 3)]
    assert [row[1:] for row in rows[1:3]] == [["5.0 KiB", "b"], ["5.0 KiB", "c"]]
    assert len(rows) == 5, "the first entries, not all of them"


def test_a_catalog_without_sizes_labels_or_entries_has_a_form():
    assert "unknown" in Catalog.build("s3://bucket/", "a/", [Entry("a/x", -1)])._repr_html_()
    assert Markup(Catalog.build("s3://bucket/", "a/", [])._repr_html_()).cells == ["bytes", "0 B"]


def test_samples_show_small_pictures_and_nothing_else_as_an_image():
    assert picture(PNG).startswith('<img alt="" style="')
    assert picture(memoryview(PNG)) == picture(PNG)
    assert picture(b"<svg onload='alert(1)'>") == picture(b"") == picture(PNG + bytes(1 << 20)) == ""
    assert _fields()._repr_html_().count("<img") == 1


def test_datasets_show_their_contents():
    url = f"memory://display-{uuid.uuid4().hex}/"
    for at in range(3):
        with ps.open(f"{url}{at}/x", "wb") as file:
            file.write(b"x")
    dataset = ps.MapDataset.from_prefix(url, labels="folder")
    assert dataset._repr_html_() == dataset.catalog._repr_html_()
    mix = ps.Mix({BAD: dataset, "b": ps.MapDataset.from_prefix(url)}, weights={BAD: 3, "b": 1})
    assert Markup(mix._repr_html_()).cells[2:] == [mix_name(BAD), "75.0%", "b", "25.0%"]
    assert ps.concat(dataset, dataset)._repr_html_() is None


def mix_name(name):
    return repr(name)[1:-1].replace("\\'", "'") if "\x1b" in name else name


def test_secrets_and_long_texts_are_cut():
    assert "deadbeef" not in safe(SECRET) + table([(SECRET,)]) + panel(SECRET)
    assert len(safe("x" * 10_000)) == 300


def test_tables_align_numbers_and_group_digits():
    shown = table([("a", 1234567, "x", True)], ("k", "n"), align="lr")
    assert Markup(shown).cells == ["k", "n", "a", "1,234,567", "x", "True"]
    assert re.findall(r"text-align:(\w+)", shown) == ["left", "right", "left", "right", "left", "left"]


def test_a_report_draws_computing_and_each_cause():
    ax = REPORT.plot()
    ax.figure.canvas.draw()
    widths = [bar.get_width() for bar in ax.patches]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert dict(zip(names, widths, strict=True)) == {"computing": 10.0} | REPORT.causes
    assert "waited 90%" in ax.get_title()
    assert "10.0 s, 8%" in {text.get_text() for text in ax.texts}


def test_plots_go_into_the_axes_that_are_given():
    _, (left, right) = plt.subplots(1, 2)
    assert REPORT.plot(ax=right) is right
    assert len(right.patches) == 13
    assert not left.patches
    assert len(plt.get_fignums()) == 1
    with pytest.raises(Unusable, match="ax must be Axes of matplotlib, got 'x'"):
        REPORT.plot(ax="x")


def test_a_mixture_draws_wanted_and_delivered_shares():
    sources = (SourceShare("$\\x{b}$", 0.25, 30, 0.0), SourceShare("b", 0.75, 90, 0.0))
    ax = changed(REPORT, sources=sources).plot_sources()
    ax.figure.canvas.draw()
    assert [bar.get_height() for bar in ax.patches] == [25.0, 75.0, 25.0, 75.0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["$\\x{b}$", "b"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["wanted", "delivered"]
    with pytest.raises(Unusable, match="this report has no sources"):
        REPORT.plot_sources()


def test_ranks_are_drawn_with_their_waits():
    ranks = [RankReport(at, 2, waited, 10.0 - waited, "decode", "", 1, 1) for at, waited in enumerate((1.0, 4.0))]
    ax = GroupReport((*ranks,)).plot()
    ax.figure.canvas.draw()
    assert [bar.get_width() for bar in ax.patches] == [9.0, 6.0, 1.0, 4.0]
    assert ax.get_title() == "Rank 1 waited longest: 4.0 s"
    assert "40% decode" in {text.get_text() for text in ax.texts}


def test_without_matplotlib_the_error_names_the_extra():
    program = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from penstock.display import axes
try:
    axes(None, (1.0, 1.0))
except ImportError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told == "plot() needs matplotlib: pip install 'penstock[plot]'\n"
