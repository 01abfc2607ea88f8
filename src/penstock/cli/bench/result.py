"""Result of one benchmark step, and the stopwatch that measures it."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic, process_time
from typing import TYPE_CHECKING, Literal, Self

from penstock.cli.bench.machine import occupied
from penstock.errors import PenstockError, Unsupported, printable
from penstock.events import HostTimings, measured

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Result", "step"]


@dataclass(slots=True)
class Result:
    """Result of one step; the warm-up is not counted.

    Attributes:
        name: ``list``, ``write small``, ``read small``, ``write large``, ``read large``, ``decode``,
            ``decode in threads`` or ``delete``.
        outcome: ``measured``; ``failed``; ``skipped``: not tried.
        detail: Description of the measurement, or the reason why the step was not measured, in one line.
        objects: Number of objects (``list``: keys; ``decode``: samples).
        size_bytes: Number of bytes moved.
        elapsed_s: Wall time.
        cpu_s: Processor time of this process, over all its threads.
        machine_busy: Busy share of the machine's processors, for any program, 0 to 1; 0.0: unknown.
        requests: Number of request attempts that ended.
        throttled: Number of these attempts that the store throttled.
        first_byte_p50_s: Median of the seconds to the first byte of responses to reads; 0.0 if none were measured.
        first_byte_p99_s: 99th percentile of the same.
        in_flight: Average number of concurrent reads.
        threads: Number of concurrent threads.
        binds: Limit of the rate, empty if unknown: see ``verdict.binding``.
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
        """Objects per second; 0.0 if no time has passed."""
        return self.objects / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second; 0.0 if no time has passed."""
        return self.size_bytes / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def cores(self) -> float:
        """Processors that this process kept busy, on average."""
        return self.cpu_s / self.elapsed_s if self.elapsed_s else 0.0

    def skip(self, detail: str) -> None:
        """Set the outcome to ``skipped``."""
        self.outcome, self.detail = "skipped", detail


class step:  # noqa: N801  used like a function
    """Context manager that measures a block from ``start`` on; an error of the block becomes its result.

    ``Unsupported`` skips the step. Only errors of ``kind`` are suppressed, never Ctrl-C.
    """

    def __init__(self, name: str, kind: type[Exception] = PenstockError) -> None:
        """Start the measurement; ``start`` restarts it after a warm-up."""
        self.result, self._kind = Result(name), kind
        self.start()

    def start(self) -> None:
        """Restart the measurement."""
        self._hosts, self._occupied = measured(), occupied()
        self._cpu_s, self._began = process_time(), monotonic()
        self.result.objects = self.result.size_bytes = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since ``start``."""
        return monotonic() - self._began

    def stop(self) -> None:
        """Stop the measurement; the rest of the block only releases resources."""
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
        """Return itself; the block fills ``result``."""
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
