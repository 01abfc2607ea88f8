"""Checks for values that ``torch.load`` would refuse with weights only, made before a save."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import Unusable

__all__ = ["ATOMS", "check_weights_only", "shown"]

ATOMS = frozenset((bool, int, float, complex, str, type(None)))  # hold no other objects; not worth caching
_INSTEAD = "save plain values, or say weights_only=False when it is saved and when it is restored"


def check_weights_only(value: Any, at: str, *, apart: bool) -> None:  # noqa: ANN401  whatever is to be saved
    """Raise ``Unusable`` unless ``torch.load`` accepts a value with weights only; copies no tensor data.

    With ``apart`` the value is for torch's distributed checkpoints, which take dicts and lists apart.

    Raises:
        Unusable: torch would refuse it. The message names the innermost refused value by its path, which begins with
            ``at``.

    """
    parts = _apart(value) if apart else value
    if why := _unsafe(parts):
        _refuse(parts, at, why, set())


def shown(error: Exception) -> str:
    """Return an error's type and text, shortened to 200 characters."""
    return f"{type(error).__name__}: {error}"[:200]


def _apart(value: Any) -> Any:  # noqa: ANN401  see check_weights_only
    """Return the part of a value that torch's distributed checkpoints pickle, in dicts and lists by the same keys."""
    if isinstance(value, torch_module().Tensor):
        return None
    if isinstance(value, Mapping):
        return {_plain(key): _apart(each) for key, each in value.items()}
    return [_apart(each) for each in value] if type(value) is list else value


def _plain(key: object) -> object:
    return key if type(key) in ATOMS else str(key)


def _unsafe(value: object) -> str:
    """Return why torch would not load a value with weights only, or an empty string; copies no tensor data."""
    torch, file = torch_module(), io.BytesIO()
    try:
        torch.save(value, file, pickle_module=_PICKLING)
    except Exception as error:  # noqa: BLE001  whatever a class of somebody else's raises
        return f"cannot be pickled ({shown(error)}): save plain values"
    file.seek(0)
    try:
        found: list[str] = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception as error:  # noqa: BLE001  of any kind, where torch has no word for what it meets
        return f"cannot be read with weights_only=True ({shown(error)}): {_INSTEAD}"
    return f"needs {', '.join(found):.200}, which weights_only=True does not call: {_INSTEAD}" if found else ""


def _refuse(value: Any, at: str, why: str, seen: set[int]) -> None:  # noqa: ANN401  see check_weights_only
    """Raise ``Unusable`` with the path of the innermost value that torch would not load."""
    seen.add(id(value))
    inner: dict[Any, Any] = {}
    if isinstance(value, dict):
        inner = dict(value)
    elif type(value) in (list, tuple):
        inner = dict(enumerate(value))
    for key, each in inner.items():
        if id(each) not in seen and (found := _unsafe([each])):
            _refuse(each, f"{at}[{key!r:.80}]", found, seen)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if callable(getattr(type(value), "state_dict", None)):
        why = why.replace("save plain values", "save its state_dict()")
    raise Unusable(f"{at} is a {kind}, and {why}")


class _Pickler(pickle.Pickler):
    """A pickler that omits tensor data but keeps tensors' attributes, and their class if it is not torch's own."""

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401  pickle's
        torch = torch_module()
        if isinstance(obj, torch.Tensor):
            kind = type(obj)
            own = kind.__module__.partition(".")[0] == "torch"
            usual = kind.__reduce_ex__ in (torch.Tensor.__reduce_ex__, torch.nn.Parameter.__reduce_ex__)
            return OrderedDict, (), {"of": None if own else kind, "attributes": vars(obj) if usual else {}}
        return NotImplemented


_PICKLING = SimpleNamespace(__name__="pickle", Pickler=_Pickler)  # the pickle module that torch.save is given
