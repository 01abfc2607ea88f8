"""``python -m docs.site``: build the site into build/docs, with warnings as errors, and check what was built."""

from __future__ import annotations

import json
import posixpath
import shutil
import subprocess
import sys
from pathlib import Path

from docs.site import browser, links, pages, plot, reference
from penstock.version import VERSION
from tests.public_api import RECORD

SITE = pages.ROOT / "build" / "docs"
WORK = pages.ROOT / "build" / "site"
HERE = Path(__file__).parent
API = "API"  # the group of the reference in the sidebar


def main() -> int:
    """Build and check the site; return the exit status."""
    if odd := pages.unlisted():
        print("\n".join(odd))
        return 1
    texts = pages.texts()
    listed = {group.title: [pages.places()[each] for each in group.pages] for group in pages.navigation()}
    made = reference.pages()
    listed[API] = [*made]
    landing = _landing(texts["index.md"], listed)
    pictures = {target: (pages.ROOT / path).read_text("utf-8") for path, target in pages.pictures().items()}
    pictures["benchmark.svg"] = plot.benchmark()
    for page in [each for each in texts if each.endswith("RESULTS.md")]:
        folder = posixpath.dirname(page)
        drawn = {f"plots/{name}.svg": picture for name, picture in plot.conditions(folder).items()}
        texts[page] += "\n## Plots\n\n" + "\n".join(f"![]({path})" for path in drawn) + "\n"
        pictures |= {f"{folder}/{path}": picture for path, picture in drawn.items()}
    _stage(texts | made | pictures | {"index.md": landing}, {page for each in listed.values() for page in each})
    html = SITE / VERSION
    shutil.rmtree(html, ignore_errors=True)
    pickled = WORK / "doctrees" / "environment.pickle"
    if pickled.exists() and pickled.stat().st_mtime < max(each.stat().st_mtime for each in HERE.glob("*.py")):
        # Sphinx does not see that its handlers have changed.
        shutil.rmtree(pickled.parent)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "2", "-b", "html", "-c", str(HERE)]
    command += ["-d", str(WORK / "doctrees"), str(WORK / "source"), str(html)]
    if status := subprocess.run(command, check=False).returncode:
        return status
    _finish(html, texts | reference.twins() | pictures, listed)
    faults = [*links.faults(html), *links.absent(html, RECORD.read_text("utf-8"), reference.aliases())]
    faults += browser.faults(html)
    print("\n".join(faults) or f"the site is in {html.relative_to(pages.ROOT)}: open index.html")
    return bool(faults)


def _landing(text: str, listed: dict[str, list[str]]) -> str:
    """Return the landing page: README.md with the benchmark's picture, and the sidebar's groups."""
    text = text.replace("<!-- numbers -->", "<!-- numbers -->\n![Rates of this version and of others](benchmark.svg)\n")
    for title, targets in listed.items():
        entries = [
            f"{Path(each).stem.removeprefix('penstock.')} <{each}>" if title == API else each for each in targets
        ]
        text += f"\n```{{toctree}}\n:hidden:\n:caption: '{title}'\n\n" + "\n".join(entries) + "\n```\n"
    return text


def _stage(texts: dict[str, str], listed: set[str]) -> None:
    """Write the sources of Sphinx; what has not changed keeps its time, so that Sphinx need not read it again."""
    source = WORK / "source"
    wanted = {}
    for path, text in texts.items():
        marks = "orphan: true\n" if path.endswith(".md") and path not in {*listed, "index.md"} else ""
        # Maintainers find design notes by their index; a user's search has the manual first.
        marks += "nosearch: true\n" if path.startswith("design/") else ""
        wanted[path] = f"---\n{marks}---\n\n{text}" if marks else text
    for path, text in wanted.items():
        file = source / path
        if not file.exists() or file.read_text("utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    for file in source.rglob("*"):
        if file.is_file() and file.relative_to(source).as_posix() not in wanted:
            file.unlink()


def _finish(html: Path, texts: dict[str, str], listed: dict[str, list[str]]) -> None:
    """Write what Sphinx does not: Markdown beside each page, llms.txt, the list of versions."""
    written = {path: pages.readable(path, text) for path, text in texts.items()}
    for path, text in [*written.values(), *texts.items()]:  # notebooks also as they are
        file = html / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    lines = [f"# Penstock {VERSION}", "", f"> {pages.summary(texts['index.md'])}", ""]
    for title, targets in listed.items():
        lines += [f"## {title}", ""]
        for path, text in map(written.get, targets):
            lines.append(f"- [{pages.title(text)}]({path}): {pages.summary(text)}")
        lines.append("")
    (html / "llms.txt").write_text("\n".join(lines), "utf-8")
    found = sorted(each.name for each in SITE.iterdir() if (each / "index.html").exists())
    (SITE / "versions.js").write_text(f"window.PENSTOCK_VERSIONS = {json.dumps(found)};\n", "utf-8")
    redirect = f'<meta http-equiv="refresh" content="0; url={VERSION}/index.html">'
    (SITE / "index.html").write_text(f"<!doctype html><title>Penstock</title>{redirect}\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
