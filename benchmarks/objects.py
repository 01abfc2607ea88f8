"""What is read and written: seeded objects in a folder, manifests that name them, digests to compare bodies with."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.environments import OURS, answer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BUCKET", "Load", "compare", "empty", "fill", "forget", "manifest"]

BUCKET = "bench"
_BLOCK_BYTES = 1 << 20
_PHOTOS = 16
_QUALITY = 92  # for 69 KiB
_SAMPLES = 40  # objects of a load whose bytes are compared; the length of every one is


@dataclass(frozen=True)
class Load:
    """``count`` objects of ``size`` bytes under ``name/``, or JPEG images, or Parquet files, of about that size.

    Or the chunks of an array of zarr's, each of ``size`` bytes before it is compressed; or samples of one, ``fields``
    being how many of them a chunk has, and a shard (0: no shards); or one state of tensors of
    ``size`` bytes in each of ``layouts``: names of ``peers/layouts.py``, the first a file. Or objects of about ``size``
    bytes, which are also in tar files of ``shards`` samples each (``peers/shards.py``), or in rows of Parquet
    files of ``rows`` each (``peers/rows.py``). Or pairs of an object of ``size`` bytes and one of ``beside``; ``count``
    are the objects of both kinds.
    """

    name: str
    size: int
    count: int
    photos: bool = False
    array: bool = False
    layouts: tuple[str, ...] = ()
    table: bool = False
    fields: tuple[int, int] = (0, 0)
    shards: int = 0
    rows: int = 0
    beside: int = 0

    def is_sample(self, number: int) -> bool:
        """Say whether an object's bytes are compared, and not its length alone."""
        return number % max(1, self.count // _SAMPLES) == 0

    @property
    def keys(self) -> list[str]:
        """Full keys, in order."""
        if self.array:
            return [f"{self.name}/c/{number}" for number in range(self.count)]
        if self.beside:
            return [f"{self.name}/{number // 2:06d}.{('jpg', 'json')[number % 2]}" for number in range(self.count)]
        return [f"{self.name}/{number:06d}.bin" for number in range(self.count)]


def fill(folder: Path, loads: list[Load]) -> None:
    """Write the loads as nginx serves them (``folder/data/bucket/key``), and digests of a sample of each."""
    for load in loads:
        if load.layouts:
            _fill_state(folder, load)
            continue
        if load.array:
            _fill_array(folder, load)
            continue
        if load.fields[0]:
            _fill_fields(folder, load)
            continue
        if load.shards or load.rows:
            _fill_shards(folder, load)
            continue
        digests = {}
        for number, key in enumerate(load.keys):
            path = folder / "data" / BUCKET / key
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = 0
            if load.table:
                answer(OURS, "table", [str(path), str(load.size)], f"writing {key}")
                continue
            with path.open("wb") as file:
                size = load.beside if load.beside and number % 2 else load.size
                for piece in _photo(number) if load.photos else _pieces(size, number):
                    file.write(piece)
                    digest = zlib.crc32(piece, digest)
            if load.is_sample(number):
                digests[key] = digest
        (folder / f"{load.name}.json").write_text(json.dumps(digests))


def _fill_array(folder: Path, load: Load) -> None:
    place = folder / "data" / BUCKET
    place.mkdir(parents=True, exist_ok=True)
    task = [str(place / load.name), str(load.size), str(load.count)]
    digests = answer(OURS, "chunks", task, f"writing {load.name}")
    for number, key in enumerate(load.keys):
        if load.is_sample(number):
            digests[key] = zlib.crc32((place / key).read_bytes())
    (folder / f"{load.name}.json").write_text(json.dumps(digests))


def _fill_fields(folder: Path, load: Load) -> None:
    place = folder / "data" / BUCKET
    place.mkdir(parents=True, exist_ok=True)
    numbers = [load.count, *load.fields, max(1, load.count // _SAMPLES)]
    task = [str(place / load.name), load.name, *map(str, numbers)]
    (folder / f"{load.name}.json").write_text(json.dumps(answer(OURS, "fields", task, f"writing {load.name}")))


def _fill_shards(folder: Path, load: Load) -> None:
    place = folder / "data" / BUCKET
    script, each = ("rows", load.rows) if load.rows else ("shards", load.shards)
    task = [str(place), load.name, str(load.size), str(load.count), str(each)]
    sizes = answer(OURS, script, task, f"writing {load.name}")
    digests = {
        key: zlib.crc32((place / key).read_bytes()) for number, key in enumerate(load.keys) if load.is_sample(number)
    }
    if len(sizes) != load.count:
        raise SystemExit(f"{load.name}: {len(sizes)} objects were written")
    (folder / f"{load.name}.json").write_text(json.dumps(digests))


def _fill_state(folder: Path, load: Load) -> None:
    place = folder / "data" / BUCKET / load.name
    place.mkdir(parents=True)
    described = answer(OURS, "layouts", [str(place), str(load.size), *load.layouts], f"writing {load.name}")
    digest = 0
    with (place.parent / load.keys[0]).open("rb") as file:
        while piece := file.read(_BLOCK_BYTES):
            digest = zlib.crc32(piece, digest)
    (folder / f"{load.name}.json").write_text(json.dumps({load.keys[0]: digest, **described}))


def empty(folder: Path, load: Load) -> None:
    """Remove a load: the RAM disk has not room for all of them at once."""
    shutil.rmtree(folder / "data" / BUCKET / load.name)


def _pieces(size: int, number: int) -> Iterator[bytes]:
    """Yield an object's bytes: no two objects, and no two MiB of one, are alike, so a mix-up shows."""
    block = _block()
    for start in range(0, size, _BLOCK_BYTES):
        head = f"{number}:{start}\n".encode()
        yield (head + block[len(head) :])[: size - start]


def _photo(number: int) -> Iterator[bytes]:
    """Yield one of a few images and, past its end where decoders do not look, its number."""
    yield _jpeg(number % _PHOTOS)
    yield str(number).encode()


@cache
def _jpeg(number: int) -> bytes:
    """Return a seeded image of 500 x 375 (ImageNet's usual size): blurred noise with some grain, 69 KB."""
    from PIL import Image, ImageFilter

    rng = random.Random(number)
    coarse = Image.frombytes("RGB", (50, 38), rng.randbytes(50 * 38 * 3)).resize((500, 375), Image.Resampling.BICUBIC)
    grain = Image.frombytes("RGB", (500, 375), rng.randbytes(500 * 375 * 3)).filter(ImageFilter.GaussianBlur(0.7))
    file = io.BytesIO()
    Image.blend(coarse, grain, 0.2).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


@cache
def _block() -> bytes:
    return random.Random(0).randbytes(_BLOCK_BYTES)


def compare(folder: Path, load: Load) -> None:
    """Compare what was written with the load's only object, or its state, part by part as they lie, and remove it.

    Raises:
        SystemExit: None was completed, or it has other bytes.
    """
    notes = [json.loads(path.read_text()) for path in (folder / "complete").iterdir()]
    if load.layouts:
        _compare_state(folder, load, notes)
    else:
        _compare_bytes(folder, load, notes)
    forget(folder)


def forget(folder: Path) -> None:
    """Remove what was written, whole or not."""
    for path in (folder / "complete").iterdir():
        path.unlink()
    shutil.rmtree(folder / "put", ignore_errors=True)


def _compare_bytes(folder: Path, load: Load, notes: list[dict[str, Any]]) -> None:
    digest = 0
    for part in (part for note in notes for part in note["parts"]):
        digest = zlib.crc32(Path(part).read_bytes(), digest)
    if len(notes) != 1 or [digest] != [*json.loads((folder / f"{load.name}.json").read_text()).values()]:
        message = f"{len(notes)} objects were completed, and their bytes are not those of {load.keys[0]}"
        raise SystemExit(message)


def _compare_state(folder: Path, load: Load, notes: list[dict[str, Any]]) -> None:
    """Put the objects together from their parts, and have whoever reads that layout read it from the disk."""
    with TemporaryDirectory(dir=folder) as name:
        for note in notes:
            path = Path(name + note["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            first, *rest = note["parts"]
            Path(first).rename(path)
            with path.open("ab") as whole:
                for part in rest:
                    with Path(part).open("rb") as file:
                        shutil.copyfileobj(file, whole, _BLOCK_BYTES)
                    Path(part).unlink()
        place = f"{name}/{BUCKET}/written/{load.name}"
        answer(
            OURS,
            "written",
            [place, str(folder / f"{load.name}.json")],
            f"{len(notes)} objects were completed: reading them",
        )


def manifest(folder: Path, load: Load, count: int) -> Path:
    """Write the first ``count`` keys with size and ETag, which is what a listing would tell; nginx's tags are known."""
    path = folder / f"{load.name}-{count}.csv"
    if not path.exists():
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("key", "size", "etag"))
            for key in load.keys[:count]:
                if load.fields[0]:  # what is counted is no object
                    rows.writerow((key, load.size, ""))
                    continue
                stat = (folder / "data" / BUCKET / key).stat()
                rows.writerow((key, stat.st_size, f"{int(stat.st_mtime):x}-{stat.st_size:x}"))
    return path
