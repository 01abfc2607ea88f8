"""Uploads and downloads of one or many files, and synchronization of trees."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from penstock.compat.multistorageclient.types import DryrunResult, PatternType, SyncResult, convert_metadata, refuse
from penstock.errors import Unusable
from penstock.jobs.syncing.job import sync
from penstock.values import ObjectMeta
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.compat.multistorageclient.types import PatternList
    from penstock.options import StoreOptions

_PIECE_BYTES = 8 << 20
_HIDDEN = (".***", "***/.***")


def send_object(
    url: str, file: str | os.PathLike[str] | IO[Any], attributes: Mapping[str, Any] | None, store: StoreOptions | None
) -> None:
    """Write a file, or the rest of an open one, as an object, atomically. Raise ``FileNotFoundError`` if missing."""
    if isinstance(file, str | os.PathLike):
        with open(file, "rb") as reader:  # noqa: PTH123  the caller's name
            send_object(url, reader, attributes, store)
        return
    with open_object(url, "wb", metadata=attributes or None, store=store) as writer:
        while piece := file.read(_PIECE_BYTES):
            writer.write(piece.encode() if isinstance(piece, str) else piece)


def fetch_object(url: str, file: str | os.PathLike[str] | IO[Any], store: StoreOptions | None) -> None:
    """Write an object to a file, which appears when complete, or to an open file. Raise ``NotFound`` if missing."""
    with open_object(url, store=store) as reader:
        if not isinstance(file, str | os.PathLike):
            shutil.copyfileobj(reader, file, _PIECE_BYTES)
            return
        with open_object(os.path.abspath(file), "wb") as writer:  # noqa: PTH100  as above
            shutil.copyfileobj(reader, writer, _PIECE_BYTES)


def each(transfer: Callable[..., None], *arguments: Sequence[Any], workers: int) -> None:
    """Run transfers, ``workers`` at once. Raise the first failure, in order, after all have ended."""
    if len({len(sequence) for sequence in arguments}) > 1:
        raise Unusable(f"numbers of paths must be equal, got {', '.join(str(len(each)) for each in arguments)}")
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for ended in [pool.submit(transfer, *words) for words in zip(*arguments, strict=True)]:
            ended.result()


def chosen_by(patterns: PatternList | None, *, ignore_hidden: bool) -> dict[str, list[str]]:
    """Return ``include`` and ``exclude`` of ``ps.sync`` for ordered patterns of ``fnmatch``."""
    kinds = [kind for kind, _ in patterns or ()]
    if kinds != sorted(kinds, key=lambda kind: kind is PatternType.EXCLUDE):
        refuse("an include after an exclude in sync", "pass source_files to sync_from, of client.list(…, patterns=…)")
    globs = {
        kind: [glob.replace("*", "***") for each_kind, glob in patterns or () if each_kind is kind]
        for kind in PatternType
    }
    excluded = globs[PatternType.EXCLUDE]
    included = [] if excluded else globs[PatternType.INCLUDE]
    return {"include": included, "exclude": [*excluded, *(_HIDDEN if ignore_hidden else ())]}


def sync_folders(
    source: str, target: str, chosen: dict[str, list[str]], *, delete: bool, dry_run: bool, output: str | None
) -> SyncResult:
    """Make the objects below ``target`` equal to those below ``source``. Raise the errors of ``ps.sync``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        report = Path(folder, "report.jsonl")
        found = sync(
            _add_slash(source),
            _add_slash(target),
            delete=delete,
            include=chosen["include"],
            exclude=chosen["exclude"],
            dry_run=dry_run,
            report=report,
        )
        lines = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
    done = [line for line in lines if line["status"] in ("copied", "deleted", "planned")]
    added, deleted = ([line for line in done if bool(line["source"]) is copied] for copied in (True, False))
    return SyncResult(
        total_work_units=len(done) + found.unchanged,
        total_files_added=len(added),
        total_files_deleted=len(deleted),
        total_bytes_added=sum(line["size"] for line in added),
        total_bytes_deleted=sum(line["size"] for line in deleted),
        total_time_seconds=time.monotonic() - began,
        dryrun=_write_dryrun(added, deleted, source, target, output) if dry_run else None,
    )


def _write_dryrun(added: list[Any], deleted: list[Any], source: str, target: str, output: str | None) -> DryrunResult:
    """Write the result of a dry run as JSON lines, in a folder that the caller must delete."""
    folder = Path(tempfile.mkdtemp(prefix="msc-dryrun-") if output is None else output)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, lines, side, base in (
        ("files_to_add", added, "source", _add_slash(source)),
        ("files_to_delete", deleted, "dest", _add_slash(target)),
    ):
        known = [convert_metadata(ObjectMeta("", line["size"]), line[side].removeprefix(base)) for line in lines]
        path = folder / f"{name}.jsonl"
        path.write_text("".join(f"{json.dumps(one.to_dict())}\n" for one in known), "utf-8")
        paths.append(str(path))
    return DryrunResult(*paths)


def _add_slash(url: str) -> str:
    return url if url.endswith("/") else f"{url}/"
