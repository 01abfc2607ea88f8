"""Shards of a map: each is written in one step, and compared if an earlier attempt of its part has written it."""

from __future__ import annotations

import json
import re
from array import array
from contextlib import ExitStack, closing
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import xxhash

from penstock.data.shards.mds import MdsFormat
from penstock.data.shards.mds_encode import columns_from, encoded_row, encoding_of
from penstock.data.shards.registry import format_by
from penstock.data.shards.tokens import encode_index
from penstock.errors import Changed, Conflict, Unusable, kind_of
from penstock.jobs.packing.members import KEY, Coming, Members, Packable, RowMembers, make_member
from penstock.jobs.packing.pack import PackOptions, open_shard, read_back
from penstock.jobs.parts.operation import ignore_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import TracebackType

    from penstock.jobs.mapping.pieces import SourceSample
    from penstock.source import Source

    Outputs = Iterator[tuple[SourceSample, Any]]

OURS = re.compile(r"shard-\d{6}\.(?:bin|loss|idx|jsonl|tar|parquet|mds)")
_SEND_BYTES = 1 << 20
_MOST_TOKENS = (1 << 31) - 1  # of a document: its length has 32 bits


class ShardFile:
    """File of a shard: it appears when its ``with`` block ends, or has to be there with the same bytes."""

    def __init__(self, source: Source, base: str, part: int, suffix: str) -> None:
        self._source, self._key, self._part = source, f"{base}shard-{part:06d}{suffix}", part
        self._writer = source.open_write(self._key, create_only=True)
        self._digest = xxhash.xxh3_128()
        self._held, self._held_bytes = list[bytes](), 0
        self.size = 0

    @property
    def described(self) -> tuple[int, str]:
        return self.size, self._digest.hexdigest()

    def write(self, data: Any) -> int:  # noqa: ANN401  any buffer
        # The owner of another buffer may change it before it is sent.
        held = data if isinstance(data, bytes) else bytes(data)
        self._held.append(held)
        self._held_bytes += len(held)
        if self._held_bytes >= _SEND_BYTES:
            self._send()
        return len(held)

    def _send(self) -> None:
        held = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        self.size += len(held)
        self._digest.update(held)
        self._writer.write(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._writer.__exit__(kind, error, trace)
            return
        self._send()
        try:
            self._writer.close()
        except Conflict:
            self._compare()

    def _compare(self) -> None:
        meta, found = self._source.head(self._key), xxhash.xxh3_128()
        read_back(self._source, meta, found.update)
        if (meta.size, found.hexdigest()) != self.described:
            raise Changed(
                f"part {self._part} gave other bytes than an earlier attempt: the function, a file that it reads, or a "
                "library has changed, or it is not deterministic (seed= gives it random numbers that are); or this "
                "shard belongs to another map: name another destination",
                url=self._source.url(self._key),
            )


def write_tokens(outputs: Outputs, open_file: Callable[[str], ShardFile], dtype: str) -> dict[str, Any]:
    """Write documents as Megatron's builder does, the index last; and their loss masks, a byte for each token."""
    kind, sizes = np.dtype(dtype), array("i")
    loss: ShardFile | None = None
    with ExitStack() as stack:
        data = stack.enter_context(open_file(".bin"))
        for sample, output in outputs:
            if (masked := isinstance(output, dict)) and output.keys() != {"tokens", "loss"}:
                raise _refuse(sample, "tokens and loss, and nothing else, in a dict", output)
            if masked and not sizes:
                loss = stack.enter_context(open_file(".loss"))
            if masked != (loss is not None):
                raise _refuse(sample, "tokens with a loss mask, or none, for all samples", output)
            tokens = _integers(sample, output["tokens"] if masked else output, kind)
            data.write(tokens.data)
            sizes.append(len(tokens))
            if loss is not None:
                mask = np.asarray(output["loss"])
                mask = _integers(
                    sample, mask.view(np.uint8) if mask.dtype == bool else mask, np.dtype(np.uint8), "loss"
                )
                if len(mask) != len(tokens):
                    raise _refuse(sample, f"a loss mask of {len(tokens)} values", mask)
                loss.write(mask.data)
    lengths = np.frombuffer(sizes, np.int32)
    with open_file(".idx") as index:
        index.write(encode_index(lengths, kind))
    files = {".bin": data, ".idx": index} | ({} if loss is None else {".loss": loss})
    return {"files": {end: file.described for end, file in files.items()}, "tokens": int(lengths.sum(dtype=np.int64))}


def _integers(sample: SourceSample, given: Any, kind: np.dtype[Any], noun: str = "token") -> np.ndarray[Any, Any]:  # noqa: ANN401  checked here
    try:
        found = np.asarray(given)
    except (TypeError, ValueError):
        raise _refuse(sample, "integers of one dimension", given) from None
    if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)) or len(found) > _MOST_TOKENS:
        raise _refuse(sample, "at most 2^31 integers of one dimension", given)
    if len(found) and not np.can_cast(found.dtype, kind):
        least, most, limits = int(found.min()), int(found.max()), np.iinfo(kind)
        if least < limits.min or most > limits.max:
            name, url = sample.locate()
            wrong, advice = least if least < limits.min else most, ': pass dtype="int32"' if noun == "token" else ""
            text = f"{name} has the {noun} {wrong}, and {kind} holds {limits.min} to {limits.max}{advice}"
            raise Unusable(text, url=url)
    return np.ascontiguousarray(found, kind)


