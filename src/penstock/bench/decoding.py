"""Decoding steps: the user's transform on objects that are in memory, in one thread and in several."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from itertools import cycle, islice
from threading import Thread
from typing import TYPE_CHECKING, Any

from penstock.bench.result import step
from penstock.datasets.sample import Sample
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.bench.result import Result
    from penstock.values import Span

    Transform = Callable[[Sample], Any]

__all__ = ["decoding", "named"]

_MOST_THREADS = 16  # as a loader's


def named(name: str) -> Transform:
    """Return the function that ``module:name`` names; modules of the working directory are found, too.

    Raises:
        Unusable: There is no such module, or nothing in it of this name that can be called.

    """
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise Unusable(f"a transform is written module:name, as in train:decode, not {name!r}")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  a string
    try:
        found: Any = import_module(module)
        for each in path.split("."):
            found = getattr(found, each)
    except Exception as error:
        raise Unusable(f"cannot import the transform {name!r}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise Unusable(f"the transform {name!r} is no function of a sample")
    return found  # type: ignore[no-any-return]  # a function of the user's


def decoding(
    transform: Transform, root: str, objects: Sequence[tuple[Span, bytes]], seconds: float, cores: float
) -> Iterator[Result]:
    """Yield what one thread transforms in ``seconds``, and what as many threads do as there are processors."""
    for name, threads in (("decode", 1), ("decode in threads", min(int(cores), _MOST_THREADS))):
        if threads == 1 and name != "decode":
            return
        with step(name, Exception) as watch:
            if not objects:
                watch.result.skip("no small object was read")
                yield watch.result
                return
            for sample in _samples(root, objects, 1):
                transform(sample)  # what it imports and caches is there from here on
            watch.start()
            made = _transformed(transform, root, objects, watch, (seconds, threads))
            watch.stop()
            result = watch.result
            result.objects, result.size_bytes = made
            result.threads = threads
            result.detail = f"{len(objects)} objects again and again, in {threads} thread{'s' * (threads != 1)}"
        yield watch.result
        if watch.result.outcome == "failed":
            return


def _transformed(
    transform: Transform, root: str, objects: Sequence[tuple[Span, bytes]], watch: step, plan: tuple[float, int]
) -> tuple[int, int]:
    """Return how many objects, of how many bytes, threads transform; the first error is raised."""
    seconds, threads = plan
    made: list[tuple[int, int]] = []
    errors: list[BaseException] = []

    def run() -> None:
        count = size_bytes = 0
        try:
            for sample in _samples(root, objects, None):
                transform(sample)
                count += 1
                size_bytes += sample.size
                if errors or watch.elapsed_s > seconds:
                    break
        except BaseException as error:  # noqa: BLE001  raised where they are waited for
            errors.append(error)
        made.append((count, size_bytes))

    workers = [Thread(target=run, daemon=True) for _ in range(threads)]
    for each in workers:
        each.start()
    try:
        for each in workers:
            each.join()
    except BaseException as error:  # Ctrl-C: they end with the sample that they have begun
        errors.append(error)
        raise
    if errors:
        raise errors[0]
    return sum(count for count, _ in made), sum(size for _, size in made)


def _samples(root: str, objects: Sequence[tuple[Span, bytes]], count: int | None) -> Iterator[Sample]:
    for span, data in islice(cycle(objects), count):
        yield Sample(root, span, data)
