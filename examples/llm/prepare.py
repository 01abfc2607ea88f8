"""Text of this machine's Python in a bucket, a tokenizer for it, and its tokens."""

from __future__ import annotations

import ast
import json
import sysconfig
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock as ps

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTH, VOCABULARY = 256, 2048
SOURCES = ("manual", "notes", "code")
_MOST_BYTES = 1_200_000  # of a source
_HELD_OUT = 20  # every so many documents: for validation


def _manual() -> Iterator[str]:
    """Yield paragraphs of Python's language reference, which ``help()`` shows."""
    for name in sorted(topics):
        yield from topics[name].split("\n\n")


def _code() -> Iterator[str]:
    """Yield modules of the standard library, most of them longer than a row."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield path.read_text("utf-8", errors="replace")


def _notes() -> Iterator[str]:
    """Yield functions of the standard library with their docstrings: short documents."""
    for text in _code():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (note := ast.get_docstring(node)):
                yield f"def {node.name}({', '.join(each.arg for each in node.args.args)})\n{note}"


def _texts(name: str) -> Iterator[str]:
    size = 0
    for text in {"manual": _manual, "notes": _notes, "code": _code}[name]():
        size += len(text)
        if size > _MOST_BYTES:
            return
        if text.strip():
            yield text


def upload(url: str) -> dict[str, int]:
    """Write the texts of each source as JSON lines below ``raw/``; return the number of documents."""
    counts = {}
    for name in SOURCES:
        with ps.open(f"{url}raw/{name}/0.jsonl", "w") as train, ps.open(f"{url}raw/valid/{name}.jsonl", "w") as valid:
            number = -1
            for number, text in enumerate(_texts(name)):
                file = train if number % _HELD_OUT else valid
                file.write(json.dumps({"text": text}) + "\n")
        counts[name] = number + 1
    return counts


def make_tokenizer(url: str) -> str:
    """Train a tokenizer on the texts, keep it in the bucket, and return its digest."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((text for name in SOURCES for text in islice(_texts(name), 400)), trainer)
    text = tokenizer.to_str()
    with ps.open(f"{url}tokenizer.json", "w") as file:
        file.write(text)
    return sha256(text.encode()).hexdigest()[:16]


class Tokenise:
    """Function of a map from a JSON line with ``text`` to its tokens and the end of the document."""

    def __init__(self, url: str) -> None:
        self.url = url

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        with ps.open(self.url, "r") as file:
            return Tokenizer.from_str(file.read())

    def __call__(self, line: dict[str, str]) -> np.ndarray:
        return np.array([*self._tokenizer.encode(line["text"]).ids, 0], np.uint16)


def tokenise(url: str, version: str, processes: int) -> dict[str, ps.MapDone]:
    """Map the texts to tokens; a call that was interrupted goes on where it stopped."""
    function = Tokenise(f"{url}tokenizer.json")
    return {
        name: ps.map(
            f"{url}raw/{name}/*.jsonl", function, f"{url}tokens/{name}/", format="tokens", dtype="uint16",
            version=version, processes=processes, part_bytes=256 << 10, progress=False,
        )
        for name in (*SOURCES, "valid")
    }  # fmt: skip


def plan_rows(url: str) -> dict[str, ps.TokenDataset]:
    """Plan the packed rows of each source once, so that no rank reads an index; return the rows."""
    for name in (*SOURCES, "valid"):
        ps.index(f"{url}tokens/{name}/", f"{url}plans/{name}", format="packing", length=LENGTH, progress=False)
    return {name: open_rows(url, name) for name in SOURCES}


def open_rows(url: str, name: str) -> ps.TokenDataset:
    """Return the documents of a source, packed into rows."""
    tokens, plan = f"{url}tokens/{name}/", f"{url}plans/{name}"
    return ps.TokenDataset.from_shards(tokens, length=LENGTH, pack="best-fit", plan=plan)
