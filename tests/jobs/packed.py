"""Trees to pack, and what archives hold by the standard library."""

import tarfile
import zipfile
from pathlib import Path

from pyarrow import parquet

from penstock.data.shards.registry import FORMATS

KINDS = [each for each in ("tar", "zip") if each in FORMATS]
EVERY = [*KINDS, "parquet"]


def members(path):
    """Return the names and bytes in an archive, by the standard library; or in a Parquet file, by pyarrow."""
    if path.suffix == ".parquet":
        return [pair for row in parquet.read_table(path).to_pylist() for pair in fields(row)]
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return [(each.filename, archive.read(each)) for each in archive.infolist()]
    with tarfile.open(path) as archive:
        return [(each.name, archive.extractfile(each).read()) for each in archive]


def fields(row):
    """Yield the names and bytes of the objects that are a row."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield value["path"], value["bytes"]
        elif name != "__key__" and value is not None:
            yield f"{row['__key__']}.{name}", value


def shards(folder):
    ends = (".tar", ".zip", ".mds", ".parquet")
    return sorted(each for each in Path(folder).glob("*") if each.suffix in ends)


def fill(folder, count=20):
    for number in range(count):
        for end in ("jpg", "cls"):
            path = folder / f"c{number % 3}" / f"{number:03}.{end}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"{end}{number}".encode() * number)
    return folder


def contents(folder):
    """Return the names and bytes of files, in the order of their names as UTF-8."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return [(name, paths[name].read_bytes()) for name in sorted(paths, key=str.encode)]
