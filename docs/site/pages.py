"""The pages of the site: where each file of the repository stands on it, and their text with links that lead there."""

from __future__ import annotations

import json
import os
import posixpath
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCED = re.compile(r"(^ *```.*?^ *```[ \t]*$)", re.MULTILINE | re.DOTALL)
# Outside docs/: what its pages lead to. README.md is the landing page.
OTHERS = ("*.md", "benchmarks/**/RESULTS.md", "design/*.md")
PROGRAMS = {".py": "python", ".sh": "bash"}
TEXTS = {**PROGRAMS, ".txt": "text", ".toml": "toml", ".yml": "yaml", "": "text"}
PICTURES = ("docs/pictures/*.svg",)
EXAMPLES = "examples/index.md"


class Group(NamedTuple):
    """A heading of the sidebar, and the pages below it by their paths in the repository."""

    title: str
    pages: list[str]


def navigation() -> list[Group]:
    """Return the groups of the sidebar."""
    text = Path(__file__).with_name("navigation.toml").read_text("utf-8")
    return [Group(**each) for each in tomllib.loads(text)["group"]]


def places() -> dict[str, str]:
    """Return the path on the site of each file of the repository that is on it: docs/ is its root."""
    docs = [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("docs/**/*.ipynb"))]
    found = {_named(path): path.relative_to(ROOT / "docs").as_posix() for path in docs}
    for pattern in OTHERS:
        found |= {_named(path): _named(path) for path in sorted(ROOT.glob(pattern))}
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.suffix in PROGRAMS:
            found[_named(path)] = f"{_named(path)}.md"
        elif path.is_dir() and path.name != "__pycache__":
            found[_named(path)] = EXAMPLES
    return {
        **found,
        **pictures(),
        "examples": EXAMPLES,
        "design": "design/README.md",
        "docs": "index.md",
        "README.md": "index.md",
    }


def pictures() -> dict[str, str]:
    """Return the path on the site of each picture."""
    found = (_named(path) for pattern in PICTURES for path in sorted(ROOT.glob(pattern)))
    return {each: each.removeprefix("docs/") for each in found}


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def texts() -> dict[str, str]:
    """Return the text of each page by its path on the site, before the reference and the landing page's lists."""
    where = places()
    found = {EXAMPLES: _examples(where)}
    for source in [*where]:
        path = ROOT / source
        if path.suffix == ".md":
            found[where[source]] = relinked(path.read_text("utf-8"), source, where)
        elif path.suffix == ".ipynb":
            found[where[source]] = path.read_text("utf-8")
    # Now also the files that pages link to.
    for source, target in where.items():
        path = ROOT / source
        if path.suffix in TEXTS and path.is_file():
            fence = f"````{TEXTS[path.suffix]}\n{path.read_text('utf-8')}````\n"
            found[target] = f"# {source.removeprefix('examples/')}\n\n{fence}"
    return found


def relinked(text: str, source: str, where: dict[str, str]) -> str:
    """Return a page whose links lead to the places on the site of what they lead to in the repository.

    A file of text that has no place yet gets one in ``where``.

    Raises:
        LookupError: A link leads to something that cannot be on the site.
    """

    def led(match: re.Match[str]) -> str:
        before, path, after = match.groups()
        if re.match(r"[a-z]+:", path):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        file = ROOT / target
        if target not in where and file.suffix in TEXTS and file.is_file():
            where[target] = f"{target}.md"
        if target not in where:
            raise LookupError(f"{source}: the link to {path} leads to no text file, page or picture of the site")
        relative = os.path.relpath(where[target], posixpath.dirname(where[source]) or ".")
        return f"{before}{relative}{after}"

    parts = FENCED.split(text)
    return "".join(part if place % 2 else LINK.sub(led, part) for place, part in enumerate(parts))


def _examples(where: dict[str, str]) -> str:
    """Return the page that lists the programs."""
    programs = [each for each in where if Path(each).suffix in PROGRAMS]
    lines = [f"- [{each.removeprefix('examples/')}]({where[each].removeprefix('examples/')})" for each in programs]
    return "\n".join(["# Example programs", "", "The tests run each of them.", "", *lines, ""])


def unlisted() -> list[str]:
    """Return each page of docs/ that is in no group, and each entry of a group that is no page or stands in two."""
    listed = [page for group in navigation() for page in group.pages]
    where = places()
    docs = [each for each in where if each.startswith("docs/") and Path(each).suffix in (".md", ".ipynb")]
    odd = [f"{each} is in no group of docs/site/navigation.toml" for each in docs if each not in listed]
    odd += [f"{each} in docs/site/navigation.toml is no page" for each in listed if each not in where]
    return odd + [f"{each} is listed twice" for each in sorted({*listed}) if listed.count(each) > 1]


def readable(path: str, text: str) -> tuple[str, str]:
    """Return the path and text of a page's Markdown: for a notebook that of its cells."""
    if not path.endswith(".ipynb"):
        return path, text
    cells = [(each["cell_type"], "".join(each["source"])) for each in json.loads(text)["cells"]]
    parts = [source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells]
    return path.removesuffix(".ipynb") + ".md", "\n\n".join(parts) + "\n"


def title(text: str) -> str:
    """Return the first heading of a page."""
    return re.search(r"^# (.+)$", text, re.MULTILINE)[1]


def summary(text: str) -> str:
    """Return the first sentence below the heading of a page, without links; "" where none is there."""
    prose = re.sub(r"<!--.*?-->", "", FENCED.sub("", text), flags=re.DOTALL)
    paragraphs = re.split(r"\n\s*\n", prose.partition("# ")[2].partition("\n")[2])
    first = next((each for each in map(str.strip, paragraphs) if re.match(r"[A-Za-z`*\[]", each)), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.sub(r":$", ".", re.split(r"(?<=\.) ", plain)[0])
