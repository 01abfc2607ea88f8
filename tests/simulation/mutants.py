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
    ),
    "hedge-fits": Mutant(
        "a second request for fewer bytes completes a read that begins anew",
        "engine/read/spanread.py",
        "and twin.span.start - self.span.start <= self._reached",
        "",
    ),
    "resume-any": Mutant(
        "the rest of a body that broke off is read of any version",
        "engine/read/spanread.py",
        "        if got and self.span.etag and self.policy",
        "        if got and self.policy",
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
        "failure.attempt > most or failure.elapsed_s + wait_s > patience_s",
        "failure.attempt > most",
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
        "            headers |= self._conditions(create_only=attributes.create_only, replaces=attributes.replaces)\n",
        "",
        ("write", "delete"),
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
}


def check(name: str, seconds: float) -> str:
    """Return how many seeds it took to find a mutant, and what was seen; an empty text if it was not found."""
    mutant = MUTANTS[name]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "penstock"
        shutil.copytree(ROOT / "src" / "penstock", copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / mutant.file
        text = file.read_text("utf-8")
        if mutant.old not in text:
            raise LookupError(f"{name}: {mutant.file} has no {mutant.old!r}")
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
        found = check(name, 120.0)
        print(f"{name:20} {found or 'NOT FOUND'}", flush=True)
        missed += [] if found else [name]
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
