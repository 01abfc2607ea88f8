"""The documentation site: each page has a place, links lead to places, and the checks of ``make docs`` find faults."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from itertools import pairwise

import pytest

import penstock
from docs.site import browser, links, pages, pictures, reference

SOURCES = ("README.md", "docs/comparison.md")
WHERE = {"docs/train.md": "train.md", "design/0047.md": "design/0047.md", "examples/ddp.py": "examples/ddp.py.md"}


def test_every_page_of_the_manual_is_in_one_group_of_the_sidebar():
    assert pages.unlisted() == []


def test_page_in_no_group_or_in_two_is_refused(monkeypatch):
    groups = pages.navigation()
    monkeypatch.setattr(pages, "navigation", lambda: [*groups[1:], groups[1], pages.Group("X", ["docs/none.md"])])
    odd = pages.unlisted()
    assert "docs/train.md is in no group of docs/site/navigation.toml" in odd
    assert "docs/none.md in docs/site/navigation.toml is no page" in odd
    assert "docs/recipes.md is listed twice" in odd


@pytest.mark.parametrize("page", [page for group in pages.navigation() for page in group.pages if page.endswith(".md")])
def test_no_heading_skips_a_level(page):
    text = pages.FENCED.sub("", (pages.ROOT / page).read_text("utf-8"))
    levels = [len(each) for each in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert levels[0] == 1, "the first heading is the title"
    assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_links_out_of_the_manual_lead_to_places_on_the_site():
    text = "[a](../design/0047.md#b) [c](../examples/ddp.py) [d](#e) [f](https://g/h.md)\n```\n[i](../nowhere)\n```\n"
    led = pages.relinked(text, "docs/train.md", WHERE)
    assert led == text.replace("../design/0047.md", "design/0047.md").replace(
        "../examples/ddp.py", "examples/ddp.py.md"
    )
    assert pages.relinked("[a](../docs/train.md)", "design/0047.md", WHERE) == "[a](../train.md)"
    where = dict(WHERE)
    assert pages.relinked("[a](../LICENSE)", "docs/train.md", where) == "[a](LICENSE.md)"
    assert where["LICENSE"] == "LICENSE.md"
    with pytest.raises(LookupError, match=r"docs/train.md: the link to \.\./src/x\.py leads to no text file"):
        pages.relinked("[a](../src/x.py)", "docs/train.md", where)


def test_every_link_of_every_page_leads_to_a_place_on_the_site():
    found = pages.texts()
    assert {"index.md", "train.md", "design/README.md", "examples/ddp.py.md"} <= found.keys()


def test_every_public_name_of_the_top_namespace_has_a_section(monkeypatch):
    assert all(map(reference.section, penstock._HOMES))
    monkeypatch.setitem(penstock._HOMES, "sync", "elsewhere.sync")
    with pytest.raises(LookupError, match=r"ps\.sync comes from elsewhere\.sync"):
        reference.section("sync")


def test_summary_is_the_first_sentence_without_code_and_links():
    text = "<!-- x: y -->\n# A page\n\n```python\nx = 1  # no\n```\n\nA [link](b.md) and\n`ps.c`. More.\n\nMore:\n"
    assert (pages.title(text), pages.summary(text)) == ("A page", "A link and `ps.c`.")


def test_notebook_becomes_markdown_beside_its_page():
    text = '{"cells": [{"cell_type": "markdown", "source": ["# A\\n", "b"]}, {"cell_type": "code", "source": ["c"]}]}'
    assert pages.readable("n/a.ipynb", text) == ("n/a.md", "# A\nb\n\n```python\nc\n```\n")


def test_links_to_absent_files_and_anchors_are_found(tmp_path, capsys):
    html = tmp_path / "1.0"
    (html / "sub").mkdir(parents=True)
    (html / "a.html").write_text('<h1 id="x"><a href="#x"></a><a href="#y"></a><a href="https://e/"></a>', "utf-8")
    (html / "sub" / "b.html").write_text(
        '<a href="../a.html#x"></a><a href="../a.html#z"></a><img src="c.png">', "utf-8"
    )
    (html / "sub" / "b.md").write_text("[a](../a.html) [b](b.md) [c](c.svg) [d](https://e/)", "utf-8")
    found = [each.partition(": the link to ")[2].partition(" ")[0] for each in links.faults(html)]
    assert found == ["#y", "../a.html#z", "c.png", "c.svg"]
    assert (tmp_path / "external-links.txt").read_text("utf-8") == "https://e/\n"
    assert "1 external links" in capsys.readouterr().out


def test_public_name_without_an_entry_is_found(tmp_path):
    entries = b"penstock.open py:function 1 reference/penstock.html#$ -\nhome.Mine.read py:method 1 $ -\n"
    (tmp_path / "objects.inv").write_bytes(b"# 1\n# 2\n# 3\n# 4\n" + zlib.compress(entries))
    record = "class penstock.Mix(Base)\npenstock.open(\n    url: str,\n)\npenstock.Path.read()\npenstock.Path.size\n"
    found = links.absent(tmp_path, record, aliases={"penstock.Path": "home.Mine"})
    assert found == ["penstock.Mix has no entry in the reference"]


def test_browser_finds_overflow_faint_text_and_errors(tmp_path):
    if not any(map(shutil.which, browser.NAMES)) and os.environ.get("PENSTOCK_REQUIRE_SERVERS") != "1":
        pytest.skip("no Chromium: apt-get install chromium-headless-shell")
    (tmp_path / "a.html").write_text(
        "<!doctype html><style>:root { color-scheme: light dark } p { color: #777 }</style><p>text</p>"
        '<div style="width: 500px">wide</div><script>console.error("logged"); missing()</script>',
        "utf-8",
    )
    (tmp_path / "b.html").write_text("<!doctype html><p>text</p>", "utf-8")
    found = browser.faults(tmp_path)
    assert [each for each in found if each.startswith("b.html")] == []
    assert sum("360 px: wider than the window by" in each for each in found) == 2
    assert not any("1440 px: wider" in each for each in found)
    assert {each.split(",")[0] for each in found if "contrast 4." in each} == {"a.html: light", "a.html: dark"}
    assert sorted(each for each in found if "console" in each) == [
        "a.html: console: Uncaught",
        "a.html: console: ['logged']",
    ]


@pytest.mark.parametrize("name", sorted(pictures.PICTURES))
def test_committed_picture_is_what_the_program_draws(name):
    drawn = str(pictures.PICTURES[name]())
    committed = (pictures.FOLDER / f"{name}.svg").read_text("utf-8")
    assert committed == drawn, "run python -m docs.site.pictures"


def test_order_picture_shows_a_resume_that_keeps_the_global_batches():
    two, four = ([sum(step, []) for step in pictures.batches(world)] for world in (2, 4))
    assert two == four
    assert sorted(sum(two, [])) == list(range(16))


@pytest.mark.parametrize("scheme", pictures.PALETTES)
def test_text_of_pictures_contrasts_with_each_ground(scheme):
    def light(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return 0.05 + 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    palette = pictures.PALETTES[scheme]
    grounds = {name: each for name, each in palette.items() if name not in (*pictures.INKS, "line")}
    for ink in pictures.INKS:
        for name, ground in grounds.items():
            pair = sorted((light(palette[ink]), light(ground)))
            assert pair[1] / pair[0] >= 4.5, (ink, name)
    pair = sorted((light(palette["line"]), light(palette["page"])))
    assert pair[1] / pair[0] >= 3


def test_marks_of_the_readme_are_those_of_the_comparison():
    def marks(path):
        rows = re.findall(r"^\| ([^|]+?) \| (.+) \|$", (pages.ROOT / path).read_text("utf-8"), re.MULTILINE)
        return {name: [each.replace("*", "")[0] for each in cells.split(" | ")] for name, cells in rows}

    found, sources = (
        {name: row for name, row in marks(each).items() if {*row} <= {*"●◐○\N{EN DASH}"}} for each in SOURCES
    )
    assert len(found) > 10
    assert found.items() <= sources.items()
