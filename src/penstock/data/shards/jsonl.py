"""JSON lines: each line is a sample. Pure.

Format: JSON Lines (jsonlines.org), in UTF-8. Other bytes than a line break are not looked into, so any text will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from json import loads
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.data.shards.format import Ask, Extents, Fields, FieldsFormat
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.data.shards.format import Walk

_BLOCK_BYTES = 8 << 20
_BREAK, _RETURN, _SPACE = b"\n\r "
_BLANK = b" \t\r\n"  # JSON's white space
MARK = b"\xef\xbb\xbf"
_DECOMPRESS = "is compressed with {}, so that no line can be read by its place: decompress it once"
# First bytes of files that hold no lines of UTF-8, and what to do about them.
_FOREIGN = {
    b"\x1f\x8b": _DECOMPRESS.format("gzip"),
    b"\x28\xb5\x2f\xfd": _DECOMPRESS.format("zstd"),
    b"\xff\xfe": "is text in UTF-16 or UTF-32: convert it to UTF-8 (iconv -t UTF-8)",
    b"\xfe\xff": "is text in UTF-16: convert it to UTF-8 (iconv -t UTF-8)",
}


@dataclass(frozen=True, slots=True)
class JsonlFormat(FieldsFormat):
    """JSON lines: a sample is a line, without its line break. Lines of white space only are left out.

    Args:
        fields: Names of values to take from the JSON object of a line, each a field of the sample; empty: the sample is
            the bytes of the line. A single name as a str: the sample is this text, in UTF-8.
    """

    name: ClassVar[str] = "jsonl"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")

    def walk(self, size: int) -> Walk:
        starts, stops = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        first, lines, blank = 0, 0, True  # of the line that the next block goes on with, and whether it is blank so far
        for base in range(0, size, _BLOCK_BYTES):
            view = yield Ask(base, min(size, base + _BLOCK_BYTES))
            if not base:
                check_first_bytes(view)
                first = len(MARK) if view[: len(MARK)] == MARK else 0
            block = np.frombuffer(view, np.uint8)
            breaks = np.flatnonzero(block == _BREAK)
            if not block.all():
                at = int(np.argmin(block))
                line = lines + int(np.searchsorted(breaks, at)) + 1
                raise Damaged(f"line {line} has a NUL at byte {base + at}: the file is damaged, or not JSON lines")
            begins = np.concatenate(([max(first - base, 0)], breaks + 1))
            # A line that begins with anything but white space is a sample; few others need a look.
            filled = block[np.minimum(begins, len(block) - 1)] > _SPACE
            filled[-1] &= begins[-1] < len(block)
            for each in np.flatnonzero(~filled).tolist():
                stop = breaks[each] if each < len(breaks) else len(block)
                filled[each] = bool(bytes(view[begins[each] : stop]).strip(_BLANK))
            filled[0] |= not blank
            begins[0] = first - base
            starts.append(begins[:-1][filled[:-1]] + base)
            stops.append(breaks[filled[:-1]] + (base + 1))
            first, lines, blank = int(begins[-1]) + base, lines + len(breaks), not filled[-1]
        if not blank:
            starts.append(np.array([first], np.int64))
            stops.append(np.array([size], np.int64))
        offsets = np.concatenate(starts)
        return Extents(offsets, np.concatenate(stops) - offsets)

    def sample(self, data: memoryview) -> Fields | memoryview:
        stop = len(data)
        if stop and data[stop - 1] == _BREAK:
            stop -= 1
        if stop and data[stop - 1] == _RETURN:
            stop -= 1
        line = data[:stop]
        if not self.fields:
            return line
        if isinstance(self.fields, str):
            value = parse_values(line, (self.fields,))[self.fields]
            if not isinstance(value, str):
                raise Damaged(
                    f"the value of {self.fields!r} is not text but {value!r:.40}: pass fields=({self.fields!r},)"
                )
            return memoryview(value.encode())
        return Fields("", parse_values(line, self.fields))


def check_first_bytes(view: memoryview) -> None:
    for begin, advice in _FOREIGN.items():
        if view[: len(begin)] == begin:
            raise Unsupported(f"the file {advice}")


def parse_values(line: memoryview, names: Iterable[str]) -> dict[str, Any]:
    """Return some values of the JSON object of a line."""
    try:
        found = loads(str(line, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the line {bytes(line[:40])!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Damaged(f"the line {bytes(line[:40])!r} must be a JSON object")
    try:
        return {name: found[name] for name in names}
    except KeyError as error:
        known = ", ".join(map(repr, found))
        raise Damaged(f"the line has no field {error}, only {known:.200}") from None
