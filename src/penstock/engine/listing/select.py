"""Selection of keys of a listing for a dataset: globs over relative keys, leftovers of other tools, and splits. Pure.

Leftovers are objects that pyarrow.dataset, Spark, Hive or datasets ignore, and files of downloads and of systems that
were never data. Nothing but names is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.engine.listing.names import Names

_MEMBER = re.compile(r"(.)(?:-(.))?", re.DOTALL)  # of a set: a character, or a range


def selector(
    include: str | Iterable[str] = (), exclude: str | Iterable[str] = (), *, markers: bool = False
) -> Callable[[str, int], bool]:
    """Return ``chosen(relative_key, size)``: an ``include`` glob (or none given) matches, and no ``exclude`` glob.

    A glob must match the whole relative key, case counts, and only these are special:

    - ``*`` any run of characters within one component (never ``/``), ``?`` one of them;
    - ``**`` any run at all; ``**/`` at a component's start also matches nothing, so ``**/*.jpg`` finds ``a.jpg``;
    - ``[abc]``, ``[a-z]``, ``[!a]`` one character of a set, never ``/``; a ``[`` without its ``]`` is itself.

    Directory markers (empty objects whose key ends in ``/``) are left out unless ``markers``.
    """
    wanted, unwanted = _compile(include), _compile(exclude)

    def chosen(key: str, size: int) -> bool:
        if size == 0 and not markers and key[-1:] in ("", "/"):  # "" is the marker of the base itself
            return False
        return (wanted is None or wanted.fullmatch(key) is not None) and (
            unwanted is None or unwanted.fullmatch(key) is None
        )

    return chosen


def globs(given: str | Iterable[str], name: str = "include/exclude") -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for each in found:
        if not isinstance(each, str):
            raise ConfigError(f"{name} must be a str, such as '*.jpg', or a list of str, got {each!r}")
        # In other tools "keep/" is a folder with all that it holds. Here it would match no object, and a sync that
        # deletes would delete what it was to keep.
        if each.endswith("/"):
            raise ConfigError(f"{name} must not end in '/', got {each!r}: write {each + '**'!r} for all objects below")
    return found


_FIXED = re.compile(r"(?: [^*?\[] | \[ (?: \] | [^]!/] ) \] )*", re.VERBOSE | re.DOTALL)
_ONLY = re.compile(r"\[(.)\]", re.DOTALL)


def fixed_part(glob: str) -> tuple[str, str]:
    """Divide a glob before its first wildcard: the text that every match begins with, and the glob that follows.

    A set of one character (``[*]``) is that character. The second text is empty without wildcards.
    """
    end = _FIXED.match(glob).end()  # type: ignore[union-attr]  # it matches an empty text, too
    return _ONLY.sub(r"\1", glob[:end]), glob[end:]


_TOKEN = re.compile(
    r"""
      (?P<deep> (?:(?<=/)|^) \*\*/ )
    | (?P<any> \*\*+ )
    | (?P<run> \* )
    | (?P<one> \? )
    | \[ (?P<set> !?+ (?: \][^\]]* | [^\]]+ ) ) \]
    """,
    re.VERBOSE,
)


def _compile(given: str | Iterable[str]) -> re.Pattern[str] | None:
    found = globs(given)
    try:
        return re.compile("|".join(map(_translate, found)), re.DOTALL) if found else None
    except re.error as error:
        raise ConfigError(f"invalid glob: {[*found]} ({error})") from error


def _translate(glob: str) -> str:
    pieces: list[str] = []
    start = 0
    for token in _TOKEN.finditer(glob):
        pieces += re.escape(glob[start : token.start()]), _piece(token)
        start = token.end()
    return "".join(pieces) + re.escape(glob[start:])


def _piece(token: re.Match[str]) -> str:
    members = token["set"]
    if members is None:
        return {"deep": "(?:.*/)?", "any": ".*", "run": "[^/]*", "one": "[^/]"}[token.lastgroup or ""]
    negated = "^" if members.startswith("!") else ""
    # "-" keeps its meaning; everything else in a set stands for itself.
    return f"(?!/)[{negated}{_MEMBER.sub(_escape_range, members.removeprefix('!'))}]"


def _escape_range(member: re.Match[str]) -> str:
    first, last = member.groups()
    return re.escape(first) + (f"-{re.escape(last)}" if last else "")


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
_MARKED = 4  # bytes at the start or the end of a component that ``Leftovers.suspects`` compares
_HEADS = (b".", b"_", *(name[:_MARKED].encode() for name in _SYSTEM))
_TAILS = tuple(name[-_MARKED:].encode() for name in _ENDS)


@lru_cache
def _outer_bytes() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of the two bytes, as little-endian numbers, that a mark may begin and end with."""
    import numpy as np

    heads, tails = np.zeros((256, 256), np.bool_), np.zeros((256, 256), np.bool_)
    for head in _HEADS:
        heads[head[1] if len(head) > 1 else slice(None), head[0]] = True
    for tail in _TAILS:
        tails[tail[-1], tail[-2] if len(tail) > 1 else slice(None)] = True
    return heads.reshape(-1), tails.reshape(-1)


