"""An operation for measurements: parts that do nothing."""

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.jobs.parts.operation import Operation, Planned
from penstock.options import StoreOptions

__all__ = ["Nothing"]


@dataclass(frozen=True)
class Nothing(Operation):
    """Parts that do nothing, and are recorded."""

    name: ClassVar[str] = "nothing"
    verb: ClassVar[str] = "doing nothing"
    counts: ClassVar[tuple[str, ...]] = ("failed",)

    parts: int
    store: StoreOptions | str = field(default_factory=StoreOptions)

    urls = ()

    @property
    def arguments(self):
        return {"parts": self.parts}

    def planned(self):
        return Planned([(number, 1, 1) for number in range(self.parts)], self.parts, self.parts)

    def work(self, *_):
        return None
