"""The connections of all sessions: whose there are, and which of them are closed, and when."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.transport.session import Handles

__all__ = ["KEPT", "Connections"]

KEPT = 1024  # connections of one store, at most; what its session has in flight bounds it, too
_TIDY_S = 1.0  # how often it looks for connections that have not been used for long


class Connections:
    """The handles of all sessions that may have connections. Of the I/O thread; any thread appends to ``discarded``.

    Attributes:
        crowded: There may be more connections than allowed.
        discarded: Handles that sessions left which are no more.

    """

    def __init__(self) -> None:
        """Begin with none."""
        self.crowded = False
        self.discarded: deque[Handles] = deque()
        self._handles: dict[Handles, None] = {}
        self._tidy_at = 0.0  # when to look after them

    def hold(self, handles: Handles) -> None:
        """Take note that these may have connections from here on."""
        self._handles[handles] = None

    def held(self) -> Iterable[Handles]:
        """Return the handles of all sessions that may have connections."""
        return self._handles

    def untidy(self, now: float) -> bool:
        """Return whether it is time for ``tidy``."""
        return bool(self.discarded) or now >= self._tidy_at

    def tidy(self, now: float) -> None:
        """Close the connections of sessions that are no more, and of those that have not used theirs for long."""
        self._tidy_at = now + _TIDY_S
        while self.discarded:
            self.close(self.discarded.popleft())
        for handles in list(self._handles):
            if not handles.active and now - handles.used_s > handles.idle_s:
                self.close(handles)

    def make_room(self, most: int) -> int:
        """Where sessions together may have more than ``most``, close those that rest, longest unused first.

        What the others have left from busier times is bounded, too: together by half as many again. Returns how many
        connections each store may keep for that.
        """
        held = sum(handles.count() for handles in self._handles)
        if held > most:
            for handles in sorted(self._handles, key=lambda each: each.used_s):
                if held > most and not handles.active:
                    held -= handles.count()
                    self.close(handles)
        self.crowded = held > most
        kept = most * 3 // 2 // len(self._handles) if self.crowded else most
        return max(1, min(KEPT, kept))

    def close(self, handles: Handles) -> None:
        """Close these; none of them carries a call."""
        if self._handles.pop(handles, self) is None:
            handles.close()

    def close_all(self) -> None:
        """Close all, at the end; none carries a call."""
        for handles in self._handles:
            handles.close()

    def abandon(self) -> None:
        """Forget all: their descriptors are others' by now."""
        for handles in self._handles:
            handles.abandon()
        self._handles = {}