def _refuse(sample: SourceSample, wanted: str, given: object) -> Unusable:
    name, url = sample.locate()
    got = f"{given.dtype} of shape {given.shape}" if isinstance(given, np.ndarray) else kind_of(given)
    return Unusable(f"the function must return {wanted}, got {got} for {name}", url=url)


def write_lines(outputs: Outputs, open_file: Callable[[str], ShardFile]) -> dict[str, Any]:
    """Write mappings as JSON lines."""
    starts, sizes, at = list[int](), list[int](), 0
    with open_file(".jsonl") as file:
        for sample, output in outputs:
            if not isinstance(output, dict):
                raise _refuse(sample, "a dict for each line", output)
            try:
                line = _as_json(output).encode() + b"\n"
            except (TypeError, ValueError, RecursionError) as error:
                name, url = sample.locate()
                raise Unusable(f"cannot write the output for {name} as JSON: {error}", url=url) from None
            file.write(line)
            starts.append(at)
            sizes.append(len(line))
            at += len(line)
    return {"files": {".jsonl": file.described}, "offsets": starts, "sizes": sizes}


def _as_plain(value: Any) -> Any:  # noqa: ANN401  any value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{kind_of(value)} is not JSON")


_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_as_plain).encode


def write_archive(outputs: Outputs, open_file: Callable[[str], ShardFile], form: str, part: int) -> dict[str, Any]:
    """Write mappings from fields to values as the samples of a shard of ``ps.pack``."""
    rows: Members
    chosen, fed = format_by("tar", (), {}), _Fed(outputs)
    if form == "mds":
        rows = _MdsRows(fed)
        chosen = MdsFormat(columns=rows.columns)
    else:
        rows = RowMembers(fed.rows(), chosen, f"{part:06d}", (KEY,))  # type: ignore[arg-type]  # tar is an archive
        if form == "parquet":
            chosen = format_by(form, (), {})
    shard = open_shard(chosen, rows, PackOptions(), ignore_progress)
    with closing(Coming(rows)) as coming, open_file(f".{form}") as file:
        try:
            shard.fill(file, coming, 0)  # type: ignore[arg-type]  # only its ``write`` is used
        except Unusable as error:
            error.url = error.url or fed.url
            raise
        if coming.peek() is not None:
            raise Unusable(f"the outputs of part {part} have more than {shard.size} bytes: pass a smaller part_bytes=")
    found = {"files": {f".{form}": file.described}, "offsets": shard.offsets, "sizes": shard.sizes}
    return found | ({"columns": chosen.columns} if isinstance(chosen, MdsFormat) else {})


class _Fed:
    """Outputs as rows; ``url`` is that of the last sample."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._sample: SourceSample | None = None

    @property
    def url(self) -> str:
        return "" if self._sample is None else self._sample.locate()[1]

    def rows(self) -> Generator[dict[str, Any]]:
        for sample, output in self._outputs:
            self._sample = sample
            if not isinstance(output, dict) or not all(isinstance(name, str) for name in output):
                raise _refuse(sample, "a dict from names of fields to values for each sample", output)
            yield dict(output)


class _MdsRows(RowMembers):
    """Rows of MDS; those of the first sample decide the columns."""

    def __init__(self, fed: _Fed) -> None:
        rows = fed.rows()
        first = next(rows)
        self.columns = columns_from({name: encoding_of(name, value) for name, value in first.items()})
        super().__init__(chain([first], rows), None, "", ())  # type: ignore[arg-type]  # rows of MDS have no names

    def _packable(self, number: int, row: dict[str, Any]) -> Packable:
        if further := row.keys() - {each.name for each in self.columns}:
            raise Unusable(f"the sample has the field {min(further)!r}, which the first sample of its part lacks")
        data = encoded_row(row, self.columns)
        return Packable(number, "", [make_member("", data)])
