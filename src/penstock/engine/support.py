"""Detection of a driver's verbs by the methods it implements, and a clear error for a missing verb."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from penstock.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

V = TypeVar("V")

# By the verb's name in ``contracts.driver``: what the store cannot do, and what to do instead.
_ADVICE = {
    "List": ("list objects", "name them: from_objects, from_manifest"),
    "Versions": ("read versions by id", "leave out versions=True; reads of replaced objects then raise Changed"),
    "Put": ("write objects", "it is read only, so write to another store"),
    "Multipart": ("take an object in parts", "pass WriteOptions(part_bytes=…) of the object's size or more"),
    "Copy": ("copy objects", "read the object and write it again (ps.open)"),
    "Move": ("move objects", "write without a condition"),
    "PartCopy": ("copy part of an object", "read the object and write it again (ps.open)"),
    "Delete": ("delete objects", "delete them with the store's own tools"),
    "Buckets": ("create or delete buckets", "do it with the store's own tools"),
    "Presign": ("sign addresses", "serve the object in another way"),
}


class _Addressed(Protocol):
    def url(self, key: str) -> str: ...


def supports(driver: object, verb: Callable[..., object]) -> bool:
    """Return whether ``driver`` has all methods of a verb of ``contracts.driver`` (``List``, ``Put``, …)."""
    return all(callable(getattr(driver, name, None)) for name in _methods(verb))


def require(driver: _Addressed, verb: Callable[..., V], key: str = "") -> V:
    """Return ``driver`` as a ``verb`` of ``contracts.driver``; ``Unsupported`` if it lacks the verb. No request."""
    if not supports(driver, verb):
        action, advice = _ADVICE.get(verb.__name__, (verb.__name__.lower(), "use another store"))
        # Only drivers whose URLs may belong to another store have a hint.
        hint = getattr(driver, "hint", None)
        advice = " or ".join(filter(None, (advice, hint(key) if hint is not None else "")))
        root = driver.url("")
        store = "a local path" if root == "/" else f"the store {root}"
        raise Unsupported(f"{store} cannot {action}: {advice}", url=driver.url(key))
    return cast("V", driver)


@cache
def _methods(verb: Callable[..., object]) -> tuple[str, ...]:
    return tuple(name for name, value in vars(verb).items() if callable(value) and not name.startswith("_"))
