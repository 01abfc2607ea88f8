"""Options of foreign stores that have obspec's methods."""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import uuid4

from penstock.errors import ConfigError, Unusable, kind_of
from penstock.options.parts import StoreOptions
from penstock.stores.fsspec.store import sort_arguments

_METHODS = ("get", "head", "list")


class ForeignStore:
    """A store of another library, with the process that it is usable in.

    Equal if the stores are, credentials included. ``place`` identifies the store: a digest of the arguments that it is
    pickled with, without secrets, so that a cache knows it again; else a name that is used once.
    """

    __slots__ = ("pid", "place", "value")

    def __init__(self, value: Any) -> None:  # noqa: ANN401  obspec is a set of protocols
        self.value = value
        self.pid = os.getpid()
        self.place = _locate(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForeignStore):
            return False
        # The same place with other credentials is another store: an engine is shared by equal options.
        return self.value is other.value or (self.place == other.place and bool(self.value == other.value))

    def __hash__(self) -> int:
        return hash(type(self.value))

    def __reduce__(self) -> tuple[object, ...]:
        try:
            pickle.dumps(self.value)
        except Exception as error:
            name = type(self.value).__name__
            message = (
                f"{name} cannot be pickled, so no other process can use it: {error}; read in threads (num_workers=0)"
            )
            raise Unusable(message) from error
        return ForeignStore, (self.value,)


def _locate(store: Any) -> str:  # noqa: ANN401  likewise
    with suppress(Exception):  # classes raise errors of any kind
        # A copy of a store in memory has other objects, and is not equal.
        if store == pickle.loads(pickle.dumps(store)):  # noqa: S301  made here
            return sha256(pickle.dumps((type(store), sort_arguments(store.__reduce_ex__(4))))).hexdigest()
    return uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class ObspecOptions(StoreOptions):
    """A store of another library with obspec's methods, for ``obspec://name/key``: its paths are the keys.

    The bucket of the URL names the store in messages, and is your choice. Of the transport options, ``connections``
    applies: the calls at once, at most 64. A call that takes longer than ``RetryOptions.patience_s``, and a second for
    each MiB that it moves, ends with ``TimedOut``.

    Attributes:
        store: The store, such as ``obstore.store.S3Store(…)``. Counts as a secret.
        transport: HTTP options; all but ``connections`` are not used.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Resources shared with other processes of the machine.

    Example:
        >>> from obstore.store import MemoryStore
        >>> options = ps.ObspecOptions(store=MemoryStore())
        >>> with ps.open("obspec://scratch/notes.txt", "w", store=options) as file:
        ...     file.write("a")
        1
        >>> ps.open("obspec://scratch/notes.txt", store=options).read()
        b'a'
    """

    store: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        store: object = self.store
        if store is None or isinstance(store, ForeignStore):
            return
        missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
        if missing or isinstance(store, type):
            fault = "the class, not a store" if isinstance(store, type) else f"without {', '.join(missing)}"
            raise ConfigError(f"store must be an object with obspec's methods, got {kind_of(store)} ({fault})")
        object.__setattr__(self, "store", ForeignStore(store))
