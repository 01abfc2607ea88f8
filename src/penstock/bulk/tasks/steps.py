"""What the work on one object awaits: verbs of a store, and functions that block.

The work is a coroutine; ``tasks.pool`` carries many out at once, on one thread, without an event loop.
"""

from __future__ import annotations

from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from penstock.events import Committed, emit, listening
from penstock.protocols.driver import Attributes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping

    from penstock.source import Source
    from penstock.values import ObjectMeta, Span

    Task = Coroutine["Step[Any]", Any, "T"]

__all__ = ["Step", "blocking", "copy", "delete", "head", "put", "read"]

P = ParamSpec("P")
T = TypeVar("T")

_RESULT: Callable[[Any], Any] = methodcaller("result")


class Step(Generic[T]):
    """One thing that a task waits for; awaiting it returns what it brings, or raises what went wrong.

    Attributes:
        source: The store that is asked; None where a function is called instead.
        begin: Prepares the verb and returns it, or calls the function.
        take: Returns the result of what ``begin`` has returned, once complete.

    """

    __slots__ = ("begin", "source", "take")

    def __init__(self, source: Source | None, begin: Callable[..., Any], take: Callable[[Any], T]) -> None:
        self.source = source
        self.begin = begin
        self.take = take

    def __await__(self) -> Generator[Step[T], T, T]:
        """Hand itself to what carries the task out, and return what comes of it."""
        return (yield self)


def head(source: Source, key: str) -> Step[ObjectMeta]:
    """Describe an object: one request."""
    return Step(source, lambda calls: calls.head(key), _RESULT)


def read(source: Source, span: Span) -> Step[bytes]:
    """Read a span, verified: one request."""
    return Step(source, lambda calls: calls.read(span), methodcaller("take"))


def delete(source: Source, key: str) -> Step[None]:
    """Delete an object: one request; a missing one is no error."""
    return Step(source, lambda calls: calls.delete(key), _RESULT)


def copy(source: Source, meta: ObjectMeta, to: str) -> Step[str]:
    """Copy an object within its bucket: one request, which not every store takes (``Unsupported``)."""
    return Step(source, lambda calls: calls.copy(meta, to), _RESULT)


async def put(source: Source, key: str, data: bytes, *, metadata: Mapping[str, str], content_type: str) -> str:
    """Write an object as ``Source.put`` does: one request; returns its ETag."""
    attributes = Attributes(content_type or source.options.write.content_type, metadata)
    etag: str = await Step(source, lambda calls: calls.put(key, data, attributes), _RESULT)
    if listening():
        emit(Committed(source.url(key), len(data), etag))
    return etag


def blocking(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Awaitable[T]:
    """Call a function that blocks, on a thread of the pool's."""
    return Step(None, partial(function, *args, **options), _RESULT)
