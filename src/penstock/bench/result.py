"""What one step of a benchmark measured, and the watch that measures it."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic, process_time
from typing import TYPE_CHECKING, Literal, Self

from penstock.bench.machine import occupied
from penstock.errors import PenstockError, Unsupported, printable
from penstock.events import HostTimings, measured

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Result", "step"]


@dataclass(slots=True)
class Result:
    """One step. Rates are those after a warm-up, which is not counted.

    Attributes:
        name: ``list``, ``write small``, ``read small``, ``write large``, ``read large``, ``decode``,
            ``decode in threads`` or ``delete``.
        outcome: ``measured``; ``failed``; ``skipped``, where it was not tried.
        detail: What was measured, or why it was not, in one line.
        objects: How many objects (of ``list`` keys, of ``decode`` samples).
        size_bytes: Their bytes, as far as they were moved.
        elapsed_s: Wall time.
        cpu_s: Processor time of this process, over all its threads.
        machine_busy: Share of the machine's processors that was busy, with any program, 0 to 1; 0.0: not known.
        requests: Attempts of requests that ended.
        throttled: How many of these the store refused because it was asked too often.
        first_byte_p50_s: Seconds to the first byte of responses to reads, the median; 0.0 where none were measured.
        first_byte_p99_s: The same, which one response in a hundred exceeds.
        in_flight: Reads under way at once, on average.
        threads: Threads that worked at once.
        binds: What limits the rate, as far as can be told: see ``verdict.binding``.
        error: The failure.

    """

    name: str
    outcome: Literal["measured", "failed", "skipped"] = "measured"
    detail: str = ""
    objects: int = 0
    size_bytes: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    machine_busy: float = 0.0
    requests: int = 0
    throttled: int = 0
    first_byte_p50_s: float = 0.0
    first_byte_p99_s: float = 0.0
    in_flight: float = 0.0
    threads: int = 1
    binds: str = ""
    error: Exception | None = field(default=None, compare=False)

    @property
    def objects_per_s(self) -> float:
        """Objects per second; 0.0 of no time."""
        return self.objects / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second; 0.0 of no time."""
        return self.size_bytes / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def cores(self) -> float:
        """Processors that this process kept busy, on average."""
        return self.cpu_s / self.elapsed_s if self.elapsed_s else 0.0

    def skip(self, detail: str) -> None:
        """Set the outcome to ``skipped``."""
        self.outcome, self.detail = "skipped", detail


class step:  # noqa: N801  used as a function is
    """Measure a block into a result, from ``start`` on; an error of the block is what came of it.

    ``Unsupported`` skips the step. Only errors of ``kind`` end here, so Ctrl-C never does.
    """

    def __init__(self, name: str, kind: type[Exception] = PenstockError) -> None:
        """Begin now; ``start`` begins anew, after a warm-up."""
        self.result, self._kind = Result(name), kind
        self.start()

    def start(self) -> None:
        """Count from here on."""
        self._hosts, self._occupied = measured(), occupied()
        self._cpu_s, self._began = process_time(), monotonic()
        self.result.objects = self.result.size_bytes = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since ``start``."""
        return monotonic() - self._began

    def stop(self) -> None:
        """Count no further: what follows only lets go."""
        result = self.result
        result.elapsed_s, result.cpu_s = monotonic() - self._began, process_time() - self._cpu_s
        spent = HostTimings()
        for name, host in measured().items():
            before = self._hosts.get(name)
            spent += host if before is None else host - before
        result.machine_busy = occupied().share(self._occupied)
        result.requests, result.throttled = spent.responses, spent.throttled
        result.first_byte_p50_s = spent.first_byte.quantile(0.5)
        result.first_byte_p99_s = spent.first_byte.quantile(0.99)
        if result.elapsed_s:
            result.in_flight = (spent.first_byte_s + spent.body_s) / result.elapsed_s

    def __enter__(self) -> Self:
        """Return itself; ``result`` is for the block to fill."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Complete the result."""
        result = self.result
        if not result.elapsed_s:
            self.stop()
        if isinstance(error, Unsupported):
            result.skip(str(error))
        elif isinstance(error, self._kind):
            text = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
            result.outcome, result.detail, result.error = "failed", text, error
        result.detail = printable(result.detail)
        return isinstance(error, self._kind)
