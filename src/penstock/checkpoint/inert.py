"""Goes through a pickle without running anything of it."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import io

__all__ = ["Inert"]


class Inert(pickle.Unpickler):
    """Goes through a pickle without running anything of it, and notes what it asks for.

    Attributes:
        asked: Key and location of each storage, in order.
        names: Each class or function, ``module name``.

    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.asked: list[tuple[str, str]] = []
        self.names: set[str] = set()
        self._nothing = type("Nothing", (_Nothing,), {})

    def find_class(self, module: str, name: str) -> type:
        """Note a name, and stand in for it."""
        self.names.add(f"{module} {name}")
        return self._nothing

    def persistent_load(self, pid: Any) -> object:  # noqa: ANN401  whatever the file says
        """Note a storage; ``UnpicklingError`` for anything else."""
        kind, _, key, location, _ = pid
        if (kind, type(key), type(location)) != ("storage", str, str):
            raise pickle.UnpicklingError("not a storage")
        self.asked.append((key, location))
        return None


class _Nothing:
    """Takes whatever a pickle does to an object, and forgets it."""

    def __new__(cls, *_: object, **__: object) -> Self:
        return super().__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *_: object, **__: object) -> _Nothing:
        return self

    __setstate__ = __setitem__ = append = extend = add = __call__
