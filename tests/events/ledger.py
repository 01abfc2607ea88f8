"""A listener that keeps account: each beginning has one end, attempts count up, and nothing follows an end."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, fields
from typing import TYPE_CHECKING

from penstock.events import OperationEnded, OperationStarted, RequestEnded, RequestStarted

if TYPE_CHECKING:
    from penstock.events import Event

__all__ = ["Ledger"]

_BEGUN = {RequestEnded: RequestStarted, OperationEnded: OperationStarted}


class Ledger:
    """Hears events of any thread."""

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.heard.append(event)

    def of(self, *kinds: type[Event]) -> list[Event]:
        return [event for event in self.heard if isinstance(event, kinds)]

    def open(self) -> Counter[tuple[object, ...]]:
        """Return what has begun and not ended; negative where it is the other way round."""
        account: Counter[tuple[object, ...]] = Counter()
        for event in self.of(RequestStarted, OperationStarted):
            account[_name(event, type(event))] += 1
        for event in self.of(RequestEnded, OperationEnded):
            account[_name(event, _BEGUN[type(event)])] -= 1
        return Counter({name: count for name, count in account.items() if count})

    def check(self) -> None:
        """Compare what was heard with what is promised, once everything has ended."""
        assert not self.open(), "a beginning without one end, or the reverse"
        begun: dict[int, Event] = {}
        ended: dict[int, Event] = {}
        attempts: Counter[int] = Counter()
        under_way: set[int] = set()
        for event in self.heard:
            match event:
                case OperationStarted(id=id, parent=parent):
                    assert id not in begun, "an id was used twice"
                    begun[id] = event
                    assert not parent or parent in begun, "an operation before its parent"
                case OperationEnded(id=id):
                    assert id in begun
                    assert id not in ended
                    ended[id] = event
                case RequestStarted(id=id, parent=parent, attempt=attempt):
                    assert id not in begun, "a request has an operation's id"
                    assert id not in under_way, "an attempt before the end of the last one"
                    attempts[id] += 1
                    assert attempt == attempts[id], "attempts do not count up"
                    under_way.add(id)
                    assert not parent or parent in begun, "a request before its operation"
                    assert parent not in ended or ended[parent].outcome != "done", "a request after its operation"
                case RequestEnded(id=id, parent=parent):
                    under_way.remove(id)
                    assert parent not in ended or ended[parent].outcome != "done", "an end after its operation's"
                    assert (event.outcome == "done") == (not event.error)
                    assert event.elapsed_s >= 0


def _name(event: Event, kind: type[Event]) -> tuple[object, ...]:
    return (kind, *astuple(event)[: len(fields(kind))])
