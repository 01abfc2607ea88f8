"""Steps that the work on one object awaits: verbs of a store, and blocking functions.

The work is a coroutine; ``jobs.pool`` runs many at once, on one thread, without an event loop.
"""

from __future__ import annotations

from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from penstock.engine.contracts.driver import Attributes
from penstock.events import Committed, emit, listening

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping

    from penstock.source import Source
    from penstock.values import ObjectMeta, Span

    Task = Coroutine["TaskStep[Any]", Any, "T"]

P = ParamSpec("P")
T = TypeVar("T")

_RESULT: Callable[[Any], Any] = methodcaller("result")


class TaskStep(Generic[T]):
    """Step of a task; awaiting it returns its result or raises its error.

    Attributes:
        source: Store that gets the request; None if a function is called instead.
        begin: Prepares the request and returns it, or calls the function.
        take: Returns the result of the completed request or call.

    """

    __slots__ = ("begin", "source", "take")

    def __init__(self, source: Source | None, begin: Callable[..., Any], take: Callable[[Any], T]) -> None:
        self.source = source
        self.begin = begin
        self.take = take

    def __await__(self) -> Generator[TaskStep[T], T, T]:
        """Yield this step to the runner of the task, and return its result."""
        return (yield self)


def head(source: Source, key: str, *, sums: bool = False) -> TaskStep[ObjectMeta]:
    """Describe an object, with ``sums`` also its checksum if the store reports one: one request."""
    return TaskStep(source, lambda calls: calls.head_summed(key) if sums else calls.head(key), _RESULT)


def read(source: Source, span: Span) -> TaskStep[bytes]:
    """Read and verify a span: one request."""
    return TaskStep(source, lambda calls: calls.read(span), methodcaller("take"))


def delete(source: Source, key: str) -> TaskStep[None]:
    """Delete an object: one request; a missing object is not an error."""
    return TaskStep(source, lambda calls: calls.delete(key), _RESULT)


def copy(source: Source, meta: ObjectMeta, to: str) -> TaskStep[str]:
    """Copy an object within its bucket: one request, which some stores do not support (``Unsupported``)."""
    return TaskStep(source, lambda calls: calls.copy(meta, to), _RESULT)


async def put(source: Source, key: str, data: bytes, *, metadata: Mapping[str, str], content_type: str) -> str:
    """Write an object as ``Source.put`` does: one request; returns its ETag."""
    attributes = Attributes(content_type or source.options.write.content_type, metadata)
    etag: str = await TaskStep(source, lambda calls: calls.put(key, data, attributes), _RESULT)
    if listening():
        emit(Committed(source.url(key), len(data), etag))
    return etag


def run_blocking(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Awaitable[T]:
    """Call a blocking function on a thread of the pool."""
    return TaskStep(None, partial(function, *args, **options), _RESULT)
