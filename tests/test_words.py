"""The manual is written in the field's words, and its links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.grammar import docstrings, faults, messages, names_of_tests

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
MODULES = sorted((ROOT / "src").rglob("*.py"))
# What a reader stumbles over, and what to write instead: in the code's own words too, and
REFUSED = {
    "whoever": "a noun: the caller, a reader, a client",
    "nobody": "no caller, no rank, nothing; or the passive",
    "stranger": "another program, an untrusted file",
    "side by side": "in parallel, concurrently; of ranges: adjacent",
    "whole or not at all": "atomic",
    "appears whole": "atomic",
    "call off": "cancel",
    "calls off": "cancels",
    "data set": "dataset",
    "uploads that never ended": "unfinished uploads",
    "hurried": "an adjective that says what is wrong",
    "spared": "an error that affects every …",
}
# in the manual.
INSTEAD = {
    "heeded": "supported",
    "nobody needs": "you do not need",
    "torch's doing": "PyTorch forms …",
    "what becomes of": "controls",
    "goes on from it": "resumes",
    "the global batch is another": "the global batch size changes",
    "beats all": "overrides",
    "clock's word": "relies on timestamps",
    "by itself a": "automatically",
    "saves that never ended": "interrupted saves",
    "who restores": "a concurrent restore",
    "lives of the training": "processes",
    **REFUSED,
}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    return FENCED.sub("", text)


def stumbles(text: str, instead: dict[str, str] = INSTEAD) -> list[str]:
    """Return each refused phrase of a page, with what to write instead."""
    plain = " ".join(prose(text).lower().split())
    return [f"{phrase!r}: write {better!r}" for phrase, better in instead.items() if re.search(rf"\b{phrase}", plain)]


def uncommented(text: str) -> str:
    """Return a module without the signs of its comments, so that a phrase is found across their lines."""
    return re.sub(r"^\s*#", "", text, flags=re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_word_that_a_reader_stumbles_over(page):
    assert stumbles(page.read_text("utf-8")) == []


def test_the_code_has_no_word_that_a_reader_stumbles_over():
    found = {str(each.relative_to(ROOT)): stumbles(uncommented(each.read_text("utf-8")), REFUSED) for each in MODULES}
    assert len(found) > 200
    assert {path: words for path, words in found.items() if words} == {}


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
    assert stumbles(uncommented("x = 1\n    # for the data\n    # set\n"), REFUSED) == ["'data set': write 'dataset'"]


@pytest.mark.parametrize(("texts", "most"), [(docstrings, 0.02), (messages, 0.02)], ids=["docstrings", "messages"])
def test_few_texts_of_the_code_have_to_be_read_twice(texts, most):
    total, odd = 0, []
    for path in MODULES:
        for text in texts(ast.parse(path.read_text("utf-8"))):
            total += 1
            if found := faults(text.words):
                odd.append(f"{path.relative_to(ROOT)}:{text.line}: {', '.join(found)}")
    assert total > 1000
    assert len(odd) <= most * total, "\n".join(odd)


def test_names_of_tests_are_read_once():
    odd = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        names = names_of_tests(ast.parse(path.read_text("utf-8")))
        odd += [f"{path.relative_to(ROOT)}:{name.line}: {found}" for name in names if (found := faults(name.words))]
    assert not odd, "\n".join(odd)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Return the size.", 0),
        ("What the caller was told.", 1),
        ("It is no size of its own.", 3),
        ("Raise ``what``: it is not there.", 0),
        ("The object is\nno longer there.", 1),
    ],
)
def test_odd_beginnings_and_phrases_are_found(text, count):
    assert len(faults(text)) == count


def test_docstrings_and_messages_of_a_module_are_found():
    tree = ast.parse('"""A."""\ndef f(x):\n    """B."""\n    raise ValueError(f"no {x} here")\ndef test_a_b(): ...\n')
    assert [each.words for each in docstrings(tree)] == ["A.", "B."]
    assert [each.words for each in messages(tree)] == ["no {} here"]
    assert [each.words for each in names_of_tests(tree)] == ["a b"]


def test_anchors_are_those_of_github():
    assert anchors("# A run's `x` (two)\n## PyTorch's own loaders\n") == {"a-runs-x-two", "pytorchs-own-loaders"}
