"""Notebooks of the manual are kept without outputs, in the manual's words, and with links that lead somewhere."""

import json
from pathlib import Path

import nbformat
import pytest

from tests.test_words import LINK, stumbles

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
PAGE = FOLDER.with_suffix(".md").read_text("utf-8")


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_notebook_is_valid_has_no_outputs_and_runs_on_any_python(book):
    text = book.read_text("utf-8")
    found = json.loads(text)
    nbformat.validate(found)
    cells = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []
    assert found["metadata"]["kernelspec"]["name"] == "python3"
    assert text == json.dumps(found, indent=1, ensure_ascii=False) + "\n", "as editors write it"
    assert f"(notebooks/{book.name})" in PAGE


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_notebook_prose_has_plain_words_and_links_that_exist(book):
    cells = json.loads(book.read_text("utf-8"))["cells"]
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert stumbles(prose) == []
    links = [link.partition("#")[0] for link in LINK.findall(prose)]
    assert links
    assert [link for link in links if not (FOLDER / link).is_file()] == []


def test_all_notebooks_of_the_page_exist():
    assert len(BOOKS) == PAGE.count(".ipynb)") == 4