_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_SPLIT = re.compile(rf"(?<![^-._ /0-9])(?:{'|'.join(_SPLITS)})(?![^-._ /0-9])", re.IGNORECASE)


def leftover(name: str, *, shards: bool = False) -> str:
    """Return the component of a key that marks a leftover of another tool, or ``*`` and its end; empty: none.

    Of ``shards`` all names that begin with ``_`` are leftovers.
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
    """Filter of a listing that leaves leftovers out, and counts them; leftovers requested by name are kept."""

    def __init__(self, prefix: str = "", include: Iterable[str] = (), *, shards: bool = False) -> None:
        """Keep names whose mark is also in a glob of ``include`` or in the last component of ``prefix``."""
        named = [glob for glob in include if leftover(glob, shards=True)]
        self._asked: Callable[[str, int], bool] | None = selector(named, markers=True) if named else None
        self._typed, self._shards = len(prefix) - prefix.rfind("/") - 1, shards
        self._found: Counter[str] = Counter()
        # Keys of a listing are in order, so that many are in the folder of the key before.
        self._folder = self._of_folder = ""

    def wanted(self, name: str) -> bool:
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

    def suspects(self, names: Names, skip: int) -> NDArray[np.bool_]:
        """Return a mask of names, each after ``skip`` bytes, that holds all which ``wanted`` leaves out, and few more.

        The first and last bytes of their components are compared with those of marks.
        """
        import numpy as np

        from penstock.engine.listing.names import windows

        data, ends = names.joined, names.ends - names.ends[0]
        slashes = np.flatnonzero(data == ord("/"))
        owners = np.searchsorted(ends, slashes, side="right") - 1
        inside = slashes >= ends[owners] + skip
        slashes, owners = slashes[inside], owners[inside]
        margin, numbers = np.zeros(_MARKED, np.uint8), np.arange(len(names))
        padded = np.concatenate((margin, data, margin))
        # Of the first component, the prefix may have the beginning.
        first = 0 if self._typed else len(numbers)
        found = np.zeros(len(numbers), np.bool_)
        heads, tails = _outer_bytes()
        starts = windows(padded, np.concatenate((ends[:first] + skip, slashes + 1)) + _MARKED, _MARKED)
        stops = windows(padded, np.concatenate((ends[1:], slashes)), _MARKED)
        of = np.concatenate((numbers[:first], owners)), np.concatenate((numbers, owners))
        for at in np.flatnonzero(heads[starts[:, :2].copy().view("<u2")[:, 0]]).tolist():
            found[of[0][at]] |= starts[at].tobytes().startswith(_HEADS)
        for at in np.flatnonzero(tails[stops[:, -2:].copy().view("<u2")[:, 0]]).tolist():
            found[of[1][at]] |= stops[at].tobytes().endswith(_TAILS)
        return found

    def clear(self) -> None:
        self._found.clear()

    def __len__(self) -> int:
        return self._found.total()

    def __str__(self) -> str:
        some = self._found.most_common(_SHOWN)
        named = ", ".join(f"{name} ({count:,})" if count > 1 else name for name, count in some)
        more = ", …" if len(self._found) > _SHOWN else ""
        objects = "object is a leftover" if len(self) == 1 else "objects are leftovers"
        return f"{len(self):,} {objects} of other tools: {named}{more}; a glob with such a name reads them"


def split_of(name: str) -> tuple[str, int]:
    """Return the split in a component of a name, and the end of that word; empty and 0 if there is none.

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
