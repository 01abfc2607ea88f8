"""The page of a room, the docstring of its folder, names files that exist; one that lists a flow names all of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src"
ROOMS = sorted(path.parent for path in (SOURCES / "penstock").rglob("__init__.py"))
# Pages of folders that hold a file or a folder for each store, or for each format, which they do not list.
ONE_FOR_EACH = {"stores", "data/shards"}
QUOTED = re.compile(r"``([^`]+)``")
# A file or folder below another one, and perhaps a name in it; a folder.
PATH = re.compile(r"([a-z_0-9]+(?:/[a-z_0-9]+)+)/?(?:\.(\w+))?|([a-z_0-9]+)/")


def absent(page: str, room: Path) -> list[str]:
    """Return the files that a page names, in its folder or in one above it, and that do not exist."""
    above = [SOURCES.parent, *reversed(room.parents[: len(room.relative_to(SOURCES).parts) - 1]), room]
    found = []
    for text in QUOTED.findall(page):
        match = PATH.fullmatch(text.removesuffix(".py"))
        name = (match[1] or match[3]) if match else _leading(text, page)
        files = [each for place in above for each in (place / name, place / f"{name}.py") if each.exists()]
        inner = match[2] if match else ""
        if name and (not files or (inner and not re.search(rf"\b{inner}\b", files[-1].read_text("utf-8")))):
            found.append(text)
    return found


def _leading(text: str, page: str) -> str:
    """Return the file that a step of a flow begins with, as in ``1. ``name`` does``; empty for any other text."""
    return (
        text.partition(".")[0]
        if re.search(rf"^\d+\. ``{re.escape(text)}``(?: and|,|:| [a-z]+s )", page, re.MULTILINE)
        else ""
    )


def unnamed(page: str, room: Path) -> set[str]:
    """Return the files and folders of a room that its page lacks, if the page lists a flow."""
    if not re.search(r"^1\. ", page, re.MULTILINE):
        return set()
    files = {path.stem for path in room.glob("*.py")} | {path.parent.name for path in room.glob("*/__init__.py")}
    return files - {"__init__"} - set(re.findall(r"\w+", " ".join(QUOTED.findall(page))))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(SOURCES).as_posix())
def test_a_page_names_files_that_exist_and_a_flow_names_all_files_of_its_room(room):
    page = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    assert not absent(page, room)
    assert room.relative_to(SOURCES / "penstock").as_posix() in ONE_FOR_EACH or not unnamed(page, room)


def test_a_renamed_file_and_one_that_no_step_names_are_noticed():
    room = SOURCES / "penstock" / "stores"
    assert absent("``registry/`` and ``http/answers``, ``s3/registry``", room) == ["registry/", "s3/registry"]
    assert absent("1. ``registry`` finds it, in ``s3/services.R7``", room) == ["registry", "s3/services.R7"]
    assert "urls" in unnamed("1. ``store`` opens it.", room)
    assert not unnamed("``store`` opens it.", room)
