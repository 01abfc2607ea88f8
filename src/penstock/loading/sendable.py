"""Functions that have to reach worker processes: what cannot be sent is refused before a worker starts."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_sendable"]


def check_sendable(functions: Mapping[str, object], workers: int, context: object) -> None:
    """Refuse functions that cannot be pickled where ``context`` starts ``workers`` processes by other means than fork.

    A method is left to the loader: pickling one means pickling its object. ``context`` is what torch's DataLoader takes
    as ``multiprocessing_context``.

    Raises:
        Unusable: A lambda, or a function defined inside another.

    """
    given = context.get_start_method() if isinstance(context, BaseContext) else context
    method = given or multiprocessing.get_start_method()
    for name, function in functions.items() if method != "fork" else ():
        if function is None or inspect.ismethod(function):
            continue
        try:
            pickle.dumps(function)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise Unusable(
                f"{name}={function!r} cannot be sent to num_workers={workers} processes, which {method!r} starts "
                f"({error}): define it with def at the top of a module (functools.partial carries arguments), or pass "
                'num_workers=0, which decodes in threads, or multiprocessing_context="fork"'
            ) from error
