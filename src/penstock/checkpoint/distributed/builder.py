"""Makes what torch writes into ``.metadata`` of what its pickle tells: of known classes, and in bounded memory."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Sized
from importlib import import_module
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from penstock.checkpoint.torchfile.scanner import Call, Name, Pairs, PickleScan

__all__ = ["build"]

_METADATA = "torch.distributed.checkpoint.metadata"
_SHARDS = "torch.distributed._shard.sharded_tensor.metadata"  # where torch had these before 2.3
_KNOWN = {
    *(
        (_METADATA, name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    *((_SHARDS, name) for name in ("TensorProperties", "MEM_FORMAT_ENCODING")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),  # a table of torch.strided and its like
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    *((module, "PosixPath") for module in ("pathlib", "pathlib._local")),
}
_ATOMS = (type(None), bool, int, float, str, bytes)
_HASHING = (set, frozenset, OrderedDict)
_MOST_DEEP = 50  # torch's own is seven deep
_COPIES = 4  # an element, each at least a byte of the pickle, stands in so many things that are made of it


def build(data: bytes) -> Any:  # noqa: ANN401  whatever a pickle makes
    """Return what a pickle makes.

    Raises:
        pickle.UnpicklingError: It is damaged, or names what torch does not write there.
        Exception: What its classes raise at what they are given.

    """
    return _Builder(len(data)).built(PickleScan(data).result, 0)


class _Builder:
    """Makes each thing once. Copies are counted: a few bytes of a pickle may ask for one of all that came before."""

    def __init__(self, size: int) -> None:
        self._left = _COPIES * size
        self._made: dict[int, Any] = {}

    def built(self, thing: Any, depth: int) -> Any:  # noqa: ANN401  see build
        if type(thing) in _ATOMS:
            return thing
        if isinstance(thing, Name):
            return _found(thing)
        if id(thing) not in self._made:
            if depth > _MOST_DEEP:
                raise pickle.UnpicklingError("it is nested deeper than torch's")
            self._made[id(thing)] = self._new(thing, depth + 1)
        return self._made[id(thing)]

    def _new(self, thing: Any, depth: int) -> Any:  # noqa: ANN401  see build
        if isinstance(thing, Call):
            return self._object(thing, depth)
        self._count(thing)
        if isinstance(thing, Pairs):
            return {self._hashable(self.built(key, depth)): self.built(value, depth) for key, value in thing}
        return type(thing)(self.built(each, depth) for each in thing)

    def _object(self, made: Call, depth: int) -> Any:  # noqa: ANN401  see build
        if not isinstance(made.by, Name):
            raise pickle.UnpicklingError("it calls what has no name")
        kind, args = _found(made.by), self.built(made.args, depth)
        for each in args:
            self._count(each)
            if kind in _HASHING:
                list(map(self._hashable, each))
        thing = kind.__new__(kind, *args) if made.new else kind(*args)
        if made.content is not None:
            content = self.built(made.content, depth)
            thing.update(content if isinstance(content, dict) else map(self._hashable, content))
        if made.state is not None:
            state = self.built(made.state, depth)
            self._count(state)
            thing.__setstate__(state) if hasattr(thing, "__setstate__") else thing.__dict__.update(state)
        return thing

    def _hashable(self, key: Any) -> Any:  # noqa: ANN401  see build
        """Let keys pass whose hash costs what it seems to."""
        if type(key) is MetadataIndex and type(key.fqn) is str and type(key.offset) in (torch.Size, type(None)):
            self._count(key.offset)
        elif type(key) not in _ATOMS:
            raise pickle.UnpicklingError(f"it has a {type(key).__name__} for a key")
        return key

    def _count(self, thing: object) -> None:
        """Count what is about to be copied, or hashed."""
        self._left -= len(thing) if isinstance(thing, Sized) else 1
        if self._left < 0:
            raise pickle.UnpicklingError("it makes more than it holds")


def _found(name: Name) -> Any:  # noqa: ANN401  a class, a function or a dtype
    dtype = getattr(torch, name.name, None) if name.module == "torch" else None
    if isinstance(dtype, torch.dtype):
        return dtype
    if tuple(name) in _KNOWN:
        return getattr(import_module(name.module), name.name)
    raise pickle.UnpicklingError(
        f"it names {'.'.join(name):.80}, which torch does not write there: for a checkpoint that you trust pass "
        "weights_only=False, which runs whatever it names"
    )
