"""Names with a meaning in listings for a dataset: leftovers of other tools, and splits.

Leftovers are what pyarrow.dataset, Spark, Hive and Hugging Face leave out, and files of downloads and of systems that
were never data. Pure: no request is made, and nothing but names is known.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from penstock.engine.listing.select import selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Leftovers", "leftover", "split_of", "splits_of"]

# Beginning with "_"; of shards, all such names are leftovers.
_SPARK = re.compile(
    r"_(?:SUCCESS|FAILURE|(?:common_)?metadata|spark_metadata|temporary|te?mp.*|delta_log|delta_index|change_data"
    r"|symlink_format_manifest|impala_insert_staging|(?:started|committed)_.*)",
    re.DOTALL,
)
_SYSTEM = {"__MACOSX", "__pycache__", "@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information"}
_SYSTEM |= {"Thumbs.db", "thumbs.db", "Desktop.ini", "desktop.ini"}
_ENDS = (
    *(".tmp", ".temp", ".incomplete", ".partial", ".part", ".filepart", ".crdownload", ".aria2", ".gstmp"),
    *("._COPYING_", ".swp", ".lock", "_$folder$", "~"),
)
_SHOWN = 3

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_SPLIT = re.compile(rf"(?<![^-._ /0-9])(?:{'|'.join(_SPLITS)})(?![^-._ /0-9])", re.IGNORECASE)


def leftover(name: str, *, shards: bool = False) -> str:
    """Return the component of a name that shows a leftover of another tool, or ``*`` and its end; empty: none does.

    Args:
        name: Key below the prefix of the listing.
        shards: Whether the objects are shards, of which all names that begin with ``_`` are leftovers.

    """
    return next(filter(None, (_mark(part, shards=shards) for part in name.split("/"))), "")


def _mark(part: str, *, shards: bool) -> str:
    if part.startswith("."):
        return part if part.strip(".") else ""
    # "=" is in the name of a partition of a table.
    if part.startswith("_") and ((shards and "=" not in part) or _SPARK.fullmatch(part)):
        return part
    if part in _SYSTEM:
        return part
    return next(f"*{end}" for end in _ENDS if part.endswith(end)) if part.endswith(_ENDS) else ""


class Leftovers:
    """Filter of a listing that leaves leftovers out, and counts them; those that are asked for by name are kept."""

    def __init__(self, prefix: str = "", include: Iterable[str] = (), *, shards: bool = False) -> None:
        """Keep names of which a glob of ``include``, or the last component of ``prefix``, has the mark itself."""
        named = [glob for glob in include if leftover(glob, shards=True)]
        self._asked: Callable[[str, int], bool] | None = selector(named, markers=True) if named else None
        self._typed, self._shards = len(prefix) - prefix.rfind("/") - 1, shards
        self._found: Counter[str] = Counter()
        # Keys of a listing are in order, so that many are in the folder of the key before.
        self._folder = self._of_folder = ""

    def wanted(self, name: str) -> bool:
        """Return whether a name below the base of the listing is to be read; count it otherwise."""
        found = self.mark(name)
        if found:
            self._found[found] += 1
        return not found

    def mark(self, name: str) -> str:
        """Return the mark of a name that is left out: see ``leftover``; empty for one that is read."""
        short = f"x{name[self._typed :]}" if self._typed else name
        folder, slash, last = short.rpartition("/")
        if folder != self._folder:
            self._folder, self._of_folder = folder, leftover(folder + slash, shards=self._shards)
        found = self._of_folder or _mark(last, shards=self._shards)
        return "" if found and self._asked is not None and self._asked(name, 1) else found

    def clear(self) -> None:
        """Forget what was counted: the listing begins anew."""
        self._found.clear()

    def __len__(self) -> int:
        """Return the number of names that were left out."""
        return self._found.total()

    def __str__(self) -> str:
        """Return the names that were left out, and how to read them."""
        some = self._found.most_common(_SHOWN)
        named = ", ".join(f"{name} ({count:,})" if count > 1 else name for name, count in some)
        more = ", …" if len(self._found) > _SHOWN else ""
        objects = "object is a leftover" if len(self) == 1 else "objects are leftovers"
        return f"{len(self):,} {objects} of other tools: {named}{more}; a glob with such a name reads them"


def split_of(name: str) -> tuple[str, int]:
    """Return the split that a component of a name stands for, and where that word ends; empty and 0: none does.

    ``train/a.parquet``, ``data/train-00000-of-00002.parquet`` and ``c4-train.00000.json.gz`` are of ``train``.
    """
    found = _SPLIT.search(name)
    return ("", 0) if found is None else (_SPLITS[found[0].lower()], found.end())


def splits_of(names: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return the splits of names: the number of each, and the first of its names up to the word's end, by split."""
    found: dict[str, tuple[int, str]] = {}
    for name in names:
        split, end = split_of(name)
        if split:
            count, first = found.get(split, (0, name[:end]))
            found[split] = count + 1, first
    return found
