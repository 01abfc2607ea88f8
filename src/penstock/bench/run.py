"""The whole benchmark, step after step; what it wrote is deleted, whatever happens."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.bench.decoding import decoding, named
from penstock.bench.machine import examined
from penstock.bench.reading import LARGE_BYTES, SMALL_BYTES, listing, read_large, read_small
from penstock.bench.result import step
from penstock.bench.verdict import binding
from penstock.bench.writing import Written
from penstock.errors import PenstockError, Unusable
from penstock.events import measured
from penstock.options import RetryOptions
from penstock.protocols.driver import Delete, Put
from penstock.providers.urls import parse
from penstock.source import Source
from penstock.values import as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Iterator

    from penstock.bench.machine import Machine
    from penstock.bench.result import Result
    from penstock.events import HostTimings
    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta, Span

__all__ = ["BenchOptions", "measure"]

_PATIENCE_S = 20.0  # for a store that answers, and stumbles
_MOST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """How a bucket is measured.

    Attributes:
        seconds: Of each step, after a warm-up of a fifth of it. 5 s are enough for the rate to settle.
        read_only: Write nothing: what is read has to be there.
        transform: What decodes a sample, as ``module:name``; empty: nothing is decoded.

    """

    seconds: float = 5.0
    read_only: bool = False
    transform: str = ""

    def __post_init__(self) -> None:
        """Refuse what would measure nothing, or never end."""
        seconds: object = self.seconds
        if not (isinstance(seconds, int | float) and 0 < seconds <= _MOST_SECONDS):
            raise Unusable(f"seconds is more than 0, and at most {_MOST_SECONDS:.0f}, not {self.seconds!r}")
        if not isinstance(self.transform, str):
            raise Unusable(f"transform names a function, as 'module:name'; {self.transform!r} is no name")


def measure(
    url: str | os.PathLike[str], store: StoreOptions | str | None = None, options: BenchOptions | None = None
) -> Generator[Machine | Result]:
    """Measure the store of ``url``, below its key: yield each result as soon as it is there, and then the machine.

    In this order: list; write small objects and a large one; read small objects and ranges of large ones: those that
    are there, else those that were written; decode small ones; delete what was written. Each step takes
    ``options.seconds``. At most 2,000 objects of 100 KiB and one of 256 MiB are written, to keys that begin with
    ``penstock-bench-``, and deleted again on any way out, Ctrl-C included; a process that is killed leaves them.

    The requests cost what the store charges for them: some ten thousand, at 2,000 objects a second and 5 s.

    Raises:
        InvalidURL, UnknownScheme, ConfigError: The URL cannot be read, or options cannot work.
        Unusable: There is no such transform. All other errors are results.

    """
    options = options or BenchOptions()
    transform = named(options.transform) if options.transform else None
    location = parse(url)
    given = Source(location, store).options
    own = replace(given, retry=RetryOptions(patience_s=_PATIENCE_S, first_contact_s=_PATIENCE_S / 2))
    with Source(location, own) as source:
        before = measured()
        listed, metas = listing(source, location.key, options.seconds)
        if not metas:
            with suppress(PenstockError):  # one object of a store that lists nothing
                metas = [source.head(location.key)]
        machine = examined(_host(before))

        def judged(result: Result) -> Result:
            result.binds = binding(result, machine, own)
            return result

        yield judged(listed)
        if listed.outcome != "failed":
            run = _Run(source, as_folder(location.key), metas, options)
            try:
                for result in run.stored():
                    yield judged(result)
                if transform is not None:
                    for result in decoding(transform, source.root, run.small, options.seconds / 2, machine.cores):
                        yield judged(result)
                if run.written is not None:
                    yield judged(run.written.deleting())
            finally:
                if run.written is not None:
                    with suppress(PenstockError):  # the store has refused already, and was told of
                        run.written.clear()
        yield machine


class _Run:
    """The steps that touch objects.

    Attributes:
        written: What the benchmark wrote; None where it writes nothing.
        small: Some of the small objects that were read.

    """

    def __init__(self, source: Source, folder: str, metas: list[ObjectMeta], options: BenchOptions) -> None:
        self._source, self._metas, self._options = source, metas, options
        self.written: Written | None = None
        self.small: list[tuple[Span, bytes]] = []
        self._stem = f"{folder}penstock-bench-{uuid4().hex}-"  # no folder: a file system would keep it

    def stored(self) -> Iterator[Result]:
        """Yield the results of writes and reads."""
        seconds = self._options.seconds
        why = self._why_not()
        if why:
            with step("write") as watch:
                watch.result.skip(why)
            yield watch.result
        else:
            self.written = Written(self._source, self._stem)
            yield self.written.small(seconds)
            yield self.written.large(seconds)
        result, self.small = read_small(self._source, self._those(small=True), seconds)
        yield result
        yield read_large(self._source, self._those(small=False), seconds)

    def _why_not(self) -> str:
        if self._options.read_only:
            return "read only"
        if not self._source.supports(Put):
            return "this store is read only"
        return "" if self._source.supports(Delete) else "this store deletes nothing: what is written would stay"

    def _those(self, *, small: bool) -> list[ObjectMeta]:
        """Return the user's own objects of a kind, else those of the benchmark."""

        def fits(meta: ObjectMeta) -> bool:
            return meta.size <= SMALL_BYTES if small else meta.size >= LARGE_BYTES

        own = [meta for meta in self._metas if fits(meta)]
        return own or [meta for meta in (self.written.metas if self.written else ()) if fits(meta)]


def _host(before: dict[str, HostTimings]) -> str:
    """Return the host that has answered since; empty for a store without a network."""
    spent = {name: host - before[name] if name in before else host for name, host in measured().items()}
    return max(spent, key=lambda name: spent[name].responses, default="")
