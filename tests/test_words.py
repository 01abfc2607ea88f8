"""The manual is written in the field's words, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
# What a reader stumbles over, and what to write instead.
INSTEAD = {
    "data set": "dataset",
    "whole or not at all": "atomic",
    "appears whole": "atomic",
    "side by side": "concurrently, in parallel",
    "heeded": "supported",
    "nobody needs": "you do not need",
    "torch's doing": "PyTorch forms …",
    "what becomes of": "controls",
    "goes on from it": "resumes",
    "the global batch is another": "the global batch size changes",
    "beats all": "overrides",
    "would be spared": "affects every …",
    "clock's word": "relies on timestamps",
    "by itself a": "automatically",
    "uploads that never ended": "unfinished uploads",
    "saves that never ended": "interrupted saves",
    "who restores": "a concurrent restore",
    "hurried hands": "mistakes",
    "lives of the training": "processes",
}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    return FENCED.sub("", text)


def stumbles(text: str) -> list[str]:
    """Return each refused phrase of a page, with what to write instead."""
    plain = " ".join(prose(text).lower().split())
    return [f"{phrase!r}: write {better!r}" for phrase, better in INSTEAD.items() if phrase in plain]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_word_that_a_reader_stumbles_over(page):
    assert stumbles(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    broken = []
    for target in LINK.findall(prose(page.read_text("utf-8"))):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text("utf-8"))):
            broken.append(target)
    assert broken == []


def test_a_refused_phrase_is_found_across_lines_and_not_in_code():
    assert len(stumbles("A data\nset is saved Whole or\nnot at all.\n")) == 2
    assert stumbles("```\na data set\n```\n") == []


def test_anchors_are_those_of_github():
    assert anchors("# A run's `x` (two)\n## PyTorch's own loaders\n") == {"a-runs-x-two", "pytorchs-own-loaders"}
