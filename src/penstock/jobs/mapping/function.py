"""The function of a map: its identity, its pickling, and its calls, which count what became of the samples."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.data.loading.sendable import find_cloudpickle
from penstock.errors import PenstockError, Transient, Unusable, kind_of
from penstock.jobs.parts.operation import SKIPPED, fail
from penstock.values import check_choice, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from penstock.jobs.mapping.pieces import SourceSample
    from penstock.jobs.parts.records import PartRecord

# Skipped samples of a part: so many, or a share of all.
_MOST_SKIPPED, _SHARE_SKIPPED = 20, 10
_SKIPPED = object()


class MapFunction:
    """Function of a map, or class whose object each process makes once; pickled with its code where that is possible.

    ``identity`` is its name with ``version``, or with the digest of its source text: the records of a job have it.
    """

    def __init__(self, given: Callable[..., Any], version: str | None) -> None:
        if not callable(given):
            raise Unusable(f"function must be callable, got {kind_of(given)}")
        self._given, self._call = given, None if inspect.isclass(given) else given
        named = given if hasattr(given, "__qualname__") else type(given)
        name = f"{named.__module__}:{named.__qualname__}"
        if version is None:
            try:
                version = f"source {sha256(inspect.getsource(named).encode()).hexdigest()[:16]}"
            except (OSError, TypeError):
                raise Unusable(
                    f'cannot find the source text of {name}: pass version="…", and change it with it'
                ) from None
        self.identity = f"{name} {version}"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle lambdas, and functions of the main program, with their code, if cloudpickle or Ray is there."""
        library = find_cloudpickle()
        if library is None:
            return _restore, (self._given, self.identity)
        return _load, (library.dumps((self._given, self.identity)),)

    def __call__(self, *given: Any) -> Any:  # noqa: ANN401  the function's
        if self._call is None:
            self._call = self._given()
        return self._call(*given)


def _restore(given: Callable[..., Any], identity: str) -> MapFunction:
    found = MapFunction(given, "")
    found.identity = identity
    return found


def _load(data: bytes) -> MapFunction:
    import pickle

    return _restore(*pickle.loads(data))  # noqa: S301  of this program


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """Calls of a function for the samples of a part."""

    function: MapFunction
    batch: int | None
    seed: int | None
    on_error: Literal["raise", "skip"]

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("seed", 0)):
            if (value := getattr(self, name)) is not None:
                whole(value, name, least)
        check_choice(self.on_error, ("raise", "skip"), "on_error")

    def outputs(
        self, samples: Iterator[SourceSample], record: PartRecord, *, integers: bool
    ) -> Generator[tuple[SourceSample, Any]]:
        """Yield each output with its sample; count samples in ``record``.

        A list has several outputs; of ``integers`` it is one.
        """
        counts = record.counts
        while together := [*islice(samples, self.batch or 1)]:
            for sample, found in self._call(counts["samples"], together, record):
                counts["samples"] += 1
                if found is _SKIPPED:
                    counts["skipped"] += 1
                    continue
                several = found if isinstance(found, list) and not (integers and _is_one(found)) else [found]
                given = [each for each in several if each is not None]
                counts["kept" if given else "left_out"] += 1
                counts["outputs"] += len(given)
                for each in given:
                    yield sample, each
        skipped, total = counts["skipped"], counts["samples"]
        if skipped and (skipped == total or skipped > max(_MOST_SKIPPED, total // _SHARE_SKIPPED)):
            first = record.failures[0]
            raise Unusable(
                f'{skipped} of {total} samples of part {record.part} would be skipped, and on_error="skip" allows a '
                f"tenth of them: {first['error']}",
                url=first["url"],
            )

    def _call(self, first: int, samples: list[SourceSample], record: PartRecord) -> list[tuple[SourceSample, Any]]:
        try:
            values = [sample.load() for sample in samples]
            random = () if self.seed is None else (np.random.default_rng((self.seed, record.part, first)),)
            found = self.function(values if self.batch else values[0], *random)
        except Transient:
            # A store that the function reads is down: another attempt may succeed, so no sample is at fault.
            raise
        except Exception as error:
            failure = self._failure(error, samples)
            if self.on_error == "raise":
                raise failure from error
            if len(samples) > 1:
                return [each for at, one in enumerate(samples, first) for each in self._call(at, [one], record)]
            failure.message = f"{SKIPPED}{failure.message}"
            fail(record, failure)
            return [(samples[0], _SKIPPED)]
        if self.batch is None:
            return [(samples[0], found)]
        if not isinstance(found, list) or len(found) != len(samples):
            raise Unusable(
                f"a function with batch= must return a list of as many values as samples, {len(samples)}, got "
                f"{len(found) if isinstance(found, list) else kind_of(found)}",
                url=samples[0].locate()[1],
            )
        return [*zip(samples, found, strict=True)]

    def _failure(self, error: Exception, samples: list[SourceSample]) -> PenstockError:
        name, url = samples[0].locate()
        which = name if len(samples) == 1 else f"{len(samples)} samples from {name} on"
        cause = f"{type(error).__name__}: {error}"
        return Unusable(f'cannot map {which}: {cause:.500}; correct it, or pass on_error="skip"', url=url)


def _is_one(found: list[Any]) -> bool:
    return bool(found) and isinstance(found[0], int | np.integer)
