"""Saving while training goes on: the state is copied aside, and a thread carries it to the store."""

from __future__ import annotations

import atexit
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import Unusable
from penstock.tree import tree_map
from penstock.waiting import LOOK_S

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.checkpoint.run.steps import CheckpointManager, Loader

__all__ = ["AsyncCheckpointer", "Stage"]

_untold: set[AsyncCheckpointer] = set()  # those with a failure that nobody has been told, kept alive by it


class AsyncCheckpointer:
    """Saves steps of a ``CheckpointManager`` in the background, one at a time; whole and compared like all others.

    ``save`` returns once the state is copied to CPU memory (page-locked where there is a GPU): training may change it
    then. It waits for the save before, and raises what went wrong with that. So do ``wait``, leaving the ``with``
    block, and the end of the process: no failure is lost. Memory: one copy of the state, kept for the next.
    """

    def __init__(self, manager: CheckpointManager, *, staging_bytes: int | None = None) -> None:
        """Save through ``manager``; a state of more than ``staging_bytes`` is refused (default: any size).

        ``Unusable`` for a manager across ranks: collectives in the background are the business of torch's own
        ``async_save``, with ``penstock.checkpoint.dcp.StorageWriter``.
        """
        if manager.together:
            raise Unusable("across ranks: torch's async_save with penstock.checkpoint.dcp.StorageWriter saves behind")
        self._manager = manager
        self._most = staging_bytes
        self._stage = Stage()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def save(
        self,
        step: int,
        state: object,
        *,
        loader: Loader | None = None,
        metric: float | None = None,
        overwrite: bool = False,
        weights_only: bool = True,
    ) -> None:
        """Copy ``state`` and where data and generators stand now, and save them as ``step`` in the background.

        The rest is as ``CheckpointManager.save`` has it.

        Raises:
            Unusable: The state has more bytes than may be staged, or something in it is more than weights.
            PenstockError: The save before this one failed; this one was not begun.

        """
        self.wait()
        size = staged_bytes(state)
        if self._most is not None and size > self._most:
            raise Unusable(f"the state has {size:,} bytes and {self._most:,} may be staged")
        everything = self._manager.gathered(state, loader, weights_only=weights_only)
        everything["state"] = self._stage.copy(everything["state"])  # as it was encoded: a queue is a tuple by now
        # No daemon: the interpreter waits for it before anything ends that it needs.
        self._thread = threading.Thread(
            target=self._carry, args=(step, everything, metric, overwrite), name="penstock-checkpoint", daemon=False
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is under way; raise what went wrong with the last save, once."""
        if self._thread is not None:
            while self._thread.is_alive():
                self._thread.join(LOOK_S)
            self._thread = None
        failure, self._failure = self._failure, None
        _untold.discard(self)
        if failure is not None:
            raise failure

    def _carry(self, step: int, everything: dict[str, Any], metric: float | None, overwrite: bool) -> None:  # noqa: FBT001  a thread's target
        try:
            self._manager.put(step, everything, metric, overwrite=overwrite)
        except BaseException as error:  # noqa: BLE001  the trainer's to hear
            self._failure = error
            _untold.add(self)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait; where the block failed, that is what is raised, and a failed save a note on it."""
        try:
            self.wait()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and the checkpoint under way failed: {failure}")


class Stage:
    """CPU memory that one state after another is copied to; page-locked for what comes from a GPU.

    What one copy leaves, the next of the same shapes takes: fresh memory costs more than the copy.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: list[Any] = []

    def copy(self, state: Any) -> Any:  # noqa: ANN401  any nest of tensors
        """Return nested dicts, lists and tuples with each tensor copied; the rest stays itself.

        The copy before this one is gone then.
        """
        torch = torch_module()
        spare: dict[object, list[Any]] = {}
        for tensor in self._held:
            spare.setdefault(_kind(tensor), []).append(tensor)
        copies: dict[int, Any] = {}

        def aside(tensor: Any) -> Any:  # noqa: ANN401  torch is not imported where this is read
            if id(tensor) not in copies:  # tied weights stay tied
                fitting = spare.get(_kind(tensor)) if type(tensor.detach()) is torch.Tensor else None
                empty = fitting.pop() if fitting else torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
                copies[id(tensor)] = empty.copy_(tensor.detach(), non_blocking=True)
            return copies[id(tensor)]

        result = tree_map(aside, state, torch.Tensor)
        self._held = [each.detach() for each in copies.values() if type(each.detach()) is torch.Tensor]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return result


def _kind(tensor: Any) -> object:  # noqa: ANN401  see Stage
    """Say what memory a tensor's copy takes."""
    strides = tensor.stride() if tensor.layout is torch_module().strided else None
    return tensor.dtype, tensor.shape, strides, tensor.layout, tensor.is_cuda or tensor.is_pinned()


def staged_bytes(state: Any) -> int:  # noqa: ANN401  see Stage
    """Return how many bytes the tensors of a state have."""
    sizes: dict[int, int] = {}

    def measure(tensor: Any) -> Any:  # noqa: ANN401  see Stage
        sizes[id(tensor)] = tensor.numel() * tensor.element_size()
        return tensor

    tree_map(measure, state, torch_module().Tensor)
    return sum(sizes.values())


def _tell_left() -> None:
    """Say at the end of the process, which waits for the threads, what failed and nobody has been told."""
    for each in list(_untold):
        try:
            each.wait()
        except BaseException:  # noqa: BLE001  there is no caller left: as an uncaught one is told, and then the next
            sys.excepthook(*sys.exc_info())


atexit.register(_tell_left)
