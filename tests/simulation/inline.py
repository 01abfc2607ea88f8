"""Thread pools without threads: what is submitted runs at once, for the clock of a simulation belongs to one thread."""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class InlinePool:
    """``ThreadPoolExecutor`` whose calls have ended when they were submitted; kills of the process pass through."""

    def __init__(self, *_how: object, **_named: object) -> None:
        """Ignore the number and name of threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing: all calls have ended."""

    def submit(self, do: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(do(*given, **named))
        except Exception as error:  # noqa: BLE001  for whoever asks for the result
            future.set_exception(error)
        return future

    def map(self, do: Callable[..., Any], *given: Any) -> Iterator[Any]:
        futures = [self.submit(do, *each) for each in zip(*given, strict=False)]
        return (each.result() for each in futures)

    def shutdown(self, **_how: object) -> None:
        """Do nothing: all calls have ended."""


@cache
def _holders(count: int) -> list[dict[str, Any]]:
    """Return the names of Penstock's modules that hold a thread pool; there are ``count`` modules."""
    del count
    found = [vars(module) for name, module in sorted(sys.modules.items()) if name.startswith("penstock.")]
    return [names for names in found if names.get("ThreadPoolExecutor") is ThreadPoolExecutor]


@contextmanager
def without_pools() -> Iterator[None]:
    """Let code of Penstock have no threads of pools until the block ends."""
    holders = _holders(len(sys.modules))
    for names in holders:
        names["ThreadPoolExecutor"] = InlinePool
    try:
        yield
    finally:
        for names in holders:
            names["ThreadPoolExecutor"] = ThreadPoolExecutor
