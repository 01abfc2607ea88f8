"""Faults to plant in Penstock, one at a time, that the simulation must find: ``python -m tests.simulation.mutants``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: in ``file``, ``old`` becomes ``new``. ``only`` are operations that show it soonest; none: all."""

    about: str
    file: str
    old: str
    new: str
    only: tuple[str, ...] = ()


MUTANTS = {
    "hedge-version": Mutant(
        "a second request that wins does not name its version",
        "engine/read/hedging.py",
        "        response.version = twin.version\n",
        "        pass\n",
        ("read_span", "pinned"),
    ),
    # The guard of ``fits`` against a read that has begun anew holds only for answers of one cycle of the loop: a store
    # that has just ignored a range is asked for the whole object, and no request is in flight then.
    "hedge-place": Mutant(
        "the bytes of a second request are stored at the offset that the first one has reached",
        "engine/read/spanread.py",
        "target.slice(target.size - twin.size_bytes, target.size).fill(",
        "target.slice(self._reached, target.size).fill(",
        ("pinned",),
    ),
    "resume-any": Mutant(
        "the rest of a body that broke off is read of any version",
        "engine/read/spanread.py",
        "        if got and self.span.etag and self.policy",
        "        if got and self.policy",
        ("read_span", "read_many"),
    ),
    "resume-unpinned": Mutant(
        "the rest of a body is requested without its version",
        "engine/read/spanread.py",
        "            span = Span(span.key, span.start + self._reached, span.stop, span.etag)\n            target",
        "            span = Span(span.key, span.start + self._reached, span.stop)\n            target",
    ),
    "mixed-spans": Mutant(
        "spans of one object that are read together may be of several versions",
        "source.py",
        "            for error in self.find_changes(reads).values():\n                raise error\n",
        "",
        ("read_many",),
    ),
    "version-unchecked": Mutant(
        "an answer may be of another version than the one that was asked for",
        "stores/http/verify.py",
        "        elif headers.get(self.version) != f'\"{etag}\"':\n            self.same_version(headers, etag)\n",
        "",
    ),
    "range-unchecked": Mutant(
        "an answer may hold another range",
        "stores/http/verify.py",
        "                _same_range(response, span.start, span.start + buffer.size, span.most)\n",
        "                pass\n",
    ),
    "cache-name": Mutant(
        "entries of the cache are named without their version",
        "engine/cache/layer.py",
        "return self._namer.name(self._place.base + key, etag, part)",
        'return self._namer.name(self._place.base + key, "", part)',
    ),
    "patience": Mutant(
        "patience does not end retries",
        "engine/operations/policy.py",
        "    if given_up or failure.elapsed_s + wait_s > patience_s:",
        "    if given_up:",
    ),
    "impatience": Mutant(
        "a store that fails for a second is given up",
        "engine/operations/policy.py",
        "failure.elapsed_s + wait_s > patience_s",
        "failure.elapsed_s + wait_s > 1.0",
    ),
    "lost-answer": Mutant(
        "a write whose answer was lost is not recognised by its mark",
        "engine/write/publish.py",
        "            return self._is_ours(self._head(limit_s))\n",
        "            return False\n",
    ),
    "unconditional": Mutant(
        "a conditional write is sent without its condition",
        "stores/s3/driver.py",
        "(create_only=attributes.create_only, replaces=attributes.replaces)\n        action",
        '(create_only=False, replaces="")\n        action',
        ("write",),
    ),
    "given-up": Mutant(
        "a file is published although its block raised",
        "engine/write/upload.py",
        "        if kind is not None:\n            self._abort(error)\n        elif self._state",
        "        if self._state",
        ("write",),
    ),
    "record-first": Mutant(
        "the record of a part is written before the part is done",
        "jobs/parts/operation.py",
        "    try:\n        error = operation.work(part, record, means)\n",
        "    means.records.write(record)\n    try:\n        error = operation.work(part, record, means)\n",
        ("job",),
    ),
    "manifest-first": Mutant(
        "the latest step is any folder, whether it was committed or not",
        "checkpoint/run/store.py",
        "(step for step in reversed(folders) if self._committed(step))",
        "(step for step in reversed(folders))",
        ("checkpoint",),
    ),
    "closed-handled": Mutant(
        "a file that is closed while an error is handled publishes nothing",
        "engine/write/upload.py",
        '        return error if kind == "finally" else None\n',
        "        return error\n",
        ("files",),
    ),
    "interrupted": Mutant(
        "a request goes on after Ctrl-C",
        "engine/fetch/fetcher.py",
        "        except BaseException as error:\n            if self.call_off",
        "        except Exception as error:\n            if self.call_off",
        ("files",),
    ),
    "upload-left": Mutant(
        "the upload of a file that was dropped is left to the store",
        "engine/write/upload.py",
        "        leaving = self._parts.abort() if self._pid == os.getpid() else None\n",
        "        leaving = None if self._untold or sys.exception() is None else self._parts.abort()\n",
        ("files",),
    ),
    "slots": Mutant(
        "the ETags of parts are kept in the order in which the parts arrived",
        "engine/write/parts.py",
        "self.etags[sent.part.number - 1] = sent",
        'self.etags[self.etags.index("")] = sent',
        ("write", "files"),
    ),
    "completed-twice": Mutant(
        "an upload whose completion was not answered counts as missing",
        "engine/write/publish.py",
        "PreconditionFailed, Damaged, NotFound, Transient, Unusable) as error:",
        "PreconditionFailed, Damaged, Transient, Unusable) as error:",
        ("write", "files"),
    ),
    "catalog-by-url": Mutant(
        "a catalog to compare with is looked up once, by its URL",
        "jobs/syncing/verify.py",
        "def _version(against: str, store: StoreOptions | str) -> str:\n",
        "@lru_cache(maxsize=1)\ndef _version(against: str, store: StoreOptions | str) -> str:\n",
        ("verifies",),
    ),
    "verify-records": Mutant(
        "the records of a comparison do not tell of which catalog they are",
        "jobs/syncing/verify.py",
        '        return {"version": self.version}\n',
        "        return {}\n",
        ("verifies",),
    ),
    "pack-labels": Mutant(
        "the digest of a pack leaves out labels and columns",
        "jobs/packing/pack.py",
        "options.bytes, members.digest, members.values_digest()]",
        "options.bytes, members.digest]",
        ("packs",),
    ),
    "pack-overwrite": Mutant(
        "a pack that is to be written anew takes shards of before",
        "jobs/packing/pack.py",
        "record = (None if there.overwrite else self._known(name, at)) or",
        "record = self._known(name, at) or",
        ("packs",),
    ),
    "pack-size": Mutant(
        "objects that are packed are told by name and size",
        "jobs/packing/members.py",
        "json.dumps([name, span.start, int(self._sizes[row]), self._etags.get(row, span.etag)])",
        "json.dumps([name, span.start, int(self._sizes[row])])",
        ("packs",),
    ),
    "journal-globs": Mutant(
        "an interrupted index is continued with the globs of another call",
        "jobs/index.py",
        ', "include": [*include], "exclude": [*exclude]}',
        "}",
        ("indexes",),
    ),
    "journal-ahead": Mutant(
        "the journal of an index says of a range that it was listed once its first page came",
        "data/catalog/discovery/scan.py",
        "until, seen = piece.until if piece.over else piece.last, (",
        "until, seen = piece.until, (",
        ("indexes",),
    ),
    "part-failed": Mutant(
        "a part of a job with objects that failed counts as done",
        "jobs/parts/records.py",
        "        name = self._name(_FAILED if record.failed else _DONE, record.part)\n",
        "        name = self._name(_DONE, record.part)\n",
        ("job",),
    ),
    "sync-size": Mutant(
        "objects of one size are the same to a sync that compares contents",
        "jobs/copying/evidence.py",
        '        return "other" if mine and its else "unsure"\n',
        '        return "other" if mine and its else "same"\n',
        ("syncs",),
    ),
    "delete-early": Mutant(
        "a sync deletes although some of its copies failed",
        "jobs/syncing/sync.py",
        "                whole = whole and outcome.error is None\n            if self._surplus",
        "                whole = whole and outcome.error is not None\n            if self._surplus",
        ("syncs",),
    ),
    "cached-unseen": Mutant(
        "bytes are kept in the cache before it is known that they arrived",
        "engine/cache/layer.py",
        "            try:\n                each.read.check()\n            except Changed:",
        "            if self._target is not None:\n"
        "                low = max(0, each.request.span.start - self._start)\n"
        "                self._keep(each, self._target.view()[low : low + each.read.size_bytes])\n"
        "            try:\n                each.read.check()\n            except Changed:",
        ("read_file", "read_many"),
    ),
    "window-unpinned": Mutant(
        "a window of tokens is read of any version",
        "data/tokens/windows.py",
        "        return Span(self.keys[file], start, stop, self._etags[file])\n",
        "        return Span(self.keys[file], start, stop)\n",
        ("tokens",),
    ),
    "suffix-hedge": Mutant(
        "a second request for the end of an object that wins reports the version that was asked for: none",
        "engine/read/openread.py",
        '        self._superseded()\n        return self._answer_of(cast("Self", twin))',
        "        self._superseded()\n        twin.version = self._wanted.etag\n"
        '        return self._answer_of(cast("Self", twin))',
        ("read_span",),
    ),
    "span-version": Mutant(
        "a read of a span reports the version that was asked for, not the one that came",
        "engine/read/spanread.py",
        "        self.version = self.span.etag or response.version\n",
        "        self.version = self.span.etag\n",
        ("zarr_start",),
    ),
    "ttl-index": Mutant(
        "a cache of the mode ttl gives parts of an object without their version, beside fresh ones",
        "engine/cache/layer.py",
        "            return self._held(span, hit.data, buffer, hit.version)\n        if pin and not _is_whole(span):\n"
        "            return self._read(span._replace(etag=pin), buffer, owner)\n",
        "            return self._held(span, hit.data, buffer)\n",
        ("zarr_end", "zarr_start"),
    ),
    "shard-unpinned": Mutant(
        "chunks of a shard are read in any version",
        "data/zarr/chunks/contents.py",
        "            span = chunk_span(layout, place, index.entries, index.etag)\n",
        "            span = chunk_span(layout, place, index.entries)\n",
        ("zarr_end", "zarr_start"),
    ),
    "saved-statistics": Mutant(
        "saved statistics are used although chunks were written anew",
        "data/zarr/statistics/gathering.py",
        "if not now.versions or found.versions != now.versions:",
        "if not now.versions:",
        ("zarr_statistics",),
    ),
    "rewritten-statistics": Mutant(
        "statistics do not compare the versions of chunks again at their end",
        "data/zarr/statistics/gathering.py",
        "    if versions is not None and done > begun:\n        check_versions(contents, chunks, versions)\n",
        "",
        ("zarr_statistics",),
    ),
    "row-group-unpinned": Mutant(
        "only the last ranges of a row group, its footer, are read in the version that was indexed",
        "data/catalog/columns/units.py",
        "merged.append(Span(key, start, stop, etag))",
        'merged.append(Span(key, start, stop, etag if merged else ""))',
        ("tables",),
    ),
    "footer-unpinned": Mutant(
        "the footer of a row group is read in any version",
        "data/catalog/columns/units.py",
        "merged.append(Span(key, start, stop, etag))",
        'merged.append(Span(key, start, stop, "" if merged else etag))',
        ("tables",),
    ),
    "retry-after": Mutant(
        "a Retry-After beyond the patience is waited for",
        "engine/operations/policy.py",
        "failure.elapsed_s + wait_s > patience_s",
        "failure.elapsed_s + min(wait_s, options.cap_s) > patience_s",
    ),
    "page-twice": Mutant(
        "a page of a listing is requested again while its request is in flight",
        "engine/listing/keyspace.py",
        "len(part.pages) < _QUOTA and id(part) not in flying:",
        "len(part.pages) < _QUOTA:",
        ("pages",),
    ),
}


def check(name: str, seconds: float) -> str:
    """Return how many seeds it took to find a mutant, and what was seen; an empty text if it was not found."""
    mutant = MUTANTS[name]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "penstock"
        shutil.copytree(ROOT / "src" / "penstock", copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / mutant.file
        text = file.read_text("utf-8")
        if text.count(mutant.old) != 1:
            raise LookupError(f"{name}: {mutant.file} has {text.count(mutant.old)} of {mutant.old!r}")
        file.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        command = [sys.executable, "-m", "tests.simulation", "1", "--seconds", str(seconds), "--first"]
        command += ["--only", *mutant.only] if mutant.only else []
        environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"^(\d+) seeds.*", ran.stdout, re.MULTILINE)
    words = re.findall(r"^tests\.simulation\.\S+: (.*)$", ran.stdout, re.MULTILINE)
    return f"{found[1]} seeds: {words[-1][:110]}" if found and words and ran.returncode else ""


def main() -> int:
    """Plant each mutant, or those that are named; print what found it."""
    missed = []
    for name in sys.argv[1:] or MUTANTS:
        found = check(name, 300.0)
        print(f"{name:20} {found or 'NOT FOUND'}", flush=True)
        missed += [] if found else [name]
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
