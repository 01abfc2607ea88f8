"""The store of torch's process group, and results that one rank finds for all.

No rank waits for one that does not answer: there is no collective operation, and a rank that hears nothing finds the
result alone.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import threading
import zlib
from collections import Counter
from hashlib import sha256
from io import BytesIO
from logging import getLogger
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

from penstock.engine.waiting import Wakeup
from penstock.errors import PenstockError, TimedOut, Unreachable
from penstock.options import StoreOptions
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")
_LOG = getLogger("penstock")
# A value of torch's TCPStore has at most 8 MiB.
_PIECE_BYTES = 4 << 20
# Compressed; the first rank's memory holds it until all have read it.
_MOST_BYTES = 1 << 30
_BEAT_S, _SILENT_S = 2.0, 20.0
_FIRST_S, _EVERY_S = 0.01, 0.25


class GroupStore:
    """Store of a process group of several ranks, with a limit of time for each request."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401  torch's Store is untyped
        """Use ``store``, a ``torch.distributed.Store``, below a prefix of our own."""
        distributed = sys.modules["torch.distributed"]
        self._ours = distributed.PrefixStore("penstock", store)
        self._limit_s = store.timeout.total_seconds()
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()

    def ask(self, method: str, *given: Any) -> Any:  # noqa: ANN401  see __init__
        """Return the result of a method of torch's store; ``TimedOut`` or ``Unreachable`` if it does not answer."""
        answers: list[Any] = []
        answered = Wakeup()

        def call() -> None:
            try:
                answers.append(getattr(self._ours, method)(*given))
            except Exception as error:  # noqa: BLE001  passed to the caller
                answers.append(error)
            answered.set()

        # On a thread: a store that is stopped, but not dead, would block the call beyond the timeout and Ctrl-C.
        threading.Thread(target=call, name="penstock-group", daemon=True).start()
        if not answered.wait(self._limit_s):
            raise TimedOut(f"the process group's store did not answer within {self._limit_s:.0f} s")
        answer = answers[0]
        if isinstance(answer, RuntimeError):
            if "Not implemented" in str(answer):
                raise NotImplementedError
            raise Unreachable(f"lost the process group's store: {answer}") from answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def first(self, key: str, mine: str) -> str:
        """Return the text that the first rank wrote under ``key``; ``mine`` if this rank is the first."""
        return bytes(self.ask("compare_set", key, "", mine)).decode()


def torch_store() -> Any:  # noqa: ANN401  torch's Store is untyped
    """Return the default group's store; None without a group of several ranks, or if the parent process made it."""
    store = _default_store()
    return None if store is _inherited else store


def _default_store() -> Any:  # noqa: ANN401  see torch_store
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.distributed_c10d._get_default_store() if distributed.get_world_size() > 1 else None  # noqa: SLF001  the only way


# The store of the parent's group: its connection belongs to the parent.
_inherited: object = None


def _disown() -> None:
    global _inherited  # noqa: PLW0603  one per process
    _inherited = _default_store()


os.register_at_fork(after_in_child=_disown)

# By store: its number in this process, and the calls so far.
_calls: WeakKeyDictionary[Any, tuple[int, Counter[str]]] = WeakKeyDictionary()


# Schemes of stores that each machine, or each process, has for itself.
_OWN = {"file", "memory", "obspec"}
# Of a function in the options of a store: the address differs between processes.
_ADDRESS = re.compile(" at 0x[0-9a-f]+")


def is_own(urls: Sequence[str | os.PathLike[str]]) -> bool:
    """Return whether these are of a store that each machine or process has for itself, or invalid, by the first."""
    try:
        [place] = map(parse, urls[:1])
    except (PenstockError, ValueError):
        return True
    scheme = (place.store.target or place.url).partition("://")[0]
    return place.local or scheme in _OWN or scheme.startswith("fsspec+")


def share_result(
    call: str,
    arguments: object,
    make: Callable[[], _T],
    encode: Callable[[_T], bytes],
    decode: Callable[[bytes], _T],
) -> _T:
    """Return the result of ``make``, which one rank of the process group calls for all that make the same call.

    The n-th call of each rank with the same text ``call`` and equal ``arguments`` has one result: the first rank to
    come calls ``make``, and sends the result through the group's store, or its error, which all others raise. They make
    the call themselves if that rank is silent for 20 s, is interrupted, or cannot send the result. Without a group, in
    a child of its ranks, and with a store that cannot compare (MPI's), each calls ``make``; also with arguments that
    cannot be pickled: a lambda may hold values of its rank.
    """
    store = torch_store()
    if store is None:
        return make()
    try:
        call = f"{_ADDRESS.sub('', call)} {sha256(pickle.dumps(arguments)).hexdigest()}"
    except Exception:  # noqa: BLE001  of any class of the user's
        return make()
    number, calls = _calls.setdefault(store, (len(_calls), Counter()))
    key = f"shared/{number}/{sha256(call.encode('utf-8', 'surrogateescape')).hexdigest()}/{calls[call]}"
    calls[call] += 1
    group = GroupStore(store)
    try:
        chosen = int(group.first(f"{key}/rank", str(group.rank)))
        if chosen != group.rank:
            kind, data = _receive(group, key, call, chosen)
    except (TimedOut, Unreachable, NotImplementedError) as error:
        _LOG.debug("%s is not shared between ranks: %r", call, error)
        return make()
    if chosen == group.rank:
        return _make_for_all(group, key, make, encode)
    if kind == "error":
        # From a rank of this job, as in torch's own collectives.
        failure: PenstockError = pickle.loads(data)  # noqa: S301
        failure.add_note(f"on rank {chosen}, which did this for all {group.world}")
        raise failure
    return decode(data) if kind == "result" else make()


