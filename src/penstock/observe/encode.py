"""Events as plain values: what a line of JSON or a log record shows of them."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from penstock.events import Event, named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.observe.sink import Record

__all__ = ["plain", "process", "sentence"]

_NS: Final = 1_000_000_000


def process() -> dict[str, Any]:
    """Return what tells this process from others: ``pid``, and ``rank`` where the environment has ``RANK``."""
    rank = os.environ.get("RANK")
    return {"pid": os.getpid(), **({"rank": rank} if rank else {})}


def plain(record: Record, where: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as JSON shows it: ``time`` (seconds since 1970), ``where``, ``event`` and the event's fields.

    An error is shown as its class, with the text of Penstock's own errors, which holds no secret.
    """
    event = record.event
    shown: dict[str, Any] = {"time": record.at_ns / _NS, **where, "event": type(event).__name__}
    for name in _names(type(event)):
        value = getattr(event, name)
        shown[name] = named(value) if isinstance(value, BaseException) else value
    return shown


def sentence(event: Event) -> str:
    """Return an event as one line of text, its fields in their order: ``RequestEnded s3://b/k id=3 status=200``."""
    words = [type(event).__name__, event.url]
    for name in _names(type(event)):
        value = getattr(event, name)
        if name == "url" or value in ("", None):
            continue
        text = (
            named(value) if isinstance(value, BaseException) else f"{value:.6g}" if isinstance(value, float) else value
        )
        words.append(f"{name}={text}")
    return " ".join(words)


def _names(kind: type[Event]) -> tuple[str, ...]:
    names = _known.get(kind)
    if names is None:
        names = _known[kind] = tuple(field.name for field in fields(kind))
    return names


_known: Final[dict[type[Event], tuple[str, ...]]] = {}
