"""Functions sent to worker processes that are not forked, and hints on workers that fail to start.

Python pickles a function by its name, so the worker must be able to import it. Functions of a notebook, of ``python
-c``, of the main program behind a Ray worker, lambdas and inner functions have no such name: cloudpickle, if it is
there, sends their code.
"""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
import sys
from contextlib import suppress
from io import BytesIO
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any

from penstock.data.region import Region
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAIN = "__main__"
_GUARD = 'write what the script does below if __name__ == "__main__":, or pass num_workers=0, which decodes in threads'


def travel_by_value(functions: Mapping[str, object], workers: int, context: object) -> bool:
    """Return whether some of the functions reach ``workers`` processes, started by ``context``, only as code.

    Of a method, the class is looked at: pickling a method means pickling its object. ``context`` is the argument
    ``multiprocessing_context`` of torch's DataLoader.
    """
    given = context.get_start_method() if isinstance(context, BaseContext) else context
    method, found = given or multiprocessing.get_start_method(), False
    for name, function in functions.items() if method != "fork" else ():
        sent = type(function.__self__) if inspect.ismethod(function) else function
        if sent is None or (error := _unknown_there(sent)) is None:
            continue
        remedy = "define it with def at the top of a module (functools.partial carries arguments)"
        library = find_cloudpickle()
        if library is None:
            remedy += ", install cloudpickle, which sends its code"
        else:
            try:
                library.dumps(sent)
            except Exception as failure:  # noqa: BLE001  of the user's own objects
                error = failure
            else:
                found = True
                continue
        raise Unusable(
            f"{name}={function!r} cannot be sent to num_workers={workers} processes, which {method!r} starts "
            f'({error}): {remedy}, or pass num_workers=0, which decodes in threads, or multiprocessing_context="fork"'
        ) from error
    return found


def _unknown_there(sent: object) -> Exception | None:
    """Return why another process cannot unpickle an object; None if it can."""
    try:
        data = pickle.dumps(sent)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        return error
    main = sys.modules[_MAIN]
    if _MAIN.encode() in data and main.__spec__ is None and getattr(main, "__file__", None) is None:
        return AttributeError("a worker cannot import the main program, which is not a file")
    return None


def find_cloudpickle() -> Any:  # noqa: ANN401  its module, or Ray's copy of it; None: neither is there
    with suppress(ImportError):
        import cloudpickle

        return cloudpickle
    return sys.modules.get("ray.cloudpickle")


class ByValue:
    """A callable object that is pickled with the code of its functions."""

    def __init__(self, value: Any) -> None:  # noqa: ANN401  any object
        self.value = value

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the object with cloudpickle, and separately the memory that it shares with other objects."""
        file, shared = BytesIO(), list[Region]()

        class Pickler(find_cloudpickle().CloudPickler):  # type: ignore[misc]  # known at run time only
            def persistent_id(self, given: object) -> int | None:
                if not isinstance(given, Region):
                    return None
                # A descriptor may be passed once: multiprocessing refuses a second time.
                shared.append(given)
                return len(shared) - 1

        Pickler(file).dump(self.value)
        return _restore_value, (file.getvalue(), shared)

    def __call__(self, *given: Any) -> Any:  # noqa: ANN401  the object's
        return self.value(*given)


class _Unpickler(pickle.Unpickler):
    """Unpickler of objects that ``ByValue`` has pickled, with its shared memory."""

    def __init__(self, data: bytes, shared: list[Region]) -> None:
        super().__init__(BytesIO(data))
        self._shared = shared

    def persistent_load(self, pid: Any) -> Any:  # noqa: ANN401  pickle's own signature
        return self._shared[pid]


def _restore_value(data: bytes, shared: list[Region]) -> ByValue:
    return ByValue(_Unpickler(data, shared).load())


def ended_worker(error: Exception, context: BaseContext | None) -> str:
    """Return a hint for torch's error about a worker that ended or did not start; empty for other errors."""
    text = str(error)
    if not isinstance(error, RuntimeError):
        return ""
    method = context.get_start_method() if context is not None else multiprocessing.get_start_method()
    if "bootstrapping phase" in text:
        return f"workers that {method!r} starts import the script again: {_GUARD}"
    if not text.startswith("DataLoader worker (pid"):
        return ""
    if "Bus error" in text:
        return "workers pass batches on in shared memory, and /dev/shm is full: make it larger, or lower prefetch="
    hint = (
        "a worker process was killed, or ended itself. If the kernel or the container killed it (dmesg names it), "
        "memory ran out: lower num_workers=, prefetch=, batch_size or ReadOptions(ahead_bytes=…), or pass "
        "num_workers=0, which decodes in threads of one process"
    )
    if method == "fork":
        return hint
    return f"{hint}. Workers that {method!r} starts import the script again: {_GUARD}"
