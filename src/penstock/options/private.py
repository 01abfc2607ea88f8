"""Options that may hold a secret: what is shown of them, and what is pickled where."""

from __future__ import annotations

from dataclasses import Field, fields
from functools import wraps
from multiprocessing.reduction import ForkingPickler
from numbers import Integral, Real
from os import PathLike
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import ConfigError, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PUBLIC", "Part", "Private", "hidden"]

# Metadata of a field that never holds a secret: ``field(default="", metadata=PUBLIC)``. Metadata may also name what
# other stores call the same, for those who write that: ``"elsewhere": (name, …)``.
PUBLIC: dict[str, object] = {"public": True}


class Part:
    """Options that answer for their own secrets wherever they are a field: of themselves they have none.

    Fields declared as numbers, truth values and texts are held to that before a class looks at their values.
    """

    __slots__ = ()

    def __new__(cls, *values: object, **options: object) -> Self:
        """Refuse values without a name, and an option that this class does not have; name the one that was meant."""
        if values:
            first = next(iter(cls.__dataclass_fields__))  # type: ignore[attr-defined]
            raise ConfigError(f"{cls.__name__} takes options by name: write {cls.__name__}({first}=…)")
        if strange := [name for name in options if name not in cls.__dataclass_fields__]:  # type: ignore[attr-defined]
            from penstock.options.strange import advice  # it knows all classes of options

            raise ConfigError(advice(cls, strange[0]))
        return object.__new__(cls)

    def __init_subclass__(cls, **options: object) -> None:
        """Check kinds before ``__post_init__``; ``dataclass`` makes classes with slots anew, and comes here twice."""
        super().__init_subclass__(**options)
        check: Callable[[Any], None] | None = vars(cls).get("__post_init__")
        if check is not None and not hasattr(check, "__wrapped__"):

            @wraps(check)
            def checked(self: Part) -> None:
                check_kinds(self)
                check(self)

            cls.__post_init__ = checked  # type: ignore[attr-defined]


_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "True or False"),
    "str": ((str, PathLike), "text"),
}


def check_kinds(options: object) -> None:
    """Hold options to the kinds that their fields declare.

    Raises:
        ConfigError: One has another kind; the text does not show it, for it may be a secret.

    """
    for each in fields(options):  # type: ignore[arg-type]
        kind, _, rest = str(each.type).partition(" | ")
        value = getattr(options, each.name)
        if kind not in _KINDS or rest not in ("", "None") or (rest and value is None):
            continue
        wanted, words = _KINDS[kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise ConfigError(f"{type(options).__name__}.{each.name} must be {words}, not a {type(value).__name__}")


class Private(Part):
    """Options that may hold a secret: those that do are pickled for workers of this process alone (design/0012).

    Whatever a field holds counts as a secret, is not shown and not pickled, unless its kind cannot be one (numbers,
    truth values, Penstock's own parts), or the field says ``metadata=PUBLIC``, or the value is its default. So a class
    of a third party that says nothing gives nothing away. A copy in memory is the value itself: it cannot change.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        """Hold each kind of options to this, third parties' kinds too, whatever ``dataclass`` would write for it."""
        super().__init_subclass__(**options)
        ForkingPickler.register(cls, _for_worker)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Private.__repr__  # type: ignore[method-assign]  # before dataclass writes one that shows all

    def __repr__(self) -> str:
        """Return the public fields."""
        hidden = self._secrets()
        shown = [each for each in fields(self) if each.repr and each.name not in hidden]  # type: ignore[arg-type]
        return f"{type(self).__qualname__}({', '.join(f'{each.name}={getattr(self, each.name)!r}' for each in shown)})"

    def _secrets(self) -> list[str]:
        """Return which fields may hold one."""
        return [each.name for each in fields(self) if _may_be_secret(each, getattr(self, each.name))]  # type: ignore[arg-type]

    def __copy__(self) -> Self:
        """Return itself: it cannot change."""
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        """Return itself: it cannot change."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what holds no secret; ``Unusable`` for what does."""
        if secrets := self._secrets():
            raise Unusable(
                f"{type(self).__name__} with a secret in it ({', '.join(secrets)}) is pickled for worker processes "
                "only, never into a file or for another machine: pass profile=, or set the environment where it is "
                "loaded, or pass store= there"
            )
        return _for_worker(self)


def hidden(options: object) -> list[str]:
    """Return which fields of options may hold a secret, so that nothing shows them."""
    return options._secrets() if isinstance(options, Private) else []  # noqa: SLF001  its own


def _may_be_secret(field: Field[Any], value: object) -> bool:
    if not field.repr:
        return value is not None
    plain = isinstance(value, bool | int | float | Part | FunctionType | BuiltinFunctionType)  # by reference
    return not (plain or value is None or value == field.default or field.metadata.get("public", False))


def _for_worker(options: Private) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Pickle all: what ``multiprocessing`` pickles goes to a process of ours, by a pipe, and into no file."""
    for each in fields(options):  # type: ignore[arg-type]
        if callable(function := getattr(options, each.name)):
            _check_reference(each.name, function)
    return _again, (type(options), {each.name: getattr(options, each.name) for each in fields(options) if each.init})  # type: ignore[arg-type]


def _check_reference(name: str, function: object) -> None:
    """Refuse a function that no other process finds, in words: pickle's name neither the option nor the remedy."""
    try:
        ForkingPickler.dumps(function)
    except Exception as error:
        what = getattr(function, "__qualname__", type(function).__qualname__)
        message = f"{name}={what} cannot be sent to a worker: name a function that a module defines at its top level"
        raise Unusable(message) from error


def _again(kind: type[Private], values: dict[str, object]) -> Private:
    return kind(**values)
