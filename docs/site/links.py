"""Links of the built site: each internal one leads to a file and an anchor; external ones are listed, not fetched."""

from __future__ import annotations

import posixpath
import re
import zlib
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from docs.site.pages import FENCED, LINK
from tests.public_api import entries

if TYPE_CHECKING:
    from pathlib import Path


class Page(HTMLParser):
    """Collects the anchors of a page, and what it links to and loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the ids and addresses of an element."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.append(value)


def faults(html: Path) -> list[str]:
    """Return each link that leads nowhere; write the external ones to external-links.txt beside the pages."""
    found = {path.relative_to(html).as_posix(): Page(path.read_text("utf-8")) for path in sorted(html.rglob("*.html"))}
    files = {path.relative_to(html).as_posix() for path in html.rglob("*")}
    broken, external = [], set()
    for name, page in found.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                external.add(link)
                continue
            path = posixpath.join(posixpath.dirname(name), unquote(parts.path)) if parts.path else name
            path = posixpath.normpath(path)
            if path.startswith("../"):
                continue  # versions.js, which all versions share
            anchor = unquote(parts.fragment)
            if path not in files or (anchor and path in found and anchor not in found[path].anchors):
                broken.append(f"{name}: the link to {link} leads nowhere")
    for path in sorted(html.rglob("*.md")):
        name = path.relative_to(html).as_posix()
        for _, link, _ in LINK.findall(FENCED.sub("", path.read_text("utf-8"))):
            if ":" not in link and not (path.parent / link).exists():
                broken.append(f"{name}: the link to {link} leads nowhere")
    (html.parent / "external-links.txt").write_text("".join(f"{each}\n" for each in sorted(external)), "utf-8")
    print(f"{len(found)} pages; {len(external)} external links, not fetched, are in build/docs/external-links.txt")
    return broken


def absent(html: Path, record: str, aliases: dict[str, str]) -> list[str]:
    """Return each public class and function of tests/public_api.txt that the built site has no entry for.

    Attributes may stand in the text of their class.
    """
    inventory = (html / "objects.inv").read_bytes().split(b"\n", 4)[4]
    there = set(re.findall(r"(?m)^(\S+) py:", zlib.decompress(inventory).decode()))
    for name, home in aliases.items():
        there |= {f"{name}{each.removeprefix(home)}" for each in there if each.startswith(f"{home}.")}
    # A class under a second name is "name is name"; "any …" are arguments that signatures share.
    called = (
        name
        for name, lines in entries(record).items()
        if name.startswith("class ") or "(" in lines[0] or " is " in name
    )
    names = {re.split(r"\(| is ", each.removeprefix("class "))[0] for each in called if not each.startswith("any ")}
    return [f"{name} has no entry in the reference" for name in sorted(names - there)]
