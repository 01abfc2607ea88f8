"""Pages for a browser in local files, which are replaced atomically."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check", "save"]


def check(path: str) -> None:
    """Refuse a file that ``save`` could not write; leave no file behind, and an existing file unchanged.

    Raises:
        Unusable: The directory does not exist, or the directory or the file cannot be written.

    """
    with _errors(path):
        page = Path(path).resolve()
        if page.is_dir() or page.is_file():
            page.open("ab").close()
        if page.is_file() or not page.exists():
            _begun(page).unlink()


def save(path: str, text: str) -> None:
    """Write a page into a pipe or device, or replace any other file. Raises ``Unusable`` as ``check`` does."""
    with _errors(path):
        page = Path(path).resolve()
        if page.exists() and not page.is_file():
            page.write_text(text, "utf-8")
            return
        aside = _begun(page)
        try:
            aside.write_text(text, "utf-8")
            with suppress(FileNotFoundError):
                shutil.copymode(page, aside)
            aside.replace(page)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def _begun(page: Path) -> Path:
    """Create an empty temporary file in the directory of ``page``."""
    aside = page.with_name(f".penstock-{uuid4().hex}")
    aside.touch(exist_ok=False)
    return aside


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unusable(f"cannot write the page: {error.strerror}", url=path) from error