def share_named(given: object, store: object, call: str, arguments: object, make: Callable[[], _T]) -> _T:
    """Return what ``make`` finds for all that ``given`` names: by ``share_result``, if no name is of this machine.

    Names are URLs, in lists and dicts; with anything else among them, each rank calls ``make``. The result is pickled
    without the options ``store``, which may hold secrets: each rank puts its own in their place.
    """
    if torch_store() is None or any(not isinstance(each, str | os.PathLike) or is_own([each]) for each in _each(given)):
        return make()

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: object) -> bool | None:
            return True if value is store and isinstance(value, StoreOptions) else None

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, _pid: object) -> object:
            return store

    def pack(result: _T) -> bytes:
        Pickler(file := BytesIO()).dump(result)
        return file.getvalue()

    def unpack(data: bytes) -> _T:
        # From a rank of this job, as in torch's own collectives.
        return cast("_T", Unpickler(BytesIO(data)).load())

    return share_result(f"{call} {given!r} {store!r}", arguments, make, pack, unpack)


def _each(given: object) -> list[object]:
    # Other mappings are datasets or groups, and to list them may send requests.
    some = [*given.values()] if type(given) is dict else given
    return [name for each in some for name in _each(each)] if isinstance(some, list | tuple) else [some]


def _make_for_all(group: GroupStore, key: str, make: Callable[[], _T], encode: Callable[[_T], bytes]) -> _T:
    ended = Wakeup()

    def beat() -> None:
        while not ended.wait(_BEAT_S):
            try:
                group.ask("add", f"{key}/beat", 1)
            except Exception:  # noqa: BLE001  the others go on alone
                return

    threading.Thread(target=beat, name="penstock-beat", daemon=True).start()
    kind, data = "alone", b""
    try:
        result = make()
        kind, data = "result", encode(result)
    except PenstockError as error:
        if kind == "alone":
            kind, data = "error", pickle.dumps(error)
            raise
        kind = "alone"
        _LOG.warning("the other ranks find this for themselves: %s", error)
    finally:
        try:
            _send(group, key, kind, data)
        except (TimedOut, Unreachable) as error:
            _LOG.warning("the result of this rank cannot be sent to others, which find it for themselves: %s", error)
        ended.set()
    return result


def _send(group: GroupStore, key: str, kind: str, data: bytes) -> None:
    packed = zlib.compress(data, 1)
    if len(packed) > _MOST_BYTES:
        _LOG.warning(
            "a result of %d MiB is too large to be sent to other ranks, which find it for themselves: save a catalog "
            "with Catalog.save, and let all ranks open it",
            len(packed) >> 20,
        )
        kind, packed = "alone", zlib.compress(b"")
    starts = range(0, len(packed), _PIECE_BYTES)
    for number, start in enumerate(starts):
        piece = packed[start : start + _PIECE_BYTES]
        group.ask("set", f"{key}/{number}", piece)
    head = json.dumps({"kind": kind, "pieces": len(starts)})
    group.ask("set", f"{key}/done", head)


def _receive(group: GroupStore, key: str, call: str, chosen: int) -> tuple[str, bytes]:
    """Return the kind of result, and the bytes that ``_send`` was given."""
    beats, heard, pause_s = -1, monotonic(), _FIRST_S
    while not group.ask("check", [f"{key}/done"]):
        now = group.ask("add", f"{key}/beat", 0)
        if now != beats:
            beats, heard = now, monotonic()
        elif monotonic() - heard > _SILENT_S:
            _LOG.warning("rank %d is silent, so this rank finds alone: %s", chosen, call)
            return "alone", b""
        Wakeup().wait(pause_s)
        pause_s = min(2 * pause_s, _EVERY_S)
    head = json.loads(group.ask("get", f"{key}/done"))
    pieces = [group.ask("get", f"{key}/{number}") for number in range(head["pieces"])]
    if group.ask("add", f"{key}/read", 1) == group.world - 1:
        for number in range(head["pieces"]):
            group.ask("delete_key", f"{key}/{number}")
    return head["kind"], zlib.decompress(b"".join(pieces))
